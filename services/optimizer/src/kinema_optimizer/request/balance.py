"""Balance over zones as a preference of pods: the running ones, not only those of a scale-up.

Source of the aim: the Cluster Autoscaler's balancing of similar node groups, which spreads new nodes over zones.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from kinema_core.events import ClusterObject, Pod, Selector, Spread
from kinema_core.model.catalog import ZONE
from kinema_core.model.cluster import Cluster


def balanced(cluster: Cluster) -> Cluster:
    """Return the cluster in which pods of workloads prefer an even spread over zones, where no rule speaks of zones."""
    pods: dict[str, ClusterObject] = dict(cluster.pods_by_key)
    for key, members in cluster.pods_by_workload.items():
        workload = cluster.workload(key)
        if workload is None or workload.type not in _SPREAD or workload.selector is None or len(members) < 2:
            continue
        for pod in members:
            if not _speaks_of_zones(pod):
                pods[pod.key] = _preferring(pod, workload.selector)
    objects: Mapping[str, Mapping[str, ClusterObject]] = MappingProxyType({**cluster.objects, "Pod": pods})
    return Cluster(version=cluster.version, objects=objects, usage=cluster.usage)


_SPREAD: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})


def _speaks_of_zones(pod: Pod) -> bool:
    rules = pod.rules
    keys = {one.topology_key for one in rules.spread}
    keys |= {one.topology_key for one in (*rules.affinity, *rules.anti_affinity)}
    return not keys.isdisjoint(ZONE)


def _preferring(pod: Pod, selector: Selector) -> Pod:
    wish = Spread(topology_key=ZONE[0], max_skew=1, when_unsatisfiable="ScheduleAnyway", selector=selector)
    rules = msgspec.structs.replace(pod.rules, spread=(*pod.rules.spread, wish))
    return msgspec.structs.replace(pod, rules=rules)
