"""The predictor as a stage: answers a reschedule iteration with forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kinema_core.events import (
    AnyBody,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ForecastMade,
    IterationStarted,
    UsageSampled,
)
from kinema_core.model.cluster import Cluster, evolve
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.stage import AtVersion, Moment, NoState, Want
from kinema_predictor.logic.forecast import forecasts
from kinema_predictor.logic.history import History, remember
from kinema_predictor.settings import Settings

NAME: Final = "predictor"

register("predictor.before-answer")


@dataclass(frozen=True)
class Observed:
    """The cluster, and what its workloads used."""

    cluster: Cluster = field(default_factory=Cluster)
    history: History = field(default_factory=History)


class Predictor:
    """Forecasts requests of workloads from their usage."""

    name = NAME
    consumes = ("iteration-started",)
    folds = ("usage-sampled",)

    def __init__(self, settings: Settings) -> None:
        self._rules = settings.rules
        self._reach = settings.reach

    def initial(self) -> Observed:
        """See `Stage`."""
        return Observed()

    def fold(self, state: Observed, event: Event) -> Observed:
        """See `Stage`."""
        if isinstance(event.body, ClusterSnapshot | ClusterDelta):
            return replace(state, cluster=evolve(state.cluster, event.body))
        if isinstance(event.body, UsageSampled):
            return replace(state, history=remember(state.history, state.cluster, event.body, self._reach))
        return state

    def recall(self, event: Event) -> None:
        """Nothing of the log is remembered."""

    def wants(self, event: Event) -> Want:
        """Return the state that the iteration was started on, with the usage sampled until then."""
        asked = _asked(event.body)
        return NoState() if asked is None else AtVersion(asked.version)

    async def handle(self, event: Event, state: Observed | None, moment: Moment) -> Sequence[AnyBody]:
        """Answer a reschedule iteration; an autoscale iteration does not wait for forecasts."""
        asked = _asked(event.body)
        if asked is None or state is None:
            return []
        made, refused = forecasts(state.cluster, state.history, moment.now, self._rules)
        faultpoint("predictor.before-answer")
        return [ForecastMade(version=asked.version, forecasts=made, refused=refused)]


def _asked(body: AnyBody) -> IterationStarted | None:
    return body if isinstance(body, IterationStarted) and body.mode == "reschedule" else None
