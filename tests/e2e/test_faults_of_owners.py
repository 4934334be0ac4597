"""What owners do to their objects while a plan is carried out on a real control plane counts more than the plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.controlplane.plane import ControlPlane
from tests.e2e.shop import at, quick
from tests.e2e.small import FIXED, OLD_NODES, SPACE, budget, quota
from tests.e2e.struck import HASTY, PATIENT, Scene, check, struck

from kinema_core.events import ExecutionAborted, ExecutionCompleted
from kinema_sim.scenarios.objects import App, deployment, namespace

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

DOOMED = "doomed"
WEB = f"/apis/apps/v1/namespaces/{SPACE}/deployments/web"


async def budget_appears(scene: Scene) -> bool:
    """Once the plan runs, its owner forbids every disruption of the StatefulSet."""
    if not scene.did("taint"):
        return False
    path, body = at("policy/v1", "poddisruptionbudgets", budget("store", maxUnavailable=0))
    await scene.patch(f"{path}/store", {"spec": body["spec"]})
    return True


async def test_a_budget_that_appears_is_kept(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """The StatefulSet stays, and its node with it; all else moves; at most one pod had left before.

    The plan gives the reason, unless it ended for the change before a stage that moves the set: the next one knows it.
    """
    outcome = await struck(own_control_plane, tmp_path / "run", budget_appears, settings=HASTY, goal=False)
    check(outcome)
    assert outcome.ends == {ExecutionCompleted}
    reason, _ = outcome.reasons.get(f"skip/StatefulSet/{SPACE}/store", ("held", ""))
    assert reason in {"budget", "held"}
    vetoed = "may not move: pdb-never"  # its nodes, where the veto is seen before they are begun
    others = [one for one, detail in outcome.reasons.values() if not (one == "off-limits" and vetoed in detail)]
    assert [one for one in others if one not in {"budget", "held", "not-empty"}] == []
    assert outcome.moved("surge-down", "web")
    assert outcome.moved("surge-down", "api")
    assert sum(step.startswith("evict/") for step in outcome.run.progress.done) <= 1


async def quota_is_used_up(scene: Scene) -> bool:
    """Once a plan is accepted, and before a pod moves, the namespace's quota has no room for a single pod more."""
    if not scene.progress.accepted:
        return False
    path, body = quota({"pods": str(9 + OLD_NODES)})
    await scene.ask("POST", path, body)
    return True


async def test_no_pod_is_asked_for_that_a_quota_would_refuse(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Surges wait for a place and are planned again without one; nothing is refused, and no workload lacks a pod."""
    outcome = await struck(own_control_plane, tmp_path / "run", quota_is_used_up, settings=HASTY, goal=False)
    check(outcome)
    assert outcome.ends == {ExecutionCompleted}
    assert [(one.step, one.detail) for one in outcome.run.progress.failed if one.reason == "refused"] == []


async def test_a_pod_makes_way_under_a_used_up_quota(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """No pod more is admitted, and budgets let one be away: one is evicted, and its replacement has its place."""
    allowed = [at("policy/v1", "poddisruptionbudgets", budget(name, maxUnavailable=1)) for name in ("web", "api")]
    full = quota({"pods": str(9 + OLD_NODES)})
    outcome = await struck(own_control_plane, tmp_path / "run", settings=PATIENT, extra=[*allowed, full])
    check(outcome, alone=True)
    assert ExecutionCompleted in outcome.ends
    assert outcome.moved("evict", "web")
    assert outcome.moved("evict", "api")
    assert [(one.step, one.detail) for one in outcome.run.progress.failed if one.reason == "refused"] == []


async def namespace_is_deleted(scene: Scene) -> bool:
    """A namespace goes, with workloads that are on the move."""
    key = f"surge-up/Deployment/{DOOMED}/"
    if not any(step.startswith(key) for step in scene.progress.done):
        return False
    scene.auditor.excuse(namespace=DOOMED)
    await scene.ask("DELETE", f"/api/v1/namespaces/{DOOMED}")
    return True


async def test_a_namespace_that_goes_stops_nothing_else(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Its workloads are gone, as their owner wished; everybody else's move goes on to the goal."""
    app = App("passing", DOOMED, "example/passing:1", cpu_m=100, memory_mi=100, replicas=3, annotations=FIXED)
    extra = [("/api/v1/namespaces", namespace(DOOMED)), at("apps/v1", "deployments", quick(deployment(app)))]
    outcome = await struck(own_control_plane, tmp_path / "run", namespace_is_deleted, settings=HASTY, extra=extra)
    own_control_plane.admin.until(f"/api/v1/namespaces/{DOOMED}", lambda found: found.get("code") == 404)
    check(outcome)


async def misfit_comes(scene: Scene) -> bool:
    """Somebody asks for a node that there is none of, and that nobody sells."""
    scene.auditor.excuse(namespace=DOOMED)
    app = App("misfit", DOOMED, "example/misfit:1", cpu_m=100, memory_mi=100, replicas=1, annotations=FIXED)
    body = quick(deployment(app))
    body["spec"]["template"]["spec"]["nodeSelector"] = {"no": "where"}
    await scene.ask("POST", "/api/v1/namespaces", namespace(DOOMED))
    await scene.ask("POST", *at("apps/v1", "deployments", body))
    return True


async def test_a_pod_that_fits_nowhere_stops_no_saving(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """It is tried to place it once; then everybody else is moved as if it were not there."""
    try:
        outcome = await struck(own_control_plane, tmp_path / "run", misfit_comes, settings=HASTY)
        check(outcome)
        assert outcome.moved("surge-down", "web")
    finally:
        own_control_plane.admin.remove_namespace(DOOMED)


async def large_pod_comes(scene: Scene) -> bool:
    """In the middle of a plan somebody needs more room than any node has; it is over when the pod runs."""
    if not scene.did("surge-up"):
        return False
    if scene.once("asked"):
        app = App("large", SPACE, "example/large:1", cpu_m=6000, memory_mi=100, replicas=1, annotations=FIXED)
        await scene.ask("POST", *at("apps/v1", "deployments", quick(deployment(app))))
    large = scene.auditor.now["Deployment"].get(f"{SPACE}/large", {})
    return bool(large.get("status", {}).get("readyReplicas"))


async def test_a_plan_makes_way_for_a_pod_that_needs_a_node(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Nothing is bought while a plan is carried out: it is given up, and the next one buys."""
    limits = {**HASTY["rescheduler"], "limits": {"unschedulable_seconds": 2.0, "pods_ready_seconds": 60.0}}
    settings = {**HASTY, "rescheduler": limits}
    outcome = await struck(own_control_plane, tmp_path / "run", large_pod_comes, settings=settings, goal=False)
    check(outcome)
    assert outcome.ends == {ExecutionAborted, ExecutionCompleted}
    reason, detail = outcome.reasons["abort"]
    assert reason == "pod-waits"
    assert f"{SPACE}/large-" in detail
    assert "needs a new node" in detail


async def test_a_strangers_cordon_stays_and_is_kept_to(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """A booted node that an operator cordons takes no more pods, and is cordoned still when all is over."""

    async def cordon(scene: Scene) -> bool:
        if not (scene.did("boot") and scene.booted()):
            return False
        scene.notes["node"] = scene.booted()[0]
        await scene.patch(f"/api/v1/nodes/{scene.notes['node']}", {"spec": {"unschedulable": True}})
        return True

    outcome = await struck(own_control_plane, tmp_path / "run", cordon, settings=HASTY, goal=False)
    mine = {f"Node {outcome.notes['node']}: {mark}" for mark in ("cordoned", "taint node.kubernetes.io/unschedulable")}
    gone = outcome.notes["node"] not in outcome.auditor.now["Node"]
    assert gone or mine <= set(outcome.leftovers)
    outcome.leftovers[:] = [left for left in outcome.leftovers if left not in mine]
    check(outcome)


async def test_a_template_that_changes_is_its_owners(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """A new version rolled out in the middle of a surge: it comes whole and stays, and the goal is reached after it."""

    async def edit(scene: Scene) -> bool:
        if not any(step.startswith(f"surge-up/Deployment/{SPACE}/web") for step in scene.progress.done):
            return False
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
        template = {"metadata": {"annotations": {"example.com/version": "2"}}}
        told = await scene.patch(WEB, {"spec": {"strategy": rolling, "template": template}})
        scene.auditor.accept("Deployment", f"{SPACE}/web", {key: told["spec"][key] for key in ("strategy", "template")})
        return True

    outcome = await struck(own_control_plane, tmp_path / "run", edit, settings=HASTY)
    check(outcome)
    versions = [
        (pod["metadata"].get("annotations") or {}).get("example.com/version")
        for pod in outcome.auditor.now["Pod"].values()
        if pod["metadata"]["labels"]["app"] == "web" and "deletionTimestamp" not in pod["metadata"]
    ]
    assert versions == ["2"] * 4
    assert outcome.reasons[f"skip/Deployment/{SPACE}/web"][0] in {"changed", "not-ready"}


async def test_a_pod_that_is_marked_stays(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """A pod marked as not to be disrupted while its move begins is where it was at the end, and so is its node."""

    async def mark(scene: Scene) -> bool:
        nodes = scene.leaving("web")
        if not (nodes and scene.did("prefer-nodes")):
            return False
        pods = [pod for pod in scene.auditor.now["Pod"].values() if pod["spec"].get("nodeName") == nodes[0]]
        pod = next(pod["metadata"] for pod in pods if pod["metadata"]["labels"]["app"] == "web")
        annotations = {"karpenter.sh/do-not-disrupt": "true"}
        path = f"/api/v1/namespaces/{SPACE}/pods/{pod['name']}"
        await scene.patch(path, {"metadata": {"annotations": annotations}})
        scene.auditor.untouchable = (pod["name"],)
        scene.notes["node"] = nodes[0]
        return True

    outcome = await struck(own_control_plane, tmp_path / "run", mark, settings=HASTY, goal=False)
    check(outcome)
    assert outcome.notes["node"] in outcome.auditor.now["Node"]
    assert {"held", "off-limits"} & {reason for reason, _ in outcome.reasons.values()}
