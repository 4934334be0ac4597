"""The life of every pod, and the moves that pairs of lives make."""

from dataclasses import dataclass

from kinema_sim.engine.clock import stamp
from kinema_sim.engine.kinds import REPLICA_SET
from kinema_sim.engine.objects import (
    Obj,
    controller_ref,
    is_ready,
    is_terminating,
    name_of,
    namespace_of,
    node_of,
    uid_of,
)
from kinema_sim.engine.store import Change, Store

_PAIR_MS = 300_000
"""A pod takes another one's place if it was created within this time of the other's deletion."""


@dataclass
class PodLife:
    """The life of one pod; times in milliseconds since 1970, None for what has not happened.

    Attributes:
        pod: namespace and name.
        uid: uid.
        workload: kind, namespace and name of the workload it belongs to.
        node: where it ran, empty while pending.
        created: when it was created.
        ready: when it first became ready.
        deleted: when its deletion was asked for.
        gone: when it was gone.
    """

    pod: str
    uid: str
    workload: str
    node: str
    created: int
    ready: int | None = None
    deleted: int | None = None
    gone: int | None = None


class PodLives:
    """Remembers all pods there ever were."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lives: dict[str, PodLife] = {}

    def note(self, change: Change) -> PodLife:
        """Take a change of a pod over; gives its life."""
        pod, now = change.new, self._store.loop.now_ms
        uid = uid_of(pod)
        life = self._lives.get(uid)
        if life is None:
            name = f"{namespace_of(pod)}/{name_of(pod)}"
            life = self._lives[uid] = PodLife(name, uid, self._workload(pod), node_of(pod), now)
        life.node = node_of(pod)
        if life.ready is None and is_ready(pod):
            life.ready = now
        if life.deleted is None and (is_terminating(pod) or change.type == "DELETED"):
            life.deleted = now
        if change.type == "DELETED":
            life.gone = now
        return life

    def _workload(self, pod: Obj) -> str:
        owner, namespace = controller_ref(pod), namespace_of(pod)
        if owner is not None and owner["kind"] == "ReplicaSet":
            between = self._store.get(REPLICA_SET, namespace, owner["name"])
            above = controller_ref(between) if between is not None else None
            owner = above or owner
        return f"{owner['kind']} {namespace}/{owner['name']}" if owner else f"Pod {namespace}/{name_of(pod)}"

    def created(self, since_ms: int) -> list[Obj]:
        """Workload, name and time of every pod that was created at or after a time, whatever became of it since."""
        lives = [life for life in self._lives.values() if life.created >= since_ms]
        lives.sort(key=lambda life: (life.created, life.pod))
        return [{"workload": one.workload, "pod": one.pod, "created": precise(one.created)} for one in lives]

    def moves(self, since_ms: int) -> list[Obj]:
        """Pair every pod that went at or after a time with the pod of its workload that took its place.

        Pods of a StatefulSet pair by name, others in the order of time, within five minutes.
        """
        by_workload: dict[str, list[PodLife]] = {}
        for life in self._lives.values():
            if not life.workload.startswith(("DaemonSet ", "Pod ")):
                by_workload.setdefault(life.workload, []).append(life)
        found: list[tuple[int, str, Obj]] = []
        for lives in by_workload.values():
            free = [life for life in lives if life.created >= since_ms]
            leavers = [life for life in lives if life.deleted is not None and life.deleted >= since_ms]
            for life in sorted(leavers, key=lambda each: (each.deleted or 0, each.pod)):
                heir = next((each for each in free if _succeeds(each, life)), None)
                if heir is not None:
                    free.remove(heir)
                    found.append((life.deleted or 0, life.pod, _move(life, heir)))
        return [move for _, _, move in sorted(found, key=lambda entry: entry[:2])]


def _succeeds(heir: PodLife, life: PodLife) -> bool:
    if heir.uid == life.uid or abs(heir.created - (life.deleted or 0)) > _PAIR_MS:
        return False
    return heir.pod == life.pod or not life.workload.startswith("StatefulSet ")


def _move(life: PodLife, heir: PodLife) -> Obj:
    gone = {"node": life.node, "deleted": precise(life.deleted), "gone": precise(life.gone)}
    came = {"node": heir.node, "created": precise(heir.created), "ready": precise(heir.ready)}
    return {
        "workload": life.workload,
        "from": {"pod": life.pod, "uid": life.uid, **gone},
        "to": {"pod": heir.pod, "uid": heir.uid, **came},
    }


def precise(ms: int | None) -> str | None:
    """Write a time with milliseconds."""
    return None if ms is None else stamp(ms)[:-1] + f".{ms % 1000:03d}Z"
