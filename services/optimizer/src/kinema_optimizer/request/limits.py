"""Limits on nodes: by number or by vCPUs; in total, in a zone, of a machine type or capacity type.

A maximum limits what may be booted, on top of the nodes that are there: new nodes are Ready before old ones go, so that
both exist for a while and count against a provider's quota. A minimum is kept by placeholder pods of which each needs a
node of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kinema_core.events import (
    FrozenMap,
    NodeTerm,
    Offer,
    PlacementRules,
    Plan,
    Pod,
    PodTerm,
    Quota,
    Requirement,
    Selector,
    Toleration,
)
from kinema_core.model.catalog import INSTANCE_TYPE, ZONE, machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import HOSTNAME
from kinema_core.model.vocabulary import CAPACITY_TYPE, SPOT
from kinema_core.ranges import between, check_ranges
from kinema_optimizer.request.headroom import FLOOR, LOWEST, NAMESPACE

_Nodes: TypeAlias = Annotated[int, between(0, 100_000)]
_LABEL: Final = "kinema.io/floor"


class NodeLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limit on nodes of a machine type, zone and capacity type, or on their vCPUs; without a name it means all."""

    machine_type: str | None = None
    """Of the nodes that count."""
    zone: str | None = None
    """Zone of the nodes that count."""
    capacity_type: Literal["on-demand", "spot"] | None = None
    """Capacity type of the nodes that count."""
    min_nodes: _Nodes = 0
    """So many are kept or booted at least."""
    max_nodes: _Nodes | None = None
    """So many there may be at most; null: any number."""
    max_vcpus: Annotated[int, between(0, 100_000_000)] | None = None
    """So many vCPUs they may have together at most, as a cloud's quota counts them; null: any number."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)
        if self.max_nodes is not None and self.max_nodes < self.min_nodes:
            message = f"max_nodes is {self.max_nodes}: use {self.min_nodes} (min_nodes) or more"
            raise ValueError(message)
        if not self.min_nodes and self.max_nodes is None and self.max_vcpus is None:
            message = f"the limit of {self.text} limits nothing: give min_nodes, max_nodes or max_vcpus"
            raise ValueError(message)

    @property
    def text(self) -> str:
        """Limited nodes, in words."""
        words = (self.capacity_type, self.machine_type, "nodes")
        kind = " ".join(word for word in words if word is not None)
        return kind if self.zone is None else f"{kind} in zone {self.zone}"

    def covers(self, machine_type: str, zone: str, capacity_type: str) -> bool:
        """Return whether a node of this type, zone and capacity type counts."""
        own = (self.machine_type, machine_type), (self.zone, zone), (self.capacity_type, capacity_type)
        return all(wanted in (None, has) for wanted, has in own)


def capped(limits: Sequence[NodeLimit], cluster: Cluster, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Return the offers with every maximum as a quota: they share what live nodes leave of it."""
    millicores = millicores_of(cluster, offers)
    found = list(offers)
    for limit in limits:
        there = [millicores[node.name] for node in cluster.nodes if limit.covers(*machine_of(node))]
        for index, offer in enumerate(offers):
            if limit.covers(offer.machine_type, offer.zone, offer.capacity_type):
                name, cpu = f"maximum of {limit.text}", offer.capacity["cpu"]
                most = [] if limit.max_nodes is None else [Quota(name=name, takes=1, left=limit.max_nodes - len(there))]
                if limit.max_vcpus is not None:
                    most.append(Quota(name=f"{name} in vCPUs", takes=cpu, left=limit.max_vcpus * 1000 - sum(there)))
                found[index] = msgspec.structs.replace(found[index], quotas=(*found[index].quotas, *most))
    return tuple(found)


def millicores_of(cluster: Cluster, offers: Iterable[Offer]) -> Mapping[str, int]:
    """Return the CPU of whole machines by the name of the node or offer.

    Of a node whose type is not on offer, the allocatable CPU counts, rounded up to whole cores.
    """
    sold, types = {}, {}
    for offer in offers:
        sold[offer.name] = types[offer.machine_type] = offer.capacity["cpu"]
    live = {
        node.name: types.get(machine_of(node)[0], -(-node.allocatable.get("cpu", 0) // 1000) * 1000)
        for node in cluster.nodes
    }
    return {**sold, **live}


def floor_pods(limits: Sequence[NodeLimit]) -> tuple[Pod, ...]:
    """Placeholders for every minimum: as many as nodes are to remain, no two of which share a node."""
    return tuple(pod for index, limit in enumerate(limits) for pod in _floor(index, limit))


def _floor(index: int, limit: NodeLimit) -> Iterator[Pod]:
    labels = FrozenMap({_LABEL: str(index)})
    apart = PodTerm(topology_key=HOSTNAME, selector=Selector(labels=labels), namespaces=(NAMESPACE,))
    keys = [
        [(key, value) for key in names]
        for names, value in (
            (INSTANCE_TYPE, limit.machine_type),
            (ZONE, limit.zone),
            ((CAPACITY_TYPE,), limit.capacity_type),
        )
        if value is not None
    ]
    terms = tuple(NodeTerm(expressions=tuple(_is(key, value) for key, value in one)) for one in product(*keys))
    rules = PlacementRules(
        node_terms=terms if keys else None, anti_affinity=(apart,), tolerations=(Toleration(operator="Exists"),)
    )
    for n in range(limit.min_nodes):
        name = f"{FLOOR}{index}-{n:05d}"
        yield Pod(
            name=name,
            namespace=NAMESPACE,
            uid=name,
            labels=labels,
            annotations=FrozenMap({SPOT: "allow"}),
            requests=FrozenMap({"pods": 1}),
            rules=rules,
            priority=LOWEST,
        )


def _is(key: str, value: str) -> Requirement:
    return Requirement(key=key, operator="In", values=(value,))


def breaches(limits: Sequence[NodeLimit], plan: Plan, millicores: Mapping[str, int]) -> tuple[str, ...]:
    """Limits that a plan breaks and that were not broken as much before, for people; see `millicores_of`."""
    found = []
    for limit in limits:
        mine = [node for node in plan.nodes if limit.covers(node.machine_type, node.zone, node.capacity_type)]
        actions = [node.action for node in mine]
        together, after = len(mine), len(mine) - actions.count("delete")
        before = together - actions.count("boot")
        if limit.max_nodes is not None and together > max(limit.max_nodes, before):
            found.append(f"{together} {limit.text} at once, at most {limit.max_nodes} are allowed")
        if limit.max_vcpus is not None and "boot" in actions:
            at_once = sum(millicores[node.offer if node.action == "boot" else node.name] for node in mine)
            if at_once > limit.max_vcpus * 1000:
                found.append(f"{at_once / 1000:g} vCPUs of {limit.text} at once, at most {limit.max_vcpus} are allowed")
        if after < min(limit.min_nodes, before):
            found.append(f"{after} {limit.text} remain, at least {limit.min_nodes} are to")
    return tuple(found)
