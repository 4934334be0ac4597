"""Following usage: folds up to a time and no further, from a checkpoint on, also where the stream begins again."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.support.builders import NOW
from tests.support.usage_steps import STEP, step

from kinema_core.events import Event, UsageCompacted, UsageResampled
from kinema_core.model.usage import end_of
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.past import PastFollower
from kinema_core.runtime.stage import Past
from kinema_sim.memory_bus import MemoryBus

Folded = tuple[int, ...]


def _end(event: Event) -> datetime:
    assert isinstance(event.body, UsageResampled | UsageCompacted)
    return end_of(event.body)


def _fold(folded: Folded, event: Event) -> Folded:
    assert isinstance(event.body, UsageResampled)
    return (*folded, round((NOW - end_of(event.body)) / STEP))


PAST: Past[Folded] = Past(("usage-resampled", "usage-compacted"), (), _fold, _end, lambda _: NOW)


async def published(bus: MemoryBus, *ago: int, name: str = "u") -> None:
    """Publish steps that end so many steps ago."""
    for at in ago:
        body = step(at)
        await bus.publish(origin(body, id_=f"{name}-{at}", cluster="c1", iteration="", now=NOW))


async def test_nothing_after_the_time_is_folded() -> None:
    """A step counts when it ended at the time or before; a later one waits for a later time."""
    bus = MemoryBus()
    await published(bus, 3, 2, 1, 0)
    follower = PastFollower(bus, PAST)
    assert await follower.until(NOW - 2 * STEP) == (3, 2)
    assert await follower.until(NOW - 2 * STEP + timedelta(seconds=1)) == (3, 2)
    assert await follower.until(NOW) == (3, 2, 1, 0)


async def test_an_earlier_time_is_answered_as_before() -> None:
    """An event that is delivered again names an earlier time: what was folded since is left out."""
    bus = MemoryBus()
    await published(bus, 2, 1)
    follower = PastFollower(bus, PAST)
    assert await follower.until(NOW - STEP) == (2, 1)
    await published(bus, 0)
    assert await follower.until(NOW) == (2, 1, 0)
    assert await follower.until(NOW - STEP) == (2, 1)
    assert await PastFollower(bus, PAST).until(NOW - STEP) == (2, 1)


async def test_a_stream_that_begins_again_is_read_again() -> None:
    """What was folded of a stream that is gone does not count in the new one, short or long."""
    for ago in ((0,), (3, 2, 1, 0)):
        bus = MemoryBus()
        await published(bus, 3, 2)
        follower = PastFollower(bus, PAST)
        assert await follower.until(NOW) == (3, 2)
        bus.wipe("USAGE")
        await published(bus, *ago, name="other")
        assert await follower.until(NOW) == ago


async def test_a_damaged_step_is_a_gap() -> None:
    """The steps around it are folded."""
    bus = MemoryBus()
    await published(bus, 2, 1, 0)
    bus.damage("USAGE", 2)
    assert await PastFollower(bus, PAST).until(NOW) == (2, 0)
