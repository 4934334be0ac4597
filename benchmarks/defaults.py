"""What each default costs: the price of one plan with all limits off, and with each of them on.

    python -m benchmarks.defaults --seconds 20
    python -m benchmarks --only defaults

`redundancy` keeps workloads on two nodes and in their zones, `headroom` leaves room for a large pod in every zone;
`windows` stands for the price of a move. `max_moves_fraction` moves at most a quarter of the pods: what it costs is
what later plans still save.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.clusters import NOW
from benchmarks.starts import Start, starts
from kinema_core.model.redundancy import redundancy_loss
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.objective import Window
from kinema_optimizer.settings import PlanningSettings

OFF: Final[Mapping[str, Any]] = {
    "windows": (Window(objective="least-cost"),),
    "max_moves_fraction": 1.0,
    "redundancy": False,
    "headroom": 0,
}
"""Settings without any of the limits, and without a price of moves."""
SECONDS: Final = 20.0
PODS: Final = 2_000
"""Of the cluster full of rules."""


def measure() -> dict[str, object]:
    """Return the figures of all clusters."""
    return table(SECONDS)


def table(seconds: float) -> dict[str, object]:
    """Return USD per hour by cluster: now, without limits, and with each default and all of them."""
    return {name: _costs(make(), seconds) for name, make in starts(PODS).items()}


def _costs(start: Start, seconds: float) -> dict[str, object]:
    defaults = PlanningSettings()
    alone = {name: {**OFF, name: getattr(defaults, name)} for name in OFF}  # `windows`: the price of moves
    found: dict[str, object] = {"pods": len(start.cluster.pods), "nodes": len(start.cluster.nodes)}
    for name, settings in {"off": OFF, **alone, "all": {}}.items():
        plan = plan_for(
            start.cluster, start.offers, now=NOW, settings=PlanningSettings(time_limit_seconds=seconds, **settings)
        )
        found |= {"now": plan.cost.before, "bound": plan.cost.lower_bound}
        found[name] = {
            "usd_per_hour": plan.cost.after,
            "moves": plan.moves,
            "method": plan.solve.method,
            "workloads_brought_together": len(redundancy_loss(plan, start.cluster)),
        }
        print(name, found[name], file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Entry point of `python -m benchmarks.defaults`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit of each plan")
    print(json.dumps(table(parser.parse_args().seconds), indent=2))


if __name__ == "__main__":
    main()
