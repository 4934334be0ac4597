"""The out-of-memory killer of every node's kernel.

A pod whose containers use more memory than their limits is killed. So is, where the pods of a node use more than it has
for pods, the one that is furthest above what it requests, one after the other until the others have room.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kinema_sim.controllers.base import Priority
from kinema_sim.controllers.kubelet import Kubelets
from kinema_sim.engine.kinds import NODE, POD
from kinema_sim.engine.objects import Key, annotations_of, key_of, name_of
from kinema_sim.engine.store import Store
from kinema_sim.load.generator import WORKLOAD, LoadGenerator
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
        self._seen: object = None
        self.killed: list[Killed] = []
        store.loop.every(LOOK_MS, self._look, priority=Priority.KUBELET)

    def _look(self) -> None:
        """Look at every node, unless nothing has changed since the last time."""
        moment = self._load.moment
        if moment == self._seen:
            return
        self._seen = moment
        usage = self._load.usage()
        for node in self._store.sorted(NODE):
            here = [pod for pod in self._store.pods_on(name_of(node)) if key_of(pod) in usage]
            has = amounts(node["status"].get("allocatable")).get("memory", 0)
            holders = []
            for one in here:
                requests, limits = self._load.amounts(one)
                used = usage[key_of(one)].memory_bytes
                holders.append(Holder(key_of(one), used, requests.get("memory", 0), limits.get("memory")))
            for key in victims(holders, has):
                pod = self._store.find(POD, key)
                assert pod is not None
                workload = annotations_of(pod).get(WORKLOAD, "")
                self.killed.append(Killed(self._store.loop.now_ms, workload, usage[key].memory_bytes))
                self._kubelets.kill(pod, "OOMKilled")
