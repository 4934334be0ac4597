"""The record of what happened in the cluster: samples over time, and the life of every pod."""

import bisect
from dataclasses import dataclass

from kinema_sim.cloud.provider import Cloud
from kinema_sim.engine.clock import Loop, stamp
from kinema_sim.engine.kinds import DAEMON_SET, DEPLOYMENT, NODE, POD, REPLICA_SET, STATEFUL_SET, Kind
from kinema_sim.engine.objects import (
    Obj,
    controller_ref,
    is_finished,
    is_ready,
    is_terminating,
    is_true,
    name_of,
    namespace_of,
    node_of,
    uid_of,
)
from kinema_sim.engine.store import Change, Store
from kinema_sim.load.generator import LoadGenerator
from kinema_sim.scheduler.books import Books

_PAIR_MS = 300_000
"""A pod takes another one's place if it was created within this time of the other's deletion."""
SAMPLE_MS = 5_000
_LAST = 1_000
"""Priority of sampling: after all else at that instant."""
_SHOWN: tuple[Kind, ...] = (DEPLOYMENT, STATEFUL_SET, DAEMON_SET, REPLICA_SET)


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


class Recorder:
    """Samples the cluster every 5 virtual seconds and whenever nodes, replicas or pending pods change.

    Loads and usage are measured on the regular samples; those in between repeat them.
    """

    def __init__(self, *, store: Store, cloud: Cloud, books: Books, load: LoadGenerator) -> None:
        self._cloud = cloud
        self._books = books
        self._load = load
        self._loop: Loop = store.loop
        self._armed = False
        self._shown: Obj = {}
        self._measured: Obj = {"used": {"cpu_m": 0, "memory_bytes": 0}, "load": {}}
        self._desired: dict[str, int] = {}
        self._ready: dict[str, int] = {}
        self._workloads: dict[str, Obj] = {}
        self._ready_nodes: set[str] = set()
        self._seen_nodes: list[tuple[str, str, bool]] = []
        self._priced: Obj = {}
        self._times: list[int] = []
        self.samples: list[Obj] = []
        self.lives = PodLives(store)
        store.subscribe(self._note)
        self._loop.every(SAMPLE_MS, self._sample, priority=_LAST)

    def since(self, ms: int) -> list[Obj]:
        """Give the samples after a time."""
        return self.samples[bisect.bisect_right(self._times, ms) :]

    def _note(self, change: Change) -> None:
        if change.kind is POD:
            self._note_pod(change)
        elif change.kind in _SHOWN:
            self._note_workload(change)
        elif change.kind is NODE:
            self._note_node(change)
        else:
            return
        if not self._armed:
            self._armed = True
            self._loop.at(self._loop.now_ms, self._sample_change, priority=_LAST)

    def _note_node(self, change: Change) -> None:
        self._ready_nodes.discard(name_of(change.new))
        if change.type != "DELETED" and is_true(change.new, "Ready"):
            self._ready_nodes.add(name_of(change.new))

    def _note_pod(self, change: Change) -> None:
        workload = self.lives.note(change).workload
        was = change.old is not None and _serves(change.old)
        now = change.type != "DELETED" and _serves(change.new)
        if was != now:
            self._ready[workload] = self._ready.get(workload, 0) + (1 if now else -1)
            self._refresh(workload)

    def _note_workload(self, change: Change) -> None:
        found = change.new
        if change.kind is REPLICA_SET and controller_ref(found) is not None:
            return
        name = f"{change.kind.name} {namespace_of(found)}/{name_of(found)}"
        if change.type == "DELETED":
            self._desired.pop(name, None)
            self._workloads.pop(name, None)
            return
        wanted = (found.get("status") or {}).get("desiredNumberScheduled", 0)
        self._desired[name] = wanted if change.kind is DAEMON_SET else found["spec"].get("replicas", 1)
        self._refresh(name)

    def _refresh(self, name: str) -> None:
        if name in self._desired:
            self._workloads[name] = {"desired": self._desired[name], "ready": self._ready.get(name, 0)}

    def _sample_change(self) -> None:
        self._armed = False
        shown = self._show()
        if shown != self._shown:
            self._keep(shown)

    def _sample(self) -> None:
        self._measured = self._measure()
        self._keep(self._show())

    def _keep(self, shown: Obj) -> None:
        self._shown = shown
        if self._times and self._times[-1] == self._loop.now_ms:
            self._times.pop()
            self.samples.pop()
        self._times.append(self._loop.now_ms)
        sums = {"requested": self._sum("used"), "allocatable": self._sum("allocatable")}
        self.samples.append({"time": precise(self._loop.now_ms), **shown, **sums, **self._measured})

    def _show(self) -> Obj:
        """Return the part whose changes start a sample of their own."""
        return {
            **self._nodes(),
            "workloads": dict(sorted(self._workloads.items())),
            "pending": len(self._books.pending),
        }

    def _nodes(self) -> Obj:
        """Give machines and their price; the same object as long as nothing about them changes."""
        machines = sorted(self._cloud.machines.values(), key=lambda machine: machine.name)
        seen = [(machine.name, machine.state, machine.name in self._ready_nodes) for machine in machines]
        if seen != self._seen_nodes or not self._priced:
            nodes = [
                {
                    "name": machine.name,
                    "machine_type": machine.offer.machine_type,
                    "zone": machine.offer.zone,
                    "state": machine.state,
                    "usd_per_hour": machine.offer.usd_micro / 1_000_000,
                    "ready": machine.name in self._ready_nodes,
                }
                for machine in machines
            ]
            total = sum(machine.offer.usd_micro for machine in machines)
            self._seen_nodes, self._priced = seen, {"nodes": nodes, "usd_per_hour": total / 1_000_000}
        return self._priced

    def _sum(self, what: str) -> Obj:
        infos = [getattr(info, what) for info in self._books.nodes()]
        return {
            "cpu_m": sum(amounts.get("cpu", 0) for amounts in infos),
            "memory_bytes": sum(amounts.get("memory", 0) for amounts in infos),
        }

    def _measure(self) -> Obj:
        usages = self._load.usage().values()
        load: Obj = {}
        for name in self._load.apps:
            flow = self._load.flow(name)
            load[name] = {
                "users": self._load.users(name),
                "rps": flow.requests_per_1000s / 1000,
                "response_ms": flow.response_us / 1000,
            }
        used = {
            "cpu_m": sum(usage.cpu_nano for usage in usages) // 1_000_000,
            "memory_bytes": sum(usage.memory_bytes for usage in usages),
        }
        return {"used": used, "load": load}


def _serves(pod: Obj) -> bool:
    return is_ready(pod) and not is_terminating(pod) and not is_finished(pod)
