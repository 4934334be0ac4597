"""Pods that a problem places, what they request, and the room that nodes have left for them.

`movers_of` finds pods that need a place, that may move, or whose requests change. `vector` and `node_room` state
requests and room as integers over the same resources; a host port is a resource of which a node has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from kinema_core.events import Amounts, FrozenMap, HostPort, Mode, Node, Pod, Resize, WorkloadForecast
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident, resident_requests
from kinema_core.model.disruption_cost import disruption_cost
from kinema_core.model.mobility import Mobility, listed
from kinema_core.model.resources import limited, subtract, total
from kinema_core.model.strategy import no_second_copy
from kinema_core.model.volumes import attachments

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
    """Amounts that it takes of its node now, likewise."""
    disruption_cost: int
    """Disruption cost of its restart, in thousandths of an ordinary one."""
    others: tuple[Pod, ...] = ()
    """Pods that go wherever it goes, after it: requests, room and disruption cost are those of all together."""


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
    """Return the forecasts that can be applied: of Deployments that roll out changes and may replace every pod.

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
        cost = disruption_cost(cluster, pod)
        later = with_ports(FrozenMap({**pod.requests, **after[key]}), pod, cluster) if key in after else takes
        found.append(Mover(pod, later, "stays" if pod.key in restricted else role, key, takes, cost))
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
    """Return the pods of one class by role; pending ones only when something can hold them."""
    waiting = [mover for mover in members if mover.role == "pending" and placeable]
    return PodClass(
        pending=tuple(sorted(waiting, key=lambda mover: (-mover.pod.priority, mover.pod.key))),
        rolled=tuple(mover for mover in members if mover.role == "rolled"),
        updated=tuple(mover for mover in members if mover.role == "updated"),
        stays=tuple(mover for mover in members if mover.role == "stays"),
    )


_CEILED: Final = ("cpu", "memory")
"""Resources whose utilization a ceiling limits."""


def port_name(port: HostPort) -> str:
    """Return the resource that stands for a host port, whatever its address: at worst a node stays unused."""
    return f"port:{port.protocol}/{port.port}"


def port_of(resource: str) -> str | None:
    """Return the host port that a resource stands for, as people write it; None for any other resource."""
    kind, _, rest = resource.partition(":")
    protocol, slash, number = rest.partition("/")
    return f"{number}/{protocol}" if kind == "port" and slash else None


def with_ports(requests: Amounts, pod: Pod, cluster: Cluster) -> Amounts:
    """Return the requests of one pod; host ports, attachments of volumes and the pod itself are among them."""
    if not pod.rules.host_ports and not pod.rules.claims and requests.get("pods") == 1:
        return requests
    ports = {port_name(port): 1 for port in pod.rules.host_ports}
    return FrozenMap({**requests, "pods": 1, **ports, **attachments(cluster, pod)})


def ceiled(room: Amounts, percent: int) -> Amounts:
    """CPU and memory cut to a percentage of themselves."""
    return FrozenMap({**room, **{name: room[name] * percent // 100 for name in _CEILED if name in room}})


def node_room(cluster: Cluster, node: Node, *, percent: int) -> Amounts:
    """Return what is free for newcomers when everything that is on the node stays; negative where it is overfull.

    Pods that are terminating keep their room until they are gone.
    """
    everyone = cluster.pods_by_node.get(node.name, ())
    others = [pod.requests for pod in everyone if not is_resident(cluster, pod)]
    free = subtract(ceiled(node.allocatable, percent), total([resident_requests(cluster, node), *others]))
    used = Counter(port_name(port) for pod in everyone for port in pod.rules.host_ports)
    disks = Counter(name for pod in everyone for name, count in attachments(cluster, pod).items() for _ in range(count))
    taken = {name: free[name] - count for name, count in disks.items() if name in free}
    return FrozenMap({**free, **taken, **{name: 1 - count for name, count in used.items()}})


def without_ports(room: Amounts, ports: Iterable[HostPort]) -> Amounts:
    """Return the room where these host ports are taken."""
    return FrozenMap({**room, **{port_name(port): 0 for port in ports}})


def resources_of(requests: Iterable[Amounts]) -> tuple[str, ...]:
    """Every resource of which anything is requested, sorted."""
    return tuple(sorted({name for amounts in requests for name, amount in amounts.items() if amount > 0}))


def vector(amounts: Amounts, resources: tuple[str, ...]) -> tuple[int, ...]:
    """Requests in the order of the resources."""
    return tuple(amounts.get(name, 0) for name in resources)


def room_vector(room: Amounts, resources: tuple[str, ...], most: Mapping[str, int]) -> tuple[int, ...]:
    """Room in the order of the resources, negative where overdrawn; as much as all pods request where not limited."""
    found = []
    for name in resources:
        if name.startswith("port:"):
            found.append(room.get(name, 1))
        elif name in room or limited(name):
            found.append(room.get(name, 0))
        else:
            found.append(most[name])
    return tuple(found)
