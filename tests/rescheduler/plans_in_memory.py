"""Clusters and valid plans for executions in memory."""

from __future__ import annotations

from tests.support.builders import NOW, cluster, deployed, fragmented, full, node, offers
from tests.support.plans import plan_for

from kinema_core.events import Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster


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
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2", "n2"], cpu=500))
    return _checked(before, plan_for(before, offers(), to={"shop/web-1": "n1", "shop/web-2": "n1"}, delete=["n2"]))


def booted_plan() -> tuple[Cluster, Plan]:
    """Two pods of one Deployment leave two nodes for a smaller one that has to be booted."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500))
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
