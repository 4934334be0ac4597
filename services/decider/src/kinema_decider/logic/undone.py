"""When a plan is undone: expected replicas need more room than it leaves, and it has taken room away."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kinema_core.events import NO_RULES, Offer, Plan, ReplicasAhead
from kinema_core.model.ahead import needed_later
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, resident_requests, room_left
from kinema_core.model.match import node_admits, parse_taints
from kinema_core.model.resources import subtract, total

_SIZED: Final = ("cpu", "memory", "pods")


def undone_in(
    plan: Plan, cluster: Cluster, offers: Mapping[str, Offer], ahead: ReplicasAhead | None, now: datetime
) -> float | None:
    """Return in how many seconds a plan is undone; None: not in the time that is forecast.

    By the totals on nodes that take pods without tolerations. Where the room lies in pieces too small for a pod, it is
    sooner.

    Args:
        plan: adapted to the cluster of now.
        cluster: of now.
        offers: on sale, by name.
        ahead: replicas that are expected.
        now: the time.
    """
    if ahead is None:
        return None
    nodes = {
        node.name: node
        for node in cluster.nodes
        if node_admits(NO_RULES, name=node.name, labels=node.labels, taints=node.taints) is None
    }
    deleted = [nodes[one.name] for one in plan.nodes if one.action == "delete" and one.name in nodes]
    booted = [(one.name, offers[one.offer]) for one in plan.nodes if one.action == "boot"]
    gone = total(subtract(node.allocatable, resident_requests(cluster, node)) for node in deleted)
    come = total(_room_of_new(cluster, name, offer) for name, offer in booted)
    free = total(room_left(cluster)[name] for name in nodes)
    change = {name: come.get(name, 0) - gone.get(name, 0) for name in _SIZED}
    for seconds, needed in needed_later(ahead, cluster, now):
        if any(change[name] < 0 and needed.get(name, 0) > free.get(name, 0) + change[name] for name in _SIZED):
            return seconds
    return None


def _room_of_new(cluster: Cluster, name: str, offer: Offer) -> Mapping[str, int]:
    labels, taints = new_node_labels(offer, name), parse_taints(offer.taints)
    if node_admits(NO_RULES, name=name, labels=labels, taints=taints) is not None:
        return {}
    return subtract(offer.allocatable, daemon_requests(cluster, name=name, labels=labels, taints=taints))
