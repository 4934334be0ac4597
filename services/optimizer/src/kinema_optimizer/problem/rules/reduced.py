"""Reduced rules: what rules between pods demand of single pods, classes and nodes.

A rule whose domains are nodes becomes a limit on what one node may newly take: tags that classes carry, and that keep
classes apart. A rule over any larger domain, as a zone, pins the pods that it concerns to where they are: then its
counts never change, and what holds now holds after every move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from kinema_core.events import Held
from kinema_core.model.spot_share import SpotPool

Pin: TypeAlias = tuple[str, str | None]
"""A topology key, and the domain in which a pod stays; None: on nodes that are in no domain."""


class RuleTags(NamedTuple):
    """A pod's part in the rules whose domains are nodes, by number of the rule."""

    keeps_away: frozenset[int]
    """Anti-affinity terms that it has."""
    kept_away: frozenset[int]
    """Anti-affinity terms that select it."""
    counted: frozenset[int]
    """Spread constraints that count it."""
    affinity_target: bool = False
    """Others count on its company on its node: it leaves that only when the node is deleted."""


UNTAGGED: Final = RuleTags(frozenset(), frozenset(), frozenset())


class NodeExclusion(NamedTuple):
    """Keeps pods with a tag from a node: a pod that stays there relies on that."""

    what: str
    """The field of `RuleTags`."""
    rule: int


class TopologyDemand(NamedTuple):
    """Domains of a pod by the rules between pods; all that is not demanded is free."""

    pins: tuple[Pin, ...]
    nodes: frozenset[str] | None = None
    """Only on these live nodes."""
    pools: frozenset[SpotPool] | None = None
    """Of spot capacity only in these pools; None: in any."""
    on_demand: bool = False
    """In any plan one pod like it is on no spot capacity, so that this may be it."""


NO_DEMAND: Final = TopologyDemand(())


class MoveGroup(NamedTuple):
    """Bound pods of one node that leave it together: each asks for company there, or is such company."""

    pods: tuple[str, ...]
    """Keys, in an order in which they can move: the pods that one asks for are before it."""
    nodes: frozenset[str] | None
    """Only to these live nodes."""


@dataclass(frozen=True)
class ReducedRules:
    """The rules between pods, worked out; pods and nodes without an entry are concerned by none."""

    needs: Mapping[str, TopologyDemand] = field(default_factory=lambda: MappingProxyType({}))
    """By pod key."""
    marks: Mapping[str, RuleTags] = field(default_factory=lambda: MappingProxyType({}))
    """By pod key."""
    most: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """By spread constraint: how many of the pods that it counts one node may hold."""
    bans: Mapping[str, frozenset[NodeExclusion]] = field(default_factory=lambda: MappingProxyType({}))
    """By live node or offer."""
    restricted: Mapping[str, Held] = field(default_factory=lambda: MappingProxyType({}))
    """Bound pods that this reduction keeps where they are, though they might move, by key."""
    fixed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Live nodes that it keeps for other reasons, and why."""
    immovable: Mapping[str, Held] = field(default_factory=lambda: MappingProxyType({}))
    """Of `restricted`, by key: no plan of any kind moves them, so that every plan pays for their nodes."""
    groups: tuple[MoveGroup, ...] = ()
    """No pod is in two of them."""
    closed: frozenset[str] = frozenset()
    """Offers of which a new node would break an enforced spread."""
    ruled: bool = False
    """Rules between pods, redundancy aside, concern some."""
    apart: frozenset[str] = frozenset()
    """Workloads that caps of their classes keep on two nodes."""
    shared: frozenset[str] = frozenset()
    """Workloads whose redundancy the classes do not ensure: they share them with others."""
