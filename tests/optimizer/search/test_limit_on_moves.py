"""A search within a limit on moves: first plans, deleted nodes that are kept again, and the price of a move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.optimizer.search.test_search import boutique_problem, found_for, same

from kinema_core.events import Solve
from kinema_core.model.disruption_cost import ORDINARY
from kinema_optimizer.bounds.assignment_lp import solve_assignment_lp
from kinema_optimizer.problem.instance import UNLIMITED, Instance, flaws
from kinema_optimizer.problem.node_types import node_types
from kinema_optimizer.problem.solution import Incumbent, cost_of, moved, solution_of
from kinema_optimizer.search.first_plan import FirstPlans, Prices, construct_as_is, first_context, on_sale
from kinema_optimizer.search.neighborhood import ImprovementTask, Replacement, SearchContext, select_neighborhoods
from kinema_optimizer.search.retention_lp import RetentionLp
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.solvers.stopping import RecordedStop

_LIMITS = range(60, 360, 20)


def running(problem: Instance) -> FirstPlans:
    """A cluster in which nobody waits, before anything was improved."""
    kinds = node_types(problem)
    relaxation = solve_assignment_lp(problem.requests, problem.total, kinds)
    context, prices = first_context(problem, kinds, relaxation), Prices(relaxation.guiding_price, problem.total)
    now = construct_as_is(problem, kinds, context.enemies, prices)
    return FirstPlans(
        problem, kinds, context, prices, now, RetentionLp(problem, on_sale(kinds, len(problem.machines)), relaxation)
    )


def test_the_best_of_several_first_plans_is_taken() -> None:
    """Never more moves than the limit, never dearer than the first plan alone, and sometimes cheaper."""
    problem = boutique_problem(30).packing
    cluster = running(problem)
    mean = cost_of(problem, cluster.now) / problem.everybody

    def best(most: int, plans: int) -> Incumbent:
        return cluster.at_price(0.0, mean, lambda turn, last: turn >= plans or last, most=most)[0]

    cheaper = 0
    for most in _LIMITS:
        one, several = best(most, 1), best(most, 20)
        assert flaws(problem, solution_of(problem, several)) == ()
        assert int(moved(problem, several) @ problem.pods) <= most
        assert cost_of(problem, several) <= cost_of(problem, one) <= cost_of(problem, cluster.now)
        cheaper += cost_of(problem, several) < cost_of(problem, one)
    assert cheaper > 0


def test_where_moves_have_a_price_the_best_of_several_retentions_is_taken() -> None:
    """With moves at their price: never dearer than nodes retained at that price, and cheaper at some price."""
    problem = boutique_problem(30).packing
    cluster = running(problem)
    mean, cheaper = cost_of(problem, cluster.now) / problem.everybody, 0
    for share in (0.02, 0.05, 0.1, 0.2, 0.4):
        weights = problem.disruption_cost / ORDINARY * share * mean
        best = cluster.at_price(share * mean, mean, lambda _, last: last)[0]
        alone = cluster.plan(cluster.retention.solve(weights))
        found, one, none = (
            cost_of(problem, state) + float(moved(problem, state) @ weights) for state in (best, alone, cluster.now)
        )
        assert flaws(problem, solution_of(problem, best)) == ()
        assert found <= min(one, none)
        cheaper += found < one
    assert cheaper > 0


def test_a_step_is_offered_the_deleted_nodes_whose_pods_it_has() -> None:
    """Where moves have a price: first those of which the neighborhood's newcomers could be the greatest part."""
    problem = boutique_problem(30).packing
    cluster = running(problem)
    state, context = cluster.fresh, replace(cluster.context, move_price=np.ones(len(problem.pending)))
    (neighborhood,) = select_neighborhoods(context, state, seed=(3,), neighborhoods=1, nodes=6, classes=UNLIMITED)
    new: Counter[int] = Counter()
    for one in (*neighborhood.changes, *neighborhood.boots):
        new.update({c: n for c, n in zip(one.classes.tolist(), one.counts.tolist(), strict=True) if n > 0})

    def share(node: int) -> float:
        pods = list(problem.stays.of(node))
        return sum(min(n, new[c]) for c, n in pods) / max(1, sum(n for _, n in pods))

    others = set(np.flatnonzero(~state.keep).tolist()) - set(neighborhood.deleted)
    assert neighborhood.deleted
    assert others
    assert min(map(share, neighborhood.deleted)) >= max(map(share, others))
    assert len({share(node) for node in (*others, *neighborhood.deleted)}) > 1


def test_a_move_within_a_limit_has_to_save_its_price() -> None:
    """At a price that no saving pays for nothing moves, however much the limit allows; the least price is stated."""
    problem = boutique_problem(30)
    dear = found_for(problem, SearchOptions(move_price=10**9, max_moves=200, workers=1))
    assert (dear.moves, dear.move_price) == (0, 10**9)


class Priced:
    """Tasks that find nothing, and the price of a move that each round had."""

    def __init__(self) -> None:
        self.prices: list[float] = []

    def improve(self, context: SearchContext, tasks: Sequence[ImprovementTask]) -> list[Replacement | None]:
        """See `TaskPool`."""
        self.prices.append(float(context.move_price.max()))
        return [None] * len(tasks)


def test_moves_are_dear_in_the_first_rounds() -> None:
    """A pod hardly goes back once others have its place; the price falls round by round, and is not raised again."""
    pool = Priced()
    found_for(boutique_problem(20), SearchOptions(move_price=300, workers=1, task_pool=pool), rounds=12)
    dearest, *_, least = pool.prices
    assert dearest == pytest.approx(4 * least)
    assert pool.prices == sorted(pool.prices, reverse=True)
    assert pool.prices.count(least) > len(pool.prices) // 2


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "rounds"), [(20, 10), (30, 5)])
def test_a_limit_that_the_plan_without_one_keeps_makes_it_no_dearer(nodes: int, rounds: int) -> None:
    """Plans made up to a limit have moves that pay little, so moves at the knee's price come first; a replay agrees."""
    problem = boutique_problem(nodes)
    free = found_for(problem, SearchOptions(knee=True, workers=1), rounds=rounds)
    wish = SearchOptions(max_moves=free.moves, workers=1)
    found = found_for(problem, wish, rounds=rounds)
    assert found.moves <= free.moves < problem.packing.everybody
    assert found.cost <= free.cost
    solve = Solve(seconds=1.0, first_feasible_seconds=0.1, method="search", seed=0, stops=found.stops)
    assert same(found, search(problem.packing, problem.relaxed, wish, RecordedStop(solve)))


def test_a_limit_that_binds_is_searched_within_at_once() -> None:
    """Where a move that the limit denies would save more than the knee's price, no time goes to that price."""
    found = found_for(boutique_problem(20), SearchOptions(max_moves=60, workers=1), rounds=2)
    phases = [stop.phase for stop in found.stops]
    assert (phases.count("starts"), phases.count("near")) == (1, 0)
