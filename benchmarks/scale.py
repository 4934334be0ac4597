"""One iteration of the five services, from observed to executed, on a real control plane of 1,300 nodes.

    python -m benchmarks.scale [--nodes 1300] [--workloads 12000] [--pods-each 1] [--max-moves 500] [--out FILE]

As many nodes and workloads as in the thesis's experiment (6.2): Deployments of one pod each, spread over nodes that are
a quarter full. How many pods the plan may move decides how long its execution takes on this machine, which runs the
control plane, the fake nodes and the services alike.
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

NODES: Final = 1_300
WORKLOADS: Final = 12_000
MAX_MOVES: Final = 500
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
    return run(nodes=NODES, workloads=WORKLOADS, wish=Wish(max_moves=MAX_MOVES))


def run(*, nodes: int, workloads: int, wish: Wish, pods_each: int = 1) -> dict[str, object]:
    """Set such a cluster up, and let the services work."""
    objects = cluster_objects(nodes=nodes, pods=workloads * pods_each, pods_per_workload=pods_each)
    return {"workloads": workloads, **run_on(Start(from_objects(objects), e2_offers()), wish, _LARGE)}


def main() -> None:
    """Entry point of `python -m benchmarks.scale`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--workloads", type=int, default=WORKLOADS)
    parser.add_argument("--pods-each", type=int, default=1, help="pods of a workload")
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
    result = run(nodes=given.nodes, workloads=given.workloads, pods_each=given.pods_each, wish=wish)
    print(json.dumps(result, indent=2))
    write_result("scale", result, given.out)


if __name__ == "__main__":
    main()
