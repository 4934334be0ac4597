"""A generated cluster set up on a real control plane: its nodes, its workloads, and every pod where the start says.

While pods are made kube-scheduler is held, and each is bound by hand: the same seed gives the same start.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.controlplane.nodes import node as node_object
from tests.controlplane.plane import ControlPlane
from tests.e2e.shop import at

from benchmarks.clusters import CAPACITY, HOSTNAME, NAMESPACE, TYPE, ZONE
from benchmarks.starts import MEBIBYTE, Start
from kinema_core.events import DisruptionBudget, Node, Workload
from kinema_core.model.cluster import Cluster, all_objects
from kinema_kubernetes.objects import annotations_of, pod_ready
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_sim.engine.objects import is_true
from kinema_sim.scenarios.objects import App, deployment, namespace, pdb

JSON = dict[str, Any]

_SIDE_BY_SIDE: Final = 32
_PATIENCE: Final = 1800.0
"""Seconds until all pods have to be there, or Ready."""
_GRACE_SECONDS: Final = 30
"""Grace period of a pod in Kubernetes, where its spec has none."""
_LOOK_SECONDS: Final = 2.0


async def stand(plane: ControlPlane, start: Start, folder: Path) -> None:
    """Set the cluster up, and return when every pod is Ready on its node.

    Raises:
        TimeoutError: they are not, after half an hour. EffectError: the API server refuses something.
    """
    api = await connect(str(plane.admin.write_kubeconfig(folder / "standing.kubeconfig")), timeout_seconds=60.0)
    try:
        with _held(plane):
            nodes = [item for item in all_objects(start.cluster) if isinstance(item, Node)]
            await gathered(api.create("/api/v1/nodes", _node(item)) for item in nodes)
            await _nodes_ready(api, len(nodes))
            await api.create("/api/v1/namespaces", namespace(NAMESPACE))
            await gathered(api.create(path, body) for path, body in workloads(start.cluster))
            await _bound(api, start)
        await ready(api, len(start.cluster.pods))
    finally:
        await api.close()


@contextmanager
def _held(plane: ControlPlane) -> Iterator[None]:
    scheduler = plane.servers["kube-scheduler"]
    scheduler.pause()
    try:
        yield
    finally:
        scheduler.resume()


async def gathered(calls: Iterable[Awaitable[object]]) -> None:
    """So many at a time."""
    free = asyncio.Semaphore(_SIDE_BY_SIDE)

    async def one(call: Awaitable[object]) -> None:
        async with free:
            await call

    await asyncio.gather(*(one(call) for call in calls))


def _node(item: Node) -> JSON:
    amounts = item.allocatable
    return node_object(
        item.name,
        cpu=f"{amounts['cpu']}m",
        memory=str(amounts["memory"]),
        pods=str(amounts["pods"]),
        zone=item.labels[ZONE],
        machine=item.labels[TYPE],
        labels={CAPACITY: "on-demand", **item.labels},
    )


def workloads(cluster: Cluster) -> Iterator[tuple[str, JSON]]:
    """Deployments and budgets, and where they are posted to."""
    for item in all_objects(cluster):
        if isinstance(item, Workload) and item.type == "Deployment":
            made = deployment(_app(item))
            if item.template_rules.anti_affinity:
                term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": item.name}}}
                apart = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
                made["spec"]["template"]["spec"]["affinity"] = {"podAntiAffinity": apart}
            yield at("apps/v1", "deployments", made)
        elif isinstance(item, DisruptionBudget):
            app = App(item.name, NAMESPACE, "", cpu_m=0, memory_mi=0)
            yield at("policy/v1", "poddisruptionbudgets", pdb(app, maxUnavailable=int(item.max_unavailable or 0)))


def _app(item: Workload) -> App:
    return App(
        item.name,
        NAMESPACE,
        f"example/{item.name}:1",
        cpu_m=item.template_requests["cpu"],
        memory_mi=item.template_requests["memory"] // MEBIBYTE,
        replicas=item.replicas,
        annotations=dict(item.annotations),
        grace_seconds=_GRACE_SECONDS,
    )


async def _bound(api: FencedClient, start: Start) -> None:
    """Bind every pod as soon as its controller has made it."""
    places: defaultdict[str, list[tuple[str, Mapping[str, str]]]] = defaultdict(list)
    for pod in sorted(start.cluster.pods, key=lambda one: one.key):
        assert pod.node is not None  # a start has no pending pod
        places[pod.labels["app"]].append((pod.node, pod.annotations))
    left = len(start.cluster.pods)
    seen: set[str] = set()
    end = time.monotonic() + _PATIENCE
    while left:
        pods = [pod for pod in await _pods(api, "spec.nodeName=") if pod["metadata"]["uid"] not in seen]
        seen.update(pod["metadata"]["uid"] for pod in pods)
        await gathered(_bind(api, pod, *places[pod["metadata"]["labels"]["app"]].pop()) for pod in pods)
        left -= len(pods)
        if time.monotonic() > end:
            raise TimeoutError(f"{left} pods were not made")
        await asyncio.sleep(_LOOK_SECONDS)


async def _bind(api: FencedClient, pod: JSON, node: str, annotations: Mapping[str, str]) -> None:
    name = pod["metadata"]["name"]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
    if annotations:
        await api.patch(path, {"metadata": {"annotations": {**annotations_of(pod), **annotations}}})
    await api.create(f"{path}/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}})


async def ready(api: FencedClient, count: int) -> None:
    """Wait for it; the API server tells only of those that do not run yet, as ten thousand are much to read."""
    end = time.monotonic() + _PATIENCE
    while await _pods(api, "status.phase!=Running") or sum(map(pod_ready, await _pods(api))) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"not all of {count} pods are Ready")
        await asyncio.sleep(_LOOK_SECONDS)


async def _nodes_ready(api: FencedClient, count: int) -> None:
    """Wait for it: KWOK overlooks pods that are bound to a node before it plays that node's kubelet."""
    end = time.monotonic() + _PATIENCE
    while sum(is_true(one, "Ready") for one in await api.items("/api/v1/nodes")) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"not all of {count} nodes are Ready")
        await asyncio.sleep(_LOOK_SECONDS)


async def _pods(api: FencedClient, which: str = "") -> list[JSON]:
    query = {"fieldSelector": which} if which else {}
    return await api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", **query)
