"""Pods that go with every node: those of daemon sets and mirrors of static pods.

They are in no list of a plan. Each takes room on its node, also on a node that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kinema_core.events import (
    EMPTY,
    Amounts,
    FrozenMap,
    HostPort,
    Labels,
    Node,
    NodeTerm,
    Owner,
    PlacementRules,
    Pod,
    Taint,
    Toleration,
)
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.match import node_admits
from kinema_core.model.quarantine import quarantine_of
from kinema_core.model.resources import add, largest, subtract, total
from kinema_core.model.volumes import attachments

_TOLERATED: Final = tuple(
    Toleration(key=f"node.kubernetes.io/{name}", operator="Exists")
    for name in (
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    )
)
"""What the daemon set controller adds to its pods' tolerations, and to no template."""


@dataclass(frozen=True)
class Daemon:
    """One daemon set: what each of its pods requests, and where they may be. `key` is its workload key."""

    key: str
    requests: Amounts
    rules: PlacementRules
    limits: Amounts = EMPTY
    """What its pods are limited to; empty where it has none yet."""
    priority: int = 0
    """Priority of its pods; 0 where it has none yet."""

    @property
    def pod(self) -> Pod:
        """Return what its next pod looks like to a quota."""
        _, namespace, name = self.key.split("/")
        owner = Owner(kind="DaemonSet", name=name, uid="")
        return Pod(
            name=name,
            namespace=namespace,
            uid="",
            owner=owner,
            requests=self.requests,
            limits=self.limits,
            rules=self.rules,
            priority=self.priority,
        )


@dataclass(frozen=True)
class Residents:
    """The daemon sets of a cluster, and what the mirror pods that every node has request together."""

    daemons: tuple[Daemon, ...]
    mirrors: Amounts


def is_resident(cluster: Cluster, pod: Pod) -> bool:
    """Return whether the pod goes with its node: a mirror of a static pod, or a daemon set's."""
    owner = pod.owner
    return pod.mirror or (owner is not None and owner.kind in ("DaemonSet", "Node"))


def unlisted(cluster: Cluster, node: str) -> tuple[Pod, ...]:
    """Pods on a node that no plan lists, by key: those that go with it and those that terminate."""
    return _unlisted(cluster).get(node, ())


@derived
def _unlisted(cluster: Cluster) -> Mapping[str, tuple[Pod, ...]]:
    found: dict[str, list[Pod]] = {}
    for pod in cluster.pods:
        if pod.node is not None and (pod.terminating or is_resident(cluster, pod)):
            found.setdefault(pod.node, []).append(pod)
    return {name: tuple(pods) for name, pods in found.items()}


def daemon_key(pod: Pod) -> str | None:
    """Return the workload key of the daemon set that owns the pod; None for any other pod."""
    if pod.owner is None or pod.owner.kind != "DaemonSet":
        return None
    return f"DaemonSet/{pod.namespace}/{pod.owner.name}"


def daemon_requests(cluster: Cluster, *, name: str, labels: Labels, taints: tuple[Taint, ...]) -> Amounts:
    """Return what the daemon sets that match and the mirror pods that all nodes have take on a new node like this.

    `pods` counts them too.
    """
    landing = landing_daemons(cluster, name=name, labels=labels, taints=taints)
    return add(total(daemon.requests for daemon in landing), residents_of(cluster).mirrors)


def daemon_ports(cluster: Cluster, *, name: str, labels: Labels, taints: tuple[Taint, ...]) -> tuple[HostPort, ...]:
    """Host ports that the daemon sets that match take on a new node like this."""
    landing = landing_daemons(cluster, name=name, labels=labels, taints=taints)
    return tuple(port for daemon in landing for port in daemon.rules.host_ports)


def landing_daemons(cluster: Cluster, *, name: str, labels: Labels, taints: tuple[Taint, ...]) -> list[Daemon]:
    """Return the daemon sets that would have a pod on a new node like this."""
    daemons = residents_of(cluster).daemons
    return [one for one in daemons if node_admits(one.rules, name=name, labels=labels, taints=taints) is None]


def resident_requests(cluster: Cluster, node: Node) -> Amounts:
    """Return requests that go with a live node: of daemon set and mirror pods, also of daemon sets yet to come."""
    return _resident_requests(cluster)[node.name]


@derived
def _resident_requests(cluster: Cluster) -> Mapping[str, Amounts]:
    def of(node: Node) -> Amounts:
        here = [pod.requests for pod in unlisted(cluster, node.name) if is_resident(cluster, pod)]
        return total([*here, *(daemon.requests for daemon in missing_daemons(cluster, node))])

    return {node.name: of(node) for node in cluster.nodes}


def missing_daemons(cluster: Cluster, node: Node) -> list[Daemon]:
    """Return the daemon sets whose pod on a live node is yet to come."""
    present = {daemon_key(pod) for pod in unlisted(cluster, node.name)}
    return [
        daemon
        for daemon in residents_of(cluster).daemons
        if daemon.key not in present
        and node_admits(daemon.rules, name=node.name, labels=node.labels, taints=node.taints) is None
    ]


@derived
def room_left(cluster: Cluster) -> Mapping[str, Amounts]:
    """Return what each node has beside its pods, terminating ones included, and its present and future daemons.

    Attachments of volumes are among it, where the node limits them.
    """

    def of(node: Node) -> Amounts:
        there = cluster.pods_by_node.get(node.name, ())
        taken: list[Mapping[str, int]] = [pod.requests for pod in there if not is_resident(cluster, pod)]
        taken += [attachments(cluster, pod) for pod in there if pod.rules.claims]
        return subtract(node.allocatable, add(total(taken), resident_requests(cluster, node)))

    return {node.name: of(node) for node in cluster.nodes}


@derived
def residents_of(cluster: Cluster) -> Residents:
    """Daemon sets and common mirror pods of a cluster; worked out once for each cluster value."""
    return Residents(daemons=tuple(_daemons(cluster)), mirrors=_common_mirrors(cluster))


def _daemons(cluster: Cluster) -> Iterable[Daemon]:
    """Daemon sets by key. Where only pods of a set are known (a list without daemon sets), they speak for it.

    Admission may add to what a template requests (a sidecar, an overhead, defaults of a LimitRange): the pods show it.
    """
    running: dict[str, list[Pod]] = {}
    for pod in cluster.pods:
        key = daemon_key(pod)
        if key is not None:
            running.setdefault(key, []).append(pod)
    known = [
        Daemon(
            key=set_.key,
            requests=_with_pod(largest([set_.template_requests, *_requested(running.get(set_.key, ()))])),
            rules=_tolerant(set_.template_rules),
            priority=_priority(running.get(set_.key, ())),
            limits=largest(pod.limits for pod in running.pop(set_.key, ())),
        )
        for set_ in cluster.workloads
        if set_.type == "DaemonSet"
    ]
    inferred = [
        Daemon(
            key=key,
            requests=_with_pod(largest(_requested(pods))),
            rules=_anywhere(pods[0].rules),
            priority=_priority(pods),
            limits=largest(pod.limits for pod in pods),
        )
        for key, pods in running.items()
    ]
    return sorted([*known, *inferred], key=lambda daemon: daemon.key)


def _priority(pods: Iterable[Pod]) -> int:
    return max((pod.priority for pod in pods), default=0)


def _requested(pods: Iterable[Pod]) -> list[Amounts]:
    return [pod.requests for pod in pods]


def _with_pod(requests: Amounts) -> Amounts:
    """Return the requests of one pod: it counts as one whether or not the template says so."""
    return FrozenMap({**requests, "pods": 1})


def _tolerant(rules: PlacementRules) -> PlacementRules:
    return msgspec.structs.replace(rules, tolerations=(*rules.tolerations, *_TOLERATED))


def _anywhere(rules: PlacementRules) -> PlacementRules:
    """Return the rules of a daemon set's pod without the pin to its own node, which its controller adds."""
    if rules.node_terms is None:
        return _tolerant(rules)
    unpinned = [msgspec.structs.replace(term, fields=()) for term in rules.node_terms]
    free = any(not term.expressions for term in unpinned)
    return _tolerant(msgspec.structs.replace(rules, node_terms=None if free else _distinct(unpinned)))


def _distinct(terms: Iterable[NodeTerm]) -> tuple[NodeTerm, ...]:
    return tuple(dict.fromkeys(terms))


def _common_mirrors(cluster: Cluster) -> Amounts:
    """Requests of the mirror pods that every readable node has: same name but for the node's suffix.

    A node with an unreadable pod, or one that may have it, may have the mirror that it seems to lack.
    """
    unsure = quarantine_of(cluster).nodes.keys()
    nodes = {node.name for node in cluster.nodes}
    found: dict[tuple[str, str], dict[str, Amounts]] = {}
    for pod in cluster.pods:
        suffix = f"-{pod.node}"
        if pod.mirror and pod.node in nodes and pod.name.endswith(suffix):
            base = (pod.namespace, pod.name.removesuffix(suffix))
            found.setdefault(base, {})[pod.node] = _with_pod(pod.requests)
    return total(largest(seen.values()) for seen in found.values() if nodes - unsure <= seen.keys())
