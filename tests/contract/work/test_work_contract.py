"""What every work queue promises, in memory as over the network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.support.nats_broker import running

from kinema_core.runtime.bus import BusUnavailableError
from kinema_core.runtime.framing import CHUNK_BYTES, FramingError
from kinema_core.runtime.nats_work import connect_work
from kinema_core.runtime.work import MOST_ITEM_BYTES, Item, WorkQueue, cut
from kinema_sim.memory_work import MemoryQueue, MemoryWork

Opener: TypeAlias = Callable[[], Awaitable[WorkQueue]]


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.connected)])
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens one more connection to the same queue, as the process of a service does."""
    async with AsyncExitStack() as stack:
        queue = MemoryQueue()
        broker = await stack.enter_async_context(running(tmp_path)) if request.param == "nats" else None

        async def opened() -> WorkQueue:
            made: WorkQueue
            made = (
                MemoryWork(queue) if broker is None else await connect_work(broker.settings("optimizer"), "optimizer")
            )
            stack.push_async_callback(made.close)
            return made

        yield opened


async def following(items: AsyncIterator[Item]) -> Item:
    """The next item; fails instead of waiting for ever."""
    return await asyncio.wait_for(anext(items), 8)


async def test_an_answer_comes_back_to_who_asked(opener: Opener) -> None:
    """Each question gets its own answer, whatever the order of the answers."""
    asking, working = await opener(), await opener()
    asked = [asyncio.ensure_future(asking.ask(b"%d" % n)) for n in range(3)]
    items = working.items()
    taken = [await following(items) for _ in range(3)]
    for item in reversed(taken):
        await item.answer(item.data * 2)
    assert await asyncio.wait_for(asyncio.gather(*asked), 8) == [b"00", b"11", b"22"]


async def test_each_item_goes_to_one_worker(opener: Opener) -> None:
    """Two who take items share them."""
    asking, one, two = await opener(), await opener(), await opener()
    asked = [asyncio.ensure_future(asking.ask(b"%d" % n)) for n in range(2)]
    first, second = await following(one.items()), await following(two.items())
    assert {first.data, second.data} == {b"0", b"1"}
    await asyncio.gather(first.answer(b""), second.answer(b""))
    await asyncio.wait_for(asyncio.gather(*asked), 8)


async def test_an_item_given_back_is_handed_out_again(opener: Opener) -> None:
    """Who is told to stop leaves its item to others."""
    asking, one, two = await opener(), await opener(), await opener()
    asked = asyncio.ensure_future(asking.ask(b"x"))
    await (await following(one.items())).give_back()
    await (await following(two.items())).answer(b"y")
    assert await asyncio.wait_for(asked, 8) == b"y"


async def test_a_dropped_item_has_no_answer(opener: Opener) -> None:
    """It is handed to nobody else, and the question stays open."""
    asking, working = await opener(), await opener()
    asked = asyncio.ensure_future(asking.ask(b"x"))
    items = working.items()
    await (await following(items)).drop()
    later = asyncio.ensure_future(asking.ask(b"y"))
    item = await following(items)
    assert item.data == b"y"
    await item.answer(b"z")
    assert await asyncio.wait_for(later, 8) == b"z"
    assert not asked.done()
    asked.cancel()


async def test_an_answer_that_nobody_waits_for_does_no_harm(opener: Opener) -> None:
    """Who asked has given up meanwhile."""
    asking, working = await opener(), await opener()
    asked = asyncio.ensure_future(asking.ask(b"x"))
    item = await following(working.items())
    asked.cancel()
    await asyncio.wait({asked})
    await item.answer(b"late")
    again = asyncio.ensure_future(asking.ask(b"y"))
    await (await following(working.items())).answer(b"z")
    assert await asyncio.wait_for(again, 8) == b"z"


async def test_a_blob_of_several_chunks_is_read_whole(opener: Opener) -> None:
    """Whoever knows its manifest reads it, as often as it likes."""
    noise = b"".join(sha256(b"%d" % n).digest() for n in range(3 * CHUNK_BYTES // 32))
    asking, working = await opener(), await opener()
    manifest = await asking.share(noise)
    assert manifest.count > 2
    assert await asking.share(noise) == manifest
    assert [await working.shared(manifest) for _ in range(2)] == [noise, noise]


async def test_a_blob_that_is_not_there_is_said_to_be_missing(opener: Opener) -> None:
    """It was too old, or never stored."""
    manifest, _ = cut(b"nobody stored this")
    with pytest.raises(FramingError, match="missing-chunk"):
        await (await opener()).shared(manifest)


async def test_an_item_that_no_message_can_hold_is_refused(opener: Opener) -> None:
    """What is large is shared as a blob instead."""
    with pytest.raises(ValueError, match="too large"):
        await (await opener()).ask(bytes(MOST_ITEM_BYTES + 1))


async def test_a_closed_connection_says_so(opener: Opener) -> None:
    """The error is the one of a broker that is away."""
    work = await opener()
    await work.close()
    with pytest.raises(BusUnavailableError):
        await work.ask(b"x")
