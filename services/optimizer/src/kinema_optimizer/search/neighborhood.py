"""Neighborhoods of the search: some nodes with all that they hold, and a cheaper set of nodes for the same pods.

Prices of nodes and of moves count together. Neighborhoods of one round have no node in common: they are improved at the
same time, on other machines too, and applied in any order. Mostly nodes are chosen that cost more than their pods are
worth. A neighborhood is improved by column generation, where its pods are alike enough, and by ruin and recreate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.columns.generation import Bin, Column, ColumnGeneration, Subproblem, trim_overcover
from kinema_optimizer.errors import LinearProgramError
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED, Instance, among
from kinema_optimizer.problem.node_types import fits_in
from kinema_optimizer.problem.solution import NOTHING, Incumbent, NodeLoad
from kinema_optimizer.search.ruin_recreate import LEAST_CONCENTRATION, LEAST_SAVING, ruin_and_recreate
from kinema_optimizer.solvers.lp import Floats

_ROUNDS = 20
_WIDTH = 32
_PRICE_ALL_EVERY = 3
MOST_CLASSES: Final = 100
"""Classes of a neighborhood up to which column generation is worth its time."""
_REFILLED_NODES: Final = 2400
"""Nodes that all tries of a neighborhood together fill again."""
_TRIES_AFTER_COLUMNS: Final = 80
"""Most tries after column generation: its losses are soon won back or not at all."""


@dataclass(frozen=True, eq=False)
class SearchContext:
    """Context that all neighborhoods of a search share."""

    problem: Instance
    pod_price: Floats
    """(C,) micro-USD per hour, by the relaxation."""
    move_price: Floats
    """(C,) micro-USD per hour for a pod that changes its node."""
    machines: tuple[int, ...]
    """Machines that a neighborhood may buy besides those that it has, ascending."""
    machine_fits: Ints
    """(M, C) most pods of each class on a new machine."""
    enemies: Mapping[int, tuple[int, ...]]
    """Classes that may not share a node, by class."""

    @cached_property
    def staying(self) -> Floats:
        """(E,) micro-USD per hour that the pods of each existing node are worth."""
        stays = self.problem.stays
        worth = stays.counts * self.pod_price[stays.classes]
        return np.bincount(stays.node_of, weights=worth, minlength=len(self.problem.nodes)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """Some nodes and what they hold."""

    kept: tuple[int, ...]
    """Existing nodes that are kept."""
    changes: tuple[NodeLoad, ...]
    """Pods that come to each of them or leave it."""
    deleted: tuple[int, ...]
    """Existing nodes that are not: they may be kept again."""
    boots: tuple[NodeLoad, ...]
    allowance: Mapping[int, int]
    """Machines that may be booted beyond those of the neighborhood; those without limit are left out."""


@dataclass(frozen=True, eq=False)
class Replacement:
    """Replacement of the nodes of a neighborhood."""

    kept: Mapping[int, NodeLoad]
    """Existing nodes that are kept, with what changes there; the others of the neighborhood are deleted."""
    boots: tuple[NodeLoad, ...]


def generate_columns(local: LocalProblem) -> tuple[Floats, list[Column] | None]:
    """Return prices of the pods by column generation, and nodes that hold them; None where no choice covers all."""
    generation = ColumnGeneration(local.subproblem, width=_WIDTH, every=_PRICE_ALL_EVERY)
    generation.add(local.current_columns())
    generation.add(local.own_columns())
    try:
        generation.improve(_ROUNDS)
        prices = generation.prices()
        chosen, *_ = generation.dive()
    except LinearProgramError:  # numbers too close to each other for HiGHS
        return local.subproblem.guess, None
    whole = None if chosen is None else trim_overcover(local.subproblem, chosen)
    return prices, None if whole is None else [local.cheapest(column) for column in whole]


def saving(context: SearchContext, neighborhood: Neighborhood, replacement: Replacement) -> float:
    """Return by how much the replacement costs less than the neighborhood, micro-USD per hour, moves at their price."""
    before = _price(context, neighborhood.kept, (*neighborhood.changes, *neighborhood.boots))
    return before - _price(context, tuple(replacement.kept), (*replacement.kept.values(), *replacement.boots))


def is_better(context: SearchContext, neighborhood: Neighborhood, replacement: Replacement) -> bool:
    """Return whether the replacement costs less than the neighborhood, or the same with its waste concentrated.

    Where moves have a price, they are not made for that: they may be limited.
    """
    saved = saving(context, neighborhood, replacement)
    if abs(saved) > LEAST_SAVING or context.move_price.any():
        return saved > LEAST_SAVING
    before = _concentration(context, neighborhood.kept, neighborhood.changes, neighborhood.boots)
    after = _concentration(context, tuple(replacement.kept), tuple(replacement.kept.values()), replacement.boots)
    return after - before > LEAST_CONCENTRATION


def _concentration(
    context: SearchContext, kept: Sequence[int], changes: Sequence[NodeLoad], boots: Sequence[NodeLoad]
) -> float:
    """Return the sum of waste, each weighted by its share of a node's price, without nodes that stay in any case."""
    problem = context.problem
    at = np.array(kept, dtype=np.int64)
    booted = np.array([one.machine for one in boots], dtype=np.int64)
    price = np.concatenate([problem.node_price[at] * ~problem.node_fixed[at], problem.machine_price[booted]])
    waste = np.maximum(_waste(context, at, changes, boots), 0.0)
    return float((waste**2 / np.maximum(price, 1))[price > 0].sum())


def _price(context: SearchContext, kept: Sequence[int], fillings: Sequence[NodeLoad]) -> float:
    """Return the price of the nodes kept and booted, and of the moves to them."""
    problem = context.problem
    booted = [one.machine for one in fillings if one.machine >= 0]
    nodes = problem.node_price[list(kept)].sum() + problem.machine_price[booted].sum()
    return float(nodes + sum(np.maximum(one.counts, 0) @ context.move_price[one.classes] for one in fillings))


def apply(state: Incumbent, neighborhood: Neighborhood, replacement: Replacement) -> Incumbent:
    """Return the state with the nodes of a neighborhood exchanged."""
    after = state.copy()
    for e in (*neighborhood.kept, *neighborhood.deleted):
        after.keep[e] = e in replacement.kept
        after.changes.pop(e, None)
    for e, filling in replacement.kept.items():
        if filling.classes.size:
            after.changes[e] = filling
    gone = Counter(id(one) for one in neighborhood.boots)  # nodes may share one filling
    after.boots = []
    for one in state.boots:
        if gone[id(one)]:
            gone[id(one)] -= 1
        else:
            after.boots.append(one)
    after.boots += replacement.boots
    return after


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """A neighborhood as a task: its classes, and its places: existing nodes first, then machines."""

    context: SearchContext
    neighborhood: Neighborhood
    subproblem: Subproblem
    mine: Ints
    """Classes of the task."""
    existing: tuple[int, ...]
    machines: tuple[int, ...]

    def current_columns(self) -> list[Column]:
        """Return the nodes as they are."""
        own = [place.own for place in self.subproblem.bins]
        found = [Column(i, own[i] + self._counts(one)) for i, one in enumerate(self.neighborhood.changes)]
        first = len(self.existing)
        return found + [
            Column(first + self.machines.index(one.machine), self._counts(one)) for one in self.neighborhood.boots
        ]

    def own_columns(self) -> list[Column]:
        """Every existing node with its own pods alone, as far as they are among those of the neighborhood."""
        found = [(i, np.minimum(place.own, self.subproblem.demand)) for i, place in enumerate(self.subproblem.bins)]
        return [Column(i, own) for i, own in found if own.any()]

    def _counts(self, one: NodeLoad) -> Ints:
        counts = np.zeros(len(self.mine), dtype=np.int64)
        known = np.isin(one.classes, self.mine)  # classes that the node gave up wholly may be on none of the nodes
        counts[np.searchsorted(self.mine, one.classes[known])] = one.counts[known]
        return counts

    def cheapest(self, column: Column) -> Column:
        """Return the column on the cheapest machine that holds it, if it is on one."""
        if column.bin < len(self.existing) or not column.counts.any():
            return column
        load = column.counts @ self.subproblem.requests
        first = len(self.existing)
        price = self.subproblem.bins[column.bin].price
        best = column
        for i in range(first, len(self.subproblem.bins)):
            place = self.subproblem.bins[i]
            free = place.price < price and self.machines[i - first] not in self.neighborhood.allowance
            if free and (load <= place.room).all() and (column.counts <= place.most).all():
                best, price = Column(i, column.counts), place.price
        return best

    def replacement(self, chosen: list[Column]) -> Replacement:
        """Return the columns in terms of nodes and classes."""
        fixed = self.context.problem.node_fixed
        none = np.zeros(len(self.mine), dtype=np.int64)  # a fixed node without a column releases all pods that it may
        kept = {e: self._change(e, Column(i, none)) for i, e in enumerate(self.existing) if fixed[e]}
        boots = []
        for column in chosen:
            used = np.flatnonzero(column.counts)
            if column.bin < len(self.existing):
                e = self.existing[column.bin]
                kept[e] = self._change(e, column)
            elif len(used):
                machine = self.machines[column.bin - len(self.existing)]
                boots.append(NodeLoad(machine, self.mine[used], column.counts[used]))
        return Replacement(kept, tuple(boots))

    def _change(self, e: int, column: Column) -> NodeLoad:
        """Return what a column changes on an existing node, of the classes that the task has."""
        problem = self.context.problem
        counts = np.zeros(len(problem.pending), dtype=np.int64)
        counts[self.mine] = column.counts
        if problem.node_releases[e]:
            row = _row(problem, e)
            classes = problem.stays.classes[row]
            counts[classes] -= problem.stays.counts[row] * problem.releasable[classes]
        used = np.flatnonzero(counts)
        return NodeLoad(-1, used, counts[used]) if len(used) else NOTHING


def local_problem(context: SearchContext, neighborhood: Neighborhood) -> LocalProblem:
    """Return the neighborhood as a task."""
    problem = context.problem
    pool = _pods_of(problem, neighborhood)
    mine = np.flatnonzero(pool)
    enemies = among(context.enemies, mine)
    existing = (*neighborhood.kept, *(e for e in neighborhood.deleted if _can_be_kept(problem, e, pool)))
    machines = tuple(sorted({*context.machines, *(one.machine for one in neighborhood.boots)}))
    nothing = np.zeros(len(mine), dtype=np.int64)
    bins = [_existing_bin(context, e, mine, enemies) for e in existing]
    bins += [
        Bin(
            price=float(problem.machine_price[m]),
            room=np.maximum(problem.machine_room[m], 0),
            most=np.minimum(context.machine_fits[m, mine], pool[mine]),
            base=nothing,
            own=nothing,
            limit=neighborhood.allowance.get(m, UNLIMITED) + sum(one.machine == m for one in neighborhood.boots),
            enemies=enemies,
        )
        for m in machines
    ]
    subproblem = Subproblem(
        requests=problem.requests[mine],
        demand=pool[mine],
        move_price=context.move_price[mine],
        bins=tuple(bins),
        pools=(),
        guess=context.pod_price[mine] + context.move_price[mine],
        existing=len(existing),
    )
    return LocalProblem(context, neighborhood, subproblem, mine, existing, machines)


def _pods_of(problem: Instance, neighborhood: Neighborhood) -> Ints:
    """(C,): pods of the neighborhood."""
    pool = np.zeros(len(problem.pending), dtype=np.int64)
    for one in (*neighborhood.changes, *neighborhood.boots):
        pool[one.classes] += one.counts
    for e in neighborhood.kept:
        row = _row(problem, e)
        classes = problem.stays.classes[row]
        loose = problem.releasable[classes] & problem.node_releases[e] if problem.node_fixed[e] else True
        pool[classes] += problem.stays.counts[row] * loose
    return pool


def _can_be_kept(problem: Instance, e: int, pool: Ints) -> bool:
    """Return whether the neighborhood has the pods that a deleted node cannot give up when it is kept."""
    row = _row(problem, e)
    classes = problem.stays.classes[row]
    bound = problem.stays.counts[row] * ~(problem.releasable[classes] & problem.node_releases[e])
    return bool((bound <= pool[classes]).all())


def _row(problem: Instance, e: int) -> slice:
    return slice(int(problem.stays.start[e]), int(problem.stays.start[e + 1]))


def _existing_bin(context: SearchContext, e: int, mine: Ints, enemies: Mapping[int, tuple[int, ...]]) -> Bin:
    """Return an existing node: its pods are its base where they have to stay, unless the node stays in any case."""
    problem = context.problem
    row = _row(problem, e)
    fixed, classes = bool(problem.node_fixed[e]), problem.stays.classes[row]
    here = np.zeros(len(problem.pending), dtype=np.int64)
    here[classes] = problem.stays.counts[row]
    own = here * problem.releasable if problem.node_releases[e] else np.zeros_like(here)
    room = np.maximum(problem.node_room[e], 0) + own[classes] @ problem.requests[classes]
    most = fits_in(problem, room[None], problem.node_row[[e]], mine)[0]
    most = np.minimum(most, np.maximum(problem.cap[mine] - here[mine], 0))
    for c in classes[own[classes] < here[classes]].tolist():
        most[np.isin(mine, context.enemies.get(c, ()))] = 0
    return Bin(
        price=0.0 if fixed else float(problem.node_price[e]),
        room=room,
        most=most,
        base=np.zeros_like(own[mine]) if fixed else (here - own)[mine],
        own=own[mine],
        limit=1,
        enemies=enemies,
    )


_SPREADS: Final = (0.02, 0.06, 0.2, 1.0)
"""Shares of all nodes, by rank of waste, that the neighborhoods of a round look at."""


def select_neighborhoods(
    context: SearchContext, state: Incumbent, *, seed: tuple[int, ...], neighborhoods: int, nodes: int, classes: int
) -> list[Neighborhood]:
    """Disjoint neighborhoods over the state's nodes.

    Each node comes with a chance that falls with its rank by waste, price less worth of its pods; the same seed gives
    the same neighborhoods. A neighborhood has so many `nodes` at most, and no further one joins it
    once it has so many `classes` of pods.
    """
    draw = np.random.default_rng(seed)
    kept, gone = np.flatnonzero(state.keep), np.flatnonzero(~state.keep)
    total = len(kept) + len(state.boots)
    coming = [state.changes.get(e, NOTHING) for e in kept.tolist()]
    rank = np.empty(total)
    rank[np.argsort(-_waste(context, kept, coming, state.boots), kind="stable")] = np.arange(total)
    extra = draw.permutation(gone)
    allowance = _allowance(context, state, neighborhoods)
    free = np.ones(total, dtype=bool)
    found = []
    for i in range(neighborhoods):
        scale = max(4.0 * nodes, _SPREADS[i % len(_SPREADS)] * total)
        # Gumbel noise: drawing without replacement with odds that fall exponentially with the rank.
        keys = np.where(free, draw.gumbel(size=total) - rank / scale, -np.inf)
        first = np.argsort(-keys, kind="stable")[: min(nodes, int(free.sum()))]
        mine = _limit_classes(context, state, kept, first, classes)
        free[mine] = False
        live = kept[mine[mine < len(kept)]].tolist()
        if len(mine):
            boots = tuple(state.boots[b] for b in (mine[mine >= len(kept)] - len(kept)).tolist())
            changes = tuple(state.changes.get(e, NOTHING) for e in live)
            back = extra[i::neighborhoods]
            if context.move_price.any():
                back = back[np.argsort(-_share_at_home(context, (*changes, *boots))[back], kind="stable")]
            found.append(
                Neighborhood(
                    kept=tuple(live),
                    changes=changes,
                    deleted=tuple(sorted(back[: max(4, len(mine) // 3)].tolist())),
                    boots=boots,
                    allowance=allowance,
                )
            )
    return found


def _share_at_home(context: SearchContext, fillings: tuple[NodeLoad, ...]) -> NDArray[np.float64]:
    """(E,): share of a node's pods that the newcomers of a neighborhood could be again."""
    problem = context.problem
    new = np.zeros(len(problem.pending), dtype=np.int64)
    for one in fillings:
        new[one.classes] += np.maximum(one.counts, 0)
    stays = problem.stays
    back = np.bincount(
        stays.node_of, weights=np.minimum(stays.counts, new[stays.classes]), minlength=len(problem.nodes)
    )
    pods = np.bincount(stays.node_of, weights=stays.counts, minlength=len(problem.nodes))
    return back / np.maximum(pods, 1)


def _limit_classes(context: SearchContext, state: Incumbent, kept: Ints, order: Ints, most: int) -> Ints:
    """Return the first nodes of `order`, ascending, that together have no more classes than a neighborhood handles."""
    problem = context.problem
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


def _waste(
    context: SearchContext, kept: Ints, changes: Sequence[NodeLoad], boots: Sequence[NodeLoad]
) -> NDArray[np.float64]:
    """(kept + boots,): price of each node less what its pods are worth."""
    problem, priced = context.problem, context.pod_price
    new = np.array([one.counts @ priced[one.classes] if one.classes.size else 0.0 for one in changes])
    live = problem.node_price[kept] - context.staying[kept] - new
    booted = [float(problem.machine_price[one.machine] - one.counts @ priced[one.classes]) for one in boots]
    return np.concatenate([live, np.array(booted)])


def _allowance(context: SearchContext, state: Incumbent, neighborhoods: int) -> dict[int, int]:
    """Return how many more of each limited machine one neighborhood may boot, so that all together keep the limits."""
    problem = context.problem
    used = np.bincount([one.machine for one in state.boots], minlength=len(problem.machines))
    left = {
        m: int(problem.machine_available[m] - used[m]) // neighborhoods
        for m in np.flatnonzero(problem.machine_available < UNLIMITED).tolist()
    }
    for pool in problem.pools:
        free = pool.limit - sum(int(used[m]) * each for m, each in pool.weights.items())
        share = free // (neighborhoods * len(pool.members))
        for m, each in pool.weights.items():
            left[m] = min(left.get(m, share // each), share // each)
    return left


@dataclass(frozen=True, eq=False)
class ImprovementTask:
    """A neighborhood to be improved. Context and task alone determine the result, whichever process computes it."""

    neighborhood: Neighborhood
    deep: bool
    """By column generation, where its pods are alike enough, or by quick tries."""
    seed: tuple[int, ...]


class TaskPool(Protocol):
    """Executor of the tasks of a round."""

    def improve(self, context: SearchContext, tasks: Sequence[ImprovementTask]) -> list[Replacement | None]:
        """Return a replacement for each task, in their order; None where none was found."""


class ThreadPool:
    """Threads of this process."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    def improve(self, context: SearchContext, tasks: Sequence[ImprovementTask]) -> list[Replacement | None]:
        """See `TaskPool`."""
        return list(self._pool.map(partial(improve, context), tasks))


def improve(context: SearchContext, task: ImprovementTask) -> Replacement | None:
    """Return a better replacement, by tries that begin with the columns where the task is deep; None without one.

    Column generation loses a percent or two where its columns are made whole; tries at its prices win a part of that
    back, also where nothing is saved yet.
    """
    local = local_problem(context, task.neighborhood)
    now = begun = local.current_columns()
    tries = max(1, _REFILLED_NODES // max(1, len(now)))
    subproblem = local.subproblem
    if task.deep and len(local.mine) <= 2 * MOST_CLASSES:
        prices, made = generate_columns(local)
        subproblem = replace(subproblem, guess=prices)
        begun, tries = made or now, min(tries, _TRIES_AFTER_COLUMNS)
    replacement = local.replacement(ruin_and_recreate(subproblem, begun, tries=tries, seed=task.seed))
    return replacement if is_better(context, task.neighborhood, replacement) else None
