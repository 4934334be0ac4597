"""Rights on the broker: each user does its own work and nothing else; what is refused is said at once and clearly."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.support.bus_events import NOW, forecast, iteration, paused, snapshot
from tests.support.nats_broker import PASSWORDS, Broker, users

from kinema_cli.local.nats_server import NatsServer, free_port
from kinema_core.events import BODIES, PREFIX, Event, Plan, PlanAccepted, subject_of
from kinema_core.runtime.bus import BusDeniedError, BusSetupError, BusUnavailableError, Stored
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.nats_connection import Connection
from kinema_core.runtime.nats_rights import missing_rights
from kinema_core.runtime.nats_work import connect_work
from kinema_core.runtime.rights import ADMIN, OPERATOR, USERS, authorization, publish_rights
from kinema_core.runtime.setup import Layout, SetupReport, setup
from kinema_core.runtime.topology import CONSUMES, LEASES, PUBLISHES, STREAMS, WORKS, kinds_of, subject

SERVICES = tuple(user for user in PUBLISHES if user != OPERATOR)


def accepted() -> Event:
    """A decision."""
    body = PlanAccepted(plan="it-1/optimizer/0", version=1)
    return origin(body, id_="it-1/optimizer/0/decider/0", cluster="c1", iteration="it-1", now=NOW)


OWN: dict[str, Event] = {
    "observer": iteration(1),
    "predictor": forecast(1),
    "decider": accepted(),
    "operator": paused(1),
}


class TestTable:
    """The rights as they are written into the server's configuration."""

    def test_every_kind_has_exactly_one_publisher(self) -> None:
        """No two users publish the same kind, but for what every service says of itself, and plans of an operator."""
        of_all = {kind for kind in kinds_of(PUBLISHES["predictor"]) if kind in kinds_of(PUBLISHES["decider"])}
        assert of_all == {"service-started", "dead-letter"}
        publishers: dict[str, list[str]] = {}
        for user, bodies in PUBLISHES.items():
            for kind in kinds_of(bodies):
                publishers.setdefault(kind, []).append(user)
        assert {kind for kind, found in publishers.items() if len(found) > 1} == of_all | {"plan-proposed"}
        assert publishers["plan-proposed"] == ["optimizer", "operator"]
        assert set(publishers) == set(kinds_of(BODIES))

    @pytest.mark.parametrize("user", SERVICES)
    def test_a_service_may_publish_its_kinds_and_no_other(self, user: str) -> None:
        """Subjects of events in a user's rights are those of its own kinds."""
        rights = [
            right
            for right in publish_rights(user, ["c1"])
            if right.startswith("kinema.") and "chunk" not in right and not right.startswith(f"{PREFIX}.c1.work.")
        ]
        assert sorted(rights) == sorted(subject("c1", kind) for kind in kinds_of(PUBLISHES[user]))

    @pytest.mark.parametrize("user", USERS)
    def test_nobody_but_the_admin_may_create_or_delete(self, user: str) -> None:
        """Services and the operator have no right to change a stream or a consumer."""
        rights = publish_rights(user, ["c1", "c2"])
        if user == ADMIN:
            assert rights == ["$JS.API.>", "$JS.SNAPSHOT.>"]
            return
        words = ("CREATE", "DELETE", "UPDATE", "PURGE", "STREAM.>", "API.>")
        assert not [right for right in rights if any(word in right for word in words)]
        assert ">" not in {right for right in rights if not right.startswith("$JS.ACK.")}

    def test_only_lease_holders_may_write_their_lease(self) -> None:
        """A lease can be written by the service of its name alone."""
        for user in USERS:
            keys = [right for right in publish_rights(user, ["c1"]) if right.startswith("$KV.")]
            assert keys == ([f"$KV.kinema_lease.c1.{user}"] if user in LEASES else [])

    def test_work_is_shared_within_a_service_only(self) -> None:
        """Items of a service, and answers to them, can be published by its own user alone."""
        for user in USERS:
            found = [right for right in publish_rights(user, ["c1"]) if ".work." in right or right.startswith("_INBOX")]
            own = [f"_INBOX_{user}.>", f"{PREFIX}.c1.work.{user}.blob.*.*", f"{PREFIX}.c1.work.{user}.item"]
            assert found == (own if user in WORKS else [])

    def test_a_user_without_a_password_is_refused(self) -> None:
        """No user is ever created without a password."""
        with pytest.raises(ValueError, match="no password for optimizer"):
            authorization({**PASSWORDS, "optimizer": ""}, ["c1"])


@pytest.mark.connected
class TestOnBroker:
    """The same on a real server."""

    @pytest.mark.parametrize("user", SERVICES)
    async def test_a_service_does_its_work(self, broker: Broker, user: str) -> None:
        """With its own rights alone a service publishes, reads, consumes, and takes its lease."""
        bus = await broker.bus(user)
        if user in OWN:
            assert await bus.publish(OWN[user]) == 1
            assert [item.sequence async for item in bus.read("LOG")] == [1]
        assert await bus.head("STATE") == 0
        assert await bus.last("LOG", "plan-accepted") is None or user == "decider"
        if user in LEASES:
            lease = await bus.acquire(user, 5)
            assert lease is not None
            await lease.renew()
            await lease.release()
        if user in CONSUMES:
            await (await broker.bus("rogue")).publish(iteration(1))
            kind = kinds_of(CONSUMES[user])[0]
            await broker.send(subject("c1", kind), b"{}")
            deliveries = bus.deliveries(user)
            delivery = await asyncio.wait_for(anext(deliveries), 60)
            await delivery.in_progress()
            await delivery.nak(0)
            delivery = await asyncio.wait_for(anext(deliveries), 60)
            assert delivery.attempt == 2
            await delivery.ack()
            assert await bus.position(user) == delivery.item.sequence

    @pytest.mark.parametrize("user", USERS)
    async def test_missing_rights_are_found_without_any_effect(self, broker: Broker, user: str) -> None:
        """A user has those of its own service; nothing is stored, and nothing taken from a consumer."""
        settings = broker.settings(user)
        for service in SERVICES:
            found = await missing_rights(settings, service)
            assert (found == ()) == (service == user)
        assert await missing_rights(broker.settings("rogue"), user) == ()
        rogue = await broker.bus("rogue")
        assert [await rogue.head(name) for name in STREAMS] == [0] * len(STREAMS)
        if user in CONSUMES:
            await rogue.publish(iteration(1))
            await broker.send(subject("c1", kinds_of(CONSUMES[user])[0]), b"{}")
            await missing_rights(settings, user)
            delivery = await asyncio.wait_for(anext((await broker.bus(user)).deliveries(user)), 60)
            assert delivery.attempt == 1

    async def test_big_events_need_no_further_right(self, broker: Broker) -> None:
        """The observer publishes snapshots in chunks, and others read them whole."""
        await (await broker.bus("observer")).publish(snapshot(1, 30_000))
        item = await (await broker.bus("optimizer")).last("STATE", "cluster-snapshot")
        assert isinstance(item, Stored)
        assert item.event == snapshot(1, 30_000)

    @pytest.mark.parametrize("user", [*SERVICES, OPERATOR])
    async def test_nobody_publishes_for_another(self, broker: Broker, user: str) -> None:
        """Every kind that is another's is refused at once with the subject's name, and nothing is stored."""
        bus = await broker.bus(user)
        for owner, event in OWN.items():
            if owner == user:
                continue
            # The words tell it from a time-out, which says that there was no answer.
            with pytest.raises(BusDeniedError, match=f"{user} has no right to publish on .*{event.type[:-3]}"):
                await bus.publish(event)
        assert await (await broker.bus()).head("LOG") == 0

    async def test_a_foreign_cluster_is_refused(self, broker: Broker) -> None:
        """The rights hold for the clusters they were made for."""
        with pytest.raises(BusDeniedError):
            await (await broker.bus("observer")).publish(iteration(1, cluster="c2"))

    async def test_a_foreign_consumer_is_refused(self, broker: Broker) -> None:
        """A service cannot take another's deliveries."""
        bus = await broker.bus("predictor")
        with pytest.raises(BusDeniedError):
            await asyncio.wait_for(anext(bus.deliveries("decider")), 60)

    async def test_a_foreign_lease_is_refused(self, broker: Broker) -> None:
        """A service without a lease of its own cannot block another's."""
        with pytest.raises(BusDeniedError):
            await (await broker.bus("predictor")).acquire("rescheduler", 5)
        with pytest.raises(BusDeniedError):
            await (await broker.bus("observer")).acquire("rescheduler", 5)

    async def test_a_wrong_password_is_said_at_once(self, broker: Broker) -> None:
        """Wrong credentials raise BusDeniedError naming user and address, without waiting for anything."""
        settings = msgspec.structs.replace(
            broker.settings("observer"), nats_password="wrong", nats_connect_seconds=3600.0
        )
        with pytest.raises(
            BusDeniedError, match=r"127\.0\.0\.1:\d+ refuses user 'observer': .*Authorization"
        ) as caught:
            async with asyncio.timeout(60):
                await connect(settings)
        assert "\n" not in str(caught.value)
        assert "wrong" not in str(caught.value)

    # The client forgets to close the socket of a reconnect that was refused.
    @pytest.mark.filterwarnings("ignore:Exception ignored.*StreamWriter:pytest.PytestUnraisableExceptionWarning")
    async def test_a_password_changed_later_ends_deliveries(self, broker: Broker) -> None:
        """Refused at a reconnect, the service is told instead of trying for ever."""
        assert isinstance(broker.server, NatsServer)
        bus = await broker.bus("predictor")
        waiting = asyncio.ensure_future(anext(bus.deliveries("predictor")))
        await asyncio.sleep(0.3)
        broker.server.kill()
        changed = {**users(("c1",))}
        listed = changed["users"]
        assert isinstance(listed, list)
        changed["users"] = [{**user, "password": "new"} if user["user"] == "predictor" else user for user in listed]
        broker.server._authorization = changed
        await asyncio.to_thread(broker.server.start)
        with pytest.raises(BusDeniedError, match="refuses the credentials"):
            await asyncio.wait_for(waiting, 60)
        with pytest.raises(BusDeniedError):
            await bus.publish(forecast(1))
        gc.collect()  # or another test would be told of that socket

    async def test_what_was_closed_stops_reconnecting(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        """Even if the client overlooks that it is canceled: else the process could not end."""
        assert isinstance(broker.server, NatsServer)
        before = asyncio.all_tasks()
        connection = Connection("predictor")
        await connection.open(broker.settings("predictor"))
        broker.server.kill()
        async with asyncio.timeout(60):
            while not connection.client.is_reconnecting:  # noqa: ASYNC110 - the client tells nobody
                await asyncio.sleep(0.01)

        async def overlooked() -> None:
            """The client does not end anything."""

        monkeypatch.setattr(connection.client, "close", overlooked)
        await connection.close()
        async with asyncio.timeout(60):
            while asyncio.all_tasks() - before:  # noqa: ASYNC110 - the client tells nobody
                await asyncio.sleep(0.01)

    async def test_nobody_there_is_said_in_time(self, broker: Broker) -> None:
        """An address where nobody listens raises BusUnavailableError within the time allowed."""
        url = f"nats://127.0.0.1:{free_port()}"
        settings = msgspec.structs.replace(broker.settings("observer"), nats_url=url, nats_connect_seconds=1.0)
        with pytest.raises(BusUnavailableError, match=f"{url} cannot be reached"):
            await asyncio.wait_for(connect(settings), 25)

    async def test_missing_streams_are_said(self, tmp_path: Path) -> None:
        """Before setup every call raises BusSetupError that says what to run."""
        server = NatsServer(tmp_path / "bare", authorization=users(("c1",)))
        server.start()
        broker = Broker(server, "c1")
        try:
            async with broker.stack:
                bus = await broker.bus("decider")
                calls = {
                    "publish": bus.publish(accepted()),
                    "head": bus.head("LOG"),
                    "last": bus.last("STATE", "cluster-snapshot"),
                    "position": bus.position("decider"),
                    "deliveries": anext(bus.deliveries("decider")),
                    "read": anext(aiter(bus.read("LOG"))),
                }
                for name, call in calls.items():
                    with pytest.raises(BusSetupError, match="run `kinema setup`"):
                        await asyncio.wait_for(call, 60)
                    assert name
                with pytest.raises(BusSetupError):
                    await (await broker.bus("observer")).acquire("observer", 5)
        finally:
            server.stop()

    async def test_a_deleted_consumer_ends_deliveries(self, broker: Broker) -> None:
        """A consumer deleted under a running service raises BusSetupError."""
        bus = await broker.bus("predictor")
        waiting = asyncio.ensure_future(anext(bus.deliveries("predictor")))
        await asyncio.sleep(0.3)
        client = await broker.raw()
        await client.request(f"$JS.API.CONSUMER.DELETE.{STREAMS['LOG']}.predictor-c1", b"", timeout=60)
        with pytest.raises(BusSetupError, match="predictor-c1"):
            await asyncio.wait_for(waiting, 60)

    async def test_only_the_admin_sets_up(self, broker: Broker) -> None:
        """Run as a service, setup is refused."""
        with pytest.raises(BusDeniedError):
            await setup(broker.settings("observer"), Layout(clusters=("c2",)))

    async def test_setup_twice_changes_nothing(self, broker: Broker) -> None:
        """A second run creates nothing and finds no drift; a wish for something else is reported, not done."""
        layout = Layout(clusters=("c1",), ack_wait_seconds=1)
        report = await setup(broker.settings("admin"), layout)
        assert report.created == ()
        assert report.drift == ()
        other = Layout(clusters=("c1", "c2"), ack_wait_seconds=2, dlq_bytes=1_000_000)
        report = await setup(broker.settings("admin"), other)
        assert report.created == (*(f"consumer {service}-c2" for service in CONSUMES), "consumer work-optimizer-c2")
        assert "stream KINEMA_DLQ: max_bytes is 67108864, wanted 1000000" in report.drift
        assert "consumer decider-c1: ack_wait is 1000000000, wanted 2000000000" in report.drift
        assert len(report.drift) == 1 + len(CONSUMES)

    async def test_an_update_changes_what_loses_nothing(self, broker: Broker) -> None:
        """Larger streams and other consumers are made so; what drops messages or is refused stays and is reported."""
        wanted = Layout(clusters=("c1",), ack_wait_seconds=2, log_bytes=3 << 30, state_bytes=1 << 20, replicas=3)
        await setup(broker.settings("admin"), replace(wanted, replicas=1, state_bytes=2 << 30), update=True)
        report = await setup(broker.settings("admin"), wanted, update=True)
        assert report.created == report.changed == ()
        assert (
            f"stream KINEMA_STATE: max_bytes is {2 << 30}, wanted {1 << 20}; not changed, as it would drop messages"
            in report.drift
        )
        assert [line for line in report.drift if line.startswith("stream KINEMA_LOG: num_replicas is 1, wanted 3; not")]
        assert not [line for line in report.drift if "ack_wait" in line or "KINEMA_LOG: max_bytes" in line]
        unchanged = replace(wanted, replicas=1, state_bytes=2 << 30)
        assert await setup(broker.settings("admin"), unchanged) == SetupReport()
        back = await setup(broker.settings("admin"), replace(unchanged, ack_wait_seconds=1), update=True)
        assert len(back.changed) == len(CONSUMES)

    @pytest.mark.parametrize(("size", "changed"), [(100, False), (1 << 20, True)])
    async def test_a_stream_without_bound_gets_one_that_loses_nothing(
        self, broker: Broker, size: int, *, changed: bool
    ) -> None:
        """An update bounds it only where all that it holds has room."""
        await (await broker.bus()).publish(iteration(1))
        client = await broker.raw()
        asked = await client.request("$JS.API.STREAM.INFO.KINEMA_LOG", timeout=60)
        config = {**msgspec.json.decode(asked.data)["config"], "max_bytes": -1}
        await client.request("$JS.API.STREAM.UPDATE.KINEMA_LOG", msgspec.json.encode(config), timeout=60)
        layout = Layout(clusters=("c1",), ack_wait_seconds=1, log_bytes=size)
        report = await setup(broker.settings("admin"), layout, update=True)
        assert (len(report.changed), len(report.drift)) == ((1, 0) if changed else (0, 1))
        assert await (await broker.bus()).head("LOG") == 1

    async def test_clusters_on_one_broker_do_not_see_each_other(self, tmp_path: Path) -> None:
        """Two clusters share streams and ids, and neither reads, consumes or loses anything of the other's."""
        server = NatsServer(tmp_path / "two", authorization=users(("a", "b.c")))
        server.start()
        one, other = Broker(server, "a"), Broker(server, "b.c")
        try:
            async with one.stack, other.stack:
                await setup(one.settings("admin"), Layout(clusters=("a", "b.c")))
                first, second = await one.bus("observer"), await other.bus("observer")
                await first.publish(iteration(1, "a"))
                await second.publish(iteration(1, "b.c"))
                await second.publish(iteration(2, "b.c"))
                for bus, name, numbers in ((first, "a", (1,)), (second, "b.c", (1, 2))):
                    items = [item async for item in bus.read("LOG")]
                    assert [item.event for item in items if isinstance(item, Stored)] == [
                        iteration(n, name) for n in numbers
                    ]
                delivery = await asyncio.wait_for(anext((await other.bus("predictor")).deliveries("predictor")), 5)
                assert isinstance(delivery.item, Stored)
                assert delivery.item.event == iteration(1, "b.c")
                assert await first.acquire("observer", 5) is not None
                assert await second.acquire("observer", 5) is not None
        finally:
            server.stop()


def test_a_plan_is_the_optimizers() -> None:
    """The one body whose class is not named after its kind has its publisher and its stream."""
    assert Plan in PUBLISHES["optimizer"]
    assert subject("c1", "plan-proposed") == "kinema.v1.c1.plan.plan-proposed.v1"
    assert subject_of(iteration(1)) == subject("c1", "iteration-started")
    with pytest.raises(ValueError, match="no kind of event"):
        subject("c1", "chunk")


@pytest.mark.connected
async def test_another_service_cannot_share_work(broker: Broker) -> None:
    """It is told at once that it has no right to the optimizer's queue."""
    with pytest.raises(BusDeniedError, match="no right"):
        await connect_work(broker.settings("predictor"), "optimizer")
