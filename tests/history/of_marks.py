"""What must hold of the marks that an execution leaves on objects, and of those that others leave there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from tests.history.changes import annotation, by_target, modified, scaled_by
from tests.history.record import JSON, History

_FENCING: Final = "kinema.io/fencing"
_MARKS: Final = ("kinema.io/disrupted",)
_PROTECTION: Final = {
    "Pod": (
        "karpenter.sh/do-not-disrupt",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction",
        "kinema.io/do-not-move",
    ),
    "Node": ("karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/scale-down-disabled"),
}
_THEIRS: Final = {
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
}
"""Taints by which another autoscaler says that it deletes a node."""
_COST_BEFORE: Final = "kinema.io/pod-deletion-cost-before"
_STEERING: Final = "kube-system/kinema-steering"
_LATE: Final = timedelta(seconds=10)
"""How long it may take until somebody's word about an object has come to whoever decides."""


def marks_explained(history: History) -> Iterator[str]:
    """A label or taint of ours on a node has an intent before it."""
    since = by_target(history)
    for change, before in modified(history, "Node"):
        new = {key for key in _marks(change.item) if key not in _marks(before)}
        marked = since.get(("taint", change.key), ())
        if new and not any(at <= change.at for at in marked):
            yield f"node {change.key} is marked {', '.join(sorted(new))} without an intent"


def costs_explained(history: History) -> Iterator[str]:
    """A pod that gets a deletion cost of ours was named by a surge, or by the way back of one, before.

    One that leaves in the place of a victim that is gone is named by the attempt at the surge's end that marks it.
    """
    named: dict[str, datetime] = {}
    for entry in history.intents:
        if entry.body["step"]["kind"] in {"surge-up", "revert"}:
            for uid in entry.body["step"]["pods"]:
                named.setdefault(uid, entry.time)
    instead = [
        entry.body["detail"]
        for entry in history.of("step-failed")
        if str(entry.body["step"]).startswith("surge-down/") and entry.body["reason"] == "not-ready"
    ]
    for change, before in modified(history, "Pod"):
        had, has = (_COST_BEFORE in (item["metadata"].get("annotations") or {}) for item in (before, change.item))
        since = named.get(change.item["metadata"]["uid"])
        told = any(change.item["metadata"]["name"] in detail for detail in instead)
        if has and not had and not told and (since is None or since > change.at):
            yield f"pod {change.key} gets a deletion cost without an intent"


def limits_explained(history: History) -> Iterator[str]:
    """The limits of an autoscaler change only while its workload is surged, or given back."""
    since = by_target(history)
    for change, before in modified(history, "HorizontalPodAutoscaler"):
        target = scaled_by(change.item)
        begun = [at for kind in ("surge-up", "surge-down", "revert") for at in since.get((kind, target), ())]
        changed = any(change.item["spec"].get(key) != before["spec"].get(key) for key in ("minReplicas", "maxReplicas"))
        if changed and not any(at <= change.at for at in begun):
            yield f"autoscaler {change.key}: its limits change without an intent"


def steering_explained(history: History) -> Iterator[str]:
    """New pods of a workload are steered only after that was intended."""
    steered: dict[str, datetime] = {}
    for entry in history.intents:
        step = entry.body["step"]
        if step["kind"] == "prefer-nodes":
            by_name = step["target"].startswith("Deployment/")
            steered.setdefault(step["target"].replace("/", ".") if by_name else step["uid"], entry.time)
    before = history.before["ConfigMap"].get(_STEERING, {}).get("data") or {}
    for change in history.changes:
        if change.kind == "ConfigMap" and change.key == _STEERING:
            data = change.item.get("data") or {}
            new = [key for key in data if key not in before and (key not in steered or steered[key] > change.at)]
            yield from (f"pods of {key} are steered without an intent" for key in new)
            before = data


def written_in_turn(history: History) -> Iterator[str]:
    """On no object does the token of an earlier holder of the lease stand after that of a later one."""
    highest: dict[str, int] = {}
    for change in history.changes:
        token = (change.item["metadata"].get("annotations") or {}).get(_FENCING, "")
        uid = change.item["metadata"].get("uid", change.key)
        if token.isdecimal() and int(token) < highest.get(uid, 0):
            yield f"{change.kind} {change.key}: {token} after {highest[uid]}"
        highest[uid] = max(highest.get(uid, 0), int(token) if token.isdecimal() else 0)


def owners_have_the_last_word(history: History) -> Iterator[str]:
    """What is marked as untouchable is named by no intent to end, close or delete it, for as long as it is."""
    said: dict[str, list[tuple[datetime, bool]]] = {}
    for change, before in modified(history, "Pod", "Node"):
        had, has = _protected(before), _protected(change.item)
        if has - had or (had and not has and _without_annotations(before) == _without_annotations(change.item)):
            said.setdefault(change.item["metadata"]["uid"], []).append((change.at, bool(has)))
    for entry in history.intents:
        step = entry.body["step"]
        node = [step.get("uid", "")]
        closed = node if step["id"].startswith("taint/") else []
        touched = {"evict": step["pods"], "surge-down": step["pods"], "delete": node, "taint": closed}
        for uid in touched.get(step["kind"], ()):
            words = [(at, held) for at, held in said.get(uid, ()) if at <= entry.time]
            if words and words[-1][1] and entry.time > words[-1][0] + _LATE:
                yield f"{step['id']} touches {uid}, which its owner protects by then"


def _without_annotations(item: JSON) -> JSON:
    """Return an object without what a change of its annotations changes: a client takes a mark off by itself."""
    varying = {"annotations", "resourceVersion", "managedFields"}
    return {**item, "metadata": {key: value for key, value in item["metadata"].items() if key not in varying}}


def _protected(item: JSON) -> set[str]:
    """Return the marks of others by which a pod or node is to be left alone."""
    kind = "Node" if "allocatable" in item.get("status", {}) else "Pod"
    return {key for key in _PROTECTION[kind] if annotation(item, key)} | (_taints(item) & _THEIRS)


def _taints(node: JSON) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints") or ()}


def _marks(node: JSON) -> set[str]:
    return {key for key in (*(node["metadata"].get("labels") or ()), *_taints(node)) if key in _MARKS}


INVARIANTS: Final = (
    marks_explained,
    costs_explained,
    limits_explained,
    steering_explained,
    written_in_turn,
    owners_have_the_last_word,
)
