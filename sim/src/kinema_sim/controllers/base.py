"""Base of the controllers: the work queue in virtual time, and creating, ranking and judging pods."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar

from kinema_sim.api.errors import ApiError
from kinema_sim.api.kube import KubeApi
from kinema_sim.engine.clock import Loop, parse_stamp
from kinema_sim.engine.kinds import POD, Kind
from kinema_sim.engine.objects import (
    Key,
    Obj,
    annotations_of,
    clone,
    condition,
    controller_ref,
    is_ready,
    key_of,
    name_of,
    namespace_of,
    node_of,
    owner_reference,
    phase_of,
    uid_of,
)
from kinema_sim.engine.store import Change, Store

RETRY_MS = 15_000
"""After which time a controller tries again to create a pod that was refused; upstream it tries ever more rarely."""
REPLICA_FAILURE = "ReplicaFailure"
"""Condition of a set, and of its Deployment, whose pods are refused."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}


class Priority(IntEnum):
    """Order of the controllers at one instant."""

    CLEANUP = 5
    WORKLOAD = 20
    SET = 30
    BUDGET = 40
    SCHEDULER = 50
    KUBELET = 60


class WorkQueue:
    """Remembers which objects to look after.

    Args:
        loop: virtual time.
        priority: order among controllers at the same instant.
        sync: brings one object closer to what it asks for; must be safe to call at any time.
    """

    def __init__(self, loop: Loop, priority: Priority, sync: Callable[[Key], None]) -> None:
        self._loop = loop
        self._priority = priority
        self._sync = sync
        self._queued: set[Key] = set()

    def add(self, key: Key, *, delay_ms: int = 0) -> None:
        """Look after an object soon; a key that waits already waits only once."""
        if delay_ms:
            self._loop.after(delay_ms, lambda: self.add(key))
        elif key not in self._queued:
            self._queued.add(key)
            self._loop.after(0, lambda: self._work(key), priority=self._priority)

    def add_owner(self, change: Change, kind: Kind) -> None:
        """Queue the controller of a changed object, before and after the change, if it is of a kind."""
        for obj in (change.old, change.new):
            owner = controller_ref(obj) if obj is not None else None
            if obj is not None and owner is not None and owner["kind"] == kind.name:
                self.add((namespace_of(obj), owner["name"]))

    def _work(self, key: Key) -> None:
        self._queued.discard(key)
        self._sync(key)


class Controller:
    """Keeps objects of one kind as they ask for: looks after those that changed, or whose children changed."""

    kind: ClassVar[Kind]
    child: ClassVar[Kind] = POD
    priority: ClassVar[Priority] = Priority.SET

    def __init__(self, store: Store, api: KubeApi) -> None:
        self.store = store
        self._api = api
        self._queue = WorkQueue(store.loop, self.priority, self._sync_key)
        store.subscribe(self.note)

    def note(self, change: Change) -> None:
        """Queue the objects that a change concerns."""
        if change.kind is self.kind and change.type != "DELETED":
            self._queue.add(key_of(change.new))
        elif change.kind is self.child:
            self._queue.add_owner(change, self.kind)

    def sync(self, key: Key, found: Obj) -> None:
        """Bring one object closer to what it asks for; must be safe to call at any time."""
        raise NotImplementedError

    def _sync_key(self, key: Key) -> None:
        found = self.store.find(self.kind, key)
        if found is not None:
            self.sync(key, found)


def pod_of_template(owner: Obj, template: Obj, *, name: str = "", labels: Mapping[str, str] | None = None) -> Obj:
    """Write the pod that a controller creates from its template; without a name it gets a generated one."""
    metadata = clone(template.get("metadata") or {})
    metadata["namespace"] = namespace_of(owner)
    metadata["ownerReferences"] = [owner_reference(owner)]
    if labels:
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata["generateName"] = f"{name_of(owner)}-"  # upstream pods that are named have it, too
    if name:
        metadata["name"] = name
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": clone(template["spec"])}


def create_pods(store: Store, drafts: Sequence[Obj]) -> str:
    """Create pods until one is refused; gives why, or nothing."""
    for draft in drafts:
        try:
            store.create(POD, draft)
        except ApiError as error:
            return error.message
    return ""


def deletion_cost(pod: Obj) -> int:
    """Give the pod's deletion cost; what cannot be read counts as 0."""
    try:
        return int(annotations_of(pod).get(DELETION_COST, "0"))
    except ValueError:
        return 0


def restarts(pod: Obj) -> int:
    """Give the largest restart count of the pod's containers."""
    counts = [int(status.get("restartCount", 0)) for status in pod.get("status", {}).get("containerStatuses") or ()]
    return max(counts, default=0)


def ready_since_ms(pod: Obj) -> int | None:
    """Give the time from which on the pod has been ready."""
    found = condition(pod, "Ready")
    if found is None or found.get("status") != "True":
        return None
    return parse_stamp(found["lastTransitionTime"])


def _age_bucket(since_ms: int, now_ms: int) -> int:
    """Ages count by their logarithm, so that a surplus is not always taken from the same few pods."""
    nanoseconds = (now_ms - since_ms) * 1_000_000
    return nanoseconds.bit_length() - 1 if nanoseconds > 0 else -1


def deletion_order(pods: Sequence[Obj], related: Sequence[Obj], now_ms: int) -> list[Obj]:
    """Sort a set's pods, the first to be deleted first, as the ReplicaSet controller does.

    Args:
        pods: active pods of the set.
        related: active pods of all sets of the same owner; they decide how crowded a node is.
        now_ms: current virtual time.
    """
    crowd = Counter(node_of(pod) for pod in related)

    def rank(pod: Obj) -> tuple[object, ...]:
        since = ready_since_ms(pod)
        created = parse_stamp(pod["metadata"]["creationTimestamp"])
        return (
            bool(node_of(pod)),
            _PHASE_ORDER.get(phase_of(pod), 2),
            is_ready(pod),
            deletion_cost(pod),
            -crowd[node_of(pod)],
            *_younger_first(since, now_ms),
            -restarts(pod),
            *_younger_first(created, now_ms),
            uid_of(pod),
        )

    return sorted(pods, key=rank)


def _younger_first(since_ms: int | None, now_ms: int) -> tuple[int]:
    return (_age_bucket(since_ms, now_ms) if since_ms is not None else -1,)


def is_available(pod: Obj, min_ready_seconds: int, now_ms: int) -> bool:
    """Return whether the pod has been ready for long enough."""
    since = ready_since_ms(pod)
    return since is not None and now_ms - since >= min_ready_seconds * 1000
