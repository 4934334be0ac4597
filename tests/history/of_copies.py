"""What must hold of Deployments whose owner excludes a second copy: one replica, and an update that adds none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.e2e.auditor import controller_of
from tests.e2e.follower import Objects
from tests.history.record import JSON, History

_STRATEGY: Final = "kinema.io/strategy"
_ADDING: Final = {"surge-up", "roll"}
"""Steps that run more pods of their target for a while."""
_LATE: Final = timedelta(seconds=10)
"""How long it may take until an owner's word has come to whoever decides."""


def no_second_copy_asked_for(history: History) -> Iterator[str]:
    """No step surges or rolls a Deployment whose owner has excluded a second copy for a while."""
    said: dict[str, list[tuple[datetime, bool]]] = {}
    for key, item in history.before["Deployment"].items():
        said[key] = [(datetime.min.replace(tzinfo=UTC), excludes_copies(item))]
    for change in history.changes:
        if change.kind == "Deployment" and change.type != "DELETED":
            said.setdefault(change.key, []).append((change.at, excludes_copies(change.item)))
    for entry in history.intents:
        kind, _, key = entry.body["step"]["target"].partition("/")
        if kind != "Deployment" or entry.body["step"]["kind"] not in _ADDING:
            continue
        since: datetime | None = None
        for at, excluded in said.get(key, ()):
            if at < entry.time:  # at the very time of a simulated one lies what it led to
                since = (since or at) if excluded else None
        if since is not None and entry.time - since > _LATE:
            yield f"{entry.body['step']['id']}: its owner lets no second copy run"


def no_second_copy_ready(history: History) -> Iterator[str]:
    """No pod becomes Ready beside the only one of such a Deployment, unless that is ending."""
    objects: Objects = {kind: dict(history.before[kind]) for kind in ("Deployment", "ReplicaSet", "Pod")}
    for change in history.changes:
        held = objects.get(change.kind)
        if held is None:
            continue
        before = held.pop(change.key, None)
        if change.type == "DELETED":
            continue
        held[change.key] = change.item
        if change.kind != "Pod" or not _serves(change.item) or (before is not None and _serves(before)):
            continue
        kind, _, key = controller_of(objects, change.item).partition(" ")
        owner = objects["Deployment"].get(key) if kind == "Deployment" else None
        if owner is None or not excludes_copies(owner):
            continue
        mine = [pod for pod in held.values() if _serves(pod) and controller_of(objects, pod) == f"{kind} {key}"]
        if len(mine) > 1:
            yield f"pod {change.key} is Ready beside another copy, which its owner excludes"


def excludes_copies(deployment: JSON) -> bool:
    """Whether the owner of a Deployment lets no second pod run beside its only one, not even in an update."""
    spec = deployment["spec"]
    update = spec.get("strategy") or {}
    bound = (update.get("rollingUpdate") or {}).get("maxSurge", "25%")
    marks = (spec["template"].get("metadata", {}).get("annotations"), deployment["metadata"].get("annotations"))
    word = next((given[_STRATEGY] for given in marks if given and _STRATEGY in given), "")
    adds_none = update.get("type") == "Recreate" or str(bound) in {"0", "0%"}
    return spec.get("replicas", 1) == 1 and adds_none and word != "surge"


def _serves(pod: JSON) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


INVARIANTS: Final = (no_second_copy_asked_for, no_second_copy_ready)
