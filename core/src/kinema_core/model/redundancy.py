"""Redundancy of workloads: on how many nodes, and in how many zones, their pods are.

A plan keeps it: the pods of a workload that are on two nodes or more do not end on one, nor in fewer zones than now.
Pods of Jobs may, as they serve no requests. `redundancy_loss` reports what a plan without this rule brings together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kinema_core.events import Placement, Plan, RedundancyLoss
from kinema_core.model.catalog import UNKNOWN, machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.pod_rules import listed_by_key


@dataclass(frozen=True)
class Redundancy:
    """Numbers of nodes and of zones that a workload's pods have to be on."""

    nodes: int
    zones: int

    def met(self, nodes: Iterable[str], zone_of: Callable[[str], str]) -> bool:
        """Return whether pods on these nodes keep it."""
        on = set(nodes)
        return len(on) >= self.nodes and len(zones_of(on, zone_of)) >= self.zones


@dataclass(frozen=True)
class Shortfall:
    """A workload whose pods would be on fewer nodes, or in fewer zones, than they have to."""

    workload: str
    """`Type/namespace/name`."""
    needed: Redundancy
    nodes: int
    zones: int

    @property
    def text(self) -> str:
        """What is wrong, for people."""
        if self.nodes < self.needed.nodes:
            return f"its pods, on several nodes now, would be on {self.nodes}"
        return f"its pods, in {self.needed.zones} zones now, would be in {self.zones}"


def zones_of(nodes: Iterable[str], zone_of: Callable[[str], str]) -> frozenset[str]:
    """Return the known zones of nodes."""
    return frozenset(zone for name in nodes if (zone := zone_of(name)) != UNKNOWN)


@derived
def live_zone(cluster: Cluster) -> Callable[[str], str]:
    """Return the zone of a live node by its name, `-` where it is not known."""
    zones = {node.name: machine_of(node)[1] for node in cluster.nodes}
    return lambda name: zones.get(name, UNKNOWN)


def redundancy_of(cluster: Cluster, workload: str, zone_of: Callable[[str], str]) -> Redundancy | None:
    """Return what a workload has to keep; None where its pods are on one node, or are those of a Job."""
    owner = cluster.workload(workload)
    if owner is not None and owner.type == "Job":
        return None
    nodes = {pod.node for pod in cluster.pods_by_workload.get(workload, ()) if pod.node and not pod.terminating}
    return Redundancy(2, len(zones_of(nodes, zone_of))) if len(nodes) > 1 else None


def shortfalls(cluster: Cluster, places: Mapping[str, str], zone_after: Callable[[str], str]) -> Iterator[Shortfall]:
    """Workloads that lose their redundancy, by key.

    Args:
        cluster: the state of now.
        places: pod key → node after a plan.
        zone_after: zone of a node that remains or is booted.
    """
    listed, zone_now = listed_by_key(cluster), live_zone(cluster)
    moving = (pod for key, to in places.items() if (pod := listed.get(key)) and pod.node and pod.node != to)
    for workload in sorted({key for pod in moving if (key := cluster.controller_key_of(pod)) is not None}):
        needed = redundancy_of(cluster, workload, zone_now)
        if needed is not None:
            nodes = [places[pod.key] for pod in cluster.pods_by_workload[workload] if pod.key in places]
            if not needed.met(nodes, zone_after):
                yield Shortfall(workload, needed, len(set(nodes)), len(zones_of(nodes, zone_after)))


def redundancy_loss(plan: Plan, cluster: Cluster) -> tuple[RedundancyLoss, ...]:
    """Workloads with pods on several nodes now and all on one after the plan, those with most pods first."""
    places = {one.pod: one for one in plan.placements}
    moving = (one for one in plan.placements if one.source is not None and one.source != one.to)
    owners = {cluster.controller_key_of(pod) for one in moving if (pod := cluster.pod(one.pod)) is not None}
    found = [_together(owner, places, cluster) for owner in owners if owner is not None]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: (-one.pods, one.workload)))


def _together(owner: str, places: Mapping[str, Placement], cluster: Cluster) -> RedundancyLoss | None:
    """Return the workload, if it is one of them; most are not, by their second pod."""
    pods, node, before = 0, "", set[str]()
    for pod in cluster.pods_by_workload[owner]:
        place = places.get(pod.key)
        if place is None:
            continue
        if node not in {"", place.to}:
            return None
        pods, node = pods + 1, place.to
        before |= {place.source} if place.source is not None else set()
    return RedundancyLoss(workload=owner, pods=pods, nodes_before=len(before), node=node) if len(before) > 1 else None
