"""A random cluster on a real control plane: planned, judged and rescheduled by the product, watched from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.controlplane.access import Access, RefusedError
from tests.controlplane.nodes import add_nodes, node
from tests.e2e.auditor import Auditor
from tests.e2e.follower import Follower
from tests.e2e.shop import at, quick
from tests.history.plan_step import accepted, history_of, planned
from tests.history.random_clusters import KEEP, Machine, RandomCluster
from tests.history.verdict import NothingToDoError, UnsettledError, Verdict, verdict_on
from tests.rescheduler.plane_world import PlaneWorld

from kinema_core.events import Plan
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.providers.base import Provider
from kinema_rescheduler.providers.kwok import KwokProvider
from kinema_rescheduler.settings import KwokSettings
from kinema_sim.cloud.machines import load_offers

_PATHS: Final = {
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
}
_LIMITS: Final = Limits(
    blocked_seconds=30,
    pods_ready_seconds=60,
    evict_seconds=90,
    roll_seconds=90,
    terminating_seconds=60,
    retry_seconds=1,
    steer_seconds=1,
)
_SETTLE_SECONDS: Final = 40
_MOST_SECONDS: Final = 300
_OFFERS: Final = {offer.name: offer for offer in load_offers()}


class _RandomWorld(PlaneWorld):
    """Sells what the simulated cloud sells, and asks optimizer and decider."""

    def __init__(self, access: Access, directory: Path, namespace: str) -> None:
        super().__init__(access, directory, namespace)
        rows = [
            (one.machine_type, one.zone, one.vcpus, f"{one.memory_bytes / 2**30:g}", f"{one.usd_micro / 10**6:.6f}")
            for one in _OFFERS.values()
        ]
        lines = ["machine_type,zone,vcpus,memory_gib,usd_per_hour", *(",".join(map(str, row)) for row in rows)]
        self.catalog.write_text("\n".join(lines) + "\n")
        self.plan: Plan | None = None

    def provider(self, api: FencedClient, fence: Fence) -> Provider:
        """KWOK's nodes, which register a second after their order."""
        return KwokProvider(api, KwokSettings(catalog=str(self.catalog), boot_seconds=1), self.clock)

    async def _accept(self, plan: Plan) -> None:
        assert self._seen is not None
        self.plan = plan
        if not await accepted(self.bus, plan, self._seen, self.clock.now(), name=self.name):
            raise NothingToDoError


def carried_out(access: Access, cluster: RandomCluster, directory: Path) -> Verdict:
    """Plan and carry out.

    Raises:
        NothingToDoError, UnsettledError: it says nothing about the product.
    """
    began = time.monotonic()
    space = f"plans-{cluster.seed}"
    world = _RandomWorld(access, directory, space)
    with _cluster(access, cluster, space):
        auditor = Auditor(Follower(access, turn_seconds=1), (KEEP,))
        end = None
        with auditor.watching():
            with suppress(TimeoutError):
                end = asyncio.run(_rescheduled(world))
            time.sleep(0.5)  # the last changes are still being told
        assert world.plan is not None
        return verdict_on(
            cluster.seed,
            history=history_of(world.bus, auditor),
            auditor=auditor,
            plan=world.plan,
            end=end,
            cost=_cost(auditor),
            seconds=time.monotonic() - began,
        )


async def _rescheduled(world: _RandomWorld) -> Any:
    now = world.clock.now
    return await world.carry_out(
        lambda seen, offers: planned(seen, offers, now()), limits=_LIMITS, real_seconds=_MOST_SECONDS
    )


@contextmanager
def _cluster(access: Access, cluster: RandomCluster, space: str) -> Iterator[None]:
    access.request("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    try:
        add_nodes(access, *map(_node, cluster.machines))
        access.until(f"/api/v1/namespaces/{space}/serviceaccounts/default", lambda found: "metadata" in found)
        for kind, item in cluster.objects:
            if kind == "Pod":
                access.request(
                    "POST", f"/api/v1/namespaces/{space}/pods", quick({"spec": {"template": item}})["spec"]["template"]
                )
            elif kind in _PATHS:
                made = quick(item) if "template" in item["spec"] else item
                access.request("POST", at(*_PATHS[kind], made)[0], made)
        _await_rest(access, space)
        yield
    finally:
        _remove(access, space)


def _node(machine: Machine) -> dict[str, Any]:
    offer = _OFFERS[f"{machine.machine_type}/{machine.zone}/on-demand"]
    return node(
        machine.name,
        zone=machine.zone,
        machine=machine.machine_type,
        cpu=f"{offer.allocatable[0]}m",
        memory=str(offer.allocatable[1]),
    )


def _await_rest(access: Access, space: str) -> None:
    """Wait until every pod is Ready and every controller has all its pods."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not all(_whole(one) for kind in ("deployments", "statefulsets") for one in _items(access, space, kind)):
        if time.monotonic() > deadline:
            raise UnsettledError
        time.sleep(0.3)
    time.sleep(1.0)  # daemon sets, bare pods and budgets are as quick


def _items(access: Access, space: str, kind: str) -> list[Any]:
    found: list[Any] = access.request("GET", f"/apis/apps/v1/namespaces/{space}/{kind}")["items"]
    return found


def _whole(workload: Any) -> bool:
    wanted, status = workload["spec"]["replicas"], workload.get("status", {})
    return bool(status.get("readyReplicas", 0) == status.get("replicas", 0) == wanted)


def _remove(access: Access, space: str) -> None:
    """Take everything away, and wait until no pod and no node is left for the next cluster to find."""
    access.request("DELETE", f"/api/v1/namespaces/{space}")
    for version, plural in _PATHS.values():
        access.request("DELETE", f"/apis/{version}/namespaces/{space}/{plural}")
    for each in access.request("GET", "/api/v1/nodes")["items"]:
        with suppress(RefusedError):
            access.request("DELETE", f"/api/v1/nodes/{each['metadata']['name']}")
    with suppress(RefusedError):
        access.request("DELETE", "/api/v1/namespaces/kube-system/configmaps/kinema-steering")
    deadline = time.monotonic() + 60
    while access.request("GET", "/api/v1/pods")["items"] and time.monotonic() < deadline:
        access.request("DELETE", f"/api/v1/namespaces/{space}/pods?gracePeriodSeconds=0")
        time.sleep(0.3)


def _cost(auditor: Auditor) -> float:
    labels = [one["metadata"]["labels"] for one in auditor.now["Node"].values()]
    names = [
        f"{each['node.kubernetes.io/instance-type']}/{each['topology.kubernetes.io/zone']}/on-demand" for each in labels
    ]
    return sum(_OFFERS[name].usd_micro for name in names) / 10**6
