"""Marks on nodes, steering of new pods, and the last look before a node is deleted."""

from __future__ import annotations

from typing import Final

from kinema_core.events import FrozenMap, Step
from kinema_kubernetes.objects import Json, annotations_of, finished, node_path, resident, uid
from kinema_rescheduler.errors import ConflictError, NotFoundError, PermanentError, TransientError
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.kubernetes.volumes import Attachments, check_detached
from kinema_rescheduler.names import (
    CORDONED,
    DISRUPTED,
    PLAN,
    STEERING_NAME,
    STEERING_NAMESPACE,
    label_value,
    steering_key,
)

_CONFIG_MAPS: Final = f"/api/v1/namespaces/{STEERING_NAMESPACE}/configmaps"
_STEERING: Final = f"{_CONFIG_MAPS}/{STEERING_NAME}"


class _OtherNodeError(Exception):
    """The node of that name is not the one that was meant."""


def _same(node: Json, step: Step) -> None:
    if step.uid and uid(node) != step.uid:
        raise _OtherNodeError


async def taint(api: FencedClient, order: Order) -> Made:
    """Label and taint a node that is to be deleted."""

    def change(node: Json) -> Json | None:
        _same(node, order.step)
        value = label_value(order.iteration)
        labels = node["metadata"].get("labels") or {}
        taints = (node.get("spec") or {}).get("taints") or []
        wanted = {"key": DISRUPTED, "value": value, "effect": "NoSchedule"}
        if labels.get(DISRUPTED) == value and annotations_of(node).get(PLAN) == order.plan and wanted in taints:
            return None
        return {
            "metadata": {"labels": {DISRUPTED: value}, "annotations": {PLAN: order.plan}},
            "spec": {"taints": [*(taint for taint in taints if taint.get("key") != DISRUPTED), wanted]},
        }

    try:
        node, changed = await api.modify(node_path(order.step.target), change)
    except (NotFoundError, _OtherNodeError):
        return Made("void")
    cordoned = int(bool((node.get("spec") or {}).get("unschedulable")))
    return Made("done" if changed else "adopted", FrozenMap({CORDONED: cordoned}))


async def untaint(api: FencedClient, order: Order) -> Made:
    """Take Kinema's labels, taint and annotation off a node; Kinema sets no cordon."""

    def change(node: Json) -> Json | None:
        _same(node, order.step)
        labels = node["metadata"].get("labels") or {}
        taints = (node.get("spec") or {}).get("taints") or []
        others = [taint for taint in taints if taint.get("key") != DISRUPTED]
        if DISRUPTED not in labels and PLAN not in annotations_of(node) and others == taints:
            return None
        patch: Json = {"metadata": {"labels": {DISRUPTED: None}, "annotations": {PLAN: None}}}
        if others != taints:
            patch["spec"] = {"taints": others}
        return patch

    try:
        _, changed = await api.modify(node_path(order.step.target), change)
    except (NotFoundError, _OtherNodeError):
        return Made("void")
    return Made("done" if changed else "adopted")


async def check_deletable(api: FencedClient, attachments: Attachments, order: Order) -> bool:
    """Return whether the node exists; raise unless it has Kinema's marks, only pods that go with it, and no volumes.

    Raises:
        TransientError: `not-empty`; `attached`, a volume of a pod that has left is still attached to it; `not-ready`, a
            node whose boot was aborted before it was seen has come up since.
        PermanentError: `changed`, another client removed Kinema's marks or created another node of that name.
    """
    step = order.step
    try:
        node = await api.get(node_path(step.target))
    except NotFoundError:
        # The machine may run on though its node object was taken away.
        await _check_empty(api, step.target)
        return False
    if not step.uid:
        raise TransientError("not-ready", f"node {step.target} has come up: it must be closed before it is deleted")
    if uid(node) != step.uid:
        # The provider knows machines by name: it would delete the one that is in use now.
        raise PermanentError("changed", f"node {step.target} is another node of that name by now")
    labels = node["metadata"].get("labels") or {}
    if DISRUPTED not in labels or annotations_of(node).get(PLAN) != order.plan:
        raise PermanentError("changed", f"node {step.target} no longer carries the marks of plan {order.plan}")
    pods = await _check_empty(api, step.target)
    await check_detached(attachments, step.target, [pod for pod in pods if not finished(pod)])
    return True


async def _check_empty(api: FencedClient, node: str) -> list[Json]:
    """Return the node's pods; raise TransientError `not-empty` while others run there than go with the node."""
    pods = await api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
    left = sorted(
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in pods
        if not resident(pod) and not finished(pod)
    )
    if left:
        raise TransientError("not-empty", f"node {node} runs {', '.join(left[:5])}")
    return pods


async def prefer_nodes(api: FencedClient, order: Order) -> Made:
    """Add the nodes that a workload's new pods prefer to the parameter of the admission policy."""
    if not order.step.nodes:
        return Made("void")
    key, wanted = steering_key(order.step.target, order.step.uid), ",".join(dict.fromkeys(order.step.nodes))
    try:
        steering = await api.get(_STEERING)
    except NotFoundError:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": STEERING_NAME, "namespace": STEERING_NAMESPACE},
            "data": {key: wanted},
        }
        try:
            await api.create(_CONFIG_MAPS, body)
        except ConflictError:
            await api.patch(_STEERING, {"data": {key: wanted}})
        return Made("done")
    if (steering.get("data") or {}).get(key) == wanted:
        return Made("adopted")
    await api.patch(_STEERING, {"data": {key: wanted}})
    return Made("done")


async def clear_preferred_nodes(api: FencedClient, _: Order) -> Made:
    """Remove all nodes from the parameter of the admission policy: they are this plan's, no other runs beside it."""
    try:
        return Made("done" if await clear_all_preferred_nodes(api) else "adopted")
    except NotFoundError:
        return Made("void")


async def clear_all_preferred_nodes(api: FencedClient) -> bool:
    """Remove the nodes of every workload from the parameter of the admission policy; return whether there were any.

    Raises:
        NotFoundError: no plan has ever written one.
    """
    steering = await api.get(_STEERING)
    data = steering.get("data") or {}
    if data:
        await api.patch(_STEERING, {"data": dict.fromkeys(data)})
    return bool(data)
