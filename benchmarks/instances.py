"""Placement problems of production size in memory: a real trace, and seeded generated ones at two sizes.

The same arguments give the same problem. CPU is in millicores, memory in bytes, GPUs in thousandths; machine types have
all that they have for pods; prices are approximations per vCPU, GiB and GPU (`machine_types`).
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from typing import Final

from benchmarks.assemble import PodClass, Running, assemble, could_hold, spread
from benchmarks.clusters import cluster_of
from benchmarks.machine_types import GIBIBYTE, ZONES, MachineType, family, machine_type
from kinema_core.events import Offer
from kinema_core.model.cluster import Cluster
from kinema_optimizer.problem.instance import Instance

MEBIBYTE: Final = 2**20
PODS_PER_NODE: Final = 110

GPU_MICRO_USD: Final = {
    "A10": 750_000,
    "G2": 1_000_000,
    "G3": 1_500_000,
    "P100": 1_460_000,
    "T4": 350_000,
    "V100M16": 2_480_000,
    "V100M32": 2_950_000,
}
"""Per GPU and hour; approximations, and guesses for the models that the trace does not name."""


@dataclass(frozen=True)
class TracePod:
    """One row of the trace's list of pods."""

    name: str
    requests: tuple[int, int, int]
    models: tuple[str, ...]


def trace_pods(pods_csv: Path) -> tuple[TracePod, ...]:
    """The pods of an openb list, all of them whatever became of them."""
    with pods_csv.open(newline="") as lines:
        return tuple(
            TracePod(
                row["name"],
                (
                    int(row["cpu_milli"]),
                    int(row["memory_mib"]) * MEBIBYTE,
                    int(row["num_gpu"]) * int(row["gpu_milli"] or 0),
                ),
                tuple(sorted(set(filter(None, row["gpu_spec"].split("|"))))),
            )
            for row in csv.DictReader(lines)
        )


def trace_machines(nodes_csv: Path) -> tuple[MachineType, ...]:
    """The distinct kinds of nodes of an openb list, as machines on sale."""
    kinds = {machine.name: machine for machine in _trace_nodes(nodes_csv)}
    return tuple(kinds[name] for name in sorted(kinds))


def _trace_nodes(nodes_csv: Path) -> tuple[MachineType, ...]:
    with nodes_csv.open(newline="") as lines:
        return tuple(_trace_node(row) for row in csv.DictReader(lines))


def _trace_node(row: dict[str, str]) -> MachineType:
    cpu, mebibytes, gpus, model = int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"]
    name = f"{model or 'cpu'}-{cpu // 1000}-{mebibytes // 1024}" + (f"-x{gpus}" if gpus else "")
    base = machine_type(name, vcpu=cpu // 1000, gib=mebibytes // 1024, label=model)
    price = base.micro_usd_per_hour + gpus * GPU_MICRO_USD.get(model, 0)
    return replace(base, micro_usd_per_hour=price, amounts=(cpu, mebibytes * MEBIBYTE, gpus * 1000))


@dataclass(frozen=True)
class Scene:
    """An instance before it is a problem or a cluster. `running` None: nothing runs and all pods wait."""

    resources: tuple[str, ...]
    classes: tuple[PodClass, ...]
    machines: tuple[MachineType, ...]
    running: tuple[Running, ...] | None = None

    def problem(self) -> Instance:
        """As the search takes it."""
        return assemble(self.resources, self.classes, self.machines, self.running)

    def cluster(self) -> tuple[Cluster, tuple[Offer, ...]]:
        """As the services see it, and what is on sale."""
        return cluster_of(self.resources, self.classes, self.machines, self.running)


def openb(pods_csv: Path, nodes_csv: Path, *, gpu: bool = False, running: bool = False, seed: int = 0) -> Instance:
    """The problem of `openb_scene`."""
    return openb_scene(pods_csv, nodes_csv, gpu=gpu, running=running, seed=seed).problem()


def openb_scene(pods_csv: Path, nodes_csv: Path, *, gpu: bool = False, running: bool = False, seed: int = 0) -> Scene:
    """The pods of an Alibaba GPU cluster: on n2 types without their GPUs, or with them on the trace's kinds of nodes.

    GPUs are summed per node: that two halves must be of one device is not modeled. Pods that no machine could hold
    (one with a GPU selector) are left out. Running: spread over about 1,700 n2 nodes, of whose CPU 61 % is requested;
    with GPUs over the trace's own nodes and what else they need.
    """
    width = 3 if gpu else 2
    tally = Counter((pod.requests[:width], pod.models if gpu else ()) for pod in trace_pods(pods_csv))
    machines = trace_machines(nodes_csv) if gpu else family("n2")
    every = [PodClass(requests, tally[requests, models], models) for requests, models in sorted(tally)]
    classes = [one for one in every if any(could_hold(machine, one) for machine in machines)]
    resources = ("cpu", "memory", "gpu")[:width]
    if not running:
        return Scene(resources, tuple(classes), tuple(machines))
    types = {machine.name: machine for machine in machines}
    fleet = (
        [types[machine.name] for machine in _trace_nodes(nodes_csv)]
        if gpu
        else fleet_of([types[name] for name in _N2_FLEET], classes, share=0.61, seed=seed)
    )
    return Scene(resources, tuple(classes), tuple(machines), tuple(spread(classes, fleet, reserve=machines, seed=seed)))


_N2_FLEET: Final = ("n2-standard-64", "n2-standard-80", "n2-standard-96", "n2-standard-96", "n2-highmem-80")


def fleet_of(
    types: list[MachineType], classes: list[PodClass], *, share: float, seed: int, resource: int = 0
) -> list[MachineType]:
    """Machines of these types in a seeded order until the pods request `share` of their CPU, or of another resource."""
    draw = random.Random(seed)
    wanted = sum(one.requests[resource] * one.count for one in classes) / share
    found: list[MachineType] = []
    have = 0
    while have < wanted:
        found.append(draw.choice(types))
        have += found[-1].amounts[resource]
    return found


def large(pods: int = 12_000, *, running: bool = False, seed: int = 0) -> Instance:
    """The problem of `large_scene`."""
    return large_scene(pods, running=running, seed=seed).problem()


def large_scene(pods: int = 12_000, *, running: bool = False, seed: int = 0) -> Scene:
    """Batch and online pods of 78 kinds on 64-core machines with little memory, and on n2 types.

    Running: on about 1,300 of the 64-core nodes, 70 % of their CPU requested.
    """
    draw = random.Random(seed)
    shapes: set[tuple[int, int]] = set()
    while len(shapes) < 78:
        cpu = draw.choice((1000, 2000, 3000, 4000, 4000, 5000, 6000, 8000, 8000, 10_000, 12_000, 16_000))
        memory = round(draw.lognormvariate(0, 0.5) * (1.0 + cpu / 1300) * 4) * 256 * MEBIBYTE
        shapes.add((cpu, min(max(memory, 256 * MEBIBYTE), 48 * GIBIBYTE)))
    kinds = sorted(shapes)
    counts = shares([draw.lognormvariate(0, 1.2) / kind[0] ** 0.85 for kind in kinds], pods)
    classes = [PodClass((*kind, 1), count) for kind, count in zip(kinds, counts, strict=True)]
    house = _with_pods(machine_type("house-64-91", vcpu=64, gib=91, label="house"))
    n2 = [_with_pods(m) for m in family("n2") if m.name not in _TOO_SMALL]
    machines = [house, *n2]
    if not running:
        return Scene(_RESOURCES, tuple(classes), tuple(machines))
    fleet = fleet_of([house], classes, share=0.70, seed=seed)
    return Scene(
        _RESOURCES, tuple(classes), tuple(machines), tuple(spread(classes, fleet, reserve=machines, seed=seed))
    )


_RESOURCES: Final = ("cpu", "memory", "pods")
_TOO_SMALL: Final = tuple(f"n2-{kind}-{vcpu}" for kind in ("standard", "highmem", "highcpu") for vcpu in (2, 4))


def limit(
    pods: int = 150_024, *, deployments: int = 2_500, nodes: int = 5_000, running: bool = False, seed: int = 0
) -> Instance:
    """The problem of `limit_scene`."""
    return limit_scene(pods, deployments=deployments, nodes=nodes, running=running, seed=seed).problem()


def limit_scene(
    pods: int = 150_024, *, deployments: int = 2_500, nodes: int = 5_000, running: bool = False, seed: int = 0
) -> Scene:
    """The largest cluster that Kubernetes is made for: 150,024 pods of 2,500 deployments, 85 types in three zones.

    Of the deployments 3 % select a machine family, 3 % are one per node, 3 % are spread over the zones (a class per
    zone), 1 % are bound to a zone. Running: on `nodes` nodes of 32 to 48 cores.
    """
    draw = random.Random(seed)
    sizes = shares([draw.lognormvariate(0, 1.0) for _ in range(deployments)], pods)
    classes = _merged([one for size in sizes for one in _deployment(size, draw)])
    types = [_with_pods(m) for name in ("n2", "n2d", "e2", "t2d", "c2") for m in family(name)]
    machines = [replace(m, zone=zone) for m in types for zone in ZONES]
    if not running:
        return Scene(_RESOURCES, tuple(classes), tuple(machines))
    fleet_types = [m for m in machines if m.name in _LIMIT_FLEET]
    fleet = [draw.choice(fleet_types) for _ in range(nodes)]
    return Scene(
        _RESOURCES,
        tuple(classes),
        tuple(machines),
        tuple(spread(classes, fleet, reserve=machines, seed=seed, chunk=64)),
    )


_LIMIT_FLEET: Final = ("n2-standard-32", "n2d-standard-32", "e2-standard-32", "n2-standard-48", "t2d-standard-32")


def _deployment(size: int, draw: random.Random) -> list[PodClass]:
    cpu = min(max(round(_lognormal(draw, 330, 0.9) / 5) * 5, 10), 15_000)
    memory = min(max(round(cpu * 3.6 * _lognormal(draw, 1.0, 0.6) / 8) * 8, 16), 49_152)
    one = PodClass((cpu, memory * MEBIBYTE, 1), size)
    rule = draw.random()
    if rule < 0.03:
        return [replace(one, labels=(draw.choice(("n2", "n2d", "e2")),))]
    if rule < 0.06:
        return [replace(one, cap=1)]
    if rule < 0.09:
        first = draw.randrange(3)
        each = [(size + 2 - turn) // 3 for turn in range(3)]
        return [replace(one, zone=ZONES[(first + turn) % 3], count=n) for turn, n in enumerate(each) if n]
    return [replace(one, zone=draw.choice(ZONES))] if rule < 0.10 else [one]


def _lognormal(draw: random.Random, median: float, sigma: float) -> float:
    return median * exp(draw.gauss(0, sigma))


def _merged(classes: list[PodClass]) -> list[PodClass]:
    """Classes in a stable order, those that are alike as one; a limit per node is each deployment's own."""
    tally = Counter[PodClass]()
    alone = [one for one in classes if one.cap == 1]
    for one in classes:
        if one.cap != 1:
            tally[replace(one, count=0)] += one.count
    merged = [replace(one, count=count) for one, count in tally.items()]
    return sorted((*alone, *merged), key=lambda one: (one.requests, one.labels, one.zone, one.cap, one.count))


def _with_pods(machine: MachineType) -> MachineType:
    return replace(machine, amounts=(*machine.amounts, PODS_PER_NODE))


def shares(weights: list[float], total: int) -> list[int]:
    """Whole numbers of at least 1 near these weights that add up to `total`."""
    left = total - len(weights)
    if left < 0:
        message = f"{total} pods are too few for {len(weights)} kinds"
        raise ValueError(message)
    scale = left / sum(weights)
    counts = [1 + int(weight * scale) for weight in weights]
    for index in range(total - sum(counts)):
        counts[index % len(counts)] += 1
    return counts
