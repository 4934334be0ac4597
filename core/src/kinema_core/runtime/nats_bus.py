"""The bus over NATS JetStream.

Reads and writes with the rights of one service only: it creates no stream and no consumer (`setup` does).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from kinema_core.events import Event
from kinema_core.runtime.bus import Damaged, Delivery, Lease, Stored, StreamName
from kinema_core.runtime.nats_connection import Connection
from kinema_core.runtime.nats_deliveries import NatsDelivery, item_of, position, pull
from kinema_core.runtime.nats_lease import LeaseKeeper
from kinema_core.runtime.nats_publisher import Publisher
from kinema_core.runtime.nats_reader import Reader
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.topology import STREAMS, consumer_name, subjects


class NatsBus:
    """A connection to the streams of one cluster's pipeline; made by `connect`."""

    def __init__(self, connection: Connection, cluster: str) -> None:
        self._connection = connection
        self._cluster = cluster
        self._reader = Reader(connection, cluster)
        self._publisher = Publisher(connection, self._reader)
        self._leases = LeaseKeeper(connection, self._reader, cluster)

    async def publish(self, event: Event, *, expected_last: int | None = None) -> int:
        """Store an event and return its sequence; see `Bus.publish`."""
        return await self._publisher.publish(event, expected_last)

    async def read(
        self, stream: StreamName, *, start: int = 1, end: int | None = None, kinds: tuple[str, ...] = ()
    ) -> AsyncIterator[Stored | Damaged]:
        """See `Bus`."""
        head = await self.head(stream)
        last = head if end is None else min(end, head)
        async for item in self._reader.items(stream, start=start, end=last, kinds=kinds):
            yield item

    async def head(self, stream: StreamName) -> int:
        """Return the stream's last sequence, 0 when it is empty."""
        return await self._reader.head(STREAMS[stream])

    async def last(self, stream: StreamName, kind: str) -> Stored | Damaged | None:
        """Return the newest event of a kind."""
        found = [await self._reader.last(STREAMS[stream], each) for each in subjects(self._cluster, (kind,))]
        raw = max((each for each in found if each is not None), key=lambda each: each.sequence, default=None)
        return None if raw is None else await self._reader.whole(stream, raw)

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
