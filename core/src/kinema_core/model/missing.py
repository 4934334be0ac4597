"""Objects that other objects speak of and that a cluster state lacks: a state that contradicts itself is not believed.

A replica that its controller counts as Ready has a pod, and a pod runs on a node. Where many of either are not in the
state, lists of the API server were not whole: a plan would delete nodes that are in use.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal, NamedTuple

from kinema_core.events import Pod, Workload
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident
from kinema_core.model.derived import derived

COUNTED: Final = ("ReplicaSet", "ReplicationController", "StatefulSet")
"""Controllers whose count of Ready replicas is compared with the pods that they own."""


class Missing(NamedTuple):
    """Objects that a state lacks: of how many, by what other objects say."""

    kind: Literal["pods", "nodes"]
    missing: int
    expected: int


def missing_objects(cluster: Cluster, share: float) -> Missing | None:
    """Return the pods or nodes that the state lacks, where they are more than `share` of those expected."""
    pods, nodes = _missing(cluster)
    return next((one for one in (pods, nodes) if one.missing > share * one.expected), None)


@derived
def _missing(cluster: Cluster) -> tuple[Missing, Missing]:
    """Return what is missing of the Ready replicas of all controllers, and of the nodes that Ready pods run on."""
    present: Counter[str] = Counter()
    nodes = set()
    for pod in cluster.objects.get(Pod.__name__, {}).values():
        if not isinstance(pod, Pod):
            continue
        if pod.owner is not None:
            present[pod.owner.uid] += 1
        if pod.node and pod.ready and not is_resident(cluster, pod):
            nodes.add(pod.node)
    counted = counted_controllers(cluster)
    ready = sum(item.ready for item in counted)
    lacking = sum(max(0, item.ready - present[item.uid]) for item in counted)
    unreadable = [item.object for item in cluster.quarantined]
    pods = max(0, lacking - sum(item.startswith("Pod ") for item in unreadable))
    gone = sum(not cluster.node(name) and f"Node {name}" not in unreadable for name in nodes)
    return Missing("pods", pods, ready), Missing("nodes", gone, len(cluster.nodes) + gone)


def counted_controllers(cluster: Cluster) -> list[Workload]:
    """Return the controllers whose Ready replicas are compared, in no order."""
    every = cluster.objects.get(Workload.__name__, {}).values()
    return [item for item in every if isinstance(item, Workload) and item.type in COUNTED]
