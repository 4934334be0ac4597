"""DaemonSets: one pod on every node that matches."""

import msgspec

from kinema_sim.controllers.base import RETRY_MS, Controller, create_pods, pod_of_template
from kinema_sim.controllers.deployment import scaled
from kinema_sim.engine.clock import digest
from kinema_sim.engine.kinds import DAEMON_SET, NODE, POD
from kinema_sim.engine.objects import (
    Key,
    Obj,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    labels_of,
    name_of,
    uid_of,
)
from kinema_sim.engine.selectors import match_node_term
from kinema_sim.engine.store import Change
from kinema_sim.scheduler.filters import tolerates

_HASH = "controller-revision-hash"
_NEEDED = "requiredDuringSchedulingIgnoredDuringExecution"
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Taints that every daemon pod tolerates; with them a new node's not-ready taint, see `_tolerations`."""


class DaemonSetController(Controller):
    """Creates a pod pinned to each matching node, and replaces outdated ones a few at a time."""

    kind = DAEMON_SET

    def note(self, change: Change) -> None:
        """Queue the sets that a change concerns."""
        super().note(change)
        if change.kind is NODE and (change.old is None or _placing(change.old) != _placing(change.new)):
            for found in self.store.sorted(DAEMON_SET):
                self._queue.add(key_of(found))

    def sync(self, key: Key, found: Obj) -> None:
        """Bring one set's pods in line with the nodes."""
        revision = (
            f"{digest('daemon', msgspec.json.encode(found['spec']['template'], order='sorted').decode()) % 16**10:010x}"
        )
        wanted = {name_of(node) for node in self.store.each(NODE) if self._belongs(found, node)}
        have: dict[str, Obj] = {}
        for pod in self.store.owned(POD, uid_of(found)):
            target = pinned_to(pod)
            if is_finished(pod) or target not in wanted:
                self._api.delete_pod(pod)
            else:
                have[target] = pod
        missing = [self._draft(found, name, revision) for name in sorted(wanted - have.keys())]
        if create_pods(self.store, missing):
            self._queue.add(key, delay_ms=RETRY_MS)
        self._update(found, have, revision)
        self._report(key, wanted, revision)

    def _belongs(self, found: Obj, node: Obj) -> bool:
        spec = found["spec"]["template"]["spec"]
        labels = labels_of(node)
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            return False
        required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_NEEDED)
        if required is not None and not any(match_node_term(term, node) for term in required["nodeSelectorTerms"]):
            return False
        accepted = _tolerations(found)
        return all(
            taint["effect"] == "PreferNoSchedule" or tolerates(accepted, taint)
            for taint in node["spec"].get("taints") or ()
        )

    def _draft(self, found: Obj, node: str, revision: str) -> Obj:
        pod = pod_of_template(found, found["spec"]["template"], labels={_HASH: revision})
        pod["spec"]["tolerations"] = _tolerations(found)
        here = {"key": "metadata.name", "operator": "In", "values": [node]}
        affinity: Obj = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity[_NEEDED] = {"nodeSelectorTerms": [{"matchFields": [here]}]}
        return pod

    def _update(self, found: Obj, have: dict[str, Obj], revision: str) -> None:
        strategy: Obj = found["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        most = scaled((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), len(have), up=True)
        missing = sum(1 for pod in have.values() if not is_ready(pod) or is_terminating(pod))
        for _, pod in sorted(have.items()):
            if labels_of(pod).get(_HASH) == revision or is_terminating(pod):
                continue
            if is_ready(pod) and missing >= most:
                continue
            missing += 1 if is_ready(pod) else 0
            self._api.delete_pod(pod)

    def _report(self, key: Key, wanted: set[str], revision: str) -> None:
        found = self.store.find(DAEMON_SET, key)
        if found is None:
            return
        pods = [pod for pod in self.store.owned(POD, uid_of(found)) if not is_terminating(pod)]
        scheduled = [pod for pod in pods if pinned_to(pod) in wanted]
        ready = sum(1 for pod in scheduled if is_ready(pod))
        status = {
            "currentNumberScheduled": len(scheduled),
            "desiredNumberScheduled": len(wanted),
            "numberMisscheduled": len(pods) - len(scheduled),
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": len(wanted) - ready,
            "updatedNumberScheduled": sum(1 for pod in scheduled if labels_of(pod).get(_HASH) == revision),
            "observedGeneration": found["metadata"].get("generation", 1),
        }
        self.store.edit_status(DAEMON_SET, key, lambda draft: draft.update(status=status))


def pinned_to(pod: Obj) -> str:
    """Give the node that a daemon pod was made for, empty when it names none."""
    terms = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(_NEEDED, {}).get("nodeSelectorTerms") or ()
    for term in terms:
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""


def _placing(node: Obj) -> tuple[object, ...]:
    return labels_of(node), node["spec"].get("taints"), node["spec"].get("unschedulable")


def _tolerations(found: Obj) -> list[Obj]:
    own = [dict(entry) for entry in found["spec"]["template"]["spec"].get("tolerations") or ()]
    return own + [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
