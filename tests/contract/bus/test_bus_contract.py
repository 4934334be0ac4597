"""What every bus promises, in memory as over the network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest
from tests.support.bus_events import forecast, iteration, paused, snapshot
from tests.support.nats_pipelines import CLUSTER, Pipeline

from kinema_core.events import Event, encode, subject_of
from kinema_core.events.upcast import UPCASTERS
from kinema_core.runtime.bus import (
    Bus,
    BusSetupError,
    BusUnavailableError,
    ConflictError,
    Damaged,
    Delivery,
    LeaseLostError,
    Stored,
    StreamName,
)
from kinema_core.runtime.framing import HEADER_ENCODING, frame
from kinema_sim.memory_bus import MemoryBus


async def everything(bus: Bus, stream: StreamName, start: int = 1, kinds: tuple[str, ...] = ()) -> list[Event]:
    """Sound events that a read gives."""
    items = [item async for item in bus.read(stream, start=start, kinds=kinds)]
    return [item.event for item in items if isinstance(item, Stored)]


async def following(deliveries: AsyncIterator[Delivery], seconds: float = 8.0) -> Delivery:
    """The next delivery; fails instead of waiting for ever."""
    return await asyncio.wait_for(anext(deliveries), seconds)


async def quiet(deliveries: AsyncIterator[Delivery], seconds: float) -> bool:
    """Whether nothing is delivered for that long."""
    waiting = asyncio.ensure_future(anext(deliveries))
    done, _ = await asyncio.wait({waiting}, timeout=seconds)
    waiting.cancel()
    await asyncio.wait({waiting})
    return not done


class TestPublish:
    """Storing events."""

    async def test_sequences_rise_by_one_from_one(self, pipeline: Pipeline) -> None:
        """The first event of a stream has sequence 1, the next 2."""
        bus = await pipeline.open()
        assert await bus.head("LOG") == 0
        assert [await bus.publish(iteration(n, CLUSTER)) for n in (1, 2, 3)] == [1, 2, 3]
        assert await bus.head("LOG") == 3

    async def test_the_streams_have_a_name_of_their_own(self, pipeline: Pipeline) -> None:
        """Every connection and every restart tells the same one; other streams have another."""
        one, other = await pipeline.open(), await pipeline.open()
        name = await one.identity()
        await one.publish(iteration(1, CLUSTER))
        assert await other.identity() == name
        assert await MemoryBus().identity() != name

    async def test_families_share_the_log(self, pipeline: Pipeline) -> None:
        """Plan and control events have one order, state events one of their own."""
        bus = await pipeline.open()
        assert await bus.publish(iteration(1, CLUSTER)) == 1
        assert await bus.publish(paused(1, CLUSTER)) == 2
        assert await bus.publish(snapshot(1, 1, CLUSTER)) == 1

    async def test_the_same_id_is_stored_once(self, pipeline: Pipeline) -> None:
        """Publishing an event again gives the first one's sequence, even after others of its kind."""
        bus = await pipeline.open()
        first = await bus.publish(iteration(1, CLUSTER))
        await bus.publish(iteration(2, CLUSTER))
        assert await bus.publish(iteration(1, CLUSTER)) == first
        assert await bus.head("LOG") == 2

    async def test_the_same_id_is_recognized_when_the_broker_has_forgotten_it(self, pipeline: Pipeline) -> None:
        """Beyond the duplicate window the newest event of a kind is still not stored again."""
        first = await (await pipeline.open()).publish(iteration(1, CLUSTER))
        await pipeline.forget_ids()
        bus = await pipeline.open()
        assert await bus.publish(iteration(1, CLUSTER)) == first
        assert await bus.head("LOG") == 1

    async def test_an_id_that_was_forgotten_is_stored_again_after_another(self, pipeline: Pipeline) -> None:
        """Beyond the duplicate window only the newest event of a kind is recognized."""
        bus = await pipeline.open()
        await bus.publish(iteration(1, CLUSTER))
        await bus.publish(iteration(2, CLUSTER))
        await pipeline.forget_ids()
        assert await bus.publish(iteration(1, CLUSTER)) == 3

    async def test_an_id_on_another_subject_counts_for_nothing(self, pipeline: Pipeline) -> None:
        """An event is stored although a message with its ids lies on the subject of another service."""
        bus = await pipeline.open()
        event = iteration(1, CLUSTER)
        await pipeline.send("LOG", "forecast-made", b"{}", frame(event).headers)
        assert await bus.publish(event) == 2
        assert await everything(bus, "LOG") == [event]

    async def test_a_comparison_refuses_other_content_under_the_same_id(self, pipeline: Pipeline) -> None:
        """With `expected_last` an event is not taken for another one with its id; without it the first one holds."""
        bus = await pipeline.open()
        event = iteration(1, CLUSTER)
        other = msgspec.structs.replace(event, time=event.time + timedelta(seconds=1))
        assert await bus.publish(event, expected_last=0) == 1
        with pytest.raises(ConflictError):
            await bus.publish(other, expected_last=0)
        assert await bus.publish(other) == 1
        assert await everything(bus, "LOG") == [event]

    async def test_expected_last_stores_when_it_holds(self, pipeline: Pipeline) -> None:
        """With the right last sequence of its subject the event is stored; other subjects do not count."""
        bus = await pipeline.open()
        await bus.publish(paused(1, CLUSTER))
        first = await bus.publish(iteration(1, CLUSTER), expected_last=0)
        assert await bus.publish(iteration(2, CLUSTER), expected_last=first) == 3

    async def test_expected_last_refuses_when_it_does_not_hold(self, pipeline: Pipeline) -> None:
        """With a wrong last sequence nothing is stored and ConflictError is raised."""
        bus = await pipeline.open()
        await bus.publish(iteration(1, CLUSTER))
        with pytest.raises(ConflictError):
            await bus.publish(iteration(2, CLUSTER), expected_last=0)
        assert await bus.head("LOG") == 1

    async def test_expected_last_succeeds_again_for_the_event_that_won(self, pipeline: Pipeline) -> None:
        """A repeated compare-and-set of the same event succeeds, though another event came after it."""
        bus = await pipeline.open()
        first = await bus.publish(iteration(1, CLUSTER), expected_last=0)
        await bus.publish(iteration(2, CLUSTER))
        await pipeline.forget_ids()
        assert await bus.publish(iteration(1, CLUSTER), expected_last=0) == first

    async def test_many_may_publish_one_kind_at_once(self, pipeline: Pipeline) -> None:
        """Events of one kind published by several at the same time are all stored, each once."""
        buses = [await pipeline.open() for _ in range(6)]
        events = [paused(n, CLUSTER) for n in range(1, 37)]
        publishing = [buses[n % 6].publish(event) for n, event in enumerate([*events, *events])]
        sequences = await asyncio.gather(*publishing)
        assert sorted(sequences[:36]) == list(range(1, 37))
        assert sequences[:36] == sequences[36:]
        stored = {event.id for event in await everything(buses[0], "LOG")}
        assert stored == {event.id for event in events}

    async def test_of_many_only_one_wins_a_comparison(self, pipeline: Pipeline) -> None:
        """Of several compare-and-sets with the same expectation one succeeds and the others conflict."""
        buses = [await pipeline.open() for _ in range(5)]
        tries = [bus.publish(iteration(n, CLUSTER), expected_last=0) for n, bus in enumerate(buses, start=1)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [1]
        assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 4
        assert await buses[0].head("LOG") == 1

    async def test_ids_may_hold_anything(self, pipeline: Pipeline) -> None:
        """Blanks, line ends, and signs beyond ASCII in an id break no header."""
        bus = await pipeline.open()
        event = iteration(1, CLUSTER)
        odd = Event(**{field: getattr(event, field) for field in event.__struct_fields__} | {"id": "a b\r\nX: ü/…"})
        first = await bus.publish(odd)
        assert await bus.publish(odd) == first
        assert await everything(bus, "LOG") == [odd]


class TestRead:
    """Reading streams."""

    async def test_reads_what_was_published_with_its_place(self, pipeline: Pipeline) -> None:
        """A read gives equal events, their sequences, subjects, and sizes as JSON."""
        bus = await pipeline.open()
        events = [iteration(1, CLUSTER), forecast(1, CLUSTER), paused(1, CLUSTER)]
        for event in events:
            await bus.publish(event)
        items = [item async for item in bus.read("LOG")]
        assert items == [
            Stored("LOG", n, subject_of(event), event, len(encode(event))) for n, event in enumerate(events, start=1)
        ]

    @pytest.mark.parametrize("event", [paused(1, CLUSTER), forecast(1, "other")], ids=["kind", "cluster"])
    async def test_an_event_on_a_foreign_subject_is_damaged(self, pipeline: Pipeline, event: Event) -> None:
        """Rights hold by subject: an event of another kind or cluster than its subject's is refused."""
        bus = await pipeline.open()
        await pipeline.send("LOG", "forecast-made", encode(event))
        [item] = [item async for item in bus.read("LOG")]
        assert isinstance(item, Damaged)
        assert (item.reason, item.sequence) == ("wrong-subject", 1)
        last = await bus.last("LOG", "forecast-made")
        assert isinstance(last, Damaged)

    async def test_a_newer_version_reaches_only_who_reads_everything(self, pipeline: Pipeline) -> None:
        """A reader of known kinds and a consumer never get a version that they do not know; a full read shows it."""
        bus = await pipeline.open()
        await pipeline.send("LOG", "iteration-started.v2", b"{}")
        await bus.publish(iteration(1, CLUSTER))
        for kinds in (("iteration-started",), ("iteration-started", "forecast-made")):
            assert await everything(bus, "LOG", kinds=kinds) == [iteration(1, CLUSTER)]
            assert [item.sequence async for item in bus.read("LOG", kinds=kinds)] == [2]
        assert [type(item) async for item in bus.read("LOG")] == [Damaged, Stored]
        await pipeline.send("LOG", "iteration-started.v2", b"{}")
        last = await bus.last("LOG", "iteration-started")
        assert last is not None
        assert last.sequence == 2
        assert (await following(bus.deliveries("predictor"))).item.sequence == 2

    async def test_an_older_version_that_is_lifted_is_read(
        self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Readers of a kind get the older versions on their own subjects as events of the current one."""
        monkeypatch.setitem(UPCASTERS, "forecast-made.v0", lambda body: ("forecast-made.v1", body))
        bus = await pipeline.open()
        event = forecast(1, CLUSTER)
        await pipeline.send("LOG", "forecast-made.v0", encode(event).replace(b"forecast-made.v1", b"forecast-made.v0"))
        await bus.publish(forecast(2, CLUSTER))
        assert await everything(bus, "LOG", kinds=("forecast-made",)) == [event, forecast(2, CLUSTER)]
        last = await bus.last("LOG", "forecast-made")
        assert isinstance(last, Stored)
        assert last.event == forecast(2, CLUSTER)

    async def test_starts_where_told(self, pipeline: Pipeline) -> None:
        """A read from a sequence gives that event and the later ones; beyond the head nothing."""
        bus = await pipeline.open()
        for n in range(1, 6):
            await bus.publish(iteration(n, CLUSTER))
        assert await everything(bus, "LOG", start=4) == [iteration(4, CLUSTER), iteration(5, CLUSTER)]
        assert await everything(bus, "LOG", start=6) == []

    async def test_restricts_to_kinds(self, pipeline: Pipeline) -> None:
        """Only events of the kinds named are given, be it one or several."""
        bus = await pipeline.open()
        for event in (iteration(1, CLUSTER), paused(1, CLUSTER), forecast(1, CLUSTER), iteration(2, CLUSTER)):
            await bus.publish(event)
        one = await everything(bus, "LOG", kinds=("iteration-started",))
        assert one == [iteration(1, CLUSTER), iteration(2, CLUSTER)]
        two = await everything(bus, "LOG", kinds=("forecast-made", "execution-paused"))
        assert two == [paused(1, CLUSTER), forecast(1, CLUSTER)]

    async def test_many_events_come_in_order_without_a_gap(self, pipeline: Pipeline) -> None:
        """More events than fit one batch are read completely."""
        bus = await pipeline.open()
        for n in range(1, 601):
            await bus.publish(iteration(n, CLUSTER))
        items = [item async for item in bus.read("LOG", start=2)]
        assert [item.sequence for item in items] == list(range(2, 601))

    async def test_big_events_are_whole(self, pipeline: Pipeline) -> None:
        """An event of several chunks is read as one equal event; its chunks are not seen."""
        bus = await pipeline.open()
        events = [snapshot(1, 2, CLUSTER), snapshot(2, 30_000, CLUSTER), snapshot(3, 2_000, CLUSTER)]
        for event in events:
            await bus.publish(event)
        assert await everything(bus, "STATE") == events
        assert await everything(bus, "STATE", kinds=("cluster-snapshot",)) == events

    async def test_a_big_event_published_again_is_stored_once(self, pipeline: Pipeline) -> None:
        """Neither the event nor its chunks are stored a second time."""
        bus = await pipeline.open()
        first = await bus.publish(snapshot(1, 30_000, CLUSTER))
        head = await bus.head("STATE")
        await pipeline.forget_ids()
        assert await bus.publish(snapshot(1, 30_000, CLUSTER)) == first
        assert await bus.head("STATE") == head

    async def test_last_gives_the_newest_of_a_kind(self, pipeline: Pipeline) -> None:
        """None before the first; then the newest, big or small."""
        bus = await pipeline.open()
        assert await bus.last("STATE", "cluster-snapshot") is None
        await bus.publish(snapshot(1, 2, CLUSTER))
        await bus.publish(snapshot(2, 30_000, CLUSTER))
        last = await bus.last("STATE", "cluster-snapshot")
        assert isinstance(last, Stored)
        assert last.event == snapshot(2, 30_000, CLUSTER)

    async def test_a_second_connection_sees_everything_acknowledged(self, pipeline: Pipeline) -> None:
        """Whatever one connection has published, another reads at once."""
        one, other = await pipeline.open(), await pipeline.open()
        for n in range(1, 21):
            await one.publish(iteration(n, CLUSTER))
            assert (await everything(other, "LOG", start=n)) == [iteration(n, CLUSTER)]


class TestDeliveries:
    """Durable consumers."""

    async def test_delivers_its_kinds_in_order_one_at_a_time(self, pipeline: Pipeline) -> None:
        """The consumer gets the kinds it wants, in the stream's order."""
        bus = await pipeline.open()
        for event in (iteration(1, CLUSTER), forecast(1, CLUSTER), paused(1, CLUSTER), iteration(2, CLUSTER)):
            await bus.publish(event)
        got = []
        deliveries = bus.deliveries("optimizer")
        for _ in range(3):
            delivery = await following(deliveries)
            assert delivery.attempt == 1
            got.append(delivery.item.sequence)
            await delivery.ack()
        assert got == [1, 2, 4]

    async def test_waits_for_events_to_come(self, pipeline: Pipeline) -> None:
        """An event published later is delivered without asking again."""
        bus = await pipeline.open()
        deliveries = bus.deliveries("predictor")
        waiting = asyncio.ensure_future(following(deliveries))
        await asyncio.sleep(0.2)
        await bus.publish(iteration(1, CLUSTER))
        delivery = await waiting
        assert isinstance(delivery.item, Stored)
        assert delivery.item.event == iteration(1, CLUSTER)

    async def test_position_follows_acknowledgements(self, pipeline: Pipeline) -> None:
        """The position is the last settled sequence, 0 before the first."""
        bus = await pipeline.open()
        await bus.publish(paused(1, CLUSTER))
        await bus.publish(iteration(1, CLUSTER))
        await bus.publish(iteration(2, CLUSTER))
        assert await bus.position("predictor") == 0
        deliveries = bus.deliveries("predictor")
        await (await following(deliveries)).ack()
        assert await bus.position("predictor") == 2
        await (await following(deliveries)).term()
        assert await bus.position("predictor") == 3

    async def test_unsettled_is_delivered_again_before_the_next(self, pipeline: Pipeline) -> None:
        """What was not settled in time comes again, with a higher attempt, and nothing overtakes it."""
        bus = await pipeline.open()
        await bus.publish(iteration(1, CLUSTER))
        await bus.publish(iteration(2, CLUSTER))
        deliveries = bus.deliveries("predictor")
        assert (await following(deliveries)).item.sequence == 1
        again = await following(deliveries)
        assert (again.item.sequence, again.attempt) == (1, 2)
        await again.ack()
        assert (await following(deliveries)).item.sequence == 2

    async def test_another_process_goes_on_where_the_first_stopped(self, pipeline: Pipeline) -> None:
        """A new connection gets what the old one had not settled, and nothing else again."""
        first, second = await pipeline.open(), await pipeline.open()
        for n in (1, 2, 3):
            await first.publish(iteration(n, CLUSTER))
        deliveries = first.deliveries("predictor")
        await (await following(deliveries)).ack()
        assert (await following(deliveries)).item.sequence == 2
        later = second.deliveries("predictor")
        again = await following(later)
        assert (again.item.sequence, again.attempt) == (2, 2)
        await again.ack()
        assert (await following(later)).item.sequence == 3

    async def test_nak_brings_it_back_and_keeps_the_order(self, pipeline: Pipeline) -> None:
        """A refused delivery comes again after its delay, before everything later."""
        bus = await pipeline.open()
        await bus.publish(iteration(1, CLUSTER))
        await bus.publish(iteration(2, CLUSTER))
        deliveries = bus.deliveries("predictor")
        await (await following(deliveries)).nak(0.1)
        again = await following(deliveries)
        assert (again.item.sequence, again.attempt) == (1, 2)
        await again.nak(0)
        assert (await following(deliveries)).attempt == 3

    async def test_term_ends_it_unhandled(self, pipeline: Pipeline) -> None:
        """A terminated delivery never comes again; the next one does."""
        bus = await pipeline.open()
        await bus.publish(iteration(1, CLUSTER))
        await bus.publish(iteration(2, CLUSTER))
        deliveries = bus.deliveries("predictor")
        await (await following(deliveries)).term()
        delivery = await following(deliveries)
        assert delivery.item.sequence == 2
        await delivery.ack()
        assert await quiet(bus.deliveries("predictor"), 1.5)

    async def test_in_progress_keeps_it(self, pipeline: Pipeline) -> None:
        """While the handler says that it is still at it, nobody else gets the event."""
        bus, other = await pipeline.open(), await pipeline.open()
        await bus.publish(iteration(1, CLUSTER))
        delivery = await following(bus.deliveries("predictor"))
        waiting = asyncio.ensure_future(following(other.deliveries("predictor")))
        for _ in range(8):
            await asyncio.sleep(0.25)
            await delivery.in_progress()
        assert not waiting.done()
        await delivery.ack()
        await bus.publish(iteration(2, CLUSTER))
        assert (await waiting).item.sequence == 2

    async def test_a_missing_consumer_is_said_at_once(self, pipeline: Pipeline) -> None:
        """A consumer that nobody created raises BusSetupError naming it."""
        bus = await pipeline.open()
        with pytest.raises(BusSetupError, match="nobody"):
            await bus.position("nobody")
        with pytest.raises(BusSetupError, match="nobody"):
            await following(bus.deliveries("nobody"))

    async def test_closing_ends_deliveries(self, pipeline: Pipeline) -> None:
        """Closing the bus ends the iteration, and later calls say that it is closed."""
        bus = await pipeline.open()
        deliveries = bus.deliveries("predictor")
        waiting = asyncio.ensure_future(anext(deliveries, None))
        await asyncio.sleep(0.2)
        assert bus.connected()
        await bus.close()
        assert await asyncio.wait_for(waiting, 8) is None
        assert not bus.connected()
        with pytest.raises(BusUnavailableError):
            await bus.publish(iteration(1, CLUSTER))


BAD: dict[str, tuple[bytes, dict[str, str]]] = {
    "bad-json": (b'{"id": "x", ', {}),
    "bad-envelope": (b'{"id": 7}', {}),
    "unknown-type": (encode(iteration(9, CLUSTER)).replace(b"iteration-started.v1", b"iteration-started.v9"), {}),
    "bad-body": (encode(iteration(9, CLUSTER)).replace(b'"version":9', b'"version":null'), {}),
    "bad-encoding": (encode(iteration(9, CLUSTER)), {HEADER_ENCODING: "lzma"}),
}


class TestDamage:
    """Messages that are no events."""

    @pytest.mark.parametrize("reason", sorted(BAD))
    async def test_a_bad_message_is_named_and_the_next_goes_on(self, pipeline: Pipeline, reason: str) -> None:
        """It is read and delivered as Damaged with its reason and bytes; sound events around it are unharmed."""
        bus = await pipeline.open()
        data, headers = BAD[reason]
        await bus.publish(iteration(1, CLUSTER))
        await pipeline.send("LOG", "iteration-started", data, headers)
        await bus.publish(iteration(2, CLUSTER))
        items = [item async for item in bus.read("LOG")]
        bad = items[1]
        assert isinstance(bad, Damaged)
        assert (bad.sequence, bad.reason, bad.data) == (2, reason, data)
        assert await everything(bus, "LOG") == [iteration(1, CLUSTER), iteration(2, CLUSTER)]
        deliveries = bus.deliveries("predictor")
        kinds = []
        for _ in range(3):
            delivery = await following(deliveries)
            kinds.append(type(delivery.item))
            await delivery.ack()
        assert kinds == [Stored, Damaged, Stored]

    async def test_plain_json_without_headers_is_an_event(self, pipeline: Pipeline) -> None:
        """What a person sends with a plain client is read like any other event."""
        bus = await pipeline.open()
        await pipeline.send("LOG", "iteration-started", encode(iteration(1, CLUSTER)))
        assert await everything(bus, "LOG") == [iteration(1, CLUSTER)]

    async def test_compressed_garbage_is_bad_encoding(self, pipeline: Pipeline) -> None:
        """Bytes that do not decompress are damage, not a crash."""
        bus = await pipeline.open()
        headers = dict(frame(snapshot(1, 2_000, CLUSTER)).headers)
        await pipeline.send("STATE", "cluster-snapshot", b"\x28\xb5\x2f\xfdgarbage", headers)
        item = await bus.last("STATE", "cluster-snapshot")
        assert isinstance(item, Damaged)
        assert item.reason == "bad-encoding"


class TestLease:
    """Leases and fencing."""

    async def test_one_holder_at_a_time(self, pipeline: Pipeline) -> None:
        """While somebody holds a lease nobody else gets it; another name is another lease."""
        one, other = await pipeline.open(), await pipeline.open()
        lease = await one.acquire("rescheduler", 5)
        assert lease is not None
        assert await other.acquire("rescheduler", 5) is None
        assert await other.acquire("observer", 5) is not None

    async def test_left_is_two_thirds_of_its_time(self, pipeline: Pipeline) -> None:
        """Acting is safe for 2/3 of the time to live at most, counted from before the renewal."""
        lease = await (await pipeline.open()).acquire("rescheduler", 3)
        assert lease is not None
        assert 0 < lease.left() <= 2

    async def test_renewing_keeps_it_and_its_revision(self, pipeline: Pipeline) -> None:
        """A renewed lease outlives its first time to live under the same fencing token."""
        one, other = await pipeline.open(), await pipeline.open()
        lease = await one.acquire("rescheduler", 1)
        assert lease is not None
        revision = lease.revision
        for _ in range(8):
            await asyncio.sleep(0.25)
            await lease.renew()
            assert await other.acquire("rescheduler", 1) is None
        assert lease.revision == revision

    async def test_an_expired_lease_is_free_and_its_holder_is_told(self, pipeline: Pipeline) -> None:
        """After its time another gets it with a higher revision, and the old holder's renewal fails."""
        one, other = await pipeline.open(), await pipeline.open()
        old = await one.acquire("rescheduler", 1)
        assert old is not None
        new = None
        for _ in range(60):
            new = await other.acquire("rescheduler", 2)
            if new is not None:
                break
            await asyncio.sleep(0.1)
        assert new is not None
        assert new.revision > old.revision
        assert old.left() < 0
        with pytest.raises(LeaseLostError):
            await old.renew()

    async def test_an_expired_lease_cannot_be_renewed(self, pipeline: Pipeline) -> None:
        """Even when nobody took it, a lease that expired is lost: a pause may have been long."""
        lease = await (await pipeline.open()).acquire("rescheduler", 1)
        assert lease is not None
        await asyncio.sleep(2.5)
        with pytest.raises(LeaseLostError):
            await lease.renew()

    async def test_a_released_lease_is_free_at_once(self, pipeline: Pipeline) -> None:
        """After a release the next one need not wait, and gets a higher revision."""
        one, other = await pipeline.open(), await pipeline.open()
        old = await one.acquire("rescheduler", 30)
        assert old is not None
        await old.release()
        assert old.left() < 0
        new = await other.acquire("rescheduler", 30)
        assert new is not None
        assert new.revision > old.revision
        with pytest.raises(LeaseLostError):
            await old.renew()
        await old.release()
        assert await one.acquire("rescheduler", 30) is None
