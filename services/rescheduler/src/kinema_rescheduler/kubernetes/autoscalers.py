"""Limits of a horizontal pod autoscaler during a surge, so that it does not revert the surge before its pods are Ready.

An autoscaler looks every 15 seconds and sees replicas that its metrics do not ask for. Pods that start slower than
that would never become Ready, and each surge would fail. So Kinema raises the limits for the time of the surge. Where
it has no right to do that, or KEDA sets the limits and would set them again at once, it tries the surge all the same:
if the autoscaler reverts it, no harm is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from kinema_core.events import Step
from kinema_core.model.vocabulary import KEDA
from kinema_kubernetes.objects import Json, annotations_of, labels_of
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.names import FLOOR_BEFORE, PLAN

_UNWRITABLE: Final = frozenset({"denied", "gone"})


class _Limits(msgspec.Struct, frozen=True):
    """Limits of an autoscaler before a surge, and the floor that Kinema set."""

    minimum: int
    maximum: int
    floor: int


async def raise_floor(api: FencedClient, order: Order) -> None:
    """Raise the least replicas of the workload's autoscaler to those of the surge, and its most where they are less."""
    floor = order.step.replicas_to

    def change(scaler: Json) -> Json | None:
        now = _limits(scaler, floor)
        if now.minimum >= floor or KEDA in labels_of(scaler):
            return None
        before = _before(scaler) or now
        marks = {FLOOR_BEFORE: msgspec.json.encode(msgspec.structs.replace(before, floor=floor)).decode()}
        limits = {"minReplicas": floor, "maxReplicas": max(floor, now.maximum)}
        return {"metadata": {"annotations": {**marks, PLAN: order.plan}}, "spec": limits}

    await _change(api, order.step, change)


async def lower_floor(api: FencedClient, step: Step) -> bool:
    """Restore the autoscaler's limits; return whether Kinema had raised them. Values that others set stay."""

    def change(scaler: Json) -> Json | None:
        before = _before(scaler)
        if before is None:
            return None
        now = _limits(scaler, before.floor)
        minimum = before.minimum if now.minimum == before.floor else now.minimum
        maximum = before.maximum if now.maximum == max(before.floor, before.maximum) else now.maximum
        limits = {"minReplicas": minimum, "maxReplicas": max(minimum, maximum)}
        return {"metadata": {"annotations": {FLOOR_BEFORE: None, PLAN: None}}, "spec": limits}

    return await _change(api, step, change)


def _limits(scaler: Json, floor: int) -> _Limits:
    spec = scaler["spec"]
    minimum = spec.get("minReplicas")
    return _Limits(minimum=1 if minimum is None else int(minimum), maximum=int(spec["maxReplicas"]), floor=floor)


def _before(scaler: Json) -> _Limits | None:
    text = annotations_of(scaler).get(FLOOR_BEFORE)
    return msgspec.json.decode(text, type=_Limits) if text else None


async def _change(api: FencedClient, step: Step, change: Callable[[Json], Json | None]) -> bool:
    """Change every autoscaler of the step's workload; whether any was changed. Without the right to, none is."""
    kind, namespace, name = step.target.split("/", 2)
    path = f"/apis/autoscaling/v2/namespaces/{quote(namespace, safe='')}/horizontalpodautoscalers"
    changed = False
    try:
        for scaler in await api.items(path):
            target = scaler["spec"].get("scaleTargetRef") or {}
            if (target.get("kind"), target.get("name")) == (kind, name):
                one = f"{path}/{quote(scaler['metadata']['name'], safe='')}"
                found, done = await api.modify(one, change)
                if _before(found) is None:
                    await api.disown(one)
                changed = changed or done
    except PermanentError as error:
        if error.reason not in _UNWRITABLE:
            raise
    return changed
