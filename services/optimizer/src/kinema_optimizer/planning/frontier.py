"""Frontier of a plan: what parts of it cost, over the pods that they move: `frontier_of`.

A part leaves some nodes as they are, with all their pods. A pod that was to come to a node which other pods were to
leave stays then as well, with its node, and so on (`without_moves`); a new node comes where any pod goes to it. Which
nodes change is an integer program. The knee is its optimum where each move costs what the moves of the plan save on
average: no other part lies further below the line from no moves to all of them.

Each part is ordered and checked as the plan was. A plan that is made for so few moves may cost less than a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kinema_core.events import Plan
from kinema_optimizer.errors import UnsoundPlanError
from kinema_optimizer.planning.ordering import order_within
from kinema_optimizer.planning.plan import Outcome, new_names, outcome_from, without_moves
from kinema_optimizer.planning.portfolio import SOON
from kinema_optimizer.planning.task import Task
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.solvers.mip import Model, solve
from kinema_optimizer.solvers.stopping import FRONTIER, StepStop, StopRule

SHARES: Final = (50, 25, 75)
"""Percent of the moves, in the order in which they are worked out; the plan itself has all."""
_MOST_MOVES: Final = 20_000
"""Moves up to which parts are sought: each takes as long as to order the plan."""


@dataclass(frozen=True)
class FrontierPoint:
    """A part of a plan, or the whole."""

    moves: int
    cost: float
    """After it, per hour, in the unit of the plan's cost."""
    knee: bool = False
    """Further moves save less than the plan's moves do on average."""


def frontier_of(task: Task, plan: Plan, stop: StopRule) -> tuple[FrontierPoint, ...]:
    """Return the parts with at most 25, 50 and 75% of the moves, the knee and the plan, by moves; no two are the same.

    A part that loses moves in its order, and costs no less than one with fewer moves, is left out. The knee comes
    first, and the others as time allows; empty where it allows none, no pod moves, or more than 20,000 do.

    Args:
        task: that the plan is of.
        plan: with its steps, before it is read back.
        stop: its phase `FRONTIER` leaves time to price constraints.
    """
    if not 0 < plan.moves <= _MOST_MOVES:
        return ()
    stop.begin(FRONTIER)
    outcome = outcome_from(task.problem, plan)
    parts, whole = _Parts(task.problem, outcome), len(plan.unplaced)
    found = []
    for number, share in enumerate((None, *SHARES)):
        if stop.ends(number, FRONTIER) is not None:
            break
        most = None if share is None else plan.moves * share // 100
        part = parts.best(most, StepStop(SOON, stop.late))
        made = None if part is None else _finished(task, part, stop, whole)
        if stop.late():
            break
        if made is not None and made.moves:
            found.append(FrontierPoint(made.moves, made.cost.after, share is None))
    return tuple(_undominated([*found, FrontierPoint(plan.moves, plan.cost.after)])) if found else ()


def _undominated(points: list[FrontierPoint]) -> Iterator[FrontierPoint]:
    """Yield the points that cost less than those with fewer moves, and the last one; the knee of two that are equal."""
    points.sort(key=lambda one: (one.moves, one.cost, not one.knee))
    least = float("inf")
    for one in points:
        if one.cost < least:
            yield one
            least = one.cost


def _finished(task: Task, outcome: Outcome, stop: StopRule, unplaced: int) -> Plan | None:
    """Return the plan of a part, checked; None where a rule refuses it, or it leaves more pods than that unplaced."""
    plan, _ = order_within(task.problem, outcome, lambda _: stop.late())
    if len(plan.unplaced) > unplaced:
        return None
    try:
        return task.finish(plan, lower_bound=0, optimal=False)
    except UnsoundPlanError:
        return None


class _Parts:
    """The integer program: a column for each node that pods leave, and for each new one that only such pods fill."""

    def __init__(self, problem: Compiled, outcome: Outcome) -> None:
        self._problem, self._outcome = problem, outcome
        cluster, prices = problem.question.cluster, problem.sites.prices
        self._left: dict[str, list[str]] = {}
        ways, taken = set[tuple[str, str]](), set[str]()
        for key, to in outcome.targets.items():
            source = cluster.pods_by_key[key].node
            if source is None or source == to:
                taken.add(to)
            else:
                self._left.setdefault(source, []).append(key)
                ways.add((source, to))
        deleted = {node.name for node, keep in zip(cluster.nodes, outcome.keep, strict=True) if not keep}
        new = zip(islice(new_names(cluster), len(outcome.boots)), outcome.boots, strict=True)
        cost = {name: -prices[name] if name in deleted else 0 for name in sorted(self._left)}
        cost |= {name: alike[0].micro_usd_per_hour for name, alike in new if name not in taken}
        self._column = {name: column for column, name in enumerate(cost)}
        self._cost = {self._column[name]: float(price) for name, price in cost.items()}
        self._moves = {self._column[name]: float(len(keys)) for name, keys in self._left.items()}
        self._ways = sorted((self._column[a], self._column[b]) for a, b in ways if b in self._column)

    def best(self, most: int | None, stop: StopRule) -> Outcome | None:
        """Return the cheapest part with so many moves, or that at the knee; None where it is not found in time."""
        model, cost = Model(), dict(self._cost)
        for _ in cost:
            model.column(1.0)
        for source, to in self._ways:
            model.row([(source, 1.0), (to, -1.0)], upper=0.0)
        if most is None:
            saved = -sum(cost.values()) / sum(self._moves.values())
            for column, moves in self._moves.items():
                cost[column] += saved * moves
        else:
            model.row(list(self._moves.items()), upper=float(most))
        values = solve(model, cost, phase=FRONTIER, stop=stop).values
        if values is None:
            return None
        stay = [key for name, keys in self._left.items() if values[self._column[name]] < 0.5 for key in keys]
        return without_moves(self._problem, self._outcome, stay)
