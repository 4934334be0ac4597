"""Rollback of an aborted plan: Kinema reverts its marks, and deletes the nodes that it booted and no pod uses.

Pods that have moved stay where they are: they run, and moving them back would disturb them again.
"""

from __future__ import annotations

from collections.abc import Iterable

from kinema_core.events import Node, Step
from kinema_rescheduler.journal.execution import Progress, Verdict
from kinema_rescheduler.moves.roll import rolled
from kinema_rescheduler.moves.room import Room
from kinema_rescheduler.moves.scheduling import abandon
from kinema_rescheduler.names import ABORT, CLAIMED, taint_id
from kinema_rescheduler.plan.context import REFUSALS, Decision, ExecutionContext
from kinema_rescheduler.plan.phases import Phase, clean, reopen

_NEVER_MADE = REFUSALS | {CLAIMED}


def reason_to_abort(ctx: ExecutionContext) -> Verdict | None:
    """Return why the plan is aborted: the first cause in time, an operator's word included; None while it goes on."""
    causes = [cause for cause in (ctx.execution.abort, reason_to_fail(ctx)) if cause is not None]
    return min(causes, key=lambda cause: (cause.time, cause.reason), default=None)


def reason_to_fail(ctx: ExecutionContext) -> Verdict | None:
    """Return the first failure in time for which the plan is rolled back; None where there is none.

    A node that is not there or no use is none as long as exchanges are left that do without.
    """
    execution, limits = ctx.execution, ctx.limits
    causes = [execution.verdicts[ABORT]] if ABORT in execution.verdicts else []
    causes += [] if ctx.goes_on else ctx.unfit.values()
    dropped = {f"boot/{name}" for name in ctx.refused} if ctx.goes_on else set[str]()
    for progress in execution.steps.values():
        if progress.step.id in dropped:
            continue
        if progress.lost and progress.step.kind in {"boot", "taint"}:
            assert progress.ended is not None
            detail = f"{progress.step.id}: {progress.detail}"
            causes.append(Verdict(reason=progress.result, detail=detail, time=progress.ended))
    begun = next((progress.intended for progress in execution.steps.values()), ctx.now)
    if ctx.passed(begun, limits.execution_seconds):
        causes.append(Verdict(reason="deadline", detail=f"not done in {limits.execution_seconds:.0f} s", time=ctx.now))
    return min(causes, key=lambda cause: (cause.time, cause.reason), default=None)


def roll_back(ctx: ExecutionContext) -> Phase:
    """Open the nodes that were to go, wait for what is under way, then take back moves, new nodes and all the rest.

    The nodes first, and beside all else: none of them is deleted any more, and as long as they are closed, pods of the
    way back and pods of strangers wait for room that is there. New nodes stay as they are until it is known which of
    them go.
    """
    opening = reopen(ctx)
    if opening.bodies:
        return Phase(opening.bodies)
    if ctx.execution.open_steps and not _taking_back(ctx):
        return Phase()
    for stage in (_moves, _nodes, clean):
        phase = stage(ctx)
        if phase.bodies or not phase.over:
            return phase
    return Phase(over=True)


def _taking_back(ctx: ExecutionContext) -> bool:
    """Return whether all that is under way belongs to the rollback itself."""
    undoing = {"revert", "delete", "untaint", "clear-preferred-nodes"}
    booted = {taint_id(name) for name in ctx.booted}
    return all(progress.step.kind in undoing or progress.step.id in booted for progress in ctx.execution.open_steps)


def _moves(ctx: ExecutionContext) -> Phase:
    decisions = [abandon(ctx, key) for key in sorted(ctx.units)]
    return Phase(tuple(body for one in decisions for body in one.bodies), all(one.over for one in decisions))


def take_rolls_back(ctx: ExecutionContext) -> Phase:
    """Begin to take rolling updates back that an operator's abort has met; the rollback waits for their end."""
    if ctx.execution.abort is None:
        return Phase(over=True)
    decisions = [abandon(ctx, key) for key in sorted(ctx.units) if rolled(ctx, key)]
    return Phase(tuple(body for one in decisions for body in one.bodies), over=True)


def _nodes(ctx: ExecutionContext) -> Phase:
    """Delete booted nodes that carry nothing; keep those that pods have moved to, and all that are not observed."""
    return Phase(over=True) if ctx.blind else give_back(ctx, ctx.booted)


def give_back(ctx: ExecutionContext, names: Iterable[str]) -> Phase:
    """Delete these booted nodes, but for those that pods use or others want."""
    names, bodies, over = tuple(names), list[Decision](), True
    needed = _needed(ctx, names)
    for name in names:
        booted = ctx.progress(f"boot/{name}")
        if booted is None or name in needed or (booted.lost and booted.result in _NEVER_MADE):
            continue
        found, ended = _node(ctx, name, booted)
        bodies += found
        over = over and ended
    return Phase(tuple(bodies), over)


def _node(ctx: ExecutionContext, name: str, booted: Progress) -> tuple[tuple[Decision, ...], bool]:
    deletion, node = ctx.progress(f"delete/{name}"), ctx.cluster.node(name)
    came_up = node is not None and deletion is not None and not deletion.step.uid and deletion.state == "failed"
    if deletion is not None and (deletion.over or not came_up):
        return ctx.intend(deletion.step), deletion.over
    if node is None:
        return ctx.intend(Step(id=f"delete/{name}", kind="delete", target=name)), False
    pods = ctx.evictable.get(name, ())
    if any(not pod.terminating for pod in pods) or _wanted(ctx, node):
        return (), True
    if pods:
        waited = ctx.passed(ctx.last_event, ctx.limits.terminating_seconds)
        return (), waited
    return _empty(ctx, node)


def _needed(ctx: ExecutionContext, names: Iterable[str]) -> frozenset[str]:
    """Return the empty booted nodes that stay, as pods need them that wait and have room on no other node.

    They would be bought again for these pods. One that is being closed is not reconsidered, and one that is not Ready
    takes no pod.
    """
    spare = {name for name in names if name not in ctx.unfit and ctx.progress(taint_id(name)) is None}
    spare -= {name for name in spare if any(not pod.terminating for pod in ctx.evictable.get(name, ()))}
    if not spare:
        return frozenset()
    able = [node.name for node in ctx.cluster.nodes if node.ready and not node.unschedulable]
    room = Room(ctx.cluster, sorted(set(able) - ctx.unfit.keys(), key=lambda name: (name in spare, name)))
    needed = set[str]()
    for pod in sorted(ctx.alive.values(), key=lambda pod: pod.key):
        if pod.node is None and not pod.rules.gated and not pod.rules.unmodeled:
            needed |= spare.intersection(room.take(pod, pod.requests, "", 1))
    return frozenset(needed)


def _wanted(ctx: ExecutionContext, node: Node) -> bool:
    """Return whether others want a booted node: a cordon, a rule against deletion, another autoscaler's mark."""
    return node.unschedulable or ctx.judge.why_kept(node.name) is not None


def _empty(ctx: ExecutionContext, node: Node) -> tuple[tuple[Decision, ...], bool]:
    """First close the node, then see that it is still empty, then delete it: no pod may slip in between."""
    closing = Step(id=taint_id(node.name), kind="taint", target=node.name, uid=node.uid)
    closed = ctx.progress(closing.id)
    if closed is None or (closed.state == "failed" and closed.retry):
        return ctx.intend(closing), False
    if closed.lost:
        return (), True
    if not ctx.passed(closed.ended, ctx.limits.steer_seconds):
        return (), False
    return ctx.intend(Step(id=f"delete/{node.name}", kind="delete", target=node.name, uid=node.uid)), False
