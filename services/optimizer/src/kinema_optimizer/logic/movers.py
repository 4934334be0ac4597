"""Which pods a problem is about: those that need a place, those that may move, and those that change their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kinema_core.events import Amounts, FrozenMap, Mode, Pod, Resize, WorkloadForecast
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import Mobility, listed
from kinema_optimizer.logic.rooms import with_ports

Role: TypeAlias = Literal["pending", "rolled", "updated", "stays"]


@dataclass(frozen=True)
class Mover:
    """A pod that needs a place, or may need one.

    It runs nowhere (`pending`), is replaced by one of another size (`rolled`), may move with its whole workload by a
    rolling update (`updated`), or alone (`stays`).
    """

    pod: Pod
    requests: Amounts
    """As they will be; host ports and the pod itself among them."""
    role: Role
    workload: str
    """Key of its workload, empty when it has none."""


@dataclass(frozen=True)
class PodClass:
    """The pods of one class, each list in the order in which pods are chosen from it."""

    pending: tuple[Mover, ...]
    """Those of higher priority first."""
    rolled: tuple[Mover, ...]
    updated: tuple[Mover, ...]
    stays: tuple[Mover, ...]

    @property
    def size(self) -> int:
        """Pods of all roles."""
        return len(self.pending) + len(self.rolled) + len(self.updated) + len(self.stays)


def resizes_of(cluster: Cluster, facts: Mobility, forecasts: Sequence[WorkloadForecast]) -> tuple[Resize, ...]:
    """Forecasts that can be carried out: of Deployments that roll out changes and whose every pod may be replaced."""
    found = []
    for forecast in sorted(forecasts, key=lambda one: one.workload):
        workload = cluster.workload(forecast.workload)
        pods = [pod for pod in cluster.pods_by_workload.get(forecast.workload, ()) if not pod.terminating]
        if workload is None or workload.type != "Deployment" or workload.paused or not pods:
            continue
        if forecast.requests_after == forecast.requests_before or any(pod.key in facts.held for pod in pods):
            continue
        found.append(
            Resize(
                workload=forecast.workload,
                requests_before=forecast.requests_before,
                requests_after=forecast.requests_after,
            )
        )
    return tuple(found)


def movers_of(cluster: Cluster, facts: Mobility, mode: Mode, resizes: Sequence[Resize]) -> tuple[Mover, ...]:
    """Pods to be placed or movable, by key. Held pods are none, nor in an autoscale iteration what runs somewhere."""
    after = {one.workload: one.requests_after for one in resizes}
    stuck = stuck_updates(cluster, facts)
    found = []
    for pod in listed(cluster):
        if pod.key in facts.held or (pod.node is not None and mode == "autoscale"):
            continue
        workload = cluster.controller_of(pod)
        key = "" if workload is None else workload.key
        role: Role = "stays"
        if pod.node is None:
            role = "pending"
        elif key in after:
            role = "rolled"
        elif facts.strategy[pod.key] == "rolling":
            role = "updated"
        if role == "updated" and key in stuck:
            continue
        requests = FrozenMap({**pod.requests, **after[key]}) if key in after else pod.requests
        found.append(Mover(pod, with_ports(requests, pod), role, key))
    return tuple(found)


def stuck_updates(cluster: Cluster, facts: Mobility) -> frozenset[str]:
    """Workloads that move by rolling update and have a pod that may not be restarted: none of their pods moves."""
    rolling = {cluster.controller_of(pod) for pod in listed(cluster) if facts.strategy.get(pod.key) == "rolling"}
    return frozenset(
        workload.key
        for workload in rolling
        if workload is not None and any(pod.key in facts.held for pod in cluster.pods_by_workload[workload.key])
    )


def class_of(members: Sequence[Mover], *, placeable: bool) -> PodClass:
    """The pods of one class by role; pending ones only when something can hold them."""
    waiting = [mover for mover in members if mover.role == "pending" and placeable]
    return PodClass(
        pending=tuple(sorted(waiting, key=lambda mover: (-mover.pod.priority, mover.pod.key))),
        rolled=tuple(mover for mover in members if mover.role == "rolled"),
        updated=tuple(mover for mover in members if mover.role == "updated"),
        stays=tuple(mover for mover in members if mover.role == "stays"),
    )
