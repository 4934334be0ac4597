"""Reading of a cluster for the policies, once: nodes with their room, and pods by kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kinema_core.events import Amounts, FrozenMap, HostPort, Labels, Node, NodeTerm, Offer, Pod, Taint
from kinema_core.model.catalog import machine_of, new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, is_resident, resident_requests
from kinema_core.model.match import parse_taints
from kinema_core.model.resources import limited, subtract, total
from kinema_sim.policies.topology import Ints

NEW_NODE: Final = "policy-new-node"
"""Stands for the name of a node that does not exist yet."""

_PLENTY: Final = 2**60
"""Stands for no limit."""


@dataclass(eq=False)
class Site:
    """A node that exists, or would if its offer were bought."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]
    price: int
    """Micro-USD per hour."""
    allocatable: Amounts
    room: Amounts
    """For pods that are no daemons."""
    open: bool
    spot: bool
    node: Node | None = None
    offer: Offer | None = None
    domains: dict[str, int] = field(default_factory=dict)
    """Topology key → number of the domain."""
    pods: dict[str, None] = field(default_factory=dict)
    """Keys of the pods here, in order of arrival."""

    @property
    def machine(self) -> str:
        """The machine type."""
        if self.node is not None:
            return machine_of(self.node)[0]
        return self.offer.machine_type if self.offer is not None else ""


@dataclass(frozen=True, eq=False)
class Kind:
    """Pods that the scheduler cannot distinguish."""

    index: int
    pod: Pod
    requests: Ints
    asks: Ints
    """Indices of the resources that it requests."""
    places: tuple[tuple[NodeTerm, ...], ...]
    """Where its volumes can be reached: one alternative of each has to match."""


def is_spot(node: Node) -> bool:
    """Whether a live node is spot capacity."""
    return machine_of(node)[2] == "spot"


def resources_of(pods: Iterable[Pod]) -> tuple[str, ...]:
    """CPU, memory, then every other resource and host port that some pod requests, by name."""
    named = {name for pod in pods for name, amount in asked(pod).items() if amount}
    return ("cpu", "memory", *sorted(named - {"cpu", "memory"}))


def asked(pod: Pod) -> Amounts:
    """The pod's requests; host ports are resources of which each node has one."""
    if not pod.rules.host_ports:
        return pod.requests
    return FrozenMap({**pod.requests, **{_port(port): 1 for port in pod.rules.host_ports}})


def _port(port: HostPort) -> str:
    return f"port:{port.protocol}/{port.port}"


def kinds_of(
    cluster: Cluster, pods: Iterable[Pod], resources: Sequence[str]
) -> tuple[tuple[Kind, ...], dict[str, int]]:
    """The kinds, and the kind of each pod key."""
    known: dict[tuple[object, ...], int] = {}
    kinds: list[Kind] = []
    kind_of: dict[str, int] = {}
    for pod in pods:
        owner = pod.owner.uid if pod.owner else pod.uid
        key = (pod.namespace, owner, pod.labels, pod.annotations, pod.rules, pod.requests, pod.priority)
        if key not in known:
            amounts = asked(pod)
            requests = np.array([amounts.get(name, 0) for name in resources], dtype=np.int64)
            known[key] = len(kinds)
            kinds.append(Kind(known[key], pod, requests, np.flatnonzero(requests), _volume_places(cluster, pod)))
        kind_of[pod.key] = known[key]
    return tuple(kinds), kind_of


def _volume_places(cluster: Cluster, pod: Pod) -> tuple[tuple[NodeTerm, ...], ...]:
    volumes = {volume.name: volume for volume in cluster.volumes} if pod.rules.claims else {}
    claims = {claim.key: claim for claim in cluster.claims} if pod.rules.claims else {}
    found = []
    for name in pod.rules.claims:
        claim = claims.get(f"{pod.namespace}/{name}")
        volume = None if claim is None else volumes.get(claim.volume or "")
        if volume is not None and volume.node_terms is not None:
            found.append(volume.node_terms)
    return tuple(found)


def live_site(cluster: Cluster, node: Node, *, price: int, open_: bool) -> Site:
    """A live node: what goes with it and what is leaving keep their room."""
    here = cluster.pods_by_node.get(node.name, ())
    leaving = [pod for pod in here if pod.terminating and not is_resident(cluster, pod)]
    taken = total([resident_requests(cluster, node), *(pod.requests for pod in leaving)])
    ports = {
        _port(port): 0 for pod in here if is_resident(cluster, pod) or pod.terminating for port in pod.rules.host_ports
    }
    return Site(
        name=node.name,
        labels=node.labels,
        taints=node.taints,
        price=price,
        allocatable=node.allocatable,
        room=FrozenMap({**subtract(node.allocatable, taken), **ports}),
        open=open_,
        spot=is_spot(node),
        node=node,
    )


def new_site(cluster: Cluster, offer: Offer, name: str = NEW_NODE) -> Site:
    """A node of the offer: its daemons' room is taken."""
    labels, taints = new_node_labels(offer, name), parse_taints(offer.taints)
    daemons = daemon_requests(cluster, name=name, labels=labels, taints=taints)
    return Site(
        name=name,
        labels=labels,
        taints=taints,
        price=offer.micro_usd_per_hour,
        allocatable=offer.allocatable,
        room=subtract(offer.allocatable, daemons),
        open=True,
        spot=offer.capacity_type == "spot",
        offer=offer,
    )


def vector(room: Amounts, resources: Sequence[str]) -> list[int]:
    """A node's amounts in the order of the resources."""
    return [room.get(name, _default(name)) for name in resources]


def _default(name: str) -> int:
    if name.startswith("port:"):
        return 1
    return 0 if limited(name) else _PLENTY
