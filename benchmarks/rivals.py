"""Plans beside those of neighboring tools, on clusters after a peak and on one full of rules.

    python -m benchmarks.rivals [--seconds 10] [--only NAME …] [--pods 12000] [--out FILE]

Every plan, the tools' too, has passed the checker. Cost is also given over the bound that Kinema's solver proved, which
holds for plans that keep Kinema's rules: for all tools here.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.clusters import NOW
from benchmarks.frontier import RIVALS
from benchmarks.machine import write_result
from benchmarks.starts import PODS, starts
from kinema_core.events import Plan
from kinema_core.model.checker.check import check_plan
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.settings import PlanningSettings

SECONDS: Final = 10.0


def measure() -> dict[str, object]:
    """All of them, for `python -m benchmarks`."""
    return table(list(starts()), seconds=SECONDS, pods=PODS)


def table(names: Sequence[str], *, seconds: float, pods: int) -> dict[str, object]:
    """Per cluster its size, and a row for each plan. USD per hour."""
    found: dict[str, object] = {}
    for name in names:
        start = starts(pods)[name]()
        began = time.perf_counter()
        settings = PlanningSettings(time_limit_seconds=seconds, max_moves_fraction=1.0, redundancy=False, headroom=0)
        plan = plan_for(start.cluster, start.offers, now=NOW, settings=settings)
        bound = plan.cost.lower_bound
        rows = [_row("kinema", plan, evictions=plan.moves, bound=bound, seconds=time.perf_counter() - began)]
        for policy in RIVALS:
            began = time.perf_counter()
            proposal = policy.propose(start.cluster, start.offers, NOW)
            took = time.perf_counter() - began
            wrong = check_plan(proposal.plan, start.cluster, start.offers, NOW)
            assert not wrong, (name, policy.name, wrong[:5])
            rows.append(_row(policy.name, proposal.plan, evictions=proposal.evictions, bound=bound, seconds=took))
        for row in rows:
            print(name, json.dumps(row), file=sys.stderr, flush=True)
        found[name] = {
            "nodes": len(start.cluster.nodes),
            "pods": len(start.cluster.pods),
            "held": len(plan.held),
            "cost_before": plan.cost.before,
            "bound": bound,
            "plans": rows,
        }
    return found


def _row(name: str, plan: Plan, *, evictions: int, bound: float, seconds: float) -> dict[str, object]:
    return {
        "name": name,
        "status": plan.status,
        "cost": plan.cost.after,
        "over_bound": round(plan.cost.after / bound, 4) if bound else None,
        "moves": plan.moves,
        "evictions": evictions,
        "nodes": sum(node.action != "delete" for node in plan.nodes),
        "seconds": round(seconds, 2),
    }


def main() -> None:
    """Entry point of `python -m benchmarks.rivals`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for Kinema's solve")
    parser.add_argument("--pods", type=int, default=PODS, help="of the cluster full of rules")
    parser.add_argument("--only", nargs="+", choices=list(starts()), help="clusters; by default all")
    parser.add_argument("--out", type=Path, default=Path("out/bench/rivals.json"))
    given = parser.parse_args()
    result = table(given.only or list(starts()), seconds=given.seconds, pods=given.pods)
    write_result("rivals", result, given.out)


if __name__ == "__main__":
    main()
