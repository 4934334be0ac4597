"""One decision of the rescheduler in the middle of a plan for 12,000 workloads: its processor time.

    python -m benchmarks.deciding [--nodes 1300] [--workloads 12000] [--runs 10] [--out FILE]

The cluster is that of `benchmarks.scale`, with a plan as there. As many nodes are closed as may be at a time, and as
many moves have begun as go side by side. Then a new state arrives, as many times a second while pods start and end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks.clusters import NOW
from benchmarks.machine import write_result
from benchmarks.scale import MAX_MOVES, NODES, WORKLOADS, Size
from benchmarks.solver import warm_up
from kinema_core.events import (
    AnyBody,
    ClusterObject,
    Event,
    FrozenMap,
    Node,
    Plan,
    PlanAccepted,
    StepStarted,
    StepSucceeded,
)
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_core.runtime.collector import spare_the_collector
from kinema_core.runtime.envelope import origin
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.objective import Window
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import WorkStop
from kinema_rescheduler.journal.execution import Journal, fold
from kinema_rescheduler.names import CORDONED, DISRUPTED, PLAN
from kinema_rescheduler.plan.decide import decide
from kinema_rescheduler.plan.limits import Limits

RUNS: Final = 10
_PROPOSAL: Final = "proposal"
_ROUNDS: Final = 3
"""Of each phase of the search: the same plan on any machine."""
_A_TURN: Final = timedelta(seconds=3)


def measure() -> dict[str, object]:
    """Measure at full size, for `python -m benchmarks`."""
    return table(NODES, WORKLOADS, RUNS)


def table(nodes: int, workloads: int, runs: int) -> dict[str, object]:
    """Return processor seconds of a decision."""
    spare_the_collector()  # as the service does
    warm_up()
    start = Size(nodes, workloads).start
    most = MAX_MOVES * workloads // WORKLOADS
    settings = PlanningSettings(windows=(Window(max_moves=most),), max_moves_fraction=1.0)
    plan = plan_for(start.cluster, start.offers, now=NOW, settings=settings, stop=WorkStop(_ROUNDS))
    journal, state, now = _in_the_middle(start.cluster, plan)
    seconds = []
    for _ in range(runs):
        # A new state for each run: what is derived from a state is kept with it.
        state = from_objects(tuple(all_objects(state)), state.version + 1)
        began = time.process_time()
        decide(journal, state, now, limits=Limits(), fencing=1)
        seconds.append(round(time.process_time() - began, 3))
    execution = journal.active
    assert execution is not None
    return {
        "nodes": nodes,
        "workloads": workloads,
        "moves": plan.moves,
        "nodes_closed": sum(one.step.kind == "taint" for one in execution.steps.values()),
        "moves_under_way": len(execution.open_steps),
        "processor_seconds": seconds,
        "processor_seconds_median": statistics.median(seconds),
    }


def _in_the_middle(cluster: Cluster, plan: Plan) -> tuple[Journal, Cluster, datetime]:
    """Return the journal once nodes are closed and moves have begun, the state then, and the time.

    Marks and steering are done at once, and nothing else is.
    """
    journal, now = Journal(), NOW
    journal = fold(journal, _event(plan, _PROPOSAL, now))
    journal = fold(journal, _event(PlanAccepted(plan=_PROPOSAL, version=cluster.version), "accepted", now))
    while True:
        begun = [
            one for one in decide(journal, cluster, now, limits=Limits(), fencing=1) if isinstance(one, StepStarted)
        ]
        if not begun:
            return journal, cluster, now
        for intent in begun:
            journal = fold(journal, _event(intent, f"{intent.step.id}-begun", now))
            if intent.step.kind in {"taint", "prefer-nodes"}:
                done = StepSucceeded(
                    plan=_PROPOSAL, step=intent.step.id, fencing=1, outcome="done", figures=FrozenMap({CORDONED: 0})
                )
                journal = fold(journal, _event(done, f"{intent.step.id}-done", now))
        closed = {one.step.target for one in begun if one.step.kind == "taint"}
        cluster = from_objects(tuple(_marked(cluster, closed)), cluster.version + 1)
        now += _A_TURN


def _marked(cluster: Cluster, closed: set[str]) -> Iterator[ClusterObject]:
    """Yield every object, with the marks of the plan on these nodes."""
    for one in all_objects(cluster):
        if isinstance(one, Node) and one.name in closed:
            labels = FrozenMap({**one.labels, DISRUPTED: "1"})
            yield replace(one, labels=labels, annotations=FrozenMap({**one.annotations, PLAN: _PROPOSAL}))
        else:
            yield one


def _event(body: AnyBody, name: str, now: datetime) -> Event:
    return origin(body, id_=name, cluster="bench", iteration="1", now=now)


def main() -> None:
    """Entry point of `python -m benchmarks.deciding`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--workloads", type=int, default=WORKLOADS)
    parser.add_argument("--runs", type=int, default=RUNS, help="states that are decided on")
    parser.add_argument("--out", type=Path, default=Path("out/bench/deciding.json"))
    given = parser.parse_args()
    result = table(given.nodes, given.workloads, given.runs)
    print(json.dumps(result, indent=2))
    write_result("deciding", result, given.out)


if __name__ == "__main__":
    main()
