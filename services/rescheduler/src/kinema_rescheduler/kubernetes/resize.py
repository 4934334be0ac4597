"""New requests of pods that run: resized in place, and the template follows without a rollout.

A Deployment whose template changes replaces its pods, unless one of its ReplicaSets has that very template. So the
ReplicaSet of its pods gets the new requests too, while the Deployment is paused: its controller makes no other one
then. It copies the annotations of a Deployment onto the ReplicaSet that it takes for the current one, which shows that
it has seen both templates. Then it goes on, with nothing to replace.

The pause takes about a second, and carries an annotation that distinguishes it from an owner's. If Kinema dies in it,
whoever acts on the cluster next ends it from what the objects say, without the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from kinema_core.events import FrozenMap
from kinema_core.model.quantity import parse_amount
from kinema_kubernetes.client import STRATEGIC
from kinema_kubernetes.objects import Json, annotations_of, generation, selector_text, uid, workload_path
from kinema_rescheduler.errors import EffectError, NotFoundError, PermanentError, TransientError
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.kubernetes.rollout import forget, observed, path_of, requested, sets_of
from kinema_rescheduler.names import RESIZING

_RESIZE: Final = "pods/resize"
_LOOKS: Final = 60
_PAUSE: Final = 1.0
"""Seconds between two looks at pods that are being resized: a kubelet that defers a resize may have room soon."""
_SEEN_LOOKS: Final = 80
_SEEN_PAUSE: Final = 0.25


async def resize(api: FencedClient, order: Order) -> Made:
    """Resize the pods of a Deployment, then let its template follow.

    Raises:
        PermanentError: `deferred`, `infeasible`, `unsupported` or `changed`; the pods have their old requests again.
    """
    target = order.step.target
    if not target.startswith("Deployment/"):
        raise PermanentError("unsupported", f"{target}: only a Deployment's pods are resized in place")
    if _RESIZE not in await api.served("/api/v1"):
        raise PermanentError("unsupported", f"{target}: this version of Kubernetes does not resize pods in place")
    workload = await api.get(workload_path(target))
    if order.step.uid and uid(workload) != order.step.uid:
        raise PermanentError("gone", f"{target} is another object of that name by now")
    if RESIZING in annotations_of(workload):
        workload = await go_on(api, order)
    if workload["spec"].get("paused"):
        raise PermanentError("changed", f"{target} is paused: its owner wants its pods left as they are")
    containers = requested(workload["spec"]["template"]["spec"]["containers"], order.step.requests)
    if _requests(workload["spec"]["template"]["spec"]["containers"], containers) == containers:
        return Made("adopted", FrozenMap(generation=generation(workload)))
    current = await _current(api, order, workload)
    await _resize_pods(api, order, workload, current, containers)
    try:
        await _hand_over(api, order, current, containers)
    finally:  # also where a write fails: the owner's rollouts must not wait
        workload = await go_on(api, order)
    return Made("done", FrozenMap(generation=generation(workload)))


async def _current(api: FencedClient, order: Order, workload: Json) -> Json:
    """Return the only ReplicaSet with pods."""
    found = [item for item in await sets_of(api, order, workload) if (item["spec"].get("replicas") or 0) > 0]
    if len(found) != 1:
        raise TransientError("not-ready", f"{order.step.target}: {len(found)} of its ReplicaSets have pods")
    return found[0]


# --- pods


async def _resize_pods(api: FencedClient, order: Order, workload: Json, current: Json, containers: list[Json]) -> None:
    """Resize all pods, or none: one that cannot be leaves the others as they were."""
    pods = await _pods(api, order, workload, current)
    before = _requests(workload["spec"]["template"]["spec"]["containers"], containers)
    touched: list[str] = []
    try:
        for pod in pods:
            path = _path(pod)
            touched.append(path)
            await api.patch(f"{path}/resize", {"spec": {"containers": containers}}, STRATEGIC)
        await _until_resized(api, order, workload, current, containers)
    except EffectError:
        for path in touched:
            with suppress(EffectError):
                await api.patch(f"{path}/resize", {"spec": {"containers": before}}, STRATEGIC)
        raise


def _requests(now: list[Json], changed: list[Json]) -> list[Json]:
    """Return what the containers requested before, as a patch."""
    known = {item["name"]: (item.get("resources") or {}).get("requests") or {} for item in now}
    return [
        {
            "name": item["name"],
            "resources": {"requests": {name: known[item["name"]].get(name) for name in item["resources"]["requests"]}},
        }
        for item in changed
    ]


async def _pods(api: FencedClient, order: Order, workload: Json, current: Json) -> list[Json]:
    namespace = order.step.target.split("/")[1]
    found = await api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector_text(workload))
    return [
        pod
        for pod in found
        if any(owner.get("uid") == uid(current) for owner in pod["metadata"].get("ownerReferences") or [])
        and not pod["metadata"].get("deletionTimestamp")
    ]


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


async def _until_resized(
    api: FencedClient, order: Order, workload: Json, current: Json, containers: list[Json]
) -> None:
    waiting = ""
    for _ in range(_LOOKS):
        states = [(_path(pod), *_state(pod, containers)) for pod in await _pods(api, order, workload, current)]
        refused = next((one for one in states if one[1] == "infeasible"), None)
        if refused is not None:
            raise PermanentError("infeasible", f"{refused[0]} cannot be resized: {refused[2]}")
        left = [one for one in states if one[1] != "done"]
        if states and not left:
            return
        waiting = f"{left[0][0]} {left[0][2]}" if left else "no pod is left"
        await api.pause(_PAUSE)
    raise PermanentError("deferred", f"{order.step.target} was not resized within {_LOOKS * _PAUSE:g} s: {waiting}")


def _state(pod: Json, containers: list[Json]) -> tuple[str, str]:
    """Return how far the resize of a pod is, and what its kubelet says."""
    status = pod.get("status") or {}
    conditions = {item["type"]: item for item in status.get("conditions") or [] if item.get("status") == "True"}
    pending = conditions.get("PodResizePending")
    if pending is not None and pending.get("reason") == "Infeasible":
        return "infeasible", pending.get("message") or "its node cannot"
    if pending is not None:
        return "deferred", pending.get("message") or "waits for room on its node"
    has = {item["name"]: item for item in status.get("containerStatuses") or []}
    if "PodResizeInProgress" in conditions or not all(_has(has.get(item["name"], {}), item) for item in containers):
        return "resizing", "is being resized"
    return "done", ""


def _has(status: Json, wanted: Json) -> bool:
    """Return whether a container has what is wanted: as allocated, or where that is not reported, as it is set."""
    found: Mapping[str, Any] = status.get("allocatedResources") or (status.get("resources") or {}).get("requests") or {}
    return all(
        name in found and parse_amount(name, str(found[name])) == parse_amount(name, text)
        for name, text in wanted["resources"]["requests"].items()
    )


# --- template


async def _hand_over(api: FencedClient, order: Order, current: Json, containers: list[Json]) -> None:
    """Pause the Deployment, and give the ReplicaSet of its pods the new requests. `go_on` does the rest."""

    def paused(now: Json) -> Json:
        if now["spec"].get("paused"):
            raise PermanentError("changed", f"{order.step.target} was paused while its pods were resized")
        mark = f"{order.plan}/{generation(now) + 1}"
        return {"metadata": {"annotations": {RESIZING: mark}}, "spec": {"paused": True}}

    workload, _ = await api.modify(workload_path(order.step.target), paused)
    await _until_observed(api, order, workload)
    await api.modify(path_of(current), lambda _: _template(containers), content_type=STRATEGIC)


async def go_on(api: FencedClient, order: Order) -> Json:
    """Resume a Deployment that Kinema has paused, whichever plan did; return it as it is then.

    The objects alone show how far the resize came: where the ReplicaSet of the pods has the new requests, the template
    follows first, and no pod is replaced. A Deployment without Kinema's annotation is left as it is.

    Raises:
        EffectError: it could not be resumed, or its controller has not seen it yet.
    """
    path = workload_path(order.step.target)
    workload = await api.get(path)
    if RESIZING not in annotations_of(workload):
        return workload
    with suppress(EffectError):
        # Where that fails, at worst the controller replaces the pods one after the other: better than to stay paused.
        await _follow(api, order, workload)

    def resumed(now: Json) -> Json | None:
        marked = RESIZING in annotations_of(now)
        return {"metadata": {"annotations": {RESIZING: None}}, "spec": {"paused": None}} if marked else None

    workload, _ = await api.modify(path, resumed)
    await api.disown(path)
    await forget(api, order, workload, mark=RESIZING)
    return workload


async def _follow(api: FencedClient, order: Order, workload: Json) -> None:
    """Let the template of a paused Deployment follow the ReplicaSet of its pods, unless its owner has changed it."""
    plan, _, seen = annotations_of(workload)[RESIZING].rpartition("/")
    followed = f"{plan}/template"
    current = await _current(api, order, workload)
    if seen == str(generation(workload)):
        containers = [
            {"name": item["name"], "resources": {"requests": item.get("resources", {}).get("requests")}}
            for item in current["spec"]["template"]["spec"]["containers"]
        ]
        change = {"metadata": {"annotations": {RESIZING: followed}}, **_template(containers)}
        ours = generation(workload)
        path = workload_path(order.step.target)
        await api.modify(path, lambda now: change if generation(now) == ours else None, content_type=STRATEGIC)
    elif seen != "template":
        return
    await _until_adopted(api, order, current, followed)


def _template(containers: list[Json]) -> Json:
    return {"spec": {"template": {"spec": {"containers": containers}}}}


async def _until_observed(api: FencedClient, order: Order, workload: Json) -> None:
    """Wait until the controller has seen that it is to make no ReplicaSet."""
    for _ in range(_SEEN_LOOKS):
        now = await api.get(workload_path(order.step.target))
        if observed(now) >= generation(workload):
            return
        await api.pause(_SEEN_PAUSE)
    raise TransientError("not-ready", f"{order.step.target}: its controller does not see that it is paused")


async def _until_adopted(api: FencedClient, order: Order, current: Json, mark: str) -> None:
    """Wait until the controller takes the ReplicaSet for that of the new template."""
    for _ in range(_SEEN_LOOKS):
        try:
            now = await api.get(path_of(current))
        except NotFoundError as error:
            raise PermanentError("gone", f"{order.step.target}: the ReplicaSet of its pods is gone") from error
        if annotations_of(now).get(RESIZING) == mark:
            return
        await api.pause(_SEEN_PAUSE)
    raise TransientError("not-ready", f"{order.step.target}: its controller has not seen its new template")
