"""Pods that wait because of Kinema: its taint keeps them off a node, or its plan keeps a node from being bought.

Waiting for room that no move will free has no use, and as long as a plan waits, no other plan is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from kinema_core.events import POD_WAITS, FrozenMap, Node, Offer, Pod, StepFailed
from kinema_core.model.checker.view import boot_site
from kinema_core.model.daemons import room_left
from kinema_core.model.match import node_admits
from kinema_core.model.mobility import spot_allowed
from kinema_core.model.resources import fits
from kinema_core.model.volumes import with_attachments
from kinema_rescheduler.journal.execution import Progress
from kinema_rescheduler.moves.decision import MoveDecision, skipping
from kinema_rescheduler.moves.roll import rolled
from kinema_rescheduler.moves.room import admits
from kinema_rescheduler.moves.surge import unfinished
from kinema_rescheduler.moves.workloads import WorkloadMoves
from kinema_rescheduler.names import DISRUPTED, ROLL_STUCK, skip_id, taint_id, unit_id
from kinema_rescheduler.plan.context import ExecutionContext

_IDLE: Final = frozenset({"no-room", "not-ready", "quota"})
"""Reasons to wait that only others can end."""
_CUT_OFF: Final = timedelta(seconds=1)
"""Creation times have whole seconds, those of events have more: allow for what was cut off."""


def kept_waiting(ctx: ExecutionContext) -> tuple[StepFailed, ...]:
    """Give the plan up for a pod that has waited long enough: then the nodes are open again, or one is bought for it.

    Only pods that came after a node was closed, or after the plan was accepted, count: those that were there before
    were waiting anyway, and the next plan would do them no better.
    """
    closed = tuple(_closed(ctx))
    for pod in _waiting(ctx):
        home = _home(ctx, pod, closed)
        why = _reason(ctx, pod, home)
        if why and not any(_would_take(ctx, node, pod) for node in ctx.cluster.nodes):
            return ctx.give_up(POD_WAITS, f"{pod.key} {why}")
        if home and _is_last(ctx, pod):
            roll = skip_id(ctx.cluster.workload_key_of(pod))
            return (*ctx.verdict(roll, ROLL_STUCK, f"{pod.key} {why}"), *ctx.give_up(POD_WAITS, f"{pod.key} {why}"))
    return ()


def _home(ctx: ExecutionContext, pod: Pod, closed: Sequence[tuple[Node, datetime]]) -> str:
    """Return the first node that would take the pod, had it not been closed before the pod came; empty for none."""
    assert pod.created is not None
    return next((node.name for node, since in closed if pod.created >= since and _would_take(ctx, node, pod)), "")


def _reason(ctx: ExecutionContext, pod: Pod, home: str) -> str:
    """Return why the pod would not wait but for the plan; empty where it would."""
    if home:
        return f"fits on node {home} alone, which is closed to be deleted"
    if pod.created is None or pod.created < ctx.execution.cause.time - _CUT_OFF or _is_booted(ctx, pod):
        return ""
    offer = next((offer for offer in ctx.offers if _would_run_on(ctx, offer, pod)), None)
    return f"needs a new node, for example {offer.name}, and none is bought during an execution" if offer else ""


def _is_booted(ctx: ExecutionContext, pod: Pod) -> bool:
    """Return whether a node that is being booted to stay would take the pod: it is there sooner than one bought for it.

    The moves that it was booted for may then lack the room; what is left of the plan is made again.
    """
    names = [name for name, why in ctx.awaited.items() if why and name not in ctx.route.temporary]
    steps = [one for name in names if (one := ctx.progress(f"boot/{name}")) is not None and one.state != "failed"]
    coming = {one.step.offer for one in steps}
    return any(offer.name in coming and _runs_on(ctx, offer, pod) for offer in ctx.offers)


def needed_nodes(ctx: ExecutionContext) -> frozenset[str]:
    """Return the closed nodes that are not to be deleted for now: a pod waits that they would hold.

    Concerned are workloads of which pods were evicted or that are rolled: their pods have nowhere to go back to, while
    those of a surge are given back. A pod that its controller has yet to create may fit on any of the nodes.
    """
    closed = [node for node, _ in _closed(ctx)]
    steps = ctx.execution.steps.values() if closed else ()
    made = {one.step.target: one for one in steps if one.step.kind in {"evict", "roll"} and one.state == "done"}
    if any(_uncreated(ctx, one) for one in made.values()):
        return frozenset(node.name for node in closed)
    waiting = [
        pod
        for pod in (_unbound(ctx) if made else ())
        if ctx.cluster.workload_key_of(pod) in made and not ctx.passed(pod.created, ctx.limits.pods_ready_seconds)
    ]
    return frozenset(node.name for node in closed if any(_would_take(ctx, node, pod) for pod in waiting))


def _uncreated(ctx: ExecutionContext, made: Progress) -> bool:
    """Return whether a pod is missing since this step of which the controller has yet to create another."""
    workload, pods = ctx.cluster.workload(made.step.target), ctx.cluster.pods_by_workload.get(made.step.target, ())
    if workload is None or len(pods) >= min(workload.replicas, made.step.replicas_from):
        return False
    return not ctx.passed(made.ended, ctx.limits.pods_ready_seconds)


def _would_run_on(ctx: ExecutionContext, offer: Offer, pod: Pod) -> bool:
    """Return whether a new node of the offer could be bought for the pod, and would take it."""
    return offer.available != 0 and _runs_on(ctx, offer, pod)


def _runs_on(ctx: ExecutionContext, offer: Offer, pod: Pod) -> bool:
    """Return whether a new node of the offer would take the pod."""
    site = boot_site(ctx.cluster, offer, "new")
    if site.spot and not spot_allowed(ctx.cluster, pod, taint_keys=site.spot_keys):
        return False
    takes = with_attachments(ctx.cluster, pod, pod.requests)
    admitted = node_admits(pod.rules, name=site.name, labels=site.labels, taints=site.taints) is None
    return admitted and fits(takes, site.room)


def _closed(ctx: ExecutionContext) -> Iterator[tuple[Node, datetime]]:
    """Yield nodes under Kinema's taint as they would be without it, and since when; none that goes in any case."""
    for name in ctx.deletes:
        if name in ctx.booted:
            continue
        node, marked = ctx.same_node(taint_id(name)), ctx.progress(taint_id(name))
        if node is None or marked is None or marked.ended is None or ctx.progress(f"delete/{name}") is not None:
            continue
        taints = tuple(taint for taint in node.taints if taint.key != DISRUPTED)
        labels = FrozenMap({key: value for key, value in node.labels.items() if key != DISRUPTED})
        if taints != node.taints:
            yield replace(node, taints=taints, labels=labels), marked.ended - _CUT_OFF


def _waiting(ctx: ExecutionContext) -> Iterator[Pod]:
    """Yield pods for which kube-scheduler has long found no node, except those that a move of Kinema's needs."""
    for pod in _unbound(ctx):
        if not pod.unschedulable or pod.rules.unmodeled:
            continue
        late = ctx.passed(pod.created, ctx.limits.unschedulable_seconds)
        if late and not _asked_for(ctx, ctx.cluster.workload_key_of(pod)):
            yield pod


def _unbound(ctx: ExecutionContext) -> Iterator[Pod]:
    """Yield pods without a node that the plan does not know, but for those that wait for something else than one."""
    planned = {place.uid for place in ctx.plan.placements}
    for pod in ctx.alive.values():
        if pod.node is None and not pod.rules.gated and pod.uid not in planned:
            yield pod


def _is_last(ctx: ExecutionContext, pod: Pod) -> bool:
    """Return whether the pod is of a rolling update whose other pods are Ready: no node becomes free for it.

    Then kube-scheduler's word counts: the pods may keep apart, or it has rules that no object shows.
    """
    key = ctx.cluster.workload_key_of(pod)
    others = (one for one in ctx.cluster.pods_by_workload.get(key, ()) if one.node is not None)
    return rolled(ctx, key) and all(one.ready for one in others)


def _asked_for(ctx: ExecutionContext, key: str) -> bool:
    """Return whether a move of the workload goes on, which has deadlines of its own.

    A pod of a rolling update may wait for those that it replaces to end, and not for a closed node.
    """
    number = ctx.units.get(key, 0)
    if number == 0 or ctx.over(f"revert/{key}"):
        return False
    if rolled(ctx, key):
        return any(pod.terminating for pods in ctx.evictable.values() for pod in pods)
    return ctx.progress(unit_id("evict", key, number)) is not None or unfinished(ctx, key, number)


def _would_take(ctx: ExecutionContext, node: Node, pod: Pod) -> bool:
    takes = with_attachments(ctx.cluster, pod, pod.requests)
    if not node.ready or node.unschedulable or not fits(takes, room_left(ctx.cluster)[node.name]):
        return False
    return admits(node, pod)


def hopeless(ctx: ExecutionContext, due: Sequence[WorkloadMoves], decisions: list[MoveDecision]) -> list[MoveDecision]:
    """End the plan where all moves that are due wait for what nothing under way would bring: the rest is replanned.

    That is room, or the rest of workloads that others change or whose pods restart: the next plan leaves those alone.
    Only Kinema's steps begin the wait again. Where only rolling updates that empty no node wait for room, the first one
    is abandoned: the rest of a plan changes no requests.

    Args:
        ctx: with no move in progress.
        due: the moves of this wave.
        decisions: what came of the attempt to begin them, in its order.
    """
    waits = [one.waits for one in decisions if one.waits is not None and one.waits.reason in _IDLE]
    if not waits or len(waits) < len(decisions):
        return decisions
    patience = min(ctx.limits.no_room_seconds, ctx.limits.blocked_seconds)
    if not ctx.passed(ctx.last_step, patience) or _may_come(ctx, due):
        return decisions
    resizing = {item.key for item in due if item.strategy == "rolling" and not item.victims}
    first = next((one for one in waits if one.workload not in resizing), None)
    if first is None and any(one.reason != "no-room" for one in waits):
        return decisions
    if first is None:
        return [skipping(ctx, waits[0]), *decisions[1:]]
    return [MoveDecision(ctx.replan(first.reason, f"{first.workload}: {first.detail}")), *decisions[1:]]


def _may_come(ctx: ExecutionContext, due: Sequence[WorkloadMoves]) -> bool:
    """Return whether there may be more room by itself: steps under way, pods that end, nodes that are coming up.

    Room that others might make, who scale down or open a node, is not counted on.
    """
    if ctx.execution.open_steps or any(pod.terminating for pods in ctx.evictable.values() for pod in pods):
        return True
    stops = {name for item in due for name in item.targets.values() if name in ctx.route.temporary}
    if any((node := ctx.cluster.node(name)) is None or not node.ready for name in stops):
        return True
    planned = {place.to for place in ctx.plan.placements}
    return any(
        not node.ready and not node.unschedulable and node.name in planned and node.name not in ctx.deletes
        for node in ctx.cluster.nodes
    )
