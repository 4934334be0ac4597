"""Room that a cluster has and a plan leaves it: for one more of the largest pods in every zone.

It is asked for only where a node has it now: as large as the largest pod of the zone for which there is room. So no
plan buys a node for a cluster that is full, and one with room for small pods alone keeps that. Pods that take a large
share of the zone do not count: room for one would be paid for by the hour, to spare the next one the time of a boot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Final

import msgspec
import numpy as np

from kinema_core.events import Amounts, FrozenMap, Node, NodeTerm, PlacementRules, Pod, Requirement
from kinema_core.model.catalog import UNKNOWN, ZONE, machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import room_left
from kinema_core.model.mobility import MobilityOptions, is_resident, listed, mobility
from kinema_core.model.preemption import may_preempt
from kinema_core.model.resources import fits, times
from kinema_optimizer.request.headroom import LEFT, placeholders

_SIZED: Final = ("cpu", "memory")
"""What the size of a pod is measured by."""
_ORDINARY: Final = frozenset({*_SIZED, "pods", "ephemeral-storage"})
"""Pods that request anything else, as GPUs, are not made room for: it would hold machines that only they need."""


@dataclass(frozen=True)
class SpareRoom:
    """What decides about the room that is left in a cluster."""

    count: int
    """Pods of the largest size in each zone; 0: no room is left."""
    percent: int = 100
    """Ceiling on every node's CPU and memory utilization."""
    fraction: float = 1.0
    """Largest share of a zone's CPU or memory that the room for one pod may take, unless it may preempt others."""
    options: MobilityOptions = field(default_factory=MobilityOptions)


def room_to_leave(cluster: Cluster, now: datetime, asked: SpareRoom) -> tuple[Pod, ...]:
    """Return placeholders for the room, by zone; none while a pending pod could use the room of now."""
    if not asked.count:
        return ()
    open_nodes = mobility(cluster, now, asked.options).open_nodes
    zones: dict[str, list[tuple[Node, Amounts]]] = {}
    for node in cluster.nodes:
        _, zone, capacity = machine_of(node)
        if node.name in open_nodes and not _keeps_away(node) and (capacity != "spot" or asked.options.allow_spot):
            zones.setdefault(zone, []).append((node, _under(room_left(cluster)[node.name], node, asked.percent)))
    rooms = [room for there in zones.values() for _, room in there]
    if any(pod.node is None and any(fits(pod.requests, room) for room in rooms) for pod in listed(cluster)):
        return ()
    return tuple(pod for zone in sorted(zones) for pod in _in_zone(cluster, zone, zones[zone], asked))


def _keeps_away(node: Node) -> bool:
    return any(taint.effect != "PreferNoSchedule" for taint in node.taints)


def _under(room: Amounts, node: Node, percent: int) -> Amounts:
    """Return what is left under the ceiling."""
    above = {name: node.allocatable[name] - node.allocatable[name] * percent // 100 for name in _SIZED if name in room}
    return FrozenMap({**room, **{name: room[name] - amount for name, amount in above.items()}})


def _in_zone(cluster: Cluster, zone: str, nodes: Sequence[tuple[Node, Amounts]], asked: SpareRoom) -> Iterator[Pod]:
    has = np.array([[room.get(name, 0) for name in (*_SIZED, "pods")] for _, room in nodes], dtype=np.int64)
    whole = np.maximum(1, [sum(node.allocatable.get(name, 0) for node, _ in nodes) for name in _SIZED])
    sizes: dict[tuple[int, ...], bool] = {}
    for pod in _ordinary(cluster, [node for node, _ in nodes]):
        size = tuple(pod.requests.get(name, 0) for name in _SIZED)
        sizes[size] = sizes.get(size, False) or may_preempt(cluster, pod)
    # What takes the larger share of the zone's CPU or memory is larger.
    shares = {size: max(Fraction(size[i], int(whole[i])) for i in range(len(_SIZED))) for size in sizes}
    limit = Fraction(str(asked.fraction))
    for size in sorted(sizes, key=lambda size: (shares[size], size), reverse=True):
        if (sizes[size] or shares[size] <= limit) and (has >= (*size, 1)).all(axis=1).any():
            amounts = FrozenMap({name: amount for name, amount in zip(_SIZED, size, strict=True) if amount})
            found = sum(times(FrozenMap({**amounts, "pods": 1}), room, asked.count) for _, room in nodes)
            rules = _pinned(zone)
            for pod in placeholders(f"{LEFT}{zone}-", amounts, min(asked.count, found)):
                yield msgspec.structs.replace(pod, rules=rules)
            return


def _ordinary(cluster: Cluster, nodes: Iterable[Node]) -> Iterator[Pod]:
    """Pods on nodes that a plan lists and that request CPU or memory, and nothing rare; one of those that are alike."""
    seen: set[tuple[int, int]] = set()
    for pod in (one for node in nodes for one in cluster.pods_by_node.get(node.name, ())):
        alike = id(pod.requests), pod.priority
        if alike in seen:
            continue
        asks = {name for name, amount in pod.requests.items() if amount}
        if asks & set(_SIZED) and asks <= _ORDINARY and not pod.terminating and not is_resident(cluster, pod):
            seen.add(alike)
            yield pod


def _pinned(zone: str) -> PlacementRules:
    if zone == UNKNOWN:
        return PlacementRules()
    named = (Requirement(key=key, operator="In", values=(zone,)) for key in ZONE)
    return PlacementRules(node_terms=tuple(NodeTerm(expressions=(one,)) for one in named))
