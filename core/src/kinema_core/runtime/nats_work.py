"""The work queue over NATS JetStream. Answers go straight to the inbox of the asking process, past the stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

from nats.aio.msg import Msg

from kinema_core.runtime.framing import FramingError, Manifest, assemble, check_manifest
from kinema_core.runtime.nats_connection import Connection
from kinema_core.runtime.nats_deliveries import position, pull
from kinema_core.runtime.nats_reader import Reader
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.topology import WORK_STREAM, blob_subject, work_consumer, work_subject
from kinema_core.runtime.work import MOST_ITEM_BYTES, Item, cut, joined

_ANSWER: Final = "Kinema-Answer"
_TTL: Final = "Nats-TTL"
_ITEM_SECONDS: Final = 60
"""After so long no process waits for an item any more."""


class _NatsItem:
    def __init__(self, connection: Connection, message: Msg) -> None:
        self._connection = connection
        self._message = message

    @property
    def data(self) -> bytes:
        """See `Item`."""
        return self._message.data

    async def answer(self, data: bytes) -> None:
        """See `Item`."""
        await self._connection.send((self._message.headers or {}).get(_ANSWER, ""), data)
        await self._settle(b"+ACK")

    async def drop(self) -> None:
        """See `Item`."""
        await self._settle(b"+TERM")

    async def give_back(self) -> None:
        """See `Item`."""
        await self._settle(b"-NAK")

    async def _settle(self, word: bytes) -> None:
        await self._connection.send(self._message.reply, word)


class NatsWork:
    """A connection to the work queue of a service; made by `connect_work`."""

    def __init__(self, connection: Connection, cluster: str, service: str) -> None:
        self._connection = connection
        self._cluster = cluster
        self._service = service
        self._consumer = work_consumer(cluster, service)
        self._reader = Reader(connection, cluster)
        self._inbox = connection.client.new_inbox()
        self._asked: dict[str, asyncio.Future[bytes]] = {}
        self._count = 0
        self._stored: set[str] = set()

    async def open(self) -> None:
        """Listen for answers; raises BusSetupError where there is no queue, BusDeniedError without rights to it."""
        await position(self._connection, WORK_STREAM, self._consumer)
        await self._connection.client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def share(self, data: bytes) -> Manifest:
        """See `WorkQueue`."""
        manifest, pieces = cut(data)
        if manifest.digest not in self._stored:
            for index, piece in enumerate(pieces):
                await self._store(blob_subject(self._cluster, self._service, manifest.digest, index), piece, {})
            self._stored.add(manifest.digest)
        return manifest

    async def shared(self, manifest: Manifest) -> bytes:
        """See `WorkQueue`."""
        check_manifest(manifest)
        chunks: dict[int, bytes] = {}
        for index in range(manifest.count):
            subject = blob_subject(self._cluster, self._service, manifest.digest, index)
            raw = await self._reader.last(WORK_STREAM, subject)
            if raw is None:
                raise FramingError("missing-chunk", f"chunk {index} of {manifest.count} is missing")
            chunks[index] = raw.data
        return joined(manifest, assemble(manifest, chunks))

    async def ask(self, data: bytes) -> bytes:
        """See `WorkQueue`."""
        if len(data) > MOST_ITEM_BYTES:
            raise ValueError(f"an item of {len(data)} bytes is too large: {MOST_ITEM_BYTES} at most")
        self._count += 1
        inbox = f"{self._inbox}.{self._count}"
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[inbox] = answered
        try:
            headers = {_ANSWER: inbox, _TTL: f"{_ITEM_SECONDS}s"}
            await self._store(work_subject(self._cluster, self._service), data, headers)
            return await answered
        finally:
            del self._asked[inbox]

    async def items(self) -> AsyncIterator[Item]:
        """See `WorkQueue`."""
        async with aclosing(pull(self._connection, WORK_STREAM, self._consumer)) as messages:
            async for message in messages:
                yield _NatsItem(self._connection, message)

    async def close(self) -> None:
        """See `WorkQueue`."""
        await self._connection.close()

    async def _store(self, subject: str, data: bytes, headers: dict[str, str]) -> None:
        await self._connection.store(subject, data, f"stream {WORK_STREAM}", headers)

    async def _on_answer(self, message: Msg) -> None:
        answered = self._asked.get(message.subject)
        if answered is not None and not answered.done():
            answered.set_result(message.data)


async def connect_work(settings: RuntimeSettings, service: str) -> NatsWork:
    """Connect to the work queue of a service.

    Raises:
        BusDeniedError: wrong credentials or a right is missing. BusUnavailableError. BusSetupError: no queue.
    """
    connection = Connection(settings.nats_user or "kinema")
    await connection.open(settings)
    work = NatsWork(connection, settings.cluster, service)
    try:
        await work.open()
    except BaseException:  # also a cancellation must not leave the connection open
        await connection.close()
        raise
    return work
