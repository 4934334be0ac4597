"""The scheduler's books: what every node has, and who is on it."""

from dataclasses import dataclass, field

from kinema_sim.engine.kinds import NAMESPACE, NODE, POD
from kinema_sim.engine.objects import Key, Obj, is_finished, is_terminating, key_of, labels_of, name_of, node_of
from kinema_sim.engine.store import Change, Store
from kinema_sim.scheduler.podinfo import Amounts, PodInfo, amounts, read_pod


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
        self._where: dict[Key, str] = {}
        self.pending: dict[Key, PodInfo] = {}
        self.anti: dict[Key, tuple[PodInfo, str]] = {}
        self.liking: dict[Key, tuple[PodInfo, str]] = {}

    def nodes(self) -> list[NodeInfo]:
        """Give the nodes that exist, by name."""
        return [info for _, info in sorted(self._nodes.items()) if info.node]

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
        key, gone = key_of(change.new), change.type == "DELETED" or is_finished(change.new)
        old_node = self._where.pop(key, None)
        self.pending.pop(key, None)
        if old_node is not None:
            self._nodes[old_node].take(key)
            self.anti.pop(key, None)
            self.liking.pop(key, None)
        if gone:
            return old_node is not None
        info, node = read_pod(change.new), node_of(change.new)
        if not node:
            self.pending[key] = info
            return old_node is None and change.type == "ADDED"
        self._where[key] = node
        self._nodes.setdefault(node, NodeInfo(node)).put(info)
        if info.anti_affinity:
            self.anti[key] = info, node
        if info.liked or info.affinity:
            self.liking[key] = info, node
        return old_node is None and any(waiting.affinity for waiting in self.pending.values())


def _same_for_scheduling(old: Obj, new: Obj) -> bool:
    """Most changes of a pod are news of its status, which the books do not hold."""
    return (
        old["spec"] == new["spec"]
        and labels_of(old) == labels_of(new)
        and is_terminating(old) == is_terminating(new)
        and is_finished(old) == is_finished(new)
    )
