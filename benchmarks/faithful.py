"""The simulated Karpenter and Cluster Autoscaler beside the real ones, after a peak of the same load.

    python -m benchmarks.faithful [--start boutique] [--minutes 40] [--orders 1] [--lived-through | --measured DIR]

The real figures were measured on a real control plane (Kubernetes 1.36, Karpenter 1.15, Cluster Autoscaler 1.36.1 with
shortened timers) from peaks of the same workloads; their nodes were bought by the real Karpenter, those here by the
simulated one. So cost is compared as a multiple of the least that is proven for the start, and evictions by pod.

Which pods are left after the peak decides how many have to move. By default they are drawn at random, so that every
node keeps some. With `--lived-through` the simulated controllers remove them, as the real ones did: of those that share
a node first, then the youngest. With `--measured` the start is the very one from which `benchmarks.beside_karpenter`
and `benchmarks.beside_cluster_autoscaler` let the real ones work, and their figures are those that they left in DIR.

Karpenter takes nodes of equal price per disruption in no particular order, the Cluster Autoscaler all of them.
`--orders` repeats a simulation in so many orders and prints the mean, least and most.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final

import msgspec
import structlog

from benchmarks.beside_karpenter import Files
from benchmarks.clusters import NOW
from benchmarks.frontier import Seen
from benchmarks.machine_types import ZONES
from benchmarks.starts import Peak, Start, e2_offers, peaks, starts
from kinema_core.events import CatalogPublished, ClusterDelta, ClusterSnapshot
from kinema_core.model.cluster import all_objects
from kinema_core.model.mobility import MobilityOptions
from kinema_core.runtime.envelope import origin
from kinema_optimizer.bounds.certificate import lower_bound
from kinema_optimizer.policies.cluster_autoscaler import OPTIMIZE_UTILIZATION, ClusterAutoscaler
from kinema_optimizer.policies.karpenter import Karpenter
from kinema_optimizer.policies.policy import Policy
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.settings import PolicyName
from kinema_sim.simulate.build import build
from kinema_sim.simulate.executor import Neighbor
from kinema_sim.simulate.recorded import recorded_scenario
from kinema_sim.simulate.run import run
from kinema_sim.simulate.scenario import Loaded, load_scenario
from kinema_sim.simulate.view import View


@dataclass(frozen=True)
class Real:
    """What the real system did: cost at the end over the least possible, and evictions over pods, least and most."""

    cost: tuple[float, float]
    evictions: tuple[float, float] | None


REAL: Final[Mapping[tuple[str, PolicyName], Real]] = MappingProxyType(
    {
        ("boutique", "karpenter"): Real((1.215, 1.215), (0.89, 0.89)),
        ("hundred", "karpenter"): Real((1.013, 1.013), (0.46, 0.46)),
        ("boutique", "cluster-autoscaler"): Real((2.045, 2.045), None),
        ("boutique", "optimize-utilization"): Real((1.956, 1.956), None),
        ("deployments-0", "karpenter"): Real((1.026, 1.026), (0.54, 0.54)),
        ("deployments-0", "cluster-autoscaler"): Real((1.111, 1.128), (0.32, 0.33)),
        ("deployments-0", "optimize-utilization"): Real((1.035, 1.035), (0.50, 0.54)),
        ("deployments-1", "karpenter"): Real((1.019, 1.019), (0.49, 0.49)),
    }
)
_MINUTE: Final = 60.0
AS_MEASURED: Final[Mapping[PolicyName, Policy]] = MappingProxyType(
    {
        "karpenter": Karpenter(budget_percent=100),
        "cluster-autoscaler": ClusterAutoscaler(unneeded_seconds=_MINUTE, after_add_seconds=_MINUTE, most_drains=10),
        "optimize-utilization": replace(OPTIMIZE_UTILIZATION, most_drains=10),
    }
)
"""Settings of the real systems, where they were not the defaults: all nodes might be disrupted at once; short timers,
ten drains at a time."""
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


LIVED_MINUTES: Final = 40
"""Time of the usual load, the peak and what comes after it."""


def lived_through(peak: Peak) -> Start:
    """Return what is left when a simulated cluster has lived through a peak, with nodes that only come.

    The peak begins after ten minutes and is over after 25.
    """
    whole: dict[str, Any] = {
        "name": "lived-through",
        "duration": f"{LIVED_MINUTES}m",
        "cloud": {"zones": list(ZONES)},
        "nodes": [{"type": "e2-standard-2", "zone": ZONES[0]}],
        "workloads": [
            {
                "name": one.name,
                "cpu": f"{one.cpu}m",
                "memory": f"{one.memory_mi}Mi",
                "replicas": [["0s", one.after], ["10m", one.peak], ["25m", one.after]],
            }
            for one in peak.services()
        ],
    }
    source = {"lived.yaml": msgspec.yaml.encode(whole)}
    sim = build(load_scenario("lived.yaml", source.__getitem__, Path("lived.yaml")), peak.seed)
    view = View(sim)
    Neighbor(sim, Karpenter(budget_percent=0), view, MobilityOptions()).start()
    sim.loop.run_until(sim.loop.now_ms + LIVED_MINUTES * 60_000)
    return Start(view.refresh(), e2_offers())


@dataclass(frozen=True)
class Case:
    """A start, the least that is proven for it in USD per hour, and what the real system made of it."""

    start: Start
    least: float
    real: Real


def _least(start: Start) -> float:
    return lower_bound(compiled(Question(start.cluster, start.offers, NOW, "reschedule")).relaxed).value / 10**6


def measured(files: Files, policy: PolicyName) -> Case:
    """Return a start that the real Karpenter left and what the real policy made of it."""
    seen = msgspec.json.decode(files.seen(policy).read_bytes(), type=Seen)
    start = files.start()
    least, evicted = _least(start), round(seen.evictions / len(start.cluster.pods), 2)
    return Case(start, least, Real((round(seen.cost / least, 3),) * 2, (evicted, evicted)))


def cases(*, lived: bool, folder: Path | None) -> Iterator[tuple[str, PolicyName, Callable[[], Case]]]:
    """Yield starts and policies; where a folder is given, those of which it has figures."""
    if folder is not None:
        for name in peaks():
            files = Files(folder, name)
            yield from ((name, one, partial(measured, files, one)) for one in AS_MEASURED if files.seen(one).exists())
        return
    known = starts()

    def simulated(name: str, real: Real) -> Case:
        start = lived_through(peaks()[name]) if lived else known[name]()
        return Case(start, _least(start), real)

    for (name, policy), real in REAL.items():
        yield name, policy, partial(simulated, name, real)


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faithful", description=__doc__)
    parser.add_argument("--start", action="append", choices=list(peaks()))
    parser.add_argument("--minutes", type=int, default=40)
    parser.add_argument("--orders", type=int, default=1, help="in which nodes are considered")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--lived-through", action="store_true", help="starts that the simulated controllers made")
    which.add_argument("--measured", type=Path, metavar="DIR", help="starts that the real Karpenter left")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n", flush=True)
    for name, policy, case in cases(lived=given.lived_through, folder=given.measured):
        if given.start and name not in given.start:
            continue
        found = case()
        start, rules = found.start, AS_MEASURED[policy]
        assert isinstance(rules, Karpenter | ClusterAutoscaler)
        orders = [replace(rules, order=k) for k in range(given.orders)]
        runs = [run(as_recording(name, start, given.minutes), policy, rules=one) for one in orders]
        waiting = max(result.samples[-1].pending for result, _ in runs)
        cells = (
            name,
            policy,
            _span(found.real.cost),
            _mean([result.samples[-1].usd_per_hour / found.least for result, _ in runs], 3)
            + (f" ({waiting} pods wait)" if waiting else ""),
            "" if found.real.evictions is None else _span(found.real.evictions),
            _mean([result.evictions / len(start.cluster.pods) for result, _ in runs], 2),
            f"{sum(seconds for _, seconds in runs):.0f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def _span(values: tuple[float, float]) -> str:
    low, high = values
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _mean(values: list[float], digits: int) -> str:
    low, high = round(min(values), digits), round(max(values), digits)
    return f"{fmean(values):.{digits}f}" + ("" if low == high else f" ({_span((low, high))})")


if __name__ == "__main__":
    main()
