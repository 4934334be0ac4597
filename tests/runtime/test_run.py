"""Starting a service as a process: exit codes, one clear line, probes, signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest
from tests.support.nats_broker import Broker

from kinema_cli.local.nats_server import free_port
from kinema_core.events import ServiceStarted
from kinema_core.runtime.bus import Stored
from kinema_core.runtime.settings import RuntimeSettings

SERVICE = """
import asyncio, sys, msgspec
from kinema_core.runtime.bus import BusSetupError
from kinema_core.runtime.run import ServiceError, run_service
from kinema_core.runtime.settings import RuntimeSettings

class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    runtime: RuntimeSettings
    do: str = "wait"

async def start(settings, runtime):
    runtime.health.started()
    match settings.do:
        case "service-error": raise ServiceError("the API server\\nat x refuses us")
        case "bug": raise ZeroDivisionError
        case "setup": await runtime.bus.position("decider")
        case "end": return
    print("waiting", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("cleaned up", flush=True)

run_service("decider", Settings, start)
"""

ON_ITS_LOOP = """
import asyncio, sys, msgspec
from kinema_core.runtime.run import run_service
from kinema_core.runtime.settings import RuntimeSettings

class Settings(msgspec.Struct, frozen=True, kw_only=True):
    runtime: RuntimeSettings

class Loop(asyncio.SelectorEventLoop):
    pass

async def start(settings, runtime):
    print(type(asyncio.get_running_loop()).__name__)

run_service("decider", Settings, start, loop=Loop)
"""


def command(directory: Path, settings: RuntimeSettings, do: str = "wait") -> list[str]:
    """How to start the service."""
    path = directory / "settings.json"
    path.write_bytes(msgspec.json.encode({"runtime": settings, "do": do}))
    return [sys.executable, "-c", SERVICE, "--settings", str(path)]


async def ended(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return await asyncio.to_thread(
        subprocess.run,
        arguments,
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=False,
        env={**os.environ, **environment},
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr of a service that ended for an expected reason."""
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stdout + done.stderr
    return done.stderr


@pytest.mark.connected
async def test_stops_on_a_signal(broker: Broker, tmp_path: Path) -> None:
    """SIGTERM and SIGINT end the service in order, with exit code 0; its logs are JSON lines."""
    for number in (signal.SIGTERM, signal.SIGINT):
        process = await asyncio.create_subprocess_exec(
            *command(tmp_path, broker.settings("decider")), stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        out = b""
        while b"waiting\n" not in out:
            out += await asyncio.wait_for(process.stdout.readline(), 60)
        process.send_signal(number)
        out += (await asyncio.wait_for(process.communicate(), 60))[0]
        assert process.returncode == 0
        assert b"cleaned up" in out
        events = [json.loads(line)["event"] for line in out.splitlines() if line.startswith(b"{")]
        assert events == ["probes", "connected", "stopping"]


@pytest.mark.connected
async def test_a_service_runs_on_the_loop_that_it_brings(broker: Broker, tmp_path: Path) -> None:
    """What it starts and what the runtime starts for it, and the exit code is as ever."""
    path = tmp_path / "settings.json"
    path.write_bytes(msgspec.json.encode({"runtime": broker.settings("decider")}))
    done = await ended([sys.executable, "-c", ON_ITS_LOOP, "--settings", str(path)])
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "Loop"), done


@pytest.mark.connected
async def test_ready_follows_the_broker(broker: Broker, tmp_path: Path) -> None:
    """Without its broker the service lives on and is not ready; with it it is ready again."""
    port = free_port()
    settings = msgspec.structs.replace(broker.settings("decider"), health_port=port)
    process = await asyncio.create_subprocess_exec(*command(tmp_path, settings), stdout=subprocess.DEVNULL)

    async def status(path: str, wanted: int) -> None:
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            while True:
                try:
                    async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                        if answer.status == wanted:
                            return
                except aiohttp.ClientError:
                    pass  # its port is not open yet
                await asyncio.sleep(0.05)

    try:
        await status("/readyz", 200)
        await asyncio.to_thread(broker.server.stop)
        await status("/readyz", 503)
        await status("/livez", 200)
        await asyncio.to_thread(broker.server.start)
        await status("/readyz", 200)
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.connected
async def test_announces_its_settings_when_they_change(broker: Broker, tmp_path: Path) -> None:
    """Each start with other settings than before is in the LOG; addresses and secrets are not."""
    for do in ("end", "end", "bug", "end"):
        await ended(command(tmp_path, broker.settings("decider"), do))
    bus = await broker.bus()
    items = [item async for item in bus.read("LOG", kinds=("service-started",))]
    bodies = [item.event.body for item in items if isinstance(item, Stored)]
    texts = [body.settings for body in bodies if isinstance(body, ServiceStarted)]
    assert texts == ['{"do":"end"}', '{"do":"bug"}', '{"do":"end"}']


@pytest.mark.connected
@pytest.mark.parametrize(
    ("do", "text"), [("setup", "run `kinema setup`"), ("service-error", "the API server at x refuses us")]
)
async def test_what_a_person_must_mend_is_one_line(broker: Broker, tmp_path: Path, do: str, text: str) -> None:
    """A missing consumer, or an error that the service itself expects, is one line and exit code 1."""
    client = await broker.raw()
    await client.request("$JS.API.CONSUMER.DELETE.KINEMA_LOG.decider-c1", b"", timeout=60)
    line = one_line(await ended(command(tmp_path, broker.settings("decider"), do)))
    assert line.startswith("kinema-decider: ")
    assert text in line


@pytest.mark.connected
async def test_wrong_credentials_are_one_line(broker: Broker, tmp_path: Path) -> None:
    """A wrong password ends the service with one line that names user and address."""
    settings = msgspec.structs.replace(broker.settings("decider"), nats_password="wrong")
    line = one_line(await ended(command(tmp_path, settings)))
    assert "refuses user 'decider'" in line


@pytest.mark.connected
async def test_a_bug_is_told_from_an_expected_error(broker: Broker, tmp_path: Path) -> None:
    """An unforeseen exception ends with code 70 and its traceback in the log."""
    done = await ended(command(tmp_path, broker.settings("decider"), "bug"))
    assert done.returncode == 70
    crashed = json.loads(done.stdout.splitlines()[-1])
    assert crashed["event"] == "crashed"
    assert "ZeroDivisionError" in crashed["exception"]


async def test_an_unreachable_broker_is_one_line(tmp_path: Path) -> None:
    """Where no broker answers in time, the service ends with one line naming the address."""
    url = f"nats://127.0.0.1:{free_port()}"
    settings = RuntimeSettings(cluster="c1", nats_url=url, nats_connect_seconds=0.5, health_port=0)
    assert f"{url} cannot be reached" in one_line(await ended(command(tmp_path, settings)))


async def test_bad_settings_are_one_line(tmp_path: Path) -> None:
    """A settings file with an unknown key ends the service with one line naming file and key."""
    path = tmp_path / "bad.json"
    path.write_text('{"runtime": {"cluster": "c1", "nats_usr": "x"}}', encoding="utf-8")
    line = one_line(await ended([sys.executable, "-c", SERVICE, "--settings", str(path)]))
    assert str(path) in line
    assert "nats_usr" in line


async def test_the_settings_file_may_come_from_the_environment(tmp_path: Path) -> None:
    """KINEMA_SETTINGS names the file; with neither it nor the option, usage is shown and the exit code is 2."""
    path = tmp_path / "nowhere.json"
    line = one_line(await ended([sys.executable, "-c", SERVICE], KINEMA_SETTINGS=str(path)))
    assert str(path) in line
    done = await ended([sys.executable, "-c", SERVICE], KINEMA_SETTINGS="")
    assert done.returncode == 2
    assert "--settings FILE" in done.stderr


async def test_settings_may_come_from_variables_alone() -> None:
    """Without a file, variables suffice; a wrong one ends the service with one line naming it."""
    variables = {"KINEMA__RUNTIME__CLUSTER": "c1", "KINEMA__RUNTIME__HEALTH_PORT": "many"}
    line = one_line(await ended([sys.executable, "-c", SERVICE], KINEMA_SETTINGS="", **variables))
    assert line.startswith("kinema-decider: KINEMA__RUNTIME__HEALTH_PORT: ")


async def test_a_taken_health_port_is_one_line(tmp_path: Path) -> None:
    """A port for probes that somebody else has ends the service with one line naming it."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        settings = RuntimeSettings(cluster="c1", health_port=port)
        line = one_line(await ended(command(tmp_path, settings)))
    assert f"127.0.0.1:{port}" in line
