"""A whole pipeline on the small `strategies` cluster, with something done to it while it works."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from tests.history.checker import Violation, violations
from tests.history.record import History, recorded
from tests.support.faults import FAULT, armed

from kinema_cli.local.demo import CLUSTER, DemoOptions, Progress, SimulatorAddress, simulator_child, start_pipeline
from kinema_cli.local.pipeline import LocalPipeline
from kinema_cli.local.processes import Child, first_line
from kinema_cli.local.simulator import Simulator
from kinema_cli.replay.recording import Recording, read, record_to
from kinema_cli.report.data import ReportData
from kinema_cli.report.from_run import read_history, run_report
from kinema_core.events import ExecutionCompleted
from kinema_core.runtime.bus import BusError, Stored

SPEED: Final = 30.0
_DEADLINES: Final = ("observed_seconds", "write_seconds", "pods_ready_seconds", "delete_seconds", "blocked_seconds")
SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    # A killed leader's lease has to run out before the next one may act: the shorter, the sooner the test is over.
    "observer": {"lease_seconds": 3.0, "stabilization_window_seconds": 30.0},
    "rescheduler": {
        "lease_seconds": 3.0,
        # Deadlines count the cluster's time, of which minutes pass while a process that died starts again.
        "limits": dict.fromkeys(_DEADLINES, 7200.0),
    },
}
_STRIKE_SECONDS: Final = 0.05
"""A dead process has to be seen before the next one is started."""
_STRIKES_A_LOOK: Final = 5
"""To look is to read the log, which costs the broker a consumer."""
SECONDS: Final = 300.0
"""Real seconds until a run counts as stuck: ten times what it takes, as it may get a tenth of a processor."""
SECONDS_A_FAULT: Final = 60.0
"""More of them for each process that dies: it starts again, and its lease has to run out."""
MARKS: Final = "kinema.io/"
CAPACITY_TYPE: Final = "kinema.io/capacity-type"
OWNERS_MARKS: Final = ("kinema.io/rightsizing-max-step", "kinema.io/strategy")
LIMITS: Final = (3, 6)
"""Least and most replicas of the one autoscaler."""
ROLLED_BY: Final = "kinema.io/rolled-by"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

Start = Callable[..., Awaitable[LocalPipeline]]
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
    history: History
    """The same recording, read by who shares no code with the services."""
    struck: bool
    """Whether what was to be done to the pipeline was done."""


def completed(progress: Progress) -> bool:
    """Return whether a plan was carried out to its end."""
    return any(isinstance(end, ExecutionCompleted) for end in progress.ended.values())


async def run_strategies(
    directory: Path,
    *,
    faults: Mapping[str, Sequence[str]] | None = None,
    chaos: Chaos | None = None,
    start: Start = start_pipeline,
    until: Callable[[Progress], bool] = completed,
) -> Outcome:
    """Run the pipeline until it has settled.

    Args:
        directory: where everything it writes goes.
        faults: fault points by service: its first process kills itself at the first one, its next at the second, …
        chaos: something else to do to it.
        start: how it is started.
        until: whether the events so far are those of a run that may end.
    """
    strikes = Strikes({service: list(points) for service, points in (faults or {}).items()}, chaos)
    seconds = SECONDS + SECONDS_A_FAULT * sum(map(len, strikes.faults.values()))
    options = DemoOptions(out=directory, speed=SPEED, scenario="strategies", timeout=seconds)
    child = simulator_child(options)
    pipeline: LocalPipeline | None = None
    try:
        await child.start(read_output=True)
        address = msgspec.json.decode(await first_line(child, 60), type=SimulatorAddress)
        simulator = Simulator(address.url)
        began = (await simulator.clock()).now
        pipeline = await start(options, simulator, settings=SETTINGS, environment=strikes.environment)
        await followed(pipeline, strikes, seconds, until=until)
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
        pods_created=_created(history, began),
        report=run_report(
            [item.event for item in recording.state],
            [item.event for item in recording.log],
            read_history(history),
            title="test",
        ),
        recording=recording,
        history=recorded(options.recording),
        struck=strikes.over,
    )


@dataclass
class Strikes:
    """What is still to be done to the pipeline."""

    faults: Mapping[str, list[str]] = field(default_factory=dict)
    """Service → fault points: its first process kills itself at the first one, its next at the second, …"""
    chaos: Chaos | None = None

    @property
    def over(self) -> bool:
        """Whether everything was done."""
        return not any(self.faults.values()) and self.chaos is None

    @property
    def environment(self) -> dict[str, dict[str, str]]:
        """What the first processes are armed with."""
        return {service: armed(points[0]) for service, points in self.faults.items() if points}

    async def strike(self, pipeline: LocalPipeline, progress: Progress) -> None:
        """Do what is due now."""
        for service, points in self.faults.items():
            if points:
                _arm_next(pipeline.supervisor.children[service], points)
        if self.chaos is not None and await self.chaos(pipeline, progress):
            self.chaos = None


def _arm_next(child: Child, points: list[str]) -> None:
    """Arm the process that follows a dead one with the next point, or with none after the last."""
    if child.process is None or (child.process.returncode or 0) >= 0:
        return
    del points[0]
    calm = {key: value for key, value in child.environment.items() if key != FAULT}
    child.environment = {**calm, **armed(points[0])} if points else calm
    child.process = _DEAD


class _Dead:
    """Stands for a process that was seen dead, until the supervisor starts the next one."""

    returncode = 0

    async def wait(self) -> int:
        """It has ended already."""
        return 0


_DEAD: Any = _Dead()


async def followed(
    pipeline: LocalPipeline, strikes: Strikes, seconds: float, *, until: Callable[[Progress], bool]
) -> Progress:
    """Strike when it is due, until everything is settled and as wanted; fails after so many real seconds."""
    progress, position = Progress(), 0
    deadline = time.monotonic() + seconds
    while not (progress.settled and strikes.over and until(progress)):
        if time.monotonic() > deadline:
            tails = "\n".join(f"{name}: {child.tail(3)}" for name, child in pipeline.supervisor.children.items())
            waiting, failed = progress.waiting, progress.failed[-3:]
            raise AssertionError(f"not settled, waiting {waiting}; still to strike: {strikes}; {failed}\n{tails}")
        for _ in range(_STRIKES_A_LOOK):
            await strikes.strike(pipeline, progress)
            await asyncio.sleep(_STRIKE_SECONDS)
        with contextlib.suppress(BusError):
            if await pipeline.bus.head("LOG") < position:  # an older log was put in its place
                progress, position = Progress(), 0
            async for item in pipeline.bus.read("LOG", start=position + 1):
                position = item.sequence
                if isinstance(item, Stored):
                    progress.fold(item.event)
    return progress


async def _objects(url: str) -> dict[str, Sequence[dict[str, Any]]]:
    paths = {
        "nodes": "/api/v1/nodes",
        "pods": "/api/v1/pods",
        "deployments": "/apis/apps/v1/deployments",
        "configmaps": "/api/v1/configmaps",
        "autoscalers": "/apis/autoscaling/v2/horizontalpodautoscalers",
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
        left += [f"node {name}: {key}" for key in marks if key.startswith(MARKS) and key != CAPACITY_TYPE]
        left += [f"node {name}: taint {t['key']}" for t in node["spec"].get("taints", []) if t["key"].startswith(MARKS)]
        left += [f"node {name}: cordoned"] if node["spec"].get("unschedulable") else []
    for kind in ("pods", "deployments", "autoscalers"):
        for item in objects[kind]:
            left += [f"{kind} {item['metadata']['name']}: {key}" for key in _our_annotations(kind, item)]
    for scaler in objects["autoscalers"]:
        limits = (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"])
        left += [f"autoscaler {scaler['metadata']['name']}: limits {limits}"] if limits != LIMITS else []
    left += [
        f"configmap {item['metadata']['name']}: {item['data']}"
        for item in objects["configmaps"]
        if item["metadata"]["name"] == "kinema-steering" and item.get("data")
    ]
    return tuple(left)


def _our_annotations(kind: str, item: dict[str, Any]) -> list[str]:
    """Annotations that only we write; pods keep the mark of the template that they were rolled with."""
    kept = (*OWNERS_MARKS, *((ROLLED_BY,) if kind == "pods" and _is_rolled(item) else ()))
    return [
        key
        for key in item["metadata"].get("annotations", {})
        if key == DELETION_COST or (key.startswith(MARKS) and key not in kept)
    ]


def _is_rolled(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("app") == "api")


def _machines(history: bytes) -> Mapping[str, int]:
    samples = msgspec.json.decode(history)["samples"]
    ever = {node["name"]: node["machine_type"] for sample in samples for node in sample["nodes"]}
    return Counter(ever.values())


def _created(history: bytes, since: datetime) -> Mapping[str, int]:
    """Pods created after a time, by workload; each node has its daemons, which are not counted."""
    pods = msgspec.json.decode(history)["created"]
    late = [pod["workload"] for pod in pods if datetime.fromisoformat(pod["created"]) > since]
    return Counter(workload for workload in late if not workload.startswith("DaemonSet "))


EXPECTED_NODES = ("e2-highcpu-2", "e2-highcpu-2")
OLD_NODES = 6
MOVES = {"Deployment shop/web": 3, "Deployment shop/api": 2, "StatefulSet shop/store": 2}


def broken(outcome: Outcome) -> tuple[Violation, ...]:
    """The invariants of the events that do not hold.

    A deadline counts the cluster's time, which goes on thirty times as fast while a process is away.
    """
    return violations(outcome.history, but={"in_time"})


def check(outcome: Outcome) -> None:
    """What holds after every run, struck or not."""
    assert broken(outcome) == ()
    assert outcome.nodes == EXPECTED_NODES
    assert outcome.leftovers == ()
    assert outcome.machines_ever == {"e2-standard-2": OLD_NODES, "e2-highcpu-2": len(EXPECTED_NODES)}
    assert outcome.pods_created == MOVES
    audit = outcome.report.audit
    assert audit is not None
    assert {item.workload: item.violations for item in audit.workloads if item.violations} == {}
