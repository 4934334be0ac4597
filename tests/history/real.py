"""A random cluster on a real control plane: planned, judged and rescheduled by the product, watched from outside."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.controlplane.access import Access, RefusedError
from tests.controlplane.nodes import QUICK, add_nodes, node
from tests.controlplane.plane import ControlPlane
from tests.controlplane.webhook import rewriting
from tests.e2e.auditor import Auditor
from tests.e2e.follower import Follower
from tests.e2e.shop import quick
from tests.history.environment import Environment, Sidecar, Write, completed, counted, labeled, price, steps_of
from tests.history.plan_step import accepted, history_of, planned, rest_accepted
from tests.history.random_clusters import KEEP, Machine, RandomCluster
from tests.history.verdict import NothingToDoError, UnsettledError, Verdict, verdict_on
from tests.rescheduler.plane_world import PlaneWorld

from kinema_core.events import ExecutionAborted, ExecutionCompleted, Plan, is_unfinished
from kinema_core.runtime.clock import SystemClock
from kinema_observer.adapters.source import RESOURCES
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.providers.base import Provider
from kinema_rescheduler.providers.kwok import KwokProvider
from kinema_rescheduler.settings import KwokSettings
from kinema_sim.cloud.machines import load_offers
from kinema_sim.controllers.kubelet import STOP_SECONDS

_PATHS: Final = {
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
}
_CLUSTER_PATHS: Final = {
    "Node": "/api/v1/nodes",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}
"""Kinds without a namespace."""
_CORE: Final = {
    "ConfigMap": "configmaps",
    "LimitRange": "limitranges",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "ResourceQuota": "resourcequotas",
}
_PACE: Final = 8
"""Seconds of the simulated cluster in one of a real one, whose pods start and end sooner."""
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
"""For each execution."""
_REST_SECONDS: Final = 40
"""How long the observer may take to ask for the rest of a plan."""
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

    def objects(self) -> Iterable[tuple[str, Any]]:
        """All that the observer reads; pods last, as the world's own list has them."""
        for resource in sorted(RESOURCES, key=lambda one: one.kind == "Pod"):
            with suppress(RefusedError):  # a kind that this cluster does not have
                for item in self.access.request("GET", resource.path)["items"]:
                    yield resource.kind, item

    def provider(self, api: FencedClient, fence: Fence) -> Provider:
        """KWOK's nodes, which register a second after their order."""
        return KwokProvider(api, KwokSettings(catalog=str(self.catalog), boot_seconds=1), self.clock)

    async def goes_on(self, end: ExecutionCompleted | ExecutionAborted) -> bool:
        """Whether what this end has left was asked for, planned and accepted."""
        if not is_unfinished(end):
            return False
        deadline = self.clock.now() + timedelta(seconds=_REST_SECONDS)
        while self.clock.now() < deadline:
            await asyncio.sleep(self.look_seconds)
            await self.observe()
            assert self._seen is not None
            goes_on = await rest_accepted(self.bus, self._seen, self.clock.now(), name=self.name)
            if goes_on is not None:
                return goes_on
        return False

    async def _accept(self, plan: Plan) -> None:
        assert self._seen is not None
        self.plan = plan
        if not await accepted(self.bus, plan, self._seen, self.clock.now(), name=self.name):
            raise NothingToDoError


def carried_out(plane: ControlPlane, cluster: RandomCluster, directory: Path) -> Verdict:
    """Plan and carry out.

    Raises:
        NothingToDoError, UnsettledError: it says nothing about the product.
    """
    began = time.monotonic()
    access, space = plane.admin, f"plans-{cluster.seed}"
    world = _RandomWorld(access, directory, space)
    with _webhook(plane, cluster.environment), _cluster(access, cluster, space):
        auditor = Auditor(Follower(access, turn_seconds=1), (KEEP,), others=cluster.environment.others)
        end = None
        with auditor.watching():
            with suppress(TimeoutError), _others_write(access, cluster.environment.writes):
                end = asyncio.run(_rescheduled(world))
            time.sleep(0.5)  # the last changes are still being told
        assert world.plan is not None
        return verdict_on(
            cluster.seed,
            history=history_of(world.bus, auditor),
            auditor=auditor,
            plan=world.plan,
            end=end,
            cost=_cost(auditor, cluster),
            seconds=time.monotonic() - began,
            features=cluster.environment.features,
        )


async def _rescheduled(world: _RandomWorld) -> Any:
    now = world.clock.now
    return await world.carry_out(
        lambda seen, offers: planned(seen, offers, now()), limits=_LIMITS, real_seconds=_MOST_SECONDS
    )


@contextmanager
def _others_write(access: Access, writes: Iterable[Write]) -> Iterator[None]:
    """Do what other clients do, within the block."""
    over = threading.Event()

    def run() -> None:
        began = time.monotonic()
        for one in sorted(writes, key=lambda each: each.second):
            if over.wait(max(0.0, began + one.second / _PACE - time.monotonic())):
                return
            with suppress(RefusedError, OSError):
                pods = access.request("GET", "/api/v1/pods")["items"] if one.each else []
                for each in steps_of(one, pods, f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ}"):
                    _write(access, each)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _write(access: Access, one: Write) -> None:
    place = _collection(one.kind, one.namespace)
    if one.create:
        access.request("POST", place, quick(one.body))
        return
    path = f"{place}/{one.name}{f'/{one.part}' if one.part else ''}"
    access.request("PATCH", path, one.body, content_type="application/merge-patch+json")


def _collection(kind: str, space: str) -> str:
    """Path of the objects of a kind, in a namespace where they are in one."""
    if kind in _CLUSTER_PATHS:
        return _CLUSTER_PATHS[kind]
    if kind in _CORE:
        return f"/api/v1/namespaces/{space}/{_CORE[kind]}"
    version, plural = _PATHS[kind]
    return f"/apis/{version}/namespaces/{space}/{plural}"


@contextmanager
def _webhook(plane: ControlPlane, around: Environment) -> Iterator[None]:
    """Let the environment's webhook rewrite new pods within the block, if it has one."""
    if around.sidecar == Sidecar():
        yield
        return
    with rewriting(plane, partial(completed, around)):
        yield


@contextmanager
def _cluster(access: Access, cluster: RandomCluster, space: str) -> Iterator[None]:
    around = cluster.environment
    spaces = sorted({item["metadata"]["namespace"] for _, item in cluster.objects} | {space})
    for name in spaces:
        access.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        add_nodes(access, *(_node(one, around) for one in cluster.machines))
        for name, patch in around.nodes.items():
            _write(access, Write(0, "Node", "", name, patch))
        for name in spaces:
            access.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda found: "metadata" in found)
        for kind, item in (*around.first, *cluster.objects):
            _make(access, kind, item)
        for name in spaces:
            _await_rest(access, name)
        for kind, item in around.last:
            pods = access.request("GET", f"/api/v1/namespaces/{item['metadata']['namespace']}/pods")["items"]
            _make(access, kind, counted(item, len(pods)))
        yield
    finally:
        _remove(access, spaces)
        for kind, item in around.first:
            if kind in _CLUSTER_PATHS:
                with suppress(RefusedError):
                    access.request("DELETE", f"{_CLUSTER_PATHS[kind]}/{item['metadata']['name']}")


def _make(access: Access, kind: str, item: dict[str, Any]) -> None:
    """Create an object; the random clusters' Jobs and bare pods as far as KWOK runs them."""
    if kind == "Job":
        return
    made = item
    if kind == "Pod":
        made = _paced({"spec": {"template": item}})["spec"]["template"]
    elif "template" in item.get("spec", {}):
        made = _paced(item)
    access.request("POST", _collection(kind, item["metadata"].get("namespace", "")), made)


def _paced(item: dict[str, Any]) -> dict[str, Any]:
    """Let its pods start quickly and end within their grace period, which is shorter by the pace; some use it up."""
    made = quick(item) if item["spec"]["template"]["spec"]["containers"][0]["resources"] else item
    template = made["spec"]["template"]
    annotations = template["metadata"].setdefault("annotations", {})
    annotations.update({key: annotations.get(key, value) for key, value in QUICK.items()})
    grace = math.ceil(template["spec"].get("terminationGracePeriodSeconds", 30) / _PACE)
    template["spec"]["terminationGracePeriodSeconds"] = grace
    if STOP_SECONDS in annotations:
        annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = f"{grace}s"
    return made


def _node(machine: Machine, around: Environment) -> dict[str, Any]:
    offer = _OFFERS[f"{machine.machine_type}/{machine.zone}/on-demand"]
    made = node(
        machine.name,
        zone=machine.zone,
        machine=machine.machine_type,
        cpu=f"{offer.allocatable[0]}m",
        memory=str(offer.allocatable[1]),
    )
    labeled(around, machine.name, made["metadata"]["labels"])
    return made


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


def _remove(access: Access, spaces: Iterable[str]) -> None:
    """Take everything away, and wait until no pod and no node is left for the next cluster to find."""
    for space in spaces:
        access.request("DELETE", f"/api/v1/namespaces/{space}")
        for version, plural in _PATHS.values():
            access.request("DELETE", f"/apis/{version}/namespaces/{space}/{plural}")
    for each in access.request("GET", "/api/v1/nodes")["items"]:
        with suppress(RefusedError):
            access.request("DELETE", f"/api/v1/nodes/{each['metadata']['name']}")
    with suppress(RefusedError):
        access.request("DELETE", "/api/v1/namespaces/kube-system/configmaps/kinema-steering")
    deadline = time.monotonic() + 60
    while (pods := access.request("GET", "/api/v1/pods")["items"]) and time.monotonic() < deadline:
        for pod in pods:
            with suppress(RefusedError):  # it is gone
                _end(access, pod)
        time.sleep(0.3)


def _end(access: Access, pod: dict[str, Any]) -> None:
    """Remove the finalizers of a pod and delete it without grace."""
    metadata = pod["metadata"]
    if metadata.get("finalizers"):
        _write(access, Write(0, "Pod", metadata["namespace"], metadata["name"], {"metadata": {"finalizers": None}}))
    path = f"{_collection('Pod', metadata['namespace'])}/{metadata['name']}"
    access.request("DELETE", f"{path}?gracePeriodSeconds=0")


def _cost(auditor: Auditor, cluster: RandomCluster) -> float:
    first = {one.name: f"{one.machine_type}/{one.zone}/on-demand" for one in cluster.machines}
    nodes = auditor.now["Node"].items()
    names = {key: first.get(key) or str(node["metadata"]["annotations"]["kinema.io/offer"]) for key, node in nodes}
    return sum(price(cluster.environment, key, _OFFERS[name].usd_micro / 10**6) for key, name in names.items())
