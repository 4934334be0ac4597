"""Servers that fail while a plan is carried out on a real control plane: it takes longer, and that is all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.controlplane.plane import ControlPlane
from tests.e2e.struck import Case, Scene, check, struck

from kinema_core.events import ExecutionCompleted

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

AWAY_SECONDS = 6.0
"""How long the API server is away."""
STALLED_SECONDS = 20.0


async def broker_dies(scene: Scene) -> bool:
    """The broker is killed, and comes back after three seconds."""
    if not scene.did("surge-up"):
        return False
    await asyncio.to_thread(scene.pipeline.server.kill)
    await asyncio.sleep(3)
    await asyncio.to_thread(scene.pipeline.server.start)
    return True


async def writes_are_refused(scene: Scene) -> bool:
    """Conflicts, throttling and errors on every kind of write, and a reply that gets lost: each was met in the end."""
    if not scene.once("refusals"):
        return not scene.proxy.pending
    for path, status in (("/scale", 409), ("/eviction", 429), ("/eviction", 500), ("/nodes/", 503), ("/pods/", 409)):
        scene.proxy.refuse(path, status, method="POST" if "eviction" in path else "PATCH", count=2)
    scene.proxy.lose_reply("/scale", method="PATCH")
    scene.proxy.lose_reply("/eviction", method="POST")
    return False


async def watches_break(scene: Scene) -> bool:
    """Watches are cut, and the observer's next ones find their version expired."""
    if not scene.did("taint"):
        return False
    if scene.once("refusals"):  # before the cut: the observer comes back at once
        scene.proxy.refuse("watch", 410, method="GET", count=3)
    if "cut" not in scene.notes and scene.proxy.cut("watch") > 0:
        scene.once("cut")
    return "cut" in scene.notes and not scene.proxy.pending


async def api_server_restarts(scene: Scene) -> bool:
    """The API server is killed in the middle of a surge, and comes back after a while."""
    if not scene.did("surge-up"):
        return False
    server = scene.plane.servers["kube-apiserver"]
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(server.start)
    return True


async def etcd_stalls(scene: Scene) -> bool:
    """The store answers nothing for twenty seconds: requests hang."""
    if not scene.did("surge-up"):
        return False
    scene.plane.servers["etcd"].pause()
    try:
        await asyncio.sleep(STALLED_SECONDS)
    finally:
        scene.plane.servers["etcd"].resume()
    return True


@pytest.mark.parametrize("case", [broker_dies, writes_are_refused, watches_break, api_server_restarts, etcd_stalls])
async def test_costs_time_only(case: Case, own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Servers that fail and come back delay the plan; it is carried out, and nobody is hurt."""
    outcome = await struck(own_control_plane, tmp_path / "run", case)
    check(outcome, alone=True)
    assert outcome.ends == {ExecutionCompleted}, outcome.run.progress.failed
