"""One step of the search: take some nodes with all that they hold, and find a cheaper set of nodes for the same pods.

Price of nodes and price of moves count together. Steps over different nodes touch nothing in common: they can run at
the same time, on other machines too, and be carried out in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kinema_optimizer.adapters.columns import Column, ColumnGeneration, Place, Task, exactly
from kinema_optimizer.adapters.lp import Floats, LinearProgramError
from kinema_optimizer.logic.kinds import newly_fits
from kinema_optimizer.logic.packing import UNLIMITED, PackingProblem, among
from kinema_optimizer.logic.problem import Ints
from kinema_optimizer.logic.state import NOTHING, Filling

_ROUNDS = 30
_WIDTH = 32
BETTER = 0.5
"""Micro-USD per hour by which an exchange has to be cheaper."""


@dataclass(frozen=True, eq=False)
class Guide:
    """What all steps of a search share."""

    problem: PackingProblem
    pod_price: Floats
    """(C,) micro-USD per hour, by the relaxation."""
    move_price: Floats
    """(C,) micro-USD per hour for a pod that changes its node."""
    machines: tuple[int, ...]
    """Machines that a step may buy besides those that it has, ascending."""
    machine_fits: Ints
    """(M, C) most pods of each class on a new machine."""
    enemies: Mapping[int, tuple[int, ...]]
    """Classes that may not share a node, by class."""


@dataclass(frozen=True, eq=False)
class Step:
    """Some nodes and what they hold."""

    kept: tuple[int, ...]
    """Existing nodes that are kept."""
    newcomers: tuple[Filling, ...]
    """What each of them takes."""
    deleted: tuple[int, ...]
    """Existing nodes that are not: they may be kept again."""
    boots: tuple[Filling, ...]
    allowance: Mapping[int, int]
    """How many more of a machine may be booted than the step has; machines without limit are left out."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """What replaces the nodes of a step, and by how much it costs less."""

    kept: Mapping[int, Filling]
    """Existing nodes that are kept, with what they take; the others of the step are deleted."""
    boots: tuple[Filling, ...]
    saving: float
    """Micro-USD per hour, moves at their price."""


def improve(guide: Guide, step: Step) -> Exchange | None:
    """A cheaper exchange for the step, if one is found."""
    view = view_of(guide, step)
    generation = ColumnGeneration(view.task, width=_WIDTH)
    now = view.current()
    generation.add(now)
    before = sum(generation.cost_of(column) for column in now)
    try:
        generation.improve(_ROUNDS)
        chosen = generation.dive(1)
    except LinearProgramError:  # numbers too close to each other for HiGHS: the nodes stay as they are
        return None
    whole = None if chosen is None else exactly(view.task, chosen)
    if whole is None:
        return None
    better = [view.cheapest(column) for column in whole]
    saving = before - sum(generation.cost_of(column) for column in better)
    return view.exchange(better, saving) if saving > BETTER else None


@dataclass(frozen=True, eq=False)
class View:
    """A step as a task: its classes, and its places: existing nodes first, then machines."""

    guide: Guide
    step: Step
    task: Task
    mine: Ints
    """Classes of the task."""
    existing: tuple[int, ...]
    machines: tuple[int, ...]

    def current(self) -> list[Column]:
        """The nodes as they are."""
        found = [Column(i, self._counts(one)) for i, one in enumerate(self.step.newcomers)]
        first = len(self.existing)
        return found + [Column(first + self.machines.index(one.machine), self._counts(one)) for one in self.step.boots]

    def _counts(self, one: Filling) -> Ints:
        counts = np.zeros(len(self.mine), dtype=np.int64)
        counts[np.searchsorted(self.mine, one.classes)] = one.counts
        return counts

    def cost(self, columns: Sequence[Column]) -> float:
        """Price of the nodes and of the moves to them; existing nodes that are not among them are deleted."""
        places, moves = self.task.places, self.task.move_price
        return sum(places[one.place].price + float(one.newcomers @ moves) for one in columns)

    def cheapest(self, column: Column) -> Column:
        """The column on the cheapest machine that holds it, if it is on one."""
        if column.place < len(self.existing) or not column.newcomers.any():
            return column
        load = column.newcomers @ self.task.requests
        first = len(self.existing)
        price = self.task.places[column.place].price
        best = column
        for i in range(first, len(self.task.places)):
            place = self.task.places[i]
            free = place.price < price and self.machines[i - first] not in self.step.allowance
            if free and (load <= place.room).all() and (column.newcomers <= place.most).all():
                best, price = Column(i, column.newcomers), place.price
        return best

    def exchange(self, chosen: list[Column], saving: float) -> Exchange:
        """The columns in terms of nodes and classes."""
        fixed = self.guide.problem.node_fixed
        kept: dict[int, Filling] = {e: NOTHING for e in self.existing if fixed[e]}
        boots = []
        for column in chosen:
            used = np.flatnonzero(column.newcomers)
            classes, counts = self.mine[used], column.newcomers[used]
            if column.place < len(self.existing):
                e = self.existing[column.place]
                kept[e] = Filling(-1, classes, counts) if len(used) else NOTHING
            elif len(used):
                boots.append(Filling(self.machines[column.place - len(self.existing)], classes, counts))
        return Exchange(kept, tuple(boots), saving)


def view_of(guide: Guide, step: Step) -> View:
    """The step as a task."""
    problem = guide.problem
    pool = _pool(problem, step)
    mine = np.flatnonzero(pool)
    enemies = among(guide.enemies, mine)
    existing = (*step.kept, *(e for e in step.deleted if _fills(problem, e, pool)))
    machines = tuple(sorted({*guide.machines, *(one.machine for one in step.boots)}))
    nothing = np.zeros(len(mine), dtype=np.int64)
    places = [_existing(guide, e, mine, enemies) for e in existing]
    places += [
        Place(
            price=float(problem.machine_price[m]),
            room=np.maximum(problem.machine_room[m], 0),
            most=np.minimum(guide.machine_fits[m, mine], pool[mine]),
            base=nothing,
            limit=step.allowance.get(m, UNLIMITED) + sum(one.machine == m for one in step.boots),
            enemies=enemies,
        )
        for m in machines
    ]
    task = Task(
        requests=problem.requests[mine],
        demand=pool[mine],
        move_price=guide.move_price[mine],
        places=tuple(places),
        pools=(),
        guess=guide.pod_price[mine] + guide.move_price[mine],
    )
    return View(guide, step, task, mine, existing, machines)


def _pool(problem: PackingProblem, step: Step) -> Ints:
    """(C,): pods of the step."""
    pool = np.zeros(len(problem.pending), dtype=np.int64)
    for one in (*step.newcomers, *step.boots):
        pool[one.classes] += one.counts
    for e in step.kept:
        if not problem.node_fixed[e]:
            row = _staying(problem, e)
            pool[problem.stays.classes[row]] += problem.stays.counts[row]
    return pool


def classes_of(guide: Guide, step: Step) -> int:
    """How many classes the pods of a step are of."""
    return int(np.count_nonzero(_pool(guide.problem, step)))


def _fills(problem: PackingProblem, e: int, pool: Ints) -> bool:
    """Whether the pods of a deleted node can be taken from those of the step."""
    row = _staying(problem, e)
    return bool((problem.stays.counts[row] <= pool[problem.stays.classes[row]]).all())


def _staying(problem: PackingProblem, e: int) -> slice:
    return slice(int(problem.stays.start[e]), int(problem.stays.start[e + 1]))


def _existing(guide: Guide, e: int, mine: Ints, enemies: Mapping[int, tuple[int, ...]]) -> Place:
    """An existing node: pods that stay are its base, unless it stays in any case."""
    problem = guide.problem
    row = _staying(problem, e)
    base = np.zeros(len(mine), dtype=np.int64)
    fixed = bool(problem.node_fixed[e])
    if not fixed:
        base[np.searchsorted(mine, problem.stays.classes[row])] = problem.stays.counts[row]
    return Place(
        price=0.0 if fixed else float(problem.node_price[e]),
        room=np.maximum(problem.node_room[e], 0),
        most=newly_fits(problem, np.array([e]), mine, guide.enemies)[0],
        base=base,
        limit=1,
        enemies=enemies,
    )
