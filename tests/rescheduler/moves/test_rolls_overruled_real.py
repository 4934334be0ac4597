"""An owner's word on a Deployment that is being rolled, on the real API server and its controllers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.plan.test_executions_real import LIMITS, carry_out, off
from tests.rescheduler.plane_world import PlaneWorld, plane_world
from tests.support.undo import JSON_PATCH, undo_patch

from kinema_core.events import AbortRequested, ExecutionAborted, ExecutionCompleted
from kinema_rescheduler.names import ROLLED_BY

pytestmark = [pytest.mark.cluster, pytest.mark.long]

_HASTY: Final = replace(LIMITS, pods_ready_seconds=60)


@pytest.fixture
def world(control_plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PlaneWorld]:
    """Two nodes, with a Deployment on both that its owner wants rolled, and a namespace named after the test."""
    name = request.node.name.replace("_", "-").partition("[")[0][:50].rstrip("-")
    with plane_world(control_plane.admin, tmp_path, name, "old-1", "old-2") as world:
        world.run("Deployment", "web", 6)
        world.patch("Deployment", "web", {"metadata": {"annotations": {"kinema.io/strategy": "rolling"}}})
        yield world


def pause(world: PlaneWorld) -> None:
    """As `kubectl rollout pause`."""
    world.patch("Deployment", "web", {"spec": {"paused": True}})


def undo(world: PlaneWorld) -> None:
    """As `kubectl rollout undo` to the replica set of before."""
    sets = world.access.request("GET", world.path("ReplicaSet"))["items"]
    before = next(
        item for item in sets if ROLLED_BY not in (item["spec"]["template"]["metadata"].get("annotations") or {})
    )
    patch = undo_patch(world.get("Deployment", "web"), before)
    world.access.request("PATCH", world.path("Deployment", "web"), patch, content_type=JSON_PATCH)


def in_the_middle(world: PlaneWorld, *strikes: Callable[[PlaneWorld], None]) -> Callable[[], None]:
    """Do something as soon as the Deployment has some pods of our template, and not all."""

    def wait() -> None:
        for _ in range(4000):
            web = world.get("Deployment", "web")
            marked = ROLLED_BY in (web["spec"]["template"]["metadata"].get("annotations") or {})
            seen = web["status"].get("observedGeneration") == web["metadata"]["generation"]
            if marked and seen and 2 <= web["status"].get("updatedReplicas", 0) < 6:
                for strike in strikes:
                    strike(world)
                return
            time.sleep(0.02)

    return wait


def unlike(before: Any, after: Any) -> list[str]:
    """Fields of a spec that are not as they were."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


@pytest.mark.parametrize(("strike", "reason"), [(pause, "it was paused"), (undo, "undone")])
async def test_the_owners_word_counts(world: PlaneWorld, strike: Callable[[PlaneWorld], None], reason: str) -> None:
    """Paused or undone, a roll is taken back at once, and the plan ends: within a fraction of what a roll may take."""
    before = world.get("Deployment", "web")["spec"]
    watcher = world.watch()
    striking = asyncio.create_task(asyncio.to_thread(in_the_middle(world, strike)))
    end = await carry_out(world, off(world, "old-2"), limits=_HASTY)
    await striking
    assert isinstance(end, ExecutionCompleted), world.failures()
    assert [line for line in world.failures() if line.startswith("skip/") and "changed" in line and reason in line]
    after = world.get("Deployment", "web")["spec"]
    assert unlike(before, after) == (["paused"] if strike is pause else [])
    assert watcher.least_ready[world.key("Deployment", "web")] >= 6
    assert world.marks_left() == []


async def test_an_abort_of_a_paused_roll_ends(world: PlaneWorld) -> None:
    """Paused and then given up: the end comes, the pause and the template of before are there."""
    before = world.get("Deployment", "web")["spec"]
    loop = asyncio.get_running_loop()

    def abort(_: PlaneWorld) -> None:
        asyncio.run_coroutine_threadsafe(world.publish(AbortRequested(by="me"), "abort-1"), loop).result()

    striking = asyncio.create_task(asyncio.to_thread(in_the_middle(world, abort, pause)))
    end = await carry_out(world, off(world, "old-2"), limits=_HASTY)
    await striking
    assert isinstance(end, ExecutionAborted), world.failures()
    assert (end.reason, end.leftovers) == ("operator", ())
    assert unlike(before, world.get("Deployment", "web")["spec"]) == ["paused"]
    assert world.marks_left() == []
