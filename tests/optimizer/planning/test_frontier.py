"""Parts of a plan: the cheapest ones with so many moves, and none of them changes the plan."""

from __future__ import annotations

from itertools import chain, combinations

import msgspec
import pytest
from benchmarks.ruled import ruled_start
from tests.optimizer.planned import planned
from tests.support.builders import NOW, node
from tests.support.planning import unguarded

from kinema_core.events import Plan
from kinema_core.model.cluster import from_objects
from kinema_optimizer.planning import frontier
from kinema_optimizer.planning.frontier import FrontierPoint, frontier_of
from kinema_optimizer.planning.plan import Outcome, build_plan, node_cost, outcome_from, without_moves
from kinema_optimizer.planning.task import Request, Task
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.solvers.stopping import WorkStop


def parts_of(problem: Compiled, whole: Outcome) -> list[tuple[Outcome, int]]:
    """Every part that leaves some of the nodes as they are, and how many pods it moves."""
    pods = problem.question.cluster.pods_by_key
    moving = [key for key, to in whole.targets.items() if pods[key].node not in {None, to}]
    nodes = sorted({str(pods[key].node) for key in moving})
    found = []
    for left in chain.from_iterable(combinations(nodes, size) for size in range(len(nodes) + 1)):
        part = without_moves(problem, whole, [key for key in moving if pods[key].node in left])
        found.append((part, sum(key in part.targets for key in moving)))
    return found


def solved(seed: int) -> tuple[Task, Plan]:
    """A small cluster with every kind of rule, and its plan."""
    start, settings, stop = ruled_start(seed, 10), unguarded(), WorkStop(2)
    request = Request(start.cluster, start.offers, start.now, settings, "reschedule", stop)
    return request.task(()), planned(start.cluster, start.offers, now=start.now, work=2, settings=settings)


@pytest.mark.parametrize("seed", [0, 3])
def test_parts_are_the_cheapest_with_so_many_moves(seed: int) -> None:
    """All choices of nodes that stay as they are, tried one by one, have none that is cheaper."""
    task, plan = solved(seed)
    problem = task.problem
    whole = outcome_from(problem, plan)
    again = build_plan(problem, whole)
    assert (again.cost.after, again.moves, len(again.unplaced)) == (plan.cost.after, plan.moves, len(plan.unplaced))
    parts, every = frontier._Parts(problem, whole), parts_of(problem, whole)
    assert len(every) >= 32
    for most in range(0, plan.moves + 1, 3):
        best = parts.best(most, WorkStop(1000))
        assert best is not None
        assert node_cost(problem, best) == min(node_cost(problem, part) for part, moves in every if moves <= most)


def test_the_plan_is_the_same_and_its_frontier_too() -> None:
    """More moves cost less, the plan is the last point, and a second run gives the same."""
    start, seen = ruled_start(0, 10), list[tuple[FrontierPoint, ...]]()
    alone = planned(start.cluster, start.offers, now=start.now, work=2)
    made = [planned(start.cluster, start.offers, now=start.now, work=2, frontier=seen.append) for _ in range(2)]
    same = {msgspec.structs.replace(one, solve=alone.solve) for one in (*made, alone)}
    assert same == {msgspec.structs.replace(alone)}
    points, again = seen
    assert points == again
    assert len(points) == 2  # one for each step of the work
    assert [one.moves for one in points] == sorted({one.moves for one in points})
    assert [one.cost for one in points] == sorted({one.cost for one in points}, reverse=True)
    assert (points[-1].moves, points[-1].cost) == (alone.moves, alone.cost.after)


def test_a_plan_without_moves_has_no_parts() -> None:
    """Nothing is worked out."""
    cluster, offers = from_objects([node("n0", machine="m2", price="0.09")], version=1), ()
    request = Request(cluster, offers, NOW, unguarded(), "reschedule", WorkStop(10))
    assert frontier_of(request.task(()), planned(cluster, offers), WorkStop(10)) == ()
