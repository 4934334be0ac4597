"""Saving of a cluster in which some workloads are never at rest, beside that of the same cluster at rest.

    python -m benchmarks.restless [--deployments 2150] [--fraction 0.01] [--minutes 30] [--out FILE]

At any time the fraction of the Deployments crashes, rolls out or scales, each for one to ten minutes; then another
does. Observer loop, optimizer and the decider's rules run as in their services, on the cluster's time. The
execution is simulated: it takes five minutes, and leaves a workload where it is that is restless when it begins, or
becomes so before half of it has passed. The row `whole_cluster` asks for rest of all workloads before an iteration.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from benchmarks.clusters import NAMESPACE, NOW, node_of
from benchmarks.machine import write_result
from benchmarks.solver import warm_up
from benchmarks.starts import Start, deployments_after_peak
from kinema_core.events import (
    AnyBody,
    Autoscaler,
    AutoscalerMetric,
    ClusterObject,
    ExecutionCompleted,
    Node,
    NoPlanFound,
    Plan,
    PlanAccepted,
    PlanRejected,
    Pod,
    Workload,
)
from kinema_core.model.catalog import node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.restless import restless_workloads
from kinema_core.runtime.envelope import origin
from kinema_decider.logic.decision_input import DecisionInput
from kinema_decider.logic.limits import Limits
from kinema_decider.logic.memory import Memory as DeciderMemory
from kinema_decider.logic.rules import Rejection, first_rejection
from kinema_observer.logic.logview import LogView, fold
from kinema_observer.logic.loop import Memory, tick
from kinema_observer.logic.settings import LoopSettings
from kinema_optimizer.planning.planner import PRICING_SHARE, plan_for
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import ClockStop, StopRule

TICK: Final = timedelta(seconds=5)
PLANNING: Final = timedelta(seconds=15)
EXECUTING: Final = timedelta(minutes=5)
KINDS: Final = ("crash", "rollout", "above-target", "saturated")


@dataclass(frozen=True)
class Row:
    """Result of one run. USD per hour."""

    name: str
    before: float
    after: float
    iterations: int
    rejected: tuple[str, ...]
    """Rules that rejected plans."""
    left: int
    """Workloads that executions left where they were."""
    first_saving_seconds: float | None

    @property
    def saving(self) -> float:
        """Return what is saved at the end."""
        return self.before - self.after


class Unrest:
    """The workloads that are not at rest, at each time."""

    def __init__(self, start: Cluster, fraction: float, seed: int) -> None:
        """Disturb `fraction` of the Deployments at any time."""
        self._draw = random.Random(seed)
        self._all = [item.name for item in start.workloads if item.type == "Deployment"]
        self._count = round(fraction * len(self._all))
        self._now: dict[str, tuple[str, datetime]] = {}

    def at(self, now: datetime) -> Mapping[str, str]:
        """Return what goes on in which Deployment; call it with later and later times."""
        self._now = {name: one for name, one in self._now.items() if one[1] > now}
        while len(self._now) < self._count:
            until = now + timedelta(seconds=self._draw.uniform(60, 600))
            self._now.setdefault(self._draw.choice(self._all), (self._draw.choice(KINDS), until))
        return {name: kind for name, (kind, _) in self._now.items()}


def disturbed(calm: Cluster, unrest: Mapping[str, str], version: int) -> Cluster:
    """Return the cluster with this going on in its Deployments."""
    workloads = dict(calm.objects["Workload"])
    pods = dict(calm.objects["Pod"])
    scalers: dict[str, ClusterObject] = {}
    for name, kind in unrest.items():
        top = next(item for item in _named(workloads, name) if item.type == "Deployment")
        if kind == "crash":
            for item in _named(workloads, name):
                workloads[item.key] = replace(item, ready=item.ready - 1)
            sick = next(pod for pod in calm.pods_by_workload[top.key])
            pods[sick.key] = replace(sick, ready=False)
        elif kind == "rollout":
            workloads[top.key] = replace(top, updated=top.updated - 1)
        else:
            scaler = _scaler(top, most=top.replicas if kind == "saturated" else top.replicas + 5)
            scalers[scaler.key] = scaler
    objects = {**calm.objects, "Workload": workloads, "Pod": pods, "Autoscaler": scalers}
    return Cluster(version, MappingProxyType({kind: found for kind, found in objects.items() if found}))


def _named(workloads: Mapping[str, ClusterObject], name: str) -> list[Workload]:
    keys = (f"Deployment/{NAMESPACE}/{name}", f"ReplicaSet/{NAMESPACE}/{name}-5d4f")
    return [item for key in keys if isinstance(item := workloads.get(key), Workload)]


def _scaler(top: Workload, *, most: int) -> Autoscaler:
    metric = AutoscalerMetric(name="cpu", current=900, target=600)
    return Autoscaler(
        name=top.name,
        namespace=top.namespace,
        uid=f"hpa-{top.name}",
        target_kind="Deployment",
        target_name=top.name,
        current=top.replicas,
        max_replicas=most,
        metrics=(metric,),
    )


def executed(calm: Cluster, plan: Plan, start: Start, left: Collection[str]) -> Cluster:
    """Return the cluster after the plan; the workloads that are `left` stay, and so do their nodes."""
    pods = dict(calm.objects["Pod"])
    for place in plan.placements:
        pod = pods.get(place.pod)
        if isinstance(pod, Pod) and pod.node != place.to and calm.workload_key_of(pod) not in left:
            pods[place.pod] = replace(pod, node=place.to)
    used = {pod.node for pod in pods.values() if isinstance(pod, Pod)}
    offers = {offer.name: offer for offer in start.offers}
    nodes: dict[str, ClusterObject] = {
        node.name: node_of(node.name, offers[node.offer]) for node in plan.nodes if node.action == "boot"
    }
    gone = {node.name for node in plan.nodes if node.action == "delete" and node.name not in used}
    nodes.update((node.name, node) for node in calm.nodes if node.name not in gone)
    return Cluster(calm.version, MappingProxyType({**calm.objects, "Pod": pods, "Node": nodes}))


class Run:
    """The pipeline's decisions on a cluster over some time."""

    def __init__(self, start: Start, unrest: Unrest, settings: LoopSettings, stop: Callable[[], StopRule]) -> None:
        self._start, self._unrest, self._settings, self._stop = start, unrest, settings, stop
        self._calm = start.cluster
        self._now, self._version = NOW, 1
        self._view, self._memory = LogView(), Memory()
        self._decider = DeciderMemory(offers=start.offers)
        self._count = self._left = self._iterations = 0
        self._rejected: list[str] = []
        self._first: float | None = None

    def over(self, minutes: float, name: str) -> Row:
        """Let the cluster live for so long."""
        before = self._cost()
        end = NOW + timedelta(minutes=minutes)
        while self._now < end:
            self._tick()
        found = Row(name, before, self._cost(), self._iterations, tuple(self._rejected), self._left, self._first)
        print(found, file=sys.stderr, flush=True)
        return found

    def _cost(self) -> float:
        return sum(node_prices(self._calm, self._start.offers).values()) / 1e6

    def _state(self) -> Cluster:
        self._version += 1
        return disturbed(self._calm, self._unrest.at(self._now), self._version)

    def _log(self, body: AnyBody, iteration: str) -> None:
        self._count += 1
        event = origin(body, id_=f"e{self._count}", cluster="c", iteration=iteration, now=self._now)
        self._view = fold(self._view, self._count, event)

    def _tick(self) -> None:
        state = self._state()
        found = tick(state, self._view, now=self._now, memory=self._memory, settings=self._settings)
        self._memory = found.memory
        if found.skip is not None:
            self._log(found.skip, "")
        if found.start is not None:
            self._log(found.start, found.iteration)
            self._iterate(state, found.iteration)
        self._now += TICK

    def _iterate(self, state: Cluster, iteration: str) -> None:
        self._iterations += 1
        plan = plan_for(state, self._start.offers, now=self._now, settings=PlanningSettings(), stop=self._stop())
        proposed, self._now = self._now, self._now + PLANNING
        objection = self._objection(plan, proposed, iteration)
        if plan.status == "nothing-better":
            self._log(NoPlanFound(mode="reschedule", version=state.version, reason="nothing-better"), iteration)
        elif objection is not None:
            self._rejected.append(objection.rule)
            self._log(_rejected(iteration, objection), iteration)
        else:
            self._log(PlanAccepted(plan=iteration, version=state.version), iteration)
            self._execute(plan)
            self._log(ExecutionCompleted(plan=iteration, fencing=1), iteration)

    def _objection(self, plan: Plan, proposed: datetime, iteration: str) -> Rejection | None:
        return first_rejection(
            DecisionInput(
                id=iteration,
                plan=plan,
                proposed=proposed,
                approved=True,
                memory=self._decider,
                cluster=self._state(),
                now=self._now,
                limits=Limits(),
            )
        )

    def _execute(self, plan: Plan) -> None:
        left = set(restless_workloads(self._state()))
        middle = self._now + EXECUTING / 2
        while self._now < middle:
            self._now += TICK
            left |= restless_workloads(self._state()).keys()
        moving = (self._calm.pods_by_key[one.pod] for one in plan.placements if one.strategy != "stay")
        self._left += len(left & {self._calm.workload_key_of(pod) for pod in moving})
        self._calm = executed(self._calm, plan, self._start, left)
        self._now += EXECUTING / 2
        if self._first is None:
            self._first = (self._now - NOW).total_seconds()


def _rejected(iteration: str, why: Rejection) -> PlanRejected:
    return PlanRejected(plan=iteration, version=1, rule=why.rule, reason=why.reason, would_change=why.would_change)


def rows(
    start: Start, *, fraction: float, minutes: float, stop: Callable[[], StopRule], seed: int
) -> tuple[Row, Row, Row]:
    """Measure the calm cluster, the restless one, and the restless one where all workloads have to rest.

    `stop` makes what ends each solve.
    """

    def row(name: str, share: float, settings: LoopSettings) -> Row:
        return Run(start, Unrest(start.cluster, share, seed), settings, stop).over(minutes, name)

    calm = row("calm", 0.0, LoopSettings())
    restless = row("restless", fraction, LoopSettings())
    return calm, restless, row("whole_cluster", fraction, LoopSettings(max_restless_fraction=0.0))


def run(deployments: int, *, fraction: float, minutes: float, seconds: float, seed: int) -> dict[str, object]:
    """Measure a cluster of so many Deployments after a peak."""
    warm_up()
    start = deployments_after_peak(deployments, seed=seed)

    def stop() -> StopRule:
        return ClockStop(seconds, pricing=PRICING_SHARE)

    calm, restless, whole = rows(start, fraction=fraction, minutes=minutes, stop=stop, seed=seed)
    return {
        "nodes": len(start.cluster.objects[Node.__name__]),
        "pods": len(start.cluster.objects[Pod.__name__]),
        "deployments": deployments,
        "fraction": fraction,
        "minutes": minutes,
        "solve_seconds": seconds,
        "seed": seed,
        "rows": [{**asdict(one), "saving": round(one.saving, 4)} for one in (calm, restless, whole)],
        "saving_of_calm": round(restless.saving / calm.saving, 4),
    }


def measure() -> dict[str, object]:
    """1,000 nodes with 1% of the workloads restless."""
    return run(2150, fraction=0.01, minutes=30, seconds=10.0, seed=0)


def main() -> None:
    """Entry point of `python -m benchmarks.restless`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=2150)
    parser.add_argument("--fraction", type=float, default=0.01, help="of the Deployments, restless at any time")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each solve")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/bench/restless.json"))
    given = parser.parse_args()
    found = run(
        given.deployments, fraction=given.fraction, minutes=given.minutes, seconds=given.seconds, seed=given.seed
    )
    write_result("restless", found, given.out)


if __name__ == "__main__":
    main()
