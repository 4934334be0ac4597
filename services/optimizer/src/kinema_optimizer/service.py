"""The optimizer as a stage: answers an iteration with a plan, or with why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from msgspec import structs

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    Event,
    ForecastMade,
    IterationStarted,
    Mode,
    NoPlanFound,
    Offer,
    Plan,
    ReplicasAhead,
    WorkloadForecast,
)
from kinema_core.model.boot_times import BootTimes
from kinema_core.model.catalog import PriceError
from kinema_core.model.cluster import Cluster, fold
from kinema_core.model.commitments import offers_left
from kinema_core.model.foreign import beside_its_autoscaler
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.stage import AtVersion, Moment, NoState, Want
from kinema_optimizer.policies.answers import Memories, evaluated
from kinema_optimizer.policies.policy import Policy, Tick
from kinema_optimizer.policies.registry import USES_USAGE, policy_named
from kinema_optimizer.process.client import InThread, Solver, in_thread
from kinema_optimizer.process.job import (
    Job,
    is_refusal,
    price_missing,
    recorded_failure,
    recorded_solve,
    repeat_failure,
)
from kinema_optimizer.request.ahead import room_ahead
from kinema_optimizer.request.goal import Goals
from kinema_optimizer.request.known import Refusals, left_to_others
from kinema_optimizer.request.stock import StockOuts
from kinema_optimizer.settings import NAME, Settings
from kinema_optimizer.solvers.stopping import ClockStop, RecordedStop, StopRule

register("optimizer.before-answer")


class Optimizer:
    """Proposes the cheapest set of nodes, with the placement of every pod."""

    name = NAME
    past = None
    consumes = (
        "plan-proposed",
        "catalog-published",
        "iteration-started",
        "forecast-made",
        "step-started",
        "step-succeeded",
        "step-failed",
        "execution-completed",
        "execution-aborted",
        "policy-evaluated",
    )

    def __init__(
        self,
        settings: Settings,
        solving: Solver | None = None,
        stop: Callable[[], StopRule] | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Without `solving`, plans are made in a thread of this process; `stop` ends the solves of policies.

        `policy` is asked in place of the one that the settings name.
        """
        self._planning = settings.planning
        self._solving = solving or InThread()
        self._broker = settings.runtime if settings.solver.share else None
        self._offers: tuple[Offer, ...] | None = None
        self._delegated = False
        self._refusals = Refusals()
        self._stock_outs = StockOuts()
        self._boot_times = BootTimes()
        self._goals = Goals()
        self._ahead: ReplicasAhead | None = None
        self._stop = stop or (lambda: ClockStop(settings.planning.time_limit_seconds))
        chosen, usable = settings.policy, settings.planning.usable
        delay = chosen.delay_seconds
        self._policy = policy
        if policy is None and chosen.name != "kinema":
            self._policy = policy_named(chosen.name, usable, delay)
        self._shadows = tuple(policy_named(name, usable, delay) for name in chosen.shadow)
        self._memories = Memories()
        self.folds = ("usage-sampled",) if USES_USAGE.intersection((chosen.name, *chosen.shadow)) else ()

    def initial(self) -> Cluster:
        """See `Stage`."""
        return Cluster()

    def fold(self, state: Cluster, event: Event) -> Cluster:
        """See `Stage`."""
        return fold(state, event)

    def recall(self, event: Event) -> None:
        """Keep the newest catalog and forecast, boot times, goals of plans, and what was refused or sold out.

        And what policies remember.
        """
        self._memories = self._memories.after(event)
        self._refusals = self._refusals.after(event, self._planning.refused_seconds)
        self._stock_outs = self._stock_outs.after(event, self._planning.stock_out_seconds)
        self._boot_times = self._boot_times.after(event)
        self._goals = self._goals.after(event)
        if isinstance(event.body, CatalogPublished):
            self._offers, self._delegated = event.body.offers, event.body.delegated
        elif isinstance(event.body, ForecastMade):
            self._ahead = event.body.ahead

    def wants(self, event: Event) -> Want:
        """The state that the iteration was started on; none for what is not answered."""
        asked = _question_in(event.body)
        return NoState() if asked is None else AtVersion(asked[1])

    async def handle(self, event: Event, state: Cluster | None, moment: Moment) -> Sequence[AnyBody]:
        """Answer the forecasts of a reschedule iteration, and an autoscale iteration as such."""
        asked = _question_in(event.body)
        if asked is None or state is None:
            return []
        mode, version, forecasts = asked
        rest_of = event.body.continues if isinstance(event.body, IterationStarted) else ""
        if self._offers is None:
            return [NoPlanFound(mode=mode, version=version, reason="no-catalog")]
        state = self._mark(state, moment.now)
        left = offers_left(self._offers, state)
        offers = self._stock_outs.shown_in(left, moment.now, self._planning.stock_out_seconds)
        tick = Tick(state, offers, moment.now, usage=state.usage, options=self._planning.mobility)
        if self._policy is None:
            planning = self._planning.for_a_rest() if rest_of else self._planning
            try:
                ahead = room_ahead(
                    self._ahead,
                    state,
                    offers,
                    moment.now,
                    mode=mode,
                    boot_times=self._boot_times,
                    settings=planning,
                )
            except PriceError as error:
                return [price_missing(mode, version, str(error))]
            goal = self._goals.of(rest_of)
            job = Job(state, offers, moment.now, planning, mode, forecasts, self._broker, ahead, goal)
            answers: list[AnyBody] = [await self._answer(job, moment.recorded)]
        else:
            answers = list(await self._ruled(self._policy, tick, mode, moment.recorded))
        answers = [_continuing(body, rest_of) for body in answers]
        for policy in self._shadows:
            _, said = await asyncio.to_thread(evaluated, policy, tick, mode, self._memories, shadow=True)
            answers.append(said)
        faultpoint("optimizer.before-answer")
        return answers

    async def _ruled(self, policy: Policy, tick: Tick, mode: Mode, recorded: AnyBody | None) -> tuple[AnyBody, AnyBody]:
        """Return the plan of the policy in charge, and what it says; a model that it solves stops where it did then."""
        solved = recorded_solve(recorded)
        stop = self._stop() if solved is None else RecordedStop(solved)
        return await asyncio.to_thread(evaluated, policy, replace(tick, stop=stop), mode, self._memories, shadow=False)

    def _mark(self, state: Cluster, now: datetime) -> Cluster:
        """Return the state with marks on what must not be planned because it would not be executed."""
        state = left_to_others(beside_its_autoscaler(state, delegated=self._delegated))
        return self._refusals.shown_in(state, now, self._planning.refused_seconds)

    async def _answer(self, job: Job, recorded: AnyBody | None) -> AnyBody:
        """The answer to a job: a new one, or a recorded one made again."""
        if recorded is not None and is_refusal(recorded):
            return recorded  # the solver's process failed: nothing that is known here would make it fail again
        solve = recorded_solve(recorded)
        if solve is None:
            return await self._solving.answer(job)
        failure = recorded_failure(recorded)
        if failure is not None:
            return await asyncio.to_thread(repeat_failure, job, RecordedStop(solve), failure)
        return await in_thread(job, RecordedStop(solve))


def _continuing(body: AnyBody, plan: str) -> AnyBody:
    """Return a plan with the one that it continues."""
    return structs.replace(body, continues=plan) if plan and isinstance(body, Plan) else body


def _question_in(body: AnyBody) -> tuple[Mode, int, tuple[WorkloadForecast, ...]] | None:
    """Mode, state version and forecasts of what is to be answered; a reschedule iteration waits for its forecasts.

    One that plans the rest of a plan again has none: what was under way is not the time to change requests.
    """
    if isinstance(body, ForecastMade):
        return "reschedule", body.version, body.forecasts
    if isinstance(body, IterationStarted) and (body.mode == "autoscale" or body.continues):
        return body.mode, body.version, ()
    return None
