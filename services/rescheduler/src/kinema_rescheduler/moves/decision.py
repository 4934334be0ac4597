"""Next steps of one move in progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec import structs

from kinema_core.events import Pod, Step, Strategy
from kinema_core.model.checker.free_places import FreePlaces
from kinema_core.model.checker.view import view_of
from kinema_core.model.mobility import MobilityOptions
from kinema_core.model.strategy import annotations_of
from kinema_core.model.vocabulary import STEERING, forbids
from kinema_rescheduler.journal.execution import Progress
from kinema_rescheduler.moves.workloads import WorkloadMoves
from kinema_rescheduler.names import NEVER_READY, ROLL_STUCK, skip_id, unit_id
from kinema_rescheduler.plan.context import Decision, ExecutionContext

HARMLESS: Final = frozenset(
    {"changed", "conflict", "gone", "held", "refused", "not-ready", "budget", "taken-back", "throttled"}
)
"""Reasons for which only the workload concerned is left alone; any other ends the plan."""


@dataclass(frozen=True)
class Blocked:
    """Reason that keeps a move from beginning."""

    workload: str
    reason: str
    detail: str


@dataclass(frozen=True)
class MoveDecision:
    """Bodies to publish now, and whether the move has ended."""

    bodies: tuple[Decision, ...] = ()
    over: bool = False
    waits: Blocked | None = None
    """What it waits for, where that is neither a step of its own nor a moment."""
    leaves: tuple[Pod, str] | None = None
    """The pod that the bodies evict and its planned node: they are published only where there is room for another."""


WAIT: Final = MoveDecision()
OVER: Final = MoveDecision(over=True)


def skip(ctx: ExecutionContext, movers: WorkloadMoves, reason: str, detail: str) -> MoveDecision:
    """Leave this workload where it is."""
    return skipping(ctx, Blocked(movers.key, reason, detail))


def skipping(ctx: ExecutionContext, blocked: Blocked) -> MoveDecision:
    """Leave a workload where it is whose move was blocked."""
    return MoveDecision(ctx.verdict(skip_id(blocked.workload), blocked.reason, blocked.detail))


def blocked(ctx: ExecutionContext, movers: WorkloadMoves, reason: str, detail: str) -> MoveDecision:
    """Wait while anything else goes on; then leave the workload alone."""
    if ctx.passed(ctx.last_event, ctx.limits.blocked_seconds):
        return skip(ctx, movers, reason, detail)
    return MoveDecision(waits=Blocked(movers.key, reason, detail))


def homeless(ctx: ExecutionContext, movers: WorkloadMoves, asked: Progress) -> Pod | None:
    """Return a pod that was asked for and for which kube-scheduler finds no node, while none ends that makes room."""
    if not ctx.passed(asked.ended, ctx.limits.refused_seconds):
        return None
    if any(pod.terminating for pods in ctx.evictable.values() for pod in pods):
        return None
    return next((pod for pod in movers.pods if pod.node is None and pod.unschedulable), None)


def elsewhere(ctx: ExecutionContext, pod: Pod) -> bool:
    """Return whether an open node could take a pod that waits: then a rule that no object shows keeps it waiting."""
    nothing = structs.replace(ctx.plan, nodes=(), placements=(), temporary=(), steps=(), resizes=())
    options = MobilityOptions(allow_spot=True)
    view = view_of(nothing, ctx.cluster, ctx.offers, now=ctx.now, options=options, drifted=True)
    return FreePlaces(view).find_free(pod, lambda _: True) is not None


def never_ready(
    ctx: ExecutionContext, movers: WorkloadMoves, detail: str, *, reason: str = NEVER_READY
) -> MoveDecision:
    """Leave a workload alone whose new pods are not Ready in time; the rest of the plan goes on.

    A node that was booted for the plan and on which no pod is Ready may be the cause: then no other pod is to wait for
    it. Where another node has failed, the new pods are not to blame, and the next plan may move them.
    """
    if _has_failed_with_node(ctx, movers):
        return skip(ctx, movers, "not-ready", detail)
    bodies = skip(ctx, movers, reason, detail).bodies
    waiting = {pod.node for pod in movers.pods if pod.node is not None and not pod.ready}
    for name in sorted(waiting & ctx.coming.keys()):
        if _is_suspect(ctx, movers.key, name):
            bodies += ctx.do_without(name, reason, f"no pod on node {name} is Ready; {movers.key}: {detail}")
    return MoveDecision(bodies)


def _has_failed_with_node(ctx: ExecutionContext, movers: WorkloadMoves) -> bool:
    """Return whether every pod that is not Ready, or does not end, is on a node that has ceased to be Ready."""
    failed = {node.name for node in ctx.cluster.nodes if not node.ready} - ctx.coming.keys()
    pods = ctx.cluster.pods_by_workload.get(movers.key, ())
    unready = {pod.node for pod in pods if pod.terminating or not pod.ready}
    return bool(unready) and unready <= failed


def _is_suspect(ctx: ExecutionContext, workload: str, node: str) -> bool:
    """Return whether a booted node, rather than the workload, may be why pods are not Ready there.

    None is, and another workload's were not either, or none is left to find out by: only one whose pods run on until
    those on the node are Ready may go there for that.
    """
    if any(pod.ready for pod in ctx.evictable.get(node, ())):
        return False
    others: dict[str, Strategy] = {}
    for place in ctx.coming[node]:
        pod = ctx.alive.get(place.uid)
        if pod is not None and (key := ctx.cluster.workload_key_of(pod)) != workload:
            others[key] = place.strategy
    verdicts = [ctx.execution.verdicts.get(skip_id(key)) for key in others]
    if any(verdict is not None and verdict.reason in {NEVER_READY, ROLL_STUCK} for verdict in verdicts):
        return True
    return {strategy for key, strategy in others.items() if not ctx.skipped(key)} != {"surge"}


def fail(ctx: ExecutionContext, movers: WorkloadMoves, reason: str, detail: str) -> MoveDecision:
    """Leave a workload alone after a final failure, or abort the plan where that would not help."""
    if reason in HARMLESS:
        return skip(ctx, movers, reason, detail)
    return MoveDecision(ctx.give_up(reason, f"{movers.key}: {detail}"))


def steering(
    ctx: ExecutionContext, movers: WorkloadMoves, number: int, pods: tuple[str, ...], nodes: tuple[str, ...]
) -> MoveDecision:
    """Begin the `number`th move of a workload: publish where its new pods are to go, one node for each."""
    pod = next(pod for pod in movers.victims if pod.uid in pods)
    step = Step(
        id=unit_id("prefer-nodes", movers.key, number),
        kind="prefer-nodes",
        target=movers.key,
        uid=pod.owner.uid if pod.owner is not None else "",
        pods=pods,
        nodes=nodes if is_led(ctx, pod) else (),
    )
    return MoveDecision(ctx.intend(step))


def is_led(ctx: ExecutionContext, pod: Pod) -> bool:
    """Return whether the owner lets new pods of the workload be led to their planned nodes."""
    return all(forbids(given, STEERING, when="false") is None for given in annotations_of(ctx.cluster, pod))


def steered(ctx: ExecutionContext, movers: WorkloadMoves, number: int) -> MoveDecision:
    """Return whether new pods are steered by now (`over`). Steering that failed is done without: it fails open."""
    steer = ctx.unit("prefer-nodes", movers.key, number)
    if steer is None:
        return OVER
    if not steer.over:
        return MoveDecision(ctx.intend(steer.step))
    if steer.state == "done" and steer.step.nodes and not ctx.passed(steer.ended, ctx.limits.steer_seconds):
        return WAIT  # also where the preference was found made: the landing of this move begins now
    return OVER
