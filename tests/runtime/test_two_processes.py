"""Two processes of one stage on one durable consumer: each event is answered once, and both remember the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import msgspec
import pytest
from tests.runtime.serving import Predictor, forecasts, letters, served
from tests.support.bus_events import NOW, iteration, paused
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

from kinema_core.events import Event, ForecastMade
from kinema_core.runtime import serve as serving
from kinema_core.runtime.announce import announce
from kinema_core.runtime.bus import BusUnavailableError, Damaged, Stored, StreamName
from kinema_core.runtime.health import Health
from kinema_core.runtime.memory import in_order
from kinema_sim.memory_bus import MemoryBus


async def test_what_another_process_answered_is_remembered_as_its_own() -> None:
    """The stored order is another one: the pause comes between the event and its answer."""
    bus, stages = MemoryBus(), (Predictor(), Predictor())

    async def pause(event: Event) -> None:
        if event.id == "it-1":
            await bus.publish(paused(1))

    async with AsyncExitStack() as both:
        ends = []
        for stage in stages:
            stage.before_answer = pause
            end = AsyncExitStack()
            health = await end.enter_async_context(served(stage, bus))
            both.push_async_callback(end.aclose)
            await until(partial(_started, health))
            ends.append(end)
        await bus.publish(iteration(1))
        await until(lambda: forecasts(bus) == ["it-1/predictor/0"])
        first = next(index for index, stage in enumerate(stages) if stage.handled)
        await ends[first].aclose()
        await bus.publish(iteration(2))
        await until(lambda: len(forecasts(bus)) == 2)
    other = stages[1 - first]
    assert [id_ for id_, *_ in other.handled] == ["it-2"]
    assert other.recalled == [event.id for event in in_order(bus.events("LOG"), "predictor")]
    assert other.recalled == ["it-1", "it-1/predictor/0", "pause-1", "it-2", "it-2/predictor/0"]


def _started(health: Health) -> bool:
    return "start" not in health.problems()


async def test_two_processes_answer_every_event_once() -> None:
    """Whichever of them an event is handed to, and both know all answers in the end."""
    bus, stages = MemoryBus(), (Predictor(), Predictor())
    async with served(stages[0], bus), served(stages[1], bus):
        for number in range(1, 21):
            await bus.publish(iteration(number))
            if number % 3 == 0:
                await bus.publish(paused(number))
        await until(lambda: len(forecasts(bus)) == 20)
    assert sorted(id_ for stage in stages for id_, *_ in stage.handled) == sorted(f"it-{n}" for n in range(1, 21))
    expected = [event.id for event in in_order(bus.events("LOG"), "predictor")]
    for stage in stages:
        known = [id_ for id_ in expected if id_ in stage.recalled]
        assert stage.recalled == known == expected[: len(known)]


async def test_a_process_that_was_frozen_takes_the_others_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its event was handed to another one, and the broker has forgotten the answer's id: it publishes no second one."""
    monkeypatch.setattr(serving, "_LAPSE_SECONDS", 0.05)
    bus, frozen, other = MemoryBus(ack_wait=0.1, dedup_seconds=0.0), Predictor(), Predictor()
    thaw = asyncio.Event()

    async def freeze(event: Event) -> None:
        if event.id == "it-1":
            await thaw.wait()

    frozen.before_answer = freeze
    async with served(frozen, bus):
        await bus.publish(iteration(1))
        await until(lambda: len(frozen.handled) == 1)
        async with served(other, bus):
            await until(lambda: forecasts(bus) == ["it-1/predictor/0"])
            await bus.publish(iteration(2))
            await until(lambda: len(forecasts(bus)) == 2)
            thaw.set()
            await bus.publish(iteration(3))
            await until(lambda: len(forecasts(bus)) == 3 and "it-1/predictor/0" in frozen.recalled)
    assert forecasts(bus) == [f"it-{n}/predictor/0" for n in (1, 2, 3)]


class Interrupted(MemoryBus):
    """A broker that is away whenever the process whose clock shows `NOW` publishes an answer."""

    def __init__(self, *, ack_wait: float) -> None:
        super().__init__(ack_wait=ack_wait)
        self.tried, self.mended = asyncio.Event(), False

    async def publish(self, event: Event, *, expected_last: int | None = None) -> int:
        """Publish what others give."""
        if isinstance(event.body, ForecastMade) and event.time == NOW and not self.mended:
            self.tried.set()
            raise BusUnavailableError("the broker is away")
        return await super().publish(event, expected_last=expected_last)


@dataclass
class Remembering(Predictor):
    """Writes down the times of what it recalls, too."""

    times: dict[str, datetime] = field(default_factory=dict)

    def recall(self, event: Event) -> None:
        """Note the event and its time."""
        super().recall(event)
        self.times[event.id] = event.time


async def test_a_process_that_was_cut_off_remembers_the_answer_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was publishing when the broker went away; another one answered under the same id, with other content."""
    monkeypatch.setattr(serving, "_LAPSE_SECONDS", 0.05)
    bus, cut_off, later = Interrupted(ack_wait=0.1), Remembering(), NOW + timedelta(seconds=5)
    async with served(cut_off, bus):
        await bus.publish(iteration(1))
        await bus.tried.wait()
        async with served(Predictor(), bus, ManualClock(later)):
            await until(lambda: forecasts(bus) == ["it-1/predictor/0"])
            bus.mended = True
            await until(lambda: "it-1/predictor/0" in cut_off.recalled)
    assert cut_off.times == {"it-1": NOW, "it-1/predictor/0": later}


class Bounded(msgspec.Struct):
    """Settings of a service."""

    seconds: float


class Unread(MemoryBus):
    """A broker whose log another process has not read since."""

    async def read(
        self, stream: StreamName, *, start: int = 1, end: int | None = None, kinds: tuple[str, ...] = ()
    ) -> AsyncIterator[Stored | Damaged]:
        """Yield nothing."""
        async for item in super().read(stream, start=start, end=0, kinds=kinds):
            yield item


async def test_settings_of_two_processes_that_start_at_once_are_both_stored() -> None:
    """Neither is taken for the other: a replay decides under those in the log."""
    bus = Unread()
    for seconds in (1.0, 2.0):
        await announce(bus, ManualClock(NOW), service="decider", cluster="c1", settings=Bounded(seconds))
    assert len(bus.events("LOG")) == 2


async def test_stale_events_are_dropped_at_once() -> None:
    """Work for an iteration that was abandoned long ago delays none that is alive; each leaves a dead letter."""
    bus, stage = MemoryBus(), Predictor()
    for number in (1, 2):
        await bus.publish(iteration(number))
    async with served(stage, bus, ManualClock(NOW + timedelta(seconds=901)), stale_seconds=900.0):
        await until(lambda: len(letters(bus)) == 2)
    assert stage.handled == []
    assert {letter.reason for letter in letters(bus)} == {"stale"}
    assert "901 s old, more than 900" in letters(bus)[0].detail
