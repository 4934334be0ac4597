"""A person who starts Kinema with its defaults finds the cluster unchanged until the word is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.controlplane.plane import ControlPlane
from tests.e2e.pipeline_run import CLUSTER
from tests.e2e.struck import PATIENT, Scene, check, struck

from kinema_cli.local.settings import layered
from kinema_cli.status.plans import HELD, read_plan_states
from kinema_core.events import ExecutionCompleted, PlanApproved
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin
from kinema_decider.logic.limits import Limits
from kinema_optimizer.settings import PlanningSettings

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

SECONDS = 20.0
"""For which a plan waits before the operator looks at the cluster."""
_LIMITS = ("approval", "max_moves_fraction", "redundancy")
DEFAULTS = {
    "decider": {"limits": {name: getattr(Limits(), name) for name in _LIMITS}},
    "optimizer": {"planning": {name: getattr(PlanningSettings(), name) for name in (*_LIMITS[1:], "headroom")}},
}
"""What the other tests of this folder switch off."""


def seen(scene: Scene) -> dict[str, Any]:
    """Nodes with their taints and labels, pods with their nodes, workloads with what they ask for."""
    now = scene.auditor.now
    return {
        "nodes": {
            name: (node["metadata"].get("labels"), node["spec"].get("taints"), node["spec"].get("unschedulable"))
            for name, node in now["Node"].items()
        },
        "pods": {name: pod["spec"].get("nodeName") for name, pod in now["Pod"].items()},
        "workloads": {name: item["spec"] for kind in ("Deployment", "StatefulSet") for name, item in now[kind].items()},
    }


async def word_is_given(scene: Scene) -> bool:
    """A plan is held; some time later the cluster is looked at, and the operator approves the plan."""
    scene.notes.setdefault("before", seen(scene))
    bus = scene.pipeline.bus
    held = {plan: state for plan, state in (await read_plan_states(bus)).items() if state.phase == HELD}
    if not held or not scene.later(SECONDS):
        return False
    scene.notes["after"] = seen(scene)
    plan, state = next(iter(held.items()))
    word = PlanApproved(plan=plan, by="ann")
    now = SystemClock().now()
    await bus.publish(origin(word, id_="ann-1", cluster=CLUSTER, iteration=state.iteration, now=now))
    return True


async def test_nothing_changes_until_the_word_is_given(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """With its defaults Kinema only shows a plan; once that is approved, it is executed, and nothing is left."""
    settings = layered(PATIENT, DEFAULTS)
    outcome = await struck(own_control_plane, tmp_path / "run", word_is_given, settings=settings, goal=False)
    assert outcome.notes["after"] == outcome.notes["before"]
    check(outcome)
    assert outcome.ends == {ExecutionCompleted}
