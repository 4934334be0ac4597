"""Pods for which kube-scheduler may end others: where they find no room, it makes some at the expense of lower ones."""

from __future__ import annotations

from kinema_core.events import Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.mobility import listed


def may_preempt(cluster: Cluster, pod: Pod) -> bool:
    """Return whether another pod like this one, were it to come, might take the place of a pod that runs.

    Those count that a plan lists. What a pod's own class says about preemption (`preemptionPolicy`) is not observed.
    """
    lowest = _lowest(cluster)
    return lowest is not None and pod.priority > lowest


@derived
def _lowest(cluster: Cluster) -> int | None:
    return min((pod.priority for pod in listed(cluster) if pod.node is not None), default=None)
