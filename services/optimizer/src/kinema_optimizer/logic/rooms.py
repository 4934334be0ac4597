"""What nodes have left, and requests as vectors of integers. A host port is a resource of which a node has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from kinema_core.events import Amounts, FrozenMap, HostPort, Node, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident, resident_requests
from kinema_core.model.resources import limited, subtract, total

_CEILED: Final = ("cpu", "memory")
"""Resources whose utilisation a ceiling limits."""


def port_name(port: HostPort) -> str:
    """The resource that stands for a host port. Addresses are not told apart: at worst a node stays unused."""
    return f"port:{port.protocol}/{port.port}"


def with_ports(requests: Amounts, pod: Pod) -> Amounts:
    """The requests of one pod, its host ports and the pod itself among them."""
    ports = {port_name(port): 1 for port in pod.rules.host_ports}
    return FrozenMap({**requests, "pods": 1, **ports})


def ceiled(room: Amounts, percent: int) -> Amounts:
    """CPU and memory cut to a percentage of themselves."""
    return FrozenMap({**room, **{name: room[name] * percent // 100 for name in _CEILED if name in room}})


def node_room(cluster: Cluster, node: Node, *, percent: int) -> Amounts:
    """What is free for newcomers when everything that is on the node stays; negative where it is overfull.

    Pods that are terminating keep their room until they are gone.
    """
    everyone = cluster.pods_by_node.get(node.name, ())
    others = [pod.requests for pod in everyone if not is_resident(cluster, pod)]
    free = subtract(ceiled(node.allocatable, percent), total([resident_requests(cluster, node), *others]))
    used = Counter(port_name(port) for pod in everyone for port in pod.rules.host_ports)
    return FrozenMap({**free, **{name: 1 - count for name, count in used.items()}})


def daemon_ports(cluster: Cluster) -> frozenset[str]:
    """Host ports of daemon sets: taken on every new node, as it is not worked out which sets land where."""
    sets = (workload for workload in cluster.workloads if workload.type == "DaemonSet")
    return frozenset(port_name(port) for one in sets for port in one.template_rules.host_ports)


def resources_of(requests: Iterable[Amounts]) -> tuple[str, ...]:
    """Every resource of which anything is requested, sorted."""
    return tuple(sorted({name for amounts in requests for name, amount in amounts.items() if amount > 0}))


def vector(amounts: Amounts, resources: tuple[str, ...]) -> tuple[int, ...]:
    """Requests in the order of the resources."""
    return tuple(amounts.get(name, 0) for name in resources)


def room_vector(
    room: Amounts, resources: tuple[str, ...], most: Mapping[str, int], ports: frozenset[str]
) -> tuple[int, ...]:
    """Room in the order of the resources, negative where overdrawn; as much as all pods request where not limited.

    `ports` are the host ports that are taken there besides those that `room` names.
    """
    found = []
    for name in resources:
        if name.startswith("port:"):
            found.append(room.get(name, int(name not in ports)))
        elif name in room or limited(name):
            found.append(room.get(name, 0))
        else:
            found.append(most[name])
    return tuple(found)
