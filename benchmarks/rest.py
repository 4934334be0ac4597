"""The rest of a plan for 12,000 pods: how long it takes to work out, and what it costs beside the plan.

    python -m benchmarks.rest [--runs 5] [--out FILE]

The first half of the plan's moves is done, but for one in twenty, which landed on other nodes that remain. Then the
rest is planned with the optimizer's settings, as after a miss (`planning.rest_seconds`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks.clusters import NOW
from benchmarks.instances import large_scene
from benchmarks.machine import write_result
from benchmarks.solver import warm_up
from kinema_core.events import ClusterObject, Plan, Pod
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_core.model.daemons import room_left
from kinema_core.model.resources import fits
from kinema_core.runtime.collector import spare_the_collector
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.goal import goal_of
from kinema_optimizer.settings import PlanningSettings

RUNS: Final = 5
_MISSED_EVERY: Final = 20


def measure() -> dict[str, object]:
    """Measure the default number of runs, for `python -m benchmarks`."""
    return table(RUNS)


def table(runs: int) -> dict[str, object]:
    """Return the plan, and seconds and costs of its rest."""
    spare_the_collector()  # as the optimizer does
    warm_up()
    settings = PlanningSettings()
    state, offers = large_scene(running=True).cluster()
    plan = plan_for(state, offers, now=NOW, settings=settings)
    found = []
    for _ in range(runs):
        # A new state for each run: what is derived from a state is kept with it.
        now = from_objects(tuple(half_way(state, plan)), state.version + 1)
        began = time.perf_counter()
        rest = plan_for(now, offers, now=NOW, settings=settings.for_a_rest(), goal=goal_of(plan))
        found.append(
            {
                "seconds": round(time.perf_counter() - began, 2),
                "cost": rest.cost.after,
                "moves": rest.moves,
                "method": rest.solve.method,
            }
        )
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    size = {"pods": len(state.pods), "nodes": len(state.nodes)}
    return {**size, "cost": plan.cost.after, "moves": plan.moves, "rest": found}


def half_way(state: Cluster, plan: Plan) -> Iterator[ClusterObject]:
    """Yield the objects of the cluster after half of the plan's moves, some of which did not end as planned."""
    live = {node.name for node in state.nodes}
    moving = [one for one in plan.placements if one.source is not None and one.source != one.to]
    between = {one.pod: one.to for one in moving[: len(moving) // 2] if one.to in live}
    kept = {one.name for one in plan.nodes if one.action == "keep"}
    rooms = {name: room for name, room in sorted(room_left(state).items()) if name in kept}
    for index, (key, planned) in enumerate(sorted(between.items())):
        pod = state.pods_by_key[key]
        if index % _MISSED_EVERY == 0:
            able = (name for name, room in rooms.items() if name != planned and fits(pod.requests, room))
            between[key] = next(able, planned)
            rooms.pop(between[key], None)  # one such pod for each node: other arrivals are not counted here
    for item in all_objects(state):
        if isinstance(item, Pod) and item.key in between:
            yield replace(item, name=f"{item.name}-new", uid=f"{item.uid}-new", node=between[item.key])
        else:
            yield item


def main() -> None:
    """Entry point of `python -m benchmarks.rest`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="times that the rest is planned")
    parser.add_argument("--out", type=Path, default=Path("out/bench/rest.json"))
    given = parser.parse_args()
    write_result("rest", table(given.runs), given.out)


if __name__ == "__main__":
    main()
