"""Quarantine: what unreadable objects freeze, as an object that cannot be read may forbid anything.

No API server lists an object that states no kind or no name. Where the rest of an entry can be read, it is damage to a
file: it is reported, and freezes nothing but the node that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kinema_core.events import Quarantined
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived

NO_KIND: Final = "Object"
"""Stands for the kind of an object that states none: it may be anything."""
UNNAMED: Final = "unnamed-"
"""Beginning of the name of an object whose name cannot be read."""
NAMELESS: Final = "nameless-"
"""Beginning of the name of an object that can be read and states none."""
_CONTROLLERS: Final = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job")
_HARMLESS: Final = (
    "Pod",  # bound, it freezes its node; pending, there is nothing to disturb; see `_lost`
    "DaemonSet",  # its pods go with their nodes, and speak for it
    "HorizontalPodAutoscaler",
    "VerticalPodAutoscaler",
    "PriorityClass",
    "StorageClass",
    "PersistentVolume",  # pods with claims do not move anyway
    "PersistentVolumeClaim",
)
"""Kinds that forbid no pod of their namespace to move."""


@dataclass(frozen=True)
class Quarantine:
    """Frozen nodes, namespaces and controllers (`Kind/ns/name`), each with the name of the object to blame."""

    nodes: Mapping[str, str]
    namespaces: Mapping[str, str]
    controllers: Mapping[str, str]


@derived
def quarantine_of(cluster: Cluster) -> Quarantine:
    """Return what the cluster's unreadable objects freeze; worked out once for each cluster value."""
    nodes: dict[str, str] = {}
    namespaces: dict[str, str] = {}
    controllers: dict[str, str] = {}
    for item in cluster.quarantined:
        kind, _, key = item.object.partition(" ")
        node = item.node or (key if kind == "Node" else None)
        space = _namespace(item, kind, key)
        if node:
            nodes.setdefault(node, item.object)
        elif _is_damage(kind, key):
            continue
        elif _lost(item, kind):
            for each in cluster.nodes:  # it runs somewhere: whichever node is deleted may be its own
                nodes.setdefault(each.name, item.object)
        elif kind in _CONTROLLERS and _identified(key):
            controllers.setdefault(f"{kind}/{key}", item.object)
        elif space is not None and kind not in _HARMLESS:
            for each_space in (space,) if space else _spaces(cluster):
                namespaces.setdefault(each_space, item.object)
    return Quarantine(MappingProxyType(nodes), MappingProxyType(namespaces), MappingProxyType(controllers))


def _is_damage(kind: str, key: str) -> bool:
    """Return whether it stands for an entry that states no kind or no name, and can be read otherwise."""
    name = key.rpartition("/")[2]
    return name.startswith(NAMELESS) or (kind == NO_KIND and not name.startswith(UNNAMED))


def _lost(item: Quarantined, kind: str) -> bool:
    """Return whether it may be a pod bound to an unknown node: then its namespace is named or empty."""
    return (kind == "Pod" and item.namespace is not None) or kind == NO_KIND


def _identified(key: str) -> bool:
    """Return whether an object of a namespace states both that and its own name."""
    _, slash, name = key.partition("/")
    return bool(slash) and not name.startswith(UNNAMED)


def _spaces(cluster: Cluster) -> list[str]:
    """Return every namespace with pods to which something may be forbidden."""
    return sorted({pod.namespace for pod in cluster.pods})


def _namespace(item: Quarantined, kind: str, key: str) -> str | None:
    """Return the namespace in which it may forbid something; empty: any; None: it forbids nothing."""
    if item.namespace is not None:
        return item.namespace
    if kind == "Namespace":
        return key
    space, slash, _ = key.partition("/")
    return space if slash else None
