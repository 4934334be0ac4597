"""Marks of a Kinema that is gone, with its broker and log: the one that holds the claim on the cluster removes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.rescheduler.sim_world import SimWorld, sim_world
from tests.support.waiting import until

from kinema_core.events import FrozenMap, Step, StepKind
from kinema_core.runtime.health import Health
from kinema_core.runtime.settings import RuntimeSettings
from kinema_kubernetes import client
from kinema_kubernetes.claim import ClusterClaim
from kinema_kubernetes.objects import Json, pod_ready, uid
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.janitor import Janitor
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.names import DISRUPTED, RESIZING
from kinema_rescheduler.providers.sim import SimProvider
from kinema_rescheduler.service import Dependencies, Rescheduler
from kinema_rescheduler.settings import Settings, SimSettings
from kinema_sim.engine.kinds import NODE
from kinema_sim.scenarios.registry import SCENARIOS

CLAIM_SECONDS = 3.0
WEB = "/apis/apps/v1/namespaces/shop/deployments/web"
OTHER = "/apis/apps/v1/namespaces/shop/deployments/api"


async def leave_marks(api: FencedClient) -> None:
    """A Kinema closes a node, leads pods, surges one workload, rolls another, and is gone with its broker."""

    async def perform(kind: StepKind, target: str, **fields: Any) -> None:
        step = Step(id=f"{kind}/{target}/1", kind=kind, target=target, **fields)
        await KubernetesWriter(api).perform(Order(step=step, plan="gone", iteration="it-gone"))

    node = await api.get("/api/v1/nodes/tiny-3")
    await perform("taint", "tiny-3", uid=uid(node))
    web = await api.get(WEB)
    await perform("roll", "Deployment/shop/web", uid=uid(web), requests=FrozenMap(cpu=150))
    other = await api.get(OTHER)
    await perform("prefer-nodes", "Deployment/shop/api", uid=uid(other), nodes=("tiny-1",))
    pods = await api.items("/api/v1/namespaces/shop/pods", labelSelector="app=api")
    [victim, *_] = [pod for pod in pods if pod_ready(pod)]
    replicas = other["spec"]["replicas"]
    surge: dict[str, Any] = {"pods": (uid(victim),), "replicas_from": replicas, "replicas_to": replicas + 1}
    await perform("surge-up", "Deployment/shop/api", uid=uid(other), **surge)


def requests_of(deployment: Json) -> Json:
    """Requests in the template."""
    found: Json = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return found


@asynccontextmanager
async def rescheduler(world: SimWorld, holder: str) -> AsyncIterator[Rescheduler]:
    """A rescheduler of a Kinema whose log knows nothing of the other one, and an observer beside it."""
    unfenced = await client.connect(str(world.kubeconfig))
    claim = ClusterClaim(unfenced, holder, process=f"{holder}-1", seconds=CLAIM_SECONDS)
    fence = Fence(claim.check)
    api = await connect(str(world.kubeconfig), fence=fence)
    provider = SimProvider(world.url, fence=fence)
    service = Rescheduler(
        settings=Settings(
            runtime=RuntimeSettings(cluster=world.name), provider=SimSettings(url=world.url), tick_seconds=0.05
        ),
        bus=world.bus,
        clock=world.clock,
        health=Health("rescheduler", world.name),
        writer=KubernetesWriter(api),
        provider=provider,
        dependencies=Dependencies(fence=fence, claim=claim, janitor=Janitor(api)),
    )

    async def observe() -> None:
        while True:
            await world.observe()
            await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(service.run()), asyncio.create_task(observe())]
    try:
        yield service
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await provider.close()
        await api.close()
        await unfenced.close()


async def test_marks_of_a_kinema_that_is_gone_are_removed_by_the_one_with_the_claim(tmp_path: Path) -> None:
    """Not before its claim has run out; then nodes are open, and owners' requests, bounds and costs are back."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        api = await connect(str(world.kubeconfig))
        before = await api.get(WEB)
        await leave_marks(api)
        marks = world.marks_left()
        assert {mark.split()[0] for mark in marks} >= {"Node", "Pod", "Deployment", "steering:"}, marks
        gone = ClusterClaim(api.client, "gone", process="gone-1", seconds=CLAIM_SECONDS)
        await gone.take()
        keeping = asyncio.create_task(gone.keep(lambda _: None))
        async with rescheduler(world, "next"):
            await asyncio.sleep(2 * CLAIM_SECONDS)
            assert world.marks_left() == marks
            keeping.cancel()  # the other one is gone
            await until(lambda: not world.marks_left(), 60)
        after = await api.get(WEB)
        assert requests_of(after) == requests_of(before)
        assert after["spec"]["strategy"] == before["spec"]["strategy"]
        assert world.bus.events("LOG")[-1].type == "catalog-published.v1"
        assert world.least_ready["Deployment/shop/web"] == before["spec"]["replicas"]
        await api.close()


async def test_marks_that_come_later_are_removed_too(tmp_path: Path) -> None:
    """A node that someone marks as Kinema would is opened, not deleted: no plan has closed it.

    A Deployment that Kinema has paused goes on; one that its owner has paused does not.
    """
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        api = await connect(str(world.kubeconfig))
        async with rescheduler(world, "next"):
            await until(lambda: world.bus.events("LOG"), 60)
            change = {"metadata": {"labels": {DISRUPTED: "by-hand"}}}
            await api.patch("/api/v1/nodes/tiny-3", change)
            await until(world.marks_left, 60)
            await until(lambda: not world.marks_left(), 60)
            paused: Json = {"spec": {"paused": True}}
            await api.patch(OTHER, paused)
            await api.patch(WEB, {"metadata": {"annotations": {RESIZING: "gone"}}, **paused})
            await until(lambda: not world.marks_left(), 60)
        assert "paused" not in (await api.get(WEB))["spec"]
        assert (await api.get(OTHER))["spec"]["paused"]
        assert len(world.sim.store.sorted(NODE)) == 3
        await api.close()
