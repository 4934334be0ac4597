"""Pods that run on with other requests need no room for second copies."""

from __future__ import annotations

import pytest
from tests.optimizer.planned import planned
from tests.optimizer.planning.test_plans import forecast
from tests.support.builders import NOW, cluster, deployed, labels, node, offer
from tests.support.planning import unguarded

from kinema_core.events import PlacementRules, Plan, WorkloadForecast
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
    assert {one.code for one in wrong} == {"wave-overfull", "restarts"}, "its pods would be replaced, uncounted"


def many(*resizable: str) -> tuple[Cluster, tuple[WorkloadForecast, ...]]:
    """Six Deployments of five pods, each on a node of its own, `w0` to `w3` of them resizable, and falls for all."""
    pods = [
        deployed(
            f"w{n}",
            [f"n{n}"] * 5,
            cpu=500,
            memory=512,
            resizable=resizable if n < 4 else (),
            rules=PlacementRules(node_selector=labels({"kubernetes.io/hostname": f"n{n}"})),
        )
        for n in range(6)
    ]
    falls = tuple(forecast(f"w{n}", cpu=500, memory=512, after=450) for n in range(6))
    return cluster(*(node(f"n{n}", price="0.05", cpu=8000) for n in range(6)), *pods), falls


@pytest.mark.parametrize(("resizable", "changed", "restarts"), [((), 2, 10), (("cpu",), 6, 10), (("memory",), 2, 10)])
def test_pods_that_run_on_are_not_within_the_limit_on_restarts(
    resizable: tuple[str, ...], changed: int, restarts: int
) -> None:
    """Ten pods may restart, those of two Deployments: the four whose pods run on get their requests besides."""
    state, falls = many(*resizable)
    found = planned(state, (), work=20, forecasts=falls, settings=unguarded(max_moves_fraction=0.25))
    assert (len(found.resizes), found.restarts, found.moves) == (changed, restarts, 0)
    assert found.status != "nothing-better"
    assert not check_plan(found, state, (), NOW, ordered=True)


def test_a_plan_of_resizes_alone_restarts_nobody() -> None:
    """It has a purpose and steps, and no risk of restarts."""
    state, falls = many(*BOTH)
    found = planned(state, (), work=20, forecasts=falls[:4], settings=unguarded(max_moves_fraction=0.25))
    assert (len(found.resizes), found.restarts, found.moves, found.figures["restart_risk"]) == (4, 0, 0, 0.0)
    assert len(found.steps) == 20
    assert found.status == "optimal"


def test_no_pod_moves_beside_a_limit_of_none_but_requests_fall() -> None:
    """A limit of no moves and restarts keeps every pod where it is; new requests are neither."""
    state, falls = many(*BOTH)
    found = planned(state, (), work=20, forecasts=falls, settings=unguarded(max_moves_fraction=0.0))
    assert ({one.workload[-2:] for one in found.resizes}, found.restarts) == ({"w0", "w1", "w2", "w3"}, 0)


def test_all_requests_fall_before_pods_are_packed() -> None:
    """Ten pods could leave the dear node at once: all requests fall first, and the next plan moves by the new ones."""
    pods = [deployed(f"w{n}", ["n1"] * 5, cpu=200, memory=64, resizable=BOTH) for n in range(4)]
    web = deployed("web", ["n2"] * 10, cpu=100, memory=64)
    state = cluster(node("n1", price="0.05", cpu=8000), node("n2", price="0.40", cpu=8000), web, *pods)
    falls = tuple(forecast(f"w{n}", cpu=200, memory=64, after=180) for n in range(4))
    limited = unguarded(max_moves_fraction=0.25)
    found = planned(state, (), work=20, forecasts=falls, settings=limited)
    assert (len(found.resizes), found.moves, found.restarts) == (4, 0, 0)
    after = planned(state, (), work=20, settings=limited)
    assert (after.moves, after.cost.after) == (10, 0.05)
