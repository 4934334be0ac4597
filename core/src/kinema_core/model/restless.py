"""Workloads that are not at rest: a plan leaves them where they are and goes on with all others.

Source: algorithms 3 and 4 of the thesis ask for rest of the whole cluster. In a large cluster some workload always
crashes, rolls out or scales; it concerns the others only where there are many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Literal, NamedTuple

from kinema_core.events import Autoscaler, Pod, Workload
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.missing import counted_controllers

TOLERANCE: Final = Fraction(1, 10)
"""By which part of its target a metric may exceed it before Kubernetes' autoscaler acts, by default."""


class Restless(NamedTuple):
    """Reason why a workload is not at rest."""

    code: Literal["not-ready", "rollout", "above-target", "saturated"]
    """`saturated`: its autoscaler wants more replicas than it may have, which may last for months."""
    detail: str


@derived
def restless_workloads(cluster: Cluster) -> Mapping[str, Restless]:
    """Return the workloads that are not at rest, by the key of the topmost controller, in the order of keys.

    At rest, every replica is Ready or waits for a node, no rollout is under way, and no metric is so far above its
    target that the autoscaler would act. A metric without a reading is not above it, and a controller that has reported
    no status yet (`observedGeneration`) has no count to compare.
    """
    found: dict[str, Restless] = {}
    for scaler in cluster.autoscalers:
        above = _above_target(scaler)
        if above is not None:
            found[f"{scaler.target_kind}/{scaler.namespace}/{scaler.target_name}"] = above
    for item in _deployments(cluster):
        rollout = _rollout(item)
        if rollout is not None:
            found[item.key] = rollout
    waiting = _waiting(cluster)
    for item in counted_controllers(cluster):
        if item.observed_generation and item.replicas != item.ready + min(
            waiting[item.uid], max(0, item.replicas - item.ready)
        ):
            owner = None if item.owner is None else cluster.workload(item.owner.key_in(item.namespace))
            detail = f"{item.ready} of {item.replicas} pods of {item.key} are Ready"
            found[item.key if owner is None else owner.key] = Restless("not-ready", detail)
    return {key: found[key] for key in sorted(found)}


@derived
def count_workloads(cluster: Cluster) -> int:
    """Return how many workloads may be at rest or not: those with a count of replicas, by topmost controller."""
    tops = {item.owner.uid if item.owner is not None else item.uid for item in counted_controllers(cluster)}
    return len(tops)


def _above_target(scaler: Autoscaler) -> Restless | None:
    for metric in scaler.metrics:
        if metric.current is None or metric.current <= metric.target * (1 + TOLERANCE):
            continue
        detail = f"metric {metric.name} of its autoscaler {scaler.name} is at {metric.current}, above {metric.target}"
        if scaler.current >= scaler.max_replicas:
            return Restless("saturated", f"{detail}, with all {scaler.max_replicas} replicas")
        return Restless("above-target", detail)
    return None


def _deployments(cluster: Cluster) -> list[Workload]:
    every = cluster.objects.get(Workload.__name__, {}).values()
    return [item for item in every if isinstance(item, Workload) and item.type == "Deployment"]


def _rollout(item: Workload) -> Restless | None:
    if not item.observed_generation:
        return None
    if item.observed_generation < item.generation:
        return Restless("rollout", f"its controller has not seen generation {item.generation} yet")
    if item.updated != item.replicas:
        return Restless("rollout", f"{item.updated} of {item.replicas} pods are up to date")
    return None


def _waiting(cluster: Cluster) -> Counter[str]:
    """Return how many pods of each controller wait for a node, by its uid: they rest until there is room for them."""
    pods = (item for item in cluster.objects.get(Pod.__name__, {}).values() if isinstance(item, Pod))
    return Counter(
        pod.owner.uid
        for pod in pods
        if pod.owner is not None and pod.node is None and pod.unschedulable and not pod.terminating
    )
