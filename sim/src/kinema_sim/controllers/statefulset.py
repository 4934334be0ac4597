"""StatefulSets: named pods, in order, one at a time."""

import msgspec

from kinema_sim.controllers.base import (
    RETRY_MS,
    Controller,
    create_pods,
    is_available,
    pod_of_template,
)
from kinema_sim.engine.clock import digest
from kinema_sim.engine.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET
from kinema_sim.engine.objects import (
    Key,
    Obj,
    clone,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)

_REVISION = "controller-revision-hash"


def ordinal_of(pod: Obj) -> int:
    """Give the number at the end of the pod's name, -1 when there is none."""
    tail = name_of(pod).rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1


class StatefulSetController(Controller):
    """Takes one step at a time: create the next pod, wait for it, replace the highest outdated one."""

    kind = STATEFUL_SET

    def sync(self, key: Key, found: Obj) -> None:
        """Take the next step of one set."""
        revision = self._revision(found)
        pods = sorted(self.store.owned(POD, uid_of(found)), key=ordinal_of)
        self._step(found, pods, revision)
        self._report(key, revision)

    def _revision(self, found: Obj) -> str:
        number = digest("revision", msgspec.json.encode(found["spec"]["template"], order="sorted").decode())
        return f"{name_of(found)}-{number % 16**10:010x}"

    def _step(self, found: Obj, pods: list[Obj], revision: str) -> None:
        wanted = int(found["spec"]["replicas"])
        parallel = found["spec"].get("podManagementPolicy") == "Parallel"
        by_ordinal = {ordinal_of(pod): pod for pod in pods}
        for ordinal in range(wanted):
            pod = by_ordinal.get(ordinal)
            if pod is None:
                self._create(found, ordinal, revision)
            elif is_finished(pod):
                self._api.delete_pod(pod, grace=0)
            if not parallel and (pod is None or is_terminating(pod) or not self._available(found, pod)):
                return
        surplus = [pod for ordinal, pod in sorted(by_ordinal.items(), reverse=True) if ordinal >= wanted]
        for pod in surplus:
            self._api.delete_pod(pod)
            if not parallel:
                return
        if not surplus:
            self._update(found, by_ordinal, revision)

    def _available(self, found: Obj, pod: Obj) -> bool:
        wait = int(found["spec"].get("minReadySeconds") or 0)
        if is_ready(pod) and not is_available(pod, wait, self.store.loop.now_ms):
            self._queue.add(key_of(found), delay_ms=1000)
            return False
        return is_ready(pod)

    def _update(self, found: Obj, pods: dict[int, Obj], revision: str) -> None:
        strategy: Obj = found["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        first = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        for ordinal in range(int(found["spec"]["replicas"]) - 1, first - 1, -1):
            pod = pods.get(ordinal)
            if pod is None or is_terminating(pod):
                return
            if labels_of(pod).get(_REVISION) != revision:
                self._api.delete_pod(pod)
                return
            if not self._available(found, pod):
                return

    def _create(self, found: Obj, ordinal: int, revision: str) -> None:
        strategy: Obj = found["spec"].get("updateStrategy") or {}
        name = f"{name_of(found)}-{ordinal}"
        below = ordinal < int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        old = (found.get("status") or {}).get("currentRevision")
        labels = {
            _REVISION: old if below and old else revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        pod = pod_of_template(found, found["spec"]["template"], name=name, labels=labels)
        pod["spec"]["hostname"] = name
        for claim in found["spec"].get("volumeClaimTemplates") or ():
            self._claim(found, claim, pod)
        if create_pods(self.store, [pod]):
            self._queue.add(key_of(found), delay_ms=RETRY_MS)

    def _claim(self, found: Obj, template: Obj, pod: Obj) -> None:
        name = f"{template['metadata']['name']}-{name_of(pod)}"
        volume = {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": name}}
        pod["spec"].setdefault("volumes", []).append(volume)
        if self.store.get(PERSISTENT_VOLUME_CLAIM, namespace_of(found), name) is None:
            metadata = {**clone(template["metadata"]), "name": name, "namespace": namespace_of(found)}
            draft = {"metadata": metadata, "spec": clone(template["spec"]), "status": {"phase": "Pending"}}
            self.store.create(PERSISTENT_VOLUME_CLAIM, draft)

    def _report(self, key: Key, revision: str) -> None:
        found = self.store.find(STATEFUL_SET, key)
        if found is None:
            return
        pods = self.store.owned(POD, uid_of(found))
        updated = sum(1 for pod in pods if labels_of(pod).get(_REVISION) == revision)
        serving = [pod for pod in pods if is_ready(pod) and not is_terminating(pod)]
        ready, available = len(serving), sum([self._available(found, pod) for pod in serving])
        old = found.get("status") or {}
        complete = updated == len(pods) == ready == int(found["spec"]["replicas"])
        current = revision if complete or not old.get("currentRevision") else old["currentRevision"]
        status = {
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": available,
            "currentReplicas": sum(1 for pod in pods if labels_of(pod).get(_REVISION) == current),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": revision,
            "collisionCount": 0,
            "observedGeneration": found["metadata"].get("generation", 1),
        }
        self.store.edit_status(STATEFUL_SET, key, lambda draft: draft.update(status=status))
