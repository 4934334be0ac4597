"""Branch and bound on the exact model: every pod, every node, every rule.

Phases, in this order:
- `exact-cost`: every pending pod placed, at a price that suffices unless rules forbid it; `exact-soon` is that where
  the caller asks another method if that takes long;
- where that cannot be, `exact-lost-<n>`: fewest pods left out of the n-th highest priority, one after another, and then
  `exact-cost-of-most`. Where the result moves more pods than a plan may, all of it once more within that limit; the
  bound of the first time holds for every plan;
- where a plan is known by then, `exact-below`: less than it costs;
- where pods prefer some nodes or moves have a price, `exact-preferences`: least cost with both priced;
- `exact-moves`: fewest moves within 1/1000 of the least cost, where moves have no price; of those plans the cheapest,
  and of those one with fewest restarts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from kinema_core.events import Stop
from kinema_optimizer.exact import mip
from kinema_optimizer.exact.mip import ExactLayout, Sum, add_rules, column, layout_of, total
from kinema_optimizer.exact.model import (
    ExactInstance,
    ExactSolution,
    as_it_is,
    assignment,
    cost,
    flaws,
    lost_by_priority,
    moves,
    restarts,
    sufficient,
    updates,
    worth,
)
from kinema_optimizer.problem.solution import ModelResult, NamedSolution, Progress, Report, report_nothing
from kinema_optimizer.request.objective import SLACK
from kinema_optimizer.solvers.mip import Outcome, solve
from kinema_optimizer.solvers.stopping import StopRule

Measure: TypeAlias = Callable[[ExactInstance, ExactSolution], tuple[int, ...]]
"""What a phase makes small, most important first."""


METHOD: Final = "exact MIP with all rules (HiGHS)"
ExactResult: TypeAlias = ModelResult[NamedSolution]


def solve_exact(
    problem: ExactInstance,
    stop: StopRule,
    *,
    least_moves: bool = True,
    most_moves: int | None = None,
    hurried: bool = False,
    discarded: list[Stop] | None = None,
    report: Report = report_nothing,
) -> ExactResult | None:
    """Minimize unplaced pods by priority, then the cost, then moves; see the module.

    `least_moves=False` leaves the last phase out; above `most_moves` no pod moves unless it must; `hurried` looks for
    nothing more where the least cost is not proven. None: pods that must be replaced cannot all be, or nothing was
    found in time; `discarded` then gets where that ended, as a replay has to end there too.
    """
    run = _Run(problem, stop, report)
    run.least_cost(hurried=hurried)
    if run.best is None:
        if discarded is not None:
            discarded += run.stops
        return None
    known = _Known.of(run)
    if hurried and not known.proven:
        return _result(run, known, settled=False)
    if most_moves is not None:
        run = _limited(run, most_moves)
    return _finished(run, known, least_moves=least_moves)


@dataclass(frozen=True)
class Below:
    """What there is for less than the cost of a plan that is known."""

    result: ExactResult | None
    lower_bound: int
    """Micro-USD per hour: no plan costs less that places every pod. What was known, where nothing costs less."""
    stops: tuple[Stop, ...]


def solve_below(
    problem: ExactInstance,
    stop: StopRule,
    *,
    cost: int,
    bound: int,
    least_moves: bool,
    report: Report = report_nothing,
) -> Below:
    """Find the least cost below one that is known, with every pod placed, and then go on as `solve_exact`.

    What is known of both ends helps: machines that are too dear are not in the model, nor as many of the others.

    Args:
        problem: what to solve.
        stop: when to end.
        cost: micro-USD per hour of a plan that places every pod.
        bound: micro-USD per hour that no such plan costs less than.
        least_moves: as for `solve_exact`.
        report: as for `solve_exact`.
    """
    if max(bound, problem.fixed_price) >= cost:
        return Below(None, cost, ())
    run = _Run(problem, stop, report)
    outcome = run.below(cost, bound)
    if outcome.values is None:
        nothing = outcome.stop.reason == "infeasible"
        known = cost if nothing else min(cost, max(bound, run.lower_bound))
        return Below(None, known, tuple(run.stops))
    result = _finished(run, _Known.of(run), least_moves=least_moves)
    return Below(result, max(bound, result.lower_bound), result.stops)


def _finished(run: _Run, known: _Known, *, least_moves: bool) -> ExactResult:
    """Return the result after the least cost is known: least worth, then few moves."""
    problem = run.problem
    least = cost(problem, run.found)
    settled = run.certain and run.lower_bound >= least
    if problem.weighs:
        settled = run.least_worth() and settled
    if least_moves:
        run.fewest_moves(least)
    return _result(run, known, settled=settled)


@dataclass(frozen=True)
class _Known:
    """What is proven of plans that may move any number of pods."""

    best: ExactSolution
    least: int
    lower_bound: int
    proven: bool

    @classmethod
    def of(cls, run: _Run) -> _Known:
        """Return what a run knows after the search for the least cost."""
        best = run.found
        least = cost(run.problem, best)
        bound = min(run.lower_bound, least)
        return cls(best, least, bound, proven=run.certain and bound >= least)


def _limited(run: _Run, most_moves: int) -> _Run:
    """Return the run that goes on within the limit: a new one where the cheapest plan moves more pods."""
    if moves(run.problem, run.found) <= most_moves:
        run.most_moves = most_moves
        return run
    again = _Run(run.problem, run.stop, run.report, most_moves)
    again.stops = run.stops
    again.least_cost()
    return again if again.best is not None else run


class _Run:
    """The phases of one solve and what they know so far."""

    def __init__(self, problem: ExactInstance, stop: StopRule, report: Report, most_moves: int | None = None) -> None:
        self.problem = problem
        self.stop = stop
        self.report = report
        self.most_moves = most_moves
        """Pods that solutions move at most."""
        self.best = as_it_is(problem)
        self.lower_bound = problem.fixed_price
        self.stops: list[Stop] = []
        self.certain = True
        """No fewer pods can be left out than the best solution leaves out."""

    @property
    def found(self) -> ExactSolution:
        """The best solution, where there is one."""
        assert self.best is not None, "there is a solution"
        return self.best

    def least_cost(self, *, hurried: bool = False) -> None:
        """Place as many as can be, at the least cost; `hurried` stops where no place for all was found in time."""
        guess = sufficient(self.problem)
        phase = "exact-soon" if hurried else "exact-cost"
        outcome = self._search(self._layout(guess), phase) if guess is not None else None
        if outcome is not None and outcome.values is not None:
            return
        if hurried and outcome is not None and outcome.stop.reason != "infeasible":
            self.certain = False
        else:
            self._place_most()

    def below(self, most: int, bound: int) -> Outcome:
        """Place all for less than this, in a model of what that can pay for; `bound` is no news to it."""
        problem = self.problem
        layout = self._layout(most - problem.price_unit)
        least = -(-max(0, bound - problem.fixed_price) // problem.price_unit)
        layout.row(Sum(layout.price()), lower=float(least))
        outcome = self._search(layout, "exact-below")
        if outcome.values is None and math.isfinite(outcome.bound):
            self.lower_bound = problem.fixed_price + math.ceil(outcome.bound) * problem.price_unit
        return outcome

    def _place_most(self) -> None:
        """Leave out the fewest pods of each priority, then find the least cost."""
        problem = self.problem
        fixed: list[tuple[int, int]] = []
        levels = sorted({kind.priority for kind in problem.kinds if kind.pending}, reverse=True)
        for rank, level in enumerate(levels, start=1):
            layout = self._layout(None, lost=True, fixed=fixed)
            outcome = self._minimize(layout, _lost(layout, level), f"exact-lost-{rank}", lost_by_priority)
            self.certain = self.certain and outcome.stop.reason == "optimal"
            if self.best is None:
                return
            fixed.append((level, _lost_now(problem, self.best, level)))
        layout = self._layout(None, lost=True, fixed=fixed)
        self._search(layout, "exact-cost-of-most")

    def _layout(
        self, budget: int | None, *, lost: bool = False, fixed: list[tuple[int, int]] | None = None
    ) -> ExactLayout:
        layout = layout_of(self.problem, budget=budget, lost=lost)
        add_rules(layout)
        if self.most_moves is not None:
            layout.row(layout.gone(), upper=float(self.most_moves))
        for level, most in fixed or ():
            layout.row(_lost(layout, level), upper=float(most))
        return layout

    def _search(self, layout: ExactLayout, phase: str) -> Outcome:
        """Minimize the cost and keep the bound."""
        outcome = self._minimize(layout, Sum(layout.price()), phase, _lost_and_cost)
        if outcome.values is not None and math.isfinite(outcome.bound) and self.certain:
            bound = self.problem.fixed_price + math.ceil(outcome.bound) * self.problem.price_unit
            self.lower_bound = max(self.lower_bound, bound)
        return outcome

    def least_worth(self) -> bool:
        """Pay for preferences and moves what they are worth, with no more pods left out; whether that is proven."""
        layout, objective = self._no_worse(worth(self.problem, self.found))
        outcome = self._minimize(layout, objective, "exact-preferences", _lost_and_worth)
        return outcome.stop.reason == "optimal"

    def fewest_moves(self, least: int) -> None:
        """Among solutions within 1/SLACK of the least cost (of the best, if preferences count), as many left out.

        Where moves have a price, among equally good ones.
        """
        problem, best = self.problem, self.found
        if not moves(problem, best) and not restarts(problem, best) and cost(problem, best) == least:
            return
        slack, now = 0 if problem.priced else least // SLACK, worth(problem, best)
        layout, value = self._no_worse(now + slack)
        spare = slack // problem.worth_unit
        pods = float(problem.pods + 1)
        objective = Sum().add(layout.gone(), pods * (spare + 1))
        objective.add(value, pods if spare else 0.0).add(_restarted(layout))
        self._minimize(layout, objective, "exact-moves", _lost_moves_and_worth)

    def _no_worse(self, budget: int) -> tuple[ExactLayout, Sum]:
        """Return the model of solutions within this budget that leave out as many pods, and their worth."""
        problem, best = self.problem, self.found
        levels = sorted({kind.priority for kind in problem.kinds if kind.pending}, reverse=True)
        lost = any(best.lost)
        fixed = [(level, _lost_now(problem, best, level)) for level in levels] if lost else []
        layout = self._layout(budget, lost=lost, fixed=fixed)
        value = mip.worth(layout)
        if problem.weighs:
            layout.row(value, upper=float((budget - problem.fixed_price) // problem.worth_unit))
        return layout, value

    def _minimize(self, layout: ExactLayout, objective: Sum, phase: str, measure: Measure) -> Outcome:
        terms = {index: value for index, value in objective.terms.items() if value}
        outcome = solve(layout.model, terms, phase=phase, stop=self.stop)
        self.stops.append(outcome.stop)
        if outcome.values is not None:
            found = layout.solution_of(outcome.values)
            better = self.best is None or measure(self.problem, found) < measure(self.problem, self.best)
            if better and self._allowed(found) and not flaws(self.problem, found):
                self.best = found
                self._report(phase, found)
        return outcome

    def _report(self, phase: str, found: ExactSolution) -> None:
        problem, paid = self.problem, cost(self.problem, found)
        self.report(
            Progress(
                phase=phase,
                cost=paid,
                bound=min(self.lower_bound, paid),
                moves=moves(problem, found),
                answer=partial(_by_name, problem, found),
                stops=tuple(self.stops),
                unplaced=sum(found.lost) + len(problem.homeless),
            )
        )

    def _allowed(self, found: ExactSolution) -> bool:
        return self.most_moves is None or moves(self.problem, found) <= self.most_moves


def _lost_and_cost(problem: ExactInstance, solution: ExactSolution) -> tuple[int, ...]:
    return (*lost_by_priority(problem, solution), cost(problem, solution))


def _lost_and_worth(problem: ExactInstance, solution: ExactSolution) -> tuple[int, ...]:
    return (*lost_by_priority(problem, solution), worth(problem, solution))


def _lost_moves_and_worth(problem: ExactInstance, solution: ExactSolution) -> tuple[int, ...]:
    lost = lost_by_priority(problem, solution)
    return (*lost, moves(problem, solution), worth(problem, solution), restarts(problem, solution))


def _lost(layout: ExactLayout, level: int) -> Sum:
    """Return the pods of a priority that are left out."""
    kinds = layout.problem.kinds
    return total(column(index) for kind, index in layout.lost.items() if kinds[kind].priority == level)


def _lost_now(problem: ExactInstance, solution: ExactSolution, level: int) -> int:
    pairs = zip(problem.kinds, solution.lost, strict=True)
    return sum(lost for kind, lost in pairs if kind.priority == level)


def _restarted(layout: ExactLayout) -> Sum:
    """Return the pods that are replaced on their own node."""
    return total(column(index) for index in layout.back.values())


def _result(run: _Run, known: _Known, *, settled: bool) -> ExactResult:
    problem, best = run.problem, run.found
    # What few moves leave out may cost less than what no plan costs less than that leaves out no more.
    same = lost_by_priority(problem, best) == lost_by_priority(problem, known.best)
    return ModelResult(
        solution=_by_name(problem, best),
        cost=cost(problem, best),
        least=known.least,
        lower_bound=known.lower_bound if same else problem.fixed_price,
        proven=known.proven and same,
        settled=settled and same,
        stops=tuple(run.stops),
        method=METHOD,
    )


def _by_name(problem: ExactInstance, solution: ExactSolution) -> NamedSolution:
    """Return the solution with a name for every pod's node."""
    live = [node.name for node in problem.nodes]
    new = new_names(live, len(solution.boots))
    names: list[str] = [*live, *new]
    placed = assignment(problem, solution)
    return NamedSolution(
        assignment={
            **{pod: None if site is None else names[site] for pod, site in placed.items()},
            **dict.fromkeys(problem.homeless),
        },
        boots={name: problem.machines[m].offers for name, m in zip(new, solution.boots, strict=True)},
        deleted=tuple(name for name, keep in zip(live, solution.keep, strict=True) if not keep),
        updates=updates(problem, solution),
        alike=tuple(kind.pods for kind in problem.kinds),
    )


def new_names(live: list[str], count: int) -> list[str]:
    """Return names for new nodes that no live node has."""
    candidates = (f"new-{n}" for n in range(1, count + len(live) + 1))
    return [name for name in candidates if name not in live][:count]
