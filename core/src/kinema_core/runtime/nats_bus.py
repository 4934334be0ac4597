"""The bus over NATS JetStream.

Reads and writes with the rights of one service only: it creates no stream and no consumer (`setup` does).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final

from kinema_core.events import Event, EventsRestated, kind_of_type
from kinema_core.runtime.bus import Damaged, Delivery, Extent, Lease, Stored, StreamName
from kinema_core.runtime.nats_connection import Connection
from kinema_core.runtime.nats_deliveries import NatsDelivery, item_of, position, pull
from kinema_core.runtime.nats_lease import LeaseKeeper
from kinema_core.runtime.nats_publisher import Publisher
from kinema_core.runtime.nats_reader import Raw, Reader
from kinema_core.runtime.restated import carried, with_restated
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.topology import STREAMS, consumer_name, kind_in, subjects

_RESTATED: Final = kind_of_type(EventsRestated.TYPE)


class NatsBus:
    """A connection to the streams of one cluster's pipeline; made by `connect`."""

    def __init__(self, connection: Connection, cluster: str) -> None:
        self._connection = connection
        self._cluster = cluster
        self._reader = Reader(connection, cluster)
        self._publisher = Publisher(connection, self._reader)
        self._leases = LeaseKeeper(connection, self._reader, cluster)
        self._carrier: Raw | None = None
        """The newest restatement that was read."""
        self._carried: tuple[Stored, ...] = ()

    async def publish(self, event: Event, *, expected_last: int | None = None) -> int:
        """Store an event and return its sequence; see `Bus.publish`."""
        return await self._publisher.publish(event, expected_last)

    async def read(
        self, stream: StreamName, *, start: int = 1, end: int | None = None, kinds: tuple[str, ...] = ()
    ) -> AsyncIterator[Stored | Damaged]:
        """See `Bus`."""
        extent = await self.extent(stream)
        last = extent.last if end is None else min(end, extent.last)
        restated: Sequence[Stored] = ()
        if stream == "LOG" and start < max(extent.first, 2):  # the first one may be dropped while this is read
            wanted = subjects(self._cluster, kinds)
            restated = [
                item
                for item in await self._restated()
                if start <= item.sequence <= last and (not kinds or item.subject in wanted)
            ]
        items = self._reader.items(stream, start=start, end=last, kinds=kinds)
        async for item in with_restated(restated, items):
            yield item

    async def _restated(self) -> tuple[Stored, ...]:
        """Return the events of the newest restatement."""
        newest = await self._newest("LOG", _RESTATED)
        if newest != self._carrier:
            whole = None if newest is None else await self._reader.whole("LOG", newest)
            self._carrier, self._carried = newest, carried(whole)
        return self._carried

    async def head(self, stream: StreamName) -> int:
        """Return the stream's last sequence, 0 when it is empty."""
        return (await self.extent(stream)).last

    async def extent(self, stream: StreamName) -> Extent:
        """See `Bus`."""
        return await self._reader.extent(STREAMS[stream])

    async def last(self, stream: StreamName, kind: str) -> Stored | Damaged | None:
        """Return the newest event of a kind."""
        raw = await self._newest(stream, kind)
        if raw is not None:
            return await self._reader.whole(stream, raw)
        restated = await self._restated() if stream == "LOG" else ()
        return next((item for item in reversed(restated) if kind_in(item.subject) == kind), None)

    async def _newest(self, stream: StreamName, kind: str) -> Raw | None:
        found = [await self._reader.last(STREAMS[stream], each) for each in subjects(self._cluster, (kind,))]
        return max((each for each in found if each is not None), key=lambda each: each.sequence, default=None)

    async def deliveries(self, durable: str) -> AsyncIterator[Delivery]:
        """Yield deliveries of a durable consumer on LOG until the bus is closed."""
        consumer = consumer_name(durable, self._cluster)
        async with aclosing(pull(self._connection, STREAMS["LOG"], consumer)) as messages:
            async for message in messages:
                item = await item_of(self._connection, self._reader, message)
                yield NatsDelivery(self._connection, message, item)

    async def position(self, durable: str) -> int:
        """Sequence up to which the durable consumer has settled everything."""
        return await position(self._connection, STREAMS["LOG"], consumer_name(durable, self._cluster))

    async def acquire(self, name: str, ttl: float) -> Lease | None:
        """Take the lease `name` for `ttl` real seconds, or None while another process holds it."""
        return await self._leases.acquire(name, ttl)

    async def identity(self) -> str:
        """Return the cluster's name, and when LOG was made, to the nanosecond."""
        return f"{self._cluster}/{await self._reader.made(STREAMS['LOG'])}"

    def connected(self) -> bool:
        """Return whether the broker can be reached just now."""
        return self._connection.connected

    async def close(self) -> None:
        """Stop deliveries and disconnect."""
        await self._connection.close()


async def connect(settings: RuntimeSettings) -> NatsBus:
    """Connect to the broker that the settings name.

    Raises:
        BusDeniedError: wrong credentials. BusUnavailableError: no server answered within `nats_connect_seconds`.
    """
    connection = Connection(settings.nats_user or "kinema")
    await connection.open(settings)
    return NatsBus(connection, settings.cluster)
