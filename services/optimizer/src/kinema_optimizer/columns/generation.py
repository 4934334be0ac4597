"""Column generation: the cheapest set of fillings for some places and some pods.

A column is one place with what it takes. The master program chooses columns in fractions so that every pod is covered;
its duals price the pods; for every place the best filling at these prices (`pricing`) is a new column if it is worth
more than it costs. When nothing is, or the rounds are used up, a dive makes the choice whole: columns that the
program uses fully are fixed, or the most used of the others, and the rest is priced and solved again.

Pods that stay on an existing node are part of its column, so that "keep it with its pods" and "delete it and place its
pods elsewhere" compete at the same prices. Pods of its own that it may give up enter its filling beside the newcomers:
they are worth their price there, newcomers that less the price of their move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from kinema_optimizer.columns.pricing import SubproblemArrays, price_bin, price_bins
from kinema_optimizer.problem.arrays import Ints, Pools
from kinema_optimizer.problem.instance import UNLIMITED
from kinema_optimizer.problem.node_types import NodeTypes
from kinema_optimizer.solvers.lp import INFINITY, Floats, LinearProgram, LpSolution
from kinema_optimizer.solvers.stopping import StopReason

_SMOOTHING = 0.6
"""Weight of the prices of the last round when pods are priced: damps the swings of an early master program."""
_LEAST_GAIN = 1e-7
"""Reduced cost, relative to the price of a place, below which a column enters."""
_WHOLE = 1e-6
_FIRST_ARTIFICIAL = 1.02
"""First cost of leaving out a pod, in guessed prices of that pod. Duals above it come from a master program that knows
too few columns; columns for such duals are useless."""
_LEAST_NEW_SHARE = 0.98
"""Part of a column's worth that has to be in pods which are not covered yet, for it to be fixed."""
_SMALL_SHARE = 1e-3
_DIVE_PRICINGS = 2
"""Times at most that a round of a dive prices all places for what is left."""


@dataclass(frozen=True, eq=False)
class Bin:
    """An existing node, or a machine on sale, that pods are put into. It has the subproblem's `n` classes."""

    price: float
    """Micro-USD per hour; 0 for a node that stays in any case."""
    room: Ints
    """(R,) for newcomers, and for what it may give up."""
    most: Ints
    """(n,) most newcomers of each class."""
    base: Ints
    """(n,) pods that are there if it is used: they count as placed."""
    own: Ints
    """(n,) pods that are there and may leave while it is used: those that stay have not moved."""
    limit: int
    """How many there are."""
    enemies: Mapping[int, tuple[int, ...]]
    """Class → classes that may not join it there."""


@dataclass(frozen=True, eq=False)
class Subproblem:
    """Pods to place, and places for them."""

    requests: Ints
    """(n, R)"""
    demand: Ints
    """(n,)"""
    move_price: Floats
    """(n,) micro-USD per hour for each pod of the class that comes newly to a place."""
    bins: tuple[Bin, ...]
    pools: Pools
    """Of places."""
    guess: Floats
    """(n,) prices of the pods to begin with."""
    existing: int = 0
    """How many of the places are existing nodes: these come first."""


def bins_of_types(
    types: NodeTypes, which: Iterable[int], pods: Ints, mine: Ints, enemies: Mapping[int, tuple[int, ...]]
) -> tuple[Bin, ...]:
    """Return an empty bin for each of these types, for pods (C,) of classes `mine`, the classes of the subproblem."""
    none = np.zeros(len(mine), dtype=np.int64)
    return tuple(
        Bin(
            price=float(types.price[k]),
            room=types.room[k],
            most=np.minimum(types.fits[k, mine], pods[mine]),
            base=none,
            own=none,
            limit=int(types.available[k]),
            enemies=enemies,
        )
        for k in which
    )


@dataclass(frozen=True, eq=False)
class Column:
    """One use of a place."""

    bin: int
    counts: Ints
    """(n,) pods on it besides its base: those of its own that stay, and newcomers."""


@dataclass
class ColumnGeneration:
    """Column generation for one subproblem: `add` known columns, `improve` them, `dive` to whole ones."""

    subproblem: Subproblem
    width: int = 16
    """States of the beam that fills a place, at first. A narrow one finds most columns in half of the time."""
    per_bin: int = 4
    every: int = 1
    """Of so many rounds one prices all places; the others those that gave columns last, where any still does."""
    pool: Executor | None = None
    """Where places are priced side by side; not one that this runs in itself."""
    columns: list[Column] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Build the master program with slacks that cost more than any place."""
        subproblem = self.subproblem
        self._n = len(subproblem.demand)
        self._arrays = arrays_of(subproblem)
        limited = np.flatnonzero(self._arrays.limit < UNLIMITED)
        self._counted = np.zeros((len(subproblem.bins), len(limited) + len(subproblem.pools)))
        self._counted[limited, np.arange(len(limited))] = 1.0
        for p, pool in enumerate(subproblem.pools):
            self._counted[list(pool.members), len(limited) + p] = pool.takes
        limits = [*self._arrays.limit[limited].tolist(), *(pool.limit for pool in subproblem.pools)]
        self._upper = np.array(limits, dtype=np.float64)
        self._left = subproblem.demand.copy()
        dearest = max((place.price for place in subproblem.bins), default=1.0) + float(subproblem.move_price.sum())
        self._lp = LinearProgram(
            np.concatenate([subproblem.demand.astype(np.float64), np.full(len(self._upper), -INFINITY)]),
            np.concatenate([np.full(self._n, INFINITY), self._upper]),
            unit=max(dearest, 1.0),
        )
        self._most_artificial = 20.0 * max(dearest, 1.0)
        slack = np.arange(self._n, dtype=np.int32)
        self._artificial_cost = np.full(self._n, self._most_artificial)
        self._lp.add(self._artificial_cost, np.full(self._n, INFINITY), (slack, slack, np.ones(self._n)))
        self._price = np.minimum(subproblem.guess, self._most_artificial)
        self._known: set[tuple[int, bytes]] = set()
        self._shadow = np.full(self._arrays.room.shape, np.nan)
        self._all = np.arange(len(subproblem.bins))
        self._paying_bins, self._turn = self._all, 0

    def add(self, columns: list[Column]) -> int:
        """Let columns in that are not yet; returns how many."""
        fresh = []
        for column in columns:
            key = (column.bin, column.counts.tobytes())
            if key not in self._known:
                self._known.add(key)
                fresh.append(column)
        if not fresh:
            return 0
        place = np.array([column.bin for column in fresh])
        counts = np.stack([column.counts for column in fresh])
        rows = np.hstack([counts + self._arrays.base[place], self._counted[place]])
        which, row = np.nonzero(rows)
        starts = np.searchsorted(which, np.arange(len(fresh)))
        moves = (np.maximum(counts - self._arrays.own[place], 0) * self.subproblem.move_price).sum(axis=1)
        self._lp.add(
            self._arrays.price[place] + moves,
            np.full(len(fresh), INFINITY),
            (starts.astype(np.int32), row.astype(np.int32), rows[which, row]),
        )
        self.columns += fresh
        return len(fresh)

    def improve(
        self, rounds: int, widest: int = 0, ends: Callable[[int], StopReason | None] = lambda _: None
    ) -> tuple[int, StopReason | None]:
        """Generate columns until none gains, `rounds` are used up or `ends`, called with the round, gives a reason.

        Returns the rounds, and the reason of the end if there was one.

        Until then a pod may be left out for little more than its guessed price. Where no column gains, pods left out
        get dearer; then the beam is widened fourfold, up to `widest`.
        """
        turns, reason = 0, None
        self._set_artificial_cost(np.minimum(_FIRST_ARTIFICIAL * self.subproblem.guess, self._most_artificial))
        for turns in range(1, rounds + 1):
            if not self._improve_once(widest):
                break
            if (reason := ends(turns)) is not None:
                break
        self._set_artificial_cost(np.full(self._n, self._most_artificial))
        return turns, reason

    def _improve_once(self, widest: int) -> bool:
        """Add columns that gain, and return whether any does; raise artificial costs and widen the beam before."""
        while not self._generate(found := self._lp.solve()):
            if self._raise_artificial_cost(found):
                continue
            if 4 * self.width > widest:
                return False
            self.width *= 4
            self._shadow[:] = np.nan
        return True

    def _raise_artificial_cost(self, found: LpSolution) -> bool:
        """Double the cost of leaving out pods that are left out; return whether there were any."""
        out = (found.values[: self._n] > _WHOLE) & (self._artificial_cost < self._most_artificial)
        if out.any():
            self._set_artificial_cost(
                np.where(
                    out,
                    np.minimum(
                        2.0 * self._artificial_cost + _SMALL_SHARE * self._most_artificial, self._most_artificial
                    ),
                    self._artificial_cost,
                )
            )
        return bool(out.any())

    def _set_artificial_cost(self, cost: Floats) -> None:
        """Set the cost of leaving out a pod of each class, (n,)."""
        self._artificial_cost = cost
        self._lp.price(np.arange(self._n, dtype=np.int32), cost)

    def _generate(self, found: LpSolution) -> int:
        exact = np.maximum(found.duals[: self._n], 0.0)
        self._price = _SMOOTHING * self._price + (1 - _SMOOTHING) * exact
        self._turn += 1
        asked = [(self._price, self._all), (exact, self._all)]
        if self._turn % self.every:
            asked.insert(0, (self._price, self._paying_bins))
        for prices, places in asked:
            made = self._price_bins(prices, found, places)
            self._paying_bins = np.unique([column.bin for column in made]).astype(np.int64)
            self._price = prices
            if added := self.add(made):
                return added
        return 0

    def _price_bins(self, prices: Floats, found: LpSolution, places: Ints) -> list[Column]:
        """Return the best columns of each of these bins at these prices, if they are worth more than they cost."""
        arrays, limits = self._arrays, (self._counted * found.duals[self._n :]).sum(axis=1)
        # Sums, no matrix products: those are shared out to threads, and rounded by how many there are.
        needed = (
            arrays.price - (arrays.base * prices).sum(axis=1) - limits + _LEAST_GAIN * np.maximum(arrays.price, 1.0)
        )

        def of(places: Ints) -> list[Column]:
            made = price_bins(arrays, prices, needed, self._shadow, self._left, places, self.width, self.per_bin)
            return [Column(place, counts) for place, counts in zip(made[0].tolist(), made[1], strict=True)]

        if self.pool is None:
            return of(places)
        return [column for columns in self.pool.map(of, places[:, None]) for column in columns]

    def prices(self) -> Floats:
        """Return the duals of the pods, (n,)."""
        return np.maximum(self._lp.solve().duals[: self._n], 0.0)

    def dive(
        self, ends: Callable[[int], StopReason | None] = lambda _: None
    ) -> tuple[list[Column] | None, int, StopReason | None]:
        """Return integral columns that cover every pod, or None; the rounds, and the reason of a hurry or None.

        After each round columns are generated for what is left, until `ends`, called with the round, gives a reason.
        Then the rounds before are returned: a replay hurries after as many. The program is used up by this.
        """
        chosen: list[Column] = []
        uppers, reason, hurried = self._upper.copy(), None, 0
        for turn in range(1, 4 * self._n + 4 * len(self.subproblem.bins) + 10):
            found = self._lp.solve()
            for _ in range(_DIVE_PRICINGS if reason is None else 0):
                if not self._generate(found):
                    break
                found = self._lp.solve()
            fixed = self._columns_to_fix(found, uppers)
            if not fixed:
                break
            for column, times in fixed:
                covers = (column.counts + self.subproblem.bins[column.bin].base) * times
                self._left = np.maximum(self._left - covers, 0)
                uppers -= self._counted[column.bin] * times
                chosen += [column] * times
            if not self._left.any():
                return chosen, hurried or turn, reason
            self._restrict(uppers)
            if reason is None and (reason := ends(turn)):
                hurried = turn
        return None, hurried or turn, reason

    def _restrict(self, uppers: Floats) -> None:
        """Restrict the program to what is left, within these limits of bins."""
        rows = np.arange(self._n + len(uppers), dtype=np.int32)
        lower = np.concatenate([self._left, np.full(len(uppers), -INFINITY)])
        self._lp.bound_rows(rows, lower, np.concatenate([np.full(self._n, INFINITY), uppers]))

    def _columns_to_fix(self, found: LpSolution, uppers: Floats) -> list[tuple[Column, int]]:
        """Return what to fix next: the integral part of each column, or the tenth of the columns that is used most."""
        values = found.values[self._n :]
        # Pods that come along with others for nothing have no price; a crumb of one tells them from none.
        worth = np.maximum(found.duals[: self._n], 0.0) + _SMALL_SHARE * self.subproblem.guess
        whole = np.floor(values + _WHOLE).astype(np.int64)
        order = np.argsort(-values, kind="stable")[: int((values > _WHOLE).sum())]
        parts = 1 + len(order) // 10
        least = 0.85 if whole.any() else 0.5
        fixed: list[tuple[Column, int]] = []
        left, uppers = self._left.copy(), uppers.copy()
        for i in order.tolist():
            if not whole[i] and fixed and (values[i] < least or not parts):
                break
            column, times = self.columns[i], max(1, int(whole[i]))
            covers = column.counts + self.subproblem.bins[column.bin].base
            # Nothing is fixed whose worth is mostly in pods that are covered already.
            full = _LEAST_NEW_SHARE * (covers * worth).sum()
            while times > 1 and (np.minimum(covers * times, left) * worth).sum() < times * full:
                times -= 1
            if fixed and (np.minimum(covers, left) * worth).sum() < full:
                continue
            if (self._counted[column.bin] * times > uppers).any():
                continue
            fixed.append((column, times))
            uppers -= self._counted[column.bin] * times
            left = np.maximum(left - covers * times, 0)
            parts -= not whole[i]
        return fixed


def trim_overcover(subproblem: Subproblem, chosen: list[Column]) -> list[Column] | None:
    """Return the columns without pods that are covered twice; None where only pods that must stay could be left out.

    Newcomers go before pods that could stay, and nodes that are worth least for their price give pods up first.
    """
    covered = sum((subproblem.bins[one.bin].base + one.counts for one in chosen), np.zeros_like(subproblem.demand))
    over = np.asarray(covered - subproblem.demand)
    if not over.any():
        return chosen
    found = sorted(
        chosen, key=lambda one: float(one.counts @ subproblem.guess) / max(1.0, subproblem.bins[one.bin].price)
    )
    for newcomers in (True, False):
        for i, one in enumerate(found):
            loose = np.maximum(one.counts - subproblem.bins[one.bin].own, 0) if newcomers else one.counts
            cut = np.minimum(loose, np.maximum(over, 0))
            if cut.any():
                over = over - cut
                found[i] = Column(one.bin, one.counts - cut)
    return None if over.any() else found


def arrays_of(subproblem: Subproblem) -> SubproblemArrays:
    """Return the subproblem as arrays for compiled loops."""
    classes = range(len(subproblem.demand))
    apart = next((place.enemies for place in subproblem.bins if place.enemies), {})  # the same for all places
    others = [apart.get(c, ()) for c in classes]
    most = np.stack([place.most for place in subproblem.bins])
    base = np.stack([place.base for place in subproblem.bins])
    for c, enemies in apart.items():
        most[base[:, list(enemies)].any(axis=1), c] = 0
    return SubproblemArrays(
        requests=subproblem.requests,
        guess=subproblem.guess,
        move_price=subproblem.move_price,
        price=np.array([place.price for place in subproblem.bins]),
        room=np.stack([place.room for place in subproblem.bins]),
        most=most,
        base=base,
        own=np.stack([place.own for place in subproblem.bins]),
        limit=np.array([place.limit for place in subproblem.bins], dtype=np.int64),
        existing=subproblem.existing,
        enemy_start=np.concatenate([[0], np.cumsum([len(one) for one in others])]).astype(np.int64),
        enemies=np.array([d for one in others for d in one], dtype=np.int64),
    )


def solve_bin(requests: Ints, prices: Floats, place: Bin, width: int) -> tuple[Ints, float]:
    """Return a nearly best filling of a new node with classes of these requests (n, R): (n,) pods and their worth."""
    free = np.zeros(len(prices))
    arrays = arrays_of(Subproblem(requests, place.most, free, (place,), (), prices))
    nothing = np.full(requests.shape[1], np.nan)
    counts, worth = price_bin(arrays, prices, 0, place.most, np.flatnonzero(place.most), width, 0.0, nothing)
    return counts, float(worth)
