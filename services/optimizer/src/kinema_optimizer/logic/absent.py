"""Zones in which a node is not Ready: what the plan takes to run there may have to be started anew, in that zone.

Pods of a node that is not Ready count as running until they are gone: most such nodes come back. But a plan that leaves
their zone without any node that takes pods rests on nothing: their successors, a volume's users, or the next pod of a
spread would find no place there. So one node that takes pods stays in such a zone, the cheapest, if it has any now.
"""

from __future__ import annotations

from kinema_core.events import Plan
from kinema_core.model.cluster import Cluster


def leaned_on(plan: Plan, cluster: Cluster) -> frozenset[str]:
    """Names of the nodes to keep: one for each zone that the plan leaves to nodes that are not Ready and hold pods."""
    if all(node.ready for node in cluster.nodes):
        return frozenset()
    used = {place.to for place in plan.placements}
    live = {node.name: node for node in cluster.nodes}
    open_now = {name for name, node in live.items() if node.ready and not node.unschedulable}
    absent, served = set[str](), set[str]()
    for node in plan.nodes:
        if node.action == "boot" or (node.action == "keep" and node.name in open_now):
            served.add(node.zone)
        elif node.action == "keep" and node.name in used and not live[node.name].ready:
            absent.add(node.zone)
    found: dict[str, tuple[float, str]] = {}
    for node in plan.nodes:
        if node.action == "delete" and node.name in open_now and node.zone in absent - served:
            found[node.zone] = min(found.get(node.zone, (node.usd_per_hour, node.name)), (node.usd_per_hour, node.name))
    return frozenset(name for _, name in found.values())
