"""Rolls on the real API server, scheduler and controllers: where their pods land, and owners who undo them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.rescheduler.plane_world import PlaneWorld
from tests.support.plans import plan_for
from tests.support.undo import JSON_PATCH, undo_patch

from kinema_cli.admin.steering_policy import install
from kinema_core.events import Offer, Plan, Step
from kinema_core.model.cluster import Cluster
from kinema_core.model.resource_quotas import SETS
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import connect
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.plan.limits import Limits

pytestmark = [pytest.mark.cluster, pytest.mark.long]

LIMITS = Limits(pods_ready_seconds=60, retry_seconds=1, roll_seconds=15)
NODES = ("old-1", "old-2", "old-3")
ROLLING = {"metadata": {"annotations": {"kinema.io/strategy": "rolling"}}}


def sets(world: PlaneWorld) -> list[Any]:
    """The namespace's ReplicaSets."""
    found: list[Any] = world.access.request("GET", world.path("ReplicaSet"))["items"]
    return found


def onto_the_first(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
    """Everything onto the first node."""
    moving = {pod.key: NODES[0] for pod in cluster.pods if pod.node != NODES[0]}
    return plan_for(cluster, offers, to=moving, delete=NODES[1:])


async def once(look: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(120):
        while not await asyncio.to_thread(look):  # noqa: ASYNC110 - nobody tells when it is so
            await asyncio.sleep(0.05)


async def test_an_owner_who_undoes_a_roll_has_all_of_it_back(world: PlaneWorld) -> None:
    """Undone in the middle: strategy and template are the owner's again, and no pod is missing on the way."""
    world.run("Deployment", "web", 6)
    world.patch("Deployment", "web", ROLLING)
    bounds = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "30%"}}}}
    world.patch("Deployment", "web", bounds)
    before, watcher = world.get("Deployment", "web")["spec"], world.watch()
    owners = sets(world)[0]

    def midway() -> bool:
        return any("rolled-by" in str(one["spec"]) and one["status"].get("readyReplicas") for one in sets(world))

    async def undo() -> None:
        await once(midway)
        patch: Any = undo_patch(world.get("Deployment", "web"), owners)
        world.access.request("PATCH", world.path("Deployment", "web"), patch, content_type=JSON_PATCH)

    undoing = asyncio.create_task(undo())
    await world.carry_out(onto_the_first, limits=LIMITS, real_seconds=300)
    await undoing
    found = world.get("Deployment", "web")
    assert found["spec"] == before, world.failures()
    assert watcher.least_ready[world.key("Deployment", "web")] == 6
    assert world.marks_left() == []


@pytest.mark.usefixtures("policies")
async def test_pods_of_a_roll_land_on_the_planned_nodes(world: PlaneWorld) -> None:
    """The policy finds a Deployment's new pods by its name, though their ReplicaSet is not there before the roll."""
    world.run("Deployment", "full", 1, cpu="2600m", nodeSelector={"kubernetes.io/hostname": NODES[0]})
    world.run("Deployment", "web", 5)
    old = {pod.uid for pod in world.cluster().pods}
    api = await connect(str(world.kubeconfig))

    def new() -> bool:
        pods = [pod for pod in world.cluster().pods if pod.labels.get("app") == "web"]
        return len(pods) == 5 and all(pod.ready and pod.uid not in old for pod in pods)

    await install(api.client)
    target, writer = world.key("Deployment", "web"), KubernetesWriter(api)
    for step in (
        Step(id="prefer-nodes", kind="prefer-nodes", target=target, nodes=NODES[:1]),
        Step(id="roll", kind="roll", target=target),
        Step(id="clear-preferred-nodes", kind="clear-preferred-nodes", target=""),
    ):
        await writer.perform(Order(step=step, plan="plan-1", iteration="it-1"))
        await asyncio.sleep(LIMITS.steer_seconds)
        if step.kind == "roll":
            await once(new)

    await api.close()
    assert world.where("web") == [NODES[0]] * 5


async def test_a_roll_whose_replica_set_a_quota_refuses_is_taken_back(world: PlaneWorld) -> None:
    """The Deployment says so at once, where the plan's state did not show the quota; all is as before in a moment."""
    world.run("Deployment", "web", 3)
    world.patch("Deployment", "web", ROLLING)
    before, path = world.get("Deployment", "web")["spec"], f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    body = {"metadata": {"name": "sets"}, "spec": {"hard": {SETS: "1"}}}
    world.access.request("POST", path, body)
    world.access.until(f"{path}/sets", lambda found: found.get("status", {}).get("used", {}).get(SETS) == "1")
    limits = Limits(refused_seconds=3, retry_seconds=1, roll_seconds=600)
    await world.carry_out(onto_the_first, limits=limits, real_seconds=120)
    assert any("refused" in line and "exceeded quota: sets" in line for line in world.failures())
    assert world.get("Deployment", "web")["spec"] == before
    assert len(sets(world)) == 1
    assert world.marks_left() == []
