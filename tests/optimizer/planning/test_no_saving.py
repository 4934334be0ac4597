"""A plan that saves nothing changes no node and moves no pod."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.optimizer.instances import random_cluster
from tests.optimizer.planned import planned as optimizer_plan
from tests.optimizer.planning.changed_requests import filled_cluster, lowered
from tests.optimizer.planning.test_plans import forecast
from tests.support.builders import NOW, cluster, deployed, node, offer
from tests.support.planning import unguarded

from kinema_core.events import Offer, Plan, WorkloadForecast
from kinema_core.model.cluster import Cluster
from kinema_optimizer.planning import planner
from kinema_optimizer.planning.ordering import key_of_plan
from kinema_optimizer.planning.task import Request
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.request.objective import affordable, raised
from kinema_optimizer.solvers.stopping import WorkStop


def planned(state: Cluster, on_sale: tuple[Offer, ...], forecasts: tuple[WorkloadForecast, ...]) -> Plan:
    """Return the checked plan after a fixed amount of work."""
    return optimizer_plan(state, on_sale, work=20, forecasts=forecasts)


def resized(plan: Plan) -> list[str]:
    """Return the workloads whose requests the plan changes."""
    return [one.workload.rpartition("/")[2] for one in plan.resizes]


def changes(plan: Plan) -> tuple[set[str], int]:
    """Return what the plan does to nodes, and the number of pods that change their node."""
    return {item.action for item in plan.nodes}, plan.moves


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@example(seed=3, limited=True)  # one plan of 14 moves at the cost of now
@given(seed=st.integers(0, 10**6), limited=st.booleans())
def test_a_plan_without_a_saving_lowers_requests_in_place_or_changes_nothing(seed: int, limited: bool) -> None:
    """Unless it places pending pods, a plan at the cost of now has no node action and no move."""
    state, on_sale = random_cluster(seed, pods=12, limited=True) if limited else filled_cluster(seed)
    found = planned(state, on_sale, lowered(state, seed))
    if found.cost.after >= found.cost.before and all(one.source is not None for one in found.placements):
        assert changes(found) == ({"keep"}, 0)


def test_requests_that_cannot_fall_in_place_do_not_move_pods() -> None:
    """A node without room for second copies is not replaced by an identical one to lower requests."""
    state = cluster(node("n1", price="0.05"), deployed("web", ["n1"] * 4, cpu=1000))
    found = planned(state, (offer(price=50_000),), (forecast("web", cpu=1000, after=900),))
    assert (found.status, found.resizes, *changes(found)) == ("nothing-better", (), {"keep"}, 0)


def test_a_workload_without_room_does_not_keep_others_from_lower_requests() -> None:
    """Each workload that can roll where it is gets its lower requests, whatever the others can do."""
    full, half = deployed("full", ["n1"] * 4, cpu=950), deployed("half", ["n2"], cpu=1000)
    state = cluster(node("n1", price="0.05"), node("n2", price="0.05"), full, half)
    falls = forecast("full", cpu=950, after=940), forecast("half", cpu=1000, after=900)
    found = planned(state, (offer(price=50_000),), falls)
    assert ([one.workload for one in found.resizes], found.restarts) == (["Deployment/shop/half"], 1)
    assert changes(found) == ({"keep"}, 0)


def test_requests_fall_in_place_where_a_plan_saves_too_little_to_be_accepted() -> None:
    """A machine that is 4% cheaper is not worth the moves that a decider would refuse; smaller requests do not wait.

    A small saving where nothing falls is planned: an operator may approve it.
    """
    state = cluster(node("n1", price="0.05"), deployed("web", ["n1"] * 2, cpu=1000))
    dearer, falls = (offer(price=48_000),), (forecast("web", cpu=1000, after=900),)
    careful = unguarded(min_savings_fraction=0.1)
    found = optimizer_plan(state, dearer, work=20, forecasts=falls, settings=careful)
    assert ([one.workload for one in found.resizes], *changes(found)) == (["Deployment/shop/web"], {"keep"}, 0)
    alone = optimizer_plan(state, dearer, work=20, settings=careful)
    enough = optimizer_plan(state, (offer(price=44_000),), work=20, forecasts=falls, settings=careful)
    assert all(one.cost.after < one.cost.before for one in (alone, enough))
    assert all(changes(one)[0] == {"boot", "delete"} for one in (alone, enough))
    assert resized(enough) == ["web"], "in one plan with the node"


def asked(state: Cluster) -> Request:
    """Return the question about a cluster for which nothing is on sale."""
    return Request(state, (), NOW, unguarded(), "reschedule", WorkStop(20))


def test_requests_fall_while_there_is_room_beside_them_before_pods_are_packed() -> None:
    """Packed by its old requests, `web` would leave no room for second copies: it gets smaller ones where it is first.

    Where they leave less than a hundredth of the room free, the saving does not wait.
    """
    nodes = node("n1", price="0.05"), node("n2", price="0.05")
    state = cluster(*nodes, deployed("web", ["n1"] * 2, cpu=1000), deployed("api", ["n2"] * 2, cpu=1000))
    packing = planned(state, (), ())
    assert changes(packing)[0] == {"keep", "delete"}
    request = asked(state)
    for after, falls_first in ((600, True), (990, False)):
        falls = (forecast("web", cpu=1000, after=after),)
        _, found = planner._worthwhile(request, falls, request.task(raised(falls)), packing)
        assert (found is packing) is not falls_first
        assert resized(found) == (["web"] if falls_first else [])


def test_restarts_for_new_requests_are_no_moves_above_the_limit() -> None:
    """The limit is what they have left of it: pods that come back smaller on another node are not counted again."""
    state = cluster(
        node("n1", price="0.05"),
        node("n2", price="0.05"),
        deployed("full", ["n1"] * 2, cpu=1000),
        deployed("fits", ["n2"] * 10, cpu=300),
    )
    falls = (forecast("fits", cpu=300, after=150),)
    found = planned(state, (), falls)
    assert (resized(found), found.moves) == (["fits"], 10)
    question = asked(state).task(falls).problem.question
    for forecasts, above in ((falls, 0), ((), 10)):
        limited = compiled(replace(question, forecasts=forecasts, max_moves=0))
        assert key_of_plan(limited, found)[1].over_limit == above


def test_requests_that_stay_take_no_part_of_the_restarts() -> None:
    """Of ten restarts `a` and `b` need none, as they are to request what they do: `c` gets the four of it."""
    pods = [deployed(name, ["n1"] * 4, cpu=100) for name in "abc"]
    given = tuple(forecast(name, cpu=100, after=after) for name, after in (("a", 100), ("b", 100), ("c", 50)))
    chosen, left = affordable(given, cluster(node("n1"), *pods), 10)
    assert ([one.workload for one in chosen], left) == (["Deployment/shop/c"], 6)
