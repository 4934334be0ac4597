"""Columns and rows of the class-aggregated model, the way from its values to a `DenseSolution`, and its `Result`."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinema_core.events import Stop
from kinema_optimizer.aggregated.problem import Boot, DenseProblem, DenseSolution, rolled_out
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.solvers.mip import Model

LARGE: Final = 10**6
"""Rows with greater coefficients are scaled to a right side of 1, where the tolerance is meant to apply."""


@dataclass
class Copy:
    """One numbered copy of a machine on sale (or, relaxed, all of them): its own column and its pods' by class."""

    machine: int
    used: int
    pods: dict[int, int]


@dataclass
class Layout:
    """Which column means what. Values are counts; `keep` and `used` are 0 or 1 unless relaxed."""

    problem: DenseProblem
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

    def start_of(self, solution: DenseSolution) -> NDArray[np.float64]:
        """The values that stand for a solution."""
        values = np.zeros(len(self.model.uppers))
        for e, column in enumerate(self.keep):
            if column is not None:
                values[column] = solution.keep[e]
            for c, taken in self.take[e].items():
                values[taken] = solution.newcomers[e][c]
        self._start_rolls(values, solution)
        for c, column in self.lost.items():
            values[column] = solution.unplaced[c]
        boots = list(solution.boots)
        for copy in self.copies:
            boot = next((one for one in boots if one.machine == copy.machine), None)
            if boot is not None:
                boots.remove(boot)
                values[copy.used] = 1
                for c, column in copy.pods.items():
                    values[column] = boot.counts[c]
        return values

    def _start_rolls(self, values: NDArray[np.float64], solution: DenseSolution) -> None:
        rolls = rolled_out(self.problem, np.array(solution.keep, dtype=bool))
        for column, flag in zip(self.rolls, rolls, strict=True):
            if column is not None:
                values[column] = flag
        old = self.problem.node_old + self.problem.rollouts[rolls].sum(axis=0)
        for (e, c), column in self.back.items():
            values[column] = min(solution.newcomers[e][c], int(old[e, c]))

    def solution_of(self, values: NDArray[np.float64]) -> DenseSolution:
        """The solution that integer values stand for."""
        whole = np.rint(values).astype(np.int64)
        classes = range(len(self.problem.requests))
        boots = [
            Boot(copy.machine, tuple(int(whole[copy.pods[c]]) if c in copy.pods else 0 for c in classes))
            for copy in self.copies
            if whole[copy.used]
            and any(whole[column] for column in copy.pods.values())  # nobody boots a node for nobody
        ]
        return DenseSolution(
            keep=tuple(column is None or bool(whole[column]) for column in self.keep),
            newcomers=tuple(tuple(int(whole[row[c]]) if c in row else 0 for c in classes) for row in self.take),
            boots=tuple(sorted(boots, key=lambda boot: (boot.machine, boot.counts))),
            unplaced=tuple(int(whole[self.lost[c]]) if c in self.lost else 0 for c in classes),
        )

    def shares_of(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(M,) machines and (M, C) pods on them that a relaxation's values stand for."""
        machines = np.zeros(len(self.problem.machines))
        pods = np.zeros(self.problem.machine_limit.shape)
        for copy in self.copies:
            machines[copy.machine] = values[copy.used]
            for c, column in copy.pods.items():
                pods[copy.machine, c] = values[column]
        return machines, pods

    def price(self, unit: float = 1.0) -> dict[int, float]:
        """Column → price in `unit`s of micro-USD, of all nodes that have a column."""
        found = {
            column: float(self.problem.node_price[e]) / unit for e, column in enumerate(self.keep) if column is not None
        }
        found |= {copy.used: float(self.problem.machine_price[copy.machine]) / unit for copy in self.copies}
        return found

    def price_and_size(self) -> dict[int, float]:
        """Column → its part of equation 5.1, in micro-USD."""
        found = self.price()
        for e, column in enumerate(self.keep):
            if column is not None:
                found[column] += float(self.problem.node_size[e]) / 1000
        for copy in self.copies:
            found[copy.used] += float(self.problem.machine_size[copy.machine]) / 1000
        return found

    def stayed(self) -> dict[int, float]:
        """Column → pods that do not move because of it; negative: that do."""
        found = {
            column: float(self.problem.node_stays[e].sum()) for e, column in enumerate(self.keep) if column is not None
        }
        sizes = self.problem.rollouts.sum(axis=(1, 2))
        found |= {column: -float(sizes[u]) for u, column in enumerate(self.rolls) if column is not None}
        return found | dict.fromkeys(self.back.values(), 1.0)


def exact_layout(problem: DenseProblem, *, budget: int | None, lost: int) -> Layout:
    """The integer model; with a `budget` (micro-USD per hour) nothing that would cost more.

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


def relaxed_layout(problem: DenseProblem, *, lost: int) -> Layout:
    """Shares instead of counts, and all copies of a machine as one: its least cost bounds every solution's."""
    layout = Layout(problem, Model(integer=False))
    _existing(layout)
    _rollouts(layout)
    for machine, count in enumerate(problem.machine_count.tolist()):
        if count:
            _copy(layout, machine, count)
    _pools(layout)
    _demand(layout, lost=lost)
    return layout


def fixed_price(problem: DenseProblem) -> int:
    """Price of the nodes that must stay, micro-USD per hour: no column stands for them."""
    return int(problem.node_price[problem.node_fixed].sum())


def columns_of(problem: DenseProblem, budget: int) -> int:
    """How many columns `exact_layout` with this budget would have, nearly."""
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
    """A workload is rolled out exactly when one of its nodes goes."""
    model = layout.model
    for rollout in layout.problem.rollouts:
        keeps = [keep for e in np.flatnonzero(rollout.any(axis=1)) if (keep := layout.keep[e]) is not None]
        layout.rolls.append(model.column(1) if keeps else None)
        if (roll := layout.rolls[-1]) is not None:
            for keep in keeps:
                model.row([(roll, 1), (keep, 1)], lower=1)
            model.row([(roll, 1), *((keep, 1.0) for keep in keeps)], upper=len(keeps))


def _returns(layout: Layout) -> None:
    """Replaced pods that come back: as many as arrive on the node, and as many as were there."""
    problem, model = layout.problem, layout.model
    for e, row in enumerate(layout.take):
        for c, arriving in row.items():
            old = int(problem.node_old[e, c])
            updates = [
                (roll, -float(problem.rollouts[u, e, c]))
                for u, roll in enumerate(layout.rolls)
                if roll is not None and problem.rollouts[u, e, c]
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
    """Machines that share what the provider has."""
    for members, limit in layout.problem.pools:
        layout.model.row([(copy.used, 1) for copy in layout.copies if copy.machine in members], upper=limit)


def _capacity(layout: Layout, pods: dict[int, int], room: Ints, *, holder: int | None) -> None:
    """Requests within the room, in steps of the greatest common divisor: what does not fill a step is no room."""
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
    """Every pod that needs a place has one: those that do in any case, and those of deleted nodes."""
    problem, model = layout.problem, layout.model
    sizes = problem.rollouts.sum(axis=1)
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


@dataclass(frozen=True)
class Result:
    """A solution, what no solution can cost less than, and how both were found.

    `lower_bound` (micro-USD per hour) is HiGHS' dual bound made safe: lowered by a tolerance, then raised to the next
    multiple of the price unit, as every cost is one. It rests on floating-point arithmetic inside HiGHS and is no
    exact certificate. `solution` is checked in integers.
    """

    solution: DenseSolution
    least: int
    """Least cost found; the solution may cost 1/1000 more where that saves moves."""
    lower_bound: int
    stops: tuple[Stop, ...]
    method: str

    @property
    def proven(self) -> bool:
        """No plan costs less than the least cost found."""
        return self.lower_bound >= self.least
