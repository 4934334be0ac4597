"""Workloads that a plan brings together on one node: allowed where no rule forbids it, and worth a word."""

from __future__ import annotations

from collections.abc import Mapping

from kinema_core.events import Placement, Plan, RedundancyLoss
from kinema_core.model.cluster import Cluster


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
