"""Requests that change while pods run: such pods stay where they are, and no second copies run beside them.

The rescheduler tries that before a rolling update, so a plan has to have room only for what the pods request more.
Where a kubelet refuses it after all, the rolling update begins when it has room.
"""

from __future__ import annotations

from collections.abc import Collection

from kinema_core.events import Plan, Pod
from kinema_core.model.cluster import Cluster


def can_resize(pod: Pod, names: Collection[str]) -> bool:
    """Return whether the requests of these resources can change while the pod runs."""
    return pod.ready and set(names) <= set(pod.resizable)


def resized_in_place(plan: Plan, cluster: Cluster) -> frozenset[str]:
    """Return the keys of the workloads that get new requests while all of their pods run on where they are."""
    places = {one.pod: one.to for one in plan.placements}
    found = set()
    for one in plan.resizes:
        names = {name for name, amount in one.requests_after.items() if amount != one.requests_before.get(name)}
        pods = [pod for pod in cluster.pods_by_workload.get(one.workload, ()) if not pod.terminating]
        if all(places.get(pod.key) == pod.node and can_resize(pod, names) for pod in pods):
            found.add(one.workload)
    return frozenset(found)
