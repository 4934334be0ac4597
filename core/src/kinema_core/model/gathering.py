"""Workloads that a plan brings together on one node: allowed where no rule forbids it, and worth a word."""

from __future__ import annotations

from collections import defaultdict

from kinema_core.events import Gathered, Placement, Plan
from kinema_core.model.cluster import Cluster


def gathered(plan: Plan, cluster: Cluster) -> tuple[Gathered, ...]:
    """Workloads with pods on several nodes now and all on one after the plan, those with most pods first."""
    moving = (one for one in plan.placements if one.source is not None and one.source != one.to)
    touched = {owner for one in moving if (owner := _owner(cluster, one)) is not None}
    groups: defaultdict[str, list[Placement]] = defaultdict(list)
    for one in plan.placements if touched else ():
        owner = _owner(cluster, one)
        if owner in touched:
            groups[str(owner)].append(one)
    found = [
        Gathered(workload=owner, pods=len(mine), nodes_before=len(before), node=mine[0].to)
        for owner, mine in groups.items()
        if len({one.to for one in mine}) == 1 and len(before := {one.source for one in mine if one.source}) > 1
    ]
    return tuple(sorted(found, key=lambda one: (-one.pods, one.workload)))


def _owner(cluster: Cluster, placement: Placement) -> str | None:
    pod = cluster.pod(placement.pod)
    return None if pod is None else cluster.controller_key_of(pod)
