"""Pods that get a new copy by a plan, and where they start from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kinema_core.events import Amounts, Plan, Pod, Strategy
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident
from kinema_core.model.mobility import MobilityOptions
from kinema_core.model.resizing import resized_in_place
from kinema_core.model.resources import excess
from kinema_core.model.volumes import with_attachments


@dataclass(frozen=True)
class Mover:
    """A pod that gets a new copy: on another node, or by a rolling update on its own."""

    key: str
    pod: Pod
    to: str
    strategy: Strategy
    requests: Amounts
    """Of the new copy."""
    workload: str
    """Key of its workload; of an unknown controller, what the pod says of it."""
    takes: Amounts
    """What the new copy takes of its node: attachments of volumes too, but where the old copy has them already.

    Of a pod that runs on with other requests, only what it requests more.
    """
    leaves: Amounts
    """What the old copy gives back there; of a pod that runs on, what it requests less."""

    @property
    def source(self) -> str | None:
        """Return where the old copy is; None for a pending pod."""
        return self.pod.node

    @property
    def steered(self) -> bool:
        """Return whether it moves by itself: not pending, and not together with its whole workload."""
        return self.pod.node is not None and self.strategy != "rolling"


def movers_of(plan: Plan, cluster: Cluster, options: MobilityOptions) -> list[Mover]:
    """Return the pods that get a new copy or other requests, in the plan's order, of those that the cluster has."""
    found: list[Mover] = []
    running_on = resized_in_place(plan, cluster, options)
    for place in plan.placements:
        pod = cluster.pod(place.pod)
        if pod is not None and (pod.node != place.to or place.strategy == "rolling"):
            workload = cluster.workload_key_of(pod)
            takes, leaves = place.requests, pod.requests
            if workload in running_on:
                takes, leaves = excess(takes, leaves), excess(leaves, takes)
            elif pod.node != place.to:
                takes, leaves = with_attachments(cluster, pod, takes), with_attachments(cluster, pod, leaves)
            found.append(Mover(place.pod, pod, place.to, place.strategy, place.requests, workload, takes, leaves))
    return found


def emptied(plan: Plan, cluster: Cluster, movers: Iterable[Mover]) -> dict[str, int]:
    """Return the nodes that the plan deletes and no pod keeps, and how many pods have to leave each before."""
    moving = {mover.key for mover in movers}
    found: dict[str, int] = {}
    for node in plan.nodes:
        if node.action != "delete":
            continue
        here = [
            pod.key in moving
            for pod in cluster.pods_by_node.get(node.name, ())
            if not (pod.terminating or is_resident(cluster, pod))
        ]
        if all(here):
            found[node.name] = len(here)
    return found
