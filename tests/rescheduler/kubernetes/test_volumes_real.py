"""Volumes on a real control plane: its attach-detach controller, and a driver that is slow to detach."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.capabilities import ATTACHMENTS
from tests.rescheduler.plane_world import PlaneWorld, plane_world
from tests.support.plans import plan_for

from kinema_core.events import ExecutionCompleted, Offer, Plan
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.plan.limits import Limits

pytestmark = [pytest.mark.cluster, pytest.mark.long]

DRIVER: Final = "disk.example.com"
KINEMA_PREFIX: Final = "disk-example-com/attacher"
"""The driver's finalizer: as long as it is there the volume is attached."""
LOOKS: Final = 12
"""How many looks, a second apart, a detachment takes."""


class Attacher:
    """What a CSI driver's attacher does: confirms attachments at once, and ends them slowly.

    Beside that it notes nodes that are gone while a volume is still attached to them.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._over = threading.Event()
        self._looks: dict[str, int] = {}
        self.attached: set[str] = set()
        """Nodes that had a volume at some time."""
        self.detached: set[str] = set()
        """Nodes that have let go of one."""
        self.torn: set[str] = set()
        """Nodes that were gone before."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Confirm nothing any more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(1.0):
            for item in self._access.request("GET", ATTACHMENTS)["items"]:
                self._handle(item)

    def _handle(self, item: Any) -> None:
        meta, node = item["metadata"], item["spec"]["nodeName"]
        path = f"{ATTACHMENTS}/{meta['name']}"
        self.attached.add(node)
        if not self._access.answers(f"/api/v1/nodes/{node}"):
            self.torn.add(node)
        if "deletionTimestamp" not in meta:
            if KINEMA_PREFIX not in meta.get("finalizers", []):
                self._patch(path, {"metadata": {"finalizers": [KINEMA_PREFIX]}})
                self._patch(f"{path}/status", {"status": {"attached": True}})
            return
        self._looks[meta["name"]] = self._looks.get(meta["name"], 0) + 1
        if self._looks[meta["name"]] >= LOOKS:
            self.detached.add(node)
            self._patch(path, {"metadata": {"finalizers": None}})

    def _patch(self, path: str, body: Any) -> None:
        self._access.request("PATCH", path, body, content_type="application/merge-patch+json")


LIMITS: Final = Limits(node_ready_seconds=120, pods_ready_seconds=180, retry_seconds=1)


@contextmanager
def attacher(access: Access) -> Iterator[Attacher]:
    """A driver for as long as a test takes."""
    running = Attacher(access)
    try:
        yield running
    finally:
        running.close()


def store(world: PlaneWorld, replicas: int) -> None:
    """A StatefulSet of which each pod has a volume of its own, and wait until all are attached."""
    for index in range(replicas):
        claim = {"name": f"data-db-{index}", "namespace": world.namespace}
        source = {"driver": DRIVER, "volumeHandle": f"disk-{index}"}
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": source, "claimRef": claim}
        body = {"metadata": {"name": f"{world.namespace}-{index}"}, "spec": spec}
        world.access.request("POST", "/api/v1/persistentvolumes", body)
    wanted = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    world.run("StatefulSet", "db", replicas, claims=[{"metadata": {"name": "data"}, "spec": wanted}])
    world.access.until(ATTACHMENTS, lambda found: attached(found) == replicas)


def attached(found: Any) -> int:
    """How many volumes are attached."""
    return sum(bool((item.get("status") or {}).get("attached")) for item in found["items"])


@contextmanager
def volumes_for_a_while(access: Access, namespace: str) -> Iterator[None]:
    """Takes volumes away at the end."""
    yield
    for item in access.request("GET", "/api/v1/persistentvolumes")["items"]:
        if item["spec"]["claimRef"]["namespace"] == namespace:
            access.request("DELETE", f"/api/v1/persistentvolumes/{item['metadata']['name']}")


async def test_a_node_goes_when_its_volumes_have_gone(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Pods of a StatefulSet move; their old nodes are deleted when the driver has detached their volumes."""
    access = control_plane.admin
    with (
        volumes_for_a_while(access, "detaching"),
        plane_world(access, tmp_path, "detaching", "old-1", "old-2", "old-3") as world,
        attacher(access) as driver,
    ):
        for name in ("old-1", "old-2", "old-3"):  # else the controller attaches nothing to it
            meta = {"metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}
            access.request("PATCH", f"/api/v1/nodes/{name}", meta, content_type="application/merge-patch+json")
        store(world, 3)
        left = set(world.where("db")) - {"old-1"}

        def plan(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
            moving = {pod.key: "old-1" for pod in cluster.pods if pod.node != "old-1"}
            return plan_for(cluster, offers, to=moving, delete=("old-2", "old-3"))

        end = await world.carry_out(plan, limits=LIMITS, real_seconds=400)
        assert isinstance(end, ExecutionCompleted), world.failures()
        assert set(world.where("db")) == {"old-1"}, world.failures()
        assert left
        assert driver.attached == {"old-1", *left}
        assert driver.detached == left
        assert driver.torn == set()
        assert any(" attached " in failure for failure in world.failures())
        assert world.marks_left() == []
