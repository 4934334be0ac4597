"""The optimizer as a stage: answers an iteration with a plan, or with why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ForecastMade,
    IterationStarted,
    Mode,
    Offer,
    Plan,
    PlanNone,
    WorkloadForecast,
)
from kinema_core.model.catalog import PriceError
from kinema_core.model.cluster import Cluster, evolve
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.stage import AtVersion, Moment, NoState, Want
from kinema_optimizer.adapters.stops import ClockStop, RecordedStop, StopRule
from kinema_optimizer.errors import UnsoundPlanError
from kinema_optimizer.logic.reports import none_of, price_missing, recheck_failed, recorded_solve
from kinema_optimizer.planner import plan_for, reference_for
from kinema_optimizer.settings import Settings

__all__ = ["NAME", "Optimizer", "plan_for", "reference_for"]

NAME: Final = "optimizer"

register("optimizer.before-answer")


class Optimizer:
    """Proposes the cheapest set of nodes, with the placement of every pod."""

    name = NAME
    consumes = ("catalog-published", "iteration-started", "forecast-made")
    folds: tuple[str, ...] = ()

    def __init__(self, settings: Settings) -> None:
        self._planning = settings.planning
        self._offers: tuple[Offer, ...] | None = None

    def initial(self) -> Cluster:
        """See `Stage`."""
        return Cluster()

    def fold(self, state: Cluster, event: Event) -> Cluster:
        """See `Stage`."""
        if isinstance(event.body, ClusterSnapshot | ClusterDelta):
            return evolve(state, event.body)
        return state

    def recall(self, event: Event) -> None:
        """The newest catalog holds."""
        if isinstance(event.body, CatalogPublished):
            self._offers = event.body.offers

    def wants(self, event: Event) -> Want:
        """The state that the iteration was started on; none for what is not answered."""
        asked = _asked(event.body)
        return NoState() if asked is None else AtVersion(asked[1])

    async def handle(self, event: Event, state: Cluster | None, moment: Moment) -> Sequence[AnyBody]:
        """Answer the forecasts of a reschedule iteration, and an autoscale iteration as such."""
        asked = _asked(event.body)
        if asked is None or state is None:
            return []
        mode, version, forecasts = asked
        if self._offers is None:
            return [PlanNone(mode=mode, version=version, reason="no-catalog")]
        recorded = recorded_solve(moment.recorded)
        limit = self._planning.time_limit_seconds
        stop: StopRule = ClockStop(limit) if recorded is None else RecordedStop(recorded)
        job = partial(
            plan_for,
            state,
            self._offers,
            now=moment.now,
            settings=self._planning,
            mode=mode,
            forecasts=forecasts,
            stop=stop,
        )
        try:
            answer = await asyncio.to_thread(_answer, job, mode, version)  # HiGHS lets go of the GIL
        except asyncio.CancelledError:
            stop.cancel()  # a thread cannot be killed; it ends at the solver's next callback
            raise
        faultpoint("optimizer.before-answer")
        return [answer]


def _asked(body: AnyBody) -> tuple[Mode, int, tuple[WorkloadForecast, ...]] | None:
    """Mode, state version and forecasts of what is to be answered; a reschedule iteration waits for its forecasts."""
    if isinstance(body, ForecastMade):
        return "reschedule", body.version, body.forecasts
    if isinstance(body, IterationStarted) and body.mode == "autoscale":
        return "autoscale", body.version, ()
    return None


def _answer(job: Callable[[], Plan], mode: Mode, version: int) -> Plan | PlanNone:
    try:
        plan = job()
    except PriceError as error:
        return price_missing(mode, version, str(error))
    except UnsoundPlanError as error:
        return recheck_failed(error.plan, error.violations)
    return none_of(plan) if plan.status == "nothing-better" else plan
