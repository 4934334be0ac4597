"""The note of what a Deployment was before our rolling update, where its owner's undo took that off.

`kubectl rollout undo` gives a Deployment the template and the annotations of an earlier ReplicaSet, but leaves it our
strategy. The note of what that was before is on the ReplicaSet of our update still, as the controller copied it there.
"""

from __future__ import annotations

import msgspec

from kinema_rescheduler.adapters.cluster import Order
from kinema_rescheduler.adapters.kubernetes_api import (
    Json,
    KubernetesApi,
    selector_text,
    uid,
    workload_path,
)
from kinema_rescheduler.adapters.kubernetes_roll import Before, before_of
from kinema_rescheduler.logic.names import ROLLED


async def note_again(api: KubernetesApi, order: Order) -> None:
    """Note on an undone Deployment what it was before our update, so that `roll-finish` can give its strategy back."""
    if not order.step.target.startswith("Deployment/"):
        return
    path = workload_path(order.step.target)
    workload = await api.get(path)
    if before_of(workload) is not None or not _never_below(workload["spec"].get("strategy")):
        return
    before = await _copied(api, order, workload)
    if before is None:
        return
    note = msgspec.json.encode(before).decode()

    def change(now: Json) -> Json | None:
        undone = before_of(now) is None and _never_below(now["spec"].get("strategy")) and uid(now) == uid(workload)
        return {"metadata": {"annotations": {ROLLED: note}}} if undone else None

    await api.modify(path, change)


async def _copied(api: KubernetesApi, order: Order, workload: Json) -> Before | None:
    """What a ReplicaSet of the workload tells of our update, where its strategy was another than ours before."""
    namespace = order.step.target.split("/")[1]
    path = workload_path(f"ReplicaSet/{namespace}/-").removesuffix("/-")
    for item in await api.items(path, labelSelector=selector_text(workload)):
        owners = item["metadata"].get("ownerReferences") or []
        before = before_of(item) if any(owner.get("uid") == uid(workload) for owner in owners) else None
        if before is not None and before.plan == order.plan and not before.paused and not _never_below(before.strategy):
            return before
    return None


def _never_below(strategy: Json | None) -> bool:
    """Whether a strategy is like ours: no pod may be missing. One of the owner's that is so is never lost."""
    return ((strategy or {}).get("rollingUpdate") or {}).get("maxUnavailable") in (0, "0", "0%")
