"""The simulated Karpenter and Cluster Autoscaler beside the real ones, after a peak of the same load.

    python -m benchmarks.faithful [--start boutique] [--minutes 40]

The real figures were measured on a real control plane (Kubernetes 1.36, Karpenter 1.15, Cluster Autoscaler 1.36.1 with
shortened timers) from peaks of the same workloads; their nodes were bought by the real Karpenter, those here by the
simulated one. So cost is compared as a multiple of the least that is proven for the start, and evictions by pod.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

import structlog

from benchmarks.clusters import NOW
from benchmarks.starts import Start, starts
from kinema_core.events import CatalogPublished, ClusterDelta, ClusterSnapshot
from kinema_core.model.cluster import all_objects
from kinema_core.runtime.envelope import origin
from kinema_optimizer.bounds.certificate import lower_bound
from kinema_optimizer.policies.karpenter import Karpenter
from kinema_optimizer.policies.policy import Policy
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.settings import PolicyName
from kinema_sim.simulate.recorded import recorded_scenario
from kinema_sim.simulate.run import run
from kinema_sim.simulate.scenario import Loaded


@dataclass(frozen=True)
class Real:
    """What the real system did: cost at the end over the least possible, and evictions over pods, least and most."""

    cost: tuple[float, float]
    evictions: tuple[float, float] | None


REAL: Final[Mapping[tuple[str, PolicyName], Real]] = MappingProxyType(
    {
        ("boutique", "karpenter"): Real((1.215, 1.215), (0.89, 0.89)),
        ("boutique", "cluster-autoscaler"): Real((2.045, 2.045), None),
        ("boutique", "optimize-utilization"): Real((1.956, 1.956), None),
        ("deployments-0", "karpenter"): Real((1.026, 1.026), (0.54, 0.54)),
        ("deployments-0", "cluster-autoscaler"): Real((1.111, 1.128), (0.32, 0.33)),
        ("deployments-0", "optimize-utilization"): Real((1.035, 1.035), (0.50, 0.54)),
        ("deployments-1", "karpenter"): Real((1.019, 1.019), (0.49, 0.49)),
    }
)
AS_MEASURED: Final[Mapping[PolicyName, Policy]] = MappingProxyType({"karpenter": Karpenter(budget_percent=100)})
"""Settings of the real systems, where they were not the defaults: all nodes might be disrupted at once."""
HEADER: Final = "| start | policy | real cost over bound | simulated | real evictions a pod | simulated | processor s |"


def as_recording(name: str, start: Start, minutes: int) -> Loaded:
    """Return a start as the recording of a cluster in which nothing happens by itself."""
    bodies = (
        ("STATE", ClusterSnapshot(version=1, objects=tuple(all_objects(start.cluster))), 0),
        ("LOG", CatalogPublished(source="benchmark", priced=None, offers=start.offers), 0),
        ("STATE", ClusterDelta(version=2, upserts=(), deletes=()), minutes),
    )
    events = [
        (
            stream,
            origin(body, id_=f"{name}/{at}", cluster=name, iteration="", now=NOW + timedelta(minutes=at), state=1),
        )
        for stream, body, at in bodies
    ]
    return recorded_scenario(name, events)


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faithful", description=__doc__)
    parser.add_argument("--start", action="append", choices=sorted({start for start, _ in REAL}))
    parser.add_argument("--minutes", type=int, default=40)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n", flush=True)
    known = starts()
    for (name, policy), real in REAL.items():
        if given.start and name not in given.start:
            continue
        start = known[name]()
        result, seconds = run(as_recording(name, start, given.minutes), policy, rules=AS_MEASURED.get(policy))
        least = lower_bound(compiled(Question(start.cluster, start.offers, NOW, "reschedule")).relaxed).value / 10**6
        last = result.samples[-1]
        cells = (
            name,
            policy,
            _span(real.cost),
            f"{last.usd_per_hour / least:.3f}" + (f" ({last.pending} pods wait)" if last.pending else ""),
            "" if real.evictions is None else _span(real.evictions),
            f"{result.evictions / len(start.cluster.pods):.2f}",
            f"{seconds:.0f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def _span(values: tuple[float, float]) -> str:
    low, high = values
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


if __name__ == "__main__":
    main()
