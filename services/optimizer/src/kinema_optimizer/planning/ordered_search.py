"""Search in which every plan that counts has an order of moves: `search_in_order`.

A packing that rules between pods let stand may still not be reached: a pod that keeps its own kind out of its zone
waits for itself. So the moves of the search's best state are ordered now and then (after the first, second, fourth,
eighth round), and the best plan with an order is what is reported and returned. Pods whose moves have no order are held
from then on, with their nodes, and the search goes on from what is left of the state: it fills the room that it now
pays for in any case.

Rounds are counted and not timed. A search with more time passes the same states, and its plan is no worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from kinema_core.events import Plan
from kinema_optimizer.planning.ordering import key_of_plan, order_once, order_plan
from kinema_optimizer.planning.plan import Outcome, incumbent_of, names_of, of_packing, without_moves
from kinema_optimizer.planning.preferences import preferred
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import Instance
from kinema_optimizer.problem.solution import Incumbent, Progress, Report, cost_of, solution_of
from kinema_optimizer.request.objective import MICRO
from kinema_optimizer.search.search import SearchOptions, SearchResult, search
from kinema_optimizer.solvers.stopping import ORDER, StopRule

_MOST_PODS: Final = 20_000
"""Movable pods up to which orders are sought during the search: they take seconds beyond."""
_ATTEMPTS: Final = 16
"""Times that a search goes on with more pods held."""


def may_lack_order(problem: Compiled) -> bool:
    """Return whether moves are ordered during the search: rules between pods may leave some without an order."""
    ties = problem.sites.ties
    ruled = bool(ties.needs or ties.marks or ties.groups)
    alone = problem.question.mode == "reschedule" and not problem.resizes and not problem.question.still
    return ruled and alone and len(problem.sites.mobility.strategy) <= _MOST_PODS


@dataclass(frozen=True, eq=False)
class OrderedResult:
    """A plan with its steps, and the search that it is from."""

    found: SearchResult
    outcome: Outcome
    plan: Plan
    held: frozenset[str]
    """Pods whose moves had no order."""
    least: int
    """Micro-USD per hour of the best state, whether it had an order or not."""


def search_in_order(problem: Compiled, options: SearchOptions, stop: StopRule, report: Report) -> OrderedResult:
    """Return the best plan with an order that is found until `stop` ends the search."""
    course = _Course(problem, stop, report)
    found = search(problem.packing, problem.relaxed, options, stop, course.hear, course)
    return course.result(found)


@dataclass
class _Course:
    """The problem as it is now, with the pods held that had no order, and the best plan so far."""

    problem: Compiled
    stop: StopRule
    report: Report
    held: frozenset[str] = frozenset()
    best: tuple[Plan, Outcome] | None = None
    _first: Compiled = field(init=False)
    _stuck: tuple[Outcome, frozenset[str]] | None = None
    _least: int | None = None
    _tested: tuple[Incumbent, bool] | None = None
    _news: Progress | None = None
    _attempts: int = 0

    def __post_init__(self) -> None:
        """Keep the problem that was asked."""
        self._first = self.problem

    def hear(self, news: Progress) -> None:
        """Keep the figures for when its plan has an order; the first state of all moves no pod."""
        if self._news is None:
            self.report(news)
        self._news = news

    def test(self, state: Incumbent) -> bool:
        """Order the moves of a state; keep the plan where it is the best so far."""
        if self._tested is not None and self._tested[0] is state:
            return self._tested[1]
        instance = self.problem.packing
        cost = cost_of(instance, state)
        outcome = preferred(self.problem, of_packing(self.problem, solution_of(instance, state)))
        with self.stop.aside():
            over = self.stop.noted(ORDER)
            plan, stuck = (None, ()) if over(ORDER) else order_once(self.problem, outcome, over)
        if not state.unplaced.any():
            self._least = cost if self._least is None else min(cost, self._least)
        self._stuck = (outcome, frozenset(stuck)) if plan is None or stuck else None
        if plan is not None and not stuck:
            self._take(plan, outcome)
        self._tested = (state, self._stuck is None)
        return self._stuck is None

    def mend(self) -> tuple[Instance, Incumbent] | None:
        """Hold the pods without an order, and return what is left of the state."""
        self._attempts += 1
        if self._stuck is None or self._attempts > _ATTEMPTS:
            return None
        outcome, stuck = self._stuck
        new = stuck & self.problem.sites.mobility.strategy.keys() - self.held
        if not new:
            return None
        self.held |= new
        left = without_moves(self.problem, outcome, new)
        question = self.problem.question
        self.problem = compiled(replace(question, unmoved=question.unmoved | new))
        start = incumbent_of(self.problem, left)
        return None if start is None else (self.problem.packing, start)

    def result(self, found: SearchResult) -> OrderedResult:
        """Return the best plan; where none had an order, the last state without the moves that have none."""
        if self._stuck is not None and (self._stuck[1] or self.best is None):
            plan, _ = order_plan(self.problem, self._stuck[0], self.stop)
            self._take(plan, self._stuck[0])
        assert self.best is not None, "the last state was tested"
        plan, outcome = self.best
        least = round(plan.cost.after * MICRO) if self._least is None else self._least
        return OrderedResult(found, outcome, plan, self.held, least)

    def _take(self, plan: Plan, outcome: Outcome) -> None:
        if self.best is not None and self._key(self.best[0]) <= self._key(plan):
            return
        self.best = plan, outcome
        if self._news is not None:
            cost, problem = round(plan.cost.after * MICRO), self._first
            news = replace(self._news, cost=cost, moves=plan.moves, unplaced=len(plan.unplaced))
            self.report(replace(news, answer=lambda: names_of(problem, outcome)))

    def _key(self, plan: Plan) -> tuple[object, ...]:
        return key_of_plan(self._first, plan)
