"""Nodes that another autoscaler has begun to delete, or considers: what that forbids, and what it does not.

Beside another autoscaler such a node is off-limits: Kinema does not empty it. Where the cluster's own autoscaler
deletes nodes for Kinema, it marks as a candidate each node that Kinema empties; that mark must not stop the emptying.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import msgspec

from kinema_core.events import Node
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.vocabulary import DELETION_CANDIDATE, FOREIGN_DELETION_TAINTS


def foreign_deletion(node: Node) -> str | None:
    """Return the taint by which another autoscaler says that it deletes the node, or may; None without one."""
    return next((taint.key for taint in node.taints if taint.key in FOREIGN_DELETION_TAINTS), None)


def beside_its_autoscaler(cluster: Cluster, *, delegated: bool) -> Cluster:
    """Return the cluster to decide on; where nodes are `delegated`, without the marks of mere candidates."""
    return _without_candidates(cluster) if delegated else cluster


@derived
def _without_candidates(cluster: Cluster) -> Cluster:
    marked = [node for node in cluster.nodes if any(taint.key == DELETION_CANDIDATE for taint in node.taints)]
    if not marked:
        return cluster
    nodes = {**cluster.objects[Node.__name__], **{node.name: _unmarked(node) for node in marked}}
    return replace(cluster, objects=MappingProxyType({**cluster.objects, Node.__name__: nodes}))


def _unmarked(node: Node) -> Node:
    kept = tuple(taint for taint in node.taints if taint.key != DELETION_CANDIDATE)
    return msgspec.structs.replace(node, taints=kept)
