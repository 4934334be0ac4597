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
from dataclasses import dataclass, field
from math import gcd
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kinema_core.events import Stop
from kinema_optimizer.exact.first_fit import rounded, starts
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.dense import DenseInstance, with_replaceable, without_replaceable
from kinema_optimizer.problem.instance import Solution, cost, flaws, moves
from kinema_optimizer.problem.solution import ModelResult
from kinema_optimizer.request.objective import SLACK
from kinema_optimizer.solvers.mip import Model, solve
from kinema_optimizer.solvers.stopping import StopRule

MAX_COLUMNS = 4_000
"""Above this many columns branch and bound gets nowhere in minutes: then first fit and the relaxation must do."""

Measure: TypeAlias = Callable[[DenseInstance, Solution], tuple[int, ...]]
"""What a phase makes small, most important first."""
LARGE: Final = 10**6
"""Rows with greater coefficients are scaled to a right side of 1, where the tolerance is meant to apply."""


def solve_aggregated(
    problem: DenseInstance,
    free: DenseInstance,
    given: Sequence[Solution],
    stop: StopRule,
    *,
    least_moves: bool = True,
) -> ModelResult[Solution]:
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
        run.least_cost_without_replaceable()
    else:
        run.relax(free)
        run.least_cost(bounds=False)
        run.bound_of(free)
    if least_moves:
        run.fewest_moves()
    proven = run.lower_bound >= run.least
    return ModelResult(
        solution=run.best,
        cost=cost(problem, run.best),
        least=run.least,
        lower_bound=run.lower_bound,
        proven=proven,
        settled=proven,
        stops=tuple(run.stops),
        method="class-aggregated MIP (HiGHS)" if run.searched else "first fit, LP bound (HiGHS)",
    )


class _Run:
    """The phases of one solve and what they know so far."""

    def __init__(self, problem: DenseInstance, stop: StopRule, given: Sequence[Solution]) -> None:
        self._problem = problem
        self._stop = stop
        self._given = given
        self.best = given[0]
        self.least = cost(problem, given[0])
        """Least cost found, which the final plan may exceed by 1/SLACK for fewer moves."""
        self.lower_bound = fixed_price(problem)
        self.stops: list[Stop] = []
        self.searched = False

    def relax(self, problem: DenseInstance) -> None:
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

    def least_cost_without_replaceable(self) -> None:
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
        self._adopt(with_replaceable(self._problem, run.best), _cost)
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

    def bound_of(self, free: DenseInstance) -> None:
        """Bound what any plan can cost, also one that moves pods between kept nodes."""
        if columns_of(free, self.least) > MAX_COLUMNS or self.lower_bound >= self.least:
            return
        layout = exact_layout(free, budget=self.least, lost=unplaced(self.best))
        outcome = solve(layout.model, layout.price(free.price_unit), phase="bound", stop=self._stop)
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
        outcome = solve(layout.model, objective, phase=phase, stop=self._stop, start=start)
        self.stops.append(outcome.stop)
        if outcome.values is not None:
            found = layout.solution_of(outcome.values)
            if budget is None or cost(self._problem, found) <= budget:
                self._adopt(found, measure)
        return outcome.bound

    def _adopt(self, found: Solution, measure: Measure) -> None:
        """Make it the best if it is better and obeys every constraint in integers."""
        if measure(self._problem, found) < measure(self._problem, self.best) and not flaws(self._problem, found):
            self.best = found

    def _raise_bound(self, bound: float, problem: DenseInstance) -> None:
        """Raise the lower bound; `bound` is in the problem's price units and leaves out the nodes that must stay."""
        if math.isfinite(bound):
            raised = fixed_price(problem) + math.ceil(bound) * problem.price_unit
            self.lower_bound = max(self.lower_bound, raised)


def _as_strict(problem: DenseInstance, free: DenseInstance) -> bool:
    """Return whether the reduction of rules keeps no pod from where it could be: its optimum then bounds all plans."""
    kept = ~problem.node_replaceable
    return bool(
        (problem.machine_limit == free.machine_limit).all()
        and (problem.node_limit[kept] == free.node_limit[kept]).all()
        and not problem.conflicts.size
    )


def unplaced(solution: Solution) -> int:
    """Return how many pending pods have no place."""
    return int(solution.unplaced.sum())


def _unplaced(_: DenseInstance, solution: Solution) -> tuple[int, ...]:
    return (unplaced(solution),)


def _cost(problem: DenseInstance, solution: Solution) -> tuple[int, ...]:
    return (unplaced(solution), cost(problem, solution))


def _moves(problem: DenseInstance, solution: Solution) -> tuple[int, ...]:
    return (unplaced(solution), moves(problem, solution))


def _size(problem: DenseInstance, solution: Solution) -> tuple[int, ...]:
    size = int(problem.node_size[solution.keep].sum() + problem.machine_size[solution.boots].sum())
    return (*_moves(problem, solution), 1000 * cost(problem, solution) + size)


@dataclass
class Copy:
    """One numbered copy of a machine on sale (or, relaxed, all of them): its own column and its pods' by class."""

    machine: int
    used: int
    pods: dict[int, int]


@dataclass
class Layout:
    """Which column means what. Values are counts; `keep` and `used` are 0 or 1 unless relaxed."""

    problem: DenseInstance
    model: Model
    keep: list[int | None] = field(default_factory=list)
    """Per existing node; None: it must stay."""
    take: list[dict[int, int]] = field(default_factory=list)
    """Per existing node: class → newcomers."""
    copies: list[Copy] = field(default_factory=list)
    lost: dict[int, int] = field(default_factory=dict)
    """Class → pending pods left without a place."""
    back: dict[tuple[int, int], int] = field(default_factory=dict)
    """(Existing node, class) → replaced pods that come back to their own node."""
    rolls: list[int | None] = field(default_factory=list)
    """Per workload moved by rolling update: whether it is; None: it cannot be."""

    def start_of(self, solution: Solution) -> NDArray[np.float64]:
        """Return the values that stand for a solution."""
        problem, kinds = self.problem, len(self.problem.pending)
        values, updates = np.zeros(len(self.model.uppers)), solution.updates or frozenset()
        newcomers = solution.changes.matrix(kinds)
        for e, column in enumerate(self.keep):
            if column is not None:
                values[column] = solution.keep[e]
            values[list(self.take[e].values())] = newcomers[e, list(self.take[e])]
        for u, column in enumerate(self.rolls):
            if column is not None:
                values[column] = u in updates
        old = problem.node_old + problem.node_updates[sorted(updates)].sum(axis=0)
        for (e, c), column in self.back.items():
            values[column] = min(newcomers[e, c], old[e, c])
        for c, column in self.lost.items():
            values[column] = solution.unplaced[c]
        boots = [*zip(solution.boots.tolist(), solution.booted.matrix(kinds), strict=True)]
        for copy in self.copies:
            boot = next((b for b, (machine, _) in enumerate(boots) if machine == copy.machine), None)
            if boot is not None:
                values[copy.used] = 1
                values[list(copy.pods.values())] = boots.pop(boot)[1][list(copy.pods)]
        return values

    def solution_of(self, values: NDArray[np.float64]) -> Solution:
        """Return the solution that integer values stand for."""
        whole = np.rint(values).astype(np.int64)

        def counts(columns: dict[int, int]) -> Ints:
            found = np.zeros(len(self.problem.pending), dtype=np.int64)
            found[list(columns)] = whole[list(columns.values())]
            return found

        boots = [(copy.machine, counts(copy.pods)) for copy in self.copies if whole[copy.used]]
        return self.problem.solution(
            np.array([column is None or bool(whole[column]) for column in self.keep], dtype=bool),
            np.array([counts(row) for row in self.take], dtype=np.int64).reshape(self.problem.node_limit.shape),
            [(machine, taken) for machine, taken in boots if taken.any()],  # a node may be booted for no pod
            counts(self.lost),
        )

    def shares_of(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the (M,) machines and (M, C) pods on them that a relaxation's values stand for."""
        machines = np.zeros(len(self.problem.machines))
        pods = np.zeros(self.problem.machine_limit.shape)
        for copy in self.copies:
            machines[copy.machine] = values[copy.used]
            for c, column in copy.pods.items():
                pods[copy.machine, c] = values[column]
        return machines, pods

    def price(self, unit: float = 1.0) -> dict[int, float]:
        """Return the price in `unit`s of micro-USD by column, of all nodes that have one."""
        found = {
            column: float(self.problem.node_price[e]) / unit for e, column in enumerate(self.keep) if column is not None
        }
        found |= {copy.used: float(self.problem.machine_price[copy.machine]) / unit for copy in self.copies}
        return found

    def price_and_size(self) -> dict[int, float]:
        """Return the part of equation 5.1 by column, in micro-USD."""
        found = self.price()
        for e, column in enumerate(self.keep):
            if column is not None:
                found[column] += float(self.problem.node_size[e]) / 1000
        for copy in self.copies:
            found[copy.used] += float(self.problem.machine_size[copy.machine]) / 1000
        return found

    def stayed(self) -> dict[int, float]:
        """Return the pods by column that do not move because of it; negative: that do."""
        found = {
            column: float(self.problem.node_stays[e].sum()) for e, column in enumerate(self.keep) if column is not None
        }
        sizes = self.problem.node_updates.sum(axis=(1, 2))
        found |= {column: -float(sizes[u]) for u, column in enumerate(self.rolls) if column is not None}
        return found | dict.fromkeys(self.back.values(), 1.0)


def exact_layout(problem: DenseInstance, *, budget: int | None, lost: int) -> Layout:
    """Return the integer model; with a `budget` (micro-USD per hour) it has nothing that would cost more.

    At most `lost` pending pods are left without a place.
    """
    layout = Layout(problem, Model(integer=True))
    _existing(layout)
    _rollouts(layout)
    _returns(layout)
    left = None if budget is None else budget - fixed_price(problem)
    for machine, count in enumerate(problem.machine_count.tolist()):
        price = int(problem.machine_price[machine])
        affordable = count if left is None or price == 0 else min(count, left // price)
        _copies(layout, machine, affordable)
    _pools(layout)
    _demand(layout, lost=lost)
    if left is not None:
        unit = problem.price_unit
        layout.model.row(list(layout.price(unit).items()), upper=left // unit)
    return layout


def relaxed_layout(problem: DenseInstance, *, lost: int) -> Layout:
    """Return the model with shares for counts and a machine's copies as one: its optimum bounds every solution's."""
    layout = Layout(problem, Model(integer=False))
    _existing(layout)
    _rollouts(layout)
    for machine, count in enumerate(problem.machine_count.tolist()):
        if count:
            _copy(layout, machine, count)
    _pools(layout)
    _demand(layout, lost=lost)
    return layout


def fixed_price(problem: DenseInstance) -> int:
    """Price of the nodes that must stay, micro-USD per hour: no column stands for them."""
    return int(problem.node_price[problem.node_fixed].sum())


def columns_of(problem: DenseInstance, budget: int) -> int:
    """Return about how many columns `exact_layout` with this budget would have."""
    classes = (problem.machine_limit > 0).sum(axis=1) + 1
    copies = np.minimum(problem.machine_count, budget // np.maximum(problem.machine_price, 1))
    return int((classes * copies).sum() + (problem.node_limit > 0).sum() + len(problem.nodes))


def _existing(layout: Layout) -> None:
    problem, model = layout.problem, layout.model
    for e in range(len(problem.nodes)):
        keep = None if problem.node_fixed[e] else model.column(1)
        row: dict[int, int] = {}
        for c in np.flatnonzero(np.minimum(problem.node_limit[e], problem.total)).tolist():
            limit = int(min(problem.node_limit[e, c], problem.total[c]))
            row[c] = model.column(limit)
            if keep is not None:
                model.row([(row[c], 1), (keep, -limit)], upper=0)
        layout.keep.append(keep)
        layout.take.append(row)
        _capacity(layout, row, problem.node_room[e], holder=keep)


def _rollouts(layout: Layout) -> None:
    """Roll a workload out exactly when one of its nodes goes."""
    model = layout.model
    for rollout in layout.problem.node_updates:
        keeps = [keep for e in np.flatnonzero(rollout.any(axis=1)) if (keep := layout.keep[e]) is not None]
        layout.rolls.append(model.column(1) if keeps else None)
        if (roll := layout.rolls[-1]) is not None:
            for keep in keeps:
                model.row([(roll, 1), (keep, 1)], lower=1)
            model.row([(roll, 1), *((keep, 1.0) for keep in keeps)], upper=len(keeps))


def _returns(layout: Layout) -> None:
    """Count replaced pods that come back: as many as arrive on the node, and as many as were there."""
    problem, model = layout.problem, layout.model
    for e, row in enumerate(layout.take):
        for c, arriving in row.items():
            old = int(problem.node_old[e, c])
            updates = [
                (roll, -float(problem.node_updates[u, e, c]))
                for u, roll in enumerate(layout.rolls)
                if roll is not None and problem.node_updates[u, e, c]
            ]
            if old or updates:
                back = layout.back[e, c] = model.column(old - sum(amount for _, amount in updates))
                model.row([(back, 1), (arriving, -1)], upper=0)
                model.row([(back, 1), *updates], upper=old)


def _copies(layout: Layout, machine: int, count: int) -> None:
    previous: Copy | None = None
    for _ in range(count):
        copy = _copy(layout, machine, 1)
        if previous is not None:
            layout.model.row([(copy.used, 1), (previous.used, -1)], upper=0)
        previous = copy


def _copy(layout: Layout, machine: int, count: int) -> Copy:
    problem, model = layout.problem, layout.model
    copy = Copy(machine, model.column(count), {})
    for c in np.flatnonzero(np.minimum(problem.machine_limit[machine], problem.total)).tolist():
        limit = int(min(problem.machine_limit[machine, c], problem.total[c]))
        copy.pods[c] = model.column(min(limit * count, int(problem.total[c])))
        model.row([(copy.pods[c], 1), (copy.used, -limit)], upper=0)
    _capacity(layout, copy.pods, problem.machine_room[machine], holder=copy.used)
    layout.copies.append(copy)
    return copy


def _pools(layout: Layout) -> None:
    """Limit machines that share what the provider has."""
    for pool in layout.problem.pools:
        each = pool.weights
        used = [(copy.used, each[copy.machine]) for copy in layout.copies if copy.machine in each]
        layout.model.row(used, upper=pool.limit)


def _capacity(layout: Layout, pods: dict[int, int], room: Ints, *, holder: int | None) -> None:
    """Keep requests within the room, in steps of their greatest common divisor: a part of a step is no room."""
    requests = layout.problem.requests
    for r in range(requests.shape[1]):
        needs = {c: int(requests[c, r]) for c in pods if requests[c, r]}
        if not needs:
            continue
        step = gcd(*(int(need) for need in requests[:, r]))
        space = max(0, int(room[r])) // step
        scale = float(space) if space > LARGE else 1.0
        entries = [(pods[c], need / step / scale) for c, need in needs.items()]
        if holder is None:
            layout.model.row(entries, upper=space / scale)
        else:
            layout.model.row([*entries, (holder, -space / scale)], upper=0)


def _demand(layout: Layout, *, lost: int) -> None:
    """Give each pod a place that needs one: those that do in any case, and those of deleted nodes."""
    problem, model = layout.problem, layout.model
    sizes = problem.node_updates.sum(axis=1)
    homes: list[list[tuple[int, float]]] = [[] for _ in problem.requests]
    for row in [*layout.take, *(copy.pods for copy in layout.copies)]:
        for c, column in row.items():
            homes[c].append((column, 1))
    for c, entries in enumerate(homes):
        if lost and problem.pending[c]:
            layout.lost[c] = model.column(float(problem.pending[c]))
            entries.append((layout.lost[c], 1))
        kept = [
            (keep, float(problem.node_stays[e, c]))
            for e, keep in enumerate(layout.keep)
            if keep is not None and problem.node_stays[e, c]
        ]
        rolls = [(roll, -float(sizes[u, c])) for u, roll in enumerate(layout.rolls) if roll is not None and sizes[u, c]]
        needed = float(problem.demand[c]) + sum(stays for _, stays in kept)
        if entries or needed:
            model.row([*entries, *kept, *rolls], lower=needed, upper=needed)
    if layout.lost:
        model.row([(column, 1) for column in layout.lost.values()], upper=lost)
