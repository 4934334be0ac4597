"""Limits on the number of nodes: in total, in a zone, of a machine type.

A maximum limits what may be booted, on top of the nodes that are there: new nodes are Ready before old ones go, so that
both exist for a while and count against a provider's quota. A minimum is kept by placeholder pods of which each needs a
node of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final, TypeAlias

import msgspec

from kinema_core.events import (
    FrozenMap,
    Node,
    NodeTerm,
    Offer,
    PlacementRules,
    Plan,
    Pod,
    PodTerm,
    Requirement,
    Selector,
    Toleration,
)
from kinema_core.model.catalog import INSTANCE_TYPE, ZONE, machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import HOSTNAME
from kinema_core.model.vocabulary import SPOT
from kinema_optimizer.request.headroom import FLOOR, LOWEST, NAMESPACE

_MOST: Final = 100_000
_LABEL: Final = "kinema.io/floor"


class NodeLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Maximum number of nodes of a machine type in a zone; without a name it means all."""

    machine_type: str | None = None
    """Of the nodes that count."""
    zone: str | None = None
    """Zone of the nodes that count."""
    min_nodes: int = 0
    """So many are kept or booted at least."""
    max_nodes: int | None = None
    """So many there may be at most; null: any number."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        if not 0 <= self.min_nodes <= _MOST:
            message = f"min_nodes is {self.min_nodes}: use 0 to {_MOST}"
            raise ValueError(message)
        if self.max_nodes is not None and not self.min_nodes <= self.max_nodes <= _MOST:
            message = f"max_nodes is {self.max_nodes}: use {self.min_nodes} (min_nodes) to {_MOST}"
            raise ValueError(message)
        if not self.min_nodes and self.max_nodes is None:
            message = f"the limit of {self.text} limits nothing: give min_nodes or max_nodes"
            raise ValueError(message)

    @property
    def text(self) -> str:
        """Limited nodes, in words."""
        kind = "nodes" if self.machine_type is None else f"{self.machine_type} nodes"
        return kind if self.zone is None else f"{kind} in zone {self.zone}"

    def covers(self, machine_type: str, zone: str) -> bool:
        """Return whether a node of this type and zone counts."""
        return self.machine_type in (None, machine_type) and self.zone in (None, zone)


def capped(limits: Sequence[NodeLimit], cluster: Cluster, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Return the offers with no more available than every maximum leaves, whatever is booted of each.

    All offers that a maximum covers share what it leaves. Where maxima overlap, or a provider's pool has offers under
    different maxima, each is divided evenly among the groups of offers that are under the same maxima, so that no
    choice among the groups breaks any.
    """
    left = {
        index: max(0, limit.max_nodes - sum(_counts(limit, cluster.nodes)))
        for index, limit in enumerate(limits)
        if limit.max_nodes is not None
    }
    over = {
        offer.name: tuple(index for index in left if limits[index].covers(offer.machine_type, offer.zone))
        for offer in offers
    }
    pools: dict[str, set[_Group]] = {}
    for offer in offers:
        pools.setdefault(_stock(offer), set()).add(over[offer.name])
    groups: dict[_Group, list[Offer]] = {}
    for offer in offers:
        mine = over[offer.name]
        groups.setdefault(mine, []).append(_divided(offer, sorted(pools[_stock(offer)]), mine))
    found: dict[str, Offer] = {}
    for mine, members in groups.items():
        most = [_share(left[index], [group for group in groups if index in group], mine) for index in mine]
        pool = f"maximum of {' and of '.join(limits[index].text for index in mine)}"
        found |= {one.name: _pooled(one, members, pool=pool, most=min(most)) if most else one for one in members}
    return tuple(found[offer.name] for offer in offers)


_Group: TypeAlias = tuple[int, ...]
"""The maxima that an offer is under."""


def _stock(offer: Offer) -> str:
    return offer.pool or offer.name


def _divided(offer: Offer, groups: Sequence[_Group], mine: _Group) -> Offer:
    """Return the offer with the part of its pool that falls to its group."""
    if offer.available is None or len(groups) == 1:
        return offer
    return msgspec.structs.replace(offer, available=_share(offer.available, groups, mine))


def _share(left: int, groups: Sequence[_Group], mine: _Group) -> int:
    """Return an even part of what is left; the first groups get the remainder."""
    whole, rest = divmod(left, len(groups))
    return whole + (groups.index(mine) < rest)


def _pooled(offer: Offer, members: Sequence[Offer], *, pool: str, most: int) -> Offer:
    """Return the offer in one pool with the others under the same maxima; the smallest limit holds for all."""
    least = min([most, *(one.available for one in members if one.available is not None)])
    return msgspec.structs.replace(offer, available=least, pool=pool)


def _counts(limit: NodeLimit, nodes: Iterable[Node]) -> Iterator[bool]:
    for node in nodes:
        machine_type, zone, _ = machine_of(node)
        yield limit.covers(machine_type, zone)


def floor_pods(limits: Sequence[NodeLimit]) -> tuple[Pod, ...]:
    """Placeholders for every minimum: as many as nodes are to remain, no two of which share a node."""
    return tuple(pod for index, limit in enumerate(limits) for pod in _floor(index, limit))


def _floor(index: int, limit: NodeLimit) -> Iterator[Pod]:
    labels = FrozenMap({_LABEL: str(index)})
    apart = PodTerm(topology_key=HOSTNAME, selector=Selector(labels=labels), namespaces=(NAMESPACE,))
    keys = [
        [(key, value) for key in names]
        for names, value in ((INSTANCE_TYPE, limit.machine_type), (ZONE, limit.zone))
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


def breaches(limits: Sequence[NodeLimit], plan: Plan) -> tuple[str, ...]:
    """Limits that a plan breaks and that were not broken as much before, for people."""
    found = []
    for limit in limits:
        mine = [node.action for node in plan.nodes if limit.covers(node.machine_type, node.zone)]
        together, after = len(mine), len(mine) - mine.count("delete")
        before = together - mine.count("boot")
        if limit.max_nodes is not None and together > max(limit.max_nodes, before):
            found.append(f"{together} {limit.text} at once, at most {limit.max_nodes} are allowed")
        if after < min(limit.min_nodes, before):
            found.append(f"{after} {limit.text} remain, at least {limit.min_nodes} are to")
    return tuple(found)
