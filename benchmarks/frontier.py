"""Cost over moves: plans held to a number of moves, beside neighboring tools from the same running cluster.

    python -m benchmarks.frontier --instance deployments-0 [--traces DIR] [--seconds 10] [--out DIR]
    python -m benchmarks.frontier --after-peaks [--processors 1.5]  # by default, and beside Karpenter, ten starts

Every point is a plan that the checker has accepted, in waves. Writes a JSON file and an SVG chart. Moves are net: pods
that end on another node than they were on; the tools' evictions, where a pod may be moved twice, are in the JSON file.
Below the chart's dashed line there is no plan: that is `least_cost`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.catalog import NoTraceError, scenes
from benchmarks.chart import Point, frontier_chart
from benchmarks.clusters import NOW
from benchmarks.least_cost import LeastCost
from benchmarks.machine import TRACES, write_result
from benchmarks.solver import deadline, warm_up
from benchmarks.starts import Start, peaks, starts
from kinema_core.model.checker.check import check_plan
from kinema_optimizer.planning.planner import PRICING_SHARE, plan_for
from kinema_optimizer.policies.cluster_autoscaler import OPTIMIZE_UTILIZATION, ClusterAutoscaler
from kinema_optimizer.policies.first_fit import FirstFit
from kinema_optimizer.policies.karpenter import Karpenter
from kinema_optimizer.policies.proposal import Repacking
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import ClockStop

SHARES: Final = (0, 5, 10, 20, 30, 40, 50, 60, 80, 100)
"""Per cent of the pods that may move."""
NEAR: Final = 1.02
"""Times the fewest moves that a tool's cost takes in any plan: there a further point is measured."""

FEWER: Final = 65
"""Per cent of a real tool's evictions: there a point is measured, too."""

WITHIN: Final = 1.005
"""Times the bound that a plan by default is to cost at most."""

RIVALS: Final[tuple[Repacking, ...]] = (
    ClusterAutoscaler(),
    OPTIMIZE_UTILIZATION,
    Karpenter(),
    Karpenter(name="karpenter, pods bound as it planned", binds="planned"),
    FirstFit(),
)


@dataclass(frozen=True)
class Row:
    """A plan held to a number of moves, or to a price of one. USD per hour."""

    moves: int
    cost: float
    bound: float
    most_moves: int | None = None
    move_price: float | None = None
    """The one given, or that the search chose where neither is."""


@dataclass(frozen=True)
class Rival:
    """Result of a neighboring tool on the same cluster. USD per hour."""

    name: str
    moves: int
    evictions: int
    steps: int | None
    """None: not known."""
    cost: float
    nodes: int
    seconds: float
    least_moves: int
    """Fewer moves no plan has that costs no more."""


@dataclass(frozen=True)
class Seen:
    """Observed result of a real tool on the same cluster. USD per hour."""

    name: str
    cost: float
    nodes: int
    machines: dict[str, int]
    """Nodes by machine type at its end."""
    evictions: int
    """Pods that ended: those of the start, and those that came in their place and had to go again."""
    distinct: int
    """Pods of the start among them."""
    bought: int
    bought_in_vain: int
    """Nodes that were bought and did not stay."""
    most_missing: int
    """Pods that workloads lacked at the worst moment."""
    seconds: float
    """Until the last change."""
    saved_by_a_third: float | None = None
    """Share of its saving that was real after a third of these seconds; None where nothing was saved."""


def measure() -> dict[str, object]:
    """Clusters after a peak, the generated one of 12,000 pods, and that of the trace where its files are."""
    traces = os.environ.get(TRACES)
    where = None if traces is None else Path(traces)
    mine = ("boutique", "deployments-0", "deployments-constrained", "large-running", "openb-running")
    return {name: run(name, where, seconds=10.0, shares=SHARES, out=Path("out/bench")) for name in mine}


def after_peaks(seconds: float, processors: float | None = None) -> dict[str, object]:
    """Measure plans of all Deployments after a peak beside the simulated Karpenter, without charts; see `_after_peak`.

    `processors`: see `solver.deadline`.
    """
    warm_up()
    found: dict[str, object] = {}
    for name in peaks():
        if name.startswith("deployments"):
            found[name] = _after_peak(starts()[name](), partial(_row, seconds=seconds, processors=processors))
            print(json.dumps({name: found[name]}), file=sys.stderr, flush=True)
    return found


def _after_peak(start: Start, row: Callable[..., Row]) -> dict[str, object]:
    """Return the plan by default, and those with as many moves as Karpenter or about as many as its cost needs.

    Shares are of Karpenter's evictions; the least share is what a plan needs at least that costs `WITHIN` times the
    bound.
    """
    least = LeastCost(compiled(Question(start.cluster, start.offers, NOW, "reschedule")).relaxed)
    karpenter, default = _rival(Karpenter(), start, least), row(start)
    rows = [default, *(row(start, most_moves=most) for most in (karpenter.moves, round(karpenter.least_moves * NEAR)))]
    needed = least.moves_at(round(WITHIN * default.bound * 1e6))
    return {
        "pods": _pods(start),
        "nodes": len(start.cluster.nodes),
        "karpenter": asdict(karpenter),
        "by_default": asdict(default),
        "over_bound_percent": round(100 * (default.cost / default.bound - 1), 3),
        "share_percent": round(100 * default.moves / karpenter.evictions, 1),
        "least_share_percent": round(100 * needed / karpenter.evictions, 1),
        **_beside(karpenter, rows),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def run(
    name: str, traces: Path | None, *, seconds: float, shares: Sequence[int], out: Path, prices: Sequence[float] = ()
) -> dict[str, object]:
    """Measure one instance, and write its chart."""
    try:
        start = _start(name, traces)
    except NoTraceError as error:
        return {"skipped": str(error)}
    return frontier(name, start, seconds=seconds, shares=shares, out=out, prices=prices)


def frontier(
    name: str,
    start: Start,
    *,
    seconds: float,
    out: Path,
    shares: Sequence[int] = SHARES,
    prices: Sequence[float] = (),
    seen: Sequence[Seen] = (),
) -> dict[str, object]:
    """Measure one cluster beside the tools and what was `seen` of real ones, and write its chart."""
    warm_up()
    least, pods = LeastCost(compiled(Question(start.cluster, start.offers, NOW, "reschedule")).relaxed), _pods(start)
    rivals = [*(_real(one, least) for one in seen), *(_rival(policy, start, least) for policy in RIVALS)]
    caps = {pods * share // 100 for share in shares}
    caps.update(moves for rival in rivals for moves in (rival.moves, round(rival.least_moves * NEAR)))
    caps.update(moves for one in seen for moves in (one.evictions, one.evictions * FEWER // 100))
    row = partial(_row, start, seconds)
    rows = [row(), *(row(most_moves=cap) for cap in sorted(caps)), *(row(move_price=price) for price in prices)]
    title = f"{name}: {pods:,} pods, {len(start.cluster.nodes):,} nodes, {seconds:g} s per point"
    limit = [Point(moves, least.at(moves) / 1e6) for moves in range(0, pods + 1, max(1, pods // 50))]
    out.mkdir(parents=True, exist_ok=True)
    chart = frontier_chart(
        title,
        [Point(row.moves, row.cost) for row in sorted(rows, key=lambda row: (row.moves, -row.cost))],
        [Point(rival.moves, rival.cost, rival.name) for rival in rivals],
        limit=limit,
        pods=pods,
    )
    (out / f"frontier-{name}.svg").write_text(chart)
    return {
        "pods": pods,
        "nodes": len(start.cluster.nodes),
        # Of plans that move nothing the bound is one of its own.
        "bound": max(row.bound for row in rows if row.most_moves != 0),
        "by_default": asdict(rows[0]),
        "frontier": [asdict(row) for row in rows],
        "limit": [{"moves": point.moves, "cost": round(point.cost, 4)} for point in limit],
        "rivals": [{**asdict(rival), **_beside(rival, rows)} for rival in rivals],
        "seen": [asdict(one) for one in seen],
    }


def _real(seen: Seen, least: LeastCost) -> Rival:
    return Rival(
        name=seen.name,
        moves=seen.distinct,
        evictions=seen.evictions,
        steps=None,
        cost=seen.cost,
        nodes=seen.nodes,
        seconds=seen.seconds,
        least_moves=least.moves_at(round(seen.cost * 1e6)),
    )


def _start(name: str, traces: Path | None) -> Start:
    made = starts().get(name)
    return Start(*scenes(traces)[name]().cluster()) if made is None else made()


def _pods(start: Start) -> int:
    return sum(pod.node is not None for pod in start.cluster.pods)


def _beside(rival: Rival, rows: Sequence[Row]) -> dict[str, object]:
    """The cheapest point with no more moves, and the fewest moves of one that costs no more."""
    cheaper = [row.cost for row in rows if row.moves <= rival.moves]
    fewer = [row.moves for row in rows if row.cost <= rival.cost]
    return {"cost_at_its_moves": min(cheaper, default=None), "moves_at_its_cost": min(fewer, default=None)}


def _row(
    start: Start,
    seconds: float,
    *,
    processors: float | None = None,
    most_moves: int | None = None,
    move_price: float | None = None,
) -> Row:
    settings = PlanningSettings(
        max_moves_fraction=1.0,
        redundancy=False,
        headroom=0,
        time_limit_seconds=seconds,
        max_moves=most_moves,
        move_price_usd=move_price,
    )
    stop = ClockStop(deadline(seconds, processors), pricing=PRICING_SHARE)
    plan = plan_for(start.cluster, start.offers, now=NOW, settings=settings, stop=stop)
    price = plan.solve.move_price if move_price is None else move_price
    row = Row(plan.moves, plan.cost.after, plan.cost.lower_bound, most_moves, price)
    print(row, file=sys.stderr, flush=True)
    return row


def _rival(policy: Repacking, start: Start, least: LeastCost) -> Rival:
    began = time.perf_counter()
    found = policy.propose(start.cluster, start.offers, NOW)
    seconds = time.perf_counter() - began
    plan = found.plan
    wrong = check_plan(plan, start.cluster, start.offers, NOW)
    assert not wrong, wrong[:5]
    rival = Rival(
        name=policy.name,
        moves=plan.moves,
        evictions=found.evictions,
        steps=len(found.steps),
        cost=plan.cost.after,
        nodes=sum(node.action != "delete" for node in plan.nodes),
        seconds=round(seconds, 2),
        least_moves=least.moves_at(round(plan.cost.after * 1e6)),
    )
    print(rival, file=sys.stderr, flush=True)
    return rival


def main() -> None:
    """Entry point of `python -m benchmarks.frontier`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    running = [*starts(), *(name for name in scenes(None) if name.endswith("-running"))]
    parser.add_argument("--instance", choices=running, default="deployments-0")
    parser.add_argument("--traces", type=Path, help="directory of the traces")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each point")
    parser.add_argument("--shares", type=int, nargs="+", default=list(SHARES), help="per cent of pods that may move")
    parser.add_argument("--move-prices", type=float, nargs="*", default=[], help="also: USD/h that a move has to save")
    parser.add_argument("--after-peaks", action="store_true", help="Deployments after a peak, beside Karpenter alone")
    parser.add_argument("--processors", type=float, help="count the process' own time on so many, not the clock")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    if given.after_peaks:
        write_result("after-peaks", after_peaks(given.seconds, given.processors), given.out / "after-peaks.json")
        return
    result = run(
        given.instance,
        given.traces,
        seconds=given.seconds,
        shares=given.shares,
        out=given.out,
        prices=given.move_prices,
    )
    write_result("frontier", result, given.out / f"frontier-{given.instance}.json")


if __name__ == "__main__":
    main()
