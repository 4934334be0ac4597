"""A plan that saves nothing changes no node and moves no pod."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.optimizer.instances import random_cluster
from tests.optimizer.planned import planned as optimizer_plan
from tests.optimizer.planning.changed_requests import filled_cluster, lowered
from tests.optimizer.planning.test_plans import forecast
from tests.support.builders import cluster, deployed, node, offer
from tests.support.planning import unguarded

from kinema_core.events import Offer, Plan, WorkloadForecast
from kinema_core.model.cluster import Cluster


def planned(state: Cluster, on_sale: tuple[Offer, ...], forecasts: tuple[WorkloadForecast, ...]) -> Plan:
    """Return the checked plan after a fixed amount of work."""
    return optimizer_plan(state, on_sale, work=20, forecasts=forecasts)


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

    Nor does a small saving without smaller requests become none: an operator may approve it.
    """
    state = cluster(node("n1", price="0.05"), deployed("web", ["n1"] * 2, cpu=1000))
    dearer, falls = (offer(price=48_000),), (forecast("web", cpu=1000, after=900),)
    careful = unguarded(min_savings_fraction=0.1)
    found = optimizer_plan(state, dearer, work=20, forecasts=falls, settings=careful)
    assert ([one.workload for one in found.resizes], *changes(found)) == (["Deployment/shop/web"], {"keep"}, 0)
    alone = optimizer_plan(state, dearer, work=20, settings=careful)
    moved = optimizer_plan(state, dearer, work=20, forecasts=falls, settings=unguarded())
    enough = optimizer_plan(state, (offer(price=44_000),), work=20, forecasts=falls, settings=careful)
    assert all(one.cost.after < one.cost.before for one in (alone, moved, enough))
    assert all(changes(one)[0] == {"boot", "delete"} for one in (alone, moved, enough))
