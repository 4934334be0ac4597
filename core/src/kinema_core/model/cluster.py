"""The cluster state and its fold over `state` events.

Every service folds the same events to the same state: the last snapshot, then each delta in turn. A gap or a changed
stream means that the state is unknown, and no service decides on an unknown state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, TypeVar, cast

from kinema_core.events import (
    Amounts,
    Autoscaler,
    ClusterDelta,
    ClusterObject,
    ClusterSnapshot,
    DisruptionBudget,
    Event,
    FrozenMap,
    Namespace,
    Node,
    ObjectKey,
    Pod,
    PriorityClass,
    Quarantined,
    Recommendation,
    ResourceQuota,
    StorageClass,
    Unknown,
    UsageSampled,
    Volume,
    VolumeClaim,
    Workload,
    kind_of,
)

T = TypeVar("T")

_ALWAYS: Final = "kube-system"
"""Namespace that is made with a cluster and cannot be deleted: its uid identifies the cluster."""
_HASH: Final = "pod-template-hash"
"""Label of a Deployment's pods and sets."""


class StateGapError(Exception):
    """A delta does not follow the folded version: the state is unknown until the next snapshot."""

    def __init__(self, have: int, got: int) -> None:
        super().__init__(f"state version {have} cannot be followed by delta {got}: a full state is needed first")
        self.have = have
        self.got = got


@dataclass(frozen=True)
class Cluster:
    """Everything known of a cluster at one version, by kind and key; maps keep no promise about order.

    Iterate with the properties: they are sorted by key, so that whatever is computed from them is repeatable.
    """

    version: int = 0
    objects: Mapping[str, Mapping[str, ClusterObject]] = field(default_factory=lambda: MappingProxyType({}))
    usage: Mapping[str, Amounts] = field(default_factory=lambda: MappingProxyType({}))
    """Pod key → what it used at the last reading; empty in services that do not fold readings."""

    def _all(self, kind: type[T]) -> Mapping[str, T]:
        return cast("Mapping[str, T]", self.objects.get(kind.__name__, {}))

    def _sorted(self, kind: type[T]) -> tuple[T, ...]:
        items = self._all(kind)
        return tuple(items[key] for key in sorted(items))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes by name."""
        return self._sorted(Node)

    @cached_property
    def pods_by_key(self) -> Mapping[str, Pod]:
        """Pods by `namespace/name`, and in that order: a caller that needs both need not build every key again."""
        items = self._pods
        return {key: items[key] for key in sorted(items)}

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """Pods by `namespace/name`."""
        return tuple(self.pods_by_key.values())

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """Controllers by `Type/namespace/name`."""
        return self._sorted(Workload)

    @cached_property
    def budgets(self) -> tuple[DisruptionBudget, ...]:
        """Disruption budgets by `namespace/name`."""
        return self._sorted(DisruptionBudget)

    @cached_property
    def autoscalers(self) -> tuple[Autoscaler, ...]:
        """Horizontal pod autoscalers by `namespace/name`."""
        return self._sorted(Autoscaler)

    @cached_property
    def volumes(self) -> tuple[Volume, ...]:
        """Persistent volumes by name."""
        return self._sorted(Volume)

    @cached_property
    def claims(self) -> tuple[VolumeClaim, ...]:
        """Persistent volume claims by `namespace/name`."""
        return self._sorted(VolumeClaim)

    @cached_property
    def storage_classes(self) -> tuple[StorageClass, ...]:
        """Storage classes by name."""
        return self._sorted(StorageClass)

    @cached_property
    def priority_classes(self) -> Mapping[str, int]:
        """Value of each priority class, by its name."""
        return {one.name: one.value for one in self._sorted(PriorityClass)}

    @cached_property
    def namespaces(self) -> tuple[Namespace, ...]:
        """Namespaces by name."""
        return self._sorted(Namespace)

    @cached_property
    def quotas(self) -> tuple[ResourceQuota, ...]:
        """Resource quotas by `namespace/name`."""
        return self._sorted(ResourceQuota)

    @cached_property
    def recommendations(self) -> tuple[Recommendation, ...]:
        """Vertical pod autoscalers' recommendations by `namespace/name`."""
        return self._sorted(Recommendation)

    @cached_property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """Objects that could not be read, by kind and key; after them those that this version does not know."""
        return (*self._sorted(Quarantined), *(_quarantined(item) for item in self._sorted(Unknown)))

    # The three kinds that are looked up once for every pod.

    @cached_property
    def _nodes(self) -> Mapping[str, Node]:
        return self._all(Node)

    @cached_property
    def _pods(self) -> Mapping[str, Pod]:
        return self._all(Pod)

    @cached_property
    def _workloads(self) -> Mapping[str, Workload]:
        return self._all(Workload)

    def node(self, name: str) -> Node | None:
        """Return the node of that name."""
        return self._nodes.get(name)

    def pod(self, key: str) -> Pod | None:
        """Return the pod `namespace/name`."""
        return self._pods.get(key)

    def workload(self, key: str) -> Workload | None:
        """Return the controller `Type/namespace/name`."""
        return self._workloads.get(key)

    @cached_property
    def pods_by_node(self) -> Mapping[str, tuple[Pod, ...]]:
        """Bound pods of each node that has any, sorted by key; nodes sorted by name."""
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            if pod.node is not None:
                found.setdefault(pod.node, []).append(pod)
        return {name: tuple(found[name]) for name in sorted(found)}

    @cached_property
    def pods_by_uid(self) -> Mapping[str, Pod]:
        """Pods by uid."""
        return {pod.uid: pod for pod in self.pods}

    def controller_of(self, pod: Pod) -> Workload | None:
        """Return the workload that a pod belongs to: its owner, or the Deployment behind its replica set."""
        found = self._controller(pod)
        return None if found is None else found[1]

    def controller_key_of(self, pod: Pod) -> str | None:
        """Return the key of that workload."""
        found = self._controller(pod)
        return None if found is None else found[0]

    def workload_key_of(self, pod: Pod) -> str:
        """Return the same; of an unknown controller what the pod says of it, and the pod itself where none is."""
        known = self.controller_key_of(pod)
        if known is not None:
            return known
        return f"Pod/{pod.key}" if pod.owner is None else pod.owner.key_in(pod.namespace)

    def _controller(self, pod: Pod) -> tuple[str, Workload] | None:
        owner = pod.owner
        if owner is None:
            return None
        known = self._controllers
        key = (owner.kind, pod.namespace, owner.name)
        if key not in known:
            known[key] = self._behind(owner.key_in(pod.namespace), pod)
        return known[key]

    @cached_property
    def _controllers(self) -> dict[tuple[str, str, str], tuple[str, Workload] | None]:
        """Answers of `_controller` by kind, namespace and name of the owner: worked out once for each owner."""
        return {}

    def _behind(self, key: str, pod: Pod) -> tuple[str, Workload] | None:
        owner = self.workload(key)
        if owner is None:
            named = self.deployment_named_by(pod)
            return None if named is None else (named.key, named)
        behind = owner.owner
        top = None if behind is None else self.workload(behind.key_in(owner.namespace))
        found = top or owner
        return found.key, found

    def deployment_named_by(self, pod: Pod) -> Workload | None:
        """Return the Deployment of a pod whose replica set is not in the state: the set is named by it and a hash.

        Sets without pods are no part of the state, and those and pods are watched apart: one may be known to be empty
        before the end of its last pod is, or its first pod before itself.
        """
        owner, known_hash = pod.owner, pod.labels.get(_HASH, "")
        if owner is None or owner.kind != "ReplicaSet" or not known_hash:
            return None
        name = owner.name.removesuffix(f"-{known_hash}")
        return None if name == owner.name else self.workload(f"Deployment/{pod.namespace}/{name}")

    @cached_property
    def pods_by_workload(self) -> Mapping[str, tuple[Pod, ...]]:
        """Pods of each workload, by the workload's key (a Deployment's pods under the Deployment)."""
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            key = self.controller_key_of(pod)
            if key is not None:
                found.setdefault(key, []).append(pod)
        return {key: tuple(pods) for key, pods in found.items()}


def _quarantined(item: Unknown) -> Quarantined:
    """Return what stands for an unknown object. One that belongs to no namespace may concern all of them."""
    kind, key = item.of, item.at
    if kind == Workload.__name__:
        kind, _, key = key.partition("/")
    return Quarantined(
        object=f"{kind} {key}", path="kind", reason="not known to this version", namespace=item.namespace or ""
    )


def from_objects(objects: Iterable[ClusterObject], version: int = 1) -> Cluster:
    """Return a cluster of these objects; of two with one key the later holds."""
    kinds: dict[str, dict[str, ClusterObject]] = {}
    for item in objects:
        kinds.setdefault(kind_of(item), {})[item.key] = item
    return Cluster(version=version, objects=MappingProxyType(kinds))


def contradiction(cluster: Cluster, item: ClusterObject) -> str:
    """Return what shows that an object is of another cluster than a state; empty where nothing does.

    A cluster that is made again has nodes of the old names: plans that were made for the old one would be executed
    there.
    """
    if not isinstance(item, Namespace) or item.name != _ALWAYS:
        return ""
    known = next((one.uid for one in cluster.namespaces if one.name == _ALWAYS), item.uid)
    return "" if known == item.uid else f"namespace {_ALWAYS} had uid {known}, now {item.uid}"


def evolve(cluster: Cluster, event: ClusterSnapshot | ClusterDelta) -> Cluster:
    """Fold one state event; pure: the cluster given is left as it is.

    Snapshots replace everything. A delta at or below the folded version was folded already and changes nothing.

    Raises:
        StateGapError: the delta is not the next one.
    """
    if isinstance(event, ClusterSnapshot):
        return replace(from_objects(event.objects, event.version), usage=cluster.usage)
    if event.version <= cluster.version:
        return cluster
    if event.version != cluster.version + 1:
        raise StateGapError(cluster.version, event.version)
    kinds = dict(cluster.objects)
    touched: dict[str, dict[str, ClusterObject]] = {}

    def of_kind(kind: str) -> dict[str, ClusterObject]:
        if kind not in touched:
            touched[kind] = kinds[kind] = dict(cluster.objects.get(kind, {}))
        return touched[kind]

    for gone in event.deletes:
        of_kind(gone.kind).pop(gone.key, None)
        of_kind(Unknown.__name__).pop(f"{gone.kind} {gone.key}", None)
    for item in event.upserts:
        of_kind(kind_of(item))[item.key] = item
    objects = MappingProxyType({k: v for k, v in kinds.items() if v})
    return Cluster(version=event.version, objects=objects, usage=cluster.usage)


def fold(cluster: Cluster, event: Event) -> Cluster:
    """Fold any event; one that is no snapshot, delta or reading of usage changes nothing. Raises StateGapError."""
    if isinstance(event.body, ClusterSnapshot | ClusterDelta):
        return evolve(cluster, event.body)
    if isinstance(event.body, UsageSampled):
        used = {one.pod: FrozenMap({"cpu": one.cpu, "memory": one.memory}) for one in event.body.pods}
        return replace(cluster, usage=MappingProxyType(used))
    return cluster


def all_objects(cluster: Cluster) -> Iterator[ClusterObject]:
    """Every object, sorted by kind and key: the content of a snapshot."""
    for kind in sorted(cluster.objects):
        of_kind = cluster.objects[kind]
        for key in sorted(of_kind):
            yield of_kind[key]


def difference(old: Cluster, new: Cluster) -> tuple[tuple[ClusterObject, ...], tuple[ObjectKey, ...]]:
    """Upserts and deletes that lead from `old` to `new`, sorted by kind and key."""
    upserts: list[ClusterObject] = []
    deletes: list[ObjectKey] = []
    for kind in sorted(set(old.objects) | set(new.objects)):
        before, after = old.objects.get(kind, {}), new.objects.get(kind, {})
        upserts += [after[key] for key in sorted(after) if before.get(key) != after[key]]
        deletes += [ObjectKey(kind=kind, key=key) for key in sorted(before) if key not in after]
    return tuple(upserts), tuple(deletes)
