"""A stranger's pod that only our taint keeps waiting, on the real API server and kube-scheduler."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.plan.test_executions_real import LIMITS, carry_out, later_available, off
from tests.rescheduler.plane_world import PlaneWorld, plane_world

from kinema_core.events import ExecutionAborted
from kinema_rescheduler.names import DISRUPTED

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def on(node: str) -> dict[str, dict[str, str]]:
    """Part of a pod that may run on one node only."""
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def come_late(world: PlaneWorld, node: str) -> None:
    """Once the node is closed, a Deployment comes whose pod may run there only; waits until it does."""
    for _ in range(3000):
        taints = world.access.request("GET", f"/api/v1/nodes/{node}")["spec"].get("taints") or []
        if any(taint["key"] == DISRUPTED for taint in taints):
            break
        time.sleep(0.02)
    world.run("Deployment", "late", 1, cpu="500m", **on(node))


async def test_a_plan_ends_for_a_pod_that_it_keeps_waiting(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Moves take a while, and a new pod waits for the node that they empty: the plan gives way, and the pod runs."""
    with plane_world(control_plane.admin, tmp_path, "kept-waiting", "old-1", "old-2") as world:
        world.run("Deployment", "web", 2, cpu="900m")
        later_available(world, "web", seconds=30)
        coming = asyncio.create_task(asyncio.to_thread(come_late, world, "old-2"))
        end = await carry_out(world, off(world, "old-2"), limits=replace(LIMITS, unschedulable_seconds=5))
        await coming
        assert isinstance(end, ExecutionAborted), world.failures()
        assert (end.reason, end.leftovers) == ("pod-waits", ())
        assert "late-" in end.detail
        assert "old-2" in end.detail
        assert world.where("late") == ["old-2"]
        assert world.marks_left() == []
