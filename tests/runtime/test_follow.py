"""Following the state: exactly to the version asked for, and never past a gap."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.bus_events import NOW

from kinema_core.events import (
    AnyBody,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ObjectKey,
    Pod,
    UsageSampled,
    kind_of_type,
)
from kinema_core.model.cluster import Cluster, evolve
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.follow import Follower, StateLostError
from kinema_sim.memory_bus import MemoryBus

USAGE = kind_of_type(UsageSampled.TYPE)
Trail = tuple[str, ...]
"""A state that remembers what was folded into it, in order."""


def pod(number: int) -> Pod:
    """A pod."""
    return Pod(namespace="shop", name=f"p{number}", uid=f"u{number}")


class Observer:
    """Writes a state stream as the observer does."""

    def __init__(self, bus: MemoryBus, run: str = "a") -> None:
        self.bus = bus
        self._run = run
        self._count = 0

    async def put(self, body: AnyBody) -> int:
        """Publish a body."""
        self._count += 1
        id_ = f"{self._run}/{self._count}"
        return await self.bus.publish(origin(body, id_=id_, cluster="c1", iteration="", now=NOW))

    async def snapshot(self, version: int) -> int:
        """A snapshot at a version: pods p1 to p<version>."""
        return await self.put(ClusterSnapshot(version=version, objects=tuple(pod(n) for n in range(1, version + 1))))

    async def delta(self, version: int) -> int:
        """The delta that adds pod p<version>."""
        return await self.put(ClusterDelta(version=version, upserts=(pod(version),)))

    async def usage(self) -> int:
        """A reading of the metrics."""
        return await self.put(UsageSampled(sampled=NOW, window_seconds=15, pods=()))


def trail(state: Trail, event: Event) -> Trail:
    """Fold: note what came."""
    version = getattr(event.body, "version", "")
    return (*state, f"{kind_of_type(event.type).removeprefix('cluster-')}{version}")


def cluster(state: Cluster, event: Event) -> Cluster:
    """Fold: the cluster itself."""
    assert isinstance(event.body, ClusterSnapshot | ClusterDelta)
    return evolve(state, event.body)


def following(bus: MemoryBus, kinds: tuple[str, ...] = ()) -> Follower[Trail]:
    """A follower that keeps a trail."""
    return Follower(bus, (), trail, kinds)


@pytest.fixture
def bus() -> MemoryBus:
    """An empty bus."""
    return MemoryBus()


@pytest.fixture
def observer(bus: MemoryBus) -> Observer:
    """A writer on it."""
    return Observer(bus)


async def test_stops_exactly_at_the_version(bus: MemoryBus, observer: Observer) -> None:
    """The state at a version holds that version's delta and none after it, though more is stored."""
    await observer.snapshot(1)
    for version in (2, 3, 4):
        await observer.delta(version)
    follower = Follower(bus, Cluster(), cluster)
    state = await follower.at(3)
    assert state.version == 3
    assert [item.name for item in state.pods] == ["p1", "p2", "p3"]
    assert (await follower.latest())[1] == 4


async def test_goes_on_from_where_it_was(bus: MemoryBus, observer: Observer) -> None:
    """Each event is folded once when versions are asked for in order."""
    await observer.snapshot(1)
    await observer.delta(2)
    follower = following(bus)
    assert await follower.at(1) == ("snapshot1",)
    await observer.delta(3)
    assert await follower.at(3) == ("snapshot1", "delta2", "delta3")


async def test_goes_back_to_an_older_version(bus: MemoryBus, observer: Observer) -> None:
    """A version older than the last one folded can still be had."""
    await observer.snapshot(1)
    for version in (2, 3, 4):
        await observer.delta(version)
    follower = following(bus)
    assert (await follower.latest())[1] == 4
    assert await follower.at(2) == ("snapshot1", "delta2")
    assert await follower.at(4) == ("snapshot1", "delta2", "delta3", "delta4")


async def test_begins_at_the_last_snapshot(bus: MemoryBus, observer: Observer) -> None:
    """Without a history nothing before the last snapshot is folded."""
    await observer.snapshot(1)
    await observer.delta(2)
    await observer.snapshot(2)
    await observer.delta(3)
    assert (await following(bus).latest())[0] == ("snapshot2", "delta3")


async def test_begins_earlier_when_the_last_snapshot_is_too_new(bus: MemoryBus, observer: Observer) -> None:
    """A version before the last snapshot is folded from the stream's beginning."""
    await observer.snapshot(1)
    await observer.delta(2)
    await observer.delta(3)
    await observer.snapshot(3)
    assert await following(bus).at(2) == ("snapshot1", "delta2")


async def test_a_restated_version_is_not_folded_twice(bus: MemoryBus, observer: Observer) -> None:
    """A snapshot of the version that is known already changes nothing."""
    await observer.snapshot(1)
    follower = following(bus)
    await follower.latest()
    await observer.snapshot(1)
    await observer.delta(2)
    assert (await follower.latest())[0] == ("snapshot1", "delta2")


async def test_history_is_folded_from_the_beginning(bus: MemoryBus, observer: Observer) -> None:
    """With further kinds everything is folded in order, up to the version and not to what follows it."""
    await observer.usage()
    await observer.snapshot(1)
    await observer.usage()
    await observer.delta(2)
    await observer.usage()
    await observer.snapshot(2)
    await observer.delta(3)
    follower = following(bus, (USAGE,))
    wanted = ("usage-sampled", "snapshot1", "usage-sampled", "delta2")
    assert await follower.at(2) == wanted
    await follower.latest()
    assert await follower.at(2) == wanted
    assert await following(bus, (USAGE,)).at(3) == (*wanted, "usage-sampled", "delta3")


async def test_kinds_nobody_asked_for_are_left_out(bus: MemoryBus, observer: Observer) -> None:
    """Usage is not folded by a state that keeps none."""
    await observer.snapshot(1)
    await observer.usage()
    assert (await following(bus).latest())[0] == ("snapshot1",)


async def test_a_gap_loses_the_state_until_the_next_snapshot(bus: MemoryBus, observer: Observer) -> None:
    """After a missing delta nothing is said, and a snapshot mends it."""
    await observer.snapshot(1)
    await observer.delta(2)
    await observer.delta(4)
    follower = following(bus)
    with pytest.raises(StateLostError, match="gap"):
        await follower.latest()
    with pytest.raises(StateLostError, match="version 4"):
        await follower.at(4)
    assert await follower.at(2) == ("snapshot1", "delta2")
    await observer.delta(5)
    with pytest.raises(StateLostError):
        await follower.latest()
    await observer.snapshot(6)
    state, version = await follower.latest()
    assert version == 6
    assert state[-1] == "snapshot6"


async def test_a_version_that_was_passed_over_is_lost(bus: MemoryBus, observer: Observer) -> None:
    """A version between a gap and the snapshot that mended it cannot be had; later ones can."""
    await observer.snapshot(1)
    await observer.delta(3)
    await observer.snapshot(5)
    follower = following(bus)
    with pytest.raises(StateLostError, match="version 4"):
        await follower.at(4)
    assert (await follower.at(5))[-1] == "snapshot5"


@pytest.mark.parametrize("reason", ["bad-digest", "missing-chunk", "unknown-type"])
async def test_a_damaged_delta_is_a_gap(bus: MemoryBus, observer: Observer, reason: str) -> None:
    """A delta that cannot be read makes the state unknown at once, not only when the next one comes."""
    await observer.snapshot(1)
    bus.damage("STATE", await observer.delta(2), reason)
    with pytest.raises(StateLostError):
        await following(bus).latest()


async def test_a_damaged_snapshot_is_passed_by(bus: MemoryBus, observer: Observer) -> None:
    """A damaged re-statement harms nobody who has folded what it states; nobody begins at it."""
    await observer.snapshot(1)
    await observer.delta(2)
    follower = following(bus)
    await follower.latest()
    bus.damage("STATE", await observer.snapshot(2))
    await observer.delta(3)
    assert (await follower.latest())[1] == 3
    assert (await following(bus).latest())[0] == ("snapshot1", "delta2", "delta3")


async def test_damaged_usage_is_passed_by(bus: MemoryBus, observer: Observer) -> None:
    """A reading that is damaged is one reading less."""
    await observer.snapshot(1)
    bus.damage("STATE", await observer.usage())
    await observer.delta(2)
    assert (await following(bus, (USAGE,)).latest())[0] == ("snapshot1", "delta2")


async def test_deltas_before_any_snapshot_mean_nothing(bus: MemoryBus, observer: Observer) -> None:
    """A stream whose beginning was discarded is folded from its first snapshot on."""
    await observer.delta(7)
    await observer.delta(8)
    follower = following(bus)
    with pytest.raises(StateLostError):
        await follower.latest()
    await observer.snapshot(8)
    await observer.delta(9)
    assert (await follower.latest())[0] == ("snapshot8", "delta9")


async def test_an_empty_stream_holds_no_state(bus: MemoryBus) -> None:
    """Before the first snapshot there is nothing to decide on."""
    with pytest.raises(StateLostError, match="no state yet"):
        await following(bus).latest()


async def test_a_version_still_to_come_is_not_made_up(bus: MemoryBus, observer: Observer) -> None:
    """A version beyond the stream raises, and is there once it was published."""
    await observer.snapshot(1)
    follower = following(bus)
    with pytest.raises(StateLostError, match="version 2"):
        await follower.at(2)
    await observer.delta(2)
    assert await follower.at(2) == ("snapshot1", "delta2")


@pytest.mark.parametrize("longer", [False, True])
async def test_another_stream_is_folded_anew(bus: MemoryBus, observer: Observer, longer: bool) -> None:
    """A stream that was lost and begun again is recognized, be it shorter or longer than what was folded."""
    await observer.snapshot(1)
    await observer.delta(2)
    follower = following(bus)
    await follower.latest()
    bus.wipe("STATE")
    again = Observer(bus, run="b")
    await again.snapshot(1)
    if longer:
        await again.delta(2)
        await again.delta(3)
    state, version = await follower.latest()
    assert version == (3 if longer else 1)
    assert state == (("snapshot1", "delta2", "delta3") if longer else ("snapshot1",))


async def test_an_observer_that_begins_anew_is_followed(bus: MemoryBus, observer: Observer) -> None:
    """A snapshot with a lower version in the same stream replaces what was known."""
    await observer.snapshot(5)
    await observer.delta(6)
    follower = following(bus)
    await follower.latest()
    await Observer(bus, run="b").snapshot(1)
    assert (await follower.latest())[1] == 1
    assert (await follower.at(1))[-1] == "snapshot1"


async def test_deletes_are_folded(bus: MemoryBus, observer: Observer) -> None:
    """The fold is the model's own: a delta takes objects away too."""
    await observer.snapshot(2)
    await observer.put(ClusterDelta(version=3, deletes=(ObjectKey(kind="Pod", key="shop/p1"),)))
    state = await Follower(bus, Cluster(), cluster).at(3)
    assert [item.name for item in state.pods] == ["p2"]


async def test_every_path_gives_the_same_state(bus: MemoryBus, observer: Observer) -> None:
    """In whichever order versions are asked for, each is the same state."""
    await observer.snapshot(1)
    for version in range(2, 12):
        await observer.delta(version)
        if version % 4 == 0:
            await observer.snapshot(version)
    orders: list[Callable[[int], int]] = [lambda n: n, lambda n: 12 - n, lambda n: n * 7 % 11 + 1]
    for order in orders:
        follower = Follower(bus, Cluster(), cluster)
        for n in range(1, 12):
            state = await follower.at(order(n))
            assert state.version == order(n)
            assert len(state.pods) == order(n)
