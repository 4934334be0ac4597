"""Temporary nodes: booted when their wave has come, deleted when no pod is left on them."""

from __future__ import annotations

from kinema_core.events import Step
from kinema_rescheduler.names import taint_id
from kinema_rescheduler.plan.context import Decision, ExecutionContext
from kinema_rescheduler.plan.phases import Phase


def rent(ctx: ExecutionContext, wave: int) -> Phase:
    """Boot the temporary nodes that are needed from this wave on, and see that they come up."""
    bodies: list[Decision] = []
    over = True
    for name, stay in ctx.route.temporary.items():
        booted = ctx.progress(f"boot/{name}")
        if booted is None:
            if stay.boot <= wave < stay.delete:
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
