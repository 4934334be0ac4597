"""A plan that saves nothing changes no node and moves no pod."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.optimizer.instances import random_cluster
from tests.optimizer.planned import planned as optimizer_plan
from tests.optimizer.planning.changed_requests import filled_cluster, lowered, only_resizes
from tests.optimizer.planning.test_plans import forecast
from tests.support.builders import NOW, amounts, cluster, deployed, node, offer
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
def test_a_plan_without_a_saving_lowers_requests_or_changes_nothing(seed: int, limited: bool) -> None:
    """Unless it places pending pods, a plan at the cost of now has no node action, and moves only what restarts."""
    state, on_sale = random_cluster(seed, pods=12, limited=True) if limited else filled_cluster(seed)
    found = planned(state, on_sale, lowered(state, seed))
    if found.cost.after >= found.cost.before and all(one.source is not None for one in found.placements):
        assert only_resizes(found, state)


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


def test_workloads_without_room_never_keep_others_from_lower_requests() -> None:
    """However many turns it takes: of the ten pods that may restart, eight have no room, and then eight others."""
    names = [node(f"n{index}", price="0.05") for index in range(5)]
    full = [deployed(name, [f"n{index}"] * 4, cpu=950) for index, name in enumerate("abcd")]
    falls = (*(forecast(name, cpu=950, after=940) for name in "abcd"), forecast("e", cpu=400, after=360))
    state = cluster(*names, *full, deployed("e", ["n4"] * 3, cpu=400))
    careful = unguarded(max_moves_fraction=0.25)
    found = optimizer_plan(state, (offer(price=50_000),), work=20, forecasts=falls, settings=careful)
    assert (resized(found), *changes(found)) == (["e"], {"keep"}, 0)


def test_requests_stay_where_no_fall_can_save_what_a_plan_has_to() -> None:
    """The last node stays whatever its pods request; with a second one the same fall pays in the end, step by step."""
    careful, on_sale = unguarded(min_savings_fraction=0.1), (offer(price=50_000),)
    nodes = node("n1", price="0.05"), node("n2", price="0.05")
    falls = msgspec.structs.replace(forecast("web", cpu=1000, after=900), recommended=amounts(300, 128, pods=1))
    alone = cluster(nodes[0], deployed("web", ["n1"] * 3, cpu=1000))
    assert optimizer_plan(alone, on_sale, work=20, forecasts=(falls,), settings=careful).resizes == ()
    two = cluster(*nodes, deployed("web", ["n1"] * 2 + ["n2"], cpu=1000), deployed("api", ["n2"], cpu=2000))
    found = optimizer_plan(two, on_sale, work=20, forecasts=(falls,), settings=careful)
    assert (resized(found), *changes(found)) == (["web"], {"keep"}, 0)


def test_pods_that_restart_for_smaller_requests_may_come_back_elsewhere() -> None:
    """Its own node has no room for both copies of `web`, the other one has; no other pod moves, and no node goes."""
    nodes = node("n1", price="0.05"), node("n2", price="0.05")
    others = deployed("other", ["n1"], cpu=1000), deployed("api", ["n2"], cpu=1600)
    state = cluster(*nodes, deployed("web", ["n1"], cpu=2500), *others)
    fall = msgspec.structs.replace(forecast("web", cpu=2500, after=2400), recommended=amounts(1000, 128, pods=1))
    found = optimizer_plan(state, (), work=20, forecasts=(fall,), settings=unguarded(min_savings_fraction=0.1))
    assert (resized(found), *changes(found)) == (["web"], {"keep"}, 1)
    assert [one.pod for one in found.placements if one.source != one.to] == ["shop/web-0"]


def test_a_plan_leaves_requests_that_it_need_not_lower() -> None:
    """One node is the least that there can be, and it holds all pods once `fits` has smaller requests: `full` stays."""
    nodes = node("n1", price="0.05"), node("n2", price="0.05")
    state = cluster(*nodes, deployed("full", ["n1"] * 2, cpu=600), deployed("fits", ["n2"] * 10, cpu=300))
    falls = forecast("fits", cpu=300, after=150), forecast("full", cpu=600, after=570)
    found = optimizer_plan(state, (), work=20, forecasts=falls, settings=unguarded(min_savings_fraction=0.1))
    assert (resized(found), found.cost.after) == (["fits"], 0.05)
    assert {one.pod for one in found.placements if one.strategy == "stay"} == {"shop/full-0", "shop/full-1"}
    both = optimizer_plan(state, (), work=20, forecasts=falls)
    assert resized(both) == ["fits", "full"], "where any saving is enough, their room may be of use"


def test_requests_fall_one_workload_after_the_other_where_not_all_have_room() -> None:
    """Second copies of all pods at once have no room, and no machine is on sale: those of `full` alone have."""
    nodes = node("n1", price="0.05"), node("n2", price="0.05")
    state = cluster(*nodes, deployed("full", ["n1"] * 2, cpu=1000), deployed("late", ["n2"] * 10, cpu=300))
    falls = forecast("full", cpu=1000, after=950), forecast("late", cpu=300, after=280)
    assert resized(planned(state, (), falls)) == ["full"]


def test_requests_fall_in_place_where_a_plan_saves_too_little_to_be_accepted() -> None:
    """A machine that is 4% cheaper is not worth the moves that a decider would refuse; smaller requests do not wait.

    They lead to the small machine. A small saving where nothing falls is planned: an operator may approve it. So it is
    where requests, however small, save no more.
    """
    state = cluster(node("n1", price="0.05"), deployed("web", ["n1"] * 2, cpu=1000))
    small = offer("m1", cpu=700, memory=4 * 1024, price=20_000)
    dearer, fall = (offer(price=48_000), small), forecast("web", cpu=1000, after=900)
    falls = (msgspec.structs.replace(fall, recommended=amounts(300, 128, pods=1)),)
    careful = unguarded(min_savings_fraction=0.1)
    found = optimizer_plan(state, dearer, work=20, forecasts=falls, settings=careful)
    assert ([one.workload for one in found.resizes], *changes(found)) == (["Deployment/shop/web"], {"keep"}, 0)
    alone = optimizer_plan(state, dearer, work=20, settings=careful)
    enough = optimizer_plan(state, (offer(price=44_000), small), work=20, forecasts=falls, settings=careful)
    last = optimizer_plan(state, dearer[:1], work=20, forecasts=falls, settings=careful)
    assert all(one.cost.after < one.cost.before for one in (alone, enough, last))
    assert all(changes(one)[0] == {"boot", "delete"} for one in (alone, enough, last))
    assert last.resizes == ()
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
