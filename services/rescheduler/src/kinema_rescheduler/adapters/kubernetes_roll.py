"""Rolling updates: the template is patched, what it was before is kept on the workload until the update is over."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kinema_core.events import Amounts, FrozenMap
from kinema_core.model.quantity import parse_amount
from kinema_rescheduler.adapters.cluster import Made, Order
from kinema_rescheduler.adapters.kubernetes_api import (
    STRATEGIC,
    Json,
    KubernetesApi,
    NotFoundError,
    annotations_of,
    generation,
    uid,
    workload_path,
)
from kinema_rescheduler.errors import FinalError
from kinema_rescheduler.logic.names import EXPIRY, OPTIMIZED, PLAN, ROLLED

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_AWAY: Final[Json] = {"key": EXPIRY, "operator": "DoesNotExist"}
_TOWARDS: Final[Json] = {
    "weight": 100,
    "preference": {"matchExpressions": [{"key": OPTIMIZED, "operator": "Exists"}]},
}
_NO_SURGE: Final = (0, "0", "0%")


class _Before(msgspec.Struct, frozen=True):
    """What a workload was before our rolling update."""

    plan: str
    affinity: Json | None
    strategy: Json | None
    requests: dict[str, dict[str, str]]


async def roll(api: KubernetesApi, order: Order) -> Made:
    """Patch the template: off the nodes that go, towards those that stay, with new requests, never one pod below."""
    path = workload_path(order.step.target)
    if not order.step.target.startswith("Deployment/"):
        raise FinalError("held", f"{order.step.target}: only a Deployment can be rolled")
    workload, changed = await api.modify(path, lambda now: _rolled(now, order), content_type=STRATEGIC)
    return Made("done" if changed else "adopted", FrozenMap(generation=generation(workload)))


def _rolled(workload: Json, order: Order) -> Json | None:
    step = order.step
    if step.uid and uid(workload) != step.uid:
        raise FinalError("gone", f"{step.target} is another object of that name by now")
    left = _before(workload)
    if left is not None and left.plan == order.plan:
        return None
    spec = workload["spec"]
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        raise FinalError("held", f"{step.target} cannot run two generations side by side (strategy Recreate)")
    template = spec["template"]["spec"]
    before = _Before(
        plan=order.plan,
        affinity=left.affinity if left is not None else template.get("affinity"),
        strategy=left.strategy if left is not None else strategy or None,
        requests={
            container["name"]: dict((container.get("resources") or {}).get("requests") or {})
            for container in template["containers"]
        },
    )
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge", "25%")
    rolling = {"maxUnavailable": 0, "maxSurge": 1 if surge in _NO_SURGE else surge}
    return {
        "metadata": {"annotations": {ROLLED: msgspec.json.encode(before).decode()}},
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {
                # The plan's id makes the template another one also where affinity and requests are as wanted already.
                "metadata": {"annotations": {PLAN: order.plan}},
                "spec": {
                    "affinity": {"nodeAffinity": _node_affinity(template.get("affinity") or {})},
                    "containers": _containers(template["containers"], step.requests),
                },
            },
        },
    }


def _node_affinity(affinity: Json) -> Json:
    """The node affinity with our rules, once, beside whatever it holds."""
    node = affinity.get("nodeAffinity") or {}
    terms = (node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    required = []
    for term in terms:
        expressions = [item for item in term.get("matchExpressions") or [] if item != _AWAY]
        required.append({**term, "matchExpressions": [*expressions, _AWAY]})
    preferred = [item for item in node.get(_PREFERRED) or [] if item != _TOWARDS]
    return {_REQUIRED: {"nodeSelectorTerms": required}, _PREFERRED: [*preferred, _TOWARDS]}


def _containers(containers: list[Json], wanted: Amounts) -> list[Json]:
    """New requests of each container, so that they add up to what was wanted per pod (no more than its limit each)."""
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


def _before(workload: Json) -> _Before | None:
    text = annotations_of(workload).get(ROLLED)
    return msgspec.json.decode(text, type=_Before) if text else None


async def roll_finish(api: KubernetesApi, order: Order) -> Made:
    """The update is over: give the strategy back. The template stays as it is; changing it would roll again."""

    def change(workload: Json) -> Json | None:
        before = _before(workload)
        if before is None:
            return None
        return {"metadata": {"annotations": {ROLLED: None}}, "spec": {"strategy": _old_strategy(workload, before)}}

    try:
        workload, changed = await api.modify(workload_path(order.step.target), change, content_type=STRATEGIC)
    except NotFoundError:
        return Made("void")
    return Made("done" if changed else "adopted", FrozenMap(generation=generation(workload)))


def _old_strategy(workload: Json, before: _Before) -> Json:
    """The strategy of before; a change that somebody else made to it since stays."""
    now = (workload["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    if now.get("maxUnavailable") != 0:
        return {}
    old = (before.strategy or {}).get("rollingUpdate") or {}
    restored: dict[str, Any] = {key: old.get(key, "25%") for key in ("maxSurge", "maxUnavailable")}
    return {"rollingUpdate": restored}


async def restore_template(api: KubernetesApi, order: Order) -> bool:
    """Put the template back as it was before our update of this plan; whether there was one.

    Our strategy stays until `roll-finish`: the way back is a rolling update too, and no pod may be missing in it.
    """
    if not order.step.target.startswith("Deployment/"):
        return False

    def change(workload: Json) -> Json | None:
        before = _before(workload)
        marks = (workload["spec"]["template"].get("metadata") or {}).get("annotations") or {}
        if before is None or before.plan != order.plan or marks.get(PLAN) != order.plan:
            return None
        containers = [
            {"name": name, "resources": {"requests": requests}}
            for name, requests in before.requests.items()
            if requests
        ]
        return {
            "spec": {
                "template": {
                    "metadata": {"annotations": {PLAN: None}},
                    "spec": {"affinity": _old_affinity(before), "containers": containers},
                },
            },
        }

    workload, _ = await api.modify(workload_path(order.step.target), change, content_type=STRATEGIC)
    left = _before(workload)
    return left is not None and left.plan == order.plan


def _old_affinity(before: _Before) -> Json | None:
    """The affinity of before, as a patch: what we added to it goes, None where there was none."""
    if not before.affinity:
        return None
    node = before.affinity.get("nodeAffinity") or {}
    return {**before.affinity, "nodeAffinity": {key: node.get(key) for key in (_REQUIRED, _PREFERRED)}}
