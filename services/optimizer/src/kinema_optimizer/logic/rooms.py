"""What nodes have left, and requests as vectors of integers. A host port is a resource of which a node has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from kinema_core.events import Amounts, FrozenMap, HostPort, Node, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident, resident_requests
from kinema_core.model.resources import limited, subtract, total
from kinema_core.model.volumes import attachments

_CEILED: Final = ("cpu", "memory")
"""Resources whose utilisation a ceiling limits."""


def port_name(port: HostPort) -> str:
    """The resource that stands for a host port. Addresses are not told apart: at worst a node stays unused."""
    return f"port:{port.protocol}/{port.port}"


def port_of(resource: str) -> str | None:
    """The host port that a resource stands for, as people write it; None for any other resource."""
    kind, _, rest = resource.partition(":")
    protocol, slash, number = rest.partition("/")
    return f"{number}/{protocol}" if kind == "port" and slash else None


def with_ports(requests: Amounts, pod: Pod, cluster: Cluster) -> Amounts:
    """The requests of one pod; host ports, attachments of volumes and the pod itself are among them."""
    if not pod.rules.host_ports and not pod.rules.claims and requests.get("pods") == 1:
        return requests
    ports = {port_name(port): 1 for port in pod.rules.host_ports}
    return FrozenMap({**requests, "pods": 1, **ports, **attachments(cluster, pod)})


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
    disks = Counter(name for pod in everyone for name, count in attachments(cluster, pod).items() for _ in range(count))
    taken = {name: free[name] - count for name, count in disks.items() if name in free}
    return FrozenMap({**free, **taken, **{name: 1 - count for name, count in used.items()}})


def without_ports(room: Amounts, ports: Iterable[HostPort]) -> Amounts:
    """The room where these host ports are taken."""
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
