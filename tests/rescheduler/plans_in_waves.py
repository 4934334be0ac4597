"""Clusters and plans whose moves have to wait for each other."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs
from tests.support.builders import NOW, cluster, deployed, node, offers, stateful
from tests.support.plans import plan_for

from kinema_core.events import ClusterObject, Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.sequencing.waves import order_transition, with_steps


def _ordered(before: Cluster, plan: Plan) -> tuple[Cluster, Plan]:
    found = with_steps(plan, order_transition(plan, before, offers(), now=NOW))
    assert check_plan(found, before, offers(), NOW, ordered=True) == ()
    return before, found


def swap_plan(*more: ClusterObject | Iterable[ClusterObject]) -> tuple[Cluster, Plan]:
    """Two pods change places on two full nodes: one has to wait on a temporary node."""
    before = cluster(
        node("n1"), node("n2"), deployed("a", ["n1", "n1"], cpu=1900), deployed("b", ["n2", "n2"], cpu=1900), *more
    )
    return _ordered(before, plan_for(before, offers(), to={"shop/a-0": "n2", "shop/b-0": "n1"}))


def late_swap_plan() -> tuple[Cluster, Plan]:
    """The same, after somebody else has moved to a new node: the temporary one is booted a wave later."""
    before = cluster(
        node("n1"),
        node("n2"),
        node("n3"),
        deployed("a", ["n1", "n1"], cpu=1900),
        deployed("b", ["n2", "n2"], cpu=1900),
        deployed("c", ["n3"], cpu=1900),
    )
    to = {"shop/a-0": "n2", "shop/b-0": "n1", "shop/c-0": "new"}
    _, plan = _ordered(before, plan_for(before, offers(), to=to, boot={"new": "m2/a/on-demand"}, delete=["n3"]))
    first = ("new", "n3")
    steps = [step if step.node in first else structs.replace(step, wave=step.wave + 1) for step in plan.steps]
    plan = structs.replace(plan, steps=tuple(sorted(steps, key=lambda step: step.wave)))
    assert check_plan(plan, before, offers(), NOW, ordered=True) == ()
    return before, plan


def detour_plan() -> tuple[Cluster, Plan]:
    """The same, with a stateful set, and room for the detour on a third node."""
    before = cluster(
        node("n1"),
        node("n2"),
        node("n3"),
        stateful("a", ["n1", "n1"], cpu=1900),
        deployed("b", ["n2", "n2"], cpu=1900),
        deployed("c", ["n3"], cpu=1900),
    )
    return _ordered(before, plan_for(before, offers(), to={"shop/a-0": "n2", "shop/b-0": "n1"}))


def chain_plan() -> tuple[Cluster, Plan]:
    """Everybody moves up: c to a new node, b to where c was, a to where b was, and a's node goes."""
    before = cluster(
        node("n1"),
        node("n2"),
        node("n3"),
        deployed("a", ["n1"], cpu=3000),
        deployed("b", ["n2"], cpu=3500),
        deployed("c", ["n3"], cpu=3900),
    )
    to = {"shop/a-0": "n2", "shop/b-0": "n3", "shop/c-0": "new"}
    return _ordered(before, plan_for(before, offers(), to=to, boot={"new": "m4/a/on-demand"}, delete=["n1"]))
