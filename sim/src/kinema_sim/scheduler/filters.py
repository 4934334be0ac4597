"""Filters: which nodes can take a pod at all. Each gives the reason why not, or None."""

from collections.abc import Callable, Sequence

from kinema_sim.engine.objects import Obj
from kinema_sim.engine.selectors import match_node_term
from kinema_sim.scheduler.books import NodeInfo
from kinema_sim.scheduler.podinfo import PodInfo

Filter = Callable[[PodInfo, NodeInfo], str | None]

_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_BLOCKING = ("NoSchedule", "NoExecute")
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # the wildcard that the API means, nothing binds to it


def tolerates(tolerations: Sequence[Obj], taint: Obj) -> bool:
    """Return whether one of the tolerations covers a taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    key = toleration.get("key") or ""
    if key and key != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def unschedulable(pod: PodInfo, node: NodeInfo) -> str | None:
    """A cordoned node takes only pods that tolerate the cordon."""
    if node.node["spec"].get("unschedulable") and not tolerates(pod.tolerations, _CORDON):
        return "node(s) were unschedulable"
    return None


def taints(pod: PodInfo, node: NodeInfo) -> str | None:
    """Every NoSchedule and NoExecute taint must be tolerated."""
    for taint in node.taints:
        if taint["effect"] in _BLOCKING and not tolerates(pod.tolerations, taint):
            return "node(s) had untolerated taint(s)"
    return None


def affinity(pod: PodInfo, node: NodeInfo) -> str | None:
    """The node selector and one required node affinity term must match."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in pod.node_selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    if pod.required is not None and not any(match_node_term(term, node.node) for term in pod.required):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def ports(pod: PodInfo, node: NodeInfo) -> str | None:
    """No host port may be taken."""
    if not pod.ports:
        return None
    for address, protocol, port in sorted(pod.ports):
        for other in node.pods.values():
            for taken_address, taken_protocol, taken_port in other.ports:
                same_address = _ANY_ADDRESS in (address, taken_address) or address == taken_address
                if (protocol, port) == (taken_protocol, taken_port) and same_address:
                    return "node(s) didn't have free ports for the requested pod ports"
    return None


def fit(pod: PodInfo, node: NodeInfo) -> str | None:
    """Every resource asked for must be left, and a place among the node's pods."""
    if len(node.pods) + 1 > node.allocatable.get("pods", 0):
        return "Too many pods"
    for name, amount in pod.requests.items():
        if amount and node.used.get(name, 0) + amount > node.allocatable.get(name, 0):
            return f"Insufficient {name}"
    return None


FILTERS: tuple[Filter, ...] = (unschedulable, taints, affinity, ports, fit)
"""In the order of upstream; the first reason is reported."""


def first_reason(pod: PodInfo, node: NodeInfo) -> str | None:
    """Give the first filter's reason why a node cannot take a pod, or None."""
    for check in FILTERS:
        reason = check(pod, node)
        if reason is not None:
            return reason
    return None
