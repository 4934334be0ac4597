"""What `kubectl describe` finds on the objects of a real API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.plane_world import PlaneWorld, plane_world
from tests.support.plans import plan_for

from kinema_core.events import ExecutionCompleted, Offer, Plan
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.plan.limits import Limits

pytestmark = [pytest.mark.cluster, pytest.mark.long]

LIMITS = Limits(node_ready_seconds=120, pods_ready_seconds=180, retry_seconds=1)


@pytest.fixture
def world(control_plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PlaneWorld]:
    """Two nodes and a namespace named after the test."""
    name = request.node.name.replace("_", "-")[:50].rstrip("-")
    with plane_world(control_plane.admin, tmp_path, name, "old-1", "old-2") as world:
        yield world


def described(world: PlaneWorld, kind: str, name: str, uid: str) -> list[tuple[str, str]]:
    """Reason and message of our Events that `kubectl describe` lists: it asks by name, kind and uid."""
    space = f",involvedObject.namespace={world.namespace}" if kind != "Node" else ""
    asked = quote(f"involvedObject.kind={kind},involvedObject.name={name},involvedObject.uid={uid}{space}")
    namespace = world.namespace if kind != "Node" else "default"
    found = world.access.request("GET", f"/api/v1/namespaces/{namespace}/events?fieldSelector={asked}")["items"]
    ours = [item for item in found if item.get("reportingComponent") == "kinema.io/rescheduler"]
    ours.sort(key=lambda item: str(item["eventTime"]))
    return [(item["reason"], item["message"].partition(" (iteration")[0]) for item in ours]


def of_workload(world: PlaneWorld, kind: str, name: str) -> list[tuple[str, str]]:
    """What a workload tells."""
    return described(world, kind, name, world.get(kind, name)["metadata"]["uid"])


async def test_a_pending_pod_tells_which_node_is_booted_for_it(world: PlaneWorld) -> None:
    """Each pod that the plan puts on the new node, with its uid, while it waits; pods that run say nothing."""
    world.run("Deployment", "web", 2, cpu="3")
    world.patch("Deployment", "web", {"spec": {"replicas": 4}}, "scale")
    world.until("Deployment", "web", lambda found: found["status"].get("replicas") == 4)
    waiting: list[tuple[str, str]] = []
    running: list[tuple[str, str]] = []

    def plan(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        for pod in cluster.pods:
            (waiting if pod.node is None else running).append((pod.name, pod.uid))
        to = {pod.key: "new-1" for pod in cluster.pods if pod.node is None}
        offer = next(item for item in offers if item.machine_type == "e2-standard-8")
        return plan_for(cluster, offers, to=to, boot={"new-1": offer.name}, mode="autoscale")

    end = await world.carry_out(plan, limits=LIMITS, real_seconds=200)
    assert isinstance(end, ExecutionCompleted), world.failures()
    assert (len(waiting), len(running)) == (2, 2)
    for name, uid in waiting:
        ((reason, message),) = described(world, "Pod", name, uid)
        assert (reason, message) == ("WaitingForNode", "node new-1 (e2-standard-8 in zone-a) is being booted for it")
    assert [described(world, "Pod", name, uid) for name, uid in running] == [[], []]


async def test_an_owner_who_scales_in_mid_surge_reads_of_his_replicas(world: PlaneWorld) -> None:
    """Those that stay are told as somebody's, not as those of before."""
    world.run("Deployment", "web", 3)

    def owner() -> None:
        for _ in range(2000):
            if world.get("Deployment", "web")["spec"]["replicas"] > 3:
                world.patch("Deployment", "web", {"spec": {"replicas": 6}}, "scale")
                return
            time.sleep(0.02)

    def plan(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        to = {pod.key: "old-1" for pod in cluster.pods if pod.node == "old-2"}
        return plan_for(cluster, offers, to=to, delete=["old-2"])

    scaling = asyncio.create_task(asyncio.to_thread(owner))
    await world.carry_out(plan, limits=LIMITS, real_seconds=200)
    await scaling
    told = dict(of_workload(world, "Deployment", "web"))
    assert told["Reverted"].startswith("6 replicas stay, as another client set them: an unfinished move had set")


async def test_evictions_and_rolls_tell_names_and_amounts(world: PlaneWorld) -> None:
    """A StatefulSet tells which pod left which node, a Deployment its old and new requests."""
    world.run("StatefulSet", "db", 2)
    world.run("Deployment", "web", 2)
    left: dict[str, Any] = {}

    def plan(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        left.update({pod.name: pod.node for pod in cluster.pods if pod.node == "old-2" and pod.name.startswith("db-")})
        resizes = {world.key("Deployment", "web"): {"cpu": 180, "memory": 60 * 2**20 + 12345}}
        to = {pod.key: "old-1" for pod in cluster.pods}
        return plan_for(cluster, offers, to=to, delete=["old-2"], resizes=resizes)

    end = await world.carry_out(plan, limits=LIMITS, real_seconds=200)
    assert isinstance(end, ExecutionCompleted), world.failures()
    assert left, "no pod of the StatefulSet had to go"
    note = "was evicted from node old-2, which will be deleted; its successor is to come up on old-1"
    assert of_workload(world, "StatefulSet", "db") == [("Evicted", f"pod {name} {note}") for name in left]
    requests = "cpu 200m → 180m, memory 64Mi → 60Mi"
    assert of_workload(world, "Deployment", "web") == [
        (
            "Rolling",
            f"a rolling update moves its pods; each requests {requests} from now on, as forecast from its usage",
        ),
        ("Rolled", "the rolling update is complete; the owner's update strategy is in force again"),
    ]
