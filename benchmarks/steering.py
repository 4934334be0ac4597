"""Landing of steered pods: how many new pods kube-scheduler puts on their planned nodes, by its configuration.

    python -m benchmarks.steering [--scene default] [--fate killed] [--nodes 1000] [--workloads 60] [--out FILE]

API server, controllers and kube-scheduler are real; nodes are objects without a kubelet, because a landing ends with
the binding. Each workload asks for new pods, all planned on one node with room, as a surge does. A process of its own
leads them, as the rescheduler does; `--prefer` leaves that out.

A fate is what becomes of pods that cannot land as planned:

- `killed`: the planned nodes have no room, and the process that leads ends by SIGKILL once a pod was refused;
- `full`: the planned nodes have no room, and the process goes on;
- `burst`: an autoscaler asks for three times as many pods as the plan has;
- `priority`: the planned nodes are full of pods that the new ones could preempt.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.controlplane.nodes import node
from tests.controlplane.plane import ControlPlane, Options, running

from benchmarks.machine import write_result
from kinema_cli.admin.steering_policy import install
from kinema_core.events import Step
from kinema_core.runtime.clock import SystemClock
from kinema_kubernetes.objects import Json
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.kubernetes.landing import LandingKeeper
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.names import DISRUPTED, LANDING_NAME, RENEWED, STEERING_NAMESPACE
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
FATES: Final = ("killed", "full", "burst", "priority")
"""What keeps pods from landing as planned."""
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_FLAGS: Final = {
    # Without kubelets no node may become NotReady, and no node starts with the taint of one.
    "kube-apiserver": ["--disable-admission-plugins=TaintNodesByCondition"],
    "kube-controller-manager": ["--controllers=deployment-controller,replicaset-controller,serviceaccount-controller"],
}
_NAMESPACE: Final = "default"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments"
_NODE_CPU: Final = 4000
"""Millicores of a node, as `tests.controlplane.nodes` makes them."""
_POD_CPU: Final = 200
_ABREAST: Final = 16
"""Requests at a time."""
_LONGEST_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.5
_KEEP_SECONDS: Final = 0.3


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


def _deployment(name: str, replicas: int, priority: str) -> Json:
    labels = {"app": name}
    spec = {**_spec(_POD_CPU), **({"priorityClassName": priority} if priority else {})}
    template = {"metadata": {"labels": labels}, "spec": spec}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def _fill(api: FencedClient, size: Size, priority: str) -> list[str]:
    """Create nodes, pods that take different shares of them, and the workloads; return the nodes with room for a move.

    A scheduler that packs fills some nodes with the workloads' first pods: no plan would lead any more there.
    """
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
    workloads = [_deployment(f"web-{number}", size.replicas, priority) for number in range(size.workloads)]
    await _side_by_side(api.create(_DEPLOYMENTS, body) for body in workloads)
    used = Counter[str]()
    for pod in await _bound(api, len(fillers) + size.workloads * size.replicas):
        used[pod["spec"].get("nodeName", "")] += _cpu(pod)
    return [name for name in with_room if used[name] + size.moved * _POD_CPU <= _NODE_CPU]


async def _bound(api: FencedClient, count: int) -> list[Json]:
    """Return the pods once so many of them have a node, or the time is up."""
    end = time.monotonic() + _LONGEST_SECONDS
    while True:
        pods = await api.items(_PODS)
        if sum(1 for pod in pods if pod["spec"].get("nodeName")) >= count or time.monotonic() > end:
            return pods
        await asyncio.sleep(_LOOK_SECONDS)


def _steps(planned: Mapping[str, str], size: Size) -> tuple[Step, ...]:
    """Return the steps that publish where the new pods of these workloads are to go."""
    return tuple(
        Step(
            id=f"prefer-nodes/{name}/1",
            kind="prefer-nodes",
            target=f"Deployment/{_NAMESPACE}/{name}",
            nodes=(target,) * size.moved,
        )
        for name, target in planned.items()
    )


async def _keep(kubeconfig: str, steps: Sequence[Step]) -> None:
    api = await connect(kubeconfig)
    keeper = LandingKeeper(api, clock=SystemClock(), patience_seconds=Limits().landing_seconds)
    while True:
        await keeper.keep(steps)
        await asyncio.sleep(_KEEP_SECONDS)


def _lead(kubeconfig: str, steps: Sequence[Step]) -> None:
    """Lead new pods until the process is killed: entry point of a process."""
    asyncio.run(_keep(kubeconfig, steps))


@contextmanager
def _leading(kubeconfig: str, steps: Sequence[Step]) -> Iterator[SpawnProcess]:
    """Lead new pods within the block, in a process of its own."""
    process = get_context("spawn").Process(target=_lead, args=(kubeconfig, steps), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


async def _surge(
    api: FencedClient,
    planned: Mapping[str, str],
    size: Size,
    *,
    asked: int,
    led: bool = True,
    refused: Callable[[], None] | None = None,
) -> list[Json]:
    """Steer and scale up these workloads; return their new pods. `refused` is called once one was refused a node."""
    before = {pod["metadata"]["uid"] for pod in await api.items(_PODS)}
    writer = KubernetesWriter(api)
    for step in _steps(planned, size):
        await writer.perform(Order(step=step, plan="plan-1", iteration="it-1"))
    await asyncio.sleep(Limits().steer_seconds)
    if led:
        await _until_led(api)
    more = {"spec": {"replicas": size.replicas + asked}}
    await _side_by_side(api.patch(f"{_DEPLOYMENTS}/{name}", more) for name in planned)
    if refused is not None:
        await _until(api, before, 1, _was_refused)
        refused()
    pods = await _until(api, before, asked * len(planned), lambda pod: bool(pod["spec"].get("nodeName")))
    return [pod for pod in pods if pod["metadata"]["uid"] not in before]


async def _until_led(api: FencedClient) -> None:
    """Wait until the process that leads has begun."""
    path = f"/api/v1/namespaces/{STEERING_NAMESPACE}/configmaps/{LANDING_NAME}"
    while (await api.get(path)).get("data", {}).keys() <= {RENEWED}:  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(_KEEP_SECONDS)


def _was_refused(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(condition.get("reason") == "SchedulerError" for condition in conditions)


async def _until(api: FencedClient, before: set[str], count: int, holds: Callable[[Json], bool]) -> list[Json]:
    """Return all pods once so many new ones have a property, or the time is up."""
    end = time.monotonic() + _LONGEST_SECONDS
    while True:
        pods = await api.items(_PODS)
        new = [pod for pod in pods if pod["metadata"]["uid"] not in before]
        if sum(1 for pod in new if holds(pod)) >= count or time.monotonic() > end:
            return pods
        await asyncio.sleep(_LOOK_SECONDS)


def _bound_at(pod: Json) -> datetime | None:
    """Return when a pod was bound."""
    times = [
        condition["lastTransitionTime"]
        for condition in (pod.get("status") or {}).get("conditions") or []
        if condition["type"] == "PodScheduled" and condition["status"] == "True"
    ]
    return datetime.fromisoformat(times[0]) if times else None


def _waited(pod: Json) -> float:
    """Return the seconds from a pod's creation to its binding; they are whole, as Kubernetes stamps them."""
    bound = _bound_at(pod)
    created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    return (bound - created).total_seconds() if bound is not None else float("inf")


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


async def _ready_for_moves(plane: ControlPlane, size: Size, priority: str = "") -> tuple[FencedClient, str, list[str]]:
    """Return a connection, its kubeconfig and the nodes with room of a filled cluster, with the policies installed."""
    kubeconfig = str(plane.admin.write_kubeconfig(plane.folder / "benchmark.kubeconfig"))
    api = await connect(kubeconfig)
    await install(api.client)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LANDING_NAME}, "data": {RENEWED: ""}}
    await api.create(f"/api/v1/namespaces/{STEERING_NAMESPACE}/configmaps", body)
    if priority:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await api.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses", {**kind, "metadata": {"name": priority}, "value": 1000}
        )
    return api, kubeconfig, await _fill(api, size, priority)


async def _refusals(api: FencedClient) -> int:
    """Return how often kube-scheduler was refused a binding, as its Events count."""
    events = await api.items(f"/apis/events.k8s.io/v1/namespaces/{_NAMESPACE}/events")
    refused = [event for event in events if LANDING_NAME in (event.get("note") or "")]
    return sum((event.get("series") or {}).get("count", 1) for event in refused)


async def _measure(plane: ControlPlane, size: Size, *, prefer: bool) -> dict[str, object]:
    api, kubeconfig, with_room = await _ready_for_moves(plane, size)
    try:
        names = [f"web-{number}" for number in range(size.workloads)]
        found: list[tuple[Json, str]] = []
        for first in range(0, size.workloads, size.together):
            planned = {name: with_room[first + offset] for offset, name in enumerate(names[first:][: size.together])}
            with nullcontext() if prefer else _leading(kubeconfig, _steps(planned, size)):
                new = await _surge(api, planned, size, asked=size.moved, led=not prefer)
            found += [(pod, planned[pod["metadata"]["labels"]["app"]]) for pod in new]
        return {**_figures(found, size.workloads * size.moved), "refused_bindings": await _refusals(api)}
    finally:
        await api.close()


def measure_scene(scene: str, size: Size, *, prefer: bool = False) -> dict[str, object]:
    """Measure one configuration on a control plane of its own; `prefer`: no process leads the pods."""
    options = Options(only=PROGRAMS, flags=_FLAGS, scheduling=SCENES[scene])
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), options) as plane:
        return asyncio.run(_measure(plane, size, prefer=prefer))


async def _fate(plane: ControlPlane, size: Size, fate: str) -> dict[str, object]:
    api, kubeconfig, with_room = await _ready_for_moves(plane, size, "high" if fate == "priority" else "")
    try:
        planned = {f"web-{number}": with_room[number] for number in range(size.workloads)}
        if fate != "burst":
            await _side_by_side(_crowd(api, name) for name in planned.values())
        fillers = {pod["metadata"]["uid"] for pod in await api.items(_PODS)}
        killed: list[float] = []
        with _leading(kubeconfig, _steps(planned, size)) as process:

            def kill() -> None:
                process.kill()
                killed.append(SystemClock().now().timestamp())

            asked = size.moved * (3 if fate == "burst" else 1)
            new = await _surge(api, planned, size, asked=asked, refused=kill if fate == "killed" else None)
        left = {pod["metadata"]["uid"] for pod in await api.items(_PODS)}
        figures = _figures([(pod, planned[pod["metadata"]["labels"]["app"]]) for pod in new], asked * len(planned))
        if killed:
            ends = [end.timestamp() if (end := _bound_at(pod)) is not None else float("inf") for pod in new]
            figures["seconds_after_kill"] = round(max(ends) - killed[0], 1)
        return {
            **figures,
            "planned": size.moved * len(planned),
            "refused_bindings": await _refusals(api),
            "others_preempted": len(fillers - left),
            "nominated_still": sum(1 for pod in new if (pod.get("status") or {}).get("nominatedNodeName")),
            "required_terms": sum(1 for pod in new if "requiredDuring" in json.dumps(pod["spec"])),
        }
    finally:
        await api.close()


async def _crowd(api: FencedClient, name: str) -> None:
    """Fill a node, so that it takes no pod more."""
    pods = await api.items(_PODS, fieldSelector=f"spec.nodeName={name}")
    used = sum(_cpu(pod) for pod in pods)
    spec = {**_spec(_NODE_CPU - used - 100), "nodeName": name}
    await api.create(_PODS, {"metadata": {"name": f"crowd-{name}"}, "spec": spec})


def _cpu(pod: Json) -> int:
    return sum(int(one["resources"]["requests"]["cpu"].removesuffix("m")) for one in pod["spec"]["containers"])


def measure_fate(fate: str, size: Size) -> dict[str, object]:
    """Measure what becomes of pods that cannot land as planned."""
    options = Options(only=PROGRAMS, flags=_FLAGS)
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), options) as plane:
        return asyncio.run(_fate(plane, size, fate))


def main() -> None:
    """Entry point of `python -m benchmarks.steering`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", choices=tuple(SCENES), action="append", help="configuration; all without it")
    parser.add_argument("--fate", choices=FATES, action="append", help="what keeps pods from landing; all without it")
    parser.add_argument("--prefer", action="store_true", help="the planned nodes are only preferred; no fates")
    parser.add_argument("--nodes", type=int, default=Size.nodes)
    parser.add_argument("--workloads", type=int, default=Size.workloads)
    parser.add_argument("--out", type=Path, default=Path("out/bench/steering.json"))
    arguments = parser.parse_args()
    size = Size(nodes=arguments.nodes, workloads=arguments.workloads)
    every = not (arguments.scene or arguments.fate)
    found: dict[str, object] = {}
    for scene in SCENES if every else arguments.scene or ():
        found[scene] = measure_scene(scene, size, prefer=arguments.prefer)
        print(json.dumps({scene: found[scene]}), file=sys.stderr)
    for fate in FATES if every and not arguments.prefer else arguments.fate or ():
        found[fate] = measure_fate(fate, replace(size, workloads=size.together))
        print(json.dumps({fate: found[fate]}), file=sys.stderr)
    write_result("steering", found, arguments.out, nodes=size.nodes, with_room=size.with_room, led=not arguments.prefer)


if __name__ == "__main__":
    main()
