"""Big events on a real broker whose chunks were harmed, and reads from a server that is behind."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from tests.support.bus_events import NOW, iteration
from tests.support.nats_broker import Broker

from kinema_core.events import EMPTY, CatalogPublished, Event, Offer, subject_of
from kinema_core.runtime.bus import Damaged, Stored
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.framing import HEADER_CHUNK, Chunk, Framed, frame
from kinema_core.runtime.nats_reader import Raw, Reader
from kinema_core.runtime.topology import chunk_subject

pytestmark = pytest.mark.connected


def catalog(number: int) -> Event:
    """A big event on the LOG."""
    offers = tuple(
        Offer(
            name=f"m{n}/z/on-demand",
            machine_type=f"m{n}",
            zone="z",
            capacity_type="on-demand",
            micro_usd_per_hour=n,
            capacity=EMPTY,
            allocatable=EMPTY,
        )
        for n in range(600)
    )
    body = CatalogPublished(source="file", priced=None, offers=offers)
    return origin(body, id_=f"catalog-{number}", cluster="c1", iteration="", now=NOW)


async def store(broker: Broker, event: Event, framed: Framed) -> None:
    """Store the messages of an event as they are."""
    for chunk in framed.chunks:
        await broker.send(chunk_subject("c1", "plan", framed.digest), chunk.payload, chunk.headers)
    await broker.send(subject_of(event), framed.payload, framed.headers)


async def items(broker: Broker) -> list[Stored | Damaged]:
    """The LOG as a service reads it."""
    return [item async for item in (await broker.bus("rescheduler")).read("LOG")]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("truncate", "bad-digest"),
        ("lose", "missing-chunk"),
        ("lose-all", "missing-chunk"),
        ("exchange", "bad-digest"),
        ("late", "missing-chunk"),
    ],
)
async def test_harmed_chunks_are_damage_and_the_next_event_goes_on(broker: Broker, harm: str, reason: str) -> None:
    """A shortened, lost, exchanged or late chunk makes the event Damaged with the reason; later ones are whole."""
    good, bad = catalog(2), catalog(1)
    framed = frame(bad, chunk_bytes=300)
    assert len(framed.chunks) > 3
    chunks = list(framed.chunks)
    one, two, last = chunks[1], chunks[2], chunks[-1]
    harmed = {
        "truncate": [chunks[0], Chunk(one.headers, one.payload[:-1]), *chunks[2:]],
        "lose": [chunks[0], *chunks[2:]],
        "lose-all": [],
        "exchange": [chunks[0], Chunk(one.headers, two.payload), Chunk(two.headers, one.payload), *chunks[3:]],
        "late": chunks[:-1],
    }
    chunks = harmed[harm]
    await store(broker, bad, replace(framed, chunks=tuple(chunks)))
    if harm == "late":
        await broker.send(chunk_subject("c1", "plan", framed.digest), last.payload, last.headers)
    await store(broker, good, frame(good, chunk_bytes=300))
    found = await items(broker)
    assert isinstance(found[0], Damaged)
    assert found[0].reason == reason
    assert isinstance(found[1], Stored)
    assert found[1].event == good
    assert len(found) == 2


async def test_chunks_stored_twice_do_no_harm(broker: Broker) -> None:
    """Chunks left by a publish that was broken off and made again are not in the way."""
    event = catalog(1)
    framed = frame(event, chunk_bytes=300)
    half = framed.chunks[: len(framed.chunks) // 2]
    for chunk in half:
        await broker.send(
            chunk_subject("c1", "plan", framed.digest), chunk.payload, {"Kinema-Chunk": chunk.headers["Kinema-Chunk"]}
        )
    await store(broker, event, framed)
    (item,) = await items(broker)
    assert isinstance(item, Stored)
    assert item.event == event


async def test_foreign_messages_among_chunks_are_passed_by(broker: Broker) -> None:
    """A message without a number on a chunk subject is not taken for a chunk."""
    event = catalog(1)
    framed = frame(event, chunk_bytes=300)
    await broker.send(chunk_subject("c1", "plan", framed.digest), b"hello", {HEADER_CHUNK: "-1"})
    await broker.send(chunk_subject("c1", "plan", framed.digest), b"hello")
    await store(broker, event, framed)
    (item,) = await items(broker)
    assert isinstance(item, Stored)


@pytest.mark.parametrize("visible", [0, 1, 5])
async def test_a_server_that_is_behind_hides_nothing(
    broker: Broker, visible: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where direct gets end before the head, the rest is read from the leader."""
    bus = await broker.bus()
    for n in range(1, 9):
        await bus.publish(iteration(n))
    batch = Reader._batch

    async def behind(self: Reader, stream: str, filter_: str, start: int, limit: int) -> list[Raw]:
        return [raw for raw in await batch(self, stream, filter_, start, limit) if raw.sequence <= visible]

    monkeypatch.setattr(Reader, "_batch", behind)
    assert [item.sequence async for item in bus.read("LOG")] == list(range(1, 9))
    assert [item.sequence async for item in bus.read("LOG", kinds=("execution-paused",))] == []


async def test_a_message_lost_on_the_way_is_read_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole in the answers of one batch ends the batch there; the next one begins at the hole."""
    bus = await broker.bus()
    for n in range(1, 9):
        await bus.publish(iteration(n))
    queues: list[asyncio.Queue[object]] = []
    original = asyncio.Queue.put

    async def lossy(self: asyncio.Queue[object], item: object) -> None:
        headers = getattr(item, "headers", None) or {}
        if headers.get("Nats-Sequence") == "4" and headers.get("Nats-Last-Sequence") == "3" and not queues:
            queues.append(self)
            return
        await original(self, item)

    monkeypatch.setattr(asyncio.Queue, "put", lossy)
    assert [item.sequence async for item in bus.read("LOG")] == list(range(1, 9))
    assert queues, "the message was not lost: the test tests nothing"


async def test_a_read_asks_for_no_more_messages_than_its_range_has(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look at one message one is transferred, however many follow it."""
    writer, bus = await broker.bus(), await broker.bus("rescheduler")
    for number in range(1, 6):
        await writer.publish(iteration(number))
    wanted: list[int] = []
    send = bus._connection.send

    async def noted(subject: str, payload: bytes, *, reply: str = "") -> None:
        wanted.append(json.loads(payload)["batch"])
        await send(subject, payload, reply=reply)

    monkeypatch.setattr(bus._connection, "send", noted)
    assert [item.sequence async for item in bus.read("LOG", start=3, end=3)] == [3]
    assert wanted == [1]
