"""Moving pods by eviction: one at a time, the next when the replacement is Ready. At most one below."""

from __future__ import annotations

from datetime import datetime, timedelta

from kinema_core.events import POD_WAITS, SKIPPED, Pod, Step
from kinema_core.model.budgets import budgets_by_pod
from kinema_rescheduler.journal.execution import Progress
from kinema_rescheduler.moves.decision import (
    OVER,
    WAIT,
    MoveDecision,
    blocked,
    elsewhere,
    fail,
    homeless,
    never_ready,
    skip,
    steered,
)
from kinema_rescheduler.moves.quotas import claimed
from kinema_rescheduler.moves.surge import asking, refused
from kinema_rescheduler.moves.workloads import WorkloadMoves
from kinema_rescheduler.names import unit_id
from kinema_rescheduler.plan.context import ExecutionContext


def evict(ctx: ExecutionContext, movers: WorkloadMoves, number: int) -> MoveDecision:  # noqa: PLR0911 - a state machine: one return per state
    """Go on with the `number`th eviction of a workload."""
    progress = ctx.unit("evict", movers.key, number)
    if progress is None:
        ready = steered(ctx, movers, number)
        return _begin(ctx, movers, number) if ready.over else ready
    if progress.state == "open":
        return WAIT
    if progress.state == "failed":
        return _refused(ctx, movers, progress)
    uid = progress.step.pods[0]
    ready_pods = sum(1 for pod in movers.pods if pod.ready)
    wanted = movers.replicas if movers.workload is not None else progress.step.replicas_from
    if uid not in ctx.cluster.pods_by_uid and ready_pods >= wanted:
        return OVER
    pod = homeless(ctx, movers, progress) if uid not in ctx.cluster.pods_by_uid else None
    if pod is not None:
        return _make_way(ctx, movers, pod)
    if movers.workload is not None and refused(ctx, movers.workload, progress) and not _ending_beside(ctx, movers.key):
        detail = f"{movers.key}: the place of an evicted pod is taken: {movers.workload.refused}"
        return MoveDecision(ctx.give_up(POD_WAITS, detail))  # perhaps by a daemon's pod on a node of this plan
    if ctx.passed(progress.ended, ctx.limits.pods_ready_seconds):
        detail = f"{ready_pods} of {wanted} pods are Ready after an eviction"
        return never_ready(ctx, movers, detail)
    return WAIT


def _make_way(ctx: ExecutionContext, movers: WorkloadMoves, pod: Pod) -> MoveDecision:
    """End the plan for an evicted pod without a node: on one that is closed it may fit.

    Where an open node has room, kube-scheduler has a rule that no object shows, or others keep the pod away: the next
    plan would evict it again for nothing, so its workload is left alone.
    """
    detail = f"kube-scheduler finds no node for {pod.key}, evicted before"
    left = skip(ctx, movers, "unschedulable", detail).bodies if elsewhere(ctx, pod) else ()
    return MoveDecision((*left, *ctx.give_up(POD_WAITS, detail)))


def _ending_beside(ctx: ExecutionContext, workload: str) -> bool:
    """Return whether a pod of the workload's namespace ends, and makes room in its quotas."""
    namespace = workload.split("/")[1]
    return any(pod.terminating and pod.namespace == namespace for pod in ctx.cluster.pods)


def _begin(ctx: ExecutionContext, movers: WorkloadMoves, number: int) -> MoveDecision:
    steer = ctx.unit("prefer-nodes", movers.key, number)
    chosen = steer.step.pods if steer is not None else ()
    victim = next((pod for pod in movers.victims if pod.uid in chosen), None)
    if victim is None or ctx.stopping:
        return OVER
    why = _refused_beside(ctx, victim.namespace)
    if why:
        return skip(ctx, movers, "refused", why)
    if asking(ctx, victim.namespace):
        return WAIT
    claim = claimed(ctx, victim)
    if claim is not None:
        return blocked(ctx, movers, "quota", claim)
    if not movers.healthy or ctx.ahead(_paused_until(ctx, victim.key)):
        return blocked(ctx, movers, "not-ready", "not all of its pods are Ready: none is evicted")
    step = Step(
        id=unit_id("evict", movers.key, number),
        kind="evict",
        target=movers.key,
        uid=movers.workload.uid if movers.workload is not None else "",
        pods=(victim.uid,),
        nodes=steer.step.nodes if steer is not None else (),
        replicas_from=len(movers.pods),
    )
    return _attempt(ctx, victim, step)


def _attempt(ctx: ExecutionContext, victim: Pod, step: Step) -> MoveDecision:
    """Evict the pod if there is room for its replacement by now.

    A pod that was sent elsewhere may have come to the planned node since the move began, also while a budget refuses.
    """
    return MoveDecision(ctx.intend(step), leaves=(victim, next(iter(step.nodes), "")))


def _refused_beside(ctx: ExecutionContext, namespace: str) -> str:
    """Return why a replacement might never come: the namespace had no room for another workload's pods in this plan.

    A refused surge is taken back with nothing lost. Under a quota that is used up, the place of an evicted pod is
    anybody's: of a daemon's pod that waits on a new node, say. Where a step itself was refused, no pod was.
    """
    steps = {progress.step.target for progress in ctx.execution.steps.values() if progress.result == "refused"}
    for id_, verdict in ctx.execution.verdicts.items():
        workload = id_.removeprefix(SKIPPED)
        if verdict.reason != "refused" or workload == id_ or workload in steps:
            continue
        if workload.split("/")[1] == namespace:
            return f"the place of an evicted pod might be lost, as with {workload}: {verdict.detail}"
    return ""


def _refused(ctx: ExecutionContext, movers: WorkloadMoves, progress: Progress) -> MoveDecision:
    if not progress.retry:
        gone = progress.result in {"changed", "conflict", "gone"}
        return OVER if gone else fail(ctx, movers, progress.result, progress.detail)
    if ctx.passed(progress.first, ctx.limits.evict_seconds):
        return skip(ctx, movers, progress.result, f"not evicted before its deadline: {progress.detail}")
    victim = ctx.cluster.pods_by_uid.get(progress.step.pods[0])
    if victim is None or ctx.stopping:
        return OVER
    if not movers.healthy or ctx.ahead(_paused_until(ctx, victim.key)):
        return WAIT
    return _attempt(ctx, victim, progress.step)


def _paused_until(ctx: ExecutionContext, pod_key: str) -> datetime:
    """Return when a pod's budgets may be asked again: a refusal counts for every pod under the same budget."""
    own = {budget.key for budget in budgets_by_pod(ctx.cluster).get(pod_key, ())}
    until = ctx.execution.cause.time
    for progress in ctx.execution.steps.values():
        if progress.step.kind != "evict" or progress.result != "budget" or progress.ended is None:
            continue
        other = ctx.cluster.pods_by_uid.get(progress.step.pods[0])
        others = budgets_by_pod(ctx.cluster).get(other.key, ()) if other is not None else ()
        if own & {budget.key for budget in others}:
            pause = timedelta(seconds=ctx.limits.pause_seconds(progress.attempt))
            until = max(until, progress.ended + pause)
    return until
