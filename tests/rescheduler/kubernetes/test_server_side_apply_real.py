"""Owners who apply their objects server-side, as Helm does, meet no conflict with Kinema after a move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.plane_world import PlaneWorld, plane_world

from kinema_core.events import FrozenMap, Step, StepKind
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import connect
from kinema_rescheduler.kubernetes.writer import KubernetesWriter

pytestmark = pytest.mark.cluster

APPLY = "application/apply-patch+yaml"


def applied(world: PlaneWorld, *, replicas: int, least: int, surge: int) -> None:
    """Apply a Deployment and its autoscaler as their owner, without force; RefusedError where somebody else owns."""
    space = f"namespaces/{world.namespace}"
    labels = {"app": "web"}
    container = {"name": "main", "image": "example/none:1", "resources": {"requests": {"cpu": "200m"}}}
    deployment = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 2},
        },
    }
    # By a metric that nobody tells: an autoscaler that sees load decides itself how many replicas there are.
    untold = {"metric": {"name": "untold"}, "target": {"type": "Value", "value": "1"}}
    scaler = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": least,
        "maxReplicas": 5,
        "metrics": [{"type": "External", "external": untold}],
    }
    for group, plural, kind, spec in (
        ("apps/v1", "deployments", "Deployment", deployment),
        ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", scaler),
    ):
        path = f"/apis/{group}/{space}/{plural}/web?fieldManager=owner"
        body = {"apiVersion": group, "kind": kind, "metadata": {"name": "web"}, "spec": spec}
        world.access.request("PATCH", path, body, content_type=APPLY)


async def test_an_owner_may_apply_other_values_after_a_move(control_plane: ControlPlane, tmp_path: Path) -> None:
    """After a surge, one that was taken back, and a roll: replicas, limits and strategy are the owner's to change."""
    with plane_world(control_plane.admin, tmp_path, "owners-apply", "old-1", "old-2") as world:
        api = await connect(str(world.kubeconfig))

        async def perform(kind: StepKind, **fields: Any) -> None:
            step = Step(id=f"{kind}/x/1", kind=kind, target=world.key("Deployment", "web"), **fields)
            await KubernetesWriter(api).perform(Order(step=step, plan="plan-1", iteration="it-1"))

        def settled(replicas: int) -> str:
            def there(found: Any) -> bool:
                status, seen = found["status"], found["metadata"]["generation"]
                counts = {status.get(key, 0) for key in ("replicas", "readyReplicas", "updatedReplicas")}
                return counts == {replicas} and status.get("observedGeneration") == seen

            return str(world.until("Deployment", "web", there)["metadata"]["uid"])

        applied(world, replicas=2, least=1, surge=1)
        uid = settled(2)
        victim = next(pod.uid for pod in world.cluster().pods if pod.namespace == world.namespace)
        surge = {"uid": uid, "pods": (victim,)}
        await perform("surge-up", replicas_from=2, replicas_to=3, **surge)
        settled(3)
        await perform("surge-down", replicas_from=3, replicas_to=2, **surge)
        settled(2)
        applied(world, replicas=3, least=2, surge=1)
        settled(3)
        victim = next(pod.uid for pod in world.cluster().pods if pod.namespace == world.namespace and pod.ready)
        await perform("surge-up", replicas_from=3, replicas_to=4, **{**surge, "pods": (victim,)})
        settled(4)
        await perform("revert", replicas_from=4, replicas_to=3, uid=uid)
        settled(3)
        applied(world, replicas=2, least=1, surge=1)
        settled(2)
        await perform("roll", uid=uid, requests=FrozenMap())
        settled(2)
        await perform("finalize-rollout", uid=uid)
        applied(world, replicas=2, least=1, surge=2)
        await api.close()
