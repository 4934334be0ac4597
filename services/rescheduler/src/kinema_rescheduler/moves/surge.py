"""Moving pods by a surge: k more, wait until they are Ready, then the k chosen ones go.

The ready count never goes below the replicas: the surplus is taken away only when as many pods as are wanted are
Ready beside the victims, and the writer checks that again on fresh state.
"""

from __future__ import annotations

from datetime import timedelta

from kinema_core.events import Pod, Step, Workload
from kinema_rescheduler.journal.execution import Progress
from kinema_rescheduler.moves.decision import (
    OVER,
    WAIT,
    MoveDecision,
    elsewhere,
    fail,
    homeless,
    never_ready,
    skip,
    steered,
)
from kinema_rescheduler.moves.workloads import WorkloadMoves, autoscalers_of
from kinema_rescheduler.names import unit_id
from kinema_rescheduler.plan.context import ExecutionContext


def surge(ctx: ExecutionContext, movers: WorkloadMoves, number: int) -> MoveDecision:  # noqa: PLR0911 - a state machine: one return per state
    """Go on with the `number`th surge of a workload."""
    workload = movers.workload
    if workload is None:
        return skip(ctx, movers, "gone", "its controller does not exist any more")
    up = ctx.unit("surge-up", movers.key, number)
    if up is None:
        ready = steered(ctx, movers, number)
        return _begin(ctx, movers, workload, number) if ready.over else ready
    if up.state == "open":
        return WAIT
    if up.state == "failed":
        return _not_begun(ctx, movers, up)
    if up.result == "void":
        return OVER
    if not _seen(workload, up):
        return OVER if ctx.passed(up.ended, ctx.limits.observed_seconds) else WAIT
    down = ctx.unit("surge-down", movers.key, number)
    if down is not None:
        return _ending(ctx, movers, workload, down)
    return _awaiting(ctx, movers, workload, up)


def _begin(ctx: ExecutionContext, movers: WorkloadMoves, workload: Workload, number: int) -> MoveDecision:
    """Ask for the new pods, for those victims that are still there."""
    steer = ctx.unit("prefer-nodes", movers.key, number)
    chosen = steer.step.pods if steer is not None else ()
    victims = tuple(sorted(pod.uid for pod in movers.victims if pod.uid in chosen))
    if not victims or ctx.stopping:
        return OVER
    step = Step(
        id=unit_id("surge-up", movers.key, number),
        kind="surge-up",
        target=movers.key,
        uid=workload.uid,
        pods=victims,
        nodes=steer.step.nodes if steer is not None else (),
        replicas_from=workload.replicas,
        replicas_to=workload.replicas + len(victims),
    )
    return MoveDecision(ctx.intend(step))


def _not_begun(ctx: ExecutionContext, movers: WorkloadMoves, up: Progress) -> MoveDecision:
    """Try again by a new move with fresh numbers, unless that has no use."""
    if up.retry or up.result in {"changed", "conflict", "gone"}:
        return OVER
    return fail(ctx, movers, up.result, up.detail)


def _seen(workload: Workload, progress: Progress) -> bool:
    """Return whether the cluster state is new enough to show what the step did."""
    generation = progress.figures.get("generation", 0)
    return workload.generation >= int(generation)


def _awaiting(  # noqa: PLR0911 - a state machine: one return per state
    ctx: ExecutionContext, movers: WorkloadMoves, workload: Workload, up: Progress
) -> MoveDecision:
    """Wait for the surplus that was asked for, or notice that another client took it back."""
    if workload.replicas != up.step.replicas_to:
        if autoscalers_of(ctx.cluster, workload):
            return OVER  # its autoscaler took the surplus back or wants more by now: a new move sees what is left to do
        return skip(
            ctx,
            movers,
            "changed",
            f"replicas are {workload.replicas}, not the {up.step.replicas_to} that were set: another client scales it",
        )
    if _template_changed(workload, up):
        return skip(ctx, movers, "changed", "another client changed it while its pods moved")
    if refused(ctx, workload, up):
        return skip(ctx, movers, "refused", f"its controller may create no more pods: {workload.refused}")
    ready = {pod.uid for pod in movers.pods if pod.ready}
    others, leaving = len(ready.difference(up.step.pods)), len(ready.intersection(up.step.pods))
    # A pod that leaves need not be Ready: its node may be gone. Of all others the controller has to know it by now.
    if others >= up.step.replicas_from and workload.ready >= up.step.replicas_from + leaving:
        return MoveDecision(ctx.intend(_down(movers, workload, up)))
    pod = homeless(ctx, movers, up)
    if pod is not None:
        return _without_node(ctx, movers, pod)
    # Counted from when the pods were asked for: the time that a killed process was away does not count.
    if ctx.passed(up.ended, ctx.limits.pods_ready_seconds):
        detail = f"{others} of {up.step.replicas_from} pods beside the leaving ones are Ready"
        return never_ready(ctx, movers, detail)
    return WAIT


def _without_node(ctx: ExecutionContext, movers: WorkloadMoves, pod: Pod) -> MoveDecision:
    """Take the surge back for a pod without a node. Where no open node has room, what remains is planned again.

    Others took the room since. Where there is some, kube-scheduler has a rule that no object shows: the next plan would
    ask for the pod again for nothing, so its workload is left alone.
    """
    detail = f"kube-scheduler finds no node for {pod.key}"
    if elsewhere(ctx, pod):
        return skip(ctx, movers, "unschedulable", detail)
    return MoveDecision((*skip(ctx, movers, "no-room", detail).bodies, *ctx.replan("no-room", detail)))


def refused(ctx: ExecutionContext, workload: Workload, asked: Progress) -> bool:
    """Return whether what a step asked for is forbidden (a quota, an admission rule): waiting would not help."""
    # A Deployment whose ReplicaSet is refused says so, and not which generation of itself it has seen.
    return _seen(workload, asked) and bool(workload.refused) and ctx.passed(asked.ended, ctx.limits.refused_seconds)


def asking(ctx: ExecutionContext, namespace: str) -> bool:
    """Return whether a surge in the namespace has yet to get its pods: they would take any place that becomes free."""
    planned = {place.uid for place in ctx.plan.placements if place.strategy == "surge"}
    for key, number in ctx.units.items():
        workload, up = ctx.cluster.workload(key), ctx.unit("surge-up", key, number)
        begun = up or ctx.unit("prefer-nodes", key, number)
        if workload is None or workload.namespace != namespace or ctx.skipped(key) or begun is None:
            continue
        if ctx.passed(begun.intended, ctx.limits.observed_seconds):
            continue  # it came to nothing
        if up is None and planned.intersection(begun.step.pods) and ctx.unit("evict", key, number) is None:
            return True
        if up is not None and _lacks(workload, up):
            return True
    return False


def _lacks(workload: Workload, up: Progress) -> bool:
    """Return whether pods that were asked for do not exist yet, as far as can be seen."""
    if up.state != "done":
        return up.state == "open"
    return not _seen(workload, up) or workload.replicas == up.step.replicas_to > workload.current


def _template_changed(workload: Workload, up: Progress) -> bool:
    """Return whether something else was written: a newer generation with the same replicas."""
    return "generation" in up.figures and workload.generation > int(up.figures["generation"])


def _down(movers: WorkloadMoves, workload: Workload, up: Progress) -> Step:
    number = int(up.step.id.rpartition("/")[2])
    alive = {pod.uid for pod in movers.pods}
    return Step(
        id=unit_id("surge-down", movers.key, number),
        kind="surge-down",
        target=movers.key,
        uid=workload.uid,
        pods=tuple(uid for uid in up.step.pods if uid in alive),
        replicas_from=up.step.replicas_to,
        replicas_to=up.step.replicas_from,
    )


def _ending(  # noqa: PLR0911 - a state machine: one return per state
    ctx: ExecutionContext, movers: WorkloadMoves, workload: Workload, down: Progress
) -> MoveDecision:
    """Wait until the victims are gone with the surplus."""
    if down.state == "open":
        return WAIT
    if down.lost:
        return OVER if down.result in {"changed", "conflict", "gone"} else fail(ctx, movers, down.result, down.detail)
    if down.state == "failed":
        if workload.replicas != down.step.replicas_from:
            return OVER
        if ctx.passed(down.first, ctx.limits.pods_ready_seconds):
            return never_ready(ctx, movers, down.detail)
        return MoveDecision(ctx.intend(down.step))
    seen, left = _seen(workload, down), next((pod for pod in movers.pods if pod.uid in down.step.pods), None)
    if seen and left is None:
        return OVER
    if not ctx.passed(down.ended, ctx.limits.observed_seconds):
        return WAIT
    settled = workload.observed_generation >= workload.generation and workload.current == workload.replicas
    if not (seen and settled) or left is None or workload.replicas != down.step.replicas_to:
        return OVER  # its controller is late, or others have scaled it since: a new move sees what is left to do
    # A controller removes pods that are not Ready before those that are marked: the new ones crash.
    return skip(ctx, movers, "taken-back", f"its controller removed another pod instead of {left.key}")


def unfinished(ctx: ExecutionContext, workload: str, number: int) -> bool:
    """Return whether a surge of the workload may have left a surplus or deletion costs."""
    up, down = ctx.unit("surge-up", workload, number), ctx.unit("surge-down", workload, number)
    return up is not None and not (down is not None and down.state == "done")


def restoring(ctx: ExecutionContext, key: str, pods: tuple[Pod, ...]) -> Step:
    """Revert what the last surge left: the newest pods are the surplus, and no pod keeps Kinema's deletion cost."""
    number = ctx.units[key]
    up = ctx.unit("surge-up", key, number)
    workload, moved = ctx.cluster.workload(key), up or ctx.unit("roll", key, 1)
    known = workload.uid if workload is not None else moved.step.uid if ctx.blind and moved is not None else ""
    step = Step(id=f"revert/{key}", kind="revert", target=key, uid=known)
    if up is None or up.result in {"changed", "conflict", "gone", "denied", "refused", "void"}:
        return step
    if not unfinished(ctx, key, number):
        return step
    surplus = up.step.replicas_to - up.step.replicas_from
    # Creation times have whole seconds, those of events have more: allow for the second that was cut off.
    fresh = [
        pod
        for pod in pods
        if pod.uid not in up.step.pods and pod.created is not None and pod.created >= up.intended - timedelta(seconds=1)
    ]
    fresh.sort(key=lambda pod: (pod.ready, -(pod.created or up.intended).timestamp(), pod.key))
    return Step(
        id=step.id,
        kind="revert",
        target=key,
        uid=step.uid,
        pods=tuple(sorted(pod.uid for pod in fresh[:surplus])),
        replicas_from=up.step.replicas_to,
        replicas_to=up.step.replicas_from,
    )
