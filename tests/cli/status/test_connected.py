"""`kinema status` against a real broker, with the operator's rights only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.builders import NOW

from kinema_cli.broker import settings_for
from kinema_cli.doctor.examine import broker
from kinema_cli.local.nats_server import NatsServer
from kinema_cli.output import Format
from kinema_cli.status.command import run_status
from kinema_core.events import AnyBody, ClusterSnapshot, IterationSkipped
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.rights import USERS, authorization
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, setup

pytestmark = pytest.mark.connected
MIB = 1024 * 1024


def settings(server: NatsServer, user: str) -> RuntimeSettings:
    """How a user connects; each one's password is its name, and an odd sign that addresses must encode."""
    return RuntimeSettings(cluster="demo", nats_url=server.url, nats_user=user, nats_password=f"{user}@")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A broker that is set up, on which the observer has said two things."""
    server = NatsServer(tmp_path, authorization=authorization({user: f"{user}@" for user in USERS}, ["demo"]))
    await asyncio.to_thread(server.start)
    await setup(settings(server, "admin"), Layout(clusters=("demo",), state_bytes=64 * MIB, log_bytes=64 * MIB))
    bus = await connect(settings(server, "observer"))
    said: tuple[AnyBody, ...] = (ClusterSnapshot(version=4, objects=()), IterationSkipped(version=4, reason="calm"))
    for number, body in enumerate(said):
        await bus.publish(origin(body, id_=f"e{number}", cluster="demo", iteration="", now=NOW))
    await bus.close()
    yield server
    await asyncio.to_thread(server.stop)


async def test_status_is_read_with_the_operators_rights(server: NatsServer, capsys: pytest.CaptureFixture[str]) -> None:
    """State and refusal stand in the output; another cluster has nothing; a wrong password is one line."""
    address = server.url.replace("//", "//operator:operator%40@")
    assert await asyncio.to_thread(run_status, nats=address, cluster="demo", output=Format.JSON) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"]["version"], found["skipped"]["reason"]) == (4, "calm")
    wrong = server.url.replace("//", "//operator:guess@")
    assert await asyncio.to_thread(run_status, nats=wrong, cluster="demo", output=Format.JSON) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    assert "guess" not in said.err


async def test_what_is_wrong_with_the_connection_names_the_variables(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service has settings for secrets and certificates; the command line takes them from the environment."""

    async def said(nats: str) -> str:
        assert await asyncio.to_thread(run_status, nats=nats, cluster="demo", output=Format.JSON) == 1
        return capsys.readouterr().err.strip()

    address = server.url.replace("//", "//admin@")
    assert (await said(address)).endswith(
        "refuses user 'admin': Authorization Violation: set KINEMA_NATS_PASSWORD_FILE"
    )
    assert (await said(server.url)).endswith(": set KINEMA_NATS_USER and KINEMA_NATS_PASSWORD_FILE")
    monkeypatch.setenv("KINEMA_NATS_CA_FILE", str(tmp_path / "nats_ca_file.pem"))
    assert await said(address) == f"error: KINEMA_NATS_CA_FILE {tmp_path}/nats_ca_file.pem: No such file or directory"
    (finding,) = await broker(settings_for(address, "demo"))
    assert finding.message.endswith(f": KINEMA_NATS_CA_FILE {tmp_path}/nats_ca_file.pem: No such file or directory")
