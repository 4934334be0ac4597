"""Pods on nodes that another autoscaler deletes: who moves them is that one, and not a plan of ours."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from kinema_core.events import FrozenMap, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.foreign import foreign_deletion
from kinema_core.model.vocabulary import HELD


def left_to_others(cluster: Cluster) -> Cluster:
    """The cluster with an annotation on each pod of such a node, by which it stays; its node is kept in any case."""
    marks = {node.name: taint for node in cluster.nodes if (taint := foreign_deletion(node)) is not None}
    pods = {
        pod.key: _held(pod, f"node {name} is being emptied by another autoscaler: taint {taint}")
        for name, taint in marks.items()
        for pod in cluster.pods_by_node.get(name, ())
    }
    if not pods:
        return cluster
    every = {**cluster.objects[Pod.__name__], **pods}
    return Cluster(cluster.version, MappingProxyType({**cluster.objects, Pod.__name__: every}))


def _held(pod: Pod, why: str) -> Pod:
    return msgspec.structs.replace(pod, annotations=FrozenMap({**pod.annotations, HELD: f"foreign-node: {why}"}))
