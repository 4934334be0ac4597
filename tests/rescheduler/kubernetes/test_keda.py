"""Autoscalers whose limits KEDA sets, again and again, are left as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.rescheduler.capabilities import NAMESPACE, Ground, prepare
from tests.rescheduler.sim_world import sim_world

from kinema_core.model.vocabulary import KEDA
from kinema_kubernetes.objects import annotations_of
from kinema_rescheduler.kubernetes.fenced import connect
from kinema_rescheduler.names import FLOOR_BEFORE
from kinema_sim.scenarios.registry import SCENARIOS

SCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"


@pytest.mark.parametrize(("labels", "floor"), [({}, 3), ({KEDA: "queue"}, 2)], ids=["own", "of-keda"])
async def test_limits_that_keda_sets_are_not_raised(labels: dict[str, str], floor: int, tmp_path: Path) -> None:
    """KEDA would set them again at once, and both would write for as long as the surge lasts."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        admin = await connect(str(world.kubeconfig))
        await prepare(admin)
        ground = Ground(admin, admin, "tiny-1")
        made = await ground.workload("Deployment")
        name = made.path.rpartition("/")[2]
        spec: dict[str, Any] = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 2,
            "maxReplicas": 4,
            "metrics": [],
        }
        body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec}
        await admin.create(SCALERS, {**body, "metadata": {"name": name, "labels": labels}})
        await ground.perform("surge-up", made.target, uid=made.uid, pods=(made.victim,), replicas_from=2, replicas_to=3)
        found = await admin.get(f"{SCALERS}/{name}")
        assert found["spec"]["minReplicas"] == floor
        assert (FLOOR_BEFORE in annotations_of(found)) is (floor == 3)
        await admin.close()
