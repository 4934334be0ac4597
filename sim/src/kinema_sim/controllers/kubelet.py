"""Kubelets: start the pods bound to their node, make them ready, and end them."""

from collections.abc import Callable

from kinema_sim.controllers.base import Priority, WorkQueue
from kinema_sim.engine.clock import spread
from kinema_sim.engine.kinds import NODE, POD
from kinema_sim.engine.objects import (
    Key,
    Obj,
    annotations_of,
    is_finished,
    is_running,
    is_terminating,
    is_true,
    key_of,
    name_of,
    namespace_of,
    node_of,
    phase_of,
    set_condition,
    uid_of,
)
from kinema_sim.engine.store import Change, Store

READY_SECONDS = "sim.kinema.io/ready-seconds"
"""Pod annotation: how long the application takes from its start until it answers."""
RUN_SECONDS = "sim.kinema.io/run-seconds"
"""Pod annotation: after how long the pod's work is done; without it the pod runs for good."""
STOP_SECONDS = "sim.kinema.io/stop-seconds"
"""Pod annotation: how long the application takes to end, at most the grace period; without it about a second."""

START_MS = (800, 2_500)
"""From binding to Running: image and containers."""
READY_MS = (2_000, 4_000)
"""From Running to Ready without the annotation."""
STOP_MS = (800, 2_000)
"""From the request to end until the pod is gone, at most its grace period."""
BACK_OFF_MS = (10_000, 300_000)
"""Before the second restart of a container, and the most; it doubles each time."""
CALM_MS = 600_000
"""A container that ran for so long is restarted at once again."""


class Kubelets:
    """The kubelets of all nodes."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self._seed = seed
        self._queue = WorkQueue(store.loop, Priority.KUBELET, self.sync)
        self._begun: dict[str, str] = {}
        self._restarts: dict[str, tuple[int, int]] = {}
        """Uid of a pod whose containers were killed → when they were last started, and the next back-off."""
        self.never_ready: set[tuple[str, str]] = set()
        store.subscribe(self.note)

    def note(self, change: Change) -> None:
        """Queue the bound pods that a change concerns."""
        if change.kind is POD:
            if change.type == "DELETED":
                self._begun.pop(uid_of(change.new), None)
                self._restarts.pop(uid_of(change.new), None)
            elif node_of(change.new):
                self._queue.add(key_of(change.new))
        elif change.kind is NODE and change.type != "DELETED" and is_true(change.new, "Ready"):
            for pod in self.store.pods_on(name_of(change.new)):
                self._queue.add(key_of(pod))

    def sync(self, key: Key) -> None:
        """Start or stop a pod, once each."""
        pod = self.store.find(POD, key)
        if pod is not None and is_terminating(pod) and is_finished(pod) and not pod["metadata"].get("finalizers"):
            self.store.remove(POD, key)
            return
        if pod is None or is_finished(pod):
            return
        uid, begun = uid_of(pod), self._begun.get(uid_of(pod), "")
        if is_terminating(pod):
            if begun != "stop":
                self._begun[uid] = "stop"
                grace_ms = int(pod["metadata"].get("deletionGracePeriodSeconds", 30)) * 1000
                seconds = annotations_of(pod).get(STOP_SECONDS)
                takes_ms = int(seconds) * 1000 if seconds else spread("stop", self._seed, uid, STOP_MS)
                self._later(pod, min(takes_ms, grace_ms), self._gone)
            return
        node = self.store.get(NODE, "", node_of(pod))
        if not begun and phase_of(pod) == "Pending" and node is not None and is_true(node, "Ready"):
            self._begun[uid] = "start"
            self._later(pod, spread("start", self._seed, uid, START_MS), self._running)

    def _later(self, pod: Obj, delay_ms: int, action: Callable[[Obj], None]) -> None:
        key, uid = key_of(pod), uid_of(pod)

        def act() -> None:
            now = self.store.find(POD, key)
            if now is not None and uid_of(now) == uid:
                action(now)

        self.store.loop.after(delay_ms, act, priority=Priority.KUBELET)

    def _running(self, pod: Obj) -> None:
        if is_terminating(pod):
            return
        now = self.store.loop.now
        self.store.edit_status(POD, key_of(pod), lambda draft: _set_running(draft, now))
        annotations = annotations_of(pod)
        if RUN_SECONDS in annotations:
            self._later(pod, int(annotations[RUN_SECONDS]) * 1000, self._succeeded)
        self._ready_later(pod)

    def kill(self, pod: Obj, reason: str) -> None:
        """Kill the containers of a running pod; they are restarted where they are, later and later."""
        now, uid = self.store.loop.now_ms, uid_of(pod)
        started, wait = self._restarts.get(uid, (now - CALM_MS, 0))
        if now - started >= CALM_MS:
            wait = 0
        delay = wait + spread("start", self._seed, uid, START_MS)
        self._restarts[uid] = now + delay, min(max(2 * wait, BACK_OFF_MS[0]), BACK_OFF_MS[1])
        stamp = self.store.loop.now
        self.store.edit_status(POD, key_of(pod), lambda draft: _set_killed(draft, stamp, reason))
        self._later(pod, delay, self._restarted)

    def _restarted(self, pod: Obj) -> None:
        if is_terminating(pod) or is_running(pod):
            return
        now = self.store.loop.now
        self.store.edit_status(POD, key_of(pod), lambda draft: _set_restarted(draft, now))
        self._ready_later(pod)

    def _ready_later(self, pod: Obj) -> None:
        seconds = annotations_of(pod).get(READY_SECONDS)
        delay = int(seconds) * 1000 if seconds else spread("ready", self._seed, uid_of(pod), READY_MS)
        self._later(pod, delay, self._ready)

    def _ready(self, pod: Obj) -> None:
        if is_terminating(pod) or not is_running(pod) or self._is_held(pod):
            return
        now = self.store.loop.now
        self.store.edit_status(POD, key_of(pod), lambda draft: _set_ready(draft, now, ready=True))

    def _is_held(self, pod: Obj) -> bool:
        """Return whether a fault keeps pods of this application from becoming ready."""
        labels = pod["metadata"].get("labels") or {}
        return (namespace_of(pod), labels.get("app", "")) in self.never_ready

    def release(self) -> None:
        """Lift the faults: pods held back until now become ready."""
        self.never_ready.clear()
        for pod in self.store.each(POD):
            if phase_of(pod) == "Running" and not is_true(pod, "Ready"):
                self._ready(pod)

    def _succeeded(self, pod: Obj) -> None:
        now = self.store.loop.now

        def end(draft: Obj) -> None:
            _set_ready(draft, now, ready=False)
            draft["status"]["phase"] = "Succeeded"

        self.store.edit_status(POD, key_of(pod), end)

    def _gone(self, pod: Obj) -> None:
        """End a pod; one with finalizers stays as an object until these are taken off."""
        if not pod["metadata"].get("finalizers"):
            self.store.remove(POD, key_of(pod))
            return
        self._succeeded(pod)


def _set_running(pod: Obj, now: str) -> None:
    status = pod["status"]
    status["phase"] = "Running"
    status["startTime"] = now
    for kind in ("Initialized", "PodReadyToStartContainers"):
        set_condition(pod, {"type": kind, "status": "True"}, now)
    status["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": f"sim://{container.get('image', '')}",
            "containerID": f"sim://{uid_of(pod)}/{container['name']}",
            "ready": False,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"]["containers"]
    ]
    _set_ready(pod, now, ready=False)


def _set_killed(pod: Obj, now: str, reason: str) -> None:
    for status in pod["status"].get("containerStatuses") or ():
        began = ((status.get("state") or {}).get("running") or {}).get("startedAt", now)
        ended = {"reason": reason, "exitCode": 137, "startedAt": began, "finishedAt": now}
        status["lastState"] = {"terminated": ended}
        status["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
        status["started"] = False
        status["restartCount"] = status.get("restartCount", 0) + 1
    _set_ready(pod, now, ready=False)


def _set_restarted(pod: Obj, now: str) -> None:
    for status in pod["status"].get("containerStatuses") or ():
        status["state"] = {"running": {"startedAt": now}}
        status["started"] = True


def _set_ready(pod: Obj, now: str, *, ready: bool) -> None:
    word = "True" if ready else "False"
    for kind in ("ContainersReady", "Ready"):
        set_condition(pod, {"type": kind, "status": word}, now)
    for container in pod["status"].get("containerStatuses") or ():
        container["ready"] = ready
