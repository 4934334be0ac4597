"""The work queue: processes of one service share a computation. What the queue promises, and a twin in memory.

Nothing in it is worth keeping: whoever asks can compute the answer too, and does so when none comes in time. So an item
is handed out at least once at best, an answer may get lost, and both may come twice. What many items need travels once,
as a blob in chunks under its digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, Protocol

import zstandard

from kinema_core.runtime.bus import BusUnavailableError
from kinema_core.runtime.framing import CHUNK_BYTES, COMPRESS_ABOVE, FramingError, Manifest, decompress

MOST_ITEM_BYTES = CHUNK_BYTES
"""Largest item and largest answer."""


class Item(Protocol):
    """A piece of work handed to this process."""

    @property
    def data(self) -> bytes:
        """What was asked."""

    async def answer(self, data: bytes) -> None:
        """Send the answer and settle the item."""

    async def drop(self) -> None:
        """Settle the item without an answer: nobody else could make anything of it either."""

    async def give_back(self) -> None:
        """Let another process have it."""


class WorkQueue(Protocol):
    """A connection to the queue of one cluster's pipeline.

    All calls raise BusUnavailableError while the broker is away, BusDeniedError and BusSetupError as a bus does.
    """

    async def share(self, data: bytes) -> Manifest:
        """Store a blob for all who work on the items that name its manifest."""

    async def shared(self, manifest: Manifest) -> bytes:
        """A blob; raises FramingError where chunks are missing or are not what the digest says."""

    async def ask(self, data: bytes) -> bytes:
        """The answer to an item, whenever it comes: the caller sets the time."""

    def items(self) -> AsyncIterator[Item]:
        """Items to work on, for ever, until the queue is closed."""

    async def close(self) -> None:
        """Disconnect."""


def cut(data: bytes) -> tuple[Manifest, tuple[bytes, ...]]:
    """A blob as chunks and their manifest, compressed where that pays."""
    encoding: Literal["json", "zstd"] = "json"
    if len(data) > COMPRESS_ABOVE:
        data, encoding = zstandard.ZstdCompressor().compress(data), "zstd"
    pieces = tuple(data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)) or (b"",)
    digest = sha256(data).hexdigest()
    return Manifest(digest=digest, count=len(pieces), bytes=len(data), encoding=encoding, covers=0), pieces


def joined(manifest: Manifest, data: bytes) -> bytes:
    """A blob from its assembled chunks; raises FramingError where it cannot be decompressed."""
    return decompress(data) if manifest.encoding == "zstd" else data


@dataclass
class MemoryQueue:
    """What all connections to a queue in memory share."""

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
