"""Messages of durable consumers: pull one, hand it over, pull the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

import msgspec
from nats.aio.msg import Msg

from kinema_core.runtime.bus import BusDeniedError, BusUnavailableError, Damaged, Stored
from kinema_core.runtime.nats_connection import Connection
from kinema_core.runtime.nats_reader import Raw, Reader

_EXPIRES_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.5


class _Sequences(msgspec.Struct, frozen=True):
    stream_seq: int = 0


class _ConsumerInfo(msgspec.Struct, frozen=True):
    ack_floor: _Sequences = _Sequences()


class NatsDelivery:
    """One message handed to a durable consumer."""

    def __init__(self, connection: Connection, message: Msg, item: Stored | Damaged) -> None:
        self._connection = connection
        self._reply = message.reply
        self._item = item
        self._attempt, self._pending = message.metadata.num_delivered, message.metadata.num_pending

    @property
    def item(self) -> Stored | Damaged:
        """Return what was delivered."""
        return self._item

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        return self._attempt

    @property
    def pending(self) -> int:
        """Return how many more messages the consumer has yet to be handed."""
        return self._pending

    async def ack(self) -> None:
        """Done: never deliver it again. Returns when the broker has noted it."""
        await self._connection.request(self._reply, b"+ACK")

    async def nak(self, delay: float) -> None:
        """Not now: deliver it again after `delay` real seconds."""
        await self._connection.send(self._reply, b'-NAK {"delay": %d}' % int(delay * 1e9))

    async def term(self) -> None:
        """Never deliver it again, though it was not handled."""
        await self._connection.request(self._reply, b"+TERM")

    async def in_progress(self) -> None:
        """Still at it: do not redeliver yet."""
        await self._connection.send(self._reply, b"+WPI")


async def position(connection: Connection, stream: str, consumer: str) -> int:
    """Return the sequence up to which a consumer has settled everything; raises BusSetupError where there is none."""
    name, what = f"CONSUMER.INFO.{stream}.{consumer}", f"consumer {consumer} on stream {stream}"
    return (await connection.info(name, what, _ConsumerInfo)).ack_floor.stream_seq


async def pull(connection: Connection, stream: str, consumer: str) -> AsyncGenerator[Msg]:
    """Yield messages of a consumer until the connection is closed, across outages of the broker.

    Raises:
        BusSetupError: there is no such consumer. BusDeniedError.
    """
    await position(connection, stream, consumer)
    # A pull request dies with the server that had it: the inbox wakes up after a reconnect to make it again at once.
    async with connection.inbox() as (inbox, arrived):
        while not connection.closed:
            connection.check_refused()
            message = (
                arrived.get_nowait()
                if not arrived.empty()
                else await _request(connection, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", inbox, arrived)
            )
            status = "" if message is None else (message.headers or {}).get("Status", "")
            if status in {"409", "503"}:
                # The consumer may be gone, or without a leader just now: the first is for a person to mend.
                await asyncio.sleep(_PAUSE_SECONDS)
                with suppress(BusUnavailableError):
                    await position(connection, stream, consumer)
            elif message is not None and not status:
                yield message
        connection.check_ended()


async def _request(connection: Connection, subject: str, inbox: str, arrived: asyncio.Queue[Msg | None]) -> Msg | None:
    """Ask for one message and return what arrives, None when nothing does."""
    if not connection.connected:
        await asyncio.sleep(_PAUSE_SECONDS)
        return None
    query = {"batch": 1, "expires": int(_EXPIRES_SECONDS * 1e9)}
    with connection.interruption(subject) as interrupted:
        try:
            await connection.send(subject, msgspec.json.encode(query), reply=inbox)
        except BusUnavailableError:
            return None
        # Not for its cancellation at the end of the block: that None would end the next pull before it began,
        # which would leave its own None behind, and so on, with a pull request left at the broker each time.
        interrupted.add_done_callback(lambda done: None if done.cancelled() else arrived.put_nowait(None))
        try:
            async with asyncio.timeout(_EXPIRES_SECONDS + _GRACE_SECONDS):
                message = await arrived.get()
        except TimeoutError:
            return None
        if isinstance(interrupted.done() and interrupted.exception(), BusDeniedError):
            interrupted.result()
    return message


async def item_of(connection: Connection, reader: Reader, message: Msg) -> Stored | Damaged:
    """Read the event that a message on LOG stands for, waiting while its chunks cannot be read."""
    raw = Raw(message.metadata.sequence.stream, message.subject, message.headers or {}, message.data)
    while True:
        try:
            return await reader.whole("LOG", raw)
        except BusUnavailableError:
            # The delivery is made again if this takes long.
            await asyncio.sleep(_PAUSE_SECONDS)
            connection.check_refused()
            if connection.closed:
                raise
