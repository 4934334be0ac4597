"""The scheduler's books: pods as it reads them, what every node has, and the pods on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kinema_core.model.quantity import parse_amount
from kinema_sim.engine.kinds import NAMESPACE, NODE, POD
from kinema_sim.engine.objects import (
    Key,
    Obj,
    controller_ref,
    is_finished,
    is_terminating,
    key_of,
    labels_of,
    name_of,
    node_of,
    uid_of,
)
from kinema_sim.engine.selectors import matches
from kinema_sim.engine.store import Change, Store

Amounts = dict[str, int]
"""Resource name → amount; CPU in millicores, others in units."""

_DEFAULT_CPU_M = 100
_DEFAULT_MEMORY = 200 * 1024**2


@dataclass(frozen=True, eq=False)
class PodInfo:
    """A pod as the scheduler sees it.

    Attributes:
        key: namespace and name.
        uid: uid of the pod.
        labels: labels of the pod.
        owner: uid of its controller, empty for a bare pod.
        owner_kind: kind of its controller.
        priority: higher goes first.
        requests: what it asks for, as the fit filter counts it.
        weighed: CPU and memory as the scores weigh them (a container that asks for nothing counts a little).
        node_selector: labels that the node must have.
        required: node selector terms of which one must match; None when there is no such rule.
        preferred: weighted node selector terms.
        tolerations: tolerations.
        ports: (address, protocol, port) of host ports.
        affinity: required terms of pod affinity.
        anti_affinity: required terms of pod anti-affinity.
        liked: (weight, term) of preferred pod affinity, negative weights for anti-affinity.
        spread: topology spread constraints.
        terminating: whether it is on its way out.
    """

    key: Key
    uid: str
    labels: Mapping[str, str]
    owner: str
    owner_kind: str
    priority: int
    requests: Amounts
    weighed: tuple[int, int]
    node_selector: Mapping[str, str]
    required: tuple[Obj, ...] | None
    preferred: tuple[Obj, ...]
    tolerations: tuple[Obj, ...]
    ports: frozenset[tuple[str, str, int]]
    affinity: tuple[Obj, ...]
    anti_affinity: tuple[Obj, ...]
    liked: tuple[tuple[int, Obj], ...]
    spread: tuple[Obj, ...]
    terminating: bool

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.key[0]


def amounts(listed: Mapping[str, str] | None) -> Amounts:
    """Read a map of resource quantities."""
    return {name: parse_amount(name, str(text)) for name, text in (listed or {}).items()}


def _requests_of(container: Obj) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests"))


def _add(into: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, 0) + amount


def pod_requests(pod: Obj) -> Amounts:
    """Add up what a pod asks for: containers and sidecars, or the largest init step, and the overhead."""
    spec = pod["spec"]
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _requests_of(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        step = dict(sidecars)
        _add(step, _requests_of(container))
        if container.get("restartPolicy") == "Always":
            sidecars = step
        for name, amount in step.items():
            peak[name] = max(peak.get(name, 0), amount)
    _add(total, sidecars)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    total.update(amounts((spec.get("resources") or {}).get("requests")))
    _add(total, amounts(spec.get("overhead")))
    return total


def pod_limits(pod: Obj) -> Amounts:
    """Add up the limits of a pod's containers; a resource that one of them may use without a limit has none."""
    each = [amounts((one.get("resources") or {}).get("limits")) for one in pod["spec"].get("containers") or ()]
    names = set[str]().union(*each)
    return {name: sum(one[name] for one in each) for name in sorted(names) if all(name in one for one in each)}


def _weighed(pod: Obj) -> tuple[int, int]:
    cpu = memory = 0
    for container in pod["spec"].get("containers") or ():
        requests = _requests_of(container)
        cpu += requests.get("cpu", _DEFAULT_CPU_M)
        memory += requests.get("memory", _DEFAULT_MEMORY)
    return cpu, memory


def _ports(pod: Obj) -> frozenset[tuple[str, str, int]]:
    return frozenset(
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(port["hostPort"]))  # noqa: S104  # the wildcard that the API means, nothing binds to it
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def _liked(affinity: Obj) -> tuple[tuple[int, Obj], ...]:
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    return tuple(
        (sign * int(entry["weight"]), entry["podAffinityTerm"])
        for part, sign in (("podAffinity", 1), ("podAntiAffinity", -1))
        for entry in (affinity.get(part) or {}).get(field) or ()
    )


def read_pod(pod: Obj) -> PodInfo:
    """Read a pod for scheduling.

    Raises:
        ValueError: a quantity cannot be read.
    """
    spec = pod["spec"]
    affinity: Obj = spec.get("affinity") or {}
    node_affinity: Obj = affinity.get("nodeAffinity") or {}
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    required = node_affinity.get(needed)
    owner = controller_ref(pod) or {}
    return PodInfo(
        key=key_of(pod),
        uid=uid_of(pod),
        labels=labels_of(pod),
        owner=owner.get("uid", ""),
        owner_kind=owner.get("kind", ""),
        priority=int(spec.get("priority") or 0),
        requests=pod_requests(pod),
        weighed=_weighed(pod),
        node_selector=spec.get("nodeSelector") or {},
        required=None if required is None else tuple(required.get("nodeSelectorTerms") or ()),
        preferred=tuple(node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()),
        tolerations=tuple(spec.get("tolerations") or ()),
        ports=_ports(pod),
        affinity=tuple((affinity.get("podAffinity") or {}).get(needed) or ()),
        anti_affinity=tuple((affinity.get("podAntiAffinity") or {}).get(needed) or ()),
        liked=_liked(affinity),
        spread=tuple(spec.get("topologySpreadConstraints") or ()),
        terminating="deletionTimestamp" in pod["metadata"],
    )


def namespace_matches(term: Obj, own: str, namespace: str, *, labels: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether a pod affinity term of a pod in `own` looks at a namespace; `labels` are those of namespaces."""
    listed = term.get("namespaces") or ()
    selector = term.get("namespaceSelector")
    if not listed and selector is None:
        return namespace == own
    return namespace in listed or (selector is not None and matches(selector, labels.get(namespace, {})))


@dataclass(eq=False)
class NodeInfo:
    """A node and the sums over its pods.

    Attributes:
        name: node name.
        node: the Node object, empty while it does not exist.
        labels: labels of the node.
        taints: taints of the node.
        allocatable: what pods may ask for in all.
        used: what its pods ask for.
        weighed: CPU and memory of its pods as the scores weigh them.
        pods: its pods by key.
    """

    name: str
    node: Obj = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[Obj] = field(default_factory=list)
    allocatable: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    weighed: tuple[int, int] = (0, 0)
    pods: dict[Key, PodInfo] = field(default_factory=dict)

    def put(self, pod: PodInfo) -> None:
        """Count a pod in."""
        self.pods[pod.key] = pod
        self._count(pod, 1)

    def take(self, key: Key) -> None:
        """Count a pod out."""
        pod = self.pods.pop(key, None)
        if pod is not None:
            self._count(pod, -1)

    def _count(self, pod: PodInfo, sign: int) -> None:
        for name, amount in pod.requests.items():
            self.used[name] = self.used.get(name, 0) + sign * amount
        self.weighed = self.weighed[0] + sign * pod.weighed[0], self.weighed[1] + sign * pod.weighed[1]


class Books:
    """Keeps NodeInfos and pending pods in step with the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._nodes: dict[str, NodeInfo] = {}
        self._listed: list[NodeInfo] | None = None
        self.version = 0
        """Rises with every change of a node, or of what its pods request."""
        self._where: dict[Key, str] = {}
        self.pending: dict[Key, PodInfo] = {}
        self._seeking: set[Key] = set()
        """Pending pods that have to be near others."""
        self.anti: dict[Key, tuple[PodInfo, str]] = {}
        self.liking: dict[Key, tuple[PodInfo, str]] = {}

    def nodes(self) -> list[NodeInfo]:
        """Give the nodes that exist, by name; the list belongs to the books."""
        if self._listed is None:
            self._listed = [info for _, info in sorted(self._nodes.items()) if info.node]
        return self._listed

    def node(self, name: str) -> NodeInfo | None:
        """Give one node, None when it does not exist."""
        info = self._nodes.get(name)
        return info if info is not None and info.node else None

    def namespaces(self) -> dict[str, dict[str, str]]:
        """Give the labels of every namespace."""
        return {name_of(namespace): labels_of(namespace) for namespace in self._store.each(NAMESPACE)}

    def of_owner(self, owner: str) -> list[tuple[PodInfo, str]]:
        """Give the bound pods of a controller with their nodes."""
        found: list[tuple[PodInfo, str]] = []
        for pod in self._store.owned(POD, owner):
            info = self.bound(key_of(pod))
            if info is not None:
                found.append(info)
        return found

    def bound(self, key: Key) -> tuple[PodInfo, str] | None:
        """Give a bound pod and its node."""
        name = self._where.get(key)
        return None if name is None else (self._nodes[name].pods[key], name)

    def note(self, change: Change) -> bool:
        """Apply a change of the store; return whether it may help a pending pod."""
        if change.kind is NODE:
            return self._note_node(change)
        if change.kind is POD:
            return self._note_pod(change)
        return False

    def _note_node(self, change: Change) -> bool:
        self._listed = None
        self.version += 1
        name = name_of(change.new)
        info = self._nodes.setdefault(name, NodeInfo(name))
        if change.type == "DELETED":
            info.node = {}
            if not info.pods:
                del self._nodes[name]
            return False
        info.node, info.labels = change.new, labels_of(change.new)
        info.taints = change.new["spec"].get("taints") or []
        info.allocatable = amounts(change.new.get("status", {}).get("allocatable"))
        return True

    def _note_pod(self, change: Change) -> bool:
        if change.type == "MODIFIED" and change.old is not None and _same_for_scheduling(change.old, change.new):
            return False
        self.version += 1
        key, gone = key_of(change.new), change.type == "DELETED" or is_finished(change.new)
        old_node = self._where.pop(key, None)
        self.pending.pop(key, None)
        self._seeking.discard(key)
        if old_node is not None:
            self._nodes[old_node].take(key)
            self.anti.pop(key, None)
            self.liking.pop(key, None)
        if gone:
            return old_node is not None
        info, node = read_pod(change.new), node_of(change.new)
        if not node:
            self.pending[key] = info
            if info.affinity:
                self._seeking.add(key)
            return old_node is None and change.type == "ADDED"
        self._where[key] = node
        self._nodes.setdefault(node, NodeInfo(node)).put(info)
        if info.anti_affinity:
            self.anti[key] = info, node
        if info.liked or info.affinity:
            self.liking[key] = info, node
        return old_node is None and bool(self._seeking)


def _same_for_scheduling(old: Obj, new: Obj) -> bool:
    """Most changes of a pod are news of its status, which the books do not hold."""
    return (
        old["spec"] == new["spec"]
        and labels_of(old) == labels_of(new)
        and is_terminating(old) == is_terminating(new)
        and is_finished(old) == is_finished(new)
    )
