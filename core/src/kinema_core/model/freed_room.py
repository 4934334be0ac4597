"""Room that smaller requests leave on the nodes, as a share of the cluster: what a plan that lowers them is worth."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from kinema_core.events import Resize, WorkloadForecast
from kinema_core.model.cluster import Cluster


def freed_share(cluster: Cluster, resizes: Iterable[Resize | WorkloadForecast]) -> Fraction:
    """Return which part of all nodes new requests leave free; negative where they take more.

    CPU and memory are half of a node each.
    """
    changes = tuple(resizes)
    share = Fraction(0)
    for name in ("cpu", "memory"):
        whole = sum(node.allocatable.get(name, 0) for node in cluster.nodes)
        if whole:
            share += Fraction(_fallen(cluster, changes, name), 2 * whole)
    return share


def _fallen(cluster: Cluster, resizes: tuple[Resize | WorkloadForecast, ...], name: str) -> int:
    """Return by how much the requests of all resized pods fall together."""
    pods = cluster.pods_by_workload
    return sum(
        (one.requests_before.get(name, 0) - one.requests_after.get(name, 0)) * len(pods.get(one.workload, ()))
        for one in resizes
    )
