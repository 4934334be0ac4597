"""One iteration of the five services, from observed to executed, on a real control plane of 1,000 nodes.

    python -m benchmarks.scale [--nodes 1000] [--pods 10000] [--max-moves 1000] [--out FILE]

Deployments of fifty pods each, spread over nodes that are a quarter full. How many pods the plan may move decides how
long its execution takes on this machine, which runs the control plane, the fake nodes and the services alike.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from tests.controlplane.plane import Options

from benchmarks.after_peak import PROGRAMS, Wish, run_on
from benchmarks.machine import write_result
from benchmarks.starts import Start, e2_offers
from benchmarks.synthetic import cluster_objects
from kinema_core.model.cluster import from_objects

NODES: Final = 1_000
PODS: Final = 10_000
MAX_MOVES: Final = 1_000
_LARGE: Final = Options(
    only=PROGRAMS,
    node_silence_seconds=180,
    kubelets=32,
    flags={
        # As managed clusters of this size have them: the defaults are for small ones.
        "kube-controller-manager": (
            "--kube-api-qps=300",
            "--kube-api-burst=600",
            "--concurrent-deployment-syncs=20",
            "--concurrent-replicaset-syncs=20",
        ),
        "kwok": ("--node-lease-duration-seconds=240",),
    },
)


def measure() -> dict[str, object]:
    """At full size, for `python -m benchmarks`."""
    return run(nodes=NODES, pods=PODS, wish=Wish(max_moves=MAX_MOVES))


def run(*, nodes: int, pods: int, wish: Wish) -> dict[str, object]:
    """Set such a cluster up, and let the services work."""
    start = Start(from_objects(cluster_objects(nodes=nodes, pods=pods)), e2_offers())
    return run_on(start, wish, _LARGE)


def main() -> None:
    """Entry point of `python -m benchmarks.scale`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--max-moves", type=int, default=MAX_MOVES, help="pods that a plan moves at most")
    parser.add_argument(
        "--most-seconds",
        type=float,
        default=Wish.most_seconds,
        help="after which it is stopped, and what was reached is printed",
    )
    parser.add_argument("--out", type=Path, default=Path("out/bench/scale.json"))
    given = parser.parse_args()
    wish = Wish(max_moves=given.max_moves, most_seconds=given.most_seconds, plans=1)
    result = run(nodes=given.nodes, pods=given.pods, wish=wish)
    print(json.dumps(result, indent=2))
    write_result("scale", result, given.out)


if __name__ == "__main__":
    main()
