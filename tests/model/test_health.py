"""What disruption budgets bear as their pods are: an eviction that the API would refuse for ever is none of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from tests.support.builders import NOW, budget, cluster, deployed, node, offers, pod, stateful, stateful_set
from tests.support.plans import change, plan_for

from kinema_core.events import ClusterObject, Held, PlanStep, Pod
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.health import standings
from kinema_core.model.mobility import MobilityOptions, mobility
from kinema_core.model.sequencing.waves import order_transition, with_steps

DB = {"app": "db"}
ONE = budget("db", max_unavailable="1")


def three(**third: Any) -> tuple[ClusterObject, ...]:
    """A stateful set of three, its first two pods Ready on n1 and n2, and the third as `third` says."""
    top = stateful_set("db", replicas=3)
    two = (pod(f"db-{i}", node=f"n{i + 1}", owner=top, labels=DB) for i in (0, 1))
    return (top, *two, pod("db-2", owner=top, labels=DB, **third))


def on(*objects: ClusterObject | Iterable[ClusterObject]) -> Cluster:
    """Three nodes with these objects."""
    return cluster(node("n1"), node("n2"), node("n3"), *objects)


def held(state: Cluster, *waiting: str) -> dict[str, str]:
    """Who may not move when a plan is made, and why; `waiting`: pending pods that stay so."""
    found = mobility(state, NOW, MobilityOptions(waiting=frozenset(waiting))).held
    return {key: item.reason for key, item in found.items() if item.code == "pdb-unhealthy"}


def test_a_budget_waits_for_a_pod_without_a_place() -> None:
    """Two of three are Ready and two have to be: no eviction is allowed before the third has a place."""
    state = on(three(), ONE)
    assert held(state, "shop/db-2").keys() == {"shop/db-0", "shop/db-1"}
    assert held(state, "shop/db-2")["shop/db-0"] == (
        "disruption budget shop/db does not allow it now: 2 of 3 pods are healthy, and 2 have to be: "
        "shop/db-2 has no place"
    )
    assert held(state) == {}  # it is pending, and gets one


def test_a_budget_waits_for_a_pod_that_runs_and_is_not_ready() -> None:
    """A container that crashes leaves its pod on its node; nobody knows when it will be Ready."""
    found = held(on(three(node="n3", ready=False), ONE))
    assert found.keys() == {"shop/db-0", "shop/db-1", "shop/db-2"}
    assert found["shop/db-1"].endswith("shop/db-2 is not Ready")
    assert held(on(three(node="n3"), ONE)) == {}


def test_a_budget_waits_for_pods_that_do_not_exist() -> None:
    """It counts on the replicas that are wanted, whether or not their controller has made them."""
    top = stateful_set("db", replicas=3)
    two = [pod(f"db-{i}", node="n1", owner=top, labels=DB) for i in (0, 1)]
    assert held(on(top, two, ONE))["shop/db-0"].endswith("1 of them to be created")
    leaving = pod("db-2", node="n2", owner=top, labels=DB, terminating=True)
    assert held(on(top, two, leaving, ONE)) == {}  # its successor comes when it is gone


@pytest.mark.parametrize(
    ("amounts", "sick", "bears"),
    [
        ({"max_unavailable": "2"}, 0, 2),
        ({"max_unavailable": "2"}, 1, 1),
        ({"max_unavailable": "2"}, 2, 0),
        ({"min_available": "2"}, 1, 1),
        ({"min_available": "1"}, 1, 2),
        ({"min_available": "50%"}, 2, 0),
        ({"min_available": "0"}, 3, 1),
    ],
)
def test_a_budget_bears_what_its_healthy_pods_leave(amounts: dict[str, Any], sick: int, bears: int) -> None:
    """Each pod that is not Ready is one that is away already."""
    top = stateful_set("db", replicas=4)
    pods = [pod(f"db-{i}", node="n1", owner=top, labels=DB, ready=i >= sick) for i in range(4)]
    assert standings(on(top, pods, budget("db", **amounts)), ())["shop/db"].bears == bears


@pytest.mark.parametrize(("strategy", "moves"), [(None, True), ("surge", True), ("evict", False)])
def test_a_surge_is_not_held_by_pods_that_are_not_ready(strategy: str | None, moves: bool) -> None:
    """It takes nobody away before the new pod is Ready, so that no more are away than before."""
    *web, last = deployed("web", ["n1", "n2"], annotations={"kinema.io/strategy": strategy} if strategy else {})
    assert isinstance(last, Pod)
    state = on(web, msgspec.structs.replace(last, ready=False), budget("web", max_unavailable="1"))
    assert (held(state) == {}) == moves


def test_an_execution_is_not_held_by_pods_that_are_away() -> None:
    """They are away by its own doing, and it asks the API for every eviction."""
    state = on(three(node="n3", ready=False), ONE)
    assert {item.code for item in mobility(state, NOW).held.values()} == set()


def test_other_pods_of_a_namespace_are_not_held() -> None:
    """Only those that the budget selects."""
    assert held(on(three(node="n3", ready=False), stateful("other", ["n1", "n2"]), ONE)).keys() == {
        "shop/db-0",
        "shop/db-1",
        "shop/db-2",
    }


def test_no_order_has_an_eviction_under_a_budget_that_waits_in_vain() -> None:
    """Also where the plan itself leaves a pod without a place that others might have left to it."""
    state = on(three(cpu=9000), ONE)
    plan = plan_for(state, offers(), to={"shop/db-0": "n2"}, unplaced={"shop/db-2": "rule"}, delete=["n1"])
    assert order_transition(plan, state, offers(), now=NOW).stuck == ("shop/db-0",)
    free = on(three(cpu=9000), budget("db", max_unavailable="2"))
    assert order_transition(plan, free, offers(), now=NOW).stuck == ()


def test_the_checker_refuses_an_eviction_under_a_budget_that_waits_in_vain() -> None:
    """It counts by itself whose pods are Ready, and who gets a place."""
    free = on(three(cpu=9000), budget("db", max_unavailable="2"))
    plan = plan_for(free, offers(), to={"shop/db-0": "n2"}, unplaced={"shop/db-2": "rule"}, delete=["n1"])
    plan = with_steps(plan, order_transition(plan, free, offers(), now=NOW))
    assert PlanStep(wave=1, action="move", node="n2", pod="shop/db-0") in plan.steps
    assert not [one for one in check_plan(plan, free, offers(), NOW) if one.code == "wave-floor"]
    found = check_plan(plan, on(three(cpu=9000), ONE), offers(), NOW)
    assert [one.detail for one in found if one.code == "wave-floor"] == [
        "wave 1: a pod is evicted though 2 of 3 are healthy, and 2 have to be"
    ]
    placed = change(plan, unplaced=())
    assert not [one for one in check_plan(placed, on(three(cpu=9000), ONE), offers(), NOW) if one.code == "wave-floor"]


def test_the_checker_believes_no_held_list_that_blames_a_budget_in_vain() -> None:
    """A plan may name the budget only where pods are missing to it."""
    claim = (Held(pod="shop/db-0", code="pdb-unhealthy", reason="so it is said"),)
    for place, believed in ((None, True), ("n3", False)):
        state = on(three(cpu=9000, node=place), ONE)
        plan = plan_for(state, offers(), unplaced={} if place else {"shop/db-2": "rule"})
        found = check_plan(change(plan, held=claim), state, offers(), NOW)
        assert ("held-list" not in {one.code for one in found}) == believed
