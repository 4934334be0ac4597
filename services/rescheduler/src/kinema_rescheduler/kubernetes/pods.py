"""Surges, evictions, and taking them back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kinema_core.events import Figures, FrozenMap, Step
from kinema_kubernetes.objects import (
    Json,
    annotations_of,
    finished,
    generation,
    has_controller_path,
    pod_path,
    pod_ready,
    pods_path,
    selector_text,
    terminating,
    uid,
    workload_path,
)
from kinema_rescheduler.errors import ConflictError, NotFoundError, PermanentError, TransientError
from kinema_rescheduler.kubernetes.autoscalers import lower_floor, raise_floor
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.kubernetes.rollout import restore_template
from kinema_rescheduler.names import CHEAPEST, COST_BEFORE, DELETION_COST, PLAN

_SCALE_TRIES: Final = 5
_NOTICE_SECONDS: Final = 1.0
"""Time for a controller to see new deletion costs before it is to choose by them."""
_GONE_TRIES: Final = 20
_GONE_PAUSE: Final = 0.25
"""Real seconds between two looks whether surplus pods have gone."""


async def surge_up(api: FencedClient, order: Order) -> Made:
    """Make the victims the cheapest to delete, then ask for as many more pods."""
    step = order.step
    for _ in range(_SCALE_TRIES):
        workload = await _workload(api, step)
        replicas = _replicas(workload)
        if replicas not in {step.replicas_from, step.replicas_to}:
            raise PermanentError("changed", f"{step.target} has {replicas} replicas, not {step.replicas_from}")
        victims = _chosen(await _pods(api, step, workload), step)
        if not victims:
            return Made("void")
        if replicas == step.replicas_to:
            if not all(_is_cheap(victim, order.plan) for victim in victims):  # Kinema marks them all first
                raise PermanentError("changed", f"another client scaled {step.target} to {replicas} replicas")
            return Made("adopted", FrozenMap(generation=generation(workload)))
        if len(victims) != len(step.pods):
            raise PermanentError("changed", f"{len(step.pods) - len(victims)} pods that should leave are gone already")
        for victim in victims:
            await _make_cheap(api, victim, order.plan)
        await raise_floor(api, order)
        if await _scale(api, step, step.replicas_to):
            return Made("done", await _generation(api, step))
    raise ConflictError("conflict", f"{step.target} is written by others all the time")


async def surge_down(api: FencedClient, order: Order) -> Made:
    """Give the surplus back, if as many pods as are wanted are Ready beside the victims, and the workload knows it."""
    step = order.step
    for _ in range(_SCALE_TRIES):
        workload = await _workload(api, step)
        replicas = _replicas(workload)
        if replicas == step.replicas_to:
            await lower_floor(api, step)
            await _disown(api, step)
            return Made("adopted", FrozenMap(generation=generation(workload)))
        if replicas != step.replicas_from:
            await lower_floor(api, step)
            raise PermanentError("changed", f"{step.target} has {replicas} replicas, not {step.replicas_from}")
        pods = await _pods(api, step, workload)
        victims = _chosen(pods, step)
        substitutes = await _substitutes(api, order, pods, step.replicas_from - step.replicas_to - len(victims))
        if any(annotations_of(pod).get(DELETION_COST) != CHEAPEST for pod in (*victims, *substitutes)):
            raise PermanentError("changed", f"another client changed the deletion cost of pods of {step.target}")
        leaving = {*step.pods, *map(uid, substitutes)}
        able = {uid(pod) for pod in pods if pod_ready(pod)}
        staying, serving = len(able - leaving), _serving(workload)
        wanted = step.replicas_to + len(able & leaving)  # one that leaves need not be Ready: its node may be gone
        if staying < step.replicas_to or serving < wanted:
            count = f"{staying} of {step.replicas_to} staying pods of {step.target} are Ready"
            raise TransientError("not-ready", f"{count}, {serving} of {wanted} for as long as it asks")
        # First the autoscaler: were its floor still raised, it would ask for the surplus again. If it takes the
        # surplus away by itself now, the victims are the ones to go.
        await lower_floor(api, step)
        # The version of the workload that was read above: if anything was written since, all is looked at anew.
        if await _scale(api, step, step.replicas_to, version=workload["metadata"]["resourceVersion"]):
            await _disown(api, step)
            return Made("done", await _generation(api, step))
    raise ConflictError("conflict", f"{step.target} is written by others all the time")


async def _substitutes(api: FencedClient, order: Order, pods: list[Json], count: int) -> list[Json]:
    """Return the pods that leave in the place of `count` victims that are gone: the newest, as their successors are.

    The controller would choose others by criteria of its own.

    Raises:
        TransientError: they were marked just now, and the controller has yet to see that.
    """
    others = [pod for pod in pods if uid(pod) not in order.step.pods and not terminating(pod)]
    marked = [pod for pod in others if _is_cheap(pod, order.plan)]
    others.sort(key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]), reverse=True)
    unmarked = [pod for pod in others if not _is_cheap(pod, order.plan)][: max(0, count - len(marked))]
    for pod in unmarked:
        await _make_cheap(api, pod, order.plan)
    if unmarked:
        names = ", ".join(pod["metadata"]["name"] for pod in unmarked)
        raise TransientError("not-ready", f"victims in {order.step.target} are gone: {names} leave instead")
    return marked


async def evict(api: FencedClient, order: Order) -> Made:
    """Evict one pod by its uid, if all others of its workload are Ready."""
    step = order.step
    workload = await _workload(api, step) if has_controller_path(step.target) else None
    victims = _chosen(await _pods(api, step, workload), step)
    if not victims:
        return Made("adopted")
    victim = victims[0]
    if workload is not None:
        ready = _serving(workload)
        if ready < _replicas(workload):
            raise TransientError("not-ready", f"{ready} of {_replicas(workload)} pods of {step.target} are Ready")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim["metadata"]["name"], "namespace": victim["metadata"]["namespace"]},
        "deleteOptions": {"preconditions": {"uid": uid(victim)}},
    }
    try:
        await api.create(f"{pod_path(victim)}/eviction", body, manager="")
    except (NotFoundError, ConflictError):
        # Gone, or another pod has its name by now. A conflict about anything else leaves the pod there: try again.
        if _chosen(await _pods(api, step, workload), step):
            raise
        return Made("adopted")
    except TransientError as error:
        if error.reason == "unavailable" and "more than one PodDisruptionBudget" in error.detail:
            raise PermanentError("budget", error.detail) from error
        raise
    return Made("done")


async def revert(api: FencedClient, order: Order) -> Made:
    """Take back an unfinished move: the template, the surplus, the deletion costs."""
    step = order.step
    try:
        workload = await _workload(api, step)
    except PermanentError as error:
        if error.reason == "gone":
            return Made("void")
        raise
    rolled = await restore_template(api, order)
    lowered = await lower_floor(api, step)
    scaled = step.replicas_from != step.replicas_to and await _take_back(api, order)
    if any(map(_has_cost, await _pods(api, step, workload))):
        await _until_gone(api, step)
    cleared = await clear_costs(api, await _pods(api, step, workload))
    if not rolled:  # else the end of the roll does it
        await _disown(api, step)
    workload = await _workload(api, step)
    figures: Figures = FrozenMap(generation=generation(workload), replicas=_replicas(workload))
    return Made("done" if rolled or lowered or scaled or cleared else "adopted", figures)


async def _take_back(api: FencedClient, order: Order) -> bool:
    """Scale back, the new pods first; return whether that was done. Replicas that another client set stay."""
    step = order.step
    for _ in range(_SCALE_TRIES):
        workload = await _workload(api, step)
        if _replicas(workload) != step.replicas_from:
            return False
        pods = await _pods(api, step, workload)
        changed = await clear_costs(api, [pod for pod in pods if uid(pod) not in step.pods])
        for pod in _chosen(pods, step):
            changed = changed or not _is_cheap(pod, order.plan)
            await _make_cheap(api, pod, order.plan)
        if changed:
            await api.pause(_NOTICE_SECONDS)
        if await _scale(api, step, step.replicas_to):
            return True
    raise ConflictError("conflict", f"{step.target} is written by others all the time")


async def _until_gone(api: FencedClient, step: Step) -> None:
    """Wait a moment for the surplus to go, so that no deletion cost is cleared off pods that are about to."""
    for _ in range(_GONE_TRIES):
        workload = await _workload(api, step)
        staying = [pod for pod in await _pods(api, step, workload) if not terminating(pod)]
        if len(staying) <= _replicas(workload):
            return
        await api.pause(_GONE_PAUSE)


# --- reading


async def _workload(api: FencedClient, step: Step) -> Json:
    """Return the workload, if it is the one that was planned on."""
    workload = await api.get(workload_path(step.target))
    if step.uid and uid(workload) != step.uid:
        raise PermanentError("gone", f"{step.target} is another object of that name by now")
    return workload


def _replicas(workload: Json) -> int:
    replicas = workload["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


async def _pods(api: FencedClient, step: Step, workload: Json | None) -> list[Json]:
    """Return a workload's pods that have not ended; of an unknown kind of workload all pods of its namespace."""
    namespace = step.target.split("/", 2)[1]
    query = {"labelSelector": selector_text(workload)} if workload is not None else {}
    return [pod for pod in await api.items(pods_path(namespace), **query) if not finished(pod)]


def _chosen(pods: Iterable[Json], step: Step) -> list[Json]:
    """Pods of the step that are still there and stay."""
    return [pod for pod in pods if uid(pod) in step.pods and not terminating(pod)]


# --- writing


async def _scale(api: FencedClient, step: Step, replicas: int, *, version: str = "") -> bool:
    """Set the replicas, unless another client wrote in between."""
    path = f"{workload_path(step.target)}/scale"
    if not version:
        scale = await api.get(path)
        if int(scale["spec"].get("replicas") or 0) not in {step.replicas_from, replicas}:
            return False
        version = scale["metadata"]["resourceVersion"]
    try:
        await api.patch(path, {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}})
    except ConflictError:
        return False
    return True


def _serving(workload: Json) -> int:
    """Pods that the controller relies on: Ready, and with `minReadySeconds` for that long (`availableReplicas`)."""
    status = workload.get("status") or {}
    return int(status.get("availableReplicas" if workload["spec"].get("minReadySeconds") else "readyReplicas") or 0)


async def _disown(api: FencedClient, step: Step) -> None:
    """Leave the replicas to their owner, except those of ReplicationControllers, which Kinema may not write."""
    if not step.target.startswith("ReplicationController/"):
        await api.disown(workload_path(step.target))


async def _generation(api: FencedClient, step: Step) -> FrozenMap[int | float | str]:
    return FrozenMap(generation=generation(await _workload(api, step)))


async def _make_cheap(api: FencedClient, pod: Json, plan: str) -> None:
    """Give a pod the least deletion cost, and note the one that it had."""

    def change(fresh: Json) -> Json | None:
        if uid(fresh) != uid(pod) or _is_cheap(fresh, plan):
            return None
        had = annotations_of(fresh).get(COST_BEFORE, annotations_of(fresh).get(DELETION_COST, ""))
        return {"metadata": {"annotations": {DELETION_COST: CHEAPEST, COST_BEFORE: had, PLAN: plan}}}

    await api.modify(pod_path(pod), change)


def _is_cheap(pod: Json, plan: str) -> bool:
    """Return whether a pod was made the cheapest for this plan."""
    return annotations_of(pod).get(PLAN) == plan


def _has_cost(pod: Json) -> bool:
    """Return whether a pod carries Kinema's deletion cost, of any plan."""
    return COST_BEFORE in annotations_of(pod)


async def clear_costs(api: FencedClient, pods: Iterable[Json]) -> bool:
    """Remove Kinema's deletion costs from pods; return whether there were any. Costs that others wrote stay."""
    marked = [pod for pod in pods if _has_cost(pod) and not terminating(pod)]

    def change(fresh: Json) -> Json | None:
        now = annotations_of(fresh)
        if COST_BEFORE not in now:
            return None
        back = {DELETION_COST: now[COST_BEFORE] or None} if now.get(DELETION_COST) == CHEAPEST else {}
        return {"metadata": {"annotations": {**back, COST_BEFORE: None, PLAN: None}}}

    for pod in marked:
        try:
            await api.modify(pod_path(pod), change)
        except NotFoundError:
            continue  # it went meanwhile, and its cost with it
    return bool(marked)
