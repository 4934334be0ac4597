"""Nodes that are kept may give pods up: where that saves money, within every rule, and with an order for the moves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.optimizer.planned import planned
from tests.optimizer.problem.random_packings import random_packing
from tests.optimizer.rule_instances import rule_instance
from tests.support.builders import NOW, cluster, deployed, node, offer, pod
from tests.support.planning import unguarded

from kinema_core.events import Offer, Solve
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.planning.planner import SalvageStop, plan_from
from kinema_optimizer.planning.task import Request
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.instance import Instance, Solution, content, cost, flaws, given_up, moves
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import Incumbent, IncumbentReport, filling, moved, solution_of
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.solvers.stopping import WorkStop

SOLD_OUT = (offer(available=0),)
SOLVE = Solve(seconds=1.0, first_feasible_seconds=0.1, method="search", seed=0)


def crossed() -> Cluster:
    """Two cheap nodes half full, and a dear one with a pod that fits on none of them while they are."""
    nodes = [node(name, cpu=1000, price=price) for name, price in (("a", "0.1"), ("b", "0.1"), ("dear", "1.0"))]
    halves = deployed("half", ["a", "b"], cpu=500)
    return cluster(*nodes, halves, deployed("whole", ["dear"], cpu=1000, annotations={"kinema.io/strategy": "surge"}))


def problem_of(state: Cluster, offers: tuple[Offer, ...] = SOLD_OUT) -> Instance:
    """The sparse form."""
    return compiled(Question(state, offers, NOW, "reschedule")).packing


def giving(problem: Instance, node: str, counts: dict[int, int]) -> Solution:
    """Everything kept, and these pods of one node without another place."""
    rows = [dict[int, int]() for _ in problem.nodes]
    rows[problem.nodes.index(node)] = {c: -n for c, n in counts.items()}
    return Solution(
        keep=np.ones(len(rows), dtype=bool),
        changes=content(rows),
        boots=np.zeros(0, dtype=np.int64),
        booted=content([]),
        unplaced=np.zeros(len(problem.pending), dtype=np.int64),
    )


@pytest.mark.parametrize(
    "wish", [SearchOptions(workers=1), SearchOptions(workers=1, move_price=1000), SearchOptions(workers=1, max_moves=2)]
)
def test_a_kept_node_gives_a_pod_up_where_only_that_reaches_the_optimum(wish: SearchOptions) -> None:
    """One half joins the other, and the whole pod comes to the node that is empty then."""
    problem = problem_of(crossed())
    found = search(problem, problem, wish, WorkStop(8))
    assert flaws(problem, found.packing) == ()
    assert (found.cost, found.moves) == (200_000, 2)
    assert given_up(problem, found.packing).sum() == 1


@pytest.mark.slow
@pytest.mark.parametrize("why", ["pod", "annotation"])
def test_a_node_that_must_stay_gives_a_pod_up_for_one_that_waits(why: str) -> None:
    """Where each has a little room, one small pod moves, and no machine is bought for the large one."""
    keep = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"} if why == "annotation" else {}
    names = [f"n{n}" for n in range(6)]
    nodes = [node(name, annotations=keep) for name in names]
    held = [pod(f"bare-{name}", node=name, cpu=100) for name in names if why == "pod"]
    there = [deployed("small", [name for name in names for _ in range(6)], cpu=400), deployed("some", names, cpu=800)]
    state = cluster(nodes, held, *there, deployed("large", [None], cpu=1100))
    plan = planned(state, (offer(price=170_000),))
    assert (plan.cost.after, plan.moves, plan.unplaced) == (plan.cost.before, 1, ())


def test_its_plan_moves_the_half_before_the_whole() -> None:
    """No wave needs room that somebody has yet to leave."""
    state = crossed()
    problem = problem_of(state)
    found = search(problem, problem, SearchOptions(workers=1), WorkStop(8))
    incumbent = IncumbentReport(1, found.packing, found.bound.value, ())
    plan = plan_from(
        Request(state, SOLD_OUT, NOW, unguarded(), "reschedule", SalvageStop()), incumbent=incumbent, solve=SOLVE
    )
    waves = {step.pod.rsplit("/", 1)[-1].split("-")[0]: step.wave for step in plan.steps if step.action == "move"}
    assert waves["half"] < waves["whole"]
    assert plan.cost.after == pytest.approx(0.2)


def test_moves_count_by_the_node_that_pods_are_on() -> None:
    """As an answer and as a state: what leaves a node has moved, whoever of its class comes to another one."""
    tally: Counter[str] = Counter()
    for seed in range(600):
        found = compiled(Question(*_instance(seed), NOW, "reschedule"))
        packing = random_packing(found.packing, seed)
        if packing is None:
            continue
        changes = {e: filling(-1, dict(row)) for e in range(len(packing.keep)) if (row := packing.changes.of(e))}
        boots = [filling(m, dict(packing.booted.of(b))) for b, m in enumerate(packing.boots.tolist())]
        state = Incumbent(packing.keep, changes, boots, packing.unplaced)
        assert moved(found.packing, state).sum() == moves(found.packing, packing)
        again = solution_of(found.packing, state)
        assert cost(found.packing, again) == cost(found.packing, packing)
        assert (again.changes.counts == packing.changes.counts).all()
        tally["given up"] += int(given_up(found.packing, packing).sum())
    assert tally["given up"] > 30


def test_plans_of_packings_that_give_pods_up_are_ordered_soundly() -> None:
    """Whatever the rules: the checker follows the waves one by one and finds nothing, also where moves were dropped."""
    tally: Counter[str] = Counter()
    for seed in range(600):
        state, offers = _instance(seed)
        found = compiled(Question(state, offers, NOW, "reschedule"))
        packing = random_packing(found.packing, seed)
        if packing is None or not given_up(found.packing, packing).any():
            continue
        incumbent = IncumbentReport(1, packing, 0, ())
        plan = plan_from(
            Request(state, offers, NOW, unguarded(), "reschedule", SalvageStop()),
            incumbent=incumbent,
            solve=SOLVE,
        )
        assert check_plan(plan, state, offers, NOW, ordered=True) == (), seed
        tally += Counter(plans=1, moves=plan.moves, whole=plan.moves == moves(found.packing, packing))
    assert tally["plans"] > 20
    assert tally["whole"] > tally["plans"] // 2


def test_what_must_not_be_given_up_is_a_flaw() -> None:
    """Pods of nodes that give nobody up, pods that others count on, and pods that are not there."""
    problem = problem_of(crossed())
    half = int(np.flatnonzero(problem.stays.classes == problem.stays.of(problem.nodes.index("a"))[0][0])[0])
    c = int(problem.stays.classes[half])
    lost = {"pods are lost or placed twice"}
    assert set(flaws(problem, giving(problem, "a", {c: 1}))) == lost
    assert set(flaws(problem, giving(problem, "a", {c: 2}))) == lost | {"a node gives pods up that it does not have"}
    affinity_target = replace(problem, releasable=np.zeros_like(problem.releasable))
    bound = replace(problem, node_keeps_all=np.ones_like(problem.node_keeps_all))
    for stiff in (affinity_target, bound):
        assert "a node gives pods up that have to stay" in flaws(stiff, giving(stiff, "a", {c: 1}))


def _instance(seed: int) -> tuple[Cluster, tuple[Offer, ...]]:
    instance = rule_instance(seed, nodes=12)
    return instance.cluster, instance.offers
