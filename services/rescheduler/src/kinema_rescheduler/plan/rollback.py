"""Giving a plan up: everything of ours is taken back, and what was booted for nothing goes again.

Pods that have moved stay where they are: they run, and moving them back would disturb them again.
"""

from __future__ import annotations

from kinema_core.events import Node, Step
from kinema_rescheduler.journal.execution import Progress, Verdict
from kinema_rescheduler.moves.scheduling import abandon
from kinema_rescheduler.names import ABORT, CLAIMED, expire_id
from kinema_rescheduler.plan.context import Decision, Scene
from kinema_rescheduler.plan.phases import Phase, clean, reopen

_NEVER_MADE = frozenset({"stock-out", "quota", "permission", "denied", "invalid", "conflict", CLAIMED})
"""Refusals of a provider that mean that we made no node; with `conflict`, one of that name is somebody else's."""


def reason_to_abort(scene: Scene) -> Verdict | None:
    """Why the plan is given up: the first cause in time; None while it goes on."""
    execution, limits = scene.execution, scene.limits
    causes = [execution.verdicts[ABORT]] if ABORT in execution.verdicts else []
    if execution.abort is not None:
        causes.append(execution.abort)
    for progress in execution.steps.values():
        if progress.lost and progress.step.kind in {"boot", "mark"}:
            assert progress.ended is not None
            detail = f"{progress.step.id}: {progress.detail}"
            causes.append(Verdict(reason=progress.result, detail=detail, time=progress.ended))
    begun = next((progress.intended for progress in execution.steps.values()), scene.now)
    if scene.passed(begun, limits.execution_seconds):
        causes.append(
            Verdict(reason="deadline", detail=f"not done in {limits.execution_seconds:.0f} s", time=scene.now)
        )
    return min(causes, key=lambda cause: (cause.time, cause.reason), default=None)


def roll_back(scene: Scene) -> Phase:
    """Open the nodes that were to go, wait for what is under way, then take back moves, new nodes and all the rest.

    The nodes first, and beside all else: none of them is deleted any more, and as long as they are closed, pods of the
    way back and pods of strangers wait for room that is there. New nodes stay as they are until it is known which of
    them go.
    """
    opening = reopen(scene)
    if opening.bodies:
        return Phase(opening.bodies)
    if scene.execution.open_steps and not _taking_back(scene):
        return Phase()
    for stage in (_moves, _nodes, clean):
        phase = stage(scene)
        if phase.bodies or not phase.over:
            return phase
    return Phase(over=True)


def _taking_back(scene: Scene) -> bool:
    """Whether all that is under way belongs to the rollback itself."""
    undoing = {"restore", "delete", "unmark", "unsteer"}
    ours = {expire_id(name) for name in scene.ours}
    return all(progress.step.kind in undoing or progress.step.id in ours for progress in scene.execution.open_steps)


def _moves(scene: Scene) -> Phase:
    turns = [abandon(scene, key) for key in sorted(scene.units)]
    return Phase(tuple(body for turn in turns for body in turn.bodies), all(turn.over for turn in turns))


def _nodes(scene: Scene) -> Phase:
    """Delete booted nodes that carry nothing; keep those that pods have moved to."""
    bodies: list[Decision] = []
    over = True
    for name in scene.ours:
        booted = scene.progress(f"boot/{name}")
        if booted is None or (booted.lost and booted.result in _NEVER_MADE):
            continue
        found, ended = _node(scene, name, booted)
        bodies += found
        over = over and ended
    return Phase(tuple(bodies), over)


def _node(scene: Scene, name: str, booted: Progress) -> tuple[tuple[Decision, ...], bool]:
    deletion, node = scene.progress(f"delete/{name}"), scene.cluster.node(name)
    came_up = node is not None and deletion is not None and not deletion.step.uid and deletion.state == "failed"
    if deletion is not None and (deletion.over or not came_up):
        return scene.intend(deletion.step), deletion.over
    if node is None:
        return scene.intend(Step(id=f"delete/{name}", kind="delete", target=name)), False
    pods = scene.evictable.get(name, ())
    if any(not pod.terminating for pod in pods) or _wanted(scene, node):
        return (), True
    if pods:
        waited = scene.passed(scene.last_event, scene.limits.terminating_seconds)
        return (), waited
    return _empty(scene, node)


def _wanted(scene: Scene, node: Node) -> bool:
    """Whether somebody has a word on a node of ours: a cordon, a rule against deletion, another autoscaler's mark."""
    return node.unschedulable or scene.mobility.deletable.get(node.name) is not None


def _empty(scene: Scene, node: Node) -> tuple[tuple[Decision, ...], bool]:
    """First close the node, then see that it is still empty, then delete it: no pod may slip in between."""
    closing = Step(id=expire_id(node.name), kind="mark", target=node.name, uid=node.uid)
    closed = scene.progress(closing.id)
    if closed is None or (closed.state == "failed" and closed.retry):
        return scene.intend(closing), False
    if closed.lost:
        return (), True
    if not scene.passed(closed.ended, scene.limits.steer_seconds):
        return (), False
    return scene.intend(Step(id=f"delete/{node.name}", kind="delete", target=node.name, uid=node.uid)), False
