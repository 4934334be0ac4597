"""A work queue within one process, for tests. It promises what `kinema_core.runtime.work` promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from kinema_core.runtime.bus import BusUnavailableError
from kinema_core.runtime.framing import FramingError, Manifest
from kinema_core.runtime.work import MOST_ITEM_BYTES, Item, cut


@dataclass
class MemoryQueue:
    """State that all connections to a queue in memory share."""

    waiting: asyncio.Queue[tuple[bytes, asyncio.Future[bytes]]] = field(default_factory=asyncio.Queue)
    blobs: dict[str, bytes] = field(default_factory=dict)


@dataclass
class _MemoryItem:
    queue: MemoryQueue
    data: bytes
    asked: asyncio.Future[bytes]

    async def answer(self, data: bytes) -> None:
        """See `Item`."""
        if not self.asked.done():
            self.asked.set_result(data)

    async def drop(self) -> None:
        """See `Item`."""

    async def give_back(self) -> None:
        """See `Item`."""
        self.queue.waiting.put_nowait((self.data, self.asked))


class MemoryWork:
    """A connection to a queue in memory."""

    def __init__(self, queue: MemoryQueue) -> None:
        self._queue = queue
        self._closed = False

    async def share(self, data: bytes) -> Manifest:
        """See `WorkQueue`."""
        self._check()
        manifest, _ = cut(data)
        self._queue.blobs[manifest.digest] = data
        return manifest

    async def shared(self, manifest: Manifest) -> bytes:
        """See `WorkQueue`."""
        self._check()
        found = self._queue.blobs.get(manifest.digest)
        if found is None:
            raise FramingError("missing-chunk", f"no blob {manifest.digest}")
        return found

    async def ask(self, data: bytes) -> bytes:
        """See `WorkQueue`."""
        self._check()
        if len(data) > MOST_ITEM_BYTES:
            message = f"an item of {len(data)} bytes is too large: {MOST_ITEM_BYTES} at most"
            raise ValueError(message)
        asked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._queue.waiting.put_nowait((data, asked))
        return await asked

    async def items(self) -> AsyncIterator[Item]:
        """See `WorkQueue`."""
        while not self._closed:
            data, asked = await self._queue.waiting.get()
            yield _MemoryItem(self._queue, data, asked)

    async def close(self) -> None:
        """See `WorkQueue`."""
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise BusUnavailableError("the connection is closed")
