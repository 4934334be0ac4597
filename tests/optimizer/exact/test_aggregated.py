"""The literal model, the class-aggregated model and brute force agree."""

from __future__ import annotations

import pytest
from tests.optimizer.exact.brute_force import least_cost
from tests.optimizer.instances import random_cluster
from tests.support.builders import NOW

from kinema_optimizer.exact.aggregated import solve_aggregated, unplaced
from kinema_optimizer.exact.first_fit import starts
from kinema_optimizer.exact.thesis_model import solve_literal
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import Solution, cost, flaws, moves
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import ModelResult
from kinema_optimizer.solvers.stopping import WorkStop

PLENTY = 20_000
"""Callbacks that no instance here comes near."""


def question(seed: int, *, pods: int, **more: bool) -> Compiled:
    """A random reschedule problem."""
    state, offers = random_cluster(seed, pods=pods, **more)
    return compiled(Question(state, offers, NOW, "reschedule"))


def cheapest(problem: Compiled) -> ModelResult[Solution]:
    """The aggregated model's answer, by cost alone."""
    found = starts(problem.problem)
    return solve_aggregated(problem.problem, problem.unbound, found, WorkStop(PLENTY), least_moves=False)


@pytest.mark.slow
@pytest.mark.parametrize(("limited", "quotas"), [(False, False), (True, False), (True, True)])
def test_aggregated_reaches_the_optimum_of_the_literal_model(limited: bool, quotas: bool) -> None:
    """On 210 random clusters of 12 pods the least costs are equal, to the micro-dollar."""
    compared = 0
    for seed in range(70):
        problem = question(seed, pods=12, limited=limited, quotas=quotas)
        found = cheapest(problem)
        if unplaced(found.solution):
            continue
        literal = solve_literal(problem.problem, WorkStop(PLENTY))
        assert literal.proven, seed
        assert cost(problem.problem, found.solution) == literal.cost, seed
        assert flaws(problem.problem, found.solution) == (), seed
        compared += 1
    assert compared >= 60


def test_aggregated_reaches_the_literal_optimum_of_equation_5_1() -> None:
    """The second term of the objective changes no least cost on 40 random clusters."""
    for seed in range(200, 240):
        problem = question(seed, pods=7)
        found = cheapest(problem)
        if not unplaced(found.solution):
            literal = solve_literal(problem.problem, WorkStop(PLENTY), size_term=True)
            assert literal.proven, seed
            assert cost(problem.problem, found.solution) == literal.cost, seed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1001, 1004, 1006, 1010])
def test_models_agree_on_thirty_pods(seed: int) -> None:
    """Larger instances: the same least cost, proven by both."""
    problem = question(seed, pods=30, rules=False)
    found = cheapest(problem)
    literal = solve_literal(problem.problem, WorkStop(PLENTY))
    assert unplaced(found.solution) == 0
    assert literal.proven
    assert cost(problem.problem, found.solution) == literal.cost


@pytest.mark.parametrize(("limited", "quotas"), [(False, False), (True, False), (False, True), (True, True)])
def test_aggregated_and_brute_force_agree_on_tiny_instances(limited: bool, quotas: bool) -> None:
    """On 120 clusters of 5 pods, rolling updates, limited offers and quotas among them, nothing cheaper exists."""
    compared = 0
    for seed in range(300, 330):
        problem = question(seed, pods=5, limited=limited, quotas=quotas)
        found = cheapest(problem)
        if not unplaced(found.solution):
            assert cost(problem.problem, found.solution) == least_cost(problem.problem), seed
            compared += 1
    assert compared >= 25


def test_the_lower_bound_holds_for_plans_that_move_pods_between_kept_nodes() -> None:
    """The bound is never above the optimum without the rule that pods on kept nodes stay."""
    for seed in range(400, 440):
        problem = question(seed, pods=10, limited=seed % 2 == 0, quotas=seed % 3 == 0)
        found = cheapest(problem)
        if not unplaced(found.solution):
            literal = solve_literal(problem.unbound, WorkStop(PLENTY))
            assert literal.proven
            assert literal.cost is not None
            assert found.lower_bound <= literal.cost, seed


@pytest.mark.slow
def test_staying_costs_nothing_where_every_machine_is_on_sale() -> None:
    """Then the least cost equals the optimum of a model in which every pod may go anywhere."""
    free = 0
    for seed in range(900, 1000):
        problem = question(seed, pods=10, complete=True)
        found = cheapest(problem)
        if problem.problem.staying_is_free and not unplaced(found.solution):
            literal = solve_literal(problem.unbound, WorkStop(PLENTY))
            assert literal.proven
            assert cost(problem.problem, found.solution) == literal.cost, seed
            assert found.proven, seed
            free += 1
    assert free >= 10


@pytest.mark.slow
def test_fewest_moves_within_a_thousandth_of_the_least_cost() -> None:
    """The plan costs at most 0.1 % more than the least, and no solution known at that price moves fewer pods."""
    for seed in range(500, 540):
        problem = question(seed, pods=12)
        given = starts(problem.problem)
        found = solve_aggregated(problem.problem, problem.unbound, given, WorkStop(PLENTY))
        least = cost(problem.problem, cheapest(problem).solution)
        price = cost(problem.problem, found.solution)
        assert least <= price <= least + least // 1000
        assert flaws(problem.problem, found.solution) == ()
        for other in (*given, cheapest(problem).solution):
            if unplaced(other) == unplaced(found.solution) and cost(problem.problem, other) <= price:
                assert moves(problem.problem, found.solution) <= moves(problem.problem, other), seed


def test_as_many_pending_pods_as_possible_are_placed() -> None:
    """With machines that run out, no pod is left over that brute force could have placed besides the others."""
    seen = 0
    for seed in range(600, 700):
        problem = question(seed, pods=6, limited=True, quotas=seed % 2 == 0)
        found = cheapest(problem)
        lost = unplaced(found.solution)
        if lost:
            assert least_cost(problem.problem) is None, seed
            seen += 1
    assert seen >= 1
