"""The five services on a real control plane after a peak, until they find nothing more to do, watched from outside.

    python -m benchmarks.after_peak [--seed 0] [--constrained] [--without-steering] [--out FILE]

The starts are of the kind on which the real Karpenter was measured: 400 Deployments on the nodes that nearly three
times as many pods needed. Everything runs on this machine, as it did then.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.controlplane.plane import ControlPlane, Options, running
from tests.e2e.pipeline_run import carried_out, catalog, own_rights
from tests.pipeline.pipeline_harness import Strikes

from benchmarks.clusters import NOW
from benchmarks.machine import write_result
from benchmarks.standing import stand
from benchmarks.starts import Start, deployments_after_peak
from benchmarks.witness import Verdict, Witness
from kinema_cli.admin.setup import Steering, steer
from kinema_cli.local.demo import Progress
from kinema_cli.local.pipeline import LocalPipeline
from kinema_core.events import (
    ClusterSnapshot,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ForecastMade,
    IterationStarted,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    StepStarted,
    StepSucceeded,
)
from kinema_core.runtime.bus import Stored
from kinema_optimizer.policies.karpenter import Karpenter

KARPENTER: Final = {
    "version": "core 1.15.0 with its KWOK provider, Kubernetes 1.36.3",
    "over_bound": [1.026, 1.019],
    "evictions_per_pod": [round(688 / 1271, 3), round(620 / 1255, 3)],
    "most_pods_missing": [249, 347],
    "seconds_to_last_change": [625, 588],
    "nodes_bought_again": [11, 19],
}
"""The real one, measured on two starts of this kind (400 Deployments, 1,271 and 1,255 pods, 175 and 180 nodes)."""
MOVE_PRICE: Final = 0.02
"""USD per hour that each move has to save: an operator's setting."""
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
"""Without the metrics server: nothing here depends on usage."""
_LOOK_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Wish:
    """Options of a measurement."""

    steering: bool = True
    solve_seconds: float = 20.0
    max_moves: int | None = None
    move_price: float | None = MOVE_PRICE
    """None: the one that follows from the search. Where moves are limited, none is set."""
    most_seconds: float = 3600.0
    plans: int | None = None
    """After how many executions to end; None: when there is nothing more to do."""
    planned: bool = False
    """To end when the first step of a plan has begun."""

    @property
    def settings(self) -> dict[str, dict[str, object]]:
        """Of the services: all else is as it comes."""
        moves: dict[str, object] = {}
        if self.max_moves is not None:
            moves = {"max_moves": self.max_moves}
        elif self.move_price is not None:
            moves = {"move_price_usd": self.move_price}
        planning = {"time_limit_seconds": self.solve_seconds, **moves}
        return {
            "observer": {"usage_seconds": 0.0},
            "optimizer": {"planning": planning},
            "rescheduler": {"steering": self.steering},
        }


class EnoughError(Exception):
    """Enough plans were executed, or the time is over; what was reached is reported."""


@dataclass
class Watchman:
    """Looks after the services while they run: their memory, and in the end their log."""

    wish: Wish
    peaks: dict[str, int] = field(default_factory=dict)
    """MiB by service, with its children."""
    worked: dict[str, float] = field(default_factory=dict)
    """Processor seconds by the same."""
    log: list[Event] = field(default_factory=list)
    observed: datetime | None = None
    progress: Progress = field(default_factory=Progress)
    began: float = 0.0
    in_time: bool = True
    """Return whether the services came to the end before they were stopped."""
    _next: float = 0.0

    async def look(self, pipeline: LocalPipeline, progress: Progress) -> bool:
        """Called again and again; True when the services have come to the end.

        Raises:
            EnoughError: they have not, but carried out as many plans as were wished for, or taken too long.
        """
        self.progress = progress
        self.began = self.began or time.monotonic()
        self.in_time = time.monotonic() - self.began < self.wish.most_seconds
        enough = not self.in_time or (self.wish.plans is not None and len(progress.ended) >= self.wish.plans)
        enough = enough or (self.wish.planned and bool(progress.intended))
        over = progress.settled or enough
        if time.monotonic() >= self._next or over:
            self._next = time.monotonic() + _LOOK_SECONDS
            for name, child in pipeline.supervisor.children.items():
                if child.process is not None:
                    for process, mib, worked in _uses(child.process.pid, name):
                        self.peaks[process] = max(mib, self.peaks.get(process, 0))
                        self.worked[process] = max(worked, self.worked.get(process, 0.0))
        if not over:
            return False
        self.log = [item.event async for item in pipeline.bus.read("LOG") if isinstance(item, Stored)]
        async for item in pipeline.bus.read("STATE"):
            if isinstance(item, Stored) and isinstance(item.event.body, ClusterSnapshot):
                self.observed = item.event.time
                break
        if enough:
            raise EnoughError
        return True

    def figures(self) -> dict[str, object]:
        """Return seconds by stage, memory and processor seconds by process, and what was planned."""
        return {
            "stages": _stages(self),
            "peak_rss_mib": dict(sorted(self.peaks.items())),
            "processor_seconds": dict(sorted(self.worked.items())),
            "events": _events(self.log),
        }


def _uses(pid: int, name: str) -> list[tuple[str, int, float]]:
    """Peak resident memory (MiB) and processor seconds of a process and of its children."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    mib = next((int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
    worked = round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 1)
    return [(name, mib, worked), *(row for child in children for row in _uses(int(child), f"{name}, child"))]


def measure() -> dict[str, object]:
    """The start beside Karpenter, for `python -m benchmarks`."""
    return beside(deployments_after_peak(), Wish())


def beside(start: Start, wish: Wish) -> dict[str, object]:
    """Return the result of a start, with the figures of Karpenter and of its imitation on the same start."""
    rival = Karpenter().propose(start.cluster, start.offers, NOW)
    imitated = {"usd_per_hour": rival.plan.cost.after, "evictions": rival.evictions}
    found = run_on(start, wish, Options(only=PROGRAMS))
    return {**found, "karpenter": KARPENTER, "karpenter_imitated_on_this_start": imitated}


def run_on(start: Start, wish: Wish, options: Options) -> dict[str, object]:
    """Set a start up, let the services work, and say what came of it."""
    print(f"{len(start.cluster.pods)} pods, {len(start.cluster.nodes)} nodes", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with running(folder / "plane", options) as plane:
            return asyncio.run(_watched(plane, start, wish, folder))


async def _watched(plane: ControlPlane, start: Start, wish: Wish, folder: Path) -> dict[str, object]:
    began = time.monotonic()
    await stand(plane, start, folder)
    stood = time.monotonic() - began
    print(f"stands after {stood:.0f} s", file=sys.stderr, flush=True)
    if wish.steering:
        await steer(Steering(plane.admin.write_kubeconfig(folder / "admin.kubeconfig"), on=True))
    rights = await asyncio.to_thread(own_rights, plane.admin)
    watchman, witness = Watchman(wish), Witness(plane.admin)
    strikes = Strikes(chaos=watchman.look)
    async with witness.watching():
        with suppress(EnoughError):
            await carried_out(
                folder / "run", rights, settings=wish.settings, strikes=strikes, seconds=2 * wish.most_seconds
            )
        watched = time.monotonic() - witness.began
    return {
        "pods": len(start.cluster.pods),
        "set_up_seconds": round(stood, 1),
        **_figures(start, watchman.progress, witness.verdict(), catalog(folder)),
        **watchman.figures(),
        "steps_done": Counter(step.partition("/")[0] for step in watchman.progress.done),
        "came_to_its_end": watchman.in_time,
        "seconds_watched": round(watched, 1),
    }


def _figures(start: Start, progress: Progress, seen: Verdict, prices: Path) -> dict[str, object]:
    rows = csv.DictReader(prices.read_text().splitlines())
    price = {row["machine_type"]: float(row["usd_per_hour"]) for row in rows}
    cost = sum(price[machine] for machine in seen.nodes.values())
    bound = max((plan.cost.lower_bound for plan in progress.proposals.values()), default=0.0)
    workloads = {pod.name: pod for pod in start.cluster.pods}
    planned = Counter(
        (one.pod.partition("/")[2].rsplit("-", 2)[0], one.to)
        for plan in progress.accepted.values()
        for one in plan.placements
        if one.source and one.to != one.source
    )
    return {
        "nodes": {"before": len(start.cluster.nodes), "after": len(seen.nodes)},
        "usd_per_hour": {
            "after": round(cost, 4),
            "bound": bound,
            "over_bound": round(cost / bound, 4) if bound else None,
        },
        "pods_moved": seen.moved,
        "pods_moved_again": seen.moved_again,
        "moves_per_pod": round((seen.moved + seen.moved_again) / len(workloads), 3),
        "most_pods_missing": seen.most_missing,
        "workloads_ever_short": sorted(seen.ever_short),
        "nodes_bought": len(seen.bought),
        "nodes_bought_in_vain": seen.thrown_away,
        "moves_planned": planned.total(),
        "landed_as_planned": (planned & seen.starts).total(),
        "share_as_planned": round((planned & seen.starts).total() / max(1, planned.total()), 4),
        "pods_started": seen.starts.total(),
        "seconds_to_last_change": round(seen.last_change, 1),
        "saved_by_a_third": seen.saved_by(1 / 3, price),
        "changes_seen": seen.changes,
        "steps_failed": Counter(f"{one.step.partition('/')[0]}: {one.reason}" for one in progress.failed),
    }


def _stages(watchman: Watchman) -> dict[str, float]:
    """Seconds of each stage of the first iteration that was carried out."""
    accepted = next((event for event in watchman.log if isinstance(event.body, PlanAccepted)), None)
    if accepted is None:
        return {}
    own = [event for event in watchman.log if event.iteration == accepted.iteration]

    def first(*kinds: type) -> datetime | None:
        return next((event.time for event in own if isinstance(event.body, kinds)), None)

    def last(*kinds: type) -> datetime | None:
        return next((event.time for event in reversed(own) if isinstance(event.body, kinds)), None)

    marks = [
        ("settled", watchman.observed, first(IterationStarted)),
        ("forecast", first(IterationStarted), first(ForecastMade)),
        ("planned", first(ForecastMade), accepted.time),
        ("decided and begun", accepted.time, first(StepStarted)),
        ("executed", first(StepStarted), last(ExecutionCompleted, ExecutionAborted)),
    ]
    steps = [
        (f"executed: {kind}", _first_step(own, kind), _last_step(own, kind))
        for kind in ("boot", "taint", "surge-up", "surge-down", "evict", "delete", "untaint")
    ]
    return {
        name: round((to - since).total_seconds(), 3)
        for name, since, to in (*marks, *steps)
        if since is not None and to is not None
    }


def _first_step(own: list[Event], kind: str) -> datetime | None:
    return next((e.time for e in own if isinstance(e.body, StepStarted) and e.body.step.kind == kind), None)


def _last_step(own: list[Event], kind: str) -> datetime | None:
    done = (e.time for e in reversed(own) if isinstance(e.body, StepSucceeded) and e.body.step.startswith(f"{kind}/"))
    return next(done, None)


def _events(log: list[Event]) -> list[str]:
    """Plans and what became of them, for people."""
    found = []
    for event in log:
        match event.body:
            case Plan() as plan:
                gap = "-" if plan.cost.gap is None else f"{plan.cost.gap:.2%}"
                cost = f"{plan.cost.before:.2f} → {plan.cost.after:.2f} USD/h, gap {gap}"
                waves = 1 + max((step.wave for step in plan.steps), default=-1)
                found.append(f"planned: {cost}, {plan.moves} moves in {waves} waves, {len(plan.temporary)} temporary")
            case PlanRejected() | PlanApprovalRequested() as refused:
                found.append(f"refused by {refused.rule}: {refused.reason}")
            case PlanAccepted():
                found.append("accepted")
            case ExecutionCompleted() | ExecutionAborted() as ended:
                found.append(f"{type(ended).__name__}: {dict(ended.figures) if hasattr(ended, 'figures') else ''}")
            case _:
                pass
    return found


def main() -> None:
    """Entry point of `python -m benchmarks.after_peak`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--constrained", action="store_true", help="with anti-affinity, budgets and marked pods")
    parser.add_argument("--without-steering", action="store_true", help="without the admission policy")
    parser.add_argument(
        "--most-seconds",
        type=float,
        default=Wish.most_seconds,
        help="after which it is stopped, and what was reached is printed",
    )
    parser.add_argument("--out", type=Path, default=Path("out/bench/after_peak.json"))
    given = parser.parse_args()
    start = deployments_after_peak(given.deployments, constrained=given.constrained, seed=given.seed)
    wish = Wish(steering=not given.without_steering, most_seconds=given.most_seconds)
    result = beside(start, wish)
    print(json.dumps(result, indent=2))
    write_result("after_peak", result, given.out)


if __name__ == "__main__":
    main()
