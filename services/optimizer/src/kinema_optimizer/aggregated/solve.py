"""The class-aggregated model: counts of pods per class and node instead of one binary per pod and node.

Existing nodes have a binary each (kept or not) and counts of newcomers; each kind of new machine has numbered copies,
copy k+1 never before copy k, no more of them than the best cost known would pay for. Phases, each starting from the
best solution so far: `relaxation` (a bound, whatever follows), `unplaced` (only when not every pending pod found a
place), `cost`, `bound` (only where the rule that pods on kept nodes stay might cost something), `moves` (fewest,
within 0.1% of the cost found), `size` (equation 5.1 among those).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from kinema_core.events import Stop
from kinema_optimizer.aggregated.greedy import rounded, starts
from kinema_optimizer.aggregated.layout import Layout, Result, columns_of, exact_layout, fixed_price, relaxed_layout
from kinema_optimizer.aggregated.problem import (
    DenseProblem,
    DenseSolution,
    as_of,
    cost,
    flaws,
    moves,
    size,
    unplaced,
    without_replaceable,
)
from kinema_optimizer.request.objective import SLACK
from kinema_optimizer.solvers.mip import solve
from kinema_optimizer.solvers.stopping import StopRule

MAX_COLUMNS = 4_000
"""Above this many columns branch and bound gets nowhere in minutes: then first fit and the relaxation must do."""
WHOLE = 0.999
"""Absolute gap at which an objective of whole units is proven."""

Measure: TypeAlias = Callable[[DenseProblem, DenseSolution], tuple[int, ...]]
"""What a phase makes small, most important first."""


def solve_aggregated(
    problem: DenseProblem,
    free: DenseProblem,
    given: Sequence[DenseSolution],
    stop: StopRule,
    *,
    least_moves: bool = True,
) -> Result:
    """Solve the problem; see the module.

    Args:
        problem: what to solve.
        free: the same without the rule that pods on kept nodes stay.
        given: sound solutions to start from, best first; at least one.
        stop: when to end; shared by all phases.
        least_moves: also run `moves` and `size`; an autoscale iteration does not.
    """
    run = _Run(problem, stop, given)
    run.lower_bound = fixed_price(free)  # nodes that only the reduction of rules keeps bind no other plan
    if unplaced(run.best):
        run.least_unplaced()
    if problem.staying_is_free and _as_strict(problem, free):
        run.least_cost_anew()
    else:
        run.relax(free)
        run.least_cost(bounds=False)
        run.bound_of(free)
    if least_moves:
        run.fewest_moves()
    return Result(
        solution=run.best,
        least=run.least,
        lower_bound=run.lower_bound,
        stops=tuple(run.stops),
        method="class-aggregated MIP (HiGHS)" if run.searched else "first fit, LP bound (HiGHS)",
    )


class _Run:
    """The phases of one solve and what they know so far."""

    def __init__(self, problem: DenseProblem, stop: StopRule, given: Sequence[DenseSolution]) -> None:
        self._problem = problem
        self._stop = stop
        self._given = given
        self.best = given[0]
        self.least = cost(problem, given[0])
        """Least cost found, which the final plan may exceed by 1/SLACK for fewer moves."""
        self.lower_bound = fixed_price(problem)
        self.stops: list[Stop] = []
        self.searched = False

    def relax(self, problem: DenseProblem) -> None:
        """Bound the cost by the relaxation (shares of pods and nodes); round it where `problem` is this run's own."""
        layout = relaxed_layout(problem, lost=unplaced(self.best))
        objective = layout.price(problem.price_unit)
        if objective:
            outcome = solve(layout.model, objective, phase="relaxation", stop=self._stop, gap=0.0)
            self.stops.append(outcome.stop)
            self._raise_bound(outcome.bound, problem)
            if outcome.values is not None and problem is self._problem:
                machines, pods = layout.shares_of(outcome.values)
                found = rounded(problem, machines=machines, pods=pods)
                if found is not None:
                    self._adopt(found, _cost)

    def least_unplaced(self) -> None:
        """Place as many pending pods as can be."""
        layout = exact_layout(self._problem, budget=None, lost=unplaced(self.best))
        if len(layout.model.uppers) <= MAX_COLUMNS:
            self._search(layout, dict.fromkeys(layout.lost.values(), 1.0), phase="unplaced", measure=_unplaced)

    def least_cost_anew(self) -> None:
        """Find the cheapest solution and its bound without looking at which replaceable nodes to keep."""
        small = without_replaceable(self._problem)
        same = [one for one in starts(small) if unplaced(one) <= unplaced(self.best)]
        if not same:  # first fit places fewer pods there than the best solution does
            self.relax(small)
            self.least_cost(bounds=True)
            return
        run = _Run(small, self._stop, same)
        run.relax(small)
        run.least_cost(bounds=True, budget=self.least)
        self.stops += run.stops
        self.searched = run.searched
        self._adopt(as_of(self._problem, run.best), _cost)
        self.least = cost(self._problem, self.best)
        self.lower_bound = min(max(self.lower_bound, run.lower_bound), self.least)

    def least_cost(self, *, bounds: bool, budget: int | None = None) -> None:
        """Find the cheapest solution, within a budget; `bounds`: its bound holds for every plan."""
        problem = self._problem
        budget = cost(problem, self.best) if budget is None else min(budget, cost(problem, self.best))
        if columns_of(problem, budget) <= MAX_COLUMNS and budget > self.lower_bound:
            layout = exact_layout(problem, budget=budget, lost=unplaced(self.best))
            bound = self._search(layout, layout.price(problem.price_unit), phase="cost", measure=_cost, budget=budget)
            if bounds:
                self._raise_bound(bound, problem)
        self.least = cost(problem, self.best)
        self.lower_bound = min(self.lower_bound, self.least)

    def bound_of(self, free: DenseProblem) -> None:
        """Bound what any plan can cost, also one that moves pods between kept nodes."""
        if columns_of(free, self.least) > MAX_COLUMNS or self.lower_bound >= self.least:
            return
        layout = exact_layout(free, budget=self.least, lost=unplaced(self.best))
        outcome = solve(layout.model, layout.price(free.price_unit), phase="bound", stop=self._stop, gap=WHOLE)
        self.stops.append(outcome.stop)
        self._raise_bound(outcome.bound, free)
        self.lower_bound = min(self.lower_bound, self.least)

    def fewest_moves(self) -> None:
        """Among solutions within 1/SLACK of the least cost: fewest moves, then least by equation 5.1."""
        problem, budget = self._problem, self.least + self.least // SLACK
        for one in self._given:
            equal = unplaced(one) == unplaced(self.best) and cost(problem, one) <= budget
            if equal and moves(problem, one) < moves(problem, self.best):
                self.best = one
        layout = exact_layout(problem, budget=budget, lost=unplaced(self.best))
        if len(layout.model.uppers) > MAX_COLUMNS:
            return
        unit = problem.price_unit
        known = -(
            -(self.lower_bound - fixed_price(problem)) // unit
        )  # that nothing costs less need not be proven again
        layout.model.row(list(layout.price(unit).items()), lower=known)
        stayed = layout.stayed()
        if moves(problem, self.best):
            objective = {column: -pods for column, pods in stayed.items()}
            self._search(layout, objective, phase="moves", measure=_moves, budget=budget)
        most = int(problem.node_stays[~problem.node_fixed].sum() + problem.rolled.sum())
        layout.model.row(list(stayed.items()), lower=most - moves(problem, self.best))
        self._search(layout, layout.price_and_size(), phase="size", measure=_size, budget=budget)

    def _search(
        self,
        layout: Layout,
        objective: dict[int, float],
        *,
        phase: str,
        measure: Measure,
        budget: int | None = None,
    ) -> float:
        """Minimize and adopt what is found if it is sound and better; return the bound in units of the objective."""
        self.searched = True
        affordable = budget is None or cost(self._problem, self.best) <= budget
        start = layout.start_of(self.best) if affordable else None
        outcome = solve(layout.model, objective, phase=phase, stop=self._stop, gap=WHOLE, start=start)
        self.stops.append(outcome.stop)
        if outcome.values is not None:
            found = layout.solution_of(outcome.values)
            if budget is None or cost(self._problem, found) <= budget:
                self._adopt(found, measure)
        return outcome.bound

    def _adopt(self, found: DenseSolution, measure: Measure) -> None:
        """Make it the best if it is better and obeys every constraint in integers."""
        if measure(self._problem, found) < measure(self._problem, self.best) and not flaws(self._problem, found):
            self.best = found

    def _raise_bound(self, bound: float, problem: DenseProblem) -> None:
        """`bound` is in the problem's price units and leaves out the nodes that must stay."""
        if math.isfinite(bound):
            raised = fixed_price(problem) + math.ceil(bound) * problem.price_unit
            self.lower_bound = max(self.lower_bound, raised)


def _as_strict(problem: DenseProblem, free: DenseProblem) -> bool:
    """Whether the reduction of rules keeps no pod from where it could be: what is best for it then bounds all plans."""
    kept = ~problem.node_replaceable
    return bool(
        (problem.machine_limit == free.machine_limit).all()
        and (problem.node_limit[kept] == free.node_limit[kept]).all()
        and not problem.conflicts
    )


def _unplaced(_: DenseProblem, solution: DenseSolution) -> tuple[int, ...]:
    return (unplaced(solution),)


def _cost(problem: DenseProblem, solution: DenseSolution) -> tuple[int, ...]:
    return (unplaced(solution), cost(problem, solution))


def _moves(problem: DenseProblem, solution: DenseSolution) -> tuple[int, ...]:
    return (unplaced(solution), moves(problem, solution))


def _size(problem: DenseProblem, solution: DenseSolution) -> tuple[int, ...]:
    return (*_moves(problem, solution), 1000 * cost(problem, solution) + size(problem, solution))
