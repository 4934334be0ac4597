"""Replacing all pods of a workload by a rolling update: the thesis's way, and the way to new requests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kinema_core.events import EMPTY, POD_WAITS, Amounts, FrozenMap, Pod, Step, Workload
from kinema_core.model.moves_limit import most_moves
from kinema_core.model.resizing import can_resize
from kinema_rescheduler.journal.execution import Progress
from kinema_rescheduler.moves.decision import OVER, WAIT, MoveDecision, fail, is_led, never_ready, skip, steered
from kinema_rescheduler.moves.surge import refused
from kinema_rescheduler.moves.workloads import WorkloadMoves, settled
from kinema_rescheduler.names import ROLL_STUCK, ROLLED, unit_id
from kinema_rescheduler.plan.context import ExecutionContext


def begin_roll(
    ctx: ExecutionContext, movers: WorkloadMoves, workload: Workload, surplus: int, *, bounded: bool = False
) -> MoveDecision:
    """Prefer the planned nodes for the new pods, then patch the template.

    `surplus` is how many pods more than wanted there may be, by quotas and room, at least 1. `bounded`: also where that
    is no fewer than the owner's strategy allows, whose share of the replicas may grow with them.
    """
    nodes, bound = _planned(ctx, movers), surplus if bounded or surplus < movers.at_once else 0
    steer = Step(
        id=unit_id("prefer-nodes", movers.key, 1),
        kind="prefer-nodes",
        target=movers.key,
        uid=workload.uid,
        nodes=nodes,
        replicas_to=bound,
    )
    return MoveDecision(ctx.intend(steer)) if nodes else _patch(ctx, movers, workload, bound)


def bound_of(step: Step) -> int:
    """Return how many pods more than wanted a rolling update may run, by its step `roll`; 0: as its owner says."""
    return step.replicas_to - step.replicas_from


def resize_in_place(ctx: ExecutionContext, movers: WorkloadMoves) -> MoveDecision | None:
    """Change the requests of the pods where they are; None where they have to be replaced.

    That takes kubelets that do it without a restart, and a plan that leaves each pod on its node.
    """
    workload = movers.workload
    if workload is None or workload.type != "Deployment" or not ctx.limits.resize_in_place:
        return None
    step = Step(
        id=unit_id("resize", movers.key, 1),
        kind="resize",
        target=movers.key,
        uid=workload.uid,
        requests=_new_requests(movers, workload),
    )
    failed = ctx.progress(step.id)
    if failed is not None and failed.lost:
        # The state may yet show the requests that were taken back.
        is_old = any(ctx.judge.held(pod.key) for pod in movers.pods)
        return WAIT if is_old and not ctx.passed(failed.ended, ctx.limits.observed_seconds) else None
    places = {place.uid: place.to for place in ctx.plan.placements}
    stays = all(places.get(pod.uid) == pod.node and can_resize(pod, step.requests) for pod in movers.pods)
    return MoveDecision(ctx.intend(step)) if step.requests and stays else None


def beyond_limit(ctx: ExecutionContext, movers: WorkloadMoves) -> MoveDecision | None:
    """Leave a workload alone whose pods could not be resized where one plan may restart no more; None where it may.

    The plan counts no pod as restarted that is to be resized: its limit is kept here, first come, first served, and of
    those that wait by key.
    """
    plan = ctx.plan
    nodes = (*(place.source for place in plan.placements), *(None for _ in plan.unplaced))
    most = most_moves(nodes, ctx.limits.max_moves_fraction)
    if most is None or not ctx.lost(unit_id("resize", movers.key, 1)):
        return None
    refused = [
        one.workload
        for one in plan.resizes
        if ctx.lost(unit_id("resize", one.workload, 1)) and not ctx.skipped(one.workload)
    ]
    touched = plan.moves + plan.restarts
    for key in sorted(refused, key=lambda key: (not _rolls(ctx, key), key)):
        pods = len(ctx.cluster.pods_by_workload.get(key, ()))
        if _rolls(ctx, key) or touched + pods <= most:
            touched += pods
        elif key == movers.key:
            said = f"its pods cannot be resized in place, and the plan may move or restart at most {most}"
            return skip(ctx, movers, "limit", said)
    return None


def resizing(ctx: ExecutionContext, movers: WorkloadMoves) -> MoveDecision | None:
    """Go on with a resize in place; None where there is none, or a rolling update has followed it.

    One that failed for good is over: a rolling update begins as soon as there is room for it.
    """
    resize = ctx.unit("resize", movers.key, 1)
    if resize is None or _rolls(ctx, movers.key):
        return None
    return OVER if resize.over else MoveDecision(ctx.intend(resize.step))


def _rolls(ctx: ExecutionContext, workload: str) -> bool:
    """Return whether a rolling update of the workload has begun."""
    return any(ctx.unit(kind, workload, 1) is not None for kind in ("prefer-nodes", "roll"))


def resized(ctx: ExecutionContext, workload: str) -> bool:
    """Return whether the pods of a workload have their new requests without having been replaced."""
    return ctx.done(unit_id("resize", workload, 1))


def _patch(ctx: ExecutionContext, movers: WorkloadMoves, workload: Workload, bound: int) -> MoveDecision:
    step = Step(
        id=unit_id("roll", movers.key, 1),
        kind="roll",
        target=movers.key,
        uid=workload.uid,
        replicas_from=workload.replicas,
        replicas_to=workload.replicas + bound,
        requests=_new_requests(movers, workload),
    )
    return MoveDecision(ctx.intend(step))


def _planned(ctx: ExecutionContext, movers: WorkloadMoves) -> tuple[str, ...]:
    """Return the nodes where the plan wants the workload's pods, one for each.

    Every pod is replaced, so that the plan may give another node to one that could have stayed.
    """
    places = {place.uid: place.to for place in ctx.plan.placements}
    leaving = {pod.uid for pod in movers.victims}
    if not all(is_led(ctx, pod) for pod in movers.pods):
        return ()
    wanted = [
        movers.targets.get(pod.uid) if pod.uid in leaving else places.get(pod.uid, pod.node) for pod in movers.pods
    ]
    return tuple(sorted(name for name in wanted if name is not None))


def _new_requests(movers: WorkloadMoves, workload: Workload) -> Amounts:
    """Only what changes: a template keeps what a forecast says nothing about."""
    after = movers.requests or EMPTY
    before = workload.template_requests
    return FrozenMap(
        {name: after[name] for name in ("cpu", "memory") if name in after and after[name] != before.get(name)}
    )


def roll(ctx: ExecutionContext, movers: WorkloadMoves) -> MoveDecision:
    """Go on with a rolling update."""
    workload = movers.workload
    if workload is None:
        return skip(ctx, movers, "gone", "its controller does not exist any more")
    patched = ctx.unit("roll", movers.key, 1)
    if patched is None:
        if ctx.stopping:
            return OVER
        ready, steer = steered(ctx, movers, 1), ctx.unit("prefer-nodes", movers.key, 1)
        return _patch(ctx, movers, workload, steer.step.replicas_to if steer else 0) if ready.over else ready
    if patched.state == "open":
        return WAIT
    if patched.state == "failed":
        return _refused(ctx, movers, patched)
    finish = ctx.unit("finalize-rollout", movers.key, 1)
    return _await_end(ctx, movers, workload, patched) if finish is None else _await_finish(ctx, movers, finish)


def _await_finish(ctx: ExecutionContext, movers: WorkloadMoves, finish: Progress) -> MoveDecision:
    if finish.lost:
        return fail(ctx, movers, finish.result, finish.detail)
    return OVER if finish.over else MoveDecision(ctx.intend(finish.step))


def _await_end(ctx: ExecutionContext, movers: WorkloadMoves, workload: Workload, patched: Progress) -> MoveDecision:
    """Wait until all pods are new, or see that this will not happen."""
    overruled = _overruled(workload, patched)
    if overruled is not None:
        return skip(ctx, movers, "changed", overruled)
    if workload.generation >= int(patched.figures.get("generation", 0)) and settled(workload) and not movers.victims:
        return MoveDecision(ctx.intend(_finalize(movers.key, workload.uid)))
    if refused(ctx, workload, patched) and ctx.passed(_last(patched, movers.pods), ctx.limits.refused_seconds):
        return skip(ctx, movers, "refused", f"its controller may create no more pods: {workload.refused}")
    if _stalled(ctx, patched, movers.pods) or ctx.passed(patched.ended, ctx.limits.roll_seconds):
        return _give_up(ctx, movers, _stuck(movers, workload))
    return WAIT


def _give_up(ctx: ExecutionContext, movers: WorkloadMoves, detail: str) -> MoveDecision:
    """Take an update back; where a pod fits on no node, its way back needs the closed nodes, and the plan makes way."""
    stuck = never_ready(ctx, movers, detail, reason=ROLL_STUCK)
    homeless = any(pod.unschedulable for pod in movers.pods)
    return MoveDecision((*stuck.bodies, *(ctx.give_up(POD_WAITS, f"{movers.key}: {detail}") if homeless else ())))


def _overruled(workload: Workload, patched: Progress) -> str | None:
    """Return what the owner did to the update so that it would never end; None where it goes on.

    An owner who pauses a Deployment wants its pods left alone: the update gets no further, and its end would remove the
    pause. An owner who undoes the update (`kubectl rollout undo`) replaces its annotations, too. Any other template of
    the owner's is waited for: its pods keep off the leaving nodes as well.
    """
    if workload.paused:
        return "it was paused while its pods were replaced"
    seen = workload.generation >= int(patched.figures.get("generation", 0))
    if seen and ROLLED not in workload.annotations:
        return "the update was undone while its pods were replaced"
    return None


def _stalled(ctx: ExecutionContext, update: Progress, pods: Iterable[Pod]) -> bool:
    """Return whether an update waits for pods that have had their time: none has come since, and not all are Ready."""
    known = tuple(pods)
    waiting = any(not pod.ready for pod in known)
    return waiting and ctx.passed(_last(update, known), ctx.limits.pods_ready_seconds)


def _last(update: Progress, pods: Iterable[Pod]) -> datetime | None:
    """Return when an update last made progress: it was made, or a pod came."""
    times = (update.ended, *(pod.created for pod in pods))
    return max((time for time in times if time is not None), default=None)


def _stuck(movers: WorkloadMoves, workload: Workload) -> str:
    """Return where an update stands. Replicas that are Ready would say nothing: the old ones are among them."""
    waiting = [f"{pod.key} (fits on no node)" if pod.unschedulable else pod.key for pod in movers.pods if not pod.ready]
    return f"{workload.updated} of {workload.replicas} pods are new; not Ready: {', '.join(waiting) or 'none'}"


def _refused(ctx: ExecutionContext, movers: WorkloadMoves, patched: Progress) -> MoveDecision:
    if patched.retry:
        return MoveDecision(ctx.intend(patched.step))
    return fail(ctx, movers, patched.result, patched.detail)


def rolled(ctx: ExecutionContext, workload: str) -> bool:
    """Return whether a rolling update was begun and not finished."""
    return ctx.unit("roll", workload, 1) is not None and not ctx.done(unit_id("finalize-rollout", workload, 1))


def unrolled(ctx: ExecutionContext, workload: str, back: Progress) -> MoveDecision:
    """Restore the strategy once the way back to the old template (`back`) has ended or gets no further.

    A paused Deployment replaces no pod until its owner resumes it, and it must have its owner's strategy by then.
    Without a state it is not waited for.
    """
    finish = ctx.unit("finalize-rollout", workload, 1)
    if finish is not None:
        return OVER if finish.over else MoveDecision(ctx.intend(finish.step))
    now, update = ctx.cluster.workload(workload), ctx.unit("roll", workload, 1)
    if ctx.blind and update is not None:
        return MoveDecision(ctx.intend(_finalize(workload, update.step.uid)))
    if now is None or back.result != "done":
        return OVER
    there = now.generation >= int(back.figures.get("generation", 0)) and settled(now)
    pods = [pod for pod in ctx.alive.values() if ctx.cluster.workload_key_of(pod) == workload]
    late = _stalled(ctx, back, pods) or ctx.passed(back.ended, ctx.limits.roll_seconds)
    if not (there or late or now.paused):
        return WAIT
    return MoveDecision(ctx.intend(_finalize(workload, now.uid)))


def _finalize(workload: str, uid: str) -> Step:
    return Step(id=unit_id("finalize-rollout", workload, 1), kind="finalize-rollout", target=workload, uid=uid)
