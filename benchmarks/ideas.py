"""What each idea of the other systems changes in Kinema's plan, switched on alone.

    python -m benchmarks.ideas [--clusters 4 | --start boutique] [--work 20]

Usable resources as a hard constraint, PROMETHEE II as a choice among plans of nearly equal cost, and balance over zones
as a preference: on random clusters of six half-empty nodes in three zones, all figures being sums over them, or on a
cluster after a peak.
Plans end after an amount of work, so that the table can be repeated.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from benchmarks.clusters import NOW, SURGE, Deployed, node_of
from benchmarks.machine_types import ZONES
from benchmarks.starts import MEBIBYTE, Start, e2_offers, starts
from kinema_core.events import ClusterObject, FrozenMap, Plan
from kinema_core.model.catalog import machine_of
from kinema_core.model.cluster import from_objects
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
PLAIN: Final = PlanningSettings(max_moves_fraction=1.0, redundancy=False, headroom=0)
DEAR: Final = 0.0001
"""USD per hour of a weight point with which a pod too many in a zone costs a cent."""
CASES: Final[dict[str, dict[str, Any]]] = {
    "as by default": {},
    "usable resources": {"usable": USABLE},
    "choice": {"choice": Choice()},
    "choice, within 10%": {"choice": Choice(within_percent=10.0)},
    "choice, within 10%, restarts count 4 times": {"choice": Choice(within_percent=10.0, weights={"restarts": 4.0})},
    "balance": {"balance": True},
    f"balance at ${DEAR:g} a point": {"balance": True, "preference_price_usd": DEAR},
}
HEADER: Final = (
    "| | $/h | moves | nodes | watts | of usable CPU, memory requested | nodes of workloads | pods too many in a zone |"
)


def small_cluster(seed: int) -> Start:
    """Return six nodes in three zones with eight Deployments of one to four pods, placed at random."""
    draw, offers = random.Random(seed), e2_offers()
    sold = {(one.machine_type, one.zone): one for one in offers}
    nodes = [node_of(f"n{n}", sold["e2-standard-4", ZONES[n % 3]]) for n in range(6)]
    objects: list[ClusterObject] = [*nodes]
    for n in range(8):
        requests = {"cpu": draw.randrange(100, 700, 50), "memory": draw.randrange(128, 1536, 64) * MEBIBYTE, "pods": 1}
        on = tuple(draw.choice(nodes).name for _ in range(draw.randint(1, 4)))
        objects += Deployed(f"app-{n}", FrozenMap(requests), on, annotations=SURGE).objects()
    return Start(from_objects(objects), offers)


def figures_of(plan: Plan, start: Start) -> tuple[float, ...]:
    """Return cost, moves, nodes, watts, usable percent of CPU and memory, nodes of workloads, and pods too many."""
    watts = {offer.machine_type: micro_watts(offer) for offer in start.offers}
    there = [node for node in plan.nodes if node.action != "delete"]
    fill = fill_after(plan, start.cluster, start.offers, rule=USABLE)
    used = sum(watts.get(node.machine_type, 0) for node in there) / MICRO
    percents = (fill["cpu"].percent, fill["memory"].percent)
    return (plan.cost.after, plan.moves, len(there), used, *percents, *spread_of(plan, start))


def row_of(name: str, found: Sequence[tuple[float, ...]]) -> str:
    """Return a row of the table: sums, of the percentages the largest."""
    cost, moves, nodes, watts, cpu, memory, spread, excess = zip(*found, strict=True)
    cells = (
        name,
        f"{sum(cost):.2f}",
        f"{sum(moves):.0f}",
        f"{sum(nodes):.0f}",
        f"{sum(watts):.0f}",
        f"{max(cpu):.1f}%, {max(memory):.1f}%",
        f"{sum(spread):.0f}",
        f"{sum(excess):.0f}",
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
    parser.add_argument("--clusters", type=int, default=4)
    parser.add_argument("--start", default="", choices=tuple(starts()))
    parser.add_argument("--work", type=int, default=20, help="iterations of each phase of a solve")
    given = parser.parse_args()
    known = starts()
    made = [known[given.start]()] if given.start else [small_cluster(seed) for seed in range(given.clusters)]
    print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n", flush=True)
    for name, changes in CASES.items():
        settings = replace(PLAIN, **changes)
        rows = []
        for start in made:
            plan = plan_for(start.cluster, start.offers, now=NOW, settings=settings, stop=WorkStop(given.work))
            rows.append(figures_of(plan, start))
        print(row_of(name, rows), flush=True)


if __name__ == "__main__":
    main()
