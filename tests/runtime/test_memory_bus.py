"""What the bus in memory offers beyond the contract: preloading, damage, outages."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.bus_events import iteration, paused

from kinema_core.runtime.bus import BusUnavailableError, Damaged, Stored
from kinema_sim.memory_bus import MemoryBus


async def test_preloaded_events_keep_their_sequences() -> None:
    """Recorded events lie at their recorded sequences; what is published follows them."""
    bus = MemoryBus()
    bus.preload("LOG", [(5, iteration(1)), (9, iteration(2))])
    assert [item.sequence async for item in bus.read("LOG", start=6)] == [9]
    assert await bus.publish(iteration(2)) == 9
    assert await bus.publish(iteration(3)) == 10
    with pytest.raises(ValueError, match="order"):
        bus.preload("LOG", [(3, iteration(4))])


async def test_damage_takes_an_event_away() -> None:
    """A damaged event keeps its place and subject and is delivered as damaged."""
    bus = MemoryBus()
    await bus.publish(iteration(1))
    bus.damage("LOG", 1, "missing-chunk", "chunk 3")
    item = (await anext(bus.deliveries("predictor"))).item
    assert isinstance(item, Damaged)
    assert (item.sequence, item.reason, item.detail) == (1, "missing-chunk", "chunk 3")
    assert item.subject.endswith("iteration-started.v1")


async def test_cut_off_every_call_fails_until_it_is_back() -> None:
    """While cut off nothing works and deliveries wait; afterwards all goes on."""
    bus = MemoryBus()
    await bus.publish(iteration(1))
    lease = await bus.acquire("x", 60)
    assert lease is not None
    bus.cut()
    assert not bus.connected()
    for call in (
        bus.publish(paused(1)),
        bus.head("LOG"),
        bus.position("predictor"),
        bus.acquire("y", 1),
        lease.renew(),
    ):
        with pytest.raises(BusUnavailableError):
            await call
    bus.cut(reachable=True)
    waiting = asyncio.ensure_future(anext(bus.deliveries("predictor")))
    await asyncio.sleep(0)
    bus.cut()
    bus.cut(reachable=True)
    item = (await asyncio.wait_for(waiting, 60)).item
    assert isinstance(item, Stored)


async def test_a_wiped_stream_begins_again() -> None:
    """After a loss sequences start at 1 and consumers at the beginning."""
    bus = MemoryBus()
    await bus.publish(iteration(1))
    await (await anext(bus.deliveries("predictor"))).ack()
    bus.wipe("LOG")
    assert await bus.head("LOG") == 0
    assert await bus.publish(iteration(2)) == 1
    assert (await anext(bus.deliveries("predictor"))).item.sequence == 1


async def test_cancelling_a_wait_for_deliveries_always_works() -> None:
    """A wait that is canceled together with an event's arrival ends; it does not go on waiting."""
    for _ in range(50):
        bus = MemoryBus()
        waiting = asyncio.ensure_future(anext(bus.deliveries("predictor")))
        await asyncio.sleep(0)
        bus.pulse()
        waiting.cancel()
        await asyncio.wait_for(asyncio.wait({waiting}), 1)
        assert waiting.cancelled()
