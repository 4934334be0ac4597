"""The phases beside the moves: boot, wait until Ready, mark, rent and retire temporary nodes, delete, clean up."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

from kinema_core.events import Node, Step, StepFailed
from kinema_core.model.daemons import resident_requests
from kinema_core.model.resources import add, lacking, total
from kinema_rescheduler.journal.execution import Verdict
from kinema_rescheduler.moves.order import MoveOrder
from kinema_rescheduler.moves.scheduling import Moves, restored, surges_left
from kinema_rescheduler.moves.waiting import needed_nodes
from kinema_rescheduler.names import CLAIMED, CORDONED, DISRUPTED, PLAN, keep_id, taint_id, untaint_id
from kinema_rescheduler.plan.context import Decision, ExecutionContext, intents

_OFF_LIMITS: Final = "off-limits"
_UNMARKED: Final = "another client removed Kinema's marks"


@dataclass(frozen=True)
class Phase:
    """Next steps of a phase, and whether it has ended."""

    bodies: tuple[Decision, ...] = ()
    over: bool = False


def boot(ctx: ExecutionContext, order: MoveOrder) -> Phase:
    """Boot the missing nodes that are needed now: all at once but for those that only later closings need."""
    offers = {node.name: node.offer for node in (*ctx.plan.nodes, *ctx.plan.temporary)}
    due = _boots_due(ctx, order)
    steps = [Step(id=f"boot/{name}", kind="boot", target=name, offer=offers[name]) for name in due]
    bodies = tuple(body for step in steps for body in ctx.intend(step))
    return Phase(bodies, over=all(ctx.done(step.id) or step.target in ctx.refused for step in steps))


def _boots_due(ctx: ExecutionContext, order: MoveOrder) -> tuple[str, ...]:
    """Return which of the nodes to boot are to be there by now, sorted.

    What the next nodes to be closed need is booted while those before them are emptied.
    """
    closings = order.next_to_close
    later = {name for one in closings[ctx.most_closed :] for name in one.boots}
    soon = {name for one in closings[: ctx.most_closed] for name in one.boots}
    begun = {progress.step.target for progress in ctx.execution.steps.values() if progress.step.kind == "boot"}
    at_once = {
        place.to for place in ctx.plan.placements if place.source is None or ctx.plan_action.get(place.source) == "keep"
    }
    return tuple(name for name in ctx.boots if name not in (later - soon - begun - at_once) | ctx.in_vain)


def await_ready(ctx: ExecutionContext) -> Phase:
    """Wait until each booted node is Ready, admits the pods that the plan puts there and can hold them.

    Once a move to a node has begun this is over for it: what happens to it later shows in the moves. A node that is to
    stay and is no use is done without, a temporary one ends the plan.
    """
    for name, why in ctx.awaited.items():
        booted, node = ctx.progress(f"boot/{name}"), ctx.cluster.node(name)
        if node is not None and node.ready:
            missing = _lacking(ctx, node)
            if missing:
                detail = f"node {name} has less {', '.join(missing)} than its offer promised"
                return Phase(ctx.do_without(name, "less-allocatable", detail))
        if why and booted is not None and ctx.passed(booted.ended, ctx.limits.node_ready_seconds):
            return Phase(ctx.do_without(name, "node-never-ready", f"node {name} {why} after its boot"))
    return Phase(over=not any(ctx.awaited.values()))


def await_booted(ctx: ExecutionContext) -> Phase:
    """Wait until the nodes that were booted are Ready: a plan for the rest would buy others in their place."""
    return Phase(over=not any(_is_coming(ctx, name) for name in ctx.boots if name not in ctx.refused))


def _is_coming(ctx: ExecutionContext, name: str) -> bool:
    booted, node = ctx.progress(f"boot/{name}"), ctx.cluster.node(name)
    if booted is None or not booted.over or (node is not None and node.ready):
        return False
    return not ctx.passed(booted.ended, ctx.limits.node_ready_seconds)


def _lacking(ctx: ExecutionContext, node: Node) -> tuple[str, ...]:
    """Resources of which the node has less than the plan puts there."""
    planned = total(place.requests for place in ctx.coming.get(node.name, ()))
    return lacking(add(planned, resident_requests(ctx.cluster, node)), node.allocatable)


def needs_taints(ctx: ExecutionContext) -> bool:
    """Return whether the plan moves or deletes anything: room for pending pods alone needs no marks."""
    moving = any(
        place.strategy == "rolling" or (place.source is not None and place.source != place.to)
        for place in ctx.plan.placements
    )
    return bool(ctx.deletes) or moving


def close(ctx: ExecutionContext, moves: Moves) -> Phase:
    """Label and taint the next nodes that are to be deleted, as many as may be closed at a time.

    One more is closed where every closed node waits for pods of others: an exchange of pods in several waves, or a
    rolling update, needs all its nodes.
    """
    begun = [ctx.progress(taint_id(one.node)) for one in ctx.closings]
    bodies = [ctx.intend(progress.step) for progress in begun if progress is not None and not progress.over]
    places = ctx.places_to_close or (1 if _starved(ctx, moves) else 0)
    due = [one for one in moves.order.closable if not any(map(ctx.awaited.get, one.boots))]
    for one in due[:places]:
        node = ctx.cluster.node(one.node)
        assert node is not None
        bodies.append(ctx.intend(Step(id=taint_id(one.node), kind="taint", target=one.node, uid=node.uid)))
    open_now = sum(1 for progress in ctx.execution.open_steps if progress.step.kind == "taint")
    over = not ctx.to_close and all(progress.over for progress in begun if progress is not None)
    return Phase(intents(bodies, ctx.limits.max_parallel_marks, open_now), over)


def never_closed(ctx: ExecutionContext) -> tuple[StepFailed, ...]:
    """State why nodes that were to go were not even closed, once all others are dealt with."""
    bodies: list[StepFailed] = []
    for one in ctx.closings:
        if ctx.progress(taint_id(one.node)) is not None or ctx.kept(one.node):
            continue
        why, pod = ctx.judge.why_kept(one.node), ctx.left_on.get(one.node)
        if why is not None:
            bodies += ctx.verdict(keep_id(one.node), _OFF_LIMITS, why)
        elif pod is not None:
            bodies += ctx.verdict(keep_id(one.node), "not-empty", f"left alone: {pod}")
    return tuple(bodies)


def finish_marks(ctx: ExecutionContext) -> Phase:
    """Wait for boots and taints that are under way; none is tried again."""
    return Phase(over=not any(progress.step.kind in {"boot", "taint"} for progress in ctx.execution.open_steps))


def _starved(ctx: ExecutionContext, moves: Moves) -> bool:
    """Return whether no closed node is emptied before another one is closed."""
    if not moves.stalled or ctx.execution.open_steps:
        return False
    return ctx.closed <= moves.leaving


def release(ctx: ExecutionContext) -> Phase:
    """Open the nodes again whose deletion was abandoned: others are closed in their place."""
    return _taken_back(ctx, [step for step in _untaint_steps(ctx) if ctx.kept(step.target)])


def delete(ctx: ExecutionContext, leaving: Container[str]) -> Phase:
    """Delete each marked node as soon as nothing is left on it but what goes with it, and no pod may have to go back.

    `leaving`: nodes with pods that have yet to move. On others a pod that is still there stays, and so does its node.
    """
    bodies: list[Decision] = []
    over, needed = True, needed_nodes(ctx)
    for name in ctx.deletes:
        if not ctx.done(taint_id(name)) or ctx.kept(name):
            continue
        found, ended = _delete(ctx, name, waits=name in leaving or name in needed)
        bodies += found
        over = over and ended
    return Phase(tuple(bodies), over)


def _delete(ctx: ExecutionContext, name: str, *, waits: bool) -> tuple[tuple[Decision, ...], bool]:  # noqa: PLR0911 - a state machine: one return per state
    """Return what to do about one node, and whether it is dealt with."""
    node = ctx.same_node(taint_id(name))
    progress = ctx.progress(f"delete/{name}")
    if progress is not None and progress.state == "open":
        return (), False
    if node is None or (progress is not None and progress.lost):
        return (), True
    if progress is not None and progress.state == "done":
        if ctx.passed(progress.ended, ctx.limits.delete_seconds):
            return ctx.verdict(keep_id(name), "delete-unconfirmed", "it was deleted but is still there"), False
        return (), False
    if waits:
        return (), False
    pods = ctx.evictable.get(name, ())
    if not pods:
        return ctx.intend(Step(id=f"delete/{name}", kind="delete", target=name, uid=node.uid)), False
    staying = [pod.key for pod in pods if not pod.terminating]
    if staying:
        return ctx.verdict(keep_id(name), "not-empty", f"still there: {', '.join(staying[:5])}"), False
    if ctx.passed(ctx.last_event, ctx.limits.terminating_seconds):
        return ctx.verdict(keep_id(name), "terminating", f"does not end: {pods[0].key}"), False
    return (), False


def rent(ctx: ExecutionContext, wave: int) -> Phase:
    """Boot the temporary nodes that are needed from this wave on, and see that they come up."""
    bodies: list[Decision] = []
    over = True
    for name, stay in ctx.route.temporary.items():
        booted = ctx.progress(f"boot/{name}")
        if booted is None:
            if stay.boot <= wave < stay.delete and name not in ctx.boots:
                bodies += ctx.intend(Step(id=f"boot/{name}", kind="boot", target=name, offer=stay.offer))
            continue
        if not booted.over:
            bodies += ctx.intend(booted.step)
            over = False
            continue
        node = ctx.cluster.node(name)
        missing = node is None or not node.ready
        if missing and wave < stay.delete and ctx.passed(booted.ended, ctx.limits.node_ready_seconds):
            return Phase(ctx.give_up("node-never-ready", f"temporary node {name} is not Ready after its boot"))
    return Phase(tuple(bodies), over)


def retire(ctx: ExecutionContext, wave: int) -> Phase:
    """Close the temporary nodes that are not needed any more: from then on they go like any other node that goes."""
    bodies: list[Decision] = []
    over = True
    for name, stay in ctx.route.temporary.items():
        if not ctx.done(f"boot/{name}") or ctx.done(f"delete/{name}"):
            continue
        closing, node = ctx.progress(taint_id(name)), ctx.cluster.node(name)
        if closing is not None and closing.over:
            continue
        over = False
        if closing is not None:
            bodies += ctx.intend(closing.step)
        elif wave < stay.delete:
            continue
        elif node is not None:
            bodies += ctx.intend(Step(id=taint_id(name), kind="taint", target=name, uid=node.uid))
        elif ctx.passed(ctx.last_event, ctx.limits.node_ready_seconds):
            return Phase(ctx.give_up("node-never-ready", f"temporary node {name} never came up"))
    return Phase(tuple(bodies), over)


def without_boots(ctx: ExecutionContext) -> tuple[StepFailed, ...]:
    """Give up nodes whose pods were to go to a node that is not there or no use: all else goes on."""
    bodies: list[StepFailed] = []
    for one in ctx.closings:
        lost = sorted(one.boots & ctx.refused.keys())
        if lost and ctx.progress(taint_id(one.node)) is None:
            detail = f"node {lost[0]} was not booted for its pods: {ctx.refused[lost[0]]}"
            bodies += ctx.verdict(keep_id(one.node), "boot-refused", detail)
    return tuple(bodies)


def off_limits(ctx: ExecutionContext) -> tuple[StepFailed, ...]:
    """Give up nodes that must not be deleted any more, before anything else is moved off them."""
    bodies: list[StepFailed] = []
    for name in sorted(ctx.disrupted):
        node, deletion = ctx.cluster.node(name), ctx.progress(f"delete/{name}")
        reason = _off_limits(ctx, node) if node is not None and deletion is None else None
        if reason is not None:
            bodies += ctx.verdict(keep_id(name), _OFF_LIMITS, reason)
    return tuple(bodies)


def _off_limits(ctx: ExecutionContext, node: Node) -> str | None:
    """Return why a marked node must stay: a rule against deletion, a cordon, or marks that another client removed.

    A node that was cordoned when it was marked may go: the plan knew that.
    """
    reason = ctx.judge.why_kept(node.name)
    if reason is not None:
        return reason
    marked = ctx.progress(taint_id(node.name))
    if marked is not None and node.unschedulable and DISRUPTED in node.labels and marked.figures.get(CORDONED) == 0:
        return "another client cordoned it"
    if marked is None or not ctx.passed(marked.ended, ctx.limits.observed_seconds):
        return None
    if DISRUPTED not in node.labels or node.annotations.get(PLAN) != ctx.execution.plan_id:
        return _UNMARKED
    return None


def _kept_by_marks(ctx: ExecutionContext) -> Iterator[tuple[Node, Verdict]]:
    """Yield the nodes that marks kept, and the verdict; none from which another client took Kinema's marks."""
    for one in ctx.closings:
        verdict, node = ctx.execution.verdicts.get(keep_id(one.node)), ctx.cluster.node(one.node)
        if node is not None and verdict is not None and verdict.reason == _OFF_LIMITS and verdict.detail != _UNMARKED:
            yield node, verdict


def free_again(ctx: ExecutionContext) -> bool:
    """Return whether what kept a node is gone, as the mark of another autoscaler that thought better of it."""
    return any(ctx.judge.why_kept(node.name) is None and not node.unschedulable for node, _ in _kept_by_marks(ctx))


def may_pass(ctx: ExecutionContext) -> bool:
    """Return whether a mark that keeps a node is so new that it may go: the end of a plan waits for that a little."""
    patience = ctx.limits.no_room_seconds
    return not ctx.stopping and any(
        ctx.judge.why_kept(node.name) is not None and not ctx.passed(verdict.time, patience)
        for node, verdict in _kept_by_marks(ctx)
    )


def clean(ctx: ExecutionContext) -> Phase:
    """Take back every mark: deletion costs, steering, labels, taints, annotations; over when nothing is under way."""
    bodies: list[Decision] = []
    over = True
    for workload in surges_left(ctx):
        decision = restored(ctx, workload)
        bodies += decision.bodies
        over = over and decision.over
    taken = _taken_back(ctx, [*_clear_steps(ctx), *_untaint_steps(ctx)])
    return Phase((*bodies, *taken.bodies), over and taken.over and not ctx.execution.open_steps)


def reopen(ctx: ExecutionContext) -> Phase:
    """Take the marks off the nodes that were there before the plan, first off those that are closed by them."""
    steps = [step for step in _untaint_steps(ctx) if step.target not in ctx.booted]
    return _taken_back(ctx, sorted(steps, key=lambda step: step.target not in ctx.deletes))


def _taken_back(ctx: ExecutionContext, steps: list[Step]) -> Phase:
    """Make these steps; a node that is being marked or deleted right now has to wait for that.

    Opened again while its deletion is under way, a node would take pods and go with them.
    """
    under_way = [progress.step for progress in ctx.execution.open_steps]
    busy = {step.target for step in under_way if step.kind in {"taint", "delete"}}
    open_now = sum(1 for step in under_way if step.kind in {"taint", "untaint", "clear-preferred-nodes"})
    due = (ctx.intend(step) for step in steps if step.target not in busy)
    bodies = intents(due, ctx.limits.max_parallel_marks, open_now)
    return Phase(bodies, over=all(ctx.over(step.id) for step in steps))


def _clear_steps(ctx: ExecutionContext) -> list[Step]:
    """One step for all workloads that were steered: it is one object. After a later move there is another one."""
    steered = sum(progress.step.kind == "prefer-nodes" for progress in ctx.execution.steps.values())
    return [Step(id=f"clear-preferred-nodes/{steered}", kind="clear-preferred-nodes", target="")] if steered else []


def _untaint_steps(ctx: ExecutionContext) -> list[Step]:
    """One step for each marked node that is still there, or may be; as first intended."""
    found: dict[str, Step] = {}
    for progress in ctx.execution.steps.values():
        step = progress.step
        never_made = progress.result == CLAIMED and progress.attempt == 1
        if step.kind != "taint" or step.target in found or never_made:
            continue
        before = ctx.progress(untaint_id(step.target))
        if before is not None:
            found[step.target] = before.step
        elif (ctx.blind or ctx.same_node(step.id) is not None) and not ctx.done(f"delete/{step.target}"):
            found[step.target] = Step(id=untaint_id(step.target), kind="untaint", target=step.target, uid=step.uid)
    return [found[name] for name in sorted(found)]


def leftovers(ctx: ExecutionContext) -> tuple[str, ...]:
    """Return what could not be taken back, sorted."""
    cleaning = {"untaint", "clear-preferred-nodes", "revert", "finalize-rollout"}
    steps = ctx.execution.steps.values()
    booted = {f"delete/{name}" for name in ctx.booted}
    lost = [item for item in steps if item.lost and (item.step.kind in cleaning or item.step.id in booted)]
    found = [f"{progress.step.id}: {progress.result} {progress.detail}".strip() for progress in lost]
    unconfirmed = [name for name, verdict in ctx.execution.verdicts.items() if verdict.reason == "delete-unconfirmed"]
    unseen = [name for name in ctx.booted if ctx.blind and ctx.progress(f"boot/{name}") is not None]
    unused = [f"boot/{name}: it was not observed whether pods use the node" for name in unseen]
    return tuple(sorted([*found, *unconfirmed, *unused]))
