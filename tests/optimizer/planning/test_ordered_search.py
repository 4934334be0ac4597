"""The search orders what it finds: what comes out has an order, and what no order reaches is paid for in the bound."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.ruled import ruled_start
from tests.optimizer.planned import planned, replanned

from kinema_optimizer.planning.ordered_search import is_ordered
from kinema_optimizer.planning.plan import incumbent_of, names_of, of_names, of_packing
from kinema_optimizer.planning.task import Request
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.problem.instance import Instance
from kinema_optimizer.problem.solution import Incumbent, Progress, cost_of, moved, solution_of
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import WorkStop

SEEDS = (0,)
NODES = 16


def problem_of(seed: int) -> Compiled:
    """The compiled problem of a cluster full of rules."""
    start = ruled_start(seed, NODES)
    request = Request(start.cluster, start.offers, start.now, PlanningSettings(), "reschedule", WorkStop(3))
    return request.task(()).problem


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_of_a_cluster_full_of_rules_has_an_order_and_a_replay_repeats_it(seed: int) -> None:
    """What the search reports costs no less than the plan, and the recorded stops lead to the same plan."""
    start, seen = ruled_start(seed, NODES), list[Progress]()
    plan = planned(start.cluster, start.offers, now=start.now, work=3, progress=seen.append)
    assert plan.moves > 0
    assert min(one.cost for one in seen) == round(plan.cost.after * 1e6)
    assert replanned(plan, start.cluster, start.offers, now=start.now) == plan


@pytest.mark.parametrize("seed", SEEDS)
def test_an_outcome_is_a_state_and_a_solution_by_name_again(seed: int) -> None:
    """A search can go on from any outcome, and a plan be made of what was reported."""
    problem = problem_of(seed)
    assert is_ordered(problem)
    found = search(problem.packing, problem.relaxed, SearchOptions(workers=1), WorkStop(2)).packing
    outcome = of_packing(problem, found)
    state = incumbent_of(problem, outcome)
    assert state is not None
    same = solution_of(problem.packing, state)
    assert (same.keep == found.keep).all()
    assert np.array_equal(same.booted.counts, found.booted.counts)
    assert of_names(problem, names_of(problem, outcome)) == outcome


def test_a_state_without_an_order_is_left_for_one_with_more_pods_held() -> None:
    """The search goes on from what is mended, in the problem that it is mended for, with that one's state."""
    problem = problem_of(0)

    class Refusing:
        """Refuses the first state, and goes on from the cluster as it is."""

        def __init__(self) -> None:
            self.tested: list[Incumbent] = []

        def test(self, state: Incumbent) -> bool:
            self.tested.append(state)
            return len(self.tested) > 1

        def mend(self) -> tuple[Instance, Incumbent] | None:
            as_is = Incumbent(np.ones(len(problem.packing.nodes), dtype=bool), {}, [], problem.packing.pending.copy())
            return problem.packing, as_is

    course = Refusing()
    found = search(problem.packing, problem.relaxed, SearchOptions(workers=1), WorkStop(3), course=course)
    assert len(course.tested) > 1
    assert found.cost == cost_of(problem.packing, course.tested[-1])
    assert found.moves == int(moved(problem.packing, course.tested[-1]) @ problem.packing.pods)
