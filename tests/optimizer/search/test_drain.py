"""The plan without a search: it obeys every rule, its limits, and is found where a node's pods fit on others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.optimizer.instances import boutique
from tests.optimizer.rule_instances import rule_instance
from tests.support.builders import NOW

from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.instance import Instance, cost, flaws, moves
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import Incumbent, solution_of
from kinema_optimizer.request.objective import price_of_moves
from kinema_optimizer.search.drain import drain


def drained(
    problem: Instance, *, move_price: int | None = None, max_moves: int | None = None, nodes: int = 10**6
) -> Incumbent | None:
    """The plan when the time is over after so many nodes."""
    left = iter(range(nodes))
    return drain(problem, lambda _: next(left, None) is None, move_price=move_price, max_moves=max_moves)


@given(
    seed=st.integers(0, 10**6),
    price=st.sampled_from([None, 0, 5_000]),
    most=st.sampled_from([None, 0, 1, 4]),
    nodes=st.sampled_from([1, 10**6]),
)
def test_nodes_go_that_pay_for_their_moves(seed: int, price: int | None, most: int | None, nodes: int) -> None:
    """Whatever the rules between pods: every pod has a place, moves are within their limit and cost less than saved."""
    instance = rule_instance(seed, pods=12, nodes=6)
    problem = compiled(Question(instance.cluster, instance.offers, NOW, "reschedule")).packing
    state = drained(problem, move_price=price, max_moves=most, nodes=nodes)
    if state is None:
        return
    found = solution_of(problem, state)
    assert not flaws(problem, found)
    assert not found.unplaced.any()
    assert not found.boots.size
    assert most is None or moves(problem, found) <= most
    weight = int(problem.stays.totals(len(problem.pending), ~state.keep) @ problem.disruption_cost)
    assert cost(problem, found) + price_of_moves(price, weight) < int(problem.node_price.sum())


def test_idle_nodes_are_found_in_any_order() -> None:
    """Pods spread thinly over twelve nodes fit on a few of them; a limit on moves keeps the others."""
    problem = compiled(Question(*boutique(6, seed=5, nodes=12), NOW, "reschedule")).packing
    whole, limited = drained(problem), drained(problem, max_moves=12)
    assert whole is not None
    assert limited is not None
    assert whole.keep.sum() <= 3 < limited.keep.sum() < 12
