"""Whatever keeps to the sparse problem becomes a plan that the checker accepts, with every rule between pods."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.optimizer.problem.random_packings import plan_of, random_packing, taken_apart
from tests.optimizer.rule_instances import RuleInstance, rule_instance
from tests.support.builders import NOW

from kinema_core.events import Mode
from kinema_core.model.checker.check import check_plan
from kinema_core.model.mobility import MobilityOptions, listed
from kinema_optimizer.planning.leftovers import with_leftovers
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import UNLIMITED, Solution, content, displaced, flaws, moves
from kinema_optimizer.problem.question import Question

SEEDS = range(320)
LARGER = range(5000, 5040)


def problem_of(instance: RuleInstance, mode: Mode = "reschedule") -> Compiled:
    """The instance, compiled."""
    return compiled(Question(instance.cluster, instance.offers, NOW, mode))


def faults(found: Compiled, packing: Solution) -> set[str]:
    """What the checker finds in the packing's plan, pods that it leaves out aside."""
    question = found.question
    violations = check_plan(plan_of(found, packing), question.cluster, question.offers, NOW)
    return {one.code for one in violations} - {"pending-placeable"}


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "pods"), [(SEEDS, 8), (LARGER, 30)], ids=["tiny", "larger"])
def test_every_packing_is_a_valid_plan(seeds: range, pods: int) -> None:
    """Nodes deleted and pods put anywhere by chance, within admission, limits and conflicts, break no rule."""
    tally: Counter[str] = Counter()
    for seed in seeds:
        found = problem_of(rule_instance(seed, pods=pods))
        for draw in range(3):
            packing = random_packing(found.packing, seed * 10 + draw)
            if packing is None:
                continue
            assert flaws(found.packing, packing) == ()
            assert faults(found, packing) == set(), (seed, draw)
            tally += Counter(plans=1, moves=moves(found.packing, packing), boots=len(packing.boots))
    assert tally["plans"] > 2 * len(seeds)
    assert min(tally["moves"], tally["boots"]) > 10, "the packings hardly change anything"


@pytest.mark.slow
@pytest.mark.parametrize("blind", ["cap", "conflicts", "admits", "leaves"])
def test_without_a_part_of_the_reduction_rules_break(blind: str) -> None:
    """Limits, conflicts, admissions (with pins and bans in them) and who has to stay are each needed for that."""
    nodes = 12 if blind == "leaves" else 4
    assert any(_breaks(problem_of(rule_instance(seed, nodes=nodes)), blind, seed) for seed in range(600))


def _breaks(found: Compiled, blind: str, seed: int) -> bool:
    problem, free = found.packing, found.relaxed
    if blind == "cap":
        problem = replace(problem, cap=np.full_like(problem.cap, UNLIMITED))
    elif blind == "conflicts":
        problem = replace(problem, conflicts=problem.conflicts[:0])
    elif blind == "leaves":
        problem = replace(problem, releasable=np.ones_like(problem.releasable))
    else:
        problem = replace(problem, admits=free.admits, node_row=free.node_row, machine_row=free.machine_row)
    packings = (random_packing(problem, seed * 10 + draw) for draw in range(6))
    return any(packing is not None and bool(faults(found, packing)) for packing in packings)


@pytest.mark.slow
def test_pods_left_out_by_caution_find_a_place_afterwards() -> None:
    """When everybody else is seated, no pending pod is left that anything could hold."""
    seated = 0
    for seed in SEEDS:
        found = problem_of(rule_instance(seed))
        packing = random_packing(found.packing, seed)
        if packing is None:
            continue
        question, plan = found.question, plan_of(found, packing)
        more = with_leftovers(plan, question.cluster, question.offers, now=NOW, options=MobilityOptions())
        assert check_plan(more, question.cluster, question.offers, NOW) == (), seed
        seated += len(more.placements) - len(plan.placements)
    assert seated > 20


@pytest.mark.slow
def test_doing_nothing_is_always_possible() -> None:
    """Whatever rules are broken now: who stays breaks none anew, in either form of the problem."""
    for seed in SEEDS:
        found = problem_of(rule_instance(seed))
        for problem in (found.packing, found.relaxed):
            nothing = Solution(
                keep=np.ones(len(problem.nodes), dtype=bool),
                changes=content([{} for _ in problem.nodes]),
                boots=np.zeros(0, dtype=np.int64),
                booted=content([]),
                unplaced=problem.pending,
            )
            assert flaws(problem, nothing) == (), seed
            assert not displaced(problem, nothing).any()


def test_everybody_is_accounted_for_once() -> None:
    """Each listed pod is held, of one class, or stays for a rolling update that may not be; held ones never move."""
    for seed in SEEDS:
        found = problem_of(rule_instance(seed))
        held = found.sites.mobility.held
        movers = [mover.pod.key for members in found.draft.members for mover in members]
        everybody = {pod.key for pod in listed(found.question.cluster)}
        assert len(movers) == len(set(movers))
        assert not held.keys() & set(movers)
        rest = everybody - held.keys() - set(movers)
        assert all(found.sites.mobility.strategy[key] == "rolling" for key in rest), seed
        assert found.restricted.keys() <= set(movers) | rest
        for key in found.kept_by_packing:
            node = found.packing.nodes.index(found.question.cluster.pods_by_key[key].node or "")
            assert found.packing.node_fixed[node], (seed, key)


@pytest.mark.slow
def test_the_relaxed_problem_forbids_nothing_that_the_other_allows() -> None:
    """Every packing of the problem with rules is one of the problem without: its optimum is a lower bound."""
    for seed in SEEDS:
        found = problem_of(rule_instance(seed))
        packing = random_packing(found.packing, seed)
        assert packing is None or flaws(found.relaxed, taken_apart(found, packing)) == (), seed


def test_the_same_cluster_gives_the_same_problem() -> None:
    """No order of a set or of ids gets into it."""
    for seed in range(60):
        first, second = (problem_of(rule_instance(seed)).packing for _ in range(2))
        for name in ("requests", "cap", "conflicts", "admits", "node_row", "machine_row", "pending"):
            assert np.array_equal(getattr(first, name), getattr(second, name)), (seed, name)


def test_autoscale_places_pending_pods_only() -> None:
    """Bound pods are nobody's to move, and their rules bind whoever arrives."""
    for seed in range(150):
        instance = rule_instance(seed)
        found = problem_of(instance, "autoscale")
        assert found.packing.node_fixed.all()
        packing = random_packing(found.packing, seed)
        assert packing is not None
        assert faults(found, packing) == set(), seed
