"""The phases before and after the moves: boot, wait until Ready, mark, delete, clean up."""

from __future__ import annotations

from dataclasses import dataclass

from kinema_core.events import Node, Step, StepFailed
from kinema_core.model.daemons import resident_requests
from kinema_core.model.match import node_admits
from kinema_core.model.resources import add, lacking, total
from kinema_rescheduler.moves.scheduling import restored, surges_left
from kinema_rescheduler.names import CLAIMED, CORDONED, DISRUPTED, PLAN, expire_id, keep_id
from kinema_rescheduler.plan.context import Decision, Scene, intents


@dataclass(frozen=True)
class Phase:
    """What a phase does next, and whether it has ended."""

    bodies: tuple[Decision, ...] = ()
    over: bool = False


def boot(scene: Scene) -> Phase:
    """Boot every missing node, all at the same time; temporary ones that are needed later, later."""
    offers = {node.name: node.offer for node in (*scene.plan.nodes, *scene.plan.temporary)}
    steps = [Step(id=f"boot/{name}", kind="boot", target=name, offer=offers[name]) for name in scene.boots]
    bodies = tuple(body for step in steps for body in scene.intend(step))
    return Phase(bodies, over=all(scene.done(step.id) for step in steps))


def await_ready(scene: Scene) -> Phase:
    """Wait until every booted node is Ready, admits whom the plan puts there and can hold them.

    Once any other step has begun this phase is over: what happens to a node later shows in the moves.
    """
    if any(progress.step.kind != "boot" for progress in scene.execution.steps.values()):
        return Phase(over=True)
    waiting = False
    for name in scene.boots:
        node = scene.cluster.node(name)
        why = "is not Ready" if node is None or not node.ready else _refusal(scene, node)
        if node is not None and node.ready:
            missing = _lacking(scene, node)
            if missing:
                detail = f"node {name} has less {', '.join(missing)} than its offer promised"
                return Phase(scene.give_up("less-allocatable", detail))
        booted = scene.progress(f"boot/{name}")
        if why and booted is not None and scene.passed(booted.ended, scene.limits.node_ready_seconds):
            return Phase(scene.give_up("node-never-ready", f"node {name} {why} after its boot"))
        waiting = waiting or bool(why)
    return Phase(over=not waiting)


def _refusal(scene: Scene, node: Node) -> str:
    """Which planned pod the node does not admit, and why; empty if all.

    A node that has just become Ready has the taint `not-ready` for a moment more, or one that an agent of its own takes
    off: pods that came now would go elsewhere. A cordon is somebody's wish, and not waited for.
    """
    if node.unschedulable:
        return ""
    for place in scene.plan.placements:
        pod = scene.cluster.pods_by_uid.get(place.uid) if place.to == node.name else None
        if pod is None:
            continue
        why = node_admits(pod.rules, name=node.name, labels=node.labels, taints=node.taints)
        if why is not None:
            return f"does not admit {pod.key} ({why})"
    return ""


def _lacking(scene: Scene, node: Node) -> tuple[str, ...]:
    """Resources of which the node has less than the plan puts there."""
    planned = total(place.requests for place in scene.plan.placements if place.to == node.name)
    return lacking(add(planned, resident_requests(scene.cluster, node)), node.allocatable)


def needs_marks(scene: Scene) -> bool:
    """Whether the plan moves or deletes anything: room for pending pods alone needs no marks."""
    moving = any(
        place.strategy == "rolling" or (place.source is not None and place.source != place.to)
        for place in scene.plan.placements
    )
    return bool(scene.deletes) or moving


def mark(scene: Scene) -> Phase:
    """Label and taint the nodes that are to be deleted."""
    steps = [_mark(scene, node.name) for node in scene.plan.nodes if node.action == "delete"]
    known = sorted((step for step in steps if step is not None), key=lambda step: step.id)
    open_now = sum(1 for progress in scene.execution.open_steps if progress.step.kind == "mark")
    bodies = intents((scene.intend(step) for step in known), scene.limits.max_parallel_marks, open_now)
    return Phase(bodies, over=all(scene.over(step.id) for step in known))


def _mark(scene: Scene, name: str) -> Step | None:
    """The step that marks a node; as first intended, and none for a node that is gone or off-limits by now."""
    step_id = expire_id(name)
    before = scene.progress(step_id)
    if before is not None:
        return before.step
    node = scene.cluster.node(name)
    if node is None or scene.mobility.deletable.get(name) is not None:
        return None
    return Step(id=step_id, kind="mark", target=name, uid=node.uid)


def delete(scene: Scene, *, moved: bool) -> Phase:
    """Delete each marked node as soon as nothing is left on it but what goes with it.

    `moved` tells that all moves have ended: what is still there then, stays, and so does its node.
    """
    bodies: list[Decision] = []
    over = True
    for name in scene.deletes:
        if not scene.done(expire_id(name)) or scene.kept(name):
            continue
        found, ended = _delete(scene, name, moved=moved)
        bodies += found
        over = over and ended
    return Phase(tuple(bodies), over)


def _delete(scene: Scene, name: str, *, moved: bool) -> tuple[tuple[Decision, ...], bool]:  # noqa: PLR0911 - a state machine: one return per state
    """What to do about one node, and whether it is dealt with."""
    node = scene.same_node(expire_id(name))
    progress = scene.progress(f"delete/{name}")
    if progress is not None and progress.state == "open":
        return (), False
    if node is None or (progress is not None and progress.lost):
        return (), True
    if progress is not None and progress.state == "done":
        if scene.passed(progress.ended, scene.limits.delete_seconds):
            return scene.verdict(keep_id(name), "delete-unconfirmed", "it was deleted but is still there"), False
        return (), False
    pods = scene.evictable.get(name, ())
    if not pods:
        return scene.intend(Step(id=f"delete/{name}", kind="delete", target=name, uid=node.uid)), False
    if not moved:
        return (), False
    staying = [pod.key for pod in pods if not pod.terminating]
    if staying:
        return scene.verdict(keep_id(name), "not-empty", f"still there: {', '.join(staying[:5])}"), False
    if scene.passed(scene.last_event, scene.limits.terminating_seconds):
        return scene.verdict(keep_id(name), "terminating", f"does not end: {pods[0].key}"), False
    return (), False


def off_limits(scene: Scene) -> tuple[StepFailed, ...]:
    """Give up nodes that must not be deleted any more, before anything else is moved off them."""
    bodies: list[StepFailed] = []
    for name in sorted(scene.expiring):
        node, deletion = scene.cluster.node(name), scene.progress(f"delete/{name}")
        reason = _off_limits(scene, node) if node is not None and deletion is None else None
        if reason is not None:
            bodies += scene.verdict(keep_id(name), "off-limits", reason)
    return tuple(bodies)


def _off_limits(scene: Scene, node: Node) -> str | None:
    """Somebody else's word on a node that we marked: a rule against deletion, a cordon, or our marks taken off.

    One that was cordoned when it was marked may go: the plan knew that.
    """
    reason = scene.mobility.deletable.get(node.name)
    if reason is not None:
        return reason
    marked = scene.progress(expire_id(node.name))
    if marked is not None and node.unschedulable and DISRUPTED in node.labels and marked.figures.get(CORDONED) == 0:
        return "somebody cordoned it"
    if marked is None or not scene.passed(marked.ended, scene.limits.observed_seconds):
        return None
    if DISRUPTED not in node.labels or node.annotations.get(PLAN) != scene.execution.plan_id:
        return "somebody took our marks off"
    return None


def clean(scene: Scene) -> Phase:
    """Take back every mark: deletion costs, steering, labels, taints, annotations."""
    bodies: list[Decision] = []
    over = True
    for workload in surges_left(scene):
        turn = restored(scene, workload)
        bodies += turn.bodies
        over = over and turn.over
    taken = _taken_back(scene, [*_unsteers(scene), *_unmarks(scene)])
    return Phase((*bodies, *taken.bodies), over and taken.over)


def reopen(scene: Scene) -> Phase:
    """Take the marks off the nodes that were there before the plan, first off those that are closed by them."""
    steps = [step for step in _unmarks(scene) if step.target not in scene.ours]
    return _taken_back(scene, sorted(steps, key=lambda step: step.target not in scene.deletes))


def _taken_back(scene: Scene, steps: list[Step]) -> Phase:
    """Make these steps; a node that is being marked or deleted right now has to wait for that.

    Opened again while its deletion is under way, a node would take pods and go with them.
    """
    under_way = [progress.step for progress in scene.execution.open_steps]
    busy = {step.target for step in under_way if step.kind in {"mark", "delete"}}
    open_now = sum(1 for step in under_way if step.kind in {"mark", "unmark", "unsteer"})
    due = (scene.intend(step) for step in steps if step.target not in busy)
    bodies = intents(due, scene.limits.max_parallel_marks, open_now)
    return Phase(bodies, over=all(scene.over(step.id) for step in steps))


def _unsteers(scene: Scene) -> list[Step]:
    """One step for each controller whose new pods were steered."""
    steered = {
        progress.step.uid: progress.step for progress in scene.execution.steps.values() if progress.step.kind == "steer"
    }
    return [
        Step(id=f"unsteer/{step.target}/{uid}", kind="unsteer", target=step.target, uid=uid)
        for uid, step in sorted(steered.items())
    ]


def _unmarks(scene: Scene) -> list[Step]:
    """One step for each marked node that is still there; as first intended."""
    found: dict[str, Step] = {}
    for progress in scene.execution.steps.values():
        step = progress.step
        never_made = progress.result == CLAIMED and progress.attempt == 1
        if step.kind != "mark" or step.target in found or never_made:
            continue
        before = scene.progress(f"unmark/{step.target}")
        if before is not None:
            found[step.target] = before.step
        elif scene.same_node(step.id) is not None and not scene.done(f"delete/{step.target}"):
            found[step.target] = Step(id=f"unmark/{step.target}", kind="unmark", target=step.target, uid=step.uid)
    return [found[name] for name in sorted(found)]


def leftovers(scene: Scene) -> tuple[str, ...]:
    """What could not be taken back, sorted."""
    cleaning = {"unmark", "unsteer", "restore", "roll-finish"}
    steps = scene.execution.steps.values()
    ours = {f"delete/{name}" for name in scene.ours}
    lost = [item for item in steps if item.lost and (item.step.kind in cleaning or item.step.id in ours)]
    found = [f"{progress.step.id}: {progress.result} {progress.detail}".strip() for progress in lost]
    unconfirmed = [name for name, verdict in scene.execution.verdicts.items() if verdict.reason == "delete-unconfirmed"]
    return tuple(sorted([*found, *unconfirmed]))
