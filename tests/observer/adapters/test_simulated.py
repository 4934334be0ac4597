"""The real adapters against the simulated cluster's HTTP front: churn, faults, and the exact state at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.observer.one_of_each import CSI_NODES, MERGE, csi_node
from tests.observer.scripted_api import kubeconfig
from tests.observer.scripted_source import folded
from tests.support.waiting import eventually, until

from kinema_core.events import IterationStarted, Node, Pod, UsageSampled
from kinema_core.model.cluster import Cluster, from_objects
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes.client import Client, connect
from kinema_observer.adapters.metrics import MetricsApi
from kinema_observer.adapters.reflector import Patience
from kinema_observer.adapters.source import KubernetesSource
from kinema_observer.logic.drivers import Seen, assembled
from kinema_observer.logic.kubernetes import read
from kinema_observer.sampling import MeteredUsage, UsageSampler
from kinema_observer.service import Observer
from kinema_observer.settings import Settings
from kinema_sim.front.server import Server
from kinema_sim.memory_bus import MemoryBus
from kinema_sim.scenarios.registry import SCENARIOS

SPEED = 20.0
PATIENCE = Patience(bookmark=8, shortest=0.02, longest=0.2, denied=0.1, missing=30)


@dataclass
class Running:
    """A simulated cluster with an observer that follows it."""

    server: Server
    url: str
    api: Client
    source: KubernetesSource
    observer: Observer
    sampler: UsageSampler
    bus: MemoryBus
    http: aiohttp.ClientSession

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> None:
        """Change something in the cluster, or make a fault."""
        headers = {"Authorization": "Bearer s3cret", "Content-Type": kind}
        data = msgspec.json.encode(body) if body is not None else None
        async with self.http.request(method, self.url + path, data=data, headers=headers) as response:
            assert response.status < 300, await response.text()

    async def fresh(self) -> Cluster:
        """The cluster as a full list shows it just now, published by nobody."""
        found: list[Seen] = []
        for reflector in self.source.reflectors:
            if not reflector.off:
                body = await self.api.get(reflector.resource.path)
                for item in body["items"]:
                    seen = read(reflector.resource.kind, msgspec.json.encode(item)).item
                    found += [seen] if seen is not None else []
        return from_objects(assembled(found))

    async def converged(self) -> None:
        """Wait until what readers fold equals a fresh list."""

        async def same() -> bool:
            return folded(self.bus).objects == (await self.fresh()).objects

        await eventually(same)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """Observer and simulated cluster, both twenty times as fast as real time."""
    server = Server(SCENARIOS["after-peak"](0), speed=SPEED, token="s3cret")
    address = await server.start()
    api = await connect(kubeconfig(tmp_path / "k", address.url, token="s3cret"), context="")
    source = KubernetesSource(api, patience=PATIENCE, chance=random.Random(1))
    bus, clock = MemoryBus(), SystemClock(speed=SPEED)
    settings = Settings(runtime=RuntimeSettings(cluster="c1"), snapshot_deltas=5, stabilization_window_seconds=10)
    observer = Observer(bus=bus, source=source, clock=clock, health=Health("observer", "c1"), settings=settings)
    sampler = UsageSampler(
        bus=bus,
        source=MeteredUsage(MetricsApi(api), settings.usage_step_seconds),
        clock=clock,
        observer=observer,
        settings=settings,
    )
    tasks = [asyncio.create_task(source.run()), asyncio.create_task(observer.run())]
    async with aiohttp.ClientSession() as http:
        yield Running(server, address.url, api, source, observer, sampler, bus, http)
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await api.close()
    await server.stop()


@pytest.mark.slow
async def test_a_quiet_cluster_is_read_whole_and_starts_an_iteration(running: Running) -> None:
    """All kinds, usage of all pods, no change in the steady state, and a reschedule iteration once it has settled."""
    await until(lambda: any(isinstance(event.body, IterationStarted) for event in running.bus.events("LOG")))
    await running.converged()
    state = folded(running.bus)
    assert state.version == 2, "the snapshot, and the version on which the iteration began"
    assert (len(state.nodes), len(state.pods), len(state.autoscalers), len(state.budgets)) == (13, 70, 15, 5)
    assert state.quarantined == ()
    assert all(pod.requests["pods"] == 1 and pod.owner is not None for pod in state.pods)
    assert running.source.missing() == ()
    await running.sampler.sample()
    (usage,) = (event.body for event in running.bus.events("STATE") if isinstance(event.body, UsageSampled))
    assert len(usage.pods) == 70


@pytest.mark.slow
async def test_after_churn_and_faults_the_folded_state_equals_a_fresh_list(running: Running) -> None:
    """Scaling, cordons, deletions; watches cut, history forgotten, lists refused: nothing is lost nor invented."""
    await until(lambda: folded(running.bus).version)
    chance = random.Random(5)
    shop = "/apis/apps/v1/namespaces/online-boutique/deployments"
    faults: list[dict[str, Any]] = [
        {"type": "watch-cut", "path": "pods"},
        {"type": "history"},
        {"type": "api", "method": "GET", "path": "watch=true", "status": 410, "count": 3},
        {"type": "api", "method": "GET", "path": "nodes", "status": 503, "count": 2},
        {"type": "api", "method": "GET", "path": "limit=500", "status": 429, "count": 3},
        {"type": "watch-cut", "path": "."},
    ]
    for fault in faults:
        await running.ask("POST", "/sim/v1/faults", fault)
        name = chance.choice(["emailservice", "shippingservice", "adservice"])
        patch = {"spec": {"replicas": chance.randint(1, 4)}}
        await running.ask("PATCH", f"{shop}/{name}/scale", patch, "application/merge-patch+json")
        state = folded(running.bus)
        node = chance.choice(state.nodes).name
        cordon = {"spec": {"unschedulable": chance.random() < 0.5}, "metadata": {"labels": {"round": fault["type"]}}}
        await running.ask("PATCH", f"/api/v1/nodes/{node}", cordon, "application/merge-patch+json")
        victims = [pod for pod in state.pods if pod.namespace == "online-boutique" and not pod.terminating]
        victim = chance.choice(victims)
        with suppress(AssertionError):  # the pod may be gone by now, or its budget may not allow it
            await running.ask(
                "POST",
                f"/api/v1/namespaces/{victim.namespace}/pods/{victim.name}/eviction",
                {"metadata": {"name": victim.name}},
            )
        await asyncio.sleep(0.2)
    await running.ask("DELETE", "/sim/v1/faults")
    await running.converged()
    assert running.source.missing() == ()
    assert folded(running.bus).version > 3
    assert folded(running.bus) == running.observer.cluster


async def test_a_pod_that_fits_nowhere_starts_an_autoscale_iteration(running: Running) -> None:
    """Only after the scheduler has tried it; the iteration names the pod."""
    await until(lambda: folded(running.bus).version)
    spec = {"containers": [{"name": "big", "image": "x", "resources": {"requests": {"cpu": "64"}}}]}
    await running.ask("POST", "/api/v1/namespaces/teastore/pods", {"metadata": {"name": "giant"}, "spec": spec})

    def covering() -> list[IterationStarted]:
        started = (event.body for event in running.bus.events("LOG"))
        return [body for body in started if isinstance(body, IterationStarted) and body.mode == "autoscale"]

    await until(covering)
    (first, *_) = covering()
    assert first.pods == ("teastore/giant",)
    known = {type(item) for item in (await running.fresh()).objects["Pod"].values()}
    assert known == {Pod}
    assert all(isinstance(node, Node) for node in folded(running.bus).nodes)


@pytest.mark.slow
async def test_limits_of_drivers_come_change_and_go_with_their_csinodes(running: Running) -> None:
    """Each leads to a delta of the node; a CSINode without its node, and one that nobody may read, to nothing."""
    await until(lambda: folded(running.bus).version)
    name = folded(running.bus).nodes[0].name
    path = f"{CSI_NODES}/{name}"

    def limit() -> int | None:
        node = folded(running.bus).node(name)
        return None if node is None else node.allocatable.get("attachable-volumes-csi-disk.example.com")

    await running.ask("POST", CSI_NODES, csi_node("nowhere", 4))
    await running.ask("POST", CSI_NODES, csi_node(name, 4))
    await until(lambda: limit() == 4)
    await running.ask("PATCH", path, csi_node(name, 2), MERGE)
    await until(lambda: limit() == 2)
    await running.ask("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": {"new": "yes"}}}, MERGE)
    await until(lambda: "new" in folded(running.bus).nodes[0].labels)
    assert limit() == 2
    await running.converged()
    await running.ask("DELETE", path)
    await until(lambda: limit() is None)
    await running.ask("POST", CSI_NODES, csi_node(name, 1))
    await until(lambda: limit() == 1)
    fault = {"type": "api", "method": "GET", "path": "csinodes", "status": 403, "count": 1000}
    await running.ask("POST", "/sim/v1/faults", fault)
    await running.ask("POST", "/sim/v1/faults", {"type": "watch-cut", "path": "csinodes"})
    await until(lambda: limit() is None)
    assert running.source.missing() == ()
    assert folded(running.bus) == running.observer.cluster
