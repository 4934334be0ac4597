"""A whole pipeline on the small `strategies` cluster, with something done to it while it works."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from kinema_cli.demo import CLUSTER, DemoOptions, SimulatorAddress, simulator_child, start_pipeline
from kinema_cli.pipeline import LocalPipeline
from kinema_cli.processes import first_line
from kinema_cli.progress import Progress
from kinema_cli.record_command import record_to
from kinema_cli.recording import Recording, read
from kinema_cli.report.data import ReportData
from kinema_cli.report.from_run import run_report
from kinema_cli.report.history import read_history
from kinema_cli.simulator import Simulator
from kinema_core.runtime.bus import BusError, Stored

SPEED: Final = 30.0
SECONDS: Final = 150.0
"""Real seconds until a run counts as stuck."""
MARKS: Final = "kinema.io/"
OWNERS_MARKS: Final = ("kinema.io/adjustment", "kinema.io/strategy")
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

Chaos = Callable[[LocalPipeline, Progress], Awaitable[bool]]
"""Called at every turn until it says True: it has done what it came for."""


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    nodes: tuple[str, ...]
    """Machine types of the nodes at the end, sorted."""
    leftovers: tuple[str, ...]
    """Marks of ours that are still on an object."""
    machines_ever: Mapping[str, int]
    """Machine type → machines that were ever paid for."""
    pods_created: Mapping[str, int]
    """Workload → pods created since the pipeline began."""
    report: ReportData
    recording: Recording
    struck: bool
    """Whether what was to be done to the pipeline was done."""


async def run_strategies(
    directory: Path,
    *,
    fault: tuple[str, str] | None = None,
    chaos: Chaos | None = None,
    seconds: float = SECONDS,
) -> Outcome:
    """Run the pipeline until it has settled.

    Args:
        directory: where everything it writes goes.
        fault: service and fault point at which its first process kills itself.
        chaos: something else to do to it.
        seconds: real seconds after which it counts as stuck.
    """
    options = DemoOptions(out=directory, speed=SPEED, scenario="strategies", timeout=seconds)
    child = simulator_child(options)
    pipeline: LocalPipeline | None = None
    try:
        await child.start(read_output=True)
        address = msgspec.json.decode(await first_line(child, 60), type=SimulatorAddress)
        simulator = Simulator(address.url)
        environment = {fault[0]: {"KINEMA_FAULT": fault[1]}} if fault else {}
        pipeline = await start_pipeline(options, simulator, environment=environment)
        struck = await _follow(pipeline, fault, chaos, seconds)
        # The last word of the plan is out; let the cluster come to rest before it is looked at.
        await asyncio.sleep(1)
        history = await simulator.history()
        await record_to(pipeline.bus, cluster=CLUSTER, out=options.recording)
        objects = await _objects(address.url)
    finally:
        if pipeline is not None:
            await pipeline.stop()
        await child.stop()
    recording = read(options.recording)
    return Outcome(
        nodes=tuple(
            sorted(item["metadata"]["labels"]["node.kubernetes.io/instance-type"] for item in objects["nodes"])
        ),
        leftovers=_leftovers(objects),
        machines_ever=_machines(history),
        pods_created=_created(history, recording),
        report=run_report(
            [item.event for item in recording.state],
            [item.event for item in recording.log],
            read_history(history),
            title="test",
        ),
        recording=recording,
        struck=struck,
    )


async def _follow(pipeline: LocalPipeline, fault: tuple[str, str] | None, chaos: Chaos | None, seconds: float) -> bool:
    progress, position, struck = Progress(), 0, False
    deadline = time.monotonic() + seconds
    while not (progress.settled and (struck or not (fault or chaos))):
        if time.monotonic() > deadline:
            tails = "\n".join(f"{name}: {child.tail(2)}" for name, child in pipeline.supervisor.children.items())
            message = f"not settled, waiting {progress.waiting}; struck: {struck}\n{tails}"
            raise AssertionError(message)
        if fault is not None and not struck:
            struck = _disarm_after_death(pipeline, fault[0])
        if chaos is not None and not struck:
            struck = await chaos(pipeline, progress)
        with contextlib.suppress(BusError):
            async for item in pipeline.bus.read("LOG", start=position + 1):
                position = item.sequence
                if isinstance(item, Stored):
                    progress.fold(item.event)
        await asyncio.sleep(0.05)
    return struck


def _disarm_after_death(pipeline: LocalPipeline, service: str) -> bool:
    """Once the armed process is dead, the one that follows it gets no fault: each point is struck once."""
    child = pipeline.supervisor.children[service]
    if child.process is not None and child.process.returncode is not None and child.process.returncode < 0:
        child.environment = {key: value for key, value in child.environment.items() if key != "KINEMA_FAULT"}
        return True
    return False


async def _objects(url: str) -> dict[str, Sequence[dict[str, Any]]]:
    paths = {
        "nodes": "/api/v1/nodes",
        "pods": "/api/v1/pods",
        "deployments": "/apis/apps/v1/deployments",
        "configmaps": "/api/v1/configmaps",
    }
    async with aiohttp.ClientSession() as session:
        found = {}
        for name, path in paths.items():
            async with session.get(url + path) as reply:
                found[name] = (await reply.json())["items"]
        return found


def _leftovers(objects: Mapping[str, Sequence[dict[str, Any]]]) -> tuple[str, ...]:
    left: list[str] = []
    for node in objects["nodes"]:
        name = node["metadata"]["name"]
        marks = {**node["metadata"].get("labels", {}), **node["metadata"].get("annotations", {})}
        left += [f"node {name}: {key}" for key in marks if key.startswith(MARKS) and key != "kinema.io/capacity-type"]
        left += [f"node {name}: taint {t['key']}" for t in node["spec"].get("taints", []) if t["key"].startswith(MARKS)]
        left += [f"node {name}: cordoned"] if node["spec"].get("unschedulable") else []
    for pod in objects["pods"]:
        if DELETION_COST in pod["metadata"].get("annotations", {}):
            left.append(f"pod {pod['metadata']['name']}: {DELETION_COST}")
    for item in objects["deployments"]:
        annotations = item["metadata"].get("annotations", {})
        left += [
            f"deployment {item['metadata']['name']}: {key}"
            for key in annotations
            if key.startswith(MARKS) and key not in OWNERS_MARKS
        ]
    left += [
        f"configmap {item['metadata']['name']}: {item['data']}"
        for item in objects["configmaps"]
        if item["metadata"]["name"] == "kinema-steering" and item.get("data")
    ]
    return tuple(left)


def _machines(history: bytes) -> Mapping[str, int]:
    samples = msgspec.json.decode(history)["samples"]
    ever = {node["name"]: node["machine_type"] for sample in samples for node in sample["nodes"]}
    return Counter(ever.values())


def _created(history: bytes, recording: Recording) -> Mapping[str, int]:
    """Pods that replaced others since the pipeline began, by workload."""
    del recording
    moves = msgspec.json.decode(history)["moves"]
    return Counter(move["workload"] for move in moves if move["to"] is not None)
