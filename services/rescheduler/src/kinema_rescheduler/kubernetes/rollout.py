"""Rolling updates: requests in the template and bounds of the strategy are patched, and what they were is kept.

Where the requests do not change, an annotation in the template makes it another one, as `kubectl rollout restart` does;
it stays. The new pods keep off the leaving nodes by their taint, and follow the steering policy by their Deployment.

The controller copies a Deployment's annotations onto its ReplicaSets and removes none. As long as it works with the
Deployment from before the end, it may put Kinema's annotation there again: the end is done only when the controller has
seen it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from kinema_core.events import Amounts, FrozenMap
from kinema_core.model.quantity import parse_amount
from kinema_kubernetes.client import STRATEGIC
from kinema_kubernetes.objects import Json, annotations_of, generation, labels_of, selector_text, uid, workload_path
from kinema_rescheduler.errors import NotFoundError, PermanentError, TransientError
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.names import ROLLED, ROLLED_BY

_NO_SURGE: Final = (0, "0", "0%")
BOUNDS_BEFORE: Final = "kinema.io/rolling-update-before"
"""Label of a Deployment under a rolling update by Kinema: its own bounds, as long as Kinema's are in force.

`kubectl rollout undo` puts the annotations of an older ReplicaSet in the place of the Deployment's, and leaves labels.
"""
_BOUNDS: Final = re.compile(r"maxSurge-([0-9]+)(pct)?\.maxUnavailable-([0-9]+)(pct)?")
_BY_DEFAULT: Final = "25%"


class Before(msgspec.Struct, frozen=True):
    """State of a workload before a rolling update by Kinema."""

    plan: str
    strategy: Json | None
    requests: dict[str, dict[str, str]]
    rolled: dict[str, dict[str, str]]
    """The requests that Kinema wrote, by container."""


async def roll(api: FencedClient, order: Order) -> Made:
    """Patch new requests into the template, and bounds under which no pod is missing."""
    path = workload_path(order.step.target)
    if not order.step.target.startswith("Deployment/"):
        raise PermanentError("held", f"{order.step.target}: only a Deployment can be rolled")
    workload, changed = await api.modify(path, lambda now: _rolled(now, order), content_type=STRATEGIC)
    return Made("done" if changed else "adopted", FrozenMap(generation=generation(workload)))


def _rolled(workload: Json, order: Order) -> Json | None:
    step = order.step
    if step.uid and uid(workload) != step.uid:
        raise PermanentError("gone", f"{step.target} is another object of that name by now")
    left = before_of(workload)
    if left is not None and left.plan == order.plan:
        return None
    spec = workload["spec"]
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        raise PermanentError("held", f"{step.target} cannot run two generations side by side (strategy Recreate)")
    template, bounds = spec["template"]["spec"], bounds_before(workload)
    containers = requested(template["containers"], step.requests)
    before = Before(
        plan=order.plan,
        strategy={"type": "RollingUpdate", "rollingUpdate": bounds},
        requests={
            container["name"]: dict((container.get("resources") or {}).get("requests") or {})
            for container in template["containers"]
        },
        rolled={container["name"]: container["resources"]["requests"] for container in containers},
    )
    least = 1 if bounds["maxSurge"] in _NO_SURGE else bounds["maxSurge"]
    bound = step.replicas_to - step.replicas_from  # by quotas and room, where they admit fewer than the owner does
    rolling = {"maxUnavailable": 0, "maxSurge": bound if bound > 0 else least}
    changed = any(
        before.requests[name].get(resource) != text
        for name, requests in before.rolled.items()
        for resource, text in requests.items()
    )
    return {
        "metadata": {
            "annotations": {ROLLED: msgspec.json.encode(before).decode()},
            "labels": {BOUNDS_BEFORE: _as_label(bounds)},
        },
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {
                **({} if changed else {"metadata": {"annotations": {ROLLED_BY: order.plan}}}),
                "spec": {"containers": containers},
            },
        },
    }


def requested(containers: list[Json], wanted: Amounts) -> list[Json]:
    """Return new requests of each container as a patch: they add up to what is wanted per pod, within its limits."""
    patches: dict[str, dict[str, str]] = {container["name"]: {} for container in containers}
    for resource in sorted(wanted):
        current = {item["name"]: _requested(item, resource) for item in containers}
        for name, amount in _shared(current, wanted[resource]).items():
            container = next(item for item in containers if item["name"] == name)
            patches[name][resource] = _written(resource, min(amount, _limit(container, resource)))
    return [{"name": name, "resources": {"requests": requests}} for name, requests in patches.items() if requests]


def _shared(current: dict[str, int], wanted: int) -> dict[str, int]:
    """Share out an amount in the proportion of now; the first container takes what rounding leaves."""
    total = sum(current.values())
    first = next(iter(current))
    shares = {name: wanted * amount // total if total else 0 for name, amount in current.items()}
    shares[first] += wanted - sum(shares.values())
    return shares


def _requested(container: Json, resource: str) -> int:
    text = ((container.get("resources") or {}).get("requests") or {}).get(resource)
    return parse_amount(resource, str(text)) if text is not None else 0


def _limit(container: Json, resource: str) -> int:
    text = ((container.get("resources") or {}).get("limits") or {}).get(resource)
    return parse_amount(resource, str(text)) if text is not None else 2**62


def _written(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else str(amount)


def before_of(workload: Json) -> Before | None:
    """Return what a workload was before Kinema's rolling update; None where no such update goes on."""
    text = annotations_of(workload).get(ROLLED)
    return msgspec.json.decode(text, type=Before) if text else None


def bounds_before(workload: Json) -> Json:
    """`maxSurge` and `maxUnavailable` as the owner wants them: those of now unless Kinema set them."""
    now = (workload["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    noted = _BOUNDS.fullmatch(labels_of(workload).get(BOUNDS_BEFORE, ""))
    if now.get("maxUnavailable") == 0 and noted is not None:
        surge, of_surge, unavailable, of_unavailable = noted.groups()
        return {"maxSurge": _bound(surge, of_surge), "maxUnavailable": _bound(unavailable, of_unavailable)}
    before = before_of(workload)
    if now.get("maxUnavailable") == 0 and before is not None:
        return _whole((before.strategy or {}).get("rollingUpdate") or {})
    return _whole(now)


def _whole(bounds: Mapping[str, Any]) -> Json:
    return {key: bounds.get(key, _BY_DEFAULT) for key in ("maxSurge", "maxUnavailable")}


def _bound(number: str, percent: str | None) -> int | str:
    return f"{number}%" if percent else int(number)


def _as_label(bounds: Json) -> str:
    return ".".join(f"{key}-{str(bounds[key]).replace('%', 'pct')}" for key in ("maxSurge", "maxUnavailable"))


async def restore_template(api: FencedClient, order: Order) -> bool:
    """Put the template back as it was before this plan's update; return whether anything is left for the update's end.

    The bounds stay until `finalize-rollout`: the way back is a rolling update too, and no pod may be missing in it.
    Where a pod was refused, as by a quota, only one more at a time is asked for: a ReplicaSet whose creations fail
    again and again tries less and less often, up to 17 minutes apart, also once there is room.
    """
    if not order.step.target.startswith("Deployment/"):
        return False

    def change(workload: Json) -> Json | None:
        before = before_of(workload)
        if before is None or before.plan != order.plan:
            return None
        template = workload["spec"]["template"]
        marks = (template.get("metadata") or {}).get("annotations") or {}
        mark = {"metadata": {"annotations": {ROLLED_BY: None}}} if marks.get(ROLLED_BY) == order.plan else {}
        requests = _old_requests(template, before)
        if not (mark or requests):
            return None
        one = _is_refused(workload) and _is_bounded(workload)
        bounds = {"strategy": {"rollingUpdate": {"maxSurge": 1}}} if one else {}
        return {"spec": {**bounds, "template": {**mark, "spec": {"containers": requests}}}}

    workload, _ = await api.modify(workload_path(order.step.target), change, content_type=STRATEGIC)
    left = before_of(workload)
    return BOUNDS_BEFORE in labels_of(workload) or (left is not None and left.plan == order.plan)


def _is_bounded(workload: Json) -> bool:
    """Return whether Kinema's bounds are in force: another client may have set others since."""
    rolling = (workload["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    return rolling.get("maxUnavailable") == 0 and BOUNDS_BEFORE in labels_of(workload)


def _is_refused(workload: Json) -> bool:
    """Return whether the API server refuses pods of a workload."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "ReplicaFailure" and one["status"] == "True" for one in conditions)


def _old_requests(template: Json, before: Before) -> list[Json]:
    """Return the requests of before, as a patch of each container: of those that Kinema set, none of its owner."""
    now = {container["name"]: container for container in template["spec"]["containers"]}
    back = {
        name: {
            resource: before.requests.get(name, {}).get(resource)
            for resource, text in written.items()
            if _requested(now[name], resource) == parse_amount(resource, text)
            and before.requests.get(name, {}).get(resource) != text
        }
        for name, written in before.rolled.items()
        if name in now
    }
    return [{"name": name, "resources": {"requests": requests}} for name, requests in back.items() if requests]


_LOOKS: Final = 40
_PAUSE: Final = 0.25
"""Real seconds between two looks whether the controller has seen the end."""
_CALM: Final = 4
"""Looks in a row that find no mark, where no new generation shows what the controller has seen."""


async def finalize_rollout(api: FencedClient, order: Order) -> Made:
    """Restore the bounds of the strategy, and remove Kinema's annotations."""
    path = workload_path(order.step.target)
    read = 0

    def resumed(now: Json) -> Json | None:
        nonlocal read
        read = generation(now)
        return _resumed(now)

    try:
        workload, changed = await api.modify(path, resumed, content_type=STRATEGIC)
    except NotFoundError:
        return Made("void")
    await api.disown(path)
    await forget(api, order, workload, mark=ROLLED, calm=1 if generation(workload) > read else _CALM)
    return Made("done" if changed else "adopted", FrozenMap(generation=generation(workload)))


async def forget(api: FencedClient, order: Order, ended: Json, *, mark: str, calm: int = 1) -> None:
    """Remove an annotation from the ReplicaSets until it cannot come again: the controller has seen the end.

    A new generation that is observed shows that at once. To take off an annotation alone makes none, and a try before
    this one may have made it: then the mark must stay away for `calm` looks.
    """
    still = 0
    for _ in range(_LOOKS):
        try:
            workload = await api.get(workload_path(order.step.target))
        except NotFoundError:
            return  # its ReplicaSets go with it
        seen = observed(workload) >= generation(ended) or uid(workload) != uid(ended)
        sets = await sets_of(api, order, ended)
        marked = [item for item in sets if mark in annotations_of(item)]
        for replica_set in marked:
            with suppress(NotFoundError):
                await api.patch(path_of(replica_set), {"metadata": {"annotations": {mark: None}}})
        still = still + 1 if seen and not marked else 0
        if still == calm:
            return
        await api.pause(_PAUSE)
    raise TransientError("not-ready", f"{order.step.target}: its controller has not seen the end of its update")


def observed(workload: Json) -> int:
    """Return the newest generation that its controller has worked with."""
    return int((workload.get("status") or {}).get("observedGeneration") or 0)


def _resumed(workload: Json) -> Json | None:
    before = before_of(workload)
    if before is None and BOUNDS_BEFORE not in labels_of(workload):
        return None
    strategy = workload["spec"].get("strategy") or {}
    kept = (strategy.get("rollingUpdate") or {}).get("maxUnavailable") == 0  # else another client has changed it since
    bounds = {"strategy": {"rollingUpdate": bounds_before(workload)}} if kept else {}
    return {
        "metadata": {"annotations": {ROLLED: None}, "labels": {BOUNDS_BEFORE: None}},
        "spec": bounds,
    }


async def sets_of(api: FencedClient, order: Order, workload: Json) -> list[Json]:
    """Return the ReplicaSets of a Deployment."""
    namespace = order.step.target.split("/")[1]
    path = workload_path(f"ReplicaSet/{namespace}/-").removesuffix("/-")
    found = await api.items(path, labelSelector=selector_text(workload))
    return [
        item
        for item in found
        if any(owner.get("uid") == uid(workload) for owner in item["metadata"].get("ownerReferences") or [])
    ]


def path_of(replica_set: Json) -> str:
    """Return the path of a ReplicaSet."""
    metadata = replica_set["metadata"]
    return workload_path(f"ReplicaSet/{metadata['namespace']}/{metadata['name']}")
