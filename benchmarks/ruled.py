"""Plans of clusters full of rules: what comes out beside the search's best, by time limit and seed.

    python -m benchmarks.ruled [--seeds 20] [--nodes 40 200] [--time-limit 5 10 20 60] [--files DIR] [--out FILE]

Search and order alone are measured: no limit on moves, and without redundancy and headroom, which `--redundancy` and
`--headroom N` plan with, as `kinema plan` does.

`ruled_start` draws a cluster by a seed: more machines than needed in three zones with prices of their own, pools with
labels, taints, GPUs and spot, and Deployments and stateful sets with every kind of rule that plans keep. `--files` adds
each NAME.json.gz with NAME.catalog.csv of a directory. Every plan passes the checker, steps included.

`--bounds` makes no plans. It asks what rules over zones could add to the bound at most: the bound of the problem that
the search solves, where each pod of such a rule stays in its zone, obeys any row about how many there are in a zone.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from benchmarks.clusters import HOSTNAME, NAMESPACE, NOW, SURGE, ZONE, Deployed, node_of
from benchmarks.machine import write_result
from benchmarks.machine_types import ZONES
from benchmarks.solver import deadline
from benchmarks.starts import settled
from benchmarks.volumes import stateful
from kinema_cli.snapshot.file import load_snapshot
from kinema_core.events import (
    EMPTY,
    NO_RULES,
    Amounts,
    ClusterObject,
    FrozenMap,
    HostPort,
    Labels,
    Namespace,
    Node,
    NodeTerm,
    Offer,
    PlacementRules,
    Pod,
    PodTerm,
    Requirement,
    Selector,
    Spread,
    Toleration,
)
from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster, from_objects
from kinema_core.model.disruption_cost import ORDINARY, disruption_cost
from kinema_core.model.match import parse_taints
from kinema_optimizer.bounds.certificate import lower_bound
from kinema_optimizer.planning.planner import PRICING_SHARE, plan_for
from kinema_optimizer.policies.world import World, bind
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import Progress
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import ClockStop

ALONE: Final = PlanningSettings(max_moves_fraction=1.0, redundancy=False, headroom=0)
"""Settings of search and order alone."""
LIMITS: Final = (5.0, 10.0, 20.0, 60.0)
NODES: Final = (40, 200)
SEEDS: Final = 10
_MEBIBYTE: Final = 2**20
_HEADER: Final = "machine_type,vcpus,memory_gib,usd_per_hour,zone,capacity_type,gpus,labels,taints,available"
_TYPES: Final = (
    ("e2-standard-4", 4, 16, 0.134, "", "pool=general", ""),
    ("e2-standard-8", 8, 32, 0.268, "", "pool=general", ""),
    ("e2-standard-16", 16, 64, 0.536, "", "pool=general", ""),
    ("n2-standard-8", 8, 32, 0.388, "", "pool=general", ""),
    ("n2-standard-16", 16, 64, 0.777, "", "pool=general", ""),
    ("n2-standard-32", 32, 128, 1.554, "", "pool=general", ""),
    ("n2-highmem-16", 16, 128, 1.048, "", "pool=highmem;disktype=ssd", ""),
    ("n2d-standard-8", 8, 32, 0.338, "", "pool=data;disktype=ssd", "dedicated=data:NoSchedule"),
    ("n2d-standard-16", 16, 64, 0.676, "", "pool=data;disktype=ssd", "dedicated=data:NoSchedule"),
    ("g2-standard-8", 8, 32, 0.948, "1", "pool=gpu", "nvidia.com/gpu:NoSchedule"),
    ("g2-standard-16", 16, 64, 1.337, "1", "pool=gpu", "nvidia.com/gpu:NoSchedule"),
)
_SPOT: Final = ("e2-standard-8", "e2-standard-16")
_ZONE_FACTORS: Final = (1.0, 1.02, 1.05)
_SPOT_FACTOR: Final = 0.35
_SPOT_KEY: Final = "example.com/spot"
_FLEET: Final = {"": 0.78, "data": 0.09, "gpu": 0.06, "spot": 0.07}
"""Parts of the fleet; the first is every untainted type."""
_USED: Final = 0.45
"""Share of the fleet's CPU that pods request."""


@dataclass(frozen=True)
class RuledStart:
    """A cluster, what is on sale for it, and its time."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    now: datetime = NOW


def catalog_text() -> str:
    """Return the catalog of every ruled cluster, as a file."""
    rows = [_HEADER]
    for zone, factor in zip(ZONES, _ZONE_FACTORS, strict=True):
        for name, cpu, gib, usd, gpus, labels, taints in _TYPES:
            rows.append(f"{name},{cpu},{gib},{usd * factor:.6f},{zone},on-demand,{gpus},{labels},{taints},")
            if name in _SPOT:
                price = usd * factor * _SPOT_FACTOR
                rows.append(f"{name},{cpu},{gib},{price:.6f},{zone},spot,,pool=spot,{_SPOT_KEY}=true:NoSchedule,12")
    return "\n".join(rows) + "\n"


def ruled_start(seed: int, nodes: int = 40) -> RuledStart:
    """Return the cluster of a seed on about so many nodes; what no node holds waits."""
    draw = random.Random(seed)
    offers = offers_from(parse_catalog(catalog_text()), Cluster())
    fleet = list(_fleet(draw, offers, nodes))
    room = _USED * sum(node.allocatable["cpu"] for node in fleet)
    objects: list[ClusterObject] = [Namespace(name=NAMESPACE, uid="ns")]
    asked, kinds = 0.0, list(_KINDS)
    for index in range(100 * nodes):
        if asked >= room:
            break
        # Every kind in turn, the plain ones more often: at last all kinds are there, as in clusters of many teams.
        kind = kinds[index // 2 % len(kinds)] if index % 2 else "plain"
        made = list(_KINDS[kind](f"{kind}-{index}", _requests(draw), draw))
        asked += sum(pod.requests["cpu"] for pod in made if isinstance(pod, Pod))
        objects += made
    world = World(from_objects([*fleet, *objects]), offers, NOW)
    bind(world, world.waiting(), "least-allocated")
    return RuledStart(settled(world), offers)


def _fleet(draw: random.Random, offers: Sequence[Offer], nodes: int) -> Iterator[Node]:
    parts: dict[str, list[Offer]] = {part: [] for part in _FLEET}
    for offer in offers:
        pool = offer.labels["pool"]
        parts[pool if pool in parts else ""].append(offer)
    for part, share in _FLEET.items():
        for number in range(max(2, round(share * nodes))):
            offer = draw.choice([one for one in parts[part] if part or one.zone == ZONES[number % len(ZONES)]])
            node = node_of(f"{part or 'general'}-{number:04d}", offer)
            yield msgspec.structs.replace(node, taints=parse_taints(offer.taints))


def _requests(draw: random.Random) -> Amounts:
    cpu = draw.choice((100, 150, 250, 300, 500, 500, 750, 1000, 1500, 2000, 2500))
    memory = draw.choice((128, 256, 512, 768, 1024, 2048, 4096)) + cpu
    return FrozenMap({"cpu": cpu, "memory": memory * _MEBIBYTE, "pods": 1})


def _own(name: str) -> Selector:
    return Selector(labels=FrozenMap({"app": name}))


def _term(name: str, key: str, weight: int = 0) -> PodTerm:
    return PodTerm(topology_key=key, selector=_own(name), weight=weight)


def _spread(
    name: str, key: str, when: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule", skew: int = 1
) -> PlacementRules:
    return PlacementRules(
        spread=(Spread(topology_key=key, max_skew=skew, when_unsatisfiable=when, selector=_own(name)),)
    )


def _where(key: str, operator: Literal["In", "NotIn"], *values: str) -> PlacementRules:
    return PlacementRules(node_terms=(NodeTerm(expressions=(Requirement(key=key, operator=operator, values=values),)),))


def _pool(pool: str, key: str) -> PlacementRules:
    return PlacementRules(
        node_selector=FrozenMap({"pool": pool}), tolerations=(Toleration(key=key, operator="Exists"),)
    )


_Maker = Callable[[str, Amounts, random.Random], Iterable[ClusterObject]]


def _deployed(  # noqa: PLR0913 - a rule or more for each kind
    name: str,
    requests: Amounts,
    draw: random.Random,
    *,
    rules: Callable[[str], PlacementRules] = lambda _: NO_RULES,
    replicas: Sequence[int] = (2, 3, 3, 4, 5, 6, 8),
    budget: str | None = None,
    marks: Labels = EMPTY,
    more: Mapping[str, int] | None = None,
) -> Iterator[ClusterObject]:
    """Yield a Deployment with its pods; some of one replica may move by a surge."""
    count = draw.choice(replicas)
    alone = SURGE if count == 1 and draw.random() < 0.7 else EMPTY
    pods = dict.fromkeys(range(count if marks else 0), marks)
    asked = FrozenMap({**requests, **(more or {})})
    yield from Deployed(name, asked, (None,) * count, rules(name), alone, pod_annotations=pods, budget=budget).objects()


def _beside(name: str, requests: Amounts, draw: random.Random, *, key: str) -> Iterator[ClusterObject]:
    """Yield a Deployment, and one whose pods need its company."""
    hub = f"{name}-hub"
    yield from _deployed(hub, requests, draw, replicas=(2, 3))
    rules = PlacementRules(affinity=(_term(hub, key),))
    yield from _deployed(name, requests, draw, rules=lambda _: rules, replicas=(2, 3, 4))


def _store(name: str, requests: Amounts, draw: random.Random) -> Iterator[ClusterObject]:
    yield from stateful(name, requests, [draw.choice(ZONES) for _ in range(draw.choice((2, 3, 3)))])


def _port(_: str) -> PlacementRules:
    return PlacementRules(host_ports=(HostPort(port=8443),))


def _without_selector(rules: PlacementRules) -> PlacementRules:
    """Return the rules without their node selector."""
    return msgspec.structs.replace(rules, node_selector=EMPTY)


_HELD: Final = FrozenMap({"karpenter.sh/do-not-disrupt": "true"})
_SPOT_RULES: Final = _pool("spot", _SPOT_KEY)
_KINDS: Final[Mapping[str, _Maker]] = {
    "plain": partial(_deployed, replicas=(1, 1, 2, 3, 4, 5, 8, 12)),
    "spread-zone": partial(_deployed, rules=lambda name: _spread(name, ZONE), replicas=(3, 3, 4, 6)),
    "spread-host": partial(_deployed, rules=lambda name: _spread(name, HOSTNAME)),
    "spread-loose": partial(_deployed, rules=lambda name: _spread(name, ZONE, skew=2)),
    "spread-soft": partial(_deployed, rules=lambda name: _spread(name, HOSTNAME, "ScheduleAnyway")),
    "anti-host": partial(_deployed, rules=lambda name: PlacementRules(anti_affinity=(_term(name, HOSTNAME),))),
    "anti-zone": partial(
        _deployed, rules=lambda name: PlacementRules(anti_affinity=(_term(name, ZONE),)), replicas=(2, 2, 3)
    ),
    "anti-soft": partial(_deployed, rules=lambda name: PlacementRules(anti_affinity=(_term(name, HOSTNAME, 50),))),
    "near-host": partial(_beside, key=HOSTNAME),
    "near-zone": partial(_beside, key=ZONE),
    "zones": partial(_deployed, rules=lambda _: _where(ZONE, "In", *ZONES[:2])),
    "zone": partial(_deployed, rules=lambda _: _where(ZONE, "In", ZONES[2])),
    "not-highmem": partial(_deployed, rules=lambda _: _where("pool", "NotIn", "highmem")),
    "highmem": partial(_deployed, rules=lambda _: _where("disktype", "In", "ssd"), replicas=(1, 2)),
    "data": partial(_deployed, rules=lambda _: _pool("data", "dedicated"), replicas=(2, 3)),
    "gpu": partial(
        _deployed, rules=lambda _: _pool("gpu", "nvidia.com/gpu"), replicas=(1, 2), more={"nvidia.com/gpu": 1}
    ),
    "spot": partial(_deployed, rules=lambda _: _SPOT_RULES),
    "spot-may": partial(_deployed, rules=lambda _: _without_selector(_SPOT_RULES)),
    "budget-one": partial(_deployed, budget="1", replicas=(2, 3, 4)),
    "budget-none": partial(_deployed, budget="0", replicas=(2, 3)),
    "held": partial(_deployed, marks=_HELD, replicas=(1, 2)),
    "port": partial(_deployed, rules=_port, replicas=(2, 3)),
    "store": _store,
}


# --- measuring


def measure() -> dict[str, object]:
    """A few of them, for `python -m benchmarks`."""
    return table(generated(range(3), NODES), (10.0,))


def generated(seeds: Iterable[int], sizes: Iterable[int]) -> dict[str, Callable[[], RuledStart]]:
    """Return the clusters of these seeds and sizes, by name."""
    return {f"ruled-{nodes}-{seed}": partial(ruled_start, seed, nodes) for nodes in sizes for seed in seeds}


def from_files(directory: Path) -> dict[str, Callable[[], RuledStart]]:
    """Return the clusters of a directory, by name."""

    def read(packed: Path) -> RuledStart:
        snapshot = load_snapshot(packed)
        catalog = packed.with_name(packed.name.replace(".json.gz", ".catalog.csv"))
        offers = offers_from(parse_catalog(catalog.read_text()), snapshot.cluster)
        return RuledStart(snapshot.cluster, offers, snapshot.now)

    return {one.name.removesuffix(".json.gz"): partial(read, one) for one in sorted(directory.glob("*.json.gz"))}


def table(
    starts: Mapping[str, Callable[[], RuledStart]],
    limits: Sequence[float],
    processors: float | None = None,
    settings: PlanningSettings = ALONE,
) -> dict[str, object]:
    """Return a row for each cluster and limit, and over all of them the worst and the mean of each limit."""
    rows = []
    for name, start in starts.items():
        made = start()
        for limit in limits:
            rows.append({"cluster": name, **one(made, limit, processors=processors, settings=settings)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return {"rows": rows, "summary": {f"{limit:g} s": _summary(rows, limit) for limit in limits}, **_rises(rows)}


def bounds(starts: Mapping[str, Callable[[], RuledStart]]) -> dict[str, object]:
    """Return the bound of all plans and that of the problem that the search solves, USD per hour, by cluster."""
    found: dict[str, object] = {}
    for name, start in starts.items():
        made = start()
        problem = compiled(Question(made.cluster, made.offers, made.now, "reschedule", options=ALONE.mobility))
        every, pinned = lower_bound(problem.relaxed).value, lower_bound(problem.packing).value
        more = round(100 * (pinned / every - 1), 2)
        found[name] = {"bound": every / 1e6, "of_the_search": pinned / 1e6, "more_percent": more}
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def one(
    start: RuledStart, seconds: float, *, processors: float | None = None, settings: PlanningSettings = ALONE
) -> dict[str, object]:
    """Return the figures of one plan. USD per hour, seconds.

    `processors`: see `solver.deadline`.

    Raises:
        AssertionError: the plan breaks a rule.
    """
    seen: list[Progress] = []
    gc.collect()
    began, worked = time.perf_counter(), time.process_time()
    plan = plan_for(
        start.cluster,
        start.offers,
        now=start.now,
        settings=msgspec.structs.replace(settings, time_limit_seconds=seconds),
        stop=ClockStop(deadline(seconds, processors), pricing=PRICING_SHARE),
        progress=seen.append,
    )
    took, worked = time.perf_counter() - began, time.process_time() - worked
    wrong = check_plan(plan, start.cluster, start.offers, start.now, ordered=True)
    assert not wrong, wrong[:5]
    found = min(((one.unplaced, one.cost) for one in seen), default=(0, round(plan.cost.after * 1e6)))[1] / 1e6
    found = min(found, plan.cost.after - (plan.solve.lost_to_order or 0.0))
    bound = plan.cost.lower_bound
    pods = start.cluster.pods_by_key
    moving = [pods[one.pod] for one in plan.placements if one.source is not None and one.source != one.to]
    restarts = sum(disruption_cost(start.cluster, pod) for pod in moving) / ORDINARY
    return {
        "limit": seconds,
        "seconds": round(took, 2),
        "processor_seconds": round(worked, 2),
        "cost_before": plan.cost.before,
        "bound": bound,
        "search_best": found,
        "cost": plan.cost.after,
        "with_moves_priced": round(plan.cost.after + (plan.solve.move_price or 0.0) * restarts, 6),
        "over_search": round(plan.cost.after / found, 4),
        "gap_percent": round(100 * (plan.cost.after / bound - 1), 2) if bound else None,
        "moves": plan.moves,
        "waves": plan.steps[-1].wave + 1 if plan.steps else 0,
        "temporary": len(plan.temporary),
        "lost_to_order": plan.solve.lost_to_order,
        "unplaced": len(plan.unplaced),
        "method": plan.solve.method,
        "load_1min": round(os.getloadavg()[0], 2),
    }


def _summary(rows: Sequence[Mapping[str, object]], limit: float) -> dict[str, object]:
    mine = [row for row in rows if row["limit"] == limit]
    figures: dict[str, object] = {"plans": len(mine)}
    for name in ("over_search", "gap_percent"):
        values = [float(str(row[name])) for row in mine if row[name] is not None]
        if values:
            figures |= {f"{name}_mean": round(sum(values) / len(values), 4), f"{name}_worst": max(values)}
    return figures


def _rises(rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return where more time gave a dearer plan, and where one that is dearer with moves at their price."""
    return {
        "dearer_with_more_time": list(_rises_of("cost", rows)),
        "dearer_with_moves_priced": list(_rises_of("with_moves_priced", rows)),
    }


def _rises_of(figure: str, rows: Sequence[Mapping[str, object]]) -> Iterator[dict[str, object]]:
    least = dict[str, float]()
    for row in rows:
        name, value = str(row["cluster"]), float(str(row[figure]))
        if value > least.get(name, value):
            yield {"cluster": name, "limit": row["limit"], "rise_percent": round(100 * (value / least[name] - 1), 3)}
        least[name] = min(value, least.get(name, value))


def main() -> None:
    """Entry point of `python -m benchmarks.ruled`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, nargs="*", default=list(NODES), help="sizes; none: files alone")
    parser.add_argument("--time-limit", type=float, nargs="+", default=list(LIMITS), help="seconds")
    parser.add_argument("--processors", type=float, help="count the process' own time on so many, not the clock")
    parser.add_argument("--redundancy", action="store_true", help="keep workloads on two nodes and in their zones")
    parser.add_argument("--headroom", type=int, default=0, metavar="N", help="room for N large pods in every zone")
    parser.add_argument("--files", type=Path, help="directory of NAME.json.gz with NAME.catalog.csv")
    parser.add_argument("--bounds", action="store_true", help="of all plans, and of those with pods in their zones")
    parser.add_argument("--out", type=Path, default=Path("out/bench/ruled.json"))
    given = parser.parse_args()
    starts = {} if given.files is None else from_files(given.files)
    starts |= generated(range(given.first, given.first + given.seeds), given.nodes)
    if given.bounds:
        write_result("ruled-bounds", bounds(starts), given.out)
        return
    settings = msgspec.structs.replace(ALONE, redundancy=given.redundancy, headroom=given.headroom)
    write_result("ruled", table(starts, given.time_limit, given.processors, settings), given.out)


if __name__ == "__main__":
    main()
