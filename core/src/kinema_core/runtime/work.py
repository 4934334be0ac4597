"""The work queue: processes of one service share a computation. What the queue promises.

Nothing in it is worth keeping: the asking process can compute the answer, too, and does so when none comes in time. So
an item is handed out at least once at best, an answer may get lost, and both may come twice. What many items need
travels once, as a blob in chunks under its digest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Literal, Protocol

import zstandard

from kinema_core.runtime.framing import CHUNK_BYTES, COMPRESS_ABOVE, Manifest, decompress

MOST_ITEM_BYTES = CHUNK_BYTES
"""Largest item and largest answer."""


class Item(Protocol):
    """A piece of work handed to this process."""

    @property
    def data(self) -> bytes:
        """Return what was asked."""

    async def answer(self, data: bytes) -> None:
        """Send the answer and settle the item."""

    async def drop(self) -> None:
        """Settle the item without an answer: no other process could use it either."""

    async def give_back(self) -> None:
        """Let another process have it."""


class WorkQueue(Protocol):
    """A connection to the queue of one cluster's pipeline.

    All calls raise BusUnavailableError while the broker is away, BusDeniedError and BusSetupError as a bus does.
    """

    async def share(self, data: bytes) -> Manifest:
        """Store a blob for all who work on the items that name its manifest."""

    async def shared(self, manifest: Manifest) -> bytes:
        """Return a blob; raises FramingError where chunks are missing or are not what the digest says."""

    async def ask(self, data: bytes) -> bytes:
        """Return the answer to an item, whenever it comes: the caller sets the time."""

    def items(self) -> AsyncIterator[Item]:
        """Items to work on, for ever, until the queue is closed."""

    async def close(self) -> None:
        """Disconnect."""


def cut(data: bytes) -> tuple[Manifest, tuple[bytes, ...]]:
    """Return a blob as chunks and their manifest, compressed where that pays."""
    encoding: Literal["json", "zstd"] = "json"
    if len(data) > COMPRESS_ABOVE:
        data, encoding = zstandard.ZstdCompressor().compress(data), "zstd"
    pieces = tuple(data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)) or (b"",)
    digest = sha256(data).hexdigest()
    return Manifest(digest=digest, count=len(pieces), bytes=len(data), encoding=encoding, covers=0), pieces


def joined(manifest: Manifest, data: bytes) -> bytes:
    """Return a blob from its assembled chunks; raises FramingError where it cannot be decompressed."""
    return decompress(data) if manifest.encoding == "zstd" else data
