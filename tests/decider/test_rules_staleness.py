"""The decider's rules for plans that were made for another cluster than today's."""

from __future__ import annotations

import pytest
from tests.decider.cases import Court, halved, refusal
from tests.support.builders import cluster, deployed, full, node, offers, pod
from tests.support.plans import plan_for

from kinema_core.events import (
    Plan,
    PlanAccepted,
    PlanRejected,
)
from kinema_core.model.cluster import Cluster, all_objects, from_objects


@pytest.mark.parametrize(("age", "accepted"), [(300.0, True), (300.1, False)])
async def test_plan_older_than_its_limit_is_refused(age: float, accepted: bool) -> None:
    """A proposal is good for exactly max_plan_age_seconds."""
    before, plan = halved()
    body = await Court(max_plan_age_seconds=300).judge(plan, before, after=age)
    assert isinstance(body, PlanAccepted) is accepted
    if isinstance(body, PlanRejected):
        assert body.rule == "age"


def drifted(pods: int, nodes: int, gone: int) -> tuple[Plan, Cluster]:
    """A plan for 40 pods and nodes (38 + 2), and the state after some pods vanished."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1"] * 37 + ["n2"], cpu=50))
    assert len(before.pods) + len(before.nodes) == pods + nodes
    plan = plan_for(before, offers(), to={"shop/web-37": "n1"}, delete=["n2"])
    lost = {f"web-{index}" for index in range(gone)}
    kept = [item for item in all_objects(before) if item.key not in {f"shop/{name}" for name in lost}]
    return plan, from_objects(kept, 2)


@pytest.mark.parametrize(("gone", "accepted"), [(0, True), (1, True), (2, False)])
async def test_drift_must_stay_strictly_under_its_limit(gone: int, accepted: bool) -> None:
    """2 of 40 is exactly max_drift_fraction 0.05 and refused; 1 of 40 passes (algorithms 1.5)."""
    plan, now = drifted(38, 2, gone)
    body = await Court(max_drift_fraction=0.05).judge(plan, now)
    assert isinstance(body, PlanAccepted) is accepted, body
    if isinstance(body, PlanRejected):
        assert body.rule == "drift"
        assert body.figures["drift"] == 0.05


async def test_drift_counts_pods_and_nodes_that_came_and_went() -> None:
    """Appeared and vanished pods and nodes all count, over pods and nodes of the plan's own state."""
    plan, now = drifted(38, 2, 1)
    now = from_objects([*all_objects(now), node("n3"), pod("lonely", node="n1")], 3)
    refused = await refusal(Court(max_drift_fraction=0.01), plan, now)
    assert refused.rule == "drift"
    figures = {name: refused.figures[name] for name in ("pods_appeared", "pods_gone", "nodes_appeared", "base")}
    assert figures == {"pods_appeared": 1, "pods_gone": 1, "nodes_appeared": 1, "base": 40}


async def test_pods_that_come_do_not_make_an_autoscale_plan_stale() -> None:
    """While pods wait more of them come: only what the plan relied on and is gone counts as its drift."""
    before = full()
    plan = plan_for(before, offers(), to={"shop/batch-0": "k1"}, boot={"k1": "m2/a/on-demand"}, mode="autoscale")
    more = from_objects([*all_objects(before), *deployed("late", [None, None], cpu=100)], 2)
    assert isinstance(await Court().judge(plan, more), PlanAccepted)
    less = from_objects([item for item in all_objects(before) if item.key != "shop/batch-0"], 2)
    assert (await refusal(Court(), plan, less)).rule == "drift"


async def test_a_node_that_came_makes_an_autoscale_plan_stale() -> None:
    """It may hold the pods that wait: a plan that did not know of it would buy their room a second time."""
    before = full()
    plan = plan_for(before, offers(), to={"shop/batch-0": "k1"}, boot={"k1": "m2/a/on-demand"}, mode="autoscale")
    more = from_objects([*all_objects(before), node("booted-meanwhile")], 2)
    refused = await refusal(Court(max_drift_fraction=1.0), plan, more)
    assert (refused.rule, refused.figures["nodes_appeared"]) == ("drift", 1)
