"""Stability of a cluster: only at rest is it worth computing a better one.

Source: algorithms 3 and 4 of the thesis: no autoscaler above its target, every replica set has what it wants, and no
node is being booted or deleted. The first two are asked of each workload (`kinema_core.model.restless`): a plan holds
those that are not at rest, and only many of them prevent it. How long rest has held is the loop's to count.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kinema_core.events import EMPTY, Figures, FrozenMap, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident
from kinema_core.model.derived import derived
from kinema_core.model.missing import COUNTED, missing_objects
from kinema_core.model.restless import count_workloads, restless_workloads
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
    cluster: Cluster, running: Sequence[Iteration], most: float, hopeless: Collection[str] = ()
) -> Refusal | None:
    """Return the first thing that keeps the cluster from being stable; None when nothing does.

    Args:
        cluster: the state.
        running: iterations under way.
        most: see `LoopSettings.max_restless_fraction`.
        hopeless: keys of pods without a place for which an autoscale iteration has found none either. The loop does not
            wait for them: a pod that fits no node on sale would otherwise stop all saving.
    """
    return _pods_waiting(cluster, hopeless) or _too_restless(cluster, most) or _node_operation(running)


def contradiction(cluster: Cluster, share: float) -> Refusal | None:
    """Return the refusal where the state lacks more than `share` of the pods or nodes that others speak of."""
    found = missing_objects(cluster, share)
    if found is None:
        return None
    if found.kind == "pods":
        return refusal("pods-missing", ready=found.expected, missing=found.missing)
    return refusal("nodes-missing", nodes=len(cluster.nodes), missing=found.missing)


def _pods_waiting(cluster: Cluster, hopeless: Collection[str]) -> Refusal | None:
    """Return the refusal if replicas have no node yet: they are next, and no plan is executed before theirs."""
    waiting = [key for key in unschedulable(cluster) if key not in hopeless and _counted(cluster, key)]
    return refusal("pods-waiting", pod=waiting[0], pods=len(waiting)) if waiting else None


def _counted(cluster: Cluster, key: str) -> bool:
    pod = cluster.pod(key)
    return pod is not None and pod.owner is not None and pod.owner.kind in COUNTED


def _too_restless(cluster: Cluster, most: float) -> Refusal | None:
    """Return the refusal if too many workloads are not at rest; one whose autoscaler is at its limit stays as it is."""
    found = {key: why for key, why in restless_workloads(cluster).items() if why.code != "saturated"}
    count = count_workloads(cluster)
    if not found or len(found) <= most * count:
        return None
    first, why = next(iter(found.items()))
    return refusal("restless", workload=first, why=why.detail, restless=len(found), workloads=count, most=most)


@derived
def unschedulable(cluster: Cluster) -> tuple[str, ...]:
    """Pods that the scheduler has tried and found no place for, sorted.

    A pod for which others are being preempted has its place; a daemon set's pod gains nothing from another node.
    """
    pods = (item for item in cluster.objects.get(Pod.__name__, {}).values() if isinstance(item, Pod))
    return tuple(
        sorted(
            pod.key
            for pod in pods
            if pod.unschedulable
            and not (pod.node or pod.nominated or pod.terminating or pod.rules.gated)
            and not is_resident(cluster, pod)
        )
    )


def _node_operation(running: Sequence[Iteration]) -> Refusal | None:
    steps = sorted(step for item in running for step in item.operations)
    if not steps:
        return None
    return refusal("node-operation", step=steps[0], operations=len(steps))
