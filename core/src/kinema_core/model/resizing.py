"""Requests that change while pods run: such pods stay where they are, and no second copies run beside them.

The rescheduler tries that before a rolling update, so a plan has to have room only for what the pods request more.
No container restarts, so that it counts neither as a restart nor against the limit on moves. Where a kubelet refuses it
after all, the rolling update begins when it has room, and counts.
"""

from __future__ import annotations

from collections.abc import Collection

from kinema_core.events import Amounts, Placement, Plan, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.pod_rules import MobilityOptions


def can_resize(pod: Pod, names: Collection[str]) -> bool:
    """Return whether the requests of these resources can change while the pod runs."""
    return pod.ready and set(names) <= set(pod.resizable)


def all_resizable(cluster: Cluster, workload: str, before: Amounts, after: Amounts) -> bool:
    """Return whether all pods of a workload can get these requests while they run."""
    names = {name for name, amount in after.items() if amount != before.get(name)}
    return all(can_resize(pod, names) for pod in cluster.pods_by_workload.get(workload, ()) if not pod.terminating)


def resized_in_place(plan: Plan, cluster: Cluster, options: MobilityOptions) -> frozenset[str]:
    """Return the keys of the workloads that get new requests while all of their pods run on where they are."""
    if not plan.resizes or not options.resize_in_place:
        return frozenset()
    places = {one.pod: one.to for one in plan.placements}
    return frozenset(
        one.workload
        for one in plan.resizes
        if all_resizable(cluster, one.workload, one.requests_before, one.requests_after)
        and all(
            places.get(pod.key) == pod.node
            for pod in cluster.pods_by_workload.get(one.workload, ())
            if not pod.terminating
        )
    )


def disrupted(plan: Plan, cluster: Cluster, options: MobilityOptions) -> tuple[Placement, ...]:
    """Return the places of running pods that the plan replaces: all that move or are rolled, but none that runs on."""
    running_on = resized_in_place(plan, cluster, options)

    def runs_on(place: Placement) -> bool:
        pod = cluster.pod(place.pod) if running_on else None
        return pod is not None and cluster.controller_key_of(pod) in running_on

    return tuple(
        one for one in plan.placements if one.source is not None and one.strategy != "stay" and not runs_on(one)
    )


def changed_pods(plan: Plan) -> int:
    """Return how many running pods the plan moves, restarts or resizes."""
    return sum(one.source is not None and one.strategy != "stay" for one in plan.placements)


def restarted(plan: Plan, cluster: Cluster, options: MobilityOptions) -> int:
    """Return how many pods the plan replaces on their own nodes."""
    return sum(one.source == one.to for one in disrupted(plan, cluster, options))
