"""Search in which every plan that counts is redundant and has an order of moves: `search_in_order`.

A packing that rules between pods let stand may still not be reached: a pod that keeps its own kind out of its zone
waits for itself. So the moves of the search's best state are ordered now and then (after the first, second, fourth,
eighth round), and the best plan with an order is what is reported and returned. Pods whose moves have no order are held
from then on, with their nodes, and the search goes on from what is left of the state: it fills the room that it now
pays for in any case.

Classes that workloads share do not ensure the redundancy of each (`problem.rules.redundancy`). Where a state has no
seats by which a workload keeps it, its pods are a class of their own from then on.

Rounds are counted and not timed. A search with more time passes the same states, and its plan is no worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from kinema_core.events import Plan
from kinema_optimizer.planning.ordering import key_of, key_of_plan, obstacles_of, order_once, order_plan
from kinema_optimizer.planning.plan import Outcome, incumbent_of, names_of, node_cost, of_packing, without_moves
from kinema_optimizer.planning.preferences import preferred
from kinema_optimizer.planning.redundancy import pods_torn, redundant, torn
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


def is_ordered(problem: Compiled) -> bool:
    """Return whether moves are ordered during the search: rules between pods may leave some without an order."""
    alone = problem.question.mode == "reschedule" and not problem.resizes and not problem.question.still
    return problem.sites.ties.ruled and alone and len(problem.sites.mobility.strategy) <= _MOST_PODS


def is_tested(problem: Compiled) -> bool:
    """Return whether the best state of a search may be no plan: it lacks an order, or redundancy."""
    return is_ordered(problem) or bool(problem.sites.ties.shared and not problem.resizes)


@dataclass(frozen=True, eq=False)
class OrderedResult:
    """An outcome, and the search that it is from."""

    found: SearchResult
    outcome: Outcome
    plan: Plan | None
    """With its steps, where moves were ordered."""
    held: frozenset[str]
    """Pods whose moves had no order."""
    obstacles: frozenset[str]
    """What was against these moves."""
    least: int
    """Micro-USD per hour of the best state, whether it had an order or not."""


def search_in_order(problem: Compiled, options: SearchOptions, stop: StopRule, report: Report) -> OrderedResult:
    """Return the best plan that is found until `stop` ends the search; with an order, where that may lack."""
    course = _Course(problem, stop, report)
    found = search(problem.packing, problem.relaxed, options, stop, course.hear, course)
    return course.result(found)


@dataclass(frozen=True)
class _Failed:
    """A state that is no plan: workloads lose their redundancy, or pods have no order (none: time was over)."""

    outcome: Outcome
    torn: tuple[str, ...] = ()
    stuck: frozenset[str] = frozenset()


@dataclass
class _Course:
    """The problem as it is now, with the pods held that had no order, and the best plan so far."""

    problem: Compiled
    stop: StopRule
    report: Report
    held: frozenset[str] = frozenset()
    obstacles: frozenset[str] = frozenset()
    best: tuple[Outcome, Plan | None] | None = None
    _first: Compiled = field(init=False)
    _failed: _Failed | None = None
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
        """Seat the pods of a state and order their moves; keep the plan where it is the best so far."""
        if self._tested is not None and self._tested[0] is state:
            return self._tested[1]
        problem, instance = self.problem, self.problem.packing
        with self.stop.aside():
            outcome = preferred(problem, of_packing(problem, solution_of(instance, state)))
            self._failed = _Failed(outcome, torn=torn(problem, outcome))
            if not self._failed.torn:
                plan, stuck = self._ordered(outcome)
                if not state.unplaced.any():
                    cost = cost_of(instance, state)
                    self._least = cost if self._least is None else min(cost, self._least)
                self._failed = _Failed(outcome, stuck=stuck) if stuck is not None else None
                if stuck is None:
                    self._take(outcome, plan)
        self._tested = (state, self._failed is None)
        return self._failed is None

    def mend(self) -> tuple[Instance, Incumbent] | None:
        """Divide classes, or hold the pods without an order, and return what is left of the state."""
        self._attempts += 1
        if self._failed is None or self._attempts > _ATTEMPTS:
            return None
        outcome, question = self._failed.outcome, self.problem.question
        apart = frozenset(self._failed.torn) - question.apart
        pods = pods_torn(self.problem, outcome, self._failed.torn) | self._failed.stuck
        new = pods & self.problem.sites.mobility.strategy.keys() - self.held
        if not new:
            return None
        left = without_moves(self.problem, outcome, new)
        if apart:
            question = replace(question, apart=question.apart | apart)
        else:
            self.held |= new
            question = replace(question, unmoved=question.unmoved | new)
        self.problem = compiled(question)
        start = incumbent_of(self.problem, left)
        return None if start is None else (self.problem.packing, start)

    def result(self, found: SearchResult) -> OrderedResult:
        """Return the best plan; where the last state is none, that without the moves that are in its way is one too."""
        failed = self._failed
        if failed is not None and (failed.torn or failed.stuck or self.best is None):
            outcome = redundant(self.problem, failed.outcome)
            self._take(outcome, order_plan(self.problem, outcome, self.stop)[0] if is_ordered(self._first) else None)
        assert self.best is not None, "the last state was tested"
        outcome, plan = self.best
        least = self._cost(outcome, plan) if self._least is None else self._least
        return OrderedResult(found, outcome, plan, self.held, self.obstacles, least)

    def _ordered(self, outcome: Outcome) -> tuple[Plan | None, frozenset[str] | None]:
        """Return the plan with its steps, where moves are ordered; and the pods without an order, None for none.

        There are no such pods, and no plan, where no time is left.
        """
        if not is_ordered(self._first):
            return None, None
        over = self.stop.noted(ORDER)
        if over(ORDER):
            return None, frozenset()
        plan, stuck = order_once(self.problem, outcome, over)
        self.obstacles |= obstacles_of(stuck)
        return (None, frozenset(stuck)) if stuck else (plan, None)

    def _take(self, outcome: Outcome, plan: Plan | None) -> None:
        if self.best is not None and self._key(*self.best) <= self._key(outcome, plan):
            return
        self.best = outcome, plan
        if self._news is not None:
            problem, pods = self._first, self._first.question.cluster.pods_by_key
            moves = sum(pods[key].node not in {None, to} for key, to in outcome.targets.items())
            unplaced = len(outcome.lost)
            if plan is not None:
                moves, unplaced = plan.moves, len(plan.unplaced)
            news = replace(self._news, cost=self._cost(outcome, plan), moves=moves, unplaced=unplaced)
            self.report(replace(news, answer=lambda: names_of(problem, outcome)))

    def _cost(self, outcome: Outcome, plan: Plan | None) -> int:
        return node_cost(self._first, outcome) if plan is None else round(plan.cost.after * MICRO)

    def _key(self, outcome: Outcome, plan: Plan | None) -> tuple[object, ...]:
        return (key_of(self._first, outcome),) if plan is None else key_of_plan(self._first, plan)
