"""On tiny clusters with every kind of rule the optimizer finds what trying everything finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from tests.optimizer.exact.brute_orders import by_priority
from tests.optimizer.exact.brute_rules import Best, TooLargeError, best_plan
from tests.optimizer.instances import random_cluster
from tests.optimizer.planned import planned, replanned
from tests.optimizer.rule_instances import FEATURES, RuleInstance, rule_instance
from tests.support.builders import NOW
from tests.support.plans import plan_for as plan_by_hand

from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.exact.build import MOST_PODS, exact_instance
from kinema_optimizer.exact.model import ExactInstance
from kinema_optimizer.exact.solve import ExactResult, solve_below, solve_exact
from kinema_optimizer.exact.thesis_model import solve_literal
from kinema_optimizer.problem.compile import compiled, sites_of
from kinema_optimizer.problem.question import Question
from kinema_optimizer.solvers.stopping import WorkStop

PLENTY = 20_000
"""Callbacks that no instance here comes near."""
CHUNKS, CHUNK = 10, 100
"""Instances against brute force: 1,000 in all, about 40 seconds of one core."""
SLOW = {2000, 2039, 2072}
"""Seeds of clusters on which the literal model takes more than two seconds."""


def problem_of(instance: RuleInstance) -> ExactInstance:
    """The instance as the exact model sees it."""
    cluster, offers = instance.cluster, instance.offers
    question = Question(cluster, offers, NOW, "reschedule")
    found = exact_instance(question, sites_of(question))
    assert found is not None, "eight pods are never too many"
    return found


def solved(problem: ExactInstance, work: int = PLENTY, *, least_moves: bool = True) -> ExactResult:
    """The exact model's answer."""
    found = solve_exact(problem, WorkStop(work), least_moves=least_moves)
    assert found is not None, "keeping everything is a plan"
    return found


@cache
def tried(seed: int) -> tuple[RuleInstance, Best] | None:
    """An instance and its optimum by brute force; None where there are too many plans."""
    instance = rule_instance(seed)
    try:
        best = best_plan(instance.cluster, instance.offers)
    except TooLargeError:
        return None
    assert best is not None, "keeping everything is a plan"
    return instance, best


def value(cluster: Cluster, found: ExactResult) -> Best:
    """The exact model's answer in the terms of brute force."""
    moved = [
        key for key, to in found.solution.assignment.items() if (pod := cluster.pod(key)) and pod.node not in (None, to)
    ]
    lost = {key for key, to in found.solution.assignment.items() if to is None}
    return Best(by_priority(cluster, lost), found.least, len(moved))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_exact_model_equals_brute_force(chunk: int) -> None:
    """On 1,000 instances: as few pods left out at each priority, the least cost proven, and as few moves at it.

    The independent checker accepts every answer.
    """
    compared, seed = 0, chunk * 10_000
    while compared < CHUNK:
        found = tried(seed)
        if found is not None:
            (instance, best), compared = found, compared + 1
            answer = solved(problem_of(instance))
            assert answer.proven, seed
            assert value(instance.cluster, answer) == best, seed
            assert refusals(instance, answer) == set(), seed
        seed += 1


@pytest.mark.slow
def test_what_is_below_a_known_cost_equals_brute_force() -> None:
    """Below one unit more than the least there is the least; below the least there is nothing, which is the proof."""
    compared, seed = 0, 0
    while compared < CHUNK:
        found, seed = tried(seed), seed + 1
        if found is None or any(found[1].lost):
            continue
        (instance, best), compared = found, compared + 1
        problem, stop = problem_of(instance), WorkStop(PLENTY)
        above = best.cost + problem.price_unit
        for bound in (0, problem.fixed_price, best.cost):
            below = solve_below(problem, stop, cost=above, bound=bound, least_moves=True)
            assert below.result is not None, seed - 1
            assert below.lower_bound == below.result.least == best.cost, seed - 1
        nothing = solve_below(problem, stop, cost=best.cost, bound=problem.fixed_price, least_moves=True)
        assert (nothing.result, nothing.lower_bound) == (None, best.cost), seed - 1


@pytest.mark.slow
def test_where_the_exact_model_ran_out_of_time_it_goes_on_below_what_the_search_found() -> None:
    """Two callbacks a phase: never better than brute force, nor a bound above it; what is called optimal is."""
    below = proven = 0
    for seed in range(220):
        found = tried(seed)
        if found is None or problem_of(found[0]).rollouts:
            continue
        instance, best = found
        if solved(problem_of(instance), 2).proven:
            continue
        plan = planned(instance.cluster, instance.offers, work=2)
        phases = {(stop.phase, stop.reason) for stop in plan.solve.stops}
        if all(phase != "exact-below" for phase, _ in phases):
            continue
        below += 1
        lost = by_priority(instance.cluster, {one.pod for one in plan.unplaced})
        cost, bound = round(plan.cost.after * 10**6), round(plan.cost.lower_bound * 10**6)
        assert (lost, cost) >= (best.lost, best.cost), seed
        assert bound <= best.cost, seed
        if plan.status == "optimal" and ("exact-below", "infeasible") in phases:
            assert cost == best.cost, seed
            proven += 1
        assert replanned(plan, instance.cluster, instance.offers) == plan, seed
    assert below >= 15
    assert proven >= 8


def tried_doubled(instance: RuleInstance) -> Best | None:
    """The optimum where spreads hold on the way too; None where there are too many plans."""
    try:
        return best_plan(instance.cluster, instance.offers, doubled=True)
    except TooLargeError:
        return None


@pytest.mark.slow
def test_spreads_that_hold_on_the_way_too_equal_brute_force() -> None:
    """Where spreads must let arrivals in while every old copy is there: the least cost, which is higher for some."""
    compared, dearer, seed = 0, 0, 0
    while compared < 3 * CHUNK:
        instance, seed = rule_instance(seed), seed + 1
        problem = problem_of(instance)
        best = tried_doubled(instance) if problem.spreads else None
        if best is None:
            continue
        answer, compared = solved(replace(problem, doubled=True)), compared + 1
        assert answer.proven, seed - 1
        assert value(instance.cluster, answer) == best, seed - 1
        assert refusals(instance, answer) == set(), seed - 1
        dearer += best != value(instance.cluster, solved(problem))
    assert dearer >= 3


@pytest.mark.slow
def test_plans_are_the_best_wherever_their_moves_can_be_ordered() -> None:
    """Whole plans: never better than brute force, their bound never above it, and equal to it nearly always.

    Brute force looks at the state after a plan only. Where no order of moves leads there, as two copies of a pod exist
    on the way and keep each other out, the plan is another one.
    """
    compared = equal = 0
    for seed in range(120):
        found = tried(seed)
        if found is None or problem_of(found[0]).rollouts:
            continue
        instance, best = found
        plan = planned(instance.cluster, instance.offers, work=PLENTY)
        lost = by_priority(instance.cluster, {one.pod for one in plan.unplaced})
        after, bound = round(plan.cost.after * 10**6), round(plan.cost.lower_bound * 10**6)
        assert (lost, after) >= (best.lost, best.cost), seed
        assert bound <= best.cost, seed
        equal += lost == best.lost and after <= best.cost + best.cost // 1000 and plan.moves == best.moves
        compared += 1
    assert compared >= 80
    assert equal >= 0.9 * compared


def test_the_instances_have_every_kind_of_rule() -> None:
    """Each feature occurs in at least twenty of the first two hundred instances of a chunk."""
    seen = Counter(feature for seed in range(200) for feature in rule_instance(seed).features)
    assert {feature for feature in FEATURES if seen[feature] < 20} == set()


@pytest.mark.slow
def test_every_kind_of_rule_between_pods_decides_some_instance() -> None:
    """Without affinity, anti-affinity and ports, spread, limits or rolling updates other plans would be the best."""
    problems = [problem_of(rule_instance(seed)) for seed in range(120)]
    best = [solved(problem, least_moves=False).least for problem in problems]
    without = {
        "affinity": [replace(problem, affinities=()) for problem in problems],
        "anti-affinity": [replace(problem, anti_affinities=()) for problem in problems],
        "spread": [replace(problem, spreads=()) for problem in problems],
        "limits": [
            replace(problem, machines=tuple(replace(one, limit=None) for one in problem.machines), pools=())
            for problem in problems
        ],
    }
    for kind, freer in without.items():
        least = [solved(problem, least_moves=False).least for problem in freer]
        assert least != best, kind


@pytest.mark.slow
@pytest.mark.parametrize("work", [1, 2, 5, 20])
def test_a_solve_that_is_cut_short_claims_no_more_than_is_true(work: int) -> None:
    """Wherever it ends, the bound is not above the optimum, and what was found obeys the checker."""
    compared = 0
    for seed in range(300, 340):
        found = tried(seed)
        if found is None:
            continue
        instance, best = found
        result = solved(problem_of(instance), work)
        assert result.lower_bound <= best.cost, seed
        assert (value(instance.cluster, result).lost, result.least) >= (best.lost, best.cost), seed
        assert refusals(instance, result) <= {"pending-placeable"}, seed
        compared += 1
    assert compared >= 35


def refusals(instance: RuleInstance, found: ExactResult) -> set[str]:
    """What the checker has against the answer."""
    cluster, offers = instance.cluster, instance.offers
    waiting = {pod.key for pod in cluster.pods if pod.node is None and not pod.terminating}
    placed = {key: to for key, to in found.solution.assignment.items() if to is not None}
    plan = plan_by_hand(
        cluster,
        offers,
        to={key: to for key, to in placed.items() if (pod := cluster.pod(key)) is not None and pod.node != to},
        boot={name: alike[0] for name, alike in found.solution.boots.items()},
        delete=found.solution.deleted,
        unplaced=dict.fromkeys(sorted(waiting - placed.keys()), "no-room"),
        lower_bound=found.lower_bound,
    )
    return {each.code for each in check_plan(plan, cluster, offers, NOW)}


def test_the_same_problem_has_the_same_answer() -> None:
    """Built and solved anew, pods, nodes, bound and stops are equal."""
    for seed in range(20):
        assert solved(problem_of(rule_instance(seed))) == solved(problem_of(rule_instance(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(2000, 2200, 50))
def test_the_exact_model_equals_the_literal_model(start: int) -> None:
    """On more than 100 clusters of up to 24 pods without rules between pods the least costs are equal.

    Left out are those on which the literal model bounds only: overdrawn nodes, rolling updates, pods left out.
    """
    compared = 0
    for seed in sorted({*range(start, start + 50)} - SLOW):
        compared += equals_literal(seed, pods=8 + seed % 17, limited=seed % 3 == 0)
    assert compared >= 31


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1003, 1009, 1023, 1030, 1031, 1033, 1045, 1050])
def test_the_exact_model_equals_the_literal_model_on_thirty_pods(seed: int) -> None:
    """Larger clusters, of those on which the literal model ends in a few seconds."""
    assert equals_literal(seed, pods=30)


def equals_literal(seed: int, *, pods: int, limited: bool = False) -> bool:
    """Whether the models can be compared on a random cluster; they must then agree."""
    cluster, offers = random_cluster(seed, pods=pods, rules=False, limited=limited, quotas=seed % 4 == 0)
    question = Question(cluster, offers, NOW, "reschedule")
    problem = exact_instance(question, sites_of(question))
    assert problem is not None
    if problem.rollouts or overdrawn(problem):
        return False
    found = solved(problem, least_moves=False)
    if None in found.solution.assignment.values():
        return False
    literal = solve_literal(compiled(question).unbound, WorkStop(PLENTY), at_most=found.cost)
    assert literal.proven, seed
    assert found.proven, seed
    assert found.least == literal.cost, seed
    return True


def overdrawn(problem: ExactInstance) -> bool:
    """Whether a node holds more than it has room for."""
    return any(
        free is not None and free < sum(kind.at(node) * kind.requests[r] for kind in problem.kinds)
        for node, place in enumerate(problem.nodes)
        for r, free in enumerate(place.room)
    )


@pytest.mark.slow
def test_thirty_pods_with_every_rule_are_solved_to_the_end() -> None:
    """Clusters of up to thirty pods on ten nodes: proven, and accepted by the checker."""
    for seed in range(12):
        instance = rule_instance(seed, pods=30, nodes=10)
        found = solved(problem_of(instance))
        assert found.proven, seed
        assert refusals(instance, found) == set(), seed


def test_a_cluster_that_is_too_large_has_no_exact_instance() -> None:
    """Above so many movable pods the exact model is not made."""
    cluster, offers = random_cluster(1, pods=2 * MOST_PODS, rules=False)
    question = Question(cluster, offers, NOW, "reschedule")
    assert exact_instance(question, sites_of(question)) is None


@pytest.mark.slow
def test_an_autoscale_plan_only_adds() -> None:
    """Nobody who runs is touched, no node goes, and rules hold for whoever is placed."""
    placed = 0
    for seed in range(60):
        instance = rule_instance(seed)
        plan = planned(instance.cluster, instance.offers, work=PLENTY, mode="autoscale")
        assert plan.moves == plan.restarts == 0
        assert all(node.action != "delete" for node in plan.nodes)
        placed += sum(item.strategy == "schedule" for item in plan.placements)
    assert placed >= 30
