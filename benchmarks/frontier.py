"""Cost over moves: the search held to a number of moves, beside neighbouring tools from the same running cluster.

    python -m benchmarks.frontier --instance openb-running --traces DIR [--seconds 10] [--out DIR]

Writes a JSON file and an SVG chart. Moves are net: pods that end on another node than they were on. The tools'
evictions, where a pod may be moved twice, are in the JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.catalogue import NoTraceError, scenes
from benchmarks.chart import Point, frontier_chart
from benchmarks.clusters import NOW
from benchmarks.instances import Scene
from benchmarks.machine import TRACES, describe
from benchmarks.solver import solve, warm_up
from kinema_core.model.check import check_plan
from kinema_sim.policies import ClusterAutoscaler, FirstFit, Karpenter, Policy
from kinema_sim.policies.cluster_autoscaler import OPTIMIZE_UTILIZATION

SHARES: Final = (0, 5, 10, 20, 30, 40, 50, 60, 80, 100)
"""Per cent of the pods that may move."""

RIVALS: Final[tuple[Policy, ...]] = (
    ClusterAutoscaler(),
    OPTIMIZE_UTILIZATION,
    Karpenter(),
    Karpenter(name="karpenter, pods bound as it planned", binds="planned"),
    FirstFit(),
)


@dataclass(frozen=True)
class Row:
    """A point of the frontier and what it was held to."""

    moves: int
    cost: int
    """Micro-USD per hour."""
    most_moves: int | None = None
    move_price: float | None = None
    """USD per hour."""

    def json(self) -> dict[str, object]:
        """As it is written: USD per hour."""
        held = {"most_moves": self.most_moves} if self.move_price is None else {"move_price": self.move_price}
        return {**held, "moves": self.moves, "cost": self.cost / 1e6}


def measure() -> dict[str, object]:
    """The frontier of the generated cluster of 12,000 pods, and of the trace's where its files are."""
    traces = os.environ.get(TRACES)
    where = None if traces is None else Path(traces)
    names = ("large-running", "openb-running")
    return {name: run(name, where, seconds=10.0, shares=SHARES, out=Path("out/bench")) for name in names}


def run(
    name: str,
    traces: Path | None,
    *,
    seconds: float,
    shares: Sequence[int],
    out: Path,
    prices: Sequence[float] = (),
    rivals: bool = True,
) -> dict[str, object]:
    """Measure one instance, and write its chart."""
    try:
        scene = scenes(traces)[name]()
    except NoTraceError as error:
        return {"skipped": str(error)}
    if scene.running is None:
        raise SystemExit(f"{name} has no running pods: choose an instance that ends in -running")
    others = [_rival(policy, scene) for policy in RIVALS] if rivals else []
    rows, bound = _frontier(scene, seconds=seconds, shares=shares, prices=prices)
    pods = sum(one.count for one in scene.classes)
    curve = [Point(row.moves, row.cost / 1e6) for row in sorted(rows, key=lambda row: (row.moves, row.cost))]
    points = [Point(int(str(other["moves"])), float(str(other["cost"])), str(other["name"])) for other in others]
    title = f"{name}: {pods:,} pods, {len(scene.running):,} nodes, {seconds:g} s per point"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"frontier-{name}.svg").write_text(frontier_chart(title, curve, points, bound=bound / 1e6, pods=pods))
    return {
        "pods": pods,
        "nodes": len(scene.running),
        "cost_before": sum(node.machine.micro_usd_per_hour for node in scene.running) / 1e6,
        "bound": bound / 1e6,
        "frontier": [row.json() for row in rows],
        "rivals": others,
    }


def _frontier(scene: Scene, *, seconds: float, shares: Sequence[int], prices: Sequence[float]) -> tuple[list[Row], int]:
    """Points in micro-USD per hour, and the highest bound that any of the solves has proved."""
    problem = scene.problem()
    pods = int(problem.total.sum())
    warm_up()
    rows: list[Row] = []
    bound = 0
    for share in shares:
        solved = solve(problem, seconds=seconds, max_moves=pods * share // 100)
        bound = max(bound, solved.bound)
        rows.append(_told(Row(moves=solved.moves, cost=solved.cost, most_moves=pods * share // 100)))
    for price in prices:
        solved = solve(problem, seconds=seconds, move_price=round(price * 1e6))
        bound = max(bound, solved.bound)
        rows.append(_told(Row(moves=solved.moves, cost=solved.cost, move_price=price)))
    return rows, bound


def _told(row: Row) -> Row:
    print(row, file=sys.stderr, flush=True)
    return row


def _rival(policy: Policy, scene: Scene) -> dict[str, object]:
    cluster, offers = scene.cluster()
    began = time.perf_counter()
    found = policy.propose(cluster, offers, NOW)
    seconds = time.perf_counter() - began
    wrong = check_plan(found.plan, cluster, offers, NOW)
    assert not wrong, wrong[:5]
    plan = found.plan
    row: dict[str, object] = {
        "name": policy.name,
        "moves": plan.moves,
        "evictions": found.evictions,
        "steps": len(found.steps),
        "cost": plan.cost.after,
        "nodes": sum(node.action != "delete" for node in plan.nodes),
        "seconds": round(seconds, 2),
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def main() -> None:
    """Entry point of `python -m benchmarks.frontier`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    running = [name for name in scenes(None) if name.endswith("-running")]
    parser.add_argument("--instance", choices=running, default="large-running")
    parser.add_argument("--traces", type=Path, help="directory of the traces")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each point")
    parser.add_argument("--shares", type=int, nargs="+", default=list(SHARES), help="per cent of pods that may move")
    parser.add_argument("--move-prices", type=float, nargs="*", default=[], help="also: USD/h that a move has to save")
    parser.add_argument("--without-rivals", action="store_true", help="measure the search alone")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    result = run(
        given.instance,
        given.traces,
        seconds=given.seconds,
        shares=given.shares,
        out=given.out,
        prices=given.move_prices,
        rivals=not given.without_rivals,
    )
    path = given.out / f"frontier-{given.instance}.json"
    given.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"benchmark": "frontier", "machine": describe(), "result": result}, indent=2) + "\n")
    print(f"written to {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
