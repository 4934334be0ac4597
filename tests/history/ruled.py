"""Plans of the clusters of `benchmarks.ruled`, carried out in the simulated cluster and judged as random ones are.

    python -m tests.history.ruled [--seeds 20] [--nodes 40] [--work 10] [--out FILE]

Every kind of rule is there as the seed draws it, every pod begins where it is in the start, and those that wait do. The
simulated cloud sells machines with CPU and memory: GPUs are left out of requests, not the pools that have them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.clusters import NAMESPACE
from benchmarks.kubernetes_list import kubernetes_object
from benchmarks.machine import write_result
from benchmarks.ruled import RuledStart, ruled_start
from msgspec import structs
from tests.history.__main__ import quiet
from tests.history.continued import continued
from tests.history.random_clusters import RandomCluster
from tests.history.verdict import NothingToDoError, Verdict, summary

from kinema_core.events import DisruptionBudget, FrozenMap, Offer, Volume, VolumeClaim, Workload
from kinema_core.model.cluster import all_objects
from kinema_sim.cloud.machines import Offer as SimOffer
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.engine.kinds import ALL_KINDS, POD, Kind
from kinema_sim.engine.kinds import NAMESPACE as SPACE
from kinema_sim.scenarios.objects import namespace

JSON = dict[str, Any]

_KIND: Final = {kind.name: kind for kind in ALL_KINDS}
_GPU: Final = "nvidia.com/gpu"
_SETTLE_SECONDS: Final = 90
"""A stateful set makes its pods one after the other."""
_CLAIM: Final[JSON] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
_SIZE: Final[JSON] = {"storage": "1Gi"}
NODES: Final = 40
WORK: Final = 10
"""Rounds of each phase of a solve."""


def simulated(start: RuledStart, seed: int) -> SimCluster:
    """Return the start as a simulated cluster at rest."""
    offers = {one.name: _sim_offer(one) for one in start.offers}
    sim = SimCluster(seed, offers=tuple(offers.values()), recorded=False, metered=False)
    for node in start.cluster.nodes:
        labels = node.labels
        parts = ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "kinema.io/capacity-type")
        sim.cloud.adopt(node.name, offers["/".join(labels[part] for part in parts)], labels={})
    for name in ("default", "kube-system", NAMESPACE):
        sim.store.create(SPACE, namespace(name))
    places = _places(start)

    def bind(kind: Kind, item: JSON) -> None:
        left = places.get(item["metadata"].get("labels", {}).get("app", "")) if kind is POD else None
        if left and (node := left.pop(0)) is not None:
            item["spec"]["nodeName"] = node

    sim.store.admit_with(bind)
    for kind, item in _objects(start):
        made = sim.api.create(_KIND[kind], item["metadata"].get("namespace", ""), item)
        if kind.startswith("PersistentVolume"):
            key = (made["metadata"].get("namespace", ""), made["metadata"]["name"])
            sim.store.edit(_KIND[kind], key, lambda draft: draft.update(status={"phase": "Bound"}))
    sim.run_for(_SETTLE_SECONDS)
    return sim


def _sim_offer(one: Offer) -> SimOffer:
    cpu, memory = one.capacity["cpu"], one.capacity["memory"]
    own = {key: value for key, value in one.labels.items() if "." not in key.partition("/")[0] or "example" in key}
    return SimOffer(
        machine_type=one.machine_type,
        zone=one.zone,
        capacity_type=one.capacity_type,
        vcpus=-(-cpu // 1000),
        memory_bytes=memory,
        usd_micro=one.micro_usd_per_hour,
        watts=0,
        measured=(one.allocatable["cpu"], one.allocatable["memory"]),
        labels=tuple(sorted(own.items())),
        taints=one.taints,
    )


def _places(start: RuledStart) -> dict[str, list[str | None]]:
    """Nodes of the pods of each workload, in their order; None: it waits."""
    found: dict[str, list[str | None]] = {}
    for pod in sorted(start.cluster.pods, key=lambda one: one.name):
        found.setdefault(pod.labels["app"], []).append(pod.node)
    return found


def _objects(start: RuledStart) -> Iterator[tuple[str, JSON]]:
    """Volumes first, then budgets and what runs pods."""
    objects = list(all_objects(start.cluster))
    marks = {pod.labels["app"]: dict(pod.annotations) for pod in start.cluster.pods}
    claims = {item.name: item for item in objects if isinstance(item, VolumeClaim)}
    for item in objects:
        if isinstance(item, Volume | VolumeClaim):
            size = {"capacity": _SIZE} if isinstance(item, Volume) else {"resources": {"requests": _SIZE}}
            made = _object(item)
            made["spec"] = {**made["spec"], **_CLAIM, **size}
            yield made["kind"], made
    for item in objects:
        if isinstance(item, DisruptionBudget):
            made = _object(item)
            yield made["kind"], made
        elif isinstance(item, Workload) and item.type != "ReplicaSet":
            made = _object(_without_gpus(item))
            template = made["spec"]["template"]
            template["metadata"]["annotations"] = marks.get(item.name, {})
            ports = [{"containerPort": one.port, "hostPort": one.port} for one in item.template_rules.host_ports]
            template["spec"]["containers"][0] |= {"ports": ports} if ports else {}
            if f"data-{item.name}-0" in claims:
                claim = {**_CLAIM, "resources": {"requests": _SIZE}}
                made["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
            yield made["kind"], made


def _object(item: Volume | VolumeClaim | DisruptionBudget | Workload) -> JSON:
    """Return what its owner would create."""
    made: JSON = dict(kubernetes_object(item))
    made.pop("status", None)
    del made["metadata"]["uid"]
    return made


def _without_gpus(item: Workload) -> Workload:
    kept = {name: amount for name, amount in item.template_requests.items() if name != _GPU}
    return structs.replace(item, template_requests=FrozenMap(kept))


def carried_out(seed: int, nodes: int = NODES, *, work: int = WORK) -> Verdict:
    """Plan the cluster of a seed and carry it out, and the rest of it where pods have come up elsewhere.

    Raises:
        NothingToDoError: there is no better plan.
    """
    sim = simulated(ruled_start(seed, nodes), seed)
    return continued(RandomCluster(seed, (), ()), 0.0, work=work, sim=sim)[0]


def measure(seeds: Iterable[int], nodes: int = NODES, *, work: int = WORK) -> dict[str, Any]:
    """Return the figures of many, and what was wrong with each."""
    found, without = [], 0
    for seed in seeds:
        try:
            found.append(replace(carried_out(seed, nodes, work=work), history=None))
        except NothingToDoError:
            without += 1
            continue
        print(found[-1].line(), file=sys.stderr, flush=True)
    figures = summary(found, without_plan=without, unsettled=0)
    return {**figures, "flaws": {str(one.seed): list(one.flaws) for one in found if one.wrong}}


def main() -> None:
    """Entry point of `python -m tests.history.ruled`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--work", type=int, default=WORK, help="rounds of each phase of a solve")
    parser.add_argument("--out", type=Path, default=Path("out/bench/ruled_history.json"))
    given = parser.parse_args()
    quiet()
    seeds = range(given.first, given.first + given.seeds)
    write_result("ruled_history", measure(seeds, given.nodes, work=given.work), given.out)


if __name__ == "__main__":
    main()
