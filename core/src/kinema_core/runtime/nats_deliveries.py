"""Deliveries of a durable consumer: pull one, hand it over, pull the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from nats.aio.msg import Msg

from kinema_core.runtime.bus import BusDeniedError, BusUnavailableError, Damaged, Delivery, Stored
from kinema_core.runtime.nats_connection import Connection, fault_error, fault_of
from kinema_core.runtime.nats_reader import Raw, Reader
from kinema_core.runtime.topology import STREAMS, consumer_name

_EXPIRES_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.5
_STREAM: Final = STREAMS["LOG"]


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
        self._attempt = message.metadata.num_delivered

    @property
    def item(self) -> Stored | Damaged:
        """What was delivered."""
        return self._item

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        return self._attempt

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


class Puller:
    """Pulls from the durable consumers of one cluster."""

    def __init__(self, connection: Connection, reader: Reader, cluster: str) -> None:
        self._connection = connection
        self._reader = reader
        self._cluster = cluster

    async def position(self, service: str) -> int:
        """Sequence up to which the consumer has settled everything; raises BusSetupError when there is none."""
        name = consumer_name(service, self._cluster)
        what = f"CONSUMER.INFO.{_STREAM}.{name}"
        data = await self._connection.api(what)
        fault = fault_of(data, what)
        if fault is not None:
            raise fault_error(fault, f"consumer {name} on stream {_STREAM}")
        return msgspec.json.decode(data, type=_ConsumerInfo).ack_floor.stream_seq

    async def deliveries(self, service: str) -> AsyncIterator[Delivery]:
        """Deliveries until the connection is closed; outages of the broker are waited for."""
        await self.position(service)
        client = self._connection.client
        inbox = client.new_inbox()
        arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        subscription = await client.subscribe(inbox, cb=arrived.put)
        # A pull request dies with the server that had it: after a reconnect it is made again at once.
        self._connection.on_wake(arrived)
        try:
            while not self._connection.closed:
                message = await self._pull(service, inbox, arrived)
                if message is not None:
                    yield NatsDelivery(self._connection, message, await self._item(message))
            self._connection.check_ended()
        finally:
            self._connection.off_wake(arrived)
            if not client.is_closed:
                await subscription.unsubscribe()

    async def _pull(self, service: str, inbox: str, arrived: asyncio.Queue[Msg | None]) -> Msg | None:
        """The next message, or None when there is none yet."""
        self._connection.check_refused()
        if not arrived.empty():
            return await self._sorted_out(service, arrived.get_nowait())
        if not self._connection.connected:
            await asyncio.sleep(_PAUSE_SECONDS)
            return None
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{_STREAM}.{consumer_name(service, self._cluster)}"
        query = {"batch": 1, "expires": int(_EXPIRES_SECONDS * 1e9)}
        with self._connection.interruption(subject) as interrupted:
            try:
                await self._connection.send(subject, msgspec.json.encode(query), reply=inbox)
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
        return await self._sorted_out(service, message)

    async def _sorted_out(self, service: str, message: Msg | None) -> Msg | None:
        """The message if it is a delivery; what the broker says about the pull request is dealt with here."""
        if message is None:
            return None
        status = (message.headers or {}).get("Status", "")
        if not status:
            return message
        if status in {"409", "503"}:
            # The consumer may be gone, or without a leader just now: the first is for a person to mend.
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                await self.position(service)
            except BusUnavailableError:
                return None
        return None

    async def _item(self, message: Msg) -> Stored | Damaged:
        raw = Raw(message.metadata.sequence.stream, message.subject, message.headers or {}, message.data)
        while True:
            try:
                return await self._reader.whole("LOG", raw)
            except BusUnavailableError:
                # Its chunks cannot be read just now. The delivery is made again if this takes long.
                await asyncio.sleep(_PAUSE_SECONDS)
                self._connection.check_refused()
                if self._connection.closed:
                    raise
