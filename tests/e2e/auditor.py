"""An auditor who watches the API server from outside and shares no code with the services.

After every change it asks what a user of the workloads would: are enough pods ready, is every budget kept, is
everything that must not move still where it was; and at the end: is everything as its owner left it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from tests.controlplane.access import Access
from tests.e2e.follower import JSON, Change, Follower, Objects, Source

_MARK: Final = "kinema.io/"
_OWNERS_WORDS: Final = tuple(
    f"kinema.io/{word}"
    for word in (
        "rightsizing-max-step",
        "strategy",
        "do-not-move",
        "offer",
        "capacity-type",
        "usd-per-hour",
        "node-pool",
    )
)
"""Marks with our prefix that belong to an object's owner or to its machine: not ours to take off."""
_ROLLED_BY: Final = "kinema.io/rolled-by"
"""Pods keep the mark of the template that they were made from: to take it off would change nothing for anybody."""
_HASH: Final = "pod-template-hash"
_SET: Final = (_MARK, "node.kubernetes.io/", "karpenter.sh/")
"""Beginnings of the taints that Kinema, Kubernetes or Karpenter put on a node."""
_NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
"""Taint with which a node starts: one that a given-up move had bought may still have it when the plan ends."""
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_WORKLOADS: Final = ("Deployment", "StatefulSet")
_JUDGED: Final = (*_WORKLOADS, "Pod", "PodDisruptionBudget", "Node")
"""Kinds whose changes may hurt somebody."""


@dataclass
class Auditor:
    """Follows a cluster; `flaws` says what was wrong at any moment within `watching`."""

    access: Access | Source
    """An API server, or who tells of its objects."""
    untouchable: tuple[str, ...] = ()
    """Beginnings of the names of pods that must stay where they are."""
    flaws: list[str] = field(default_factory=list)
    changes: int = 0
    starts: dict[str, list[str]] = field(default_factory=dict)
    """Workload → the nodes on which pods of it were newly bound, in order."""
    before: Objects = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)
    """Workload → pods that a fault itself took or cut off: so many fewer may be ready."""
    gone: set[str] = field(default_factory=set)
    """Nodes that somebody else took away, with their pods."""
    history: list[Change] = field(default_factory=list)
    """Every change within `watching`."""
    others: frozenset[str] = frozenset()
    """Workloads (`Kind/namespace/name`) whose pods, replicas or templates other clients change."""
    _ready_before: dict[str, int] = field(default_factory=dict)
    _healthy_before: dict[str, int] = field(default_factory=dict)
    _follower: Source = field(init=False)
    _seen: set[str] = field(default_factory=set)
    _sets: set[str] = field(default_factory=set)
    """Uids of all ReplicaSets ever told: a pod of one that is not there any more has lost its workload."""
    _full: set[str] = field(default_factory=set)
    """Namespaces of which a quota was used up at some time."""
    _nodes: set[str] = field(default_factory=set)
    """Names of all nodes ever told: a pod may be told of before its node."""

    def __post_init__(self) -> None:
        """Nothing is asked of the server yet."""
        self._follower = Follower(self.access) if isinstance(self.access, Access) else self.access

    @property
    def now(self) -> Objects:
        """The cluster as last told."""
        return self._follower.objects

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Judge every change within the block."""
        versions = self._follower.read()
        self.before = deepcopy(self.now)
        self._seen = {_uid(pod) for pod in self.now["Pod"].values() if _node(pod)}
        self._note(None)
        self._ready_before = self._ready()
        self._healthy_before = {key: self._healthy(one) for key, one in self.now["PodDisruptionBudget"].items()}
        self._judge(None)
        with self._follower.following(versions, self._judge):
            yield

    @property
    def gaps(self) -> int:
        """How often changes were not seen one by one, because a server had restarted."""
        return self._follower.gaps

    def excuse(self, *, node: str = "", namespace: str = "") -> None:
        """From now on, do not ask for the pods that are on this node or in this namespace: a fault takes them."""
        with self._follower.lock:
            self.gone.add(node)
            for pod in self.now["Pod"].values():
                if _node(pod) == node or pod["metadata"]["namespace"] == namespace:
                    self.taken[self._controller_of(pod)] += 1

    def accept(self, kind: str, key: str, spec: JSON) -> None:
        """An owner changed parts of a spec: they are what must be left at the end."""
        with self._follower.lock:
            self.before[kind][key]["spec"].update(spec)

    def _judge(self, change: Change | None) -> None:
        self.changes += 1
        self._note(change)
        if change is not None:
            self.history.append(change)
            if change.kind not in _JUDGED:
                return
        found = [*self._floors(), *self._budgets(), *self._moved(), *self._homeless()]
        self.flaws += [flaw for flaw in found if flaw not in self.flaws]
        for pod in self.now["Pod"].values():
            if _node(pod) and _uid(pod) not in self._seen:
                self._seen.add(_uid(pod))
                self.starts.setdefault(self._controller_of(pod), []).append(_node(pod))

    def _note(self, change: Change | None) -> None:
        if change is None:
            self._sets.update(_uid(item) for item in self.now["ReplicaSet"].values())
            self._nodes.update(self.now["Node"])
            self._full.update(map(_full_namespace, self.now["ResourceQuota"].values()))
        elif change.kind == "ResourceQuota":
            self._full.add(_full_namespace(change.item))
        elif change.kind == "ReplicaSet":
            self._sets.add(_uid(change.item))
        elif change.kind == "Node":
            self._nodes.add(change.key)

    def _controller_of(self, pod: JSON) -> str:
        """The workload of a pod as of now, be its ReplicaSet told already or not."""
        return controller_of(self.now, pod, told=self._sets)

    def _floors(self) -> Iterator[str]:
        """Workloads with fewer ready pods than their owner asked for, or had at the beginning.

        One less may be ready of a StatefulSet, and where the owner chose evictions or has to be content with them.
        """
        ready = self._ready()
        for kind in _WORKLOADS:
            for key in self.now[kind]:
                name = f"{kind} {key}"
                if f"{kind}/{key}" in self.others:
                    continue
                wanted = min(self._wanted(name), self._ready_before.get(name, 0)) - self.taken[name]
                item = self.now[kind][key]
                floor = wanted - (kind == "StatefulSet" or _evicted(item) or (wanted > 1 and self._makes_way(item)))
                if ready[name] < floor:
                    yield f"{name}: {ready[name]} ready, {floor} needed"

    def _makes_way(self, workload: JSON) -> bool:
        """Whether a quota was used up, so that no pod can come before another goes, and a budget is about its pods."""
        budgets, pod = self.now["PodDisruptionBudget"].values(), _pod_of(workload)
        return workload["metadata"]["namespace"] in self._full and any(_covers(one, pod) for one in budgets)

    def _ready(self) -> dict[str, int]:
        """Ready pods by workload."""
        ready: defaultdict[str, int] = defaultdict(int)
        for pod in self.now["Pod"].values():
            ready[self._controller_of(pod)] += _is_ready(pod)
        return ready

    def _healthy(self, budget: JSON) -> int:
        return sum(_is_ready(pod) for pod in self.now["Pod"].values() if _covers(budget, pod))

    def _budgets(self) -> Iterator[str]:
        for key, budget in self.now["PodDisruptionBudget"].items():
            covered = [pod for pod in self.now["Pod"].values() if _covers(budget, pod)]
            workloads = {self._controller_of(pod) for pod in covered} - {""}
            # Also one without a pod: it has lost them all.
            workloads |= {f"{kind} {name}" for kind in _WORKLOADS for name in self._covered(kind, budget)}
            if any(name.replace(" ", "/", 1) in self.others for name in workloads):
                continue
            wanted = sum(self._wanted(name) for name in workloads)
            spec = budget["spec"]
            if "minAvailable" in spec:
                needed = _share(spec["minAvailable"], wanted)
            else:
                needed = wanted - _share(spec.get("maxUnavailable", 1), wanted)
            needed = min(needed, self._healthy_before.get(key, needed))
            healthy = sum(map(_is_ready, covered)) + sum(self.taken[name] for name in workloads)
            if healthy < needed:
                yield f"budget {key}: {healthy} healthy, {needed} needed"

    def _covered(self, kind: str, budget: JSON) -> Iterator[str]:
        """Workloads of which a budget covers the pods, by their templates."""
        return (key for key, item in self.now[kind].items() if _covers(budget, _pod_of(item)))

    def _wanted(self, name: str) -> int:
        """Replicas that the owner asks for: a surge raises the wish for a while, and is not the owner."""
        kind, _, key = name.partition(" ")
        found = [objects[kind][key]["spec"]["replicas"] for objects in (self.before, self.now) if key in objects[kind]]
        return int(min(found))

    def _moved(self) -> Iterator[str]:
        """Untouchable pods that are gone or somewhere else."""
        for key, first in self.before["Pod"].items():
            if not first["metadata"]["name"].startswith(self.untouchable):
                continue
            pod = self.now["Pod"].get(key)
            if pod is None or _uid(pod) != _uid(first) or _is_ending(pod):
                yield f"untouchable pod {key} is gone"

    def _homeless(self) -> Iterator[str]:
        """Pods whose node was taken away under them."""
        for key, pod in self.now["Pod"].items():
            ends = _is_ending(pod) or _owner(pod)[0] == "DaemonSet"
            lost = _node(pod) in self._nodes and _node(pod) not in {*self.now["Node"], *self.gone}
            if lost and not ends:
                yield f"pod {key} lost its node {_node(pod)}"

    def workload_of(self, pod: str) -> str:
        """The workload of a pod (`namespace/name`) that was there at the beginning; empty for any other."""
        found = self.before["Pod"].get(pod)
        return "" if found is None else controller_of(self.before, found)

    def leftovers(self) -> list[str]:
        """Marks, taints, cordons, templates, replicas and limits that are not as their owners left them."""
        with self._follower.lock:
            found = [*self._marks(), *self._closed_nodes(), *self._changed_workloads()]
        return sorted(found)

    def _marks(self) -> Iterator[str]:
        for kind, objects in self.now.items():
            for key, item in objects.items():
                metadata = item["metadata"]
                if _is_ending(item):
                    continue  # what is on it goes with it
                names = [*(metadata.get("labels") or ()), *(metadata.get("annotations") or ())]
                kept = (*_OWNERS_WORDS, _ROLLED_BY) if kind == "Pod" else _OWNERS_WORDS
                ours = [name for name in names if name.startswith(_MARK) and name not in kept]
                if kind != "ConfigMap":
                    yield from (f"{kind} {key}: {name}" for name in names if name in ours or name == _DELETION_COST)
                elif metadata["name"] == "kinema-steering" and item.get("data"):
                    yield f"{kind} {key}: {item['data']}"

    def _closed_nodes(self) -> Iterator[str]:
        for key, node in self.now["Node"].items():
            before = self.before["Node"].get(key)
            found = node["spec"].get("taints") or ()
            # A new node has those of its machine type as well: they are its own.
            own = [taint for taint in found if not taint["key"].startswith(_SET)]
            known = [_NOT_READY, *own] if before is None else before["spec"].get("taints") or ()
            taints = [taint for taint in found if taint not in known]
            yield from (f"Node {key}: taint {taint['key']}" for taint in taints)
            if node["spec"].get("unschedulable"):
                yield f"Node {key}: cordoned"

    def _changed_workloads(self) -> Iterator[str]:
        scaled = {_scaled_by(one) for one in self.now["HorizontalPodAutoscaler"].values()}
        for kind in (*_WORKLOADS, "HorizontalPodAutoscaler"):
            for key, first in self.before[kind].items():
                item = self.now[kind].get(key)
                if item is None:  # its owner took it away
                    continue
                if f"{kind}/{key}" in self.others:
                    continue
                theirs = {"replicas"} if f"{kind} {key}" in scaled else set()
                mine, now = _without_empty(first["spec"]), _without_empty(item["spec"])
                changed = [name for name in mine if now.get(name) != mine[name]]
                changed = [name for name in changed if name not in theirs]
                yield from (f"{kind} {key}: spec.{name} is not its owner's" for name in changed)


def _evicted(workload: JSON) -> bool:
    """Whether the owner wants its pods evicted one by one."""
    return (workload["metadata"].get("annotations") or {}).get("kinema.io/strategy") == "evict"


def _full_namespace(quota: JSON) -> str:
    """The namespace of a quota that is used up; empty of one that has something left of everything."""
    status = quota.get("status") or {}
    used = status.get("used") or {}
    full = any(used.get(name) == amount for name, amount in (status.get("hard") or {}).items())
    return str(quota["metadata"]["namespace"]) if full else ""


def _uid(item: JSON) -> str:
    return str(item["metadata"]["uid"])


def _node(pod: JSON) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _is_ending(pod: JSON) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: JSON) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return not _is_ending(pod) and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _owner(item: JSON) -> tuple[str, str]:
    reference = _owned_by(item)
    return str(reference.get("kind", "")), str(reference.get("name", ""))


def _owned_by(item: JSON) -> JSON:
    """The reference to an object's controller; empty where it has none."""
    references: list[JSON] = item["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), {})


def controller_of(objects: Mapping[str, Mapping[str, JSON]], pod: JSON, *, told: Container[str] | None = None) -> str:
    """`Kind namespace/name` of the Deployment or StatefulSet that a pod belongs to; empty for any other.

    Each kind is watched by itself, so that a pod may be told before its new ReplicaSet. Where `told` has the uids of
    all that ever were, the Deployment is then had from the names.
    """
    namespace = pod["metadata"]["namespace"]
    kind, name = _owner(pod)
    if kind == "ReplicaSet":
        found = objects["ReplicaSet"].get(f"{namespace}/{name}")
        early = told is not None and found is None and _owned_by(pod).get("uid") not in told
        kind, name = _named_after(objects, pod, name) if early else _owner(found or {"metadata": {}})
    return f"{kind} {namespace}/{name}" if kind in _WORKLOADS else ""


def _named_after(objects: Mapping[str, Mapping[str, JSON]], pod: JSON, replica_set: str) -> tuple[str, str]:
    """The known Deployment after which a ReplicaSet is named: its controller adds the hash that the pods carry, too."""
    template = (pod["metadata"].get("labels") or {}).get(_HASH, "")
    name = replica_set.removesuffix(f"-{template}")
    known = bool(template) and name != replica_set and f"{pod['metadata']['namespace']}/{name}" in objects["Deployment"]
    return ("Deployment", name) if known else ("", "")


def _scaled_by(autoscaler: JSON) -> str:
    """The workload whose number of replicas is an autoscaler's business."""
    target = autoscaler["spec"]["scaleTargetRef"]
    return f"{target['kind']} {autoscaler['metadata']['namespace']}/{target['name']}"


def _covers(budget: JSON, pod: JSON) -> bool:
    """Whether a budget is about a pod; the budgets here select by `matchLabels`."""
    same = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    wanted = budget["spec"]["selector"]["matchLabels"]
    return bool(same and wanted.items() <= (pod["metadata"].get("labels") or {}).items())


def _pod_of(workload: JSON) -> JSON:
    """A pod of a workload, as far as budgets ask."""
    template = (workload["spec"].get("template") or {}).get("metadata", {})
    return {"metadata": {**template, "namespace": workload["metadata"]["namespace"]}}


def _without_empty(value: Any) -> Any:
    """Without empty maps, which some servers store, and without the annotation by which a roll restarts pods."""
    if not isinstance(value, dict):
        return value
    kept = {key: each for key, each in value.items() if key != _ROLLED_BY}
    return {key: plain for key, each in kept.items() if (plain := _without_empty(each)) != {}}


def _share(given: int | str, whole: int) -> int:
    """Absolute or percent, rounded up as the API says."""
    return math.ceil(int(given[:-1]) * whole / 100) if isinstance(given, str) else given
