"""Stability of a cluster: only at rest is it worth computing a better one.

Source: algorithms 3 and 4 of the thesis: no autoscaler above its target, every replica set has what it wants, and no
node is being booted or deleted. How long that has held is the loop's to count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kinema_core.events import EMPTY, Autoscaler, Figures, FrozenMap, Workload
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.missing import counted_controllers, missing_objects
from kinema_observer.logic.logview import Iteration


@dataclass(frozen=True)
class Refusal:
    """Reason code against a new iteration and the figures behind it."""

    reason: str
    figures: Figures = EMPTY


def refusal(reason: str, **figures: int | float | str) -> Refusal:
    """Return a refusal with its figures by name."""
    return Refusal(reason, FrozenMap(figures))


def unrest(
    cluster: Cluster, running: Sequence[Iteration], tolerance: float, hopeless: Collection[str] = ()
) -> Refusal | None:
    """Return the first thing that keeps the cluster from being stable; None when nothing does.

    Args:
        cluster: the state.
        running: iterations under way.
        tolerance: see `LoopSettings.autoscaler_tolerance`.
        hopeless: keys of pods without a place for which an autoscale iteration has found none either. The loop does not
            wait for them: a pod that fits no node on sale would otherwise stop all saving.
    """
    return _autoscaler_above(cluster, tolerance) or _replicas_missing(cluster, hopeless) or _node_operation(running)


def contradiction(cluster: Cluster, share: float) -> Refusal | None:
    """Return the refusal where the state lacks more than `share` of the pods or nodes that others speak of."""
    found = missing_objects(cluster, share)
    if found is None:
        return None
    if found.kind == "pods":
        return refusal("pods-missing", ready=found.expected, missing=found.missing)
    return refusal("nodes-missing", nodes=len(cluster.nodes), missing=found.missing)


def _autoscaler_above(cluster: Cluster, tolerance: float) -> Refusal | None:
    """Return the refusal if an autoscaler's metric is above its target; a metric without a reading does not count."""
    above = [item for item in cluster.autoscalers if any(_above(item, tolerance))]
    if not above:
        return None
    first = above[0]
    metric = first.metrics[_above(first, tolerance).index(True)]
    return refusal(
        "autoscaler-above-target",
        autoscaler=first.key,
        metric=metric.name,
        current=metric.current or 0,
        target=metric.target,
        autoscalers=len(above),
    )


def _above(item: Autoscaler, tolerance: float) -> list[bool]:
    """For each metric whether it is above its target. Per mille of the tolerance, so that integers are compared."""
    allowed = 1000 + round(tolerance * 1000)
    return [metric.current is not None and metric.current * 1000 > metric.target * allowed for metric in item.metrics]


def _replicas_missing(cluster: Cluster, hopeless: Collection[str]) -> Refusal | None:
    missing = _short(cluster)
    if missing and hopeless:
        pods = (cluster.pod(key) for key in hopeless)
        owners = (pod.owner and pod.owner.key_in(pod.namespace) for pod in pods if pod is not None)
        in_vain = Counter(owners)
        missing = tuple(item for item in missing if not 0 < item.replicas - item.ready <= in_vain[item.key])
    if not missing:
        return None
    first = missing[0]
    return refusal(
        "replicas-not-ready", workload=first.key, desired=first.replicas, ready=first.ready, workloads=len(missing)
    )


@derived
def _short(cluster: Cluster) -> tuple[Workload, ...]:
    """Workloads with other than as many Ready pods as they want, by key."""
    found = (item for item in counted_controllers(cluster) if item.replicas != item.ready)
    return tuple(sorted(found, key=lambda item: item.key))


def _node_operation(running: Sequence[Iteration]) -> Refusal | None:
    steps = sorted(step for item in running for step in item.operations)
    if not steps:
        return None
    return refusal("node-operation", step=steps[0], operations=len(steps))
