"""Resizes in place: kubelets that report what containers have, and give them other requests while they run.

As in Kubernetes 1.33: a resize for which the whole node is too small is infeasible, one for which it has no room beside
its other pods is deferred until it has.
"""

from typing import Final

from kinema_sim.controllers.base import Priority, WorkQueue
from kinema_sim.engine.clock import spread
from kinema_sim.engine.kinds import NODE, POD
from kinema_sim.engine.objects import (
    Key,
    Obj,
    drop_condition,
    is_finished,
    is_running,
    is_terminating,
    is_true,
    key_of,
    node_of,
    set_condition,
    uid_of,
)
from kinema_sim.engine.store import Change, Store
from kinema_sim.scheduler.books import amounts, pod_requests

RESIZE_MS: Final = (500, 2_000)
"""From the new requests to what containers have."""
RETRY_MS: Final = 10_000
"""Between two looks of a kubelet at a resize that it has deferred."""
PENDING: Final = "PodResizePending"
_SIZED: Final = ("cpu", "memory")


class Resizes:
    """The part of all kubelets that resizes pods."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._seed = seed
        self._queue = WorkQueue(store.loop, Priority.KUBELET, self._sync)
        self._waiting: set[Key] = set()
        """Pods at which the kubelet looks later."""
        store.subscribe(self._note)

    def _note(self, change: Change) -> None:
        if change.kind is POD and change.type != "DELETED" and is_running(change.new):
            self._queue.add(key_of(change.new))

    def _sync(self, key: Key) -> None:
        """Report what containers have, and begin a resize where they are to have something else."""
        pod = self._store.find(POD, key)
        if pod is None or is_terminating(pod) or not is_running(pod):
            return
        if not all("resources" in one for one in pod["status"]["containerStatuses"]):
            self._store.edit(POD, key, _given)
        elif key not in self._waiting and (not _is_given(pod) or is_true(pod, PENDING)):
            self._later(pod, spread("resize", self._seed, uid_of(pod), RESIZE_MS))

    def _later(self, pod: Obj, delay_ms: int) -> None:
        key, uid = key_of(pod), uid_of(pod)
        self._waiting.add(key)

        def act() -> None:
            self._waiting.discard(key)
            now = self._store.find(POD, key)
            if now is not None and uid_of(now) == uid and is_running(now) and not is_terminating(now):
                self._resize(now)

        self._store.loop.after(delay_ms, act, priority=Priority.KUBELET)

    def _resize(self, pod: Obj) -> None:
        if _is_given(pod):
            self._store.edit(POD, key_of(pod), lambda draft: drop_condition(draft, PENDING))
            return
        reason = self._refusal(pod)
        if not reason:
            self._store.edit(POD, key_of(pod), _given)
            return
        now = self._store.loop.now
        entry = {"type": PENDING, "status": "True", "reason": reason, "message": "the node has not enough resources"}
        self._store.edit(POD, key_of(pod), lambda draft: set_condition(draft, entry, now))
        if reason == "Deferred":
            self._later(pod, RETRY_MS)

    def _refusal(self, pod: Obj) -> str:
        """Return why a pod cannot have what it asks for now; empty where it can."""
        node = self._store.get(NODE, "", node_of(pod))
        has = amounts((node or {}).get("status", {}).get("allocatable"))
        wanted = pod_requests(pod)
        others = [
            pod_requests(one)
            for one in self._store.pods_on(node_of(pod))
            if key_of(one) != key_of(pod) and not is_finished(one)
        ]
        if any(wanted.get(name, 0) > has.get(name, 0) for name in _SIZED):
            return "Infeasible"
        taken = {name: sum(one.get(name, 0) for one in others) for name in _SIZED}
        full = any(wanted.get(name, 0) + taken[name] > has.get(name, 0) for name in _SIZED)
        return "Deferred" if full else ""


def _is_given(pod: Obj) -> bool:
    """Return whether its containers have what they ask for."""
    has = {one["name"]: one["resources"] for one in pod["status"]["containerStatuses"]}
    return all(has[one["name"]] == (one.get("resources") or {}) for one in pod["spec"]["containers"])


def _given(pod: Obj) -> None:
    """Let the status say that containers have what they ask for."""
    asked = {one["name"]: one.get("resources") or {} for one in pod["spec"]["containers"]}
    for one in pod["status"]["containerStatuses"]:
        one["resources"] = asked[one["name"]]
        one["allocatedResources"] = asked[one["name"]].get("requests") or {}
    drop_condition(pod, PENDING)
