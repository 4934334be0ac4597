"""kill -9 at every fault point of the runtime: each event is answered once, in order, nothing is left over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.support.bus_events import iteration, snapshot
from tests.support.faults import FAULT, armed
from tests.support.nats_broker import Broker

from kinema_core.events import Event, ForecastMade
from kinema_core.runtime import serve  # noqa: F401 - registers its fault points
from kinema_core.runtime.bus import Stored
from kinema_core.runtime.faultpoint import HOOKS, faultpoint, register, registered
from kinema_core.runtime.nats_bus import NatsBus

MINE = tuple(name for name in registered() if name.startswith(("serve-", "publish-")))

SERVICE = """
import msgspec
from kinema_core.events import ForecastMade, ForecastRefused
from kinema_core.runtime.run import run_service
from kinema_core.runtime.serve import serve
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import AtVersion

class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runtime: RuntimeSettings

class Stage:
    name = "predictor"
    consumes = ("iteration-started",)
    folds = ()
    past = None
    def initial(self): return ()
    def fold(self, state, event): return (*state, event.body.version)
    def recall(self, event): pass
    def wants(self, event): return AtVersion(1)
    async def handle(self, event, state, moment):
        import hashlib
        # Refusals that do not compress: the answer travels in chunks.
        noise = [hashlib.sha256(b"%d" % n).hexdigest() for n in range(20000)]
        refused = tuple(ForecastRefused(workload=text, reason="short-history") for text in noise)
        version = event.body.version
        return [ForecastMade(version=version, forecasts=(), refused=refused), ForecastMade(version=0, forecasts=())]

async def start(settings, runtime):
    await serve(Stage(), runtime.bus, runtime.clock, runtime.health)

run_service("predictor", Settings, start)
"""


def start(broker: Broker, directory: Path, fault: str) -> subprocess.Popen[bytes]:
    """The service as a process of its own."""
    settings = directory / "settings.json"
    settings.write_bytes(msgspec.json.encode({"runtime": broker.settings("predictor")}))
    environment = {**os.environ, **armed(fault)}
    with (directory / "service.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", SERVICE, "--settings", str(settings)], env=environment, stdout=log, stderr=log
        )


def log_of(directory: Path) -> str:
    """What the processes wrote."""
    return (directory / "service.log").read_text()


async def answers(bus: NatsBus) -> list[Event]:
    """Forecasts in the LOG."""
    items = [item async for item in bus.read("LOG")]
    assert all(isinstance(item, Stored) for item in items)
    return [item.event for item in items if isinstance(item, Stored) and isinstance(item.event.body, ForecastMade)]


@pytest.mark.connected
async def test_killed_at_any_point_each_event_is_answered_once(broker: Broker, tmp_path: Path) -> None:
    """Processes die one after the other, each at another point: both answers to each event are there once, in order."""
    observer, watcher = await broker.bus("observer"), await broker.bus()
    await observer.publish(snapshot(1, 1))
    points = [*MINE, "serve-between-answers:2", "publish-after:3", "publish-before:2"]
    events = range(1, 2 * len(points) + 1)  # more than are answered before the last process has died
    for n in events:
        last = await observer.publish(iteration(n))
    for point in points:
        dying = start(broker, tmp_path, point)
        assert await asyncio.to_thread(dying.wait, 60) == -signal.SIGKILL, f"{point}: {log_of(tmp_path)}"
    assert await watcher.position("predictor") < last
    living = start(broker, tmp_path, "")
    try:
        async with asyncio.timeout(60):
            while await watcher.position("predictor") < last:  # noqa: ASYNC110 - another process acknowledges
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(log_of(tmp_path))
    finally:
        living.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(living.wait, 60) == 0
    given = await answers(watcher)
    assert [event.id for event in given] == [f"it-{n}/predictor/{i}" for n in events for i in (0, 1)]
    assert all(first.time == second.time for first, second in zip(given[::2], given[1::2], strict=True))
    assert {event.state for event in given} == {1}


def test_points_are_known_and_named_after_their_place() -> None:
    """The registry knows the points of publishing and serving, so that tests can walk them all."""
    assert {"publish-before", "publish-after-chunks", "publish-after", "serve-before-ack"} <= set(MINE)
    register("test-point")
    assert "test-point" in registered()


def test_points_do_nothing_by_themselves() -> None:
    """What ships is killed by no variable: only a test that installs a hook can interfere."""
    assert not HOOKS
    code = "from kinema_core.runtime.faultpoint import faultpoint\nfaultpoint('here')"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, FAULT: "here"}, check=True, timeout=30)
    faultpoint("serve-before-ack")


@pytest.mark.parametrize(("fault", "passes"), [("here", 1), ("here:3", 3), ("elsewhere", 0)])
def test_dies_at_the_pass_that_is_asked_for(fault: str, passes: int) -> None:
    """`name` kills at the first pass, `name:3` at the third, another name never."""
    load = "from kinema_core.runtime.faultpoint import faultpoint"
    code = f"{load}\nfor n in range(1, 6):\n print(n, flush=True)\n faultpoint('here')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **armed(fault)}, capture_output=True, check=False, timeout=30
    )
    assert done.returncode == (-signal.SIGKILL if passes else 0)
    assert len(done.stdout.split()) == (passes or 5)
