"""Garbage collection: pods of a node that is gone, and objects of a deleted owner."""

from kinema_sim.api.kube import KubeApi
from kinema_sim.controllers.base import Priority, WorkQueue
from kinema_sim.engine.kinds import JOB, NAMESPACE, NODE, POD, REPLICA_SET
from kinema_sim.engine.objects import Key, Obj, controller_ref, is_terminating, key_of, name_of, node_of, uid_of
from kinema_sim.engine.store import Change, Store
from kinema_sim.scheduler.filters import tolerates

_DEPENDANTS = (REPLICA_SET, JOB, POD)


class Cleanup:
    """Garbage of nodes, owners and namespaces that are gone, and eviction by NoExecute taints."""

    def __init__(self, store: Store, api: KubeApi) -> None:
        self.store = store
        self._api = api
        self._nodes = WorkQueue(store.loop, Priority.CLEANUP, self._sync_node)
        self._owners = WorkQueue(store.loop, Priority.CLEANUP, self._sync_owner)
        self._namespaces = WorkQueue(store.loop, Priority.CLEANUP, self._sync_namespace)
        store.subscribe(self.note)

    def note(self, change: Change) -> None:
        """Queue nodes that changed or went, and owners and namespaces that went."""
        if change.kind is NODE:
            self._nodes.add(("", name_of(change.new)))
        elif change.kind is POD and change.type == "ADDED" and node_of(change.new):
            self._nodes.add(("", node_of(change.new)))
        if change.kind is NAMESPACE and change.type == "DELETED":
            self._namespaces.add(("", name_of(change.new)))
        if change.type == "DELETED":
            self._owners.add(("", uid_of(change.new)))
        elif change.type == "ADDED" and controller_ref(change.new) is not None:
            self._check_owner(change)

    def _sync_node(self, key: Key) -> None:
        node = self.store.find(NODE, key)
        for pod in self.store.pods_on(key[1]):
            if node is None:
                self.store.remove(POD, key_of(pod))
            elif not is_terminating(pod) and _is_driven_off(pod, node):
                self._api.delete_pod(pod)

    def _sync_owner(self, key: Key) -> None:
        for kind in _DEPENDANTS:
            for child in self.store.owned(kind, key[1]):
                if kind is POD:
                    self._api.delete_pod(child)
                else:
                    self.store.remove(kind, key_of(child))

    def _sync_namespace(self, key: Key) -> None:
        """Remove the objects of a namespace that is gone."""
        if self.store.find(NAMESPACE, key) is not None:
            return
        for kind in self.store.kinds():
            for obj in self.store.sorted(kind, key[1]) if kind.namespaced else ():
                self.store.remove(kind, key_of(obj))

    def _check_owner(self, change: Change) -> None:
        """Queue a child that was created after its owner was deleted."""
        owner = controller_ref(change.new)
        if owner is None:
            return
        for kind in self.store.kinds():
            if kind.name == owner["kind"]:
                found = self.store.get(kind, change.new["metadata"].get("namespace", ""), owner["name"])
                if found is None or uid_of(found) != owner["uid"]:
                    self._owners.add(("", owner["uid"]))


def _is_driven_off(pod: Obj, node: Obj) -> bool:
    taints = node["spec"].get("taints") or ()
    tolerations = pod["spec"].get("tolerations") or ()
    return any(taint["effect"] == "NoExecute" and not tolerates(tolerations, taint) for taint in taints)
