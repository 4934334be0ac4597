"""Pods that are to request less: no reason to pay more, and every answer is held against the exact model's."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.optimizer.instances import random_cluster
from tests.optimizer.planned import Unpriced, planned
from tests.optimizer.planning.changed_requests import filled_cluster, lowered
from tests.optimizer.planning.test_plans import forecast
from tests.optimizer.rule_instances import rule_instance
from tests.support.builders import NOW, cluster, deployed, node, offer
from tests.support.planning import unguarded

from kinema_core.events import Offer, Plan, WorkloadForecast
from kinema_core.model.catalog import node_prices
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.bounds.certificate import lower_bound
from kinema_optimizer.exact.build import exact_instance
from kinema_optimizer.exact.solve import solve_exact
from kinema_optimizer.planning.planner import SalvageStop, plan_for, plan_from
from kinema_optimizer.planning.task import Request
from kinema_optimizer.problem.compile import compiled, sites_of
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import Progress, incumbent_report
from kinema_optimizer.request.objective import MICRO, rising
from kinema_optimizer.solvers.stopping import RecordedStop, WorkStop

Forecasts = tuple[WorkloadForecast, ...]


def plan(
    state: Cluster, on_sale: tuple[Offer, ...], forecasts: Forecasts = (), stop: WorkStop | RecordedStop | None = None
) -> Plan:
    """The plan by amount of work, so that no clock has a say."""
    return planned(state, on_sale, forecasts=forecasts, stop=stop or Unpriced(30))


def least_in_the_end(state: Cluster, on_sale: tuple[Offer, ...], forecasts: Forecasts) -> int | None:
    """Micro-USD per hour of the cheapest state with the new requests, however it is reached; None: not proven."""
    question = Question(state, on_sale, NOW, "reschedule", forecasts)
    tiny = exact_instance(question, sites_of(question))
    found = None if tiny is None else solve_exact(tiny, WorkStop(20_000), least_moves=False)
    return found.least if found is not None and found.proven else None


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example(seed=0)
@given(seed=st.integers(0, 10**6))
def test_the_bound_counts_on_the_room_of_old_copies(seed: int) -> None:
    """Whoever comes in a later wave may have it: no state with the new requests costs less than the bound says."""
    state, on_sale = filled_cluster(seed)
    forecasts = lowered(state, seed)
    bound = lower_bound(compiled(Question(state, on_sale, NOW, "reschedule", forecasts)).relaxed).value
    least = least_in_the_end(state, on_sale, forecasts)
    assert least is None or bound <= least
    assert bound <= sum(node_prices(state, on_sale).values())


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@example(seed=1)
@given(seed=st.integers(0, 10**6))
def test_smaller_requests_are_no_reason_to_pay_more(seed: int) -> None:
    """The plan costs no more than the cluster of now, nor than that without them."""
    state, on_sale = filled_cluster(seed, pods=20)
    found = plan(state, on_sale, lowered(state, seed))
    assert found.cost.after <= found.cost.before
    assert found.cost.after <= plan(state, on_sale).cost.after
    assert found.cost.lower_bound <= found.cost.after


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@example(seed=31)
@example(seed=32)  # who stays on a cordoned node could not come back to it
@example(seed=291225)  # requests fell, and a move that saves waited for the next plan
@given(seed=st.integers(0, 10**6))
def test_smaller_requests_take_no_place_from_who_waits(seed: int) -> None:
    """As many pending pods are placed as without them, for no more; and no proof says that this cannot be."""
    state, on_sale = random_cluster(seed, pods=12, limited=bool(seed % 2))
    found, plain = plan(state, on_sale, lowered(state, seed)), plan(state, on_sale)
    assert (len(found.unplaced), found.cost.after) <= (len(plain.unplaced), plain.cost.after)
    if found.unplaced == plain.unplaced:
        assert found.cost.lower_bound <= plain.cost.after


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@example(seed=4, pods=12)  # who waits was to have the room of an old copy, and its move had no order
@example(seed=53, pods=12)
@example(seed=45, pods=16)  # rules between pods let nobody be resized
@example(seed=7155, pods=8)  # one of three that fall has no order beside the moves that save
@example(seed=335, pods=8)  # who restarts for new requests does so on other nodes
@given(seed=st.integers(0, 10**6), pods=st.sampled_from([8, 12]))
def test_every_plan_with_smaller_requests_passes_the_checker(seed: int, pods: int) -> None:
    """Whatever the rules between pods: everybody has a place or a reason, now and wave by wave; nobody pays more."""
    made = rule_instance(seed, pods=pods, nodes=5)
    found, plain = plan(made.cluster, made.offers, lowered(made.cluster, seed)), plan(made.cluster, made.offers)
    assert check_plan(found, made.cluster, made.offers, NOW, ordered=True) == ()
    assert (len(found.unplaced), found.cost.after) <= (len(plain.unplaced), plain.cost.after)


@pytest.mark.parametrize(
    ("seed", "pods", "work"),
    [
        (831, 12, 1),  # pods that rules between pods left out took the room of old copies
        (898, 8, 30),  # a pod's own node would not admit it again
        (816, 12, 30),  # requests rise, and no node has room for both copies
        (1042, 12, 1),  # a node that is kept for its zone has a daemon set's pod that a spread counts
    ],
)
def test_new_requests_that_break_a_rule_where_pods_stay_are_left_out(seed: int, pods: int, work: int) -> None:
    """The plan obeys every rule: a workload that cannot be rolled where it is keeps its requests."""
    made = rule_instance(seed, pods=pods, nodes=5)
    changed = lowered(made.cluster, seed, most=100 if seed % 3 else 130)
    found = plan(made.cluster, made.offers, changed, Unpriced(work))
    assert check_plan(found, made.cluster, made.offers, NOW, ordered=True) == ()


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@example(seed=6, work=1, pods=30)  # the exact model finds nothing in time: that is in the record, too
@given(seed=st.integers(0, 10**6), work=st.integers(1, 12), pods=st.sampled_from([14, 20]))
def test_a_replay_of_a_solve_that_was_ended_early_makes_the_same_plan(seed: int, work: int, pods: int) -> None:
    """Every phase ends where it did, whatever was solved again and again after it."""
    if seed % 2:
        made = rule_instance(seed, pods=12, nodes=5)
        state, on_sale = made.cluster, made.offers
    else:
        state, on_sale = filled_cluster(seed, pods=pods)
    changed = lowered(state, seed, most=100 if seed % 3 else 130)
    found = plan(state, on_sale, changed, Unpriced(work))
    assert msgspec.json.encode(plan(state, on_sale, changed, RecordedStop(found.solve))) == msgspec.json.encode(found)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@example(seed=3)
@given(seed=st.integers(0, 10**6))
def test_no_plan_is_better_than_the_exact_model_says(seed: int) -> None:
    """None costs less than its least cost, and what is called optimal costs that: at most a thousandth more."""
    state, on_sale = filled_cluster(seed)
    forecasts = lowered(state, seed)
    found, least = plan(state, on_sale, forecasts), least_in_the_end(state, on_sale, forecasts)
    if least is not None:
        after = round(found.cost.after * MICRO)
        assert round(found.cost.lower_bound * MICRO) <= least
        assert least <= after
        assert found.status != "optimal" or after <= least * 1001 // 1000


def two_halves() -> tuple[Cluster, tuple[Offer, ...]]:
    """Two pods that fit on one node when both are smaller, and the second only when the first is."""
    small = [node(name, cpu=2000, price="0.085") for name in ("n1", "n2")]
    pods = deployed("first", ["n1"], cpu=1100), deployed("second", ["n2"], cpu=1000)
    return cluster(*small, *pods), (offer("m8", cpu=8000, price=350_000),)


HALVES: Forecasts = (forecast("first", cpu=1100, after=500), forecast("second", cpu=1000, after=900))


def test_a_later_wave_has_the_room_that_smaller_pods_leave() -> None:
    """The exact model is asked: the first is rolled where it is, and then the second comes."""
    state, on_sale = two_halves()
    found = plan(state, on_sale, HALVES)
    assert (found.status, found.cost.after, found.cost.gap) == ("optimal", 0.085, 0.0)
    assert [(step.wave, step.pod) for step in found.steps if step.action == "move"] == [
        (1, "shop/first-0"),
        (2, "shop/second-0"),
    ]
    assert check_plan(found, state, on_sale, NOW, ordered=True) == ()


def test_what_the_exact_model_finds_without_an_order_is_not_planned() -> None:
    """Two that would have to change their size at once stay with what they are; nothing is bought for them."""
    state, on_sale = two_halves()
    tight = (forecast("first", cpu=1100, after=1000), forecast("second", cpu=1000, after=950))
    found = plan(state, on_sale, tight)
    assert least_in_the_end(state, on_sale, tight) == 85_000
    assert (found.cost.after, found.cost.lower_bound) == (found.cost.before, 0.085)
    assert {node.action for node in found.nodes} == {"keep"}


@pytest.mark.parametrize("method", ["exact", "aggregated"])
def test_a_replay_makes_the_same_plan(method: str) -> None:
    """All solves are in the record, so that each ends where it did: also where a second one leaves requests as are."""
    (state, on_sale), falls = two_halves(), HALVES
    if method == "aggregated":
        state, on_sale = cluster(node("n1", price="0.05"), deployed("web", ["n1"] * 4, cpu=1000)), (offer(),)
        falls = (forecast("web", cpu=1000, after=900),)
    found = plan(state, on_sale, falls)
    assert len(found.resizes) == (2 if method == "exact" else 0)
    assert msgspec.json.encode(plan(state, on_sale, falls, RecordedStop(found.solve))) == msgspec.json.encode(found)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@example(seed=594)  # a plan without an order costs less than the one that has one
@given(seed=st.integers(0, 10**6))
def test_no_request_that_rises_is_left_out_for_its_price(seed: int) -> None:
    """Falling ones may be; the others are carried out, whatever is sold for as much as is wanted."""
    state, on_sale = filled_cluster(seed)
    forecasts = lowered(state, seed, most=140)
    asked = compiled(Question(state, on_sale, NOW, "reschedule", forecasts)).resizes
    assert rising(plan(state, on_sale, forecasts).resizes) == rising(asked)


def test_requests_that_rise_are_paid_for() -> None:
    """What is asked for is bought, whatever falls beside it: that may be left as it is."""
    state = cluster(node("n1", price="0.05"), deployed("web", ["n1"] * 3, cpu=1000), deployed("api", ["n1"], cpu=1000))
    found = plan(state, (offer(),), (forecast("web", cpu=1000, after=900), forecast("api", cpu=1000, after=1500)))
    assert [one.workload for one in found.resizes] == ["Deployment/shop/api"]
    assert found.cost.after > found.cost.before


def test_a_large_cluster_is_left_as_it_is_where_smaller_requests_are_dearer() -> None:
    """The search has no time for a second plan; nothing is one, also of an incumbent whose solve came to no end."""
    names = [f"n{index}" for index in range(110)]
    pods = [deployed(f"w{index}", [name] * 2, cpu=1890 + index) for index, name in enumerate(names)]
    state, on_sale = cluster([node(name, price="0.05", cpu=4010) for name in names], *pods), (offer(cpu=4010),)
    falls = tuple(forecast(f"w{index}", cpu=1890 + index, after=1800 + index) for index in range(110))
    heard: list[Progress] = []
    found = plan_for(
        state,
        on_sale,
        now=NOW,
        settings=unguarded(),
        forecasts=falls,
        stop=WorkStop(1),
        progress=heard.append,
    )
    assert (found.status, found.resizes, found.cost.after) == ("nothing-better", (), found.cost.before)
    incumbent = incumbent_report(1, heard[0])
    assert incumbent is not None
    salvaged = plan_from(
        Request(state, on_sale, NOW, unguarded(), "reschedule", SalvageStop()),
        incumbent=incumbent,
        solve=found.solve,
        forecasts=falls,
    )
    assert (salvaged.status, salvaged.resizes) == ("nothing-better", ())
