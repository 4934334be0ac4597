"""Price tables of clouds: which machines of them a cluster's nodes are, what they cost, and which others fit beside.

A table has the on-demand price of each machine type by region. `table_catalog` takes from the tables what the cluster
can use: every type of the families (`e2`, `m5`, `Standard_D*s_v3`) that its nodes are of, in the zones of its nodes.
Other families have other processors, and other architectures run other images: a person chooses those.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final, Literal

from kinema_core.events import EMPTY, FrozenMap, Node
from kinema_core.model.catalog import UNKNOWN, CatalogRow, gke_allocatable, machine_of
from kinema_core.model.catalog_file import GIB, MAX_PODS, MICRO
from kinema_core.model.cluster import Cluster

REGION: Final = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_ARCH: Final = "kubernetes.io/arch"
_USUAL: Final = "amd64"
_GPU: Final = "nvidia.com/gpu"
_FIXED: Final = ("machine_type", "vcpus", "memory_gib", "arch", "gpus", "max_pods")
_PRICED: Final = "#priced"
_SOURCE: Final = "#source"
_MIB: Final = 2**20
_SHARED_CORE: Final = re.compile(r"[a-z]\d[a-z]*-(?:micro|small|medium)")
_NOT_SHOWN: Final = Fraction(75, 1000)
"""Share of a machine's memory that virtual machines of EC2 and Azure do not show, at most: Karpenter's default."""
_EKS_KEPT: Final = (255, 11, 100)
"""MiB that EKS keeps: for each node, for each pod, and as eviction threshold. Source: the nodes' setup by EKS."""
_AKS_CPU: Final = ((1, 60), (2, 100), (4, 140), (8, 180), (16, 260), (32, 420), (64, 740))
"""Millicores that AKS keeps, by cores. Source: documentation of AKS, resource reservations."""
_AKS_PODS: Final = 110


@dataclass(frozen=True)
class TableMachine:
    """A machine type of a table; prices in micro-USD per hour by region."""

    machine_type: str
    vcpus: Fraction
    memory: int
    arch: str
    gpus: int
    max_pods: int | None
    prices: Mapping[str, int]


@dataclass(frozen=True)
class PriceTable:
    """Machine types of one cloud, with the date and the source of each region's prices."""

    cloud: str
    capacity_type: Literal["on-demand", "spot"]
    machines: Mapping[str, TableMachine]
    priced: Mapping[str, datetime]
    sources: Mapping[str, str]


@dataclass(frozen=True)
class TableCatalog:
    """Rows that tables have for a cluster; `used` names cloud, region, date and source of their prices.

    `known`: the machine types that have a price in those regions, offered or not.
    """

    rows: tuple[CatalogRow, ...]
    used: tuple[tuple[str, str, datetime, str], ...]
    known: frozenset[str]

    @property
    def priced(self) -> datetime | None:
        """Date of the oldest prices."""
        return min((date for _, _, date, _ in self.used), default=None)

    @property
    def source(self) -> str:
        """Sources with their regions and dates, for people."""
        return "; ".join(f"{cloud} {region} of {date:%Y-%m-%d} from {name}" for cloud, region, date, name in self.used)


def parse_table(cloud: str, text: str) -> PriceTable:
    """Return a table as `tools/price_tables.py` writes it: a column for each region, its date and source on top."""
    header, *lines = csv.reader(text.splitlines())
    regions = header[len(_FIXED) :]
    above = {line[0]: dict(zip(regions, line[len(_FIXED) :], strict=True)) for line in lines if line[0].startswith("#")}
    machines = [_machine(line, regions) for line in lines if not line[0].startswith("#")]
    return PriceTable(
        cloud=cloud,
        capacity_type="on-demand",
        machines={machine.machine_type: machine for machine in machines},
        priced={region: datetime.fromisoformat(day).replace(tzinfo=UTC) for region, day in above[_PRICED].items()},
        sources=above[_SOURCE],
    )


def _machine(line: Sequence[str], regions: Sequence[str]) -> TableMachine:
    name, vcpus, memory, arch, gpus, pods, *prices = line
    return TableMachine(
        machine_type=name,
        vcpus=Fraction(vcpus),
        memory=int(Fraction(memory) * GIB),
        arch=arch,
        gpus=int(gpus or 0),
        max_pods=int(pods) if pods else None,
        prices={region: round(Fraction(price) * MICRO) for region, price in zip(regions, prices, strict=True) if price},
    )


def fresh_table(
    table: PriceTable, prices: Mapping[str, Mapping[str, int]], *, source: str, now: datetime
) -> PriceTable:
    """Return a table of the same machines at other prices: micro-USD per hour by machine type and region."""
    regions = sorted({region for by_region in prices.values() for region in by_region})
    return replace(
        table,
        machines={name: replace(one, prices=prices.get(name, {})) for name, one in table.machines.items()},
        priced=dict.fromkeys(regions, now),
        sources=dict.fromkeys(regions, source),
    )


def family(machine_type: str) -> str:
    """Return the family of a machine type: all types of one differ in size only.

    Each shared-core type of GCE is a family of its own: its cores are shares of cores, and not by their number.
    """
    if _SHARED_CORE.fullmatch(machine_type):
        return machine_type
    if machine_type.startswith("Standard_"):
        return re.sub(r"(?<=[A-Z])\d+", "*", machine_type, count=1)
    return re.split(r"[.-]", machine_type, maxsplit=1)[0]


def region_of(node: Node, regions: Iterable[str]) -> str:
    """Return the region of a node by its label, else by its zone; `-` where it is none of `regions`."""
    known = set(regions)
    zone = machine_of(node)[1]
    said = [node.labels[key] for key in REGION if node.labels.get(key)]
    for region in (*said, zone.rpartition("-")[0], zone[:-1]):  # europe-west3-a, eu-central-1a
        if region in known:
            return region
    return UNKNOWN


def table_catalog(cluster: Cluster, tables: Iterable[PriceTable], *, more: Sequence[str] = ()) -> TableCatalog:
    """Return what the tables sell to this cluster.

    `more`: patterns (`n2-*`) of further machine types to offer, where nodes of the table's cloud and region are.
    """
    rows: list[CatalogRow] = []
    used: list[tuple[str, str, datetime, str]] = []
    known: set[str] = set()
    live = {machine_of(node)[0] for node in cluster.nodes}
    for table in tables:
        for region, nodes in _by_region(cluster, table).items():
            families = {family(machine_of(node)[0]) for node in nodes}
            arches = {node.labels.get(_ARCH, _USUAL) for node in nodes}
            zones: list[str | None] = [*sorted({machine_of(node)[1] for node in nodes} - {UNKNOWN})]
            used.append((table.cloud, region, table.priced[region], table.sources[region]))
            known.update(name for name, machine in table.machines.items() if region in machine.prices)
            for name, machine in sorted(table.machines.items()):
                wanted = family(name) in families or any(fnmatchcase(name, pattern) for pattern in more)
                if region in machine.prices and (
                    name in live or (wanted and machine.arch in arches and _is_virtual(name))
                ):
                    row = _row(table.cloud, machine, machine.prices[region], is_live=name in live)
                    row = replace(row, capacity_type=table.capacity_type)
                    rows += [
                        replace(row, line=len(rows) + at, zone=zone) for at, zone in enumerate(zones or [None], start=1)
                    ]
    return TableCatalog(rows=tuple(rows), used=tuple(sorted(set(used))), known=frozenset(known))


def _by_region(cluster: Cluster, table: PriceTable) -> dict[str, list[Node]]:
    """Return the nodes that are machines of the table, by region."""
    found: dict[str, list[Node]] = {}
    for node in cluster.nodes:
        region = region_of(node, table.priced)
        if region != UNKNOWN and machine_of(node)[0] in table.machines:
            found.setdefault(region, []).append(node)
    return dict(sorted(found.items()))


def _is_virtual(machine_type: str) -> bool:
    """Return whether it is a virtual machine: whole servers boot for many minutes, and are bought on purpose."""
    return ".metal" not in machine_type


def _row(cloud: str, machine: TableMachine, price: int, *, is_live: bool) -> CatalogRow:
    """Return the row of a machine. What live nodes of a type have for pods is known better than any formula."""
    cpu, memory = (None, None) if is_live else _allocatable(cloud, machine)
    return CatalogRow(
        line=0,
        machine_type=machine.machine_type,
        vcpus=machine.vcpus,
        memory=machine.memory,
        micro_usd_per_hour=price,
        labels=EMPTY if machine.arch == _USUAL else FrozenMap({_ARCH: machine.arch}),
        allocatable_cpu=cpu,
        allocatable_memory=memory,
        max_pods=None if is_live else machine.max_pods,
        extended=FrozenMap({_GPU: machine.gpus}) if machine.gpus else EMPTY,
    )


def _allocatable(cloud: str, machine: TableMachine) -> tuple[int | None, int | None]:
    """Return millicores and bytes that EKS or AKS leaves to pods; None for GKE, whose formula is the catalog's."""
    shown = int(machine.memory * (1 - _NOT_SHOWN))
    if cloud == "ec2":
        once, each, eviction = _EKS_KEPT
        kept = once + each * (machine.max_pods or MAX_PODS) + eviction
        return gke_allocatable(machine.vcpus, machine.memory)[0], max(0, shown - kept * _MIB)
    if cloud == "azure":
        cpu = next((kept for cores, kept in _AKS_CPU if machine.vcpus <= cores), _AKS_CPU[-1][1])
        kept_memory = min((20 * _AKS_PODS + 50) * _MIB, shown // 4) + 100 * _MIB
        return int(machine.vcpus * 1000) - cpu, max(0, shown - kept_memory)
    return None, None
