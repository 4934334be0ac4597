"""Jobs: pods that run until enough of them have succeeded."""

from kinema_sim.controllers.base import RETRY_MS, Controller, create_pods, pod_of_template
from kinema_sim.engine.kinds import JOB, POD
from kinema_sim.engine.objects import Key, Obj, is_active, is_ready, name_of, phase_of, set_condition, uid_of


class JobController(Controller):
    """Keeps `parallelism` pods running until `completions` have succeeded."""

    kind = JOB

    def sync(self, key: Key, found: Obj) -> None:
        """Start what is missing of one job and return how far it is."""
        pods = self.store.owned(POD, uid_of(found))
        active = [pod for pod in pods if is_active(pod)]
        done = sum(1 for pod in pods if phase_of(pod) == "Succeeded")
        spec = found["spec"]
        wanted = 0 if spec.get("suspend") else min(int(spec["parallelism"]), int(spec["completions"]) - done)
        labels = {"batch.kubernetes.io/job-name": name_of(found), "job-name": name_of(found)}
        draft = pod_of_template(found, spec["template"], labels=labels)
        if create_pods(self.store, [draft] * (wanted - len(active))):
            self._queue.add(key, delay_ms=RETRY_MS)
        for pod in active[max(0, wanted) :]:
            self._api.delete_pod(pod)
        self._report(key, done)

    def _report(self, key: Key, done: int) -> None:
        found = self.store.find(JOB, key)
        if found is None:
            return
        active = [pod for pod in self.store.owned(POD, uid_of(found)) if is_active(pod)]
        now, complete = self.store.loop.now, done >= int(found["spec"]["completions"])

        def change(draft: Obj) -> None:
            status: Obj = draft["status"]
            status.setdefault("startTime", now)
            status.update(active=len(active), ready=sum(1 for pod in active if is_ready(pod)), succeeded=done)
            if complete:
                status.setdefault("completionTime", now)
                set_condition(draft, {"type": "Complete", "status": "True", "reason": "CompletionsReached"}, now)

        self.store.edit(JOB, key, change)
