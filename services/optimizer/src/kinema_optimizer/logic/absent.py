"""Zones in which a node is not Ready: what the plan takes to run there may have to be started anew, in that zone.

Pods of a node that is not Ready count as running until they are gone: most such nodes come back. But a plan that leaves
their zone without any node that takes pods rests on nothing: their successors, a volume's users, or the next pod of a
spread would find no place there. So one node that takes pods stays in such a zone, the cheapest, if it has any now.
"""

from __future__ import annotations

from collections.abc import Mapping

from kinema_core.events import Node, Plan
from kinema_core.model.cluster import Cluster


def leaned_on(plan: Plan, cluster: Cluster) -> frozenset[str]:
    """Names of the nodes to keep: one for each zone that the plan leaves to nodes that are not Ready and hold pods."""
    absent, serving = _zones(plan, cluster)
    lost = absent.keys() - serving.keys()
    found: dict[str, tuple[float, str]] = {}
    for node in plan.nodes if lost else ():
        live = cluster.node(node.name)
        if node.action == "delete" and node.zone in lost and live is not None and _is_open(live):
            found[node.zone] = min(found.get(node.zone, (node.usd_per_hour, node.name)), (node.usd_per_hour, node.name))
    return frozenset(name for _, name in found.values())


def last_beside(plan: Plan, cluster: Cluster) -> Mapping[str, str]:
    """Nodes that the plan could not delete for this rule alone, each with one of its zone that is not Ready."""
    absent, serving = _zones(plan, cluster)
    return {nodes[0]: absent[zone] for zone, nodes in serving.items() if zone in absent and len(nodes) == 1}


def _zones(plan: Plan, cluster: Cluster) -> tuple[dict[str, str], dict[str, list[str]]]:
    """By zone: a node that stays, is not Ready and holds pods; and those that take pods after the plan."""
    absent: dict[str, str] = {}
    serving: dict[str, list[str]] = {}
    if all(node.ready for node in cluster.nodes):
        return absent, serving
    used = {place.to for place in plan.placements}
    for node in plan.nodes:
        live = cluster.node(node.name)
        if node.action == "delete":
            continue
        if live is None or _is_open(live):
            serving.setdefault(node.zone, []).append(node.name)
        elif node.name in used and not live.ready:
            absent.setdefault(node.zone, node.name)
    return absent, serving


def _is_open(node: Node) -> bool:
    return node.ready and not node.unschedulable
