"""The observer on a memory bus: versions without a gap, restarts, another writer, a broker that goes away."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.observer.log_events import none
from tests.observer.scripted_source import BEGIN, ScriptedSource, folded, log, observer, state
from tests.support.builders import deployed, node, pod, replica_set, tiny
from tests.support.manual_clock import ManualClock
from tests.support.strategies import objects
from tests.support.waiting import until

from kinema_core.events import (
    ClusterDelta,
    ClusterObject,
    Event,
    IterationSkipped,
    IterationStarted,
    ObserverHeartbeat,
    encode,
)
from kinema_core.model.cluster import all_objects, from_objects
from kinema_core.runtime.bus import BusSetupError, BusUnavailableError, Extent
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.health import Health
from kinema_sim.memory_bus import MemoryBus

N1, N2 = node("n1"), node("n2")
BARE = pod("bare", node="n1")


def clock() -> ManualClock:
    """A clock at the tests' beginning."""
    return ManualClock(BEGIN)


async def test_the_first_state_is_a_snapshot_and_changes_are_deltas() -> None:
    """Version 1, then one delta per tick in which anything changed; nothing when nothing changed."""
    bus, source = MemoryBus(), ScriptedSource([N1])
    observing = observer(bus, source, clock())
    await observing.tick()
    await observing.tick()
    assert state(bus) == [("snapshot", 1)]
    source.put(N2, BARE)
    source.drop(N1)
    await observing.tick()
    assert state(bus) == [("snapshot", 1), ("delta", 2)]
    last = bus.events("STATE")[-1]
    assert isinstance(last.body, ClusterDelta)
    assert [item.key for item in last.body.upserts] == ["n2", "shop/bare"]
    assert [item.key for item in last.body.deletes] == ["n1"]
    assert folded(bus) == observing.cluster


async def test_a_change_that_was_taken_back_makes_no_delta() -> None:
    """What counts is the difference to what was published, not how often the API server spoke."""
    bus, source = MemoryBus(), ScriptedSource([N1])
    observing = observer(bus, source, clock())
    await observing.tick()
    source.put(N2, N1)
    source.drop(N2)
    await observing.tick()
    assert state(bus) == [("snapshot", 1)]


async def test_nothing_is_published_before_everything_is_listed() -> None:
    """Half a list would look like a cluster that lost half of itself; a restart says so, too."""
    bus, source = MemoryBus(), ScriptedSource([N1, BARE])
    await observer(bus, source, clock()).tick()
    half = ScriptedSource([N1])
    half.all_listed, half.problems = False, ("Pod: not listed yet",)
    observing = observer(bus, half, clock())
    await observing.tick()
    assert state(bus) == [("snapshot", 1)]
    half.put(BARE)
    half.all_listed, half.problems = True, ()
    await observing.tick()
    assert state(bus) == [("snapshot", 1)]


async def test_after_a_restart_one_delta_closes_the_gap() -> None:
    """The version goes on from what is in the stream; equal contents make no delta at all."""
    bus, source = MemoryBus(), ScriptedSource([N1, BARE])
    first = observer(bus, source, clock())
    await first.tick()
    source.put(N2)
    await first.tick()
    again = ScriptedSource([N1, N2, BARE])
    await observer(bus, again, clock()).tick()
    assert state(bus) == [("snapshot", 1), ("delta", 2)]
    await observer(bus, ScriptedSource([N2]), clock()).tick()
    assert state(bus) == [("snapshot", 1), ("delta", 2), ("delta", 3)]
    assert folded(bus) == from_objects([N2], version=3)


async def test_snapshots_are_stated_again_by_count_and_by_age() -> None:
    """Every so many deltas, or after a while if anything changed, or at the latest after half a day."""
    bus, source, time = MemoryBus(), ScriptedSource([N1]), clock()
    observing = observer(
        bus, source, time, snapshot_deltas=2, snapshot_seconds=600, stabilization_window_seconds=999_999
    )
    await observing.tick()
    for index in range(3):
        source.put(pod(f"p{index}", node="n1"))
        await observing.tick()
    assert state(bus) == [("snapshot", 1), ("delta", 2), ("delta", 3), ("snapshot", 3), ("delta", 4)]
    time.set(BEGIN + timedelta(seconds=600))
    await observing.tick()
    assert state(bus)[-1] == ("snapshot", 4)
    time.set(BEGIN + timedelta(hours=12))
    await observing.tick()
    assert state(bus)[-1] == ("snapshot", 4)
    time.set(BEGIN + timedelta(hours=12, seconds=600))
    await observing.tick()
    await observing.tick()
    assert state(bus)[-2:] == [("snapshot", 4), ("snapshot", 4)]
    assert len(state(bus)) == 7
    assert folded(bus) == observing.cluster


async def test_a_restart_needs_only_the_last_snapshot() -> None:
    """What lies before it may have left the stream."""
    bus, source = MemoryBus(), ScriptedSource([N1])
    first = observer(bus, source, clock(), snapshot_deltas=1)
    await first.tick()
    source.put(N2)
    await first.tick()
    shortened = MemoryBus()
    shortened.preload(
        "STATE", [(sequence, event) for sequence, event in enumerate(bus.events("STATE"), 1) if sequence > 2]
    )
    await observer(shortened, ScriptedSource([N1, N2, BARE]), clock()).tick()
    assert state(shortened) == [("snapshot", 2), ("delta", 3)]


async def test_a_damaged_delta_is_healed_by_a_new_snapshot() -> None:
    """The state behind it cannot be known: a snapshot with a version above all others follows."""
    bus, source = MemoryBus(), ScriptedSource([N1])
    first = observer(bus, source, clock())
    await first.tick()
    for index in range(2):
        source.put(pod(f"p{index}", node="n1"))
        await first.tick()
    bus.damage("STATE", 2)
    with capture_logs() as logs:
        await observer(bus, source, clock()).tick()
    assert state(bus)[-1] == ("snapshot", 4)
    assert any("damaged" in line["event"] for line in logs)
    await observer(bus, source, clock()).tick()
    assert state(bus)[-1] == ("snapshot", 4)


async def test_a_stream_that_begins_anew_gets_a_snapshot() -> None:
    """The streams were lost: state begins at version 1 again, though nothing changed in the cluster."""
    bus, source = MemoryBus(), ScriptedSource([N1])
    observing = observer(bus, source, clock())
    await observing.tick()
    bus.wipe("STATE")
    bus.wipe("LOG")
    await observing.tick()
    await observing.tick()
    assert state(bus) == [("snapshot", 1)]
    assert folded(bus) == from_objects([N1], version=1)
    assert log(bus) == ["skip-1-0"]


async def test_a_second_observer_publishes_nothing_while_the_first_one_leads() -> None:
    """They see different things; one writes the streams, and the other one goes on when the first one has ended."""
    bus = MemoryBus()
    sources = [ScriptedSource([N1]), ScriptedSource([N1, N2])]
    first, second = (observer(bus, source, clock(), lease_seconds=3) for source in sources)
    leading = asyncio.create_task(first.run())
    await until(lambda: state(bus) != [])
    waiting = asyncio.create_task(second.run())
    await until(lambda: "start" not in second._health.problems())
    sources[0].put(BARE)
    await until(lambda: "bare" in {item.name for item in folded(bus).pods})
    assert b"n2" not in b"".join(encode(event) for event in bus.events("STATE"))
    leading.cancel()
    await asyncio.wait([leading])
    await until(lambda: folded(bus).node("n2") is not None)
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_second_writer_never_forks_the_versions() -> None:
    """The slower one of two loses compare-and-set, folds again, and goes on from what the other published."""
    bus, source = MemoryBus(), ScriptedSource([N1])
    one, other = observer(bus, source, clock()), observer(bus, ScriptedSource([N1]), clock())
    await one.tick()
    await other.tick()
    source.put(N2)
    await one.tick()
    late = ScriptedSource([N1, BARE])
    slow = observer(bus, late, clock())
    slow_source_first = folded(bus)
    await slow.tick()
    assert slow_source_first.version == 2
    source.put(pod("x", node="n1"))
    with capture_logs() as logs:
        await one.tick()
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["streams cannot be written"]
    await one.tick()
    versions = [version for kind, version in state(bus) if kind == "delta"]
    assert versions == [2, 3, 4]
    assert {item.key for item in all_objects(folded(bus))} == {"n1", "n2", "shop/x"}


async def test_two_different_deltas_of_one_version_have_different_ids() -> None:
    """The bus takes equal ids for the same event: a loser with another content must not believe that it won."""
    bus = MemoryBus()
    await observer(bus, ScriptedSource([N1]), clock()).tick()
    ids = []
    for extra in (N2, BARE):
        copy = MemoryBus()
        copy.preload("STATE", list(enumerate(bus.events("STATE"), 1)))
        await observer(copy, ScriptedSource([N1, extra]), clock()).tick()
        ids.append(copy.events("STATE")[-1].id)
    assert len(set(ids)) == 2
    assert all(id_.startswith("c1/observer/delta-2-") for id_ in ids)


async def test_a_broker_that_goes_away_costs_no_change() -> None:
    """Not ready meanwhile, one log line; afterwards everything that changed is in one delta."""
    bus, source, health = MemoryBus(), ScriptedSource([N1]), Health("observer", "c1")
    observing = observer(bus, source, clock(), health=health)
    health.started()
    await observing.tick()
    assert health.problems() == {}
    bus.cut()
    with capture_logs() as logs:
        source.put(N2)
        await observing.tick()
        source.put(BARE)
        await observing.tick()
    assert [line["event"] for line in logs] == ["streams cannot be written"]
    assert "streams" in health.problems()
    bus.cut(reachable=True)
    await observing.tick()
    assert health.problems() == {}
    assert state(bus) == [("snapshot", 1), ("delta", 2)]
    assert folded(bus) == from_objects([N1, N2, BARE], version=2)


class LostReplies(MemoryBus):
    """Stores what is published of one family and then fails, as when the broker's reply is lost."""

    lossy = ""

    async def publish(self, event: Event, *, expected_last: int | None = None) -> int:
        """Store, and lose the reply."""
        sequence = await super().publish(event, expected_last=expected_last)
        if self.lossy == event.body.FAMILY:
            raise BusUnavailableError("the reply was lost")
        return sequence


async def test_a_delta_whose_reply_was_lost_is_there_once() -> None:
    """Whether it was stored is read from the stream, never guessed."""
    bus, source = LostReplies(), ScriptedSource([N1])
    observing = observer(bus, source, clock())
    await observing.tick()
    bus.lossy = "state"
    source.put(N2)
    await observing.tick()
    bus.lossy = ""
    await observing.tick()
    assert state(bus) == [("snapshot", 1), ("delta", 2)]
    assert folded(bus) == from_objects([N1, N2], version=2)


@pytest.mark.parametrize("lossy", ["plan", ""])
async def test_an_iteration_begins_once_however_often_the_observer_is_killed(lossy: str) -> None:
    """Once it is in the log, whoever comes next sees it running, whether or not the reply arrived."""
    bus, time = LostReplies(), clock()
    bus.lossy = lossy
    await observer(bus, ScriptedSource(all_objects(tiny())), time, stabilization_window_seconds=0).tick()
    bus.lossy = ""
    for _ in range(3):
        await observer(bus, ScriptedSource(all_objects(tiny())), time, stabilization_window_seconds=0).tick()
    assert log(bus) == ["it-2", "skip-2-1"]


async def test_a_reschedule_iteration_begins_on_a_version_of_its_own() -> None:
    """An empty delta parts the usage readings before it from those after it; autoscale needs no readings."""
    bus, source = MemoryBus(), ScriptedSource(all_objects(tiny()))
    observing = observer(bus, source, clock(), stabilization_window_seconds=0)
    await observing.tick()
    (start,) = bus.events("LOG")
    assert isinstance(start.body, IterationStarted)
    assert (start.body.mode, start.body.version, start.state, start.iteration) == ("reschedule", 2, 2, "it-2")
    assert bus.events("STATE")[-1].body == ClusterDelta(version=2)
    source.put(pod("waits"))
    await observing.tick()
    start = bus.events("LOG")[-1]
    assert isinstance(start.body, IterationStarted)
    assert (start.body.mode, start.body.version, start.iteration) == ("autoscale", 3, "it-3")
    assert state(bus) == [("snapshot", 1), ("delta", 2), ("delta", 3)]


async def test_iterations_follow_the_log() -> None:
    """A start, refusals when their reason changes, and the next start after the end of the first."""
    bus, source, time = MemoryBus(), ScriptedSource(all_objects(tiny())), clock()
    observing = observer(bus, source, time)
    for seconds in range(0, 120, 10):
        time.set(BEGIN + timedelta(seconds=seconds))
        await observing.tick()
        if seconds == 40:
            (start,) = (event for event in bus.events("LOG") if isinstance(event.body, IterationStarted))
            await bus.publish(
                origin(none(), id_=f"{start.id}/optimizer/0", cluster="c1", iteration=start.iteration, now=time.now())
            )
    told = [
        (event.time - BEGIN, event.body.reason)
        for event in bus.events("LOG")
        if isinstance(event.body, (IterationStarted, IterationSkipped))
    ]
    assert [(int(time.total_seconds()), reason) for time, reason in told] == [
        (0, "settling"),
        (30, "stable"),
        (40, "iteration-running"),
        (50, "reschedule-recent"),
        (100, "stable"),
        (110, "iteration-running"),
    ]
    starts = [event for event in bus.events("LOG") if isinstance(event.body, IterationStarted)]
    assert [event.iteration for event in starts] == ["it-2", "it-3"]
    assert [event.state for event in starts] == [2, 3]


async def test_a_damaged_event_in_the_log_is_passed_over() -> None:
    """Deadlines end what it would have ended; the loop goes on."""
    bus, source, time = MemoryBus(), ScriptedSource(all_objects(tiny())), clock()
    observing = observer(bus, source, time, stabilization_window_seconds=0)
    await observing.tick()
    bus.inject("LOG", "kinema.v1.c1.plan.no-plan-found.v1", b"{")
    await observing.tick()
    assert log(bus) == ["it-2", "skip-2-1"]


async def test_an_unready_source_is_not_ready_and_decides_nothing() -> None:
    """What is missing is named at the probe and in the refusal; what can be seen is published all the same."""
    bus, source, health = MemoryBus(), ScriptedSource([N1]), Health("observer", "c1")
    observing = observer(bus, source, clock(), health=health, stabilization_window_seconds=0)
    source.problems = ("Pod: no answer",)
    health.started()
    await observing.tick()
    assert health.problems() == {"kubernetes": "Pod: no answer"}
    source.put(N2)
    await observing.tick()
    assert state(bus) == [("snapshot", 1), ("delta", 2)]
    (skip,) = (event.body for event in bus.events("LOG"))
    assert isinstance(skip, IterationSkipped)
    assert skip.reason == "state-unknown"


async def test_a_missing_stream_ends_the_service() -> None:
    """A person must run the setup: no endless retry."""

    class NoStreams(MemoryBus):
        async def extent(self, stream: object) -> Extent:
            raise BusSetupError(f"stream {stream} does not exist: run `kinema setup`")

    with pytest.raises(BusSetupError, match="setup"):
        await observer(NoStreams(), ScriptedSource([N1]), clock()).tick()


@given(
    history=st.lists(st.tuples(st.lists(objects(), max_size=4), st.integers(0, 3), st.booleans()), max_size=8),
)
async def test_what_readers_fold_is_always_what_the_source_holds(
    history: list[tuple[list[ClusterObject], int, bool]],
) -> None:
    """After any churn, with restarts in between: folded deltas and snapshots equal a fresh list."""
    bus, source, time = MemoryBus(), ScriptedSource([N1]), clock()
    observing = observer(bus, source, time, snapshot_deltas=3)
    await observing.tick()
    for changed, dropped, restarted in history:
        source.put(*changed)
        source.drop(*list(source.contents())[:dropped])
        if restarted:
            observing = observer(bus, source, time, snapshot_deltas=3)
        await observing.tick()
        assert folded(bus).objects == from_objects(source.contents()).objects
        assert folded(bus) == observing.cluster
    versions = [version for kind, version in state(bus) if kind == "delta"]
    assert versions == list(range(2, 2 + len(versions)))


async def test_unrest_between_two_ticks_is_seen_in_the_next() -> None:
    """A replica set that lost a pod makes the settle time begin again where it is one of few."""
    bus, time = MemoryBus(), clock()
    source = ScriptedSource(all_objects(tiny()))
    observing = observer(bus, source, time)
    await observing.tick()
    (calm,) = (item for item in deployed("web", ["n1", "n1", "n2"]) if item.key == "ReplicaSet/shop/web-rs")
    source.put(replica_set("web-rs", replicas=3, ready=2))
    time.set(BEGIN + timedelta(seconds=20))
    await observing.tick()
    source.put(calm)
    time.set(BEGIN + timedelta(seconds=40))
    await observing.tick()
    reasons = [event.body.reason for event in bus.events("LOG") if isinstance(event.body, IterationSkipped)]
    assert reasons == ["settling", "restless", "settling"]


async def test_a_quiet_observer_gives_a_sign_and_names_what_it_cannot_see() -> None:
    """A heartbeat comes when nothing else does, and at once when a kind goes blind or comes back."""
    bus, source, time = MemoryBus(), ScriptedSource([N1]), clock()
    observing = observer(bus, source, time)

    def beats() -> list[tuple[str, ...]]:
        return [event.body.blind for event in bus.events("STATE") if isinstance(event.body, ObserverHeartbeat)]

    await observing.tick()
    assert beats() == []
    for seconds in (14, 15, 29, 30):
        time.set(BEGIN + timedelta(seconds=seconds))
        await observing.tick()
    assert beats() == [(), ()]
    source.problems = ("Pod: the watch is silent",)
    await observing.tick()
    await observing.tick()
    assert beats()[2:] == [("Pod",)]
    source.problems = ()
    await observer(bus, source, time).tick()
    assert beats()[3:] == [()], "another process takes it back"
