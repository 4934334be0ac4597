"""Temporary nodes: booted when their wave has come, deleted when nobody is left on them."""

from __future__ import annotations

from kinema_core.events import Step
from kinema_rescheduler.names import expire_id
from kinema_rescheduler.plan.context import Decision, Scene
from kinema_rescheduler.plan.phases import Phase


def rent(scene: Scene, wave: int) -> Phase:
    """Boot the temporary nodes that are needed from this wave on, and see that they come up."""
    bodies: list[Decision] = []
    over = True
    for name, stay in scene.route.temporary.items():
        booted = scene.progress(f"boot/{name}")
        if booted is None:
            if stay.boot <= wave < stay.delete:
                bodies += scene.intend(Step(id=f"boot/{name}", kind="boot", target=name, offer=stay.offer))
            continue
        if not booted.over:
            bodies += scene.intend(booted.step)
            over = False
            continue
        node = scene.cluster.node(name)
        missing = node is None or not node.ready
        if missing and wave < stay.delete and scene.passed(booted.ended, scene.limits.node_ready_seconds):
            return Phase(scene.give_up("node-never-ready", f"temporary node {name} is not Ready after its boot"))
    return Phase(tuple(bodies), over)


def retire(scene: Scene, wave: int) -> Phase:
    """Close the temporary nodes that are not needed any more: from then on they go like any other node that goes."""
    bodies: list[Decision] = []
    over = True
    for name, stay in scene.route.temporary.items():
        if not scene.done(f"boot/{name}") or scene.done(f"delete/{name}"):
            continue
        closing, node = scene.progress(expire_id(name)), scene.cluster.node(name)
        if closing is not None and closing.over:
            continue
        over = False
        if closing is not None:
            bodies += scene.intend(closing.step)
        elif wave < stay.delete:
            continue
        elif node is not None:
            bodies += scene.intend(Step(id=expire_id(name), kind="mark", target=name, uid=node.uid))
        elif scene.passed(scene.last_event, scene.limits.node_ready_seconds):
            return Phase(scene.give_up("node-never-ready", f"temporary node {name} never came up"))
    return Phase(tuple(bodies), over)
