"""One step of the search: take some nodes with all that they hold, and find a cheaper set of nodes for the same pods.

Price of nodes and price of moves count together. Steps over different nodes touch nothing in common: they can run at
the same time, on other machines too, and be carried out in any order.

Which nodes the next steps of the search look at: mostly those that cost more than their pods are worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.columns.generation import Column, ColumnGeneration, Place, Task, cost_of, exactly
from kinema_optimizer.errors import LinearProgramError
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED, Instance, among
from kinema_optimizer.problem.node_types import fits_in
from kinema_optimizer.problem.solution import NOTHING, Incumbent, NodeLoad
from kinema_optimizer.solvers.lp import Floats

_ROUNDS = 20
_WIDTH = 32
_EVERY = 3
BETTER = 0.5
"""Micro-USD per hour by which an exchange has to be cheaper."""


@dataclass(frozen=True, eq=False)
class Guide:
    """What all steps of a search share."""

    problem: Instance
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
    changes: tuple[NodeLoad, ...]
    """What comes to each of them, and what leaves it."""
    deleted: tuple[int, ...]
    """Existing nodes that are not: they may be kept again."""
    boots: tuple[NodeLoad, ...]
    allowance: Mapping[int, int]
    """How many more of a machine may be booted than the step has; machines without limit are left out."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """What replaces the nodes of a step."""

    kept: Mapping[int, NodeLoad]
    """Existing nodes that are kept, with what changes there; the others of the step are deleted."""
    boots: tuple[NodeLoad, ...]


def generated(view: View) -> tuple[Floats, list[Column] | None]:
    """What pods are worth by column generation, and nodes for the pods of a step; None where no choice covers them."""
    generation = ColumnGeneration(view.task, width=_WIDTH, every=_EVERY)
    generation.add(view.current())
    generation.add(view.undisturbed())
    try:
        generation.improve(_ROUNDS)
        prices = generation.prices()
        chosen, *_ = generation.dive()
    except LinearProgramError:  # numbers too close to each other for HiGHS
        return view.task.guess, None
    whole = None if chosen is None else exactly(view.task, chosen)
    return prices, None if whole is None else [view.cheapest(column) for column in whole]


def saving_of(guide: Guide, step: Step, exchange: Exchange) -> float:
    """Return by how much the exchange costs less than the step, micro-USD per hour, moves at their price."""
    before = _price(guide, step.kept, (*step.changes, *step.boots))
    return before - _price(guide, tuple(exchange.kept), (*exchange.kept.values(), *exchange.boots))


def _price(guide: Guide, kept: Sequence[int], fillings: Sequence[NodeLoad]) -> float:
    """Return the price of the nodes kept and booted, and of the moves to them."""
    problem = guide.problem
    booted = [one.machine for one in fillings if one.machine >= 0]
    nodes = problem.node_price[list(kept)].sum() + problem.machine_price[booted].sum()
    return float(nodes + sum(np.maximum(one.counts, 0) @ guide.move_price[one.classes] for one in fillings))


def carried_out(state: Incumbent, step: Step, exchange: Exchange) -> Incumbent:
    """The state with the nodes of a step exchanged."""
    after = state.copy()
    for e in (*step.kept, *step.deleted):
        after.keep[e] = e in exchange.kept
        after.changes.pop(e, None)
    for e, filling in exchange.kept.items():
        if filling.classes.size:
            after.changes[e] = filling
    gone = Counter(id(one) for one in step.boots)  # nodes may share one filling
    after.boots = []
    for one in state.boots:
        if gone[id(one)]:
            gone[id(one)] -= 1
        else:
            after.boots.append(one)
    after.boots += exchange.boots
    return after


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
        own = [place.own for place in self.task.places]
        found = [Column(i, own[i] + self._counts(one)) for i, one in enumerate(self.step.changes)]
        first = len(self.existing)
        return found + [Column(first + self.machines.index(one.machine), self._counts(one)) for one in self.step.boots]

    def undisturbed(self) -> list[Column]:
        """Every existing node with its own pods alone, as far as they are among those of the step."""
        found = [(i, np.minimum(place.own, self.task.demand)) for i, place in enumerate(self.task.places)]
        return [Column(i, own) for i, own in found if own.any()]

    def _counts(self, one: NodeLoad) -> Ints:
        counts = np.zeros(len(self.mine), dtype=np.int64)
        known = np.isin(one.classes, self.mine)  # classes that the node gave up wholly may be on none of the nodes
        counts[np.searchsorted(self.mine, one.classes[known])] = one.counts[known]
        return counts

    def cost(self, columns: Sequence[Column]) -> float:
        """Price of the nodes and of the moves to them; existing nodes that are not among them are deleted."""
        return sum(cost_of(self.task, one) for one in columns)

    def cheapest(self, column: Column) -> Column:
        """The column on the cheapest machine that holds it, if it is on one."""
        if column.place < len(self.existing) or not column.counts.any():
            return column
        load = column.counts @ self.task.requests
        first = len(self.existing)
        price = self.task.places[column.place].price
        best = column
        for i in range(first, len(self.task.places)):
            place = self.task.places[i]
            free = place.price < price and self.machines[i - first] not in self.step.allowance
            if free and (load <= place.room).all() and (column.counts <= place.most).all():
                best, price = Column(i, column.counts), place.price
        return best

    def exchange(self, chosen: list[Column]) -> Exchange:
        """The columns in terms of nodes and classes."""
        fixed = self.guide.problem.node_fixed
        nobody = np.zeros(len(self.mine), dtype=np.int64)  # a fixed node without a column gives up whom it may
        kept = {e: self._change(e, Column(i, nobody)) for i, e in enumerate(self.existing) if fixed[e]}
        boots = []
        for column in chosen:
            used = np.flatnonzero(column.counts)
            if column.place < len(self.existing):
                e = self.existing[column.place]
                kept[e] = self._change(e, column)
            elif len(used):
                machine = self.machines[column.place - len(self.existing)]
                boots.append(NodeLoad(machine, self.mine[used], column.counts[used]))
        return Exchange(kept, tuple(boots))

    def _change(self, e: int, column: Column) -> NodeLoad:
        """What a column changes on an existing node; its pods of classes that the task does not have are elsewhere."""
        problem = self.guide.problem
        counts = np.zeros(len(problem.pending), dtype=np.int64)
        counts[self.mine] = column.counts
        if problem.node_releases[e]:
            row = _staying(problem, e)
            classes = problem.stays.classes[row]
            counts[classes] -= problem.stays.counts[row] * problem.releasable[classes]
        used = np.flatnonzero(counts)
        return NodeLoad(-1, used, counts[used]) if len(used) else NOTHING


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
            own=nothing,
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
        existing=len(existing),
    )
    return View(guide, step, task, mine, existing, machines)


def _pool(problem: Instance, step: Step) -> Ints:
    """(C,): pods of the step."""
    pool = np.zeros(len(problem.pending), dtype=np.int64)
    for one in (*step.changes, *step.boots):
        pool[one.classes] += one.counts
    for e in step.kept:
        row = _staying(problem, e)
        classes = problem.stays.classes[row]
        loose = problem.releasable[classes] & problem.node_releases[e] if problem.node_fixed[e] else True
        pool[classes] += problem.stays.counts[row] * loose
    return pool


def _fills(problem: Instance, e: int, pool: Ints) -> bool:
    """Whether a deleted node can be kept with pods of the step: those that it cannot give up are among them."""
    row = _staying(problem, e)
    classes = problem.stays.classes[row]
    bound = problem.stays.counts[row] * ~(problem.releasable[classes] & problem.node_releases[e])
    return bool((bound <= pool[classes]).all())


def _staying(problem: Instance, e: int) -> slice:
    return slice(int(problem.stays.start[e]), int(problem.stays.start[e + 1]))


def _existing(guide: Guide, e: int, mine: Ints, enemies: Mapping[int, tuple[int, ...]]) -> Place:
    """An existing node: its pods are its base where they have to stay, unless the node stays in any case."""
    problem = guide.problem
    row = _staying(problem, e)
    fixed, classes = bool(problem.node_fixed[e]), problem.stays.classes[row]
    here = np.zeros(len(problem.pending), dtype=np.int64)
    here[classes] = problem.stays.counts[row]
    own = here * problem.releasable if problem.node_releases[e] else np.zeros_like(here)
    room = np.maximum(problem.node_room[e], 0) + own[classes] @ problem.requests[classes]
    most = fits_in(problem, room[None], problem.node_row[[e]], mine)[0]
    most = np.minimum(most, np.maximum(problem.cap[mine] - here[mine], 0))
    for c in classes[own[classes] < here[classes]].tolist():
        most[np.isin(mine, guide.enemies.get(c, ()))] = 0
    return Place(
        price=0.0 if fixed else float(problem.node_price[e]),
        room=room,
        most=most,
        base=np.zeros_like(own[mine]) if fixed else (here - own)[mine],
        own=own[mine],
        limit=1,
        enemies=enemies,
    )


_SPREAD: Final = (0.02, 0.06, 0.2, 1.0)
"""How far down the ranks of waste the steps of a round look, as parts of all nodes."""


def picks(guide: Guide, state: Incumbent, *, seed: tuple[int, ...], steps: int, nodes: int, classes: int) -> list[Step]:
    """Disjoint steps over the state's nodes.

    Each node comes with a chance that falls with its rank by waste, price less worth of its pods; the same seed gives
    the same steps. A step has so many `nodes` at most, and no further one joins it
    once it has so many `classes` of pods.
    """
    draw = np.random.default_rng(seed)
    kept, gone = np.flatnonzero(state.keep), np.flatnonzero(~state.keep)
    total = len(kept) + len(state.boots)
    rank = np.empty(total)
    rank[np.argsort(-_waste(guide, state), kind="stable")] = np.arange(total)
    extra = draw.permutation(gone)
    allowance = _allowance(guide, state, steps)
    free = np.ones(total, dtype=bool)
    found = []
    for i in range(steps):
        scale = max(4.0 * nodes, _SPREAD[i % len(_SPREAD)] * total)
        # Gumbel noise: drawing without replacement with odds that fall exponentially with the rank.
        keys = np.where(free, draw.gumbel(size=total) - rank / scale, -np.inf)
        first = np.argsort(-keys, kind="stable")[: min(nodes, int(free.sum()))]
        mine = _joining(guide, state, kept, first, classes)
        free[mine] = False
        live = kept[mine[mine < len(kept)]].tolist()
        if len(mine):
            boots = tuple(state.boots[b] for b in (mine[mine >= len(kept)] - len(kept)).tolist())
            changes = tuple(state.changes.get(e, NOTHING) for e in live)
            back = extra[i::steps]
            if guide.move_price.any():
                back = back[np.argsort(-_at_home(guide, (*changes, *boots))[back], kind="stable")]
            found.append(
                Step(
                    kept=tuple(live),
                    changes=changes,
                    deleted=tuple(sorted(back[: max(4, len(mine) // 3)].tolist())),
                    boots=boots,
                    allowance=allowance,
                )
            )
    return found


def _at_home(guide: Guide, fillings: tuple[NodeLoad, ...]) -> NDArray[np.float64]:
    """(E,): share of a node's pods that the newcomers of a step could be again."""
    problem = guide.problem
    new = np.zeros(len(problem.pending), dtype=np.int64)
    for one in fillings:
        new[one.classes] += np.maximum(one.counts, 0)
    stays = problem.stays
    back = np.bincount(
        stays.node_of, weights=np.minimum(stays.counts, new[stays.classes]), minlength=len(problem.nodes)
    )
    pods = np.bincount(stays.node_of, weights=stays.counts, minlength=len(problem.nodes))
    return back / np.maximum(pods, 1)


def _joining(guide: Guide, state: Incumbent, kept: Ints, order: Ints, most: int) -> Ints:
    """The first nodes of `order` that together have no more classes than a step can handle; ascending."""
    problem = guide.problem
    classes: set[int] = set()
    chosen = []
    for node in order.tolist():
        if node < len(kept):
            e = int(kept[node])
            classes.update(problem.stays.classes[problem.stays.start[e] : problem.stays.start[e + 1]].tolist())
            classes.update(state.changes.get(e, NOTHING).classes.tolist())
        else:
            classes.update(state.boots[node - len(kept)].classes.tolist())
        chosen.append(node)
        if len(chosen) >= 4 and len(classes) >= most:
            break
    return np.sort(np.array(chosen, dtype=np.int64))


def _waste(guide: Guide, state: Incumbent) -> NDArray[np.float64]:
    """(kept + boots,): price of each node less what its pods are worth."""
    problem = guide.problem
    staying = np.bincount(
        problem.stays.node_of,
        weights=problem.stays.counts * guide.pod_price[problem.stays.classes],
        minlength=len(problem.nodes),
    )
    new = np.zeros(len(problem.nodes))
    for e, one in state.changes.items():
        new[e] = one.counts @ guide.pod_price[one.classes]
    kept = np.flatnonzero(state.keep)
    live = problem.node_price[kept] - staying[kept] - new[kept]
    booted = [
        float(problem.machine_price[one.machine]) - float(one.counts @ guide.pod_price[one.classes])
        for one in state.boots
    ]
    return np.concatenate([live, np.array(booted)])


def _allowance(guide: Guide, state: Incumbent, steps: int) -> dict[int, int]:
    """How many more of each limited machine a step may boot, so that all steps together stay within the limits."""
    problem = guide.problem
    used = np.bincount([one.machine for one in state.boots], minlength=len(problem.machines))
    left = {
        m: int(problem.machine_available[m] - used[m]) // steps
        for m in np.flatnonzero(problem.machine_available < UNLIMITED).tolist()
    }
    for members, limit in problem.pools:
        share = (limit - int(used[list(members)].sum())) // (steps * len(members))
        for m in members:
            left[m] = min(left.get(m, share), share)
    return left
