"""What `kinema doctor` finds at a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.builders import NOW

from kinema_cli.broker import settings_for
from kinema_cli.doctor.examine import broker
from kinema_cli.local.nats_server import NatsServer, free_port
from kinema_core.events import ClusterSnapshot
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.rights import USERS, authorization
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, setup

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
        good, silent = await broker(user("operator"))
        assert (good.level, silent.level) == ("ok", "warn")
        bus = await connect(user("observer"))
        await bus.publish(origin(ClusterSnapshot(version=1, objects=()), id_="s1", cluster="c1", iteration="", now=NOW))
        await bus.close()
        good, disk, old = await broker(user("operator"), server.monitor)
        assert good.message.endswith("with all streams and consumers")
        assert (disk.level, disk.message) == ("ok", "sync_interval is always")
        assert old.level == "warn"
        assert "version 1" in old.message
    finally:
        server.stop()
