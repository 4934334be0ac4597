"""Which pods a problem is about: those that need a place, those that may move, and those that change their size."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kinema_core.events import Amounts, FrozenMap, Mode, Pod, Resize, WorkloadForecast
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import Mobility, listed
from kinema_core.model.risk import restart_risk
from kinema_core.model.strategy import no_second_copy
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
    takes: Amounts
    """What it takes of its node now, likewise."""
    risk: int
    """What its restart counts, in thousandths of an ordinary one."""
    others: tuple[Pod, ...] = ()
    """Pods that go wherever it goes, after it: requests, room and risk are those of all together."""


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


def resizes_of(
    cluster: Cluster, facts: Mobility, forecasts: Sequence[WorkloadForecast], restricted: Container[str] = ()
) -> tuple[Resize, ...]:
    """Forecasts that can be carried out: of Deployments that roll out changes and whose every pod may be replaced.

    A rolling update starts a second pod first, which a volume or the Deployment itself (Recreate; one replica without
    surge) may not allow; and none may restart `restricted` pods.
    """
    found = []
    for forecast in sorted(forecasts, key=lambda one: one.workload):
        workload = cluster.workload(forecast.workload)
        pods = [pod for pod in cluster.pods_by_workload.get(forecast.workload, ()) if not pod.terminating]
        if workload is None or workload.type != "Deployment" or not pods:
            continue
        if workload.paused or workload.recreates:
            continue
        if forecast.requests_after == forecast.requests_before or any(pod.rules.claims for pod in pods):
            continue
        if any(pod.key in facts.held or pod.key in restricted or no_second_copy(cluster, pod) for pod in pods):
            continue
        found.append(
            Resize(
                workload=forecast.workload,
                requests_before=forecast.requests_before,
                requests_after=forecast.requests_after,
            )
        )
    return tuple(found)


def movers_of(
    cluster: Cluster, facts: Mobility, mode: Mode, resizes: Sequence[Resize], restricted: Container[str] = ()
) -> tuple[Mover, ...]:
    """Pods to be placed or movable, by key. Held pods are none, nor in an autoscale iteration what runs somewhere.

    Those that are `restricted` to where they are stay with their node, which is kept.
    """
    after = {one.workload: one.requests_after for one in resizes}
    stuck = stuck_updates(cluster, facts)
    found = []
    for pod in listed(cluster):
        if pod.key in facts.held or (pod.node is not None and mode == "autoscale"):
            continue
        workload = cluster.controller_of(pod)
        key = "" if workload is None else workload.key
        role = _role(pod, key in after, facts)
        if role == "updated" and key in stuck:
            continue
        takes = with_ports(pod.requests, pod, cluster)
        risk = restart_risk(cluster, pod)
        later = with_ports(FrozenMap({**pod.requests, **after[key]}), pod, cluster) if key in after else takes
        found.append(Mover(pod, later, "stays" if pod.key in restricted else role, key, takes, risk))
    return tuple(found)


def _role(pod: Pod, resized: bool, facts: Mobility) -> Role:  # noqa: FBT001 - one plain answer among three facts
    if pod.node is None:
        return "pending"
    if resized:
        return "rolled"
    return "updated" if facts.strategy[pod.key] == "rolling" else "stays"


def stuck_updates(cluster: Cluster, facts: Mobility) -> frozenset[str]:
    """Workloads that move by rolling update and have a pod that may not be restarted so: none rolls its pods."""
    rolling = {key for key, strategy in facts.strategy.items() if strategy == "rolling"}
    owners = (cluster.controller_of(pod) for pod in listed(cluster) if pod.key in rolling) if rolling else ()
    workloads = {workload.key for workload in owners if workload is not None}
    return frozenset(
        key
        for key in workloads
        if any(
            pod.key in facts.held or facts.strategy.get(pod.key, "rolling") != "rolling"
            for pod in cluster.pods_by_workload[key]
        )
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
