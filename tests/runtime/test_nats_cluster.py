"""Three servers that hold every stream three times: publish, reconcile, read and lease on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from nats.errors import NoRespondersError
from tests.support.bus_events import iteration, snapshot
from tests.support.nats_broker import Broker, NatsCluster, running

from kinema_cli.local.nats_server import NatsServer
from kinema_core.events import Event, subject_of
from kinema_core.runtime.bus import BusUnavailableError, ConflictError, LeaseLostError, Stored
from kinema_core.runtime.framing import frame
from kinema_core.runtime.nats_bus import NatsBus
from kinema_core.runtime.serve import retry_until_available
from kinema_core.runtime.setup import Layout

pytestmark = pytest.mark.connected


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """Three servers on loopback."""
    layout = Layout(clusters=(), ack_wait_seconds=1, dedup_seconds=1)
    async with running(tmp_path, servers=3, layout=layout) as running_broker:
        yield running_broker


async def stored(bus: NatsBus) -> list[Event]:
    """Events of the LOG."""
    return [item.event async for item in bus.read("LOG") if isinstance(item, Stored)]


async def leader(broker: Broker, stream: str) -> NatsServer:
    """The server that leads a stream."""
    client = await broker.raw()
    answer = await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=60)
    name = msgspec.json.decode(answer.data)["cluster"]["leader"]
    assert isinstance(broker.server, NatsCluster)
    return broker.server.servers[int(name.removeprefix("n"))]


async def test_publishes_and_recognizes_repetitions(broker: Broker) -> None:
    """A repeated event is answered `duplicate` here, also with an expected sequence, and counts as success."""
    bus = await broker.bus()
    first = await bus.publish(iteration(1), expected_last=0)
    assert await bus.publish(iteration(1), expected_last=0) == first
    framed = frame(iteration(1))
    client = await broker.raw()
    headers = {**framed.headers, "Nats-Expected-Last-Subject-Sequence": "0"}
    raw = None
    async with asyncio.timeout(60):
        while raw is None:  # the server of a new connection learns a moment later who listens on the others
            with suppress(NoRespondersError):
                raw = await client.request(subject_of(iteration(1)), framed.payload, headers=headers, timeout=5)
    assert msgspec.json.decode(raw.data)["duplicate"] is True
    with pytest.raises(ConflictError):
        await bus.publish(iteration(2), expected_last=0)
    await asyncio.sleep(2.5)
    assert await bus.publish(iteration(1), expected_last=0) == first
    assert await stored(bus) == [iteration(1)]


async def test_every_connection_reads_what_was_acknowledged(broker: Broker) -> None:
    """Whichever server answers a read, and however far it is behind, nothing that was acknowledged is missing."""
    assert isinstance(broker.server, NatsCluster)
    writer = await broker.bus()
    readers = [await broker.bus() for _ in range(4)]
    for n in range(1, 31):
        await writer.publish(iteration(n))
        for reader in readers:
            assert await reader.head("LOG") == n
            items = [item.sequence async for item in reader.read("LOG", start=max(1, n - 3))]
            assert items == list(range(max(1, n - 3), n + 1))
    await writer.publish(snapshot(1, 30_000))
    for reader in readers:
        assert [item.event async for item in reader.read("STATE") if isinstance(item, Stored)] == [snapshot(1, 30_000)]


async def test_goes_on_when_the_leader_is_killed(broker: Broker) -> None:
    """Events acknowledged before and after the death of the stream's leader are all there, once, in order."""
    bus = await broker.bus()
    for n in range(1, 11):
        await bus.publish(iteration(n))
    victim = await leader(broker, "KINEMA_LOG")
    await asyncio.to_thread(victim.kill)
    for n in range(11, 21):
        await retry_until_available(lambda n=n: bus.publish(iteration(n)))  # type: ignore[misc]  # the default binds the loop's value
    await asyncio.to_thread(victim.start)
    assert await retry_until_available(lambda: stored(bus)) == [iteration(n) for n in range(1, 21)]


async def test_without_a_majority_nothing_is_taken_for_stored(broker: Broker) -> None:
    """With two of three servers gone a publish fails; when they are back it is stored once."""
    assert isinstance(broker.server, NatsCluster)
    bus = await broker.bus()
    await bus.publish(iteration(1))
    keep = await leader(broker, "KINEMA_LOG")
    gone = [server for server in broker.server.servers if server is not keep]
    for server in gone:
        await asyncio.to_thread(server.kill)
    with pytest.raises(BusUnavailableError):
        await bus.publish(iteration(2))
    for server in gone:
        await asyncio.to_thread(server.launch)
    for server in gone:
        await asyncio.to_thread(server.wait_ready)
    async with asyncio.timeout(60):
        assert await retry_until_available(lambda: bus.publish(iteration(2))) == 2
    assert await stored(bus) == [iteration(1), iteration(2)]


async def test_a_lease_has_one_holder_and_outlives_a_server(broker: Broker) -> None:
    """The lease is exclusive, survives the death of its bucket's leader, and its revision grows with each holder."""
    one, other = await broker.bus(), await broker.bus()
    lease = await one.acquire("rescheduler", 15)
    assert lease is not None
    assert await other.acquire("rescheduler", 15) is None
    victim = await leader(broker, "KV_kinema_lease")
    await asyncio.to_thread(victim.kill)
    await retry_until_available(lease.renew)
    assert await retry_until_available(lambda: other.acquire("rescheduler", 15)) is None
    await asyncio.to_thread(victim.start)
    await lease.release()
    new = await other.acquire("rescheduler", 15)
    assert new is not None
    assert new.revision > lease.revision
    with pytest.raises(LeaseLostError):
        await lease.renew()


async def test_deliveries_go_on_after_a_leader_dies(broker: Broker) -> None:
    """A durable consumer delivers everything in order through the death of its leader."""
    bus = await broker.bus()
    for n in range(1, 9):
        await bus.publish(iteration(n))
    got: list[int] = []
    async with asyncio.timeout(60):
        async for delivery in bus.deliveries("predictor"):
            got.append(delivery.item.sequence)
            if len(got) == 3:
                victim = await leader(broker, "KINEMA_LOG")
                await asyncio.to_thread(victim.kill)
                await asyncio.to_thread(victim.start)
            await retry_until_available(delivery.ack)
            if delivery.item.sequence == 8:
                break
    assert sorted(set(got)) == list(range(1, 9))
