"""Reading a history's changes and intents, for whoever judges them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from tests.e2e.follower import Change, Objects
from tests.history.record import JSON, History


def by_target(history: History) -> dict[tuple[str, str], list[datetime]]:
    """When steps were intended, by kind and target."""
    found: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
    for entry in history.intents:
        found[entry.body["step"]["kind"], entry.body["step"]["target"]].append(entry.time)
    return found


def modified(history: History, *kinds: str) -> Iterator[tuple[Change, JSON]]:
    """Changes of objects of these kinds that were there before, each with what was there."""
    held: Objects = {kind: dict(history.before.get(kind, {})) for kind in kinds}
    for change in history.changes:
        if change.kind not in held:
            continue
        before = held[change.kind].pop(change.key, None)
        if change.type != "DELETED":
            held[change.kind][change.key] = change.item
            if before is not None:
                yield change, before


def annotation(item: JSON, key: str) -> str:
    """The value of an annotation; empty where there is none."""
    return str((item["metadata"].get("annotations") or {}).get(key, ""))


def scaled_by(autoscaler: JSON) -> str:
    """The workload whose replicas an autoscaler sets, as steps name it."""
    target = autoscaler["spec"]["scaleTargetRef"]
    return f"{target['kind']}/{autoscaler['metadata']['namespace']}/{target['name']}"
