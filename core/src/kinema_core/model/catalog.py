"""Machines on sale, and what live nodes cost.

A catalog's rows become offers, one for each zone; what a live node of a type has for pods is known better than any
formula and wins over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import Final

import msgspec

from kinema_core.events import EMPTY, Amounts, FrozenMap, Labels, Node, Offer
from kinema_core.model.catalog_file import GIB, MAX_PODS, CatalogError, CatalogRow, dated, micro_usd, parse_catalog
from kinema_core.model.cluster import Cluster
from kinema_core.model.commitments import covered_nodes, offers_left
from kinema_core.model.machines import INSTANCE_TYPE, UNKNOWN, ZONE, machine_of, machine_type, zone_in
from kinema_core.model.match import HOSTNAME, parse_taints
from kinema_core.model.mobility import Mobility, keeping
from kinema_core.model.resources import ATTACHABLE_ANY, limited
from kinema_core.model.vocabulary import CAPACITY_TYPE, PRICE

__all__ = [
    "INSTANCE_TYPE",
    "KUBELET_LABELS",
    "UNKNOWN",
    "ZONE",
    "CatalogError",
    "CatalogRow",
    "PriceError",
    "by_reason",
    "dated",
    "gke_allocatable",
    "keeping_unpriced",
    "machine_of",
    "machine_type",
    "new_node_labels",
    "node_prices",
    "offers_from",
    "parse_catalog",
    "taint_keys",
    "unpriced_nodes",
    "unpriced_remedy",
    "unpriced_text",
    "zone_in",
]

_KUBELETS: Final = ("kubernetes.io/os", "kubernetes.io/arch")
"""Labels that kubelets set by themselves, and under their older names too."""
KUBELET_LABELS: Final = frozenset({*_KUBELETS, *(f"beta.{key}" for key in _KUBELETS)})
"""All of those; a provider need not ask for them, and some refuse to set them."""
_OWN_LABELS: Final = frozenset({HOSTNAME, *ZONE, CAPACITY_TYPE})
_OWN_PREFIXES: Final = ("kinema.io/", "node-role.kubernetes.io/", "node.kubernetes.io/exclude", "topology.")
"""Beginnings of labels that a new node of the type need not get: Kinema's marks, roles, and places."""
_SHARED_CORE: Final = ("e2-micro", "e2-small", "e2-medium")
_SHARED_CORE_ALLOCATABLE: Final = 940
"""Millicores for pods on a shared-core e2 machine of 2 vCPUs: GKE keeps 1060 there, whatever the formula says."""

_CPU_STEPS: Final = ((0, "0.06"), (1, "0.01"), (2, "0.005"), (4, "0.0025"))
"""Share of each core that GKE keeps for itself, from this core on."""

_MEMORY_STEPS: Final = ((0, "0.25"), (4, "0.20"), (8, "0.10"), (16, "0.06"), (128, "0.02"))
"""Share of memory that GKE keeps for itself, from this many GiB on."""

_SMALL_RESERVE: Final = 255 * 2**20
_EVICTION: Final = 100 * 2**20


class PriceError(ValueError):
    """No node has a price, or machine types have no watts; the text names all of them."""


@lru_cache(maxsize=4096)
def gke_allocatable(vcpus: Decimal | Fraction | int | str, memory_bytes: int) -> tuple[int, int]:
    """Millicores and bytes that GKE leaves to pods on a machine, rounded down.

    Source: GKE's documentation of node allocatable. CPU: 6% of the first core, 1% of the second, 0.5% of the next
    two, 0.25% of the rest is kept. Memory: 25% of the first 4 GiB, 20% of the next 4, 10% of the next 8, 6% of the
    next 112, 2% of the rest (255 MiB below 1 GiB), and 100 MiB as eviction threshold.
    """
    cores = Fraction(vcpus)
    memory = Fraction(memory_bytes)
    kept_cpu = _progressive(cores, [(Fraction(at), Fraction(share)) for at, share in _CPU_STEPS])
    steps = [(Fraction(at) * GIB, Fraction(share)) for at, share in _MEMORY_STEPS]
    kept_memory = Fraction(_SMALL_RESERVE) if memory < GIB else _progressive(memory, steps)
    return max(0, int((cores - kept_cpu) * 1000)), max(0, int(memory - kept_memory - _EVICTION))


def _progressive(amount: Fraction, steps: list[tuple[Fraction, Fraction]]) -> Fraction:
    """Sum over the brackets of the share times the part of the amount inside the bracket."""
    ends = [at for at, _ in steps[1:]] + [max(amount, steps[-1][0])]
    brackets = zip(steps, ends, strict=True)
    return sum((share * max(Fraction(0), min(amount, end) - at) for (at, share), end in brackets), Fraction(0))


def taint_keys(offers: Iterable[Offer]) -> Mapping[tuple[str, str, str], frozenset[str]]:
    """Keys of the taints of offers, by machine type, zone and capacity type."""
    found: dict[tuple[str, str, str], frozenset[str]] = {}
    for offer in offers:
        machine = (offer.machine_type, offer.zone, offer.capacity_type)
        found[machine] = found.get(machine, frozenset()) | {taint.key for taint in parse_taints(offer.taints)}
    return found


def new_node_labels(offer: Offer, name: str) -> Labels:
    """Return the labels that a node of this offer and name will have."""
    return FrozenMap({HOSTNAME: name, **offer.labels})


def offers_from(rows: Iterable[CatalogRow], cluster: Cluster) -> tuple[Offer, ...]:
    """Return the offers of a catalog for this cluster, in file order; a row without zone is offered in every live zone.

    Offers of one name get `#2`, `#3` in file order. A row with committed machines is followed by an offer of those.
    """
    zones = sorted({zone for node in cluster.nodes if (zone := machine_of(node)[1]) != UNKNOWN})
    live, unseen = _live_allocatable(cluster), _least_attachable(cluster)
    rows, common = tuple(rows), common_labels(cluster)
    counts: dict[str, int] = {}
    offers: list[Offer] = []
    for row in rows:
        assumed = _assumed(row, rows, common.get((row.machine_type, row.capacity_type), EMPTY))
        places = [row.zone] if row.zone is not None else zones or [UNKNOWN]
        for zone, sold in product(places, _sold(row)):
            base = f"{row.machine_type}/{zone}/{row.capacity_type}"
            counts[base] = counts.get(base, 0) + 1
            name = base if counts[base] == 1 else f"{base}#{counts[base]}"
            shared = sold.available is not None and (len(places) > 1 or sold.committed is not None)
            pool = f"{row.machine_type}/*/{row.capacity_type}@{row.line}" if shared else ""
            made = _offer(sold, name=name, zone=zone, pool=pool, live=live.get(row.machine_type, unseen))
            more = {key: value for key, value in assumed.items() if key not in made.labels}
            known = {key: value for key, value in made.labels.items() if key not in row.denied}
            offers.append(
                msgspec.structs.replace(made, labels=FrozenMap({**more, **known}), assumed_labels=tuple(sorted(more)))
            )
    return offers_left(offers, cluster)


def _sold(row: CatalogRow) -> tuple[CatalogRow, ...]:
    """Return the row, and where some of its machines are paid for already, a row of those."""
    if row.committed is None:
        return (row,)
    paid = replace(row, micro_usd_per_hour=row.committed_micro_usd_per_hour, available=row.committed)
    return replace(row, committed=None), paid


def common_labels(cluster: Cluster) -> Mapping[tuple[str, str], Labels]:
    """Labels that all live nodes of a machine type and capacity type have, of types with two nodes or more.

    Without those that say which node it is, where it is or how it fares, and not of which kind it is.
    """
    alike: dict[tuple[str, str], list[Node]] = {}
    for node in cluster.nodes:
        machine, _, capacity_type = machine_of(node)
        if machine != UNKNOWN:
            alike.setdefault((machine, capacity_type), []).append(node)
    return {
        machine: FrozenMap(
            {
                key: value
                for key, value in nodes[0].labels.items()
                if not _is_own(key) and all(node.labels.get(key) == value for node in nodes)
            }
        )
        for machine, nodes in alike.items()
        if len(nodes) > 1  # a label of a single node may be its alone
    }


def _is_own(key: str) -> bool:
    return key in _OWN_LABELS or key.startswith(_OWN_PREFIXES)


def _assumed(row: CatalogRow, rows: Iterable[CatalogRow], common: Labels) -> Mapping[str, str]:
    """Return labels of live nodes that new ones of the row are assumed to have: no row of its type has to do with them.

    Rows that name a label distinguish pools of one type by it.
    """
    named = {key for one in rows if one.machine_type == row.machine_type for key in (*one.labels, *one.denied)}
    return {key: value for key, value in common.items() if key not in named}


def _offer(row: CatalogRow, *, name: str, zone: str, pool: str, live: Mapping[str, int]) -> Offer:
    labels = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        INSTANCE_TYPE[0]: row.machine_type,
        **({ZONE[0]: zone} if zone != UNKNOWN else {}),
        CAPACITY_TYPE: row.capacity_type,
        **row.labels,
    }
    labels = {f"beta.{key}": labels[key] for key in _KUBELETS} | labels
    return Offer(
        name=name,
        machine_type=row.machine_type,
        zone=zone,
        capacity_type=row.capacity_type,
        micro_usd_per_hour=row.micro_usd_per_hour,
        capacity=row.capacity,
        allocatable=_allocatable(row, live),
        labels=FrozenMap(labels),
        taints=row.taints,
        available=row.available,
        committed=row.committed,
        pool=pool,
        watts=row.watts,
        quotas=row.quotas,
    )


def _allocatable(row: CatalogRow, live: Mapping[str, int]) -> Amounts:
    """Return the allocatable amounts of a new node: of the row, else of live nodes of its type, else by the formula.

    Devices only as written: that a live node has some does not say that a new one is bought with them. Storage and
    volume limits of live nodes hold for new ones too; of a type that no live node has, the least volumes of any.
    """
    cpu, memory = gke_allocatable(row.vcpus, row.memory)
    if row.machine_type in _SHARED_CORE and row.vcpus == 2:
        cpu = min(cpu, _SHARED_CORE_ALLOCATABLE)
    formula = {"cpu": cpu, "memory": memory, "pods": MAX_PODS}
    seen = {name: amount for name, amount in live.items() if name in formula or not limited(name)}
    written = {"cpu": row.allocatable_cpu, "memory": row.allocatable_memory, "pods": row.max_pods}
    stated = {name: amount for name, amount in written.items() if amount is not None}
    return FrozenMap({**formula, **seen, **stated, **row.extended})


def _live_allocatable(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Return the smallest allocatable of each resource over the live nodes of each machine type.

    0 is no amount to learn from: a node reports it while it is broken.
    """
    smallest: dict[str, dict[str, int]] = {}
    for node in cluster.nodes:
        seen = smallest.setdefault(machine_of(node)[0], {})
        for name, amount in node.allocatable.items():
            if amount > 0:
                seen[name] = min(amount, seen.get(name, amount))
    smallest.pop(UNKNOWN, None)
    return smallest


def _least_attachable(cluster: Cluster) -> dict[str, int]:
    """Return the fewest volumes of each driver that a live node takes: a driver may set a limit not seen yet."""
    least: dict[str, int] = {}
    for node in cluster.nodes:
        for name, amount in node.allocatable.items():
            if name.startswith(ATTACHABLE_ANY) and amount > 0:
                least[name] = min(amount, least.get(name, amount))
    return least


def node_prices(cluster: Cluster, offers: Iterable[Offer]) -> Mapping[str, int]:
    """Micro-USD per hour of every live node: its annotation, else the first offer of its type, zone and capacity type.

    Nodes that a commitment covers cost what is left to pay for it. A node whose price is not known counts 0, before a
    plan and after it: `unpriced_nodes` names it, and it stays.

    Raises:
        PriceError: no node has a price; all of them are named.
    """
    prices, unknown = _prices(cluster, tuple(offers))
    if unknown and not prices:
        raise PriceError(f"{unpriced_text(cluster, unknown)}; {unpriced_remedy(cluster, unknown)}")
    return MappingProxyType({**prices, **dict.fromkeys(unknown, 0)})


def unpriced_nodes(cluster: Cluster, offers: Iterable[Offer]) -> Mapping[str, str]:
    """Return the live nodes whose price is not known, and what lacks: `type/zone/capacity type`, or what is wrong."""
    return _prices(cluster, tuple(offers))[1]


def keeping_unpriced(facts: Mobility, cluster: Cluster, offers: Iterable[Offer]) -> Mobility:
    """Return the same with the nodes kept whose price is not known: what their deletion saves is not known either."""
    unknown = unpriced_nodes(cluster, offers)
    return keeping(facts, {node: f"its price is not known: {why}" for node, why in unknown.items()})


def by_reason(unknown: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return the names of unpriced nodes by what lacks."""
    nodes: dict[str, list[str]] = {}
    for name, why in unknown.items():
        nodes.setdefault(why, []).append(name)
    return nodes


def unpriced_text(cluster: Cluster, unknown: Mapping[str, str]) -> str:
    """Return in words which nodes have no price."""
    named = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason(unknown).items())
    return f"{len(unknown)} of {len(cluster.nodes)} nodes have no price: {named}"


def unpriced_remedy(cluster: Cluster, unknown: Mapping[str, str], catalog: str = "the catalog") -> str:
    """Return what gives these nodes a price: an annotation that cannot be read counts before the catalog."""
    wrong = [node.name for node in cluster.nodes if node.name in unknown and PRICE in node.annotations]
    mend = [f"correct the annotation {PRICE} of {', '.join(wrong)}"] if wrong else []
    add = [f"add the offers to {catalog}, or annotate the nodes with {PRICE}"] if len(wrong) < len(unknown) else []
    return "; ".join(mend + add)


def _prices(cluster: Cluster, offers: tuple[Offer, ...]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the prices that are known, and why the others are not, by node."""
    on_sale: dict[tuple[str, str, str], int] = {}
    anywhere: dict[tuple[str, str], set[int]] = {}
    for offer in offers:
        if offer.committed is not None:
            continue
        on_sale.setdefault((offer.machine_type, offer.zone, offer.capacity_type), offer.micro_usd_per_hour)
        anywhere.setdefault((offer.machine_type, offer.capacity_type), set()).add(offer.micro_usd_per_hour)
    prices, unknown = dict(covered_nodes(cluster, offers)), dict[str, str]()
    for node in cluster.nodes:
        if node.name in prices:
            continue
        try:
            prices[node.name] = _node_price(node, on_sale, anywhere)
        except PriceError as error:
            unknown[node.name] = str(error)
    return prices, unknown


def _node_price(
    node: Node, on_sale: Mapping[tuple[str, str, str], int], anywhere: Mapping[tuple[str, str], set[int]]
) -> int:
    annotation = node.annotations.get(PRICE)
    if annotation is not None:
        try:
            return micro_usd(annotation.strip())
        except ValueError as error:
            raise PriceError(f"annotation {PRICE} is {annotation!r}: {error}") from error
    machine, zone, capacity_type = machine_of(node)
    price = on_sale.get((machine, zone, capacity_type))
    if price is not None:
        return price
    everywhere = anywhere.get((machine, capacity_type), set())
    if zone == UNKNOWN and len(everywhere) == 1:
        return next(iter(everywhere))
    if machine == UNKNOWN:
        raise PriceError(f"unknown machine type, label {INSTANCE_TYPE[0]} is missing")
    raise PriceError(f"{machine}/{zone}/{capacity_type}")
