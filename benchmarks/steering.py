"""Landing of steered pods: how many new pods kube-scheduler puts on their planned nodes, by its configuration.

    python -m benchmarks.steering [--scene default] [--nodes 1000] [--workloads 60] [--out FILE]

API server, controllers and kube-scheduler are real; nodes are objects without a kubelet, because a landing ends with
the binding. Each workload asks for new pods, all planned on one node with room, as a surge does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.controlplane.nodes import node
from tests.controlplane.plane import ControlPlane, Options, running

from benchmarks.machine import write_result
from kinema_cli.admin.steering_policy import install
from kinema_core.events import Step
from kinema_kubernetes.objects import Json
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.names import DISRUPTED
from kinema_rescheduler.plan.limits import Limits

_FIT: Final = "NodeResourcesFit"
_RESOURCES: Final = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
_RATIO: Final = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
_SPREAD: Final = [
    {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
]


def _profile(plugin: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of a scheduler with one plugin's arguments."""
    config = [{"name": plugin, "args": dict(arguments)}]
    return {"profiles": [{"schedulerName": "default-scheduler", "pluginConfig": config}]}


SCENES: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "most-allocated": _profile(_FIT, {"scoringStrategy": {"type": "MostAllocated", "resources": _RESOURCES}}),
    "requested-to-capacity": _profile(
        _FIT,
        {
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "resources": _RESOURCES,
                "requestedToCapacityRatio": _RATIO,
            }
        },
    ),
    "default-constraints": _profile("PodTopologySpread", {"defaultConstraints": _SPREAD, "defaultingType": "List"}),
}
"""Configurations of kube-scheduler, by name."""
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_FLAGS: Final = {
    # Without kubelets no node may become NotReady, and no node starts with the taint of one.
    "kube-apiserver": ["--disable-admission-plugins=TaintNodesByCondition"],
    "kube-controller-manager": ["--controllers=deployment-controller,replicaset-controller,serviceaccount-controller"],
}
_NAMESPACE: Final = "default"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments"
_ABREAST: Final = 16
"""Requests at a time."""
_LONGEST_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Size:
    """Numbers of a measurement."""

    nodes: int = 1000
    with_room: float = 0.9
    workloads: int = 60
    replicas: int = 4
    moved: int = 3
    """Pods of a workload that move at once."""
    together: int = 20
    """Workloads that move at the same time."""


async def _side_by_side(work: Iterable[Awaitable[object]]) -> None:
    gate = asyncio.Semaphore(_ABREAST)

    async def one(item: Awaitable[object]) -> None:
        async with gate:
            await item

    await asyncio.gather(*(one(item) for item in work))


def _spec(cpu: int) -> Json:
    requests = {"cpu": f"{cpu}m", "memory": f"{cpu}Mi"}
    return {"containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}]}


def _deployment(name: str, replicas: int) -> Json:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _spec(200)}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def _fill(api: FencedClient, size: Size) -> list[str]:
    """Create nodes, pods that take different shares of them, and the workloads; return the nodes with room."""
    leaving = [{"key": DISRUPTED, "value": "it-1", "effect": "NoSchedule"}]
    names = [f"node-{number:04d}" for number in range(size.nodes)]
    Random(7).shuffle(names)
    with_room = names[: int(size.nodes * size.with_room)]
    bodies = [
        node(name, zone=f"zone-{'abc'[number % 3]}", taints=() if name in set(with_room) else leaving)
        for number, name in enumerate(names)
    ]
    await _side_by_side(api.create("/api/v1/nodes", body) for body in bodies)
    fillers: list[Json] = [
        {"metadata": {"name": f"filler-{number}"}, "spec": {**_spec(400 * (number % 5) + 100), "nodeName": name}}
        for number, name in enumerate(with_room)
    ]
    await _side_by_side(api.create(_PODS, body) for body in fillers)
    workloads = [_deployment(f"web-{number}", size.replicas) for number in range(size.workloads)]
    await _side_by_side(api.create(_DEPLOYMENTS, body) for body in workloads)
    await _bound(api, len(fillers) + size.workloads * size.replicas)
    return with_room


async def _bound(api: FencedClient, count: int) -> list[Json]:
    """Return the pods once so many of them have a node, or the time is up."""
    end = time.monotonic() + _LONGEST_SECONDS
    while True:
        pods = await api.items(_PODS)
        if sum(1 for pod in pods if pod["spec"].get("nodeName")) >= count or time.monotonic() > end:
            return pods
        await asyncio.sleep(_LOOK_SECONDS)


async def _surge(api: FencedClient, writer: KubernetesWriter, planned: Mapping[str, str], size: Size) -> list[Json]:
    """Steer and scale up these workloads; return their new pods."""
    before = {pod["metadata"]["uid"] for pod in await api.items(_PODS)}
    for name, target in planned.items():
        step = Step(
            id=f"prefer-nodes/{name}",
            kind="prefer-nodes",
            target=f"Deployment/{_NAMESPACE}/{name}",
            nodes=(target,),
        )
        await writer.perform(Order(step=step, plan="plan-1", iteration="it-1"))
    await asyncio.sleep(Limits().steer_seconds)
    more = {"spec": {"replicas": size.replicas + size.moved}}
    await _side_by_side(api.patch(f"{_DEPLOYMENTS}/{name}", more) for name in planned)
    pods = await _bound(api, len(before) + size.moved * len(planned))
    return [pod for pod in pods if pod["metadata"]["uid"] not in before]


def _waited(pod: Json) -> float:
    """Return the seconds from a pod's creation to its binding; they are whole, as Kubernetes stamps them."""
    times = [
        condition["lastTransitionTime"]
        for condition in (pod.get("status") or {}).get("conditions") or []
        if condition["type"] == "PodScheduled" and condition["status"] == "True"
    ]
    created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    return (datetime.fromisoformat(times[0]) - created).total_seconds() if times else float("inf")


def _figures(pods: Sequence[tuple[Json, str]], asked: int) -> dict[str, object]:
    """Return what became of the pods, each with its planned node."""
    landed = sum(1 for pod, planned in pods if pod["spec"].get("nodeName") == planned)
    bound = sum(1 for pod, _ in pods if pod["spec"].get("nodeName"))
    waits = sorted(_waited(pod) for pod, _ in pods if pod["spec"].get("nodeName"))
    return {
        "asked": asked,
        "bound": bound,
        "landed": landed,
        "landed_percent": round(100 * landed / asked, 1),
        "wait_seconds": {
            "median": waits[len(waits) // 2] if waits else None,
            "p99": waits[len(waits) * 99 // 100] if waits else None,
            "most": waits[-1] if waits else None,
        },
    }


async def _measure(plane: ControlPlane, size: Size) -> dict[str, object]:
    api = await connect(str(plane.admin.write_kubeconfig(plane.folder / "benchmark.kubeconfig")))
    try:
        await install(api.client)
        with_room = await _fill(api, size)
        writer = KubernetesWriter(api)
        names = [f"web-{number}" for number in range(size.workloads)]
        found: list[tuple[Json, str]] = []
        for first in range(0, size.workloads, size.together):
            planned = {name: with_room[first + offset] for offset, name in enumerate(names[first:][: size.together])}
            new = await _surge(api, writer, planned, size)
            found += [(pod, planned[pod["metadata"]["labels"]["app"]]) for pod in new]
        return _figures(found, size.workloads * size.moved)
    finally:
        await api.close()


def measure_scene(scene: str, size: Size) -> dict[str, object]:
    """Measure one configuration on a control plane of its own."""
    options = Options(only=PROGRAMS, flags=_FLAGS, scheduling=SCENES[scene])
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), options) as plane:
        return asyncio.run(_measure(plane, size))


def main() -> None:
    """Entry point of `python -m benchmarks.steering`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", choices=tuple(SCENES), action="append", help="configuration; all without it")
    parser.add_argument("--nodes", type=int, default=Size.nodes)
    parser.add_argument("--workloads", type=int, default=Size.workloads)
    parser.add_argument("--out", type=Path, default=Path("out/bench/steering.json"))
    arguments = parser.parse_args()
    size = Size(nodes=arguments.nodes, workloads=arguments.workloads)
    found: dict[str, object] = {}
    for scene in arguments.scene or SCENES:
        found[scene] = measure_scene(scene, size)
        print(json.dumps({scene: found[scene]}), file=sys.stderr)
    write_result("steering", found, arguments.out, nodes=size.nodes, with_room=size.with_room)


if __name__ == "__main__":
    main()
