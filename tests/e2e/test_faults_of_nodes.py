"""Nodes that go, fall silent or never work while a plan is carried out on a real control plane."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.controlplane.nodes import fall_silent, speak_again
from tests.controlplane.plane import ControlPlane
from tests.e2e.struck import HASTY, Case, Scene, check, struck

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

SILENT_SECONDS = 75.0
"""Longer than it takes until a silent node counts as NotReady."""


async def _delete(scene: Scene, name: str) -> None:
    scene.auditor.excuse(node=name)
    await scene.ask("DELETE", f"/api/v1/nodes/{name}")


async def new_node_is_deleted(scene: Scene) -> bool:
    """Somebody deletes the node that was booted, before any pod is on it."""
    if not (scene.did("boot") and scene.booted()):
        return False
    await _delete(scene, scene.booted()[0])
    return True


async def old_node_is_deleted(scene: Scene) -> bool:
    """Somebody deletes a node that is being emptied, with the pods that it still has."""
    if not (scene.did("surge-up") and scene.leaving()):
        return False
    await _delete(scene, scene.leaving()[0])
    return True


async def old_node_falls_silent(scene: Scene) -> bool:
    """A node that is being emptied says nothing for a while."""
    if "node" not in scene.notes:
        if scene.did("taint") and scene.leaving():
            scene.notes["node"] = scene.leaving()[0]
            scene.auditor.excuse(node=scene.notes["node"])
            await asyncio.to_thread(fall_silent, scene.admin, scene.notes["node"])
        return False
    if not scene.later(SILENT_SECONDS):
        return False
    if scene.notes["node"] in scene.auditor.now["Node"]:
        await asyncio.to_thread(speak_again, scene.admin, scene.notes["node"])
    return True


async def new_pods_never_start(scene: Scene) -> bool:
    """The booted node becomes Ready and then starts nothing, until its plan has been given up."""
    if "node" not in scene.notes:
        if scene.did("boot") and scene.did("taint") and scene.booted():
            scene.notes["node"] = scene.booted()[0]
            await asyncio.to_thread(fall_silent, scene.admin, scene.notes["node"])
        return False
    if not scene.progress.ended:
        return False
    if scene.notes["node"] in scene.auditor.now["Node"]:
        await asyncio.to_thread(speak_again, scene.admin, scene.notes["node"])
    return True


@pytest.mark.parametrize(
    "case", [new_node_is_deleted, old_node_is_deleted, old_node_falls_silent, new_pods_never_start]
)
async def test_the_goal_is_reached_in_the_end(case: Case, own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """No pod is missing but those that the node itself took; the plan, or a later one, reaches the goal."""
    outcome = await struck(own_control_plane, tmp_path / "run", case, settings=HASTY)
    check(outcome, but={"taken_back"})  # nobody takes a mark off a node that is gone; the auditor sees what is left
