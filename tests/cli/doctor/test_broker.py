"""What `kinema doctor` finds at a real broker."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.builders import NOW
from tests.support.certificates import authority
from tests.support.nats_broker import running

from kinema_cli.broker import settings_for
from kinema_cli.doctor.checks import Finding
from kinema_cli.doctor.examine import broker
from kinema_cli.local.nats_server import NatsServer, free_port
from kinema_core.events import ClusterSnapshot
from kinema_core.model.schedule import Schedule
from kinema_core.runtime.announce import announce
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.nats_connection import AmbiguousError, Connection
from kinema_core.runtime.rights import USERS, authorization
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, setup
from kinema_decider.logic.limits import Limits
from kinema_decider.settings import Settings as DeciderSettings
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.settings import Settings as OptimizerSettings

pytestmark = pytest.mark.connected


async def test_nothing_listens() -> None:
    """Without a broker there is one finding, which says what to start."""
    settings = settings_for(f"nats://127.0.0.1:{free_port()}", "c1")
    (found,) = await broker(replace(settings, nats_connect_seconds=0.2))
    assert (found.check, found.level) == ("broker", "fail")
    assert "start nats-server" in found.remediation


async def test_broker_from_nothing_to_all_well(tmp_path: Path) -> None:
    """Wrong password, not set up, half set up, nobody speaks, an old state: each has its line and its advice."""
    server = NatsServer(tmp_path, authorization=authorization(dict.fromkeys(USERS, "secret"), ["c1"]))
    server.start()

    def user(name: str, password: str = "secret") -> RuntimeSettings:
        return settings_for(server.url.replace("nats://", f"nats://{name}:{password}@"), "c1")

    try:
        (wrong,) = await broker(user("operator", "guess"))
        assert "password" in wrong.remediation
        (empty,) = await broker(user("operator"))
        assert "stream KINEMA_STATE" in empty.message
        assert "kinema setup" in empty.remediation
        await setup(user("admin"), Layout(clusters=("other",)))
        (half,) = await broker(user("operator"))
        assert half.message.count("consumer") == 3
        assert "stream" not in half.message
        await setup(user("admin"), Layout(clusters=("c1",)))
        good, sizes, silent = await broker(user("operator"))
        assert (good.level, sizes.level, silent.level) == ("ok", "ok", "warn")
        assert "KINEMA_LOG 0 of 2048 MiB" in sizes.message
        bus = await connect(user("observer"))
        await bus.publish(origin(ClusterSnapshot(version=1, objects=()), id_="s1", cluster="c1", iteration="", now=NOW))
        await bus.close()
        good, disk, _, old = await broker(user("operator"), server.monitor)
        assert re.fullmatch(r"\S+ is nats-server \d+\.\d+\.\d+ with all streams and consumers", good.message)
        assert (disk.level, disk.message) == ("ok", "sync_interval is always")
        assert old.level == "warn"
        assert "version 1" in old.message
    finally:
        server.stop()


async def test_settings_that_optimizer_and_decider_need_alike(tmp_path: Path) -> None:
    """Those with which both started last are compared, and one warning names what differs, and nothing else."""
    async with running(tmp_path) as started:
        clock = SystemClock()

        async def start(service: str, settings: msgspec.Struct) -> list[Finding]:
            bus = await connect(started.settings(service))
            await announce(bus, clock, service=service, cluster="c1", settings=settings)
            await bus.close()
            return [one for one in await broker(started.settings("operator")) if one.check == "settings"]

        runtime = RuntimeSettings(cluster="c1")
        windows = (Schedule(days=("mon",)),)
        limits = Limits(min_savings_fraction=0.05, scope=({"pool": "a"},), windows=windows)
        assert await start("decider", DeciderSettings(runtime=runtime, limits=limits)) == []  # of one nothing is known
        (found,) = await start("optimizer", OptimizerSettings(runtime=runtime))
        assert (found.level, found.message) == (
            "warn",
            'optimizer and decider differ in min_savings_fraction (0.1 and 0.05), scope ([] and [{"pool":"a"}])',
        )
        planning = PlanningSettings(min_savings_fraction=0.05, scope=({"pool": "a"},))
        assert await start("optimizer", OptimizerSettings(runtime=runtime, planning=planning)) == []


async def test_streams_that_somebody_changed(tmp_path: Path) -> None:
    """What services need to do right is a failure with the command that mends it; no bound on the size is a warning."""
    async with running(tmp_path) as started:
        client = await started.raw()

        async def change(**changed: object) -> list[Finding]:
            asked = await client.request("$JS.API.STREAM.INFO.KINEMA_LOG", timeout=60)
            config = {**msgspec.json.decode(asked.data)["config"], **changed}
            await client.request("$JS.API.STREAM.UPDATE.KINEMA_LOG", msgspec.json.encode(config), timeout=60)
            return [one for one in await broker(started.settings("operator")) if one.check == "streams"]

        wrong, _ = await change(allow_direct=False)
        assert (wrong.level, wrong.message) == ("fail", "stream KINEMA_LOG: allow_direct is False, wanted True")
        assert wrong.remediation.endswith("--cluster-name c1 --update")
        (unbounded,) = await change(allow_direct=True, max_bytes=-1)
        assert (unbounded.level, unbounded.message) == ("warn", "KINEMA_LOG may fill the disk: no max_bytes")


@pytest.mark.parametrize(("days", "levels"), [((5, 10_000), ["warn", "ok"]), ((30, 5), ["ok", "warn"])])
async def test_a_certificate_that_expires_soon(tmp_path: Path, days: tuple[int, int], levels: list[str]) -> None:
    """Two weeks before, the doctor warns: of the broker's, and of the client's own."""
    ca = authority(tmp_path / "ca")
    certificate, key = ca.issue("server", "IP:127.0.0.1", days=days[0])
    own, own_key = ca.issue("client", days=days[1])
    tls = {"cert_file": certificate, "key_file": key, "ca_file": ca.certificate, "verify": True}
    server = NatsServer(tmp_path / "nats", more={"tls": tls})
    server.start()
    try:
        settings = RuntimeSettings(cluster="c1", nats_url=server.url, nats_ca_file=ca.certificate)
        found = await broker(replace(settings, nats_cert_file=own, nats_key_file=own_key))
    finally:
        server.stop()
    about = [one for one in found if one.check == "broker TLS"]
    assert [one.level for one in about] == levels
    assert [one.message for one in about] == [
        f"the broker's certificate expires in {days[0] - 1:,} days",
        f"the client's certificate expires in {days[1] - 1:,} days",
    ]


async def test_one_copy_on_several_servers(tmp_path: Path) -> None:
    """Streams without copies on a broker cluster are a warning."""
    async with running(tmp_path, servers=3) as started:
        await setup(started.settings("admin"), Layout(clusters=("c1",), ack_wait_seconds=1), update=True)
        found = {one.check: one for one in await broker(started.settings("operator"))}
    assert found["streams"].level == "warn"
    assert "one copy on a broker of several servers" in found["streams"].message


async def test_an_answer_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that arrives while a leader is elected is lost: the doctor asks again before it reports a failure."""
    lost: list[str] = []
    api = Connection.api

    async def once(self: Connection, name: str, body: object = None) -> bytes:
        if "INFO" in name and name not in lost:
            lost.append(name)
            raise AmbiguousError(f"{name}: no answer")
        return await api(self, name, body)

    async def never(self: Connection, name: str, body: object = None) -> bytes:
        raise AmbiguousError(f"{name}: no answer")

    async with running(tmp_path) as started:
        monkeypatch.setattr(Connection, "api", once)
        assert [one.level for one in await broker(started.settings("operator"))] == ["ok", "ok", "warn"]
        assert len(lost) > 1
        monkeypatch.setattr(Connection, "api", never)
        (failed,) = await broker(started.settings("operator"))
    assert (failed.check, failed.level) == ("broker", "fail")
    assert "no answer" in failed.message
