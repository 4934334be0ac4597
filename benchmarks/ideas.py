"""What each idea of the other systems changes in Kinema's plan, switched on alone.

    python -m benchmarks.ideas [--start boutique] [--work 60]

Usable resources as a hard constraint, PROMETHEE II as a choice among plans of nearly equal cost, and balance over zones
as a preference, on a cluster after a peak. Plans end after an amount of work, so that the table can be repeated.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from typing import Any, Final

from msgspec.structs import replace

from benchmarks.clusters import NOW
from benchmarks.starts import Start, starts
from kinema_core.events import FrozenMap, Plan
from kinema_core.model.catalog import machine_of
from kinema_core.model.power import micro_watts
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.choice import Choice
from kinema_optimizer.request.objective import MICRO
from kinema_optimizer.request.usable import Ratio, UsableResources, fill_after
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import WorkStop

RATIOS: Final = (
    Ratio(resource="cpu", most="3600m", per="memory", amount="1G"),
    Ratio(resource="memory", most="20G", per="cpu", amount="1"),
)
USABLE: Final = UsableResources(
    max_percent=FrozenMap({"cpu": 80, "memory": 80}), min_free={"cpu": "100m", "memory": "400M"}, ratios=RATIOS
)
"""Thresholds of 80%; the usability thresholds of the cluster-threshold thesis, figure 4.1."""
PLAIN: Final = PlanningSettings(max_moves_fraction=1.0, redundancy=False)
DEAR: Final = 0.0001
"""USD per hour of a weight point with which a pod too many in a zone costs a cent."""
CASES: Final[dict[str, dict[str, Any]]] = {
    "as by default": {},
    "usable resources": {"usable": USABLE},
    "choice": {"choice": Choice()},
    "choice by energy": {"choice": Choice(weights={"energy": 10.0})},
    "balance": {"balance": True},
    f"balance at ${DEAR:g} a point": {"balance": True, "preference_price_usd": DEAR},
}
HEADER: Final = (
    "| | $/h | moves | nodes | watts | of usable CPU, memory requested | nodes of workloads | pods too many in a zone |"
)


def row_of(name: str, plan: Plan, start: Start) -> str:
    """Return a row of the table."""
    watts = {offer.machine_type: micro_watts(offer) for offer in start.offers}
    there = [node for node in plan.nodes if node.action != "delete"]
    fill = fill_after(plan, start.cluster, start.offers, rule=USABLE)
    nodes, excess = spread_of(plan, start)
    cells = (
        name,
        f"{plan.cost.after:.3f}",
        str(plan.moves),
        str(len(there)),
        f"{sum(watts.get(node.machine_type, 0) for node in there) / MICRO:.0f}",
        f"{fill['cpu'].percent:.1f}%, {fill['memory'].percent:.1f}%",
        str(nodes),
        str(excess),
    )
    return f"| {' | '.join(cells)} |"


def spread_of(plan: Plan, start: Start) -> tuple[int, int]:
    """Return on how many nodes workloads are in all, and their pods beyond an even spread over the zones in use."""
    zone_of = {node.name: node.zone for node in plan.nodes}
    zone_of |= {node.name: machine_of(node)[1] for node in start.cluster.nodes}
    zones = {node.zone for node in plan.nodes if node.action != "delete"}
    places: dict[str, set[str]] = defaultdict(set)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for item in plan.placements:
        pod = start.cluster.pod(item.pod)
        key = None if pod is None else start.cluster.controller_key_of(pod)
        if key is not None:
            places[key].add(item.to)
            counts[key][zone_of[item.to]] += 1
    excess = 0
    for found in counts.values():
        most = -(-sum(found.values()) // len(zones))
        excess += sum(max(0, count - most) for count in found.values())
    return sum(map(len, places.values())), excess


def main() -> None:
    """Make the plans, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ideas", description=__doc__)
    parser.add_argument("--start", default="boutique", choices=tuple(starts()))
    parser.add_argument("--work", type=int, default=60, help="iterations of each phase of a solve")
    given = parser.parse_args()
    start = starts()[given.start]()
    print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n", flush=True)
    for name, changes in CASES.items():
        settings = replace(PLAIN, **changes)
        plan = plan_for(start.cluster, start.offers, now=NOW, settings=settings, stop=WorkStop(given.work))
        print(row_of(name, plan, start), flush=True)


if __name__ == "__main__":
    main()
