"""The loop of observer and rescheduler: a replaced LOG is noticed, the state has an age, one process leads."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.support.builders import NOW
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

from kinema_core.events import (
    AnyBody,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ExecutionPaused,
    ObserverHeartbeat,
    UsageSampled,
)
from kinema_core.runtime.bus import LeaseLostError, StreamResetError
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.health import Health
from kinema_core.runtime.loop import LogFollower, LoopMetrics, StateReader, Tenure, lead
from kinema_sim.memory_bus import MemoryBus

MAX_AGE = 60


async def put(bus: MemoryBus, body: AnyBody, id_: str, clock: ManualClock | None = None) -> None:
    """Publish an event."""
    now = clock.now() if clock is not None else NOW
    await bus.publish(origin(body, id_=id_, cluster="c1", iteration="", now=now))


async def pauses(bus: MemoryBus, *names: str) -> None:
    """Publish an event of LOG for each of these names."""
    for name in names:
        await put(bus, ExecutionPaused(by="test", reason=name), name)


async def ids(log: LogFollower) -> list[str]:
    """Return the ids of what is new."""
    return [item.event.id async for item in log.read() if hasattr(item, "event")]


async def test_each_event_is_read_once() -> None:
    """What was read is not read again."""
    bus = MemoryBus()
    log = LogFollower(bus)
    await pauses(bus, "a", "b")
    assert await ids(log) == ["a", "b"]
    assert await ids(log) == []
    await pauses(bus, "c")
    assert await ids(log) == ["c"]


@pytest.mark.parametrize("names", [("x",), ("x", "y", "z")], ids=["shorter", "longer"])
async def test_replaced_log_is_read_from_its_beginning(names: tuple[str, ...]) -> None:
    """Another stream is noticed by its end or by the event at the sequence that was read last."""
    bus = MemoryBus()
    log = LogFollower(bus)
    await pauses(bus, "a", "b")
    await ids(log)
    bus.wipe("LOG")
    await pauses(bus, *names)
    with pytest.raises(StreamResetError):
        await ids(log)
    assert await ids(log) == list(names)


class Watching:
    """A reader of the state on a clock of its own."""

    def __init__(self) -> None:
        self.bus, self.clock, self.health = MemoryBus(), ManualClock(NOW), Health("rescheduler", "c1")
        self.reader = self.new()

    def new(self) -> StateReader[int]:
        """Return the reader of a process that has just started."""

        def fold(count: int, event: Event) -> int:
            del event
            return count + 1

        self.health = Health("rescheduler", "c1")
        return StateReader(
            self.bus,
            self.clock,
            initial=0,
            fold=fold,
            max_age_seconds=MAX_AGE,
            health=self.health,
            metrics=LoopMetrics(self.health, "rescheduler", "c1"),
        )

    async def put(self, body: AnyBody, id_: str) -> None:
        """Publish an event now."""
        await put(self.bus, body, id_, self.clock)

    async def later(self, seconds: float) -> tuple[int, int] | None:
        """Return what is read so much later."""
        await self.clock.sleep(seconds)
        return await self.reader.read()

    def problem(self) -> str:
        """Return what is wrong with the state."""
        return self.health.problems().get("state", "")


async def test_only_the_observer_of_the_cluster_keeps_its_state_fresh() -> None:
    """Usage says nothing about what the observer sees; snapshots, deltas and heartbeats do."""
    watching = Watching()
    await watching.put(ClusterSnapshot(version=1, objects=()), "s-1")
    assert await watching.later(0) == (1, 1)
    await watching.clock.sleep(40)
    await watching.put(UsageSampled(sampled=watching.clock.now(), window_seconds=15, pods=()), "u-1")
    assert await watching.later(21) is None
    assert "is the observer running?" in watching.problem()
    await watching.put(ObserverHeartbeat(version=1), "h-1")
    assert await watching.later(59) == (1, 1)
    await watching.put(ClusterDelta(version=2), "d-2")
    assert await watching.later(59) == (2, 2)
    assert watching.problem() == ""


async def test_process_that_starts_takes_the_age_from_the_newest_observation() -> None:
    """It did not see the observation arrive."""
    watching = Watching()
    await watching.put(ClusterSnapshot(version=1, objects=()), "s-1")
    await watching.clock.sleep(MAX_AGE + 1)
    watching.reader = watching.new()
    assert await watching.reader.read() is None
    await watching.put(ObserverHeartbeat(version=1), "h-1")
    assert await watching.reader.read() == (1, 1)


async def test_state_with_a_blind_kind_is_not_used() -> None:
    """What the observer cannot see may have changed; the next heartbeat may take that back."""
    watching = Watching()
    await watching.put(ClusterSnapshot(version=1, objects=()), "s-1")
    await watching.put(ObserverHeartbeat(version=1, blind=("Pod",)), "h-1")
    await watching.put(ClusterDelta(version=2), "d-2")
    assert await watching.reader.read() is None
    assert watching.problem() == "the observer cannot see Pod"
    await watching.put(ObserverHeartbeat(version=2), "h-2")
    assert await watching.reader.read() == (2, 2)


async def test_one_process_leads_and_the_next_one_follows_its_end() -> None:
    """Whoever is canceled finishes under its lease, then releases it; a standby counts as started."""
    bus = MemoryBus()
    acting: list[str] = []

    def process(name: str) -> tuple[asyncio.Task[None], Health]:
        async def act(tenure: Tenure) -> None:
            acting.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                acting.append(f"{name} ends {tenure.lease.left() > 0}")

        health = Health("observer", "c1")
        metrics = LoopMetrics(health, "observer", "c1")
        return asyncio.create_task(lead(bus, "observer", seconds=3, act=act, health=health, metrics=metrics)), health

    first, _ = process("first")
    await asyncio.sleep(0.01)
    second, health = process("second")
    await asyncio.sleep(0.01)
    assert acting == ["first"]
    assert health.problems() == {}
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    for _ in range(3000):
        await asyncio.sleep(0.01)
        if len(acting) == 3:
            break
    assert acting == ["first", "first ends True", "second"]
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second


async def test_a_lease_under_which_nothing_can_be_done_is_not_taken_at_once_again() -> None:
    """Where the log holds a later token than the lease gives, each turn ends as it begins: it waits in between."""
    bus, health, turns = MemoryBus(), Health("rescheduler", "c1"), 0

    async def act(_: Tenure) -> None:
        nonlocal turns
        turns += 1
        raise LeaseLostError("a later token has acted")

    metrics = LoopMetrics(health, "rescheduler", "c1")
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await lead(bus, "x", seconds=0.6, act=act, health=health, metrics=metrics)
    assert 1 <= turns <= 3


async def test_an_end_that_is_asked_for_as_the_lease_is_lost_is_not_overheard() -> None:
    """The process ends, and does not take the lease again."""
    bus, health, lost = MemoryBus(), Health("rescheduler", "c1"), asyncio.Event()

    async def act(_: Tenure) -> None:
        await lost.wait()
        raise LeaseLostError("another process has it")

    metrics = LoopMetrics(health, "rescheduler", "c1")
    leading = asyncio.create_task(lead(bus, "x", seconds=60, act=act, health=health, metrics=metrics))
    await until(lambda: health.problems() == {})
    await asyncio.sleep(0)
    lost.set()
    await asyncio.sleep(0)  # the work has ended, and the process has not seen it yet
    leading.cancel()
    await asyncio.wait([leading], timeout=1)
    assert leading.cancelled()


async def test_process_that_does_not_lead_stands_by() -> None:
    """While another process leads it keeps up with the log, so that its first act needs no more than what is new."""
    bus, health = MemoryBus(), Health("rescheduler", "c1")
    log, acted = LogFollower(bus), asyncio.Event()
    await pauses(bus, "a", "b")
    other = await bus.acquire("x", 60)
    assert other is not None

    async def act(_: Tenure) -> None:
        assert await ids(log) == ["c"]
        acted.set()
        await asyncio.sleep(60)

    metrics = LoopMetrics(health, "rescheduler", "c1")
    running = asyncio.create_task(
        lead(bus, "x", seconds=0.3, act=act, health=health, metrics=metrics, stand_by=lambda: ids(log))
    )
    await until(lambda: log.position == 2)
    await pauses(bus, "c")
    await other.release()
    await asyncio.wait_for(acted.wait(), 10)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
