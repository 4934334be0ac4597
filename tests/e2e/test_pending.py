"""Pods that wait for room on a real control plane: nodes for them are bought once, and spread over the zones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from tests.controlplane.access import Access
from tests.controlplane.nodes import add_nodes, node
from tests.controlplane.plane import ControlPlane
from tests.e2e.auditor import Auditor
from tests.e2e.pipeline_run import carried_out, own_rights
from tests.e2e.shop import ZONES, at, quick
from tests.history.checker import violations
from tests.pipeline.pipeline_harness import Strikes

from kinema_cli.local.demo import Progress
from kinema_cli.local.pipeline import LocalPipeline
from kinema_sim.scenarios.objects import App, deployment, namespace

pytestmark = pytest.mark.cluster

SPACE: Final = "crowd"
PODS: Final = 50
BATCH: Final = 10
EVERY_SECONDS: Final = 2.0
"""Between batches: the next one comes while nodes for the last are on their way."""
PER_NODE: Final = 3
"""Pods that a node holds."""
STARTING_ZONES: Final = (ZONES[0], ZONES[0], ZONES[1], ZONES[2])


@dataclass
class Arrivals:
    """Scales a Deployment up, a batch at a time, and waits until all its pods are ready."""

    access: Access
    path: str
    asked: int = 0
    due: float = field(default_factory=time.monotonic)

    async def __call__(self, pipeline: LocalPipeline, progress: Progress) -> bool:
        """Whether all have come and run."""
        if self.asked < PODS:
            if time.monotonic() >= self.due:
                self.asked, self.due = self.asked + BATCH, time.monotonic() + EVERY_SECONDS
                await asyncio.to_thread(self._scale)
            return False
        found = await asyncio.to_thread(self.access.request, "GET", self.path)
        return bool(found["status"].get("readyReplicas") == PODS)

    def _scale(self) -> None:
        body = {"spec": {"replicas": self.asked}}
        self.access.request("PATCH", self.path, body, content_type="application/merge-patch+json")


async def test_nodes_are_bought_once_and_spread_over_zones(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Fifty pods come by tens, faster than nodes boot: as many nodes as they fill, in zones of even size."""
    access = own_control_plane.admin
    add_nodes(access, *(node(f"old-{i}", zone=zone, cpu="3920m") for i, zone in enumerate(STARTING_ZONES)))
    app = App("crowd", SPACE, "example/crowd:1", cpu_m=1200, memory_mi=600, replicas=0)
    access.request("POST", "/api/v1/namespaces", namespace(SPACE))
    path, body = at("apps/v1", "deployments", quick(deployment(app)))
    access.request("POST", path, body)
    auditor = Auditor(access)
    with auditor.watching():
        run = await carried_out(
            tmp_path / "run",
            own_rights(access),
            strikes=Strikes(chaos=Arrivals(access, f"{path}/crowd")),
            sold=("e2-standard-4",),
        )
        zones = Counter(
            one["metadata"]["labels"]["topology.kubernetes.io/zone"] for one in auditor.now["Node"].values()
        )
    booted = [node for plan in run.progress.accepted.values() for node in plan.nodes if node.action == "boot"]
    assert zones.total() == -(-PODS // PER_NODE)
    assert len(booted) == zones.total() - len(STARTING_ZONES)
    assert max(zones.values()) - min(zones.values()) <= 1, zones
    assert violations(run.history) == ()
    assert auditor.flaws == []
    assert [left for left in auditor.leftovers() if "spec.replicas" not in left] == []  # the replicas are ours
