"""The out-of-memory killer of every node's kernel.

A pod whose containers use more memory than their limits is killed. So is, where the pods of a node use more than it has
for pods, the one that is furthest above what it requests, one after the other until the others have room.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kinema_sim.controllers.base import Priority
from kinema_sim.controllers.kubelet import Kubelets
from kinema_sim.engine.kinds import NODE, POD
from kinema_sim.engine.objects import Key, annotations_of, key_of, name_of, node_of
from kinema_sim.engine.store import Change, Store
from kinema_sim.load.generator import WORKLOAD, LoadGenerator, Moment
from kinema_sim.scheduler.books import amounts

LOOK_MS = 15_000
"""Between two looks: usage is not looked at more often elsewhere either."""


@dataclass(frozen=True)
class Holder:
    """A pod that holds memory, in bytes."""

    key: Key
    used: int
    request: int
    limit: int | None


@dataclass(frozen=True)
class Killed:
    """A pod that was killed."""

    at_ms: int
    workload: str
    """`namespace/name`, where its pods follow a series."""
    used: int
    """Bytes."""


def victims(holders: Sequence[Holder], has: int) -> list[Key]:
    """Return the pods of a node that are killed, in order; of those equally far above their requests the first name."""
    found = [one.key for one in holders if one.limit is not None and one.used > one.limit]
    left = sorted((one for one in holders if one.key not in found), key=lambda one: (one.request - one.used, one.key))
    while left and sum(one.used for one in left) > has:
        found.append(left.pop(0).key)
    return found


class OutOfMemory:
    """Kills pods whose node has no memory for them."""

    def __init__(self, store: Store, load: LoadGenerator, kubelets: Kubelets) -> None:
        self._store = store
        self._load = load
        self._kubelets = kubelets
        self._seen: Moment | None = None
        self._changed: set[str] = set()
        """Nodes that have changed since the last look, or a pod of theirs has."""
        self.killed: list[Killed] = []
        store.subscribe(self._note)
        store.loop.every(LOOK_MS, self._look, priority=Priority.KUBELET)

    def _note(self, change: Change) -> None:
        if change.kind is NODE:
            self._changed.add(name_of(change.new))
        elif change.kind is POD:
            self._changed.add(node_of(change.new))

    def _look(self) -> None:
        """Look at the nodes where memory may have become short; nowhere where nothing has changed since the last look.

        Users of applications, and series that go on, change what pods of any node hold.
        """
        moment, seen = self._load.moment, self._seen
        if moment == seen:
            return
        everywhere = bool(self._load.apps) or seen is None or moment[2] != seen[2]
        names = [name_of(node) for node in self._store.each(NODE)] if everywhere else self._changed
        found = [victim for name in sorted(names) for victim in self._victims(name)]
        self._seen = moment
        self._changed.clear()
        for key, used in found:
            pod = self._store.find(POD, key)
            assert pod is not None
            workload = annotations_of(pod).get(WORKLOAD, "")
            self.killed.append(Killed(self._store.loop.now_ms, workload, used))
            self._kubelets.kill(pod, "OOMKilled")

    def _victims(self, name: str) -> list[tuple[Key, int]]:
        """Return the pods of a node that are killed, and what they use."""
        node, here = self._store.get(NODE, "", name), self._store.pods_on(name)
        if node is None:
            return []
        used = self._load.memory(here)
        has = amounts(node["status"].get("allocatable")).get("memory", 0)
        holders = []
        for pod in here:
            if (key := key_of(pod)) in used:
                requests, limits = self._load.amounts(pod)
                holders.append(Holder(key, used[key], requests.get("memory", 0), limits.get("memory")))
        return [(key, used[key]) for key in victims(holders, has)]
