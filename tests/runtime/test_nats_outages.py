"""A broker that goes away, comes back, or answers too late: nothing is lost, nothing is stored twice."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.support.bus_events import iteration, snapshot
from tests.support.nats_broker import Broker, running
from tests.support.nats_proxy import Proxy, proxied

from kinema_cli.local.nats_server import NatsServer
from kinema_core.events import Event
from kinema_core.runtime.bus import BusDeniedError, BusSetupError, BusUnavailableError, Stored
from kinema_core.runtime.nats_bus import NatsBus, connect
from kinema_core.runtime.nats_connection import ApiFault, fault_error
from kinema_core.runtime.serve import retry_until_available
from kinema_core.runtime.setup import Layout, setup
from kinema_core.runtime.topology import lease_subject

pytestmark = pytest.mark.connected


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker that forgets message ids after half a second."""
    layout = Layout(clusters=(), ack_wait_seconds=1, dedup_seconds=0.5)
    async with running(tmp_path, layout=layout) as running_broker:
        yield running_broker


async def test_tokens_grow_beyond_the_life_of_their_bucket(broker: Broker) -> None:
    """A lease in a bucket that was created again has a higher fencing token than any lease in the bucket before."""
    bus, client = await broker.bus(), await broker.raw()
    tokens = []
    for _ in range(3):
        lease = await bus.acquire("rescheduler", 30)
        assert lease is not None
        tokens.append(lease.revision)
        await lease.release()
    await client.request("$JS.API.STREAM.DELETE.KV_kinema_lease", timeout=60)
    await setup(broker.settings("admin"), Layout(clusters=("c1",)))
    new = await bus.acquire("rescheduler", 30)
    assert new is not None
    assert new.revision > max(tokens)


@pytest.mark.parametrize(("value", "taken"), [(b'{"holder":"x"}', True), (b'{"holder":"x","seconds":60}', False)])
async def test_a_lease_whose_end_the_broker_forgot_is_taken(broker: Broker, value: bytes, *, taken: bool) -> None:
    """A killed broker may keep a key for ever: once it was not renewed for its whole time, it is free."""
    bus = await broker.bus()
    await broker.send(lease_subject("c1", "rescheduler"), value)
    assert await bus.acquire("rescheduler", 1) is None
    await asyncio.sleep(1.2)
    lease = await bus.acquire("rescheduler", 1)
    assert (lease is not None) is taken
    if lease is not None:
        await lease.renew()
        assert await (await broker.bus()).acquire("rescheduler", 1) is None


async def test_a_lease_that_is_renewed_is_not_taken(broker: Broker) -> None:
    """However long another process waits for it."""
    held, waiting = await (await broker.bus()).acquire("rescheduler", 1), await broker.bus()
    assert held is not None
    for _ in range(12):
        assert await waiting.acquire("rescheduler", 1) is None
        await asyncio.sleep(0.2)
        await held.renew()


async def test_what_no_retry_can_store_ends_the_service(broker: Broker) -> None:
    """A bucket whose keys cannot expire is an error for a person, not an outage that is waited for."""
    bus, client = await broker.bus(), await broker.raw()
    await client.request("$JS.API.STREAM.DELETE.KV_kinema_lease", timeout=60)
    config = {"name": "KV_kinema_lease", "subjects": ["$KV.kinema_lease.>"], "max_msgs_per_subject": 1}
    await client.request("$JS.API.STREAM.CREATE.KV_kinema_lease", msgspec.json.encode(config), timeout=60)
    with pytest.raises(BusSetupError, match="TTL"):
        await bus.acquire("rescheduler", 30)


@pytest.mark.parametrize("code", [10023, 10047, 10052, 10054, 10077, 10097, 10166])
def test_a_refusal_of_the_store_is_no_outage(code: int) -> None:
    """A full store, a message that is too large and an expiry that is turned off are errors for a person."""
    assert isinstance(fault_error(ApiFault(err_code=code), "publishing"), BusSetupError)


@pytest.mark.parametrize(
    ("limit", "data", "headers"),
    [
        ({"max_bytes": 100, "discard": "new"}, b"x" * 200, {}),
        ({"max_msg_size": 100}, b"x" * 200, {}),
        ({}, b"", {"Long": "x" * 70_000}),
        ({}, b"", {"Nats-TTL": "1s"}),
    ],
    ids=["stream full", "message too large", "headers too large", "no expiry"],
)
async def test_the_broker_refuses_by_known_codes(
    broker: Broker, limit: dict[str, object], data: bytes, headers: dict[str, str]
) -> None:
    """What a real broker answers to a message that it never takes is an error for a person."""
    client = await broker.raw()
    config = {"name": "LIMITED", "subjects": ["limited"], "storage": "file", **limit}
    made = await client.request("$JS.API.STREAM.CREATE.LIMITED", msgspec.json.encode(config), timeout=60)
    assert b"error" not in made.data, made.data
    answer = await client.request("limited", data, timeout=60, headers=headers or None)
    fault = msgspec.convert(msgspec.json.decode(answer.data)["error"], ApiFault)
    assert isinstance(fault_error(fault, "publishing"), BusSetupError), fault


@dataclass
class Line:
    """A bus behind a proxy, and one that goes to the broker directly."""

    proxy: Proxy
    bus: NatsBus
    direct: NatsBus


@pytest.fixture
async def line(broker: Broker) -> AsyncIterator[Line]:
    """A connection that can be harmed."""
    assert isinstance(broker.server, NatsServer)
    async with proxied(broker.server.port) as proxy:
        settings = msgspec.structs.replace(broker.settings("rogue"), nats_url=proxy.url)
        bus = await connect(settings)
        yield Line(proxy, bus, await broker.bus())
        await bus.close()


async def stored(bus: NatsBus) -> list[Event]:
    """Events of the LOG."""
    return [item.event async for item in bus.read("LOG") if isinstance(item, Stored)]


@pytest.mark.parametrize("seconds", [0.05, 1.0], ids=["remembered", "forgotten"])
async def test_a_lost_acknowledgement_is_settled_by_reading_back(line: Line, seconds: float) -> None:
    """The event was stored, its answer lost, the connection cut: publish gives its sequence, and stores it once.

    Also when the broker has forgotten the message id before we are connected again.
    """
    await line.bus.publish(iteration(1))
    original = line.bus._connection.request
    restoring: list[asyncio.Task[None]] = []

    async def deafened(subject: str, *args: object, **more: object) -> object:
        if subject.startswith("kinema."):
            line.proxy.deaf = True
            restoring.append(asyncio.create_task(restore()))
        return await original(subject, *args, **more)  # type: ignore[arg-type]  # passed on as they came

    async def restore() -> None:
        await line.proxy.lost.wait()
        await asyncio.sleep(seconds)
        line.bus._connection.request = original  # type: ignore[method-assign]  # the broker answers again
        line.proxy.deaf = False
        line.proxy.cut()

    line.bus._connection.request = deafened  # type: ignore[method-assign, assignment]  # every answer is lost
    assert await line.bus.publish(iteration(2)) == 2
    assert [task.done() for task in restoring] == [True]
    assert await stored(line.direct) == [iteration(1), iteration(2)]


async def test_nothing_is_kept_back_while_disconnected(line: Line) -> None:
    """Disconnected, a publish fails at once, and what failed is not sent later."""
    line.proxy.closed = True
    line.proxy.cut()
    async with asyncio.timeout(60):
        while line.bus.connected():  # noqa: ASYNC110 - the client tells nobody
            await asyncio.sleep(0.01)
    with pytest.raises(BusUnavailableError, match="not connected"):
        await line.bus.publish(iteration(1))
    line.proxy.closed = False
    assert await retry_until_available(lambda: line.bus.publish(iteration(2))) == 1
    assert await stored(line.direct) == [iteration(2)]


# The client lets go of a refused attempt's socket without closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_changed_password_is_read_from_its_file_when_the_broker_asks_for_it(
    broker: Broker, tmp_path: Path
) -> None:
    """A broker that comes back with other passwords refuses the old one until the file has the new one, no longer."""
    assert isinstance(broker.server, NatsServer)
    file = tmp_path / "password"
    file.write_text("rogue-secret\n", encoding="utf-8")
    settings = msgspec.structs.replace(broker.settings("rogue"), nats_password="", nats_password_file=str(file))
    bus = await connect(settings)
    try:
        assert await bus.publish(iteration(1)) == 1
        await asyncio.to_thread(broker.server.stop)
        broker.server._authorization = {"users": [{"user": "rogue", "password": "changed"}]}
        await asyncio.to_thread(broker.server.start)
        async with asyncio.timeout(60):
            while True:  # until the broker has refused the old password
                try:
                    await bus.publish(iteration(2))
                except BusUnavailableError as error:
                    if "authorization" in str(error).lower():
                        break
                await asyncio.sleep(0.05)
        file.write_text("changed\n", encoding="utf-8")
        async with asyncio.timeout(60):
            assert await retry_until_available(lambda: bus.publish(iteration(2))) == 2
    finally:
        await bus.close()


async def test_killed_and_restarted_while_publishing(broker: Broker) -> None:
    """Every event acknowledged before, during and after a kill -9 of the broker is there, once, in order."""
    bus = await broker.bus()
    assert isinstance(broker.server, NatsServer)
    server = broker.server

    async def outage() -> None:
        await asyncio.sleep(0.15)
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.start)

    breaking = asyncio.ensure_future(outage())
    sequences = []
    number = 0
    while number < 50 or not breaking.done():
        number += 1
        event = iteration(number)
        sequences.append(await retry_until_available(lambda event=event: bus.publish(event)))  # type: ignore[misc]  # the default binds the loop's value
    await breaking
    assert sequences == list(range(1, number + 1))
    assert await stored(bus) == [iteration(n) for n in range(1, number + 1)]


async def test_a_big_event_survives_a_kill_between_its_chunks(broker: Broker) -> None:
    """Chunks stored before the outage are used or superseded: the event is whole and there once."""
    bus = await broker.bus()
    assert isinstance(broker.server, NatsServer)
    server = broker.server
    event = snapshot(1, 60_000)
    publishing = asyncio.ensure_future(retry_until_available(lambda: bus.publish(event)))
    other = await broker.bus()
    async with asyncio.timeout(60):
        while await other.head("STATE") < 2:
            pass
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await publishing
    items = [item async for item in bus.read("STATE")]
    assert [item.event for item in items if isinstance(item, Stored)] == [event]
    assert len(items) == 1


async def test_killed_and_restarted_while_delivering(broker: Broker) -> None:
    """An event delivered and not settled comes again after the restart; none is skipped."""
    bus = await broker.bus()
    assert isinstance(broker.server, NatsServer)
    for n in range(1, 6):
        await bus.publish(iteration(n))
    deliveries = bus.deliveries("predictor")
    await (await anext(deliveries)).ack()
    in_hand = await anext(deliveries)
    assert in_hand.item.sequence == 2
    await asyncio.to_thread(broker.server.kill)
    await asyncio.sleep(0.2)
    await asyncio.to_thread(broker.server.start)
    got: list[int] = []
    async with asyncio.timeout(60):
        while 5 not in got:
            delivery = await anext(deliveries)
            await retry_until_available(delivery.ack)
            got.append(delivery.item.sequence)
    # A broker that is killed may forget an acknowledgement it has just taken: 1 may come again, 2 must.
    assert got in ([2, 3, 4, 5], [1, 2, 3, 4, 5])


def _until_still(server: NatsServer) -> None:
    """Wait for the last thread to stop: on a busy machine one may answer for a while after the signal."""
    end = time.monotonic() + 60
    threads = Path(f"/proc/{server.pid}/task")
    while any(one.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "T" for one in threads.iterdir()):
        assert time.monotonic() < end, "the broker does not stop"
        time.sleep(0.01)


async def test_a_paused_broker_is_no_success(broker: Broker) -> None:
    """A publish into a broker that stands still is not taken for stored, and is settled when it goes on."""
    assert isinstance(broker.server, NatsServer)
    bus = await broker.bus()
    await bus.publish(iteration(1))
    broker.server.send_signal(signal.SIGSTOP)
    await asyncio.to_thread(_until_still, broker.server)
    publishing = asyncio.ensure_future(retry_until_available(lambda: bus.publish(iteration(2))))
    try:
        done, _ = await asyncio.wait({publishing}, timeout=1.5)
        assert not done
    finally:
        broker.server.send_signal(signal.SIGCONT)
    async with asyncio.timeout(60):
        assert await publishing == 2
    assert await stored(bus) == [iteration(1), iteration(2)]


async def test_a_lease_is_not_safe_while_the_broker_is_away(broker: Broker) -> None:
    """Without renewal the time left runs out by our own clock, broker or no broker."""
    assert isinstance(broker.server, NatsServer)
    lease = await (await broker.bus()).acquire("rescheduler", 1)
    assert lease is not None
    await asyncio.to_thread(broker.server.kill)
    with pytest.raises(BusUnavailableError):
        await lease.renew()
    await asyncio.sleep(0.8)
    assert lease.left() < 0
    await asyncio.to_thread(broker.server.start)


async def test_a_connection_ended_for_good_ends_the_service(broker: Broker) -> None:
    """When the broker throws us out, deliveries and calls raise instead of waiting for ever; a new process connects."""
    bus = await broker.bus()
    waiting = asyncio.ensure_future(anext(bus.deliveries("predictor")))
    await asyncio.sleep(0.2)
    transport = bus._connection.client._transport
    assert transport is not None
    transport.write(b"NONSENSE\r\n")
    with pytest.raises(BusDeniedError, match="ended the connection for good"):
        await asyncio.wait_for(waiting, 60)
    with pytest.raises(BusDeniedError, match="ended the connection for good"):
        await asyncio.wait_for(retry_until_available(lambda: bus.publish(iteration(1))), 10)
    assert not bus.connected()
    assert await (await broker.bus()).publish(iteration(1)) == 1
