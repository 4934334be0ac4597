"""Disaggregated inference of recommendation models: Alibaba's trace of 2025, and a generated cluster like it.

Source: `cluster-trace-gpu-v2025/disaggregated_DLRM_trace.csv` in github.com/alibaba/clusterdata, published with Yang et
al., "GPU-Disaggregated Serving for Deep Learning Recommendation Models at Scale", NSDI 2025: requests of 23,871
instances of 156 services, on CPU nodes (`CN`) or on GPU nodes (`HN`). 8,878 of them had not been deleted at its end.

The generated one draws services by the totals, shares and spreads of those. The trace has no nodes: machines here are
invented, at the approximate prices of n2 and of an A10. Also the limit of a service's instances on one node is each
kind's own, where a service has several kinds of instances.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.assemble import PodClass, could_hold, spread
from benchmarks.instances import GPU_MICRO_USD, Scene, fleet_of, shares
from benchmarks.machine_types import GIBIBYTE, MachineType, machine_type
from kinema_optimizer.problem.instance import UNLIMITED

Kind: TypeAlias = tuple[str, str, tuple[int, ...], int]
"""Service, role, requests and most instances on a node."""

_RESOURCES: Final = ("cpu", "memory", "gpu", "rdma", "disk")
"""Of RDMA: hundredths of a network card; of disk: bytes."""
_SERVICES: Final = 145
_INSTANCES: Final = {"CN": 5_556, "HN": 3_322}
"""Of the trace, not deleted at its end."""
_SPREAD: Final = 1.4
"""Of the logarithm of a service's instances, likewise."""
_SECOND_KIND: Final = {"CN": 0.4, "HN": 0.3}
"""Share of services whose instances are of two kinds, likewise."""

_Weighted: TypeAlias = Mapping[float, float]
_CPU: Final[Mapping[str, _Weighted]] = {
    "CN": {48: 36, 64: 35, 96: 26, 192: 3},
    "HN": {8: 85, 12: 12, 16: 2, 2: 1},
}
"""Cores, and of 100 instances of the trace so many; the following likewise."""
_GIB_PER_CORE: Final[Mapping[str, _Weighted]] = {
    "CN": {5: 79, 25 / 6: 13, 6.25: 5, 7.5: 2, 25 / 3: 1},
    "HN": {5: 72, 10: 12, 2: 8, 4: 8},
}
_RDMA: Final[Mapping[str, _Weighted]] = {"CN": {1: 72, 25: 17, 51: 9, 100: 2}, "HN": {25: 93, 50: 3, 75: 4}}
_DISK_GIB: Final[Mapping[str, _Weighted]] = {
    "CN": {255: 41, 680: 21, 340: 9, 320: 8, 240: 8, 512: 5, 408: 4, 544: 4},
    "HN": {85: 43, 170: 24, 80: 10, 680: 9, 255: 8, 160: 6},
}
_MOST_ON_A_NODE: Final[Mapping[str, _Weighted]] = {
    "CN": {UNLIMITED: 75, 2: 19, 4: 6},
    "HN": {2: 39, 4: 38, 8: 13, 10: 8, UNLIMITED: 2},
}

_MACHINES: Final = (("CN", 64, 0), ("CN", 96, 0), ("CN", 128, 0), ("CN", 192, 0), ("HN", 48, 4), ("HN", 96, 8))
"""Role, cores and GPUs. Invented: 4 or 8 GiB and 16 GiB of disk for each core, a network card for every four GPUs."""


def dlrm_trace(path: Path) -> Counter[Kind]:
    """The instances of the trace that had not been deleted at its end, by kind."""
    with path.open(newline="") as lines:
        return Counter(_traced(row) for row in csv.DictReader(lines) if not row["deletion_time"])


def _traced(row: Mapping[str, str]) -> Kind:
    cpu, gib, gpus, rdma, disk = (float(row[f"{name}_request"]) for name in ("cpu", "memory", "gpu", "rdma", "disk"))
    most = int(row["max_instance_per_node"])
    return row["app_name"], row["role"], _requests(cpu, gib, gpus, rdma, disk), most if most > 0 else UNLIMITED


def dlrm_like(seed: int = 0) -> Counter[Kind]:
    """As many instances as the trace has at its end, of services that are drawn."""
    draw = random.Random(seed)
    tally = Counter[Kind]()
    for role, instances in _INSTANCES.items():
        sizes = shares([draw.lognormvariate(0, _SPREAD) for _ in range(_SERVICES)], instances)
        for number, size in enumerate(sizes):
            second = draw.randrange(size) if draw.random() < _SECOND_KIND[role] else 0
            for count in (size - second, second):
                cpu = _drawn(draw, _CPU[role])
                requests = _requests(
                    cpu,
                    cpu * _drawn(draw, _GIB_PER_CORE[role]),
                    float(role == "HN"),
                    _drawn(draw, _RDMA[role]),
                    _drawn(draw, _DISK_GIB[role]),
                )
                most = int(_drawn(draw, _MOST_ON_A_NODE[role]))
                if count:
                    tally[f"service-{number}", role, requests, most] += count
    return tally


def _requests(cpu: float, gib: float, gpus: float, rdma: float, disk: float) -> tuple[int, ...]:
    return round(cpu * 1000), round(gib * GIBIBYTE), round(gpus * 1000), round(rdma), round(disk * GIBIBYTE)


def _drawn(draw: random.Random, weighted: _Weighted) -> float:
    return draw.choices(list(weighted), list(weighted.values()))[0]


def dlrm_scene(tally: Mapping[Kind, int], *, running: bool = False, seed: int = 0) -> Scene:
    """The instances of a trace as pods, on nodes of their role alone; running: each on the least allocated node.

    Of them are left out those that no machine could hold.
    """
    machines = [_machine(role, cores, gpus, gib) for role, cores, gpus in _MACHINES for gib in (4, 8)]
    every = [
        PodClass(requests, count, labels=(role,), cap=most)
        for (_, role, requests, most), count in sorted(tally.items())
    ]
    classes = [one for one in every if any(could_hold(machine, one) for machine in machines)]
    if not running:
        return Scene(_RESOURCES, tuple(classes), tuple(machines))
    fleet: list[MachineType] = []
    for role, resource in (("CN", _RESOURCES.index("cpu")), ("HN", _RESOURCES.index("gpu"))):
        mine = [one for one in classes if role in one.labels]
        types = [machine for machine in machines if machine.name in _FLEET and machine.label == role]
        fleet += fleet_of(types, mine, share=_REQUESTED, seed=seed, resource=resource)
    return Scene(
        _RESOURCES, tuple(classes), tuple(machines), tuple(spread(classes, fleet, reserve=machines, seed=seed))
    )


_FLEET: Final = ("cn-128-1024", "cn-192-1536", "hn-96-768-x8")
_REQUESTED: Final = 0.65
"""Of the cores of running CPU nodes, and of the GPUs of GPU nodes."""


def _machine(role: str, cores: int, gpus: int, gib_per_core: int) -> MachineType:
    gib = gib_per_core * cores
    name = f"{role.lower()}-{cores}-{gib}" + (f"-x{gpus}" if gpus else "")
    base = machine_type(name, vcpu=cores, gib=gib, label=role)
    amounts = _requests(cores, gib, gpus, 100 * max(1, gpus // 4), 16 * cores)
    return replace(base, micro_usd_per_hour=base.micro_usd_per_hour + gpus * GPU_MICRO_USD["A10"], amounts=amounts)
