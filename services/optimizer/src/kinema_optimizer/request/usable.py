"""Usable resources: what is left of a node counts only as far as pods of the usual shape can use it.

Source: the cluster-threshold thesis, chapter 4 (usability thresholds). Its check of a plan (requests over usable
capacity stay under a threshold) is made a constraint here: as much usable room as the check asks for is kept free from
the start, in pieces that the definition counts as usable wherever they lie. Any number of resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kinema_core.events import Amounts, FrozenMap, Offer, Plan
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, resident_requests
from kinema_core.model.match import parse_taints
from kinema_core.model.quantity import QuantityError, parse_amount
from kinema_core.model.resources import subtract, total

_ROUNDS: Final = 64
"""Ratios that agree with each other settle in as many rounds as there are resources."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `most` of a resource is usable with every `amount` of another, as 3600m of cpu with 1G of memory."""

    resource: str
    """Resource that is usable in part, as `cpu`."""
    most: str
    """Usable amount, as `3600m`."""
    per: str
    """With what, as `memory`."""
    amount: str
    """With how much of that, as `1G`."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        if not (_amount(self.resource, self.most) and _amount(self.per, self.amount)) or self.resource == self.per:
            message = f"ratio of {self.resource} to {self.per}: write two amounts above 0 of different resources"
            raise ValueError(message)

    def of(self, amount: int) -> int:
        """Return how much of the resource is usable with so much of the other."""
        return amount * _amount(self.resource, self.most) // _amount(self.per, self.amount)

    def needs(self, amount: int) -> int:
        """Return how much of the other it takes for so much of the resource to be usable."""
        return -(-amount * _amount(self.per, self.amount) // _amount(self.resource, self.most))


class UsableResources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Maximum utilization of the usable part of the cluster after a plan."""

    max_percent: Mapping[str, int]
    """Resource → requests over usable capacity, in percent, that a plan may reach."""
    min_free: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Resource → amount; where a node has less left of one of them, nothing that is left there is usable."""
    ratios: tuple[Ratio, ...] = ()
    """Resources that are usable only together with another."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        for name, percent in self.max_percent.items():
            if not 1 <= percent <= 100:
                message = f"max_percent of {name} is {percent}: use 1 to 100"
                raise ValueError(message)
        for name, text in self.min_free.items():
            _amount(name, text)
        self.piece(dict.fromkeys(self.resources, 1))

    @property
    def resources(self) -> tuple[str, ...]:
        """Every resource that the definition speaks of, by name."""
        named = {*self.max_percent, *self.min_free, *(name for one in self.ratios for name in (one.resource, one.per))}
        return tuple(sorted(named))

    def free(self, left: Mapping[str, int]) -> dict[str, int]:
        """Return what is usable of what a node has left."""
        if any(left.get(name, 0) < _amount(name, text) for name, text in self.min_free.items()):
            return dict.fromkeys(self.resources, 0)
        found = {name: max(0, left.get(name, 0)) for name in self.resources}
        for one in self.ratios:
            found[one.resource] = min(found[one.resource], one.of(max(0, left.get(one.per, 0))))
        return found

    def piece(self, least: Mapping[str, int]) -> Amounts:
        """Return the smallest room with at least this much of everything that is usable as a whole.

        Raises:
            ValueError: the ratios contradict each other.
        """
        found = {name: max(amount, _amount(name, self.min_free.get(name, "0"))) for name, amount in least.items()}
        for _ in range(_ROUNDS):
            before = dict(found)
            for one in self.ratios:
                found[one.per] = max(found[one.per], one.needs(found[one.resource]))
            if found == before:
                return FrozenMap(found)
        message = "the ratios contradict each other: no room is usable as a whole"
        raise ValueError(message)


def _amount(resource: str, text: str) -> int:
    try:
        return parse_amount(resource, text)
    except QuantityError as error:
        message = f"{resource}: {error}"
        raise ValueError(message) from error


@dataclass(frozen=True)
class Fill:
    """One resource of the usable part of a cluster."""

    requested: int
    usable: int
    """Requested amounts, and those that are left and usable."""

    @property
    def percent(self) -> float:
        """Requests over usable capacity; 0 where nothing is requested."""
        return 100.0 * self.requested / self.usable if self.requested else 0.0


def fill_of(nodes: Iterable[tuple[Amounts, Amounts]], rule: UsableResources) -> Mapping[str, Fill]:
    """Return the usable part of nodes, each by what it has and what its pods request."""
    requested = dict.fromkeys(rule.resources, 0)
    usable = dict.fromkeys(rule.resources, 0)
    for has, asked in nodes:
        free = rule.free(subtract(has, asked))
        for name in rule.resources:
            requested[name] += asked.get(name, 0)
            usable[name] += asked.get(name, 0) + free[name]
    return {name: Fill(requested[name], usable[name]) for name in rule.resources}


def room_needed(cluster: Cluster, rule: UsableResources) -> tuple[Amounts, int]:
    """Return the room to keep free for the thresholds to hold: what one piece has, and how many pieces."""
    asked = total(pod.requests for pod in cluster.pods)
    needed = {name: -(-asked.get(name, 0) * (100 - most) // most) for name, most in rule.max_percent.items()}
    pieces = max(1, len(cluster.nodes))
    piece = rule.piece({name: -(-needed.get(name, 0) // pieces) for name in rule.resources})
    return piece, max((-(-amount // piece[name]) for name, amount in needed.items() if amount), default=0)


def fill_after(plan: Plan, cluster: Cluster, offers: Iterable[Offer], *, rule: UsableResources) -> Mapping[str, Fill]:
    """Return the usable part of the cluster after a plan; daemon sets and mirror pods are counted on every node."""
    on_sale = {offer.name: offer for offer in offers}
    asked: dict[str, list[Amounts]] = {}
    for item in plan.placements:
        asked.setdefault(item.to, []).append(item.requests)
    nodes = []
    for planned in plan.nodes:
        node = cluster.node(planned.name)
        if planned.action == "delete":
            continue
        if node is not None:
            has, residents = node.allocatable, resident_requests(cluster, node)
        else:
            offer = on_sale[planned.offer]
            has = offer.allocatable
            labels, taints = new_node_labels(offer, planned.name), parse_taints(offer.taints)
            residents = daemon_requests(cluster, name=planned.name, labels=labels, taints=taints)
        nodes.append((has, total([residents, *asked.get(planned.name, ())])))
    return fill_of(nodes, rule)
