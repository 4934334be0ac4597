"""Machines with names of their own: the plan's name for a new node gives way to the one under which it registers."""

from __future__ import annotations

from msgspec.structs import replace

from kinema_core.events import Plan, Step


def renamed_plan(plan: Plan, planned: str, registered: str) -> Plan:
    """The plan with one node under another name."""

    def name(node: str) -> str:
        return registered if node == planned else node

    return replace(
        plan,
        nodes=tuple(replace(node, name=name(node.name)) for node in plan.nodes),
        temporary=tuple(replace(node, name=name(node.name)) for node in plan.temporary),
        placements=tuple(replace(place, to=name(place.to)) for place in plan.placements),
        steps=tuple(replace(step, node=name(step.node)) for step in plan.steps),
    )


def renamed_step(step: Step, planned: str, registered: str) -> Step:
    """A step with one node under another name: in its id, as its target, and among the nodes that pods go to."""
    nodes = tuple(registered if node == planned else node for node in step.nodes)
    if step.target != planned:
        return replace(step, nodes=nodes) if nodes != step.nodes else step
    kind, _, _ = step.id.partition("/")
    return replace(step, id=f"{kind}/{registered}", target=registered, nodes=nodes)
