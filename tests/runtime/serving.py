"""A stage to serve, and what it answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support.bus_events import NOW
from tests.support.manual_clock import ManualClock

from kinema_core.events import (
    AnyBody,
    ClusterDelta,
    ClusterSnapshot,
    DeadLetter,
    Event,
    ForecastMade,
    IterationStarted,
)
from kinema_core.runtime.health import Health
from kinema_core.runtime.serve import serve
from kinema_core.runtime.stage import Moment, NoState, Want
from kinema_sim.memory_bus import MemoryBus

State = tuple[int, ...]


@dataclass
class Predictor:
    """A stage that answers each iteration with a forecast and writes down all that it was shown."""

    want: Want = field(default_factory=NoState)
    bodies: int = 1
    name: str = "predictor"
    consumes: tuple[str, ...] = ("iteration-started", "execution-paused")
    folds: tuple[str, ...] = ()
    past = None
    recalled: list[str] = field(default_factory=list)
    handled: list[tuple[str, State | None, Moment]] = field(default_factory=list)
    before_answer: Callable[[Event], Awaitable[None]] | None = None

    def initial(self) -> State:
        """No version."""
        return ()

    def fold(self, state: State, event: Event) -> State:
        """Note the version."""
        assert isinstance(event.body, ClusterSnapshot | ClusterDelta)
        return (*state, event.body.version)

    def recall(self, event: Event) -> None:
        """Note the event."""
        if event.id == "it-666":
            raise ZeroDivisionError
        self.recalled.append(event.id)

    def wants(self, event: Event) -> Want:
        """As told."""
        del event
        return self.want

    async def handle(self, event: Event, state: State | None, moment: Moment) -> Sequence[AnyBody]:
        """Answer with forecasts."""
        self.handled.append((event.id, state, moment))
        if self.before_answer is not None:
            await self.before_answer(event)
        assert isinstance(event.body, IterationStarted)
        return [ForecastMade(version=event.body.version, forecasts=()) for _ in range(self.bodies)]


@asynccontextmanager
async def served(
    stage: Predictor, bus: MemoryBus, clock: ManualClock | None = None, *, stale_seconds: float | None = None
) -> AsyncIterator[Health]:
    """Serve a stage until the block ends."""
    health = Health(stage.name, "c1")
    task = asyncio.create_task(serve(stage, bus, clock or ManualClock(NOW), health, stale_seconds=stale_seconds))
    try:
        yield health
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def forecasts(bus: MemoryBus) -> list[str]:
    """Ids of the forecasts in the LOG, in order."""
    return [event.id for event in bus.events("LOG") if isinstance(event.body, ForecastMade)]


def letters(bus: MemoryBus) -> list[DeadLetter]:
    """Dead letters."""
    return [event.body for event in bus.events("DLQ") if isinstance(event.body, DeadLetter)]
