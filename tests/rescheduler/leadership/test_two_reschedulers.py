"""Two reschedulers as processes, a real broker and a real control plane: one acts, and a paused one stays quiet."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import FaultyProxy
from tests.rescheduler.plane_world import PlaneWorld, plane_world
from tests.support.nats_broker import Broker, running
from tests.support.plans import plan_for

from kinema_core.events import (
    CatalogPublished,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    PlanAccepted,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.envelope import answer

pytestmark = [pytest.mark.cluster, pytest.mark.connected, pytest.mark.long]

CLUSTER = "two"
LEASE_SECONDS = 3.0
PATIENCE_SECONDS = 240.0


class Recorder(FaultyProxy):
    """Passes everything on and notes what was written, and when."""

    def __init__(self, server: Access) -> None:
        super().__init__(server)
        self.writes: list[tuple[float, str]] = []

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            self.writes.append((time.monotonic(), f"{request.method} {request.path}"))
        return await super()._handle(request)


class Process:
    """A rescheduler of its own."""

    def __init__(self, name: str, world: PlaneWorld, broker: Broker, proxy: Recorder, directory: Path) -> None:
        self.name = name
        self.proxy = proxy
        self.log = directory / f"{name}.log"
        kubeconfig = proxy.through(world.access).write_kubeconfig(directory / f"{name}.kubeconfig")
        settings = {
            "runtime": {**msgspec.to_builtins(broker.settings("rescheduler")), "log_format": "json"},
            "kubeconfig": str(kubeconfig),
            "provider": {"kind": "kwok", "catalog": str(world.catalog), "boot_seconds": 2},
            "lease_seconds": LEASE_SECONDS,
        }
        self.settings = directory / f"{name}.json"
        self.settings.write_text(json.dumps(settings), encoding="utf-8")
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Begin."""
        with self.log.open("wb") as log:
            command = ("-m", "kinema_rescheduler", "--settings", str(self.settings))
            self._process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def says(self, word: str) -> int:
        """How often something stands in its log."""
        return self.log.read_text(encoding="utf-8").count(word)

    async def end(self) -> None:
        """Kill it and wait for its end."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def until(wanted: Callable[[], Any]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not wanted():  # noqa: ASYNC110 - other processes tell nothing
            await asyncio.sleep(0.1)


class Scene:
    """Two processes, what they published so far, and somebody who observes for them."""

    def __init__(self, world: PlaneWorld, bus: Bus, processes: tuple[Process, Process]) -> None:
        self.world = world
        self.bus = bus
        self.processes = processes
        self.events: list[Event] = []
        self._head = 0

    async def look(self) -> None:
        """Observe the cluster and read the log."""
        await self.world.observe()
        async for item in self.bus.read("LOG", start=self._head + 1):
            self._head = item.sequence
            if isinstance(item, Stored):
                self.events.append(item.event)

    async def see(self, wanted: Callable[[Event], bool]) -> Event:
        """Go on until an event is there."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await self.look()
                found = next((event for event in self.events if wanted(event)), None)
                if found is not None:
                    return found
                await asyncio.sleep(0.2)

    async def accept(self) -> None:
        """Have the second and third node emptied and deleted, in favor of a new one."""
        published = await self.see(lambda event: isinstance(event.body, CatalogPublished))
        assert isinstance(published.body, CatalogPublished)
        offers = published.body.offers
        cluster = self.world.cluster(self.world.version)
        offer = next(item for item in offers if item.machine_type == "e2-standard-8")
        to = {pod.key: "new-1" for pod in cluster.pods if pod.node in {"old-2", "old-3"}}
        plan = plan_for(
            cluster, offers, to=to, boot={"new-1": offer.name}, delete=["old-2", "old-3"], now=self.world.clock.now()
        )
        proposal = await self.world.publish(plan, "plan-1")
        body = PlanAccepted(plan=proposal.id, version=plan.base_version)
        await self.bus.publish(
            answer(body, cause=proposal, service="decider", n=0, now=self.world.clock.now(), state=plan.base_version)
        )


@asynccontextmanager
async def scene(world: PlaneWorld, directory: Path) -> AsyncIterator[Scene]:
    """Two processes under one broker; the first one has the lease."""
    async with running(directory / "nats", cluster=CLUSTER) as broker:
        bus = await broker.bus()
        world.use(bus, CLUSTER)
        one, two = Recorder(world.access), Recorder(world.access)
        async with one.running(), two.running():
            first, second = (
                Process(name, world, broker, proxy, directory) for name, proxy in (("first", one), ("second", two))
            )
            try:
                await first.start()
                await until(lambda: first.says("lease acquired"))
                await second.start()
                yield Scene(world, bus, (first, second))
            finally:
                for process in (first, second):
                    await process.end()


@pytest.fixture
def world(control_plane: ControlPlane, tmp_path: Path) -> Any:
    """Three nodes and a workload on them."""
    with plane_world(control_plane.admin, tmp_path, "two-reschedulers", "old-1", "old-2", "old-3") as world:
        world.run("Deployment", "web", 6)
        world.run("Deployment", "api", 3)
        yield world


def fencing(event: Event) -> int:
    """Lease revision of whoever wrote an event of an execution; 0 for others."""
    return int(getattr(event.body, "fencing", 0))


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["paused", "killed"])
async def test_a_leader_that_is_gone_is_replaced_and_does_nothing_when_it_wakes_up(
    world: PlaneWorld, tmp_path: Path, how: signal.Signals
) -> None:
    """Stopped in the middle of a plan for twice its lease, the leader writes nothing more; the other one ends it."""
    watcher = world.watch()
    async with scene(world, tmp_path) as act:
        first, second = act.processes
        await act.look()
        await act.accept()
        begun = await act.see(lambda event: isinstance(event.body, StepStarted) and event.body.step.kind == "surge-up")
        first.signal(how)
        stopped = time.monotonic()
        await act.see(lambda event: fencing(event) > fencing(begun))
        while time.monotonic() < stopped + 2 * LEASE_SECONDS:
            await act.look()
            await asyncio.sleep(0.2)
        woken = time.monotonic()
        if how is signal.SIGSTOP:
            first.signal(signal.SIGCONT)
        end = await act.see(lambda event: isinstance(event.body, ExecutionCompleted | ExecutionAborted))
        for _ in range(15):
            await act.look()
            await asyncio.sleep(0.2)
        assert isinstance(end.body, ExecutionCompleted), end.body
        # What was on its way to the server when the process was stopped may still arrive: one request per connection,
        # sent before, each with the preconditions of its object. Nothing is begun after the waking.
        late = [what for at, what in first.proxy.writes if at > woken + 1]
        assert late == []
        assert first.says("lease lost") == (1 if how is signal.SIGSTOP else 0)
        assert second.says("lease acquired") >= 1
        check_log(act.events)
    cluster = world.cluster()
    assert [node.name for node in cluster.nodes] == ["new-1", "old-1"]
    assert watcher.least_ready == {world.key("Deployment", "web"): 6, world.key("Deployment", "api"): 3}
    assert world.marks_left() == []


def check_log(events: list[Event]) -> None:
    """Intents come under leases that only grow, every step is done once, and no failure of a former holder counts."""
    intents = [event for event in events if isinstance(event.body, StepStarted)]
    assert [fencing(event) for event in intents] == sorted(fencing(event) for event in intents)
    assert len({fencing(event) for event in intents}) == 2
    done = [event.body.step for event in events if isinstance(event.body, StepSucceeded)]
    assert len(done) == len(set(done))
    highest = 0
    for event in events:
        if isinstance(event.body, StepFailed):
            assert fencing(event) >= highest, event
        highest = max(highest, fencing(event))
