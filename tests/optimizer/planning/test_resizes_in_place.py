"""Pods that run on with other requests need no room for second copies."""

from __future__ import annotations

import pytest
from tests.optimizer.planned import planned
from tests.optimizer.planning.test_plans import forecast
from tests.support.builders import NOW, cluster, deployed, node, offer
from tests.support.planning import unguarded

from kinema_core.events import Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions

BOTH = ("cpu", "memory")


def full(*resizable: str, memory: int = 3900) -> Cluster:
    """Four pods of 900m on a node of 4000m with hardly any memory left."""
    return cluster(node("n1", price="0.05"), deployed("web", ["n1"] * 4, cpu=900, memory=memory, resizable=resizable))


def changed(plan: Plan) -> tuple[int, set[str], int, float]:
    """How many workloads get new requests, what nodes do, how many pods move, and the cost."""
    return len(plan.resizes), {one.action for one in plan.nodes}, plan.moves, plan.cost.after


def raising(state: Cluster, *, after: int = 950, in_place: bool = True) -> Plan:
    """The plan that raises requests, where machines are on sale."""
    rise = forecast("web", cpu=900, after=after, memory=3900)
    settings = unguarded(resize_in_place=in_place)
    return planned(state, (offer(price=50_000),), work=20, forecasts=(rise,), settings=settings)


def test_requests_rise_without_a_node_for_second_copies() -> None:
    """There are 400m for the 200m more, and no memory for a second copy of any pod: none is needed."""
    found = raising(full(*BOTH))
    assert changed(found) == (1, {"keep"}, 0, 0.05)
    assert found.purpose == "safety"
    assert {one.requests["cpu"] for one in found.placements} == {950}


@pytest.mark.parametrize(
    ("state", "after", "in_place"),
    [(full(), 950, True), (full("memory"), 950, True), (full(*BOTH), 1100, True), (full(*BOTH), 950, False)],
    ids=["no kubelet resizes", "cpu restarts", "no room on the node", "turned off"],
)
def test_else_requests_rise_on_a_node_that_is_bought(state: Cluster, after: int, in_place: bool) -> None:
    """As the second copies need it, or the pods themselves."""
    found = raising(state, after=after, in_place=in_place)
    assert len(found.resizes) == 1
    assert "boot" in {one.action for one in found.nodes}


def test_requests_fall_on_a_full_node() -> None:
    """The pods run on; rolled they would need second copies, and keep their requests."""
    state, on_sale = full(*BOTH), (offer(price=50_000),)
    fall = forecast("web", cpu=900, after=800, memory=3900)
    assert changed(planned(state, on_sale, work=20, forecasts=(fall,))) == (1, {"keep"}, 0, 0.05)
    rolled = unguarded(resize_in_place=False)
    assert planned(state, on_sale, work=20, forecasts=(fall,), settings=rolled).resizes == ()


def test_a_plan_that_relies_on_kubelets_is_wrong_where_they_are_not_asked() -> None:
    """The checker counts second copies where the operator turns resizes off."""
    state, on_sale = full(*BOTH), (offer(price=50_000),)
    found = raising(state)
    wrong = check_plan(found, state, on_sale, NOW, MobilityOptions(resize_in_place=False), ordered=True)
    assert {one.code for one in wrong} == {"wave-overfull"}
