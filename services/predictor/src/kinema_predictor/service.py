"""The predictor as a stage: answers a reschedule iteration with forecasts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from kinema_core.events import AnyBody, Event, ForecastMade, IterationStarted, UsageCompacted, UsageResampled
from kinema_core.model.cluster import Cluster, fold
from kinema_core.model.usage import end_of
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.stage import AtVersion, Moment, NoState, Past, Want
from kinema_predictor.logic.forecast import Memory, forecasts
from kinema_predictor.logic.history import History, remember
from kinema_predictor.settings import Settings
from kinema_predictor.threads import one_thread

NAME: Final = "predictor"

register("predictor.before-answer")


class Predictor:
    """Forecasts requests of workloads from their usage."""

    name = NAME
    consumes = ("iteration-started", "step-started", "step-succeeded", "step-failed")
    folds: tuple[str, ...] = ()

    def __init__(self, settings: Settings) -> None:
        self._rules = settings.rules
        self._memory = Memory()
        self.past = usage_past(settings.lookback)

    def initial(self) -> Cluster:
        """See `Stage`."""
        return Cluster()

    def fold(self, state: Cluster, event: Event) -> Cluster:
        """See `Stage`."""
        return fold(state, event)

    def recall(self, event: Event) -> None:
        """Remember the judgements given, which workloads could not be judged, and which requests were written."""
        if isinstance(event.body, ForecastMade):
            self._memory = self._memory.with_answer(event.time, event.body)
        else:
            self._memory = self._memory.with_step(event.body)

    def wants(self, event: Event) -> Want:
        """Return the state that the iteration was started on."""
        asked = _asked(event.body)
        return NoState() if asked is None else AtVersion(asked.version)

    async def handle(self, event: Event, state: Cluster | None, moment: Moment) -> Sequence[AnyBody]:
        """Answer a reschedule iteration; an autoscale iteration does not wait for forecasts."""
        asked = _asked(event.body)
        if asked is None or state is None:
            return []
        history = moment.past if isinstance(moment.past, History) else History()
        made = await asyncio.to_thread(self._forecasts, state, history, moment.now)
        faultpoint("predictor.before-answer")
        return [made]

    def _forecasts(self, state: Cluster, history: History, now: datetime) -> ForecastMade:
        with one_thread():
            return forecasts(state, history, now, self._rules, self._memory)


def usage_past(keep: timedelta) -> Past[History]:
    """Return how the stream of usage folds to a history of at most that length."""

    def remembered(history: History, event: Event) -> History:
        if isinstance(event.body, UsageResampled | UsageCompacted):
            return remember(history, event.body, keep=keep)
        return history

    return Past(
        kinds=("usage-resampled", "usage-compacted"), initial=History(), fold=remembered, end=_end, until=_until
    )


def _asked(body: AnyBody) -> IterationStarted | None:
    """Return the iteration that waits for forecasts: the rest of a plan keeps the requests that there are."""
    if not isinstance(body, IterationStarted) or body.mode != "reschedule" or body.continues:
        return None
    return body


def _until(event: Event) -> datetime | None:
    asked = _asked(event.body)
    return None if asked is None else asked.usage


def _end(event: Event) -> datetime:
    return end_of(event.body) if isinstance(event.body, UsageResampled | UsageCompacted) else event.time
