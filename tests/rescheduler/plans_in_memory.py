"""Clusters and valid plans for executions in memory; those whose moves wait for each other come last."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs
from tests.support.builders import NOW, budget, cluster, deployed, fragmented, full, node, offers, stateful
from tests.support.plans import plan_for

from kinema_core.events import ClusterObject, Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.sequencing.waves import order_transition, with_steps


def _checked(before: Cluster, plan: Plan) -> tuple[Cluster, Plan]:
    assert check_plan(plan, before, offers(), NOW) == ()
    return before, plan


def fragmented_plan() -> tuple[Cluster, Plan]:
    """Six nodes become one booted m8 with everything on it."""
    before = fragmented()
    to = {pod.key: "kinema-1" for pod in before.pods if pod.namespace == "shop"}
    boot = {"kinema-1": "m8/a/on-demand"}
    return _checked(before, plan_for(before, offers(), to=to, boot=boot, delete=[item.name for item in before.nodes]))


def small_plan() -> tuple[Cluster, Plan]:
    """Two pods of one Deployment leave one node for another that is there already."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2", "n2"], cpu=500, max_surge="100%"))
    return _checked(before, plan_for(before, offers(), to={"shop/web-1": "n1", "shop/web-2": "n1"}, delete=["n2"]))


def booted_plan() -> tuple[Cluster, Plan]:
    """Two pods of one Deployment leave two nodes for a smaller one that has to be booted."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500, max_surge="100%"))
    to = {pod.key: "kinema-1" for pod in before.pods}
    boot = {"kinema-1": "m2/a/on-demand"}
    return _checked(before, plan_for(before, offers(), to=to, boot=boot, delete=["n1", "n2"]))


def rolling_plan() -> tuple[Cluster, Plan]:
    """Three pods with smaller requests come together on one of two nodes."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2", "n2"], cpu=500))
    to = {pod.key: "n1" for pod in before.pods}
    plan = plan_for(before, offers(), to=to, delete=["n2"], resizes={"Deployment/shop/web": {"cpu": 300}})
    return _checked(before, plan)


def crowded_plan() -> tuple[Cluster, Plan]:
    """Three pods are made smaller to come together on a node that has room for hardly more than them."""
    before = cluster(node("n1", cpu=1500), node("n2"), deployed("web", ["n2", "n2", "n1"], cpu=500))
    to = {pod.key: "n1" for pod in before.pods}
    plan = plan_for(before, offers(), to=to, delete=["n2"], resizes={"Deployment/shop/web": {"cpu": 300}})
    return _checked(before, plan)


def two_rolls_plan() -> tuple[Cluster, Plan]:
    """Pods of two Deployments are made smaller, each to leave a node of its own."""
    before = cluster(
        node("n1"),
        node("n2"),
        node("n3"),
        deployed("web", ["n2", "n2", "n1"], cpu=500),
        deployed("api", ["n3"], cpu=500),
    )
    to = {pod.key: "n1" for pod in before.pods}
    resizes = {"Deployment/shop/web": {"cpu": 300}, "Deployment/shop/api": {"cpu": 300}}
    return _checked(before, plan_for(before, offers(), to=to, delete=["n2", "n3"], resizes=resizes))


def room_for_pending() -> tuple[Cluster, Plan]:
    """A full cluster gets a node for its pending pod."""
    before = full()
    boot = {"kinema-1": "m2/a/on-demand"}
    plan = plan_for(before, offers(), to={"shop/batch-0": "kinema-1"}, boot=boot, mode="autoscale")
    return _checked(before, plan)


def two_targets() -> tuple[Cluster, Plan]:
    """Two pods leave one node for one place each on two others."""
    before = cluster(
        node("n1", cpu=1100), node("n2", cpu=1100), node("n3"), deployed("web", ["n1", "n2", "n3", "n3"], cpu=500)
    )
    return _checked(before, plan_for(before, offers(), to={"shop/web-2": "n1", "shop/web-3": "n2"}, delete=["n3"]))


def budgeted_plan() -> tuple[Cluster, Plan]:
    """A pod of each of two workloads leaves a node; a budget allows no eviction of one of them."""
    before = cluster(
        node("n1"),
        node("n2"),
        stateful("db", ["n1", "n2"], cpu=500),
        deployed("web", ["n1", "n2"], cpu=100),
        budget("db", min_available="1", allowed=0),
    )
    return _checked(before, plan_for(before, offers(), to={"shop/db-1": "n1", "shop/web-1": "n1"}, delete=["n2"]))


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


def detour_plan(taken: int = 1900) -> tuple[Cluster, Plan]:
    """The same, with a stateful set, and room for the detour on a third node, of which so many millicores are taken."""
    before = cluster(
        node("n1"),
        node("n2"),
        node("n3"),
        stateful("a", ["n1", "n1"], cpu=1900),
        deployed("b", ["n2", "n2"], cpu=1900),
        deployed("c", ["n3"], cpu=taken),
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
