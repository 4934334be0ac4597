"""The rescheduler on the real API server, scheduler and controllers, with nodes that KWOK runs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.plane_world import PlaneWorld, plane_world
from tests.support.plans import plan_for

from kinema_cli.admin.steering_policy import install, remove
from kinema_core.events import ExecutionCompleted, Offer, Plan, Step
from kinema_core.model.cluster import Cluster
from kinema_kubernetes import client
from kinema_kubernetes.client import Client
from kinema_rescheduler.errors import PermanentError, TransientError
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.names import ROLLED_BY
from kinema_rescheduler.plan.limits import Limits

pytestmark = [pytest.mark.cluster, pytest.mark.long]

LIMITS = Limits(node_ready_seconds=120, pods_ready_seconds=180, retry_seconds=1)


@pytest.fixture
async def api(world: PlaneWorld) -> AsyncIterator[FencedClient]:
    """A connection with all rights."""
    api = await connect(str(world.kubeconfig))
    yield api
    await api.close()


@pytest.fixture(scope="module")
def steering(policies: None, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The admission policy. Once for all tests: an API server that has removed it never follows its ConfigMap again."""
    kubeconfig = str(control_plane.admin.write_kubeconfig(tmp_path_factory.mktemp("steering") / "kubeconfig"))

    async def found(do: Callable[[Client], Awaitable[str]]) -> str:
        api = await client.connect(kubeconfig)
        try:
            return await do(api)
        finally:
            await api.close()

    assert [asyncio.run(found(do)) for do in (install, install)] == ["installed", "installed"]
    yield
    assert [asyncio.run(found(do)) for do in (remove, remove)] == ["removed", "absent"]


async def carry_out(world: PlaneWorld, make: Any, **more: Any) -> Any:
    """Carry out a plan; the end, for failing tests with what went wrong."""
    return await world.carry_out(make, limits=more.pop("limits", LIMITS), real_seconds=400, **more)


def later_available(world: PlaneWorld, name: str, *, seconds: int) -> None:
    """Have a Deployment's pods available so long after they are Ready; waits until its controller knows."""
    world.patch("Deployment", name, {"spec": {"minReadySeconds": seconds}})
    world.until("Deployment", name, known)


def known(workload: Any) -> bool:
    """Return whether all of a workload's pods are available, by the controller's look at the newest specification."""
    status, seen = workload["status"], workload["metadata"]["generation"]
    return bool(
        status.get("observedGeneration") == seen and status.get("availableReplicas") == workload["spec"]["replicas"]
    )


@pytest.mark.usefixtures("steering")
async def test_surge_moves_the_chosen_pods_to_the_planned_nodes(world: PlaneWorld) -> None:
    """New nodes are booted, steered pods lie where the plan says, no pod is missing meanwhile, nothing is left."""
    world.run("Deployment", "web", 6)
    world.run("Deployment", "api", 3, cpu="500m")
    later_available(world, "api", seconds=6)
    watcher = world.watch()
    stayed = {pod.uid for pod in world.cluster().pods if pod.node == "old-1"}

    def plan(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        offer = next(item for item in offers if item.machine_type == "e2-standard-8")
        to = {pod.key: "new-1" for pod in cluster.pods if pod.node in {"old-2", "old-3"}}
        return plan_for(cluster, offers, to=to, boot={"new-1": offer.name}, delete=["old-2", "old-3"])

    end = await carry_out(world, plan)
    assert isinstance(end, ExecutionCompleted), world.failures()
    after = world.cluster()
    assert [node.name for node in after.nodes] == ["new-1", "old-1"]
    assert stayed <= {pod.uid for pod in after.pods}, "pods that should stay were touched"
    assert end.figures["placement_misses"] == 0
    assert watcher.least_ready == {world.key("Deployment", "web"): 6, world.key("Deployment", "api"): 3}
    assert watcher.least_available == watcher.least_ready, "a pod went before its successor was available"
    assert world.marks_left() == []
    told = world.access.request("GET", "/apis/events.k8s.io/v1/events")["items"]
    ours = [item for item in told if item.get("reportingController") == "kinema.io/rescheduler"]
    reasons = {(item["regarding"]["name"], item["reason"]) for item in ours}
    assert {("old-2", "Draining"), ("old-3", "Deleted"), ("web", "Surged")} <= reasons


@pytest.mark.usefixtures("steering")
async def test_moved_pods_lie_where_the_plan_says(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Of many pods that move at the same time, led by the admission policy, at least 95 % reach their planned node."""
    names = [f"old-{number}" for number in range(1, 7)]
    with plane_world(control_plane.admin, tmp_path, "placed", *names) as world:
        for app in ("a", "b", "c", "d"):
            world.run("Deployment", app, 8, cpu="300m")
        watcher = world.watch()
        end = await carry_out(world, lambda cluster, offers: packed(cluster, offers, names[:3]))
        assert isinstance(end, ExecutionCompleted), world.failures()
        moved, misses = int(end.figures["moves_surge"]), int(end.figures["placement_misses"])
        assert moved >= 12
        assert misses <= 0.05 * moved, f"{misses} of {moved} pods lie elsewhere"
        assert {watcher.least_ready[world.key("Deployment", app)] for app in "abcd"} == {8}
        assert world.marks_left() == []


def packed(cluster: Cluster, offers: tuple[Offer, ...], kept: list[str]) -> Plan:
    """Everything on the nodes that are kept, evenly."""
    counts = {name: sum(1 for pod in cluster.pods if pod.node == name) for name in kept}
    to: dict[str, str] = {}
    for pod in sorted(cluster.pods, key=lambda pod: pod.key):
        if pod.node not in counts:
            to[pod.key] = min(kept, key=lambda name: (counts[name], name))
            counts[to[pod.key]] += 1
    gone = [node.name for node in cluster.nodes if node.name not in counts]
    return plan_for(cluster, offers, to=to, delete=gone)


def off(world: PlaneWorld, *nodes: str, to: str = "old-1") -> Callable[[Cluster, tuple[Offer, ...]], Plan]:
    """A plan that empties and deletes nodes."""

    def plan(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        moving = {pod.key: to for pod in cluster.pods if pod.node in nodes}
        return plan_for(cluster, offers, to=moving, delete=nodes)

    return plan


_TERM = {"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
_ZONE = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "Exists"}]}
_NEAR = {"labelSelector": {"matchLabels": {"app": "other"}}, "topologyKey": "kubernetes.io/hostname"}
_SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "near": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_NEAR]}},
    "zoned": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_ZONE]}}},
    "picky": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_TERM]}},
}


@pytest.mark.usefixtures("steering")
async def test_steering_adds_preferences_to_pods_of_any_shape(world: PlaneWorld, api: FencedClient) -> None:
    """Whatever affinity a pod has stays, one preference a node comes on top; with an empty map, and for others, none.

    Nodes are preferred by name: their label `kubernetes.io/hostname` may have another value.
    """
    writer = KubernetesWriter(api)
    for name in ("old-1", "old-2", "old-3"):
        label = {"metadata": {"labels": {"kubernetes.io/hostname": f"{name}.example.org"}}}
        world.access.request("PATCH", f"/api/v1/nodes/{name}", label, content_type="application/merge-patch+json")

    def terms(name: str) -> list[Any]:
        path = f"/api/v1/namespaces/{world.namespace}/pods?labelSelector=app%3D{name}"
        pods = world.access.request("GET", path)["items"]
        (pod,) = (item for item in pods if "deletionTimestamp" not in item["metadata"])
        affinity = pod["spec"].get("affinity") or {}
        for kind, rules in _SHAPES[name].items():
            for key, value in rules.items():
                found = affinity[kind][key]
                assert (found[: len(value)] if isinstance(value, list) else found) == value
        found = (affinity.get("nodeAffinity") or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or []
        return [term for term in found if term != _TERM]

    kinds = {name: "Deployment" if name in {"plain", "picky"} else "ReplicaSet" for name in _SHAPES}
    for name, affinity in _SHAPES.items():
        world.run(kinds[name], name, 0, affinity=affinity)
    for name in _SHAPES:
        owner = world.get(kinds[name], name)["metadata"]["uid"]
        target = f"{kinds[name]}/{world.namespace}/{name}"
        step = Step(
            id=f"prefer-nodes/{name}/1", kind="prefer-nodes", target=target, uid=owner, nodes=("old-2", "old-3")
        )
        await writer.perform(Order(step=step, plan="p", iteration="i"))
    await asyncio.sleep(LIMITS.steer_seconds)
    wanted = [
        {
            "weight": 100,
            "preference": {
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
                "matchExpressions": [{"key": "kinema.io/disrupted", "operator": "DoesNotExist"}],
            },
        }
        for node in ("old-2", "old-3")
    ]
    for name in _SHAPES:
        world.scale(kinds[name], name, 1)
        assert terms(name) == wanted, name
        assert world.where(name)[0] in {"old-2", "old-3"}
    step = Step(id="clear-preferred-nodes", kind="clear-preferred-nodes", target="")
    await writer.perform(Order(step=step, plan="p", iteration="i"))
    for name in _SHAPES:
        world.scale(kinds[name], name, 0)
    await asyncio.sleep(LIMITS.steer_seconds)
    for name in _SHAPES:
        world.scale(kinds[name], name, 1)
        assert terms(name) == []


async def test_evictions_go_one_at_a_time_and_ask_the_budget(world: PlaneWorld) -> None:
    """Of a StatefulSet never more than one pod is missing, though all of them move; the budget is asked each time."""
    world.run("StatefulSet", "db", 3)
    world.budget("db", maxUnavailable=1)
    watcher = world.watch()
    before = {pod.uid for pod in world.cluster().pods}
    end = await carry_out(world, off(world, "old-2", "old-3"))
    assert isinstance(end, ExecutionCompleted), world.failures()
    assert set(world.where("db")) == {"old-1"}
    assert watcher.least_ready[world.key("StatefulSet", "db")] >= 2
    assert end.figures["moves_evict"] == len(before - {pod.uid for pod in world.cluster().pods})
    assert world.marks_left() == []


async def test_single_evictions_answer_as_the_api_server_does(world: PlaneWorld, api: FencedClient) -> None:
    """A budget without room is a refusal that passes; another pod's uid is no eviction; two budgets never allow one."""
    world.run("StatefulSet", "db", 2)
    world.budget("db", maxUnavailable=0)
    writer = KubernetesWriter(api)
    owner = world.get("StatefulSet", "db")["metadata"]["uid"]
    pods = {pod.uid for pod in world.cluster().pods}

    async def evict(victim: str) -> Made:
        step = Step(id="evict/1", kind="evict", target=world.key("StatefulSet", "db"), uid=owner, pods=(victim,))
        return await writer.perform(Order(step=step, plan="p", iteration="i"))

    victim = min(pods)
    with pytest.raises(TransientError, match=r"^budget: "):
        await evict(victim)
    assert (await evict("00000000-0000-0000-0000-000000000000")).outcome == "adopted"
    world.budget("db-again", app="db", maxUnavailable=1)
    with pytest.raises(PermanentError, match=r"^budget: "):
        await evict(victim)
    assert {pod.uid for pod in world.cluster().pods} == pods
    world.access.request("DELETE", world.budgets("db"))
    world.access.until(world.budgets("db-again"), lambda found: found["status"].get("disruptionsAllowed") == 1)
    assert (await evict(victim)).outcome == "done"


async def test_a_quota_in_the_way_takes_the_surge_back(world: PlaneWorld) -> None:
    """Pods that a quota forbids never come: soon the surge is taken back, and no pod was ever missing."""
    world.run("Deployment", "web", 4)
    spec = {"hard": {"pods": "4"}}
    path = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    world.access.request("POST", path, {"metadata": {"name": "full"}, "spec": spec})
    world.access.until(f"{path}/full", lambda found: found.get("status", {}).get("used", {}).get("pods") == "4")
    watcher = world.watch()
    end = await carry_out(world, off(world, "old-2"), limits=replace(LIMITS, refused_seconds=3))
    assert isinstance(end, ExecutionCompleted), world.failures()
    assert (end.figures["workloads_skipped"], end.figures["nodes_kept"], end.figures["moves_surge"]) == (1, 1, 0)
    assert any("refused" in line and "exceeded quota: full" in line for line in world.failures())
    assert world.get("Deployment", "web")["spec"]["replicas"] == 4
    assert watcher.least_ready.get(world.key("Deployment", "web"), 4) == 4
    assert world.marks_left() == []


async def test_an_autoscaler_in_the_way_is_held_and_let_go(world: PlaneWorld) -> None:
    """An autoscaler that allows no more replicas than there are does not take the surge back; its limits return."""
    world.run("Deployment", "web", 4)
    path = f"/apis/autoscaling/v2/namespaces/{world.namespace}/horizontalpodautoscalers"
    target = {"type": "Utilization", "averageUtilization": 50}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 4,
        "maxReplicas": 4,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
    world.access.request("POST", path, {"metadata": {"name": "web"}, "spec": spec})
    watcher = world.watch()
    end = await carry_out(world, off(world, "old-2", "old-3"))
    assert isinstance(end, ExecutionCompleted), world.failures()
    assert set(world.where("web")) == {"old-1"}
    limits = world.access.request("GET", f"{path}/web")["spec"]
    assert (limits["minReplicas"], limits["maxReplicas"]) == (4, 4)
    assert watcher.least_ready[world.key("Deployment", "web")] == 4
    assert watcher.most_replicas[world.key("Deployment", "web")] > 4
    assert world.marks_left() == []


async def test_whoever_else_scales_wins(world: PlaneWorld) -> None:
    """Replicas that the owner sets in the middle of a surge stay as he set them, and the workload is left alone."""
    world.run("Deployment", "web", 4)
    watcher = world.watch()

    def owner() -> None:
        for _ in range(2000):
            if world.get("Deployment", "web")["spec"]["replicas"] > 4:
                world.patch("Deployment", "web", {"spec": {"replicas": 7}}, "scale")
                return
            time.sleep(0.02)

    scaling = asyncio.create_task(asyncio.to_thread(owner))
    await carry_out(world, off(world, "old-2"))
    await scaling
    world.until("Deployment", "web", lambda found: found["status"].get("readyReplicas") == 7)
    assert world.get("Deployment", "web")["spec"]["replicas"] == 7
    assert watcher.least_ready[world.key("Deployment", "web")] >= 4
    assert any("another client scales it" in line or "changed" in line for line in world.failures())
    assert world.marks_left() == []


async def test_a_roll_resizes_and_gives_the_template_back(world: PlaneWorld) -> None:
    """All pods are new and have the new requests, none was missing, and but for these the template is the owner's."""
    world.run("Deployment", "web", 4)
    before = world.get("Deployment", "web")["spec"]
    watcher = world.watch()

    def plan(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
        moving = {pod.key: "old-1" for pod in cluster.pods}
        resizes = {world.key("Deployment", "web"): {"cpu": 300, "memory": 96 * 2**20}}
        return plan_for(cluster, offers, to=moving, delete=["old-2"], resizes=resizes)

    end = await carry_out(world, plan)
    assert isinstance(end, ExecutionCompleted), world.failures()
    await same_pods_for(world, seconds=6)
    after = world.get("Deployment", "web")["spec"]
    container = after["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "300m", "memory": str(96 * 2**20)}
    assert without_requests(after) == without_requests(before)
    assert watcher.least_ready[world.key("Deployment", "web")] == 4
    assert world.marks_left() == []


async def test_a_roll_by_choice_adds_one_annotation_to_the_template(world: PlaneWorld) -> None:
    """Where only the nodes change, the rest of the Deployment's spec is as before, and no pod rolls back."""
    world.run("Deployment", "web", 4)
    world.patch("Deployment", "web", {"metadata": {"annotations": {"kinema.io/strategy": "rolling"}}})
    before = world.get("Deployment", "web")["spec"]
    old = {pod.uid for pod in world.cluster().pods}
    watcher = world.watch()
    end = await carry_out(world, off(world, "old-2", "old-3"))
    assert isinstance(end, ExecutionCompleted), world.failures()
    assert set(world.where("web")) == {"old-1"}
    assert not old & await same_pods_for(world, seconds=6)
    after = world.get("Deployment", "web")["spec"]
    assert after["template"]["metadata"].pop("annotations") == {ROLLED_BY: "plan-1"}
    assert after == before
    assert watcher.least_ready[world.key("Deployment", "web")] == 4
    assert world.marks_left() == []


async def same_pods_for(world: PlaneWorld, seconds: float) -> set[str]:
    """The uids of all pods that stay, which must not change for a while."""

    def alive() -> set[str]:
        return {pod.uid for pod in world.cluster().pods if not pod.terminating}

    first = alive()
    for _ in range(int(seconds * 2)):
        await asyncio.sleep(0.5)
        assert alive() == first
    return first


def without_requests(spec: dict[str, Any]) -> dict[str, Any]:
    """A Deployment's spec but for the requests of its containers."""
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for container in copy["template"]["spec"]["containers"]:
        container["resources"].pop("requests", None)
    return copy
