"""The observer as a process: bad settings, an API server or broker that is away, and death at its fault points."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.observer.scripted_api import kubeconfig
from tests.support.faults import armed
from tests.support.nats_broker import PASSWORDS, Broker
from tests.support.nats_broker import running as running_broker
from tests.support.waiting import eventually

from kinema_cli.local.nats_server import free_port
from kinema_core.events import ClusterDelta, ClusterSnapshot, IterationStarted
from kinema_core.model.cluster import Cluster, evolve
from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.settings import SettingsError, load
from kinema_core.runtime.starter import FLAG
from kinema_observer.logic.settings import LoopSettings
from kinema_observer.settings import Settings
from kinema_sim.front.server import Server
from kinema_sim.scenarios.registry import SCENARIOS

FAULTS = (
    "observer.snapshot.published",
    "observer.delta.published",
    "observer.iteration.before-publish",
    "observer.iteration.published",
)


def settings_file(path: Path, **settings: Any) -> str:
    """A settings file."""
    path.write_text(json.dumps(settings))
    return str(path)


async def launch(settings: str, *options: str, fault: str = "") -> Process:
    """Start the observer."""
    environment = {**os.environ, **armed(fault)}
    command = (sys.executable, "-m", "kinema_observer", "--settings", settings, *options)
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment)


async def ended(process: Process, seconds: float = 30) -> tuple[int | None, str, str]:
    """Exit code, stdout and stderr."""
    out, err = await asyncio.wait_for(process.communicate(), seconds)
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def simulated() -> AsyncIterator[str]:
    """A simulated cluster; gives its address."""
    server = Server(SCENARIOS["tiny"](0), speed=10.0, token="s3cret")
    address = await server.start()
    try:
        yield address.url
    finally:
        await server.stop()


def runtime(broker: Broker, port: int) -> dict[str, Any]:
    """The runtime section for the observer on this broker."""
    return {
        "cluster": "c1",
        "nats_url": broker.server.url,
        "nats_user": "observer",
        "nats_password": PASSWORDS["observer"],
        "health_port": port,
        "clock_speed": 10,
        "log_format": "json",
    }


async def ready(port: int) -> tuple[int, dict[str, str]]:
    """What `/readyz` says; 0 when nobody answers."""
    try:
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/readyz") as response:
            return response.status, (await response.json())["problems"]
    except aiohttp.ClientError:
        return 0, {}


async def read_state(bus: Bus) -> Cluster:
    """What any reader folds; fails at a gap."""
    cluster = Cluster()
    async for item in bus.read("STATE", kinds=("cluster-snapshot", "cluster-delta")):
        assert isinstance(item, Stored)
        assert isinstance(item.event.body, (ClusterSnapshot, ClusterDelta))
        cluster = evolve(cluster, item.event.body)
    return cluster


async def started(bus: Bus) -> list[tuple[str, int]]:
    """Iterations begun so far, and on which version."""
    found = []
    async for item in bus.read("LOG", kinds=("iteration-started",)):
        assert isinstance(item, Stored)
        assert isinstance(item.event.body, IterationStarted)
        found.append((item.event.iteration, item.event.body.version))
    return found


def test_the_defaults_are_those_of_the_specification(tmp_path: Path) -> None:
    """A file that names only the cluster is enough; settle time 30 s."""
    found = load(Settings, settings_file(tmp_path / "s.json", runtime={"cluster": "c1"}))
    assert (found.stabilization_window_seconds, found.tick_seconds, found.usage_seconds) == (30, 1, 15)
    assert (found.snapshot_deltas, found.snapshot_seconds) == (500, 600)


@pytest.mark.parametrize(
    ("name", "value", "range_"),
    [
        *((name, -1, "use 0 to 31536000") for name in LoopSettings.__struct_fields__ if name.endswith("_seconds")),
        ("stabilization_window_seconds", 1e9, "use 0 to 31536000"),
        ("max_restless_fraction", -0.1, "use 0 to 1"),
        *((name, 0, "use more than 0 and") for name in ("tick_seconds", "snapshot_seconds", "bookmark_seconds")),
        ("usage_seconds", -1, "use 0 to 86400"),
        ("snapshot_deltas", 0, "use 1 or more"),
    ],
)
def test_values_out_of_range_are_refused(tmp_path: Path, name: str, value: float, range_: str) -> None:
    """A time before now or a rhythm of nothing cannot be meant: field, value and range are named."""
    with pytest.raises(SettingsError, match=f"{name} is ") as told:
        load(Settings, settings_file(tmp_path / "s.json", runtime={"cluster": "c1"}, **{name: value}))
    assert range_ in str(told.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"settle": 3}, "settle"),
        ({"stabilization_window_seconds": "long"}, "stabilization_window_seconds"),
    ],
)
async def test_bad_settings_are_one_line_and_exit_code_1(tmp_path: Path, settings: dict[str, Any], hint: str) -> None:
    """An unknown key or a wrong type: file and key are named."""
    path = settings_file(tmp_path / "s.json", runtime={"cluster": "c1"}, **settings)
    code, _, err = await ended(await launch(path))
    assert code == 1
    assert err.count("\n") == 1
    assert path in err
    assert hint in err


@pytest.mark.connected
async def test_a_kubeconfig_that_is_missing_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    """A person must act: no retry, no traceback."""
    async with running_broker(tmp_path / "nats") as broker:
        path = settings_file(tmp_path / "s.json", runtime=runtime(broker, 0), kubeconfig=str(tmp_path / "none"))
        code, out, err = await ended(await launch(path))
    assert code == 1
    assert err.count("\n") == 1
    assert str(tmp_path / "none") in err
    assert "Traceback" not in out + err


@pytest.mark.connected
async def test_an_api_server_that_is_away_leaves_the_observer_not_ready(tmp_path: Path) -> None:
    """It stays, says at its probe which kinds it cannot follow, and ends with 0 when told to."""
    config = kubeconfig(tmp_path / "k", f"http://127.0.0.1:{free_port()}")
    async with running_broker(tmp_path / "nats") as broker:
        port = free_port()
        path = settings_file(tmp_path / "s.json", runtime=runtime(broker, port), kubeconfig=config)
        process = await launch(path)

        async def told() -> bool:
            status, problems = await ready(port)
            kubernetes = problems.get("kubernetes", "")
            return (
                status == 503
                and re.match(
                    r"Node: GET /api/v1/nodes: cannot reach http://127.0.0.1:\d+: connection refused;", kubernetes
                )
                is not None
            )

        await eventually(told)
        process.send_signal(signal.SIGTERM)
        code, out, err = await ended(process)
    assert (code, err) == (0, "")
    assert "Traceback" not in out


@pytest.mark.connected
async def test_an_observer_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """Where it is told to look at it, the end of its standard input is as good as a signal."""
    config = kubeconfig(tmp_path / "k", f"http://127.0.0.1:{free_port()}")
    async with running_broker(tmp_path / "nats") as broker:
        port = free_port()
        path = settings_file(tmp_path / "s.json", runtime=runtime(broker, port), kubeconfig=config)
        process = await launch(path, FLAG)

        async def lives() -> bool:
            return (await ready(port))[0] == 503

        await eventually(lives)
        assert process.stdin is not None
        process.stdin.close()
        code, out, err = await ended(process)
    assert (code, err) == (0, "")
    assert "Traceback" not in out


@pytest.mark.connected
async def test_a_kill_at_any_fault_point_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """`kill -9` between effects: the next process goes on from the streams, under the observer's own rights."""
    async with running_broker(tmp_path / "nats") as broker, simulated() as url:
        config = kubeconfig(tmp_path / "k", url, token="s3cret")
        port = free_port()
        path = settings_file(
            tmp_path / "s.json",
            runtime=runtime(broker, port),
            kubeconfig=config,
            lease_seconds=3,
            stabilization_window_seconds=10,
            usage_seconds=0,
        )
        over = asyncio.Event()
        change = asyncio.create_task(_churn(url, over))
        for fault in FAULTS:
            code, _, err = await ended(await launch(path, fault=fault), 120)
            assert code == -signal.SIGKILL, f"{fault}: {err}"
        over.set()
        await change
        bus = await broker.bus("rogue")
        process = await launch(path)

        async def settled() -> bool:
            """Ready does not mean leader: the lease of the killed process has to run out first."""
            changed = "last" in {node.labels.get("round") for node in (await read_state(bus)).nodes}
            return (await ready(port))[0] == 200 and changed and bool(await started(bus))

        await eventually(settled)
        process.send_signal(signal.SIGTERM)
        code, out, err = await ended(process)
        assert (code, err) == (0, ""), out
        begun = await started(bus)
    assert len(begun) == len(set(begun)) == 1


async def _label(http: aiohttp.ClientSession, url: str, value: str) -> None:
    body = msgspec.json.encode({"metadata": {"labels": {"round": value}}})
    async with http.patch(url, data=body) as response:
        assert response.status == 200


async def _churn(url: str, over: asyncio.Event) -> None:
    """Change a node's label now and then, so that deltas are published; the last value is `last`."""
    headers = {"Authorization": "Bearer s3cret", "Content-Type": "application/merge-patch+json"}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.get(f"{url}/api/v1/nodes") as response:
            nodes = msgspec.json.decode(await response.read())["items"]
        node = f"{url}/api/v1/nodes/{nodes[0]['metadata']['name']}"
        number = 0
        while not over.is_set():
            number += 1
            await _label(http, node, str(number))
            await asyncio.sleep(0.2)
        await _label(http, node, "last")
