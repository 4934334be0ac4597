"""What may happen to a cluster and to Kinema while a plan is carried out, on a real control plane.

After each: the plan has come to an end, nothing of ours is left behind, and nobody was hurt by us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import FaultyProxy
from tests.e2e.auditor import Auditor
from tests.e2e.pipeline_run import SETTINGS, Run, carried_out, own_rights
from tests.e2e.shop import at
from tests.e2e.small import OLD_NODES, budget, quota, small_cluster

from kinema_cli.pipeline import LocalPipeline
from kinema_cli.progress import Progress
from kinema_core.events import ExecutionFinished

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

_PATIENT: Final = {**SETTINGS, "rescheduler": {"lease_seconds": 3.0}}
_HASTY: Final = {
    **SETTINGS,
    "rescheduler": {
        "lease_seconds": 3.0,
        "limits": {"evict_seconds": 12.0, "blocked_seconds": 20.0, "pods_ready_seconds": 30.0},
    },
}
"""With deadlines that a test can wait for."""

Settings: TypeAlias = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Scene:
    """What a case can do something to."""

    plane: ControlPlane
    proxy: FaultyProxy
    pipeline: LocalPipeline
    progress: Progress

    @property
    def admin(self) -> Access:
        """Access with all rights."""
        return self.plane.admin

    def did(self, kind: str) -> bool:
        """Whether a step of a kind is done."""
        return any(step.startswith(f"{kind}/") for step in self.progress.done)


Case = Callable[[Scene], Awaitable[bool]]


async def broker_dies(scene: Scene) -> bool:
    """The broker is killed, and comes back after three seconds."""
    if not scene.did("surge-up"):
        return False
    await asyncio.to_thread(scene.pipeline.server.kill)
    await asyncio.sleep(3)
    await asyncio.to_thread(scene.pipeline.server.start)
    return True


async def writes_are_refused(scene: Scene) -> bool:
    """Conflicts, throttling and errors on every kind of write, and a reply that gets lost."""
    for path, status in (("/scale", 409), ("/eviction", 429), ("/eviction", 500), ("/nodes/", 503), ("/pods/", 409)):
        scene.proxy.refuse(path, status, method="POST" if "eviction" in path else "PATCH", count=2)
    scene.proxy.lose_reply("/scale", method="PATCH")
    scene.proxy.lose_reply("/eviction", method="POST")
    return True


async def watches_break(scene: Scene) -> bool:
    """Watches are cut, and the observer's next ones find their version expired."""
    if not scene.did("expire"):
        return False
    scene.proxy.refuse("watch", 410, method="GET", count=3)
    return scene.proxy.cut("watch") > 0


async def budget_appears(scene: Scene) -> bool:
    """Once the plan runs, its owner forbids every disruption of the StatefulSet."""
    if not scene.did("expire"):
        return False
    path, body = at("policy/v1", "poddisruptionbudgets", budget("store", maxUnavailable=0))
    await asyncio.to_thread(_patch, scene.admin, f"{path}/store", body["spec"])
    return True


async def quota_is_used_up(scene: Scene) -> bool:
    """There is no room in the namespace's quota for a single pod more."""
    path, body = quota({"pods": str(9 + OLD_NODES)})
    await asyncio.to_thread(scene.admin.request, "POST", path, body)
    return True


def _patch(access: Access, path: str, spec: dict[str, Any]) -> None:
    access.request("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")


@dataclass(frozen=True)
class Outcome:
    """What a case left behind."""

    run: Run
    auditor: Auditor
    leftovers: list[str]


async def struck(plane: ControlPlane, folder: Path, case: Case, settings: Settings = _PATIENT) -> Outcome:
    """Let the services optimise a small cluster while a case happens to them."""
    with small_cluster(plane.admin):
        auditor = Auditor(plane.admin)
        async with FaultyProxy(plane.admin).running() as proxy:
            rights = {name: proxy.through(access) for name, access in own_rights(plane.admin).items()}

            async def strike(pipeline: LocalPipeline, progress: Progress) -> bool:
                return await case(Scene(plane, proxy, pipeline, progress))

            with auditor.watching():
                run = await carried_out(folder, rights, settings=settings, strike=strike)
        return Outcome(run, auditor, auditor.leftovers())


def check(outcome: Outcome) -> None:
    """What holds after every case."""
    assert outcome.run.struck
    assert outcome.run.progress.accepted.keys() == outcome.run.progress.ended.keys()
    assert outcome.leftovers == []


@pytest.mark.parametrize("case", [broker_dies, writes_are_refused, watches_break])
async def test_costs_time_only(case: Case, own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Servers that fail and come back delay the plan; it is carried out, and nobody is hurt."""
    outcome = await struck(own_control_plane, tmp_path / "run", case)
    check(outcome)
    assert outcome.auditor.flaws == []
    assert {type(end) for end in outcome.run.progress.ended.values()} == {ExecutionFinished}, (
        outcome.run.progress.failed
    )
    assert len(outcome.auditor.now["Node"]) < OLD_NODES


@pytest.mark.parametrize("case", [budget_appears, quota_is_used_up])
async def test_owners_have_the_last_word(case: Case, own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """What an owner forbids meanwhile is not done, whatever the plan says; the rest comes to an end."""
    outcome = await struck(own_control_plane, tmp_path / "run", case, settings=_HASTY)
    check(outcome)
    assert [flaw for flaw in outcome.auditor.flaws if "budget" in flaw] == []
