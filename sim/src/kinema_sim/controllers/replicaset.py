"""ReplicaSets: as many pods as asked for."""

from kinema_sim.controllers.base import (
    REPLICA_FAILURE,
    RETRY_MS,
    Controller,
    create_pods,
    deletion_order,
    is_available,
    pod_of_template,
)
from kinema_sim.engine.kinds import POD, REPLICA_SET
from kinema_sim.engine.objects import (
    Key,
    Obj,
    controller_ref,
    drop_condition,
    is_active,
    is_ready,
    is_true,
    labels_of,
    set_condition,
    uid_of,
)


class ReplicaSetController(Controller):
    """Creates missing pods and deletes the surplus in upstream's order."""

    kind = REPLICA_SET

    def sync(self, key: Key, found: Obj) -> None:
        """Make the set's pods as many as it asks for."""
        pods = [pod for pod in self.store.owned(POD, uid_of(found)) if is_active(pod)]
        missing = int(found["spec"]["replicas"]) - len(pods)
        drafts = [pod_of_template(found, found["spec"]["template"])] * missing if missing > 0 else []
        refused = create_pods(self.store, drafts)
        if refused:
            self._queue.add(key, delay_ms=RETRY_MS)
        if missing < 0:
            ranked = deletion_order(pods, self._related(found), self.store.loop.now_ms)
            for pod in ranked[:-missing]:
                self._api.delete_pod(pod)
        self._report(key, refused)

    def _related(self, found: Obj) -> list[Obj]:
        """Return active pods of all sets under the same owner."""
        owner = controller_ref(found)
        siblings = self.store.owned(REPLICA_SET, owner["uid"]) if owner else [found]
        return [pod for sibling in siblings for pod in self.store.owned(POD, uid_of(sibling)) if is_active(pod)]

    def _report(self, key: Key, refused: str) -> None:
        found = self.store.find(REPLICA_SET, key)
        if found is None:
            return
        pods = [pod for pod in self.store.owned(POD, uid_of(found)) if is_active(pod)]
        wait = int(found["spec"].get("minReadySeconds") or 0)
        ready = [pod for pod in pods if is_ready(pod)]
        available = [pod for pod in ready if is_available(pod, wait, self.store.loop.now_ms)]
        wanted = (found["spec"]["template"].get("metadata") or {}).get("labels") or {}
        labeled = [pod for pod in pods if wanted.items() <= labels_of(pod).items()]
        status: Obj = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(labeled),
            "readyReplicas": len(ready),
            "availableReplicas": len(available),
            "observedGeneration": found["metadata"].get("generation", 1),
        }
        if len(available) < len(ready):
            self._queue.add(key, delay_ms=1000)

        def change(draft: Obj) -> None:
            before = (draft.get("status") or {}).get("conditions")
            draft["status"] = {**status, **({"conditions": before} if before else {})}
            if refused and not is_true(draft, REPLICA_FAILURE):  # the text would change at each try
                failure = {"type": REPLICA_FAILURE, "status": "True", "reason": "FailedCreate", "message": refused}
                set_condition(draft, failure, self.store.loop.now)
            elif not refused:
                drop_condition(draft, REPLICA_FAILURE)

        self.store.edit_status(REPLICA_SET, key, change)
