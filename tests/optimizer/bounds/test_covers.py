"""Covers: the fewest whole nodes that pods need which nothing else holds, and what that adds to the bound."""

from __future__ import annotations

from itertools import product

import numpy as np
from benchmarks.ruled import ALONE, ruled_start
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW, cluster, deployed, node, offer

from kinema_core.events import FrozenMap, PlacementRules
from kinema_optimizer.bounds.assignment_lp import solve_assignment_lp
from kinema_optimizer.bounds.certificate import Bound, lower_bound, prove_bound, required_pods
from kinema_optimizer.bounds.covers import Cover, covers_of, least_credit
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.node_types import node_types
from kinema_optimizer.problem.question import Question
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.solvers.stopping import WorkStop

_AMOUNTS = st.integers(0, 9)


@settings(max_examples=200, deadline=None)
@given(
    offers=st.lists(st.tuples(_AMOUNTS, _AMOUNTS), min_size=1, max_size=3),
    asked=st.tuples(_AMOUNTS, _AMOUNTS),
    data=st.data(),
)
def test_the_least_credit_is_that_of_the_best_choice_of_nodes(
    offers: list[tuple[int, int]], asked: tuple[int, int], data: st.DataObject
) -> None:
    """All choices of up to nine nodes of each type are tried."""
    each = data.draw(st.lists(st.integers(0, 50), min_size=len(offers), max_size=len(offers)))
    room, wanted = np.minimum(np.array(offers), np.array(asked)), np.array(asked)
    choices = (np.array(one) for one in product(range(10), repeat=len(offers)))
    sums = [int(one @ np.array(each)) for one in choices if (one @ room >= wanted).all()]
    found = least_credit(Cover(np.arange(len(offers)), room, wanted), np.array(each))
    assert found == min(sums, default=None)


def test_a_machine_that_a_small_pod_needs_is_paid_for_as_a_whole() -> None:
    """Shares of room pay for a hundredth of the only machine with the label that the pod asks for."""
    large = offer("ssd", cpu=16_000, memory=64 * 1024, price=1_000_000, labels={"disk": "ssd"})
    small = offer("plain", cpu=2_000, memory=8 * 1024, price=100_000)
    rules = PlacementRules(node_selector=FrozenMap({"disk": "ssd"}))
    old = node("old", machine=None, cpu=16_000, memory=64 * 1024, price="1.1", labels={"disk": "ssd"})
    state = cluster(old, deployed("picky", ["old"], cpu=100, memory=64, rules=rules))
    assert lower_bound(compiled(Question(state, (large, small), NOW, "reschedule")).relaxed).value == 1_000_000


def test_the_bound_of_a_cluster_full_of_rules_is_sharper_and_below_every_plan() -> None:
    """Pools of their own for data, GPUs and memory: their machines are bought whole."""
    start = ruled_start(8, 20)
    asked = Question(start.cluster, start.offers, start.now, "reschedule", options=ALONE.mobility)
    problem = compiled(asked)
    types = node_types(problem.relaxed)
    demand = required_pods(problem.relaxed, types, None)
    assert covers_of(problem.relaxed.requests, demand, types)
    found = search(problem.packing, problem.relaxed, SearchOptions(workers=1), WorkStop(3))
    bound = lower_bound(problem.relaxed)
    shares = solve_assignment_lp(problem.relaxed.requests, demand, types)
    without = prove_bound(problem.relaxed, shares.pod_price, shares.room_price, Bound(0, bound.proof, types, demand))
    assert without.value * 1.01 < bound.value <= found.cost
