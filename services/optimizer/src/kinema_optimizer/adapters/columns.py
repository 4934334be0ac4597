"""Column generation: the cheapest set of fillings for some places and some pods.

A column is one place with what it takes. The master program chooses columns in fractions so that every pod is covered;
its duals price the pods; for every place the best filling at these prices (`knapsack.fill`) is a new column if it is
worth more than it costs. When nothing is, or the rounds are used up, a dive makes the choice whole: columns that the
program uses fully are fixed, the most used of the others with them, and the rest is priced and solved again.

Pods that stay on an existing node are part of its column, so that "keep it with its pods" and "delete it and place its
pods elsewhere" compete at the same prices. Pods of its own that it may give up enter its filling beside the newcomers:
they are worth their price there, newcomers that less the price of their move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from kinema_optimizer.adapters.knapsack import fill, worth_at_most
from kinema_optimizer.adapters.lp import INFINITY, Floats, LinearProgram, LpSolution
from kinema_optimizer.adapters.stops import StopReason
from kinema_optimizer.logic.packing import UNLIMITED, among
from kinema_optimizer.logic.problem import Ints

_SMOOTHING = 0.6
"""Weight of the prices of the last round when pods are priced: damps the swings of an early master program."""
_CHEAPER = 1e-7
"""Reduced cost, relative to the price of a place, below which a column enters."""
_WHOLE = 1e-6


@dataclass(frozen=True, eq=False)
class Place:
    """Somewhere to put pods: an existing node, or a machine on sale. Classes are those of the task, `n` of them."""

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
class Task:
    """Pods to place, and places for them."""

    requests: Ints
    """(n, R)"""
    demand: Ints
    """(n,)"""
    move_price: Floats
    """(n,) micro-USD per hour for each pod of the class that comes newly to a place."""
    places: tuple[Place, ...]
    pools: tuple[tuple[tuple[int, ...], int], ...]
    """Places that share a limit, and the limit."""
    guess: Floats
    """(n,) prices of the pods to begin with."""


@dataclass(frozen=True, eq=False)
class Column:
    """One use of a place."""

    place: int
    counts: Ints
    """(n,) pods on it besides its base: those of its own that stay, and newcomers."""


@dataclass
class ColumnGeneration:
    """One task; `add` known columns, `improve` for some rounds, `dive` to whole ones. Pure: no clock, no randomness."""

    task: Task
    width: int = 48
    per_place: int = 4
    pool: Executor | None = None
    """Where places are priced side by side; not one that this runs in itself."""
    columns: list[Column] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Build the master program with slacks that cost more than any place."""
        task = self.task
        self._n = len(task.demand)
        limited = [i for i, place in enumerate(task.places) if place.limit < UNLIMITED]
        self._limit_row = {place: self._n + row for row, place in enumerate(limited)}
        self._pool_rows: dict[int, list[int]] = {}
        for p, (members, _) in enumerate(task.pools):
            for place in members:
                self._pool_rows.setdefault(place, []).append(self._n + len(limited) + p)
        uppers = [task.places[i].limit for i in limited] + [limit for _, limit in task.pools]
        self._upper = np.array(uppers, dtype=np.float64)
        self._left = task.demand.copy()
        dearest = max((place.price for place in task.places), default=1.0) + float(task.move_price.sum())
        self._lp = LinearProgram(
            np.concatenate([task.demand.astype(np.float64), np.full(len(uppers), -INFINITY)]),
            np.concatenate([np.full(self._n, INFINITY), self._upper]),
            unit=max(dearest, 1.0),
        )
        self._dear = 20.0 * max(dearest, 1.0)
        slack = np.arange(self._n, dtype=np.int32)
        self._lp.add(np.full(self._n, self._dear), np.full(self._n, INFINITY), (slack, slack, np.ones(self._n)))
        self._price = np.minimum(task.guess, self._dear)
        self._known: set[tuple[int, bytes]] = set()
        self._prices: dict[int, Floats] = {}
        self._offers = [offered(task.requests, place) for place in task.places]

    def cost_of(self, column: Column) -> float:
        """Price of the place and of the moves to it."""
        return cost_of(self.task, column)

    def add(self, columns: list[Column]) -> int:
        """Let columns in that are not yet; returns how many."""
        fresh = []
        for column in columns:
            key = (column.place, column.counts.tobytes())
            if key not in self._known:
                self._known.add(key)
                fresh.append(column)
        if not fresh:
            return 0
        starts: list[int] = []
        index: list[int] = []
        value: list[float] = []
        for column in fresh:
            starts.append(len(index))
            covers = column.counts + self.task.places[column.place].base
            rows = np.flatnonzero(covers)
            extra = [self._limit_row[column.place]] if column.place in self._limit_row else []
            extra += self._pool_rows.get(column.place, [])
            index += [*rows.tolist(), *extra]
            value += [*covers[rows].tolist(), *[1] * len(extra)]
        self._lp.add(
            np.array([self.cost_of(column) for column in fresh]),
            np.full(len(fresh), INFINITY),
            (np.array(starts, dtype=np.int32), np.array(index, dtype=np.int32), np.array(value, dtype=np.float64)),
        )
        self.columns += fresh
        return len(fresh)

    def improve(
        self, rounds: int, widest: int = 0, ends: Callable[[int], StopReason | None] = lambda _: None
    ) -> tuple[int, StopReason | None]:
        """Generate columns until none gains, `rounds` are used up or `ends` (told the round) says so.

        Returns the rounds, and why it was ended if it was.

        Where no column gains, the beam is widened fourfold, up to `widest`, before that is believed.
        """
        for turn in range(1, rounds + 1):
            while not self._generate(self._lp.solve()):
                if 4 * self.width > widest:
                    return turn, None
                self.width *= 4
                self._prices.clear()
            reason = ends(turn)
            if reason is not None:
                return turn, reason
        return rounds, None

    def _generate(self, found: LpSolution) -> int:
        exact = np.maximum(found.duals[: self._n], 0.0)
        self._price = _SMOOTHING * self._price + (1 - _SMOOTHING) * exact
        added = self.add(self._priced(self._price, found))
        if not added:
            self._price = exact
            added = self.add(self._priced(exact, found))
        return added

    def _priced(self, prices: Floats, found: LpSolution) -> list[Column]:
        """For each place the best column at these prices, if it is worth more than it costs."""
        one = partial(self._best_of, prices, found)
        places = range(len(self.task.places))
        priced = map(one, places) if self.pool is None else self.pool.map(one, places)
        return [column for columns in priced for column in columns]

    def _best_of(self, prices: Floats, found: LpSolution, i: int) -> list[Column]:
        """Columns of place `i` that are worth more than they cost, the best first."""
        task, place, made = self.task, self.task.places[i], list[Column]()
        needed = place.price - float(prices @ place.base) - sum(float(found.duals[row]) for row in self._rows(i))
        needed += _CHEAPER * max(place.price, 1.0)
        offer, left = self._offers[i], self._left
        if i in self._prices and offer.worth_at_most(prices, task.move_price, left, self._prices[i]) <= needed:
            return made
        for turn in range(self.per_place):
            counts, worth, shadow = filled(offer, prices, task.move_price, left=left, width=self.width, floor=needed)
            if turn == 0:
                self._prices[i] = shadow
            if worth <= needed:
                break
            made.append(Column(i, counts))
            used = counts > 0
            if place.limit == 1 or not used.any():
                break
            # The next filling of this place comes from what would be left after using this one while it lasts.
            times = max(1, int((self._left[used] // counts[used]).min()))
            left = np.where(used, np.maximum(self._left - counts * times, 0), left)
        return made

    def dive(self, rounds: int) -> list[Column] | None:
        """Whole columns that cover every pod, or None where no choice was found; the program is used up by this.

        `rounds`: of new columns after each time that some are fixed.
        """
        chosen: list[Column] = []
        uppers = self._upper.copy()
        for _ in range(4 * self._n + 4 * len(self.task.places) + 10):
            if not self._left.any():
                return chosen
            found = self._lp.solve()
            for _ in range(rounds):
                if not self._generate(found):
                    break
                found = self._lp.solve()
            fixed = self._fixed(found.values[self._n :], uppers)
            if not fixed:
                return None
            for column, times in fixed:
                self._use(column, times, uppers)
                chosen += [column] * times
        return None

    def _fixed(self, values: Floats, uppers: Floats) -> list[tuple[Column, int]]:
        """What to fix next: the whole part of every column; where there is none, a tenth of them, those used most."""
        whole = np.floor(values + _WHOLE).astype(np.int64)
        order = np.argsort(-values, kind="stable")[: int((values > _WHOLE).sum())]
        parts = 1 + len(order) // 10
        least = 0.85 if whole.any() else 0.5
        found: list[tuple[Column, int]] = []
        left, uppers = self._left.copy(), uppers.copy()
        for i in order.tolist():
            if not whole[i] and found and (values[i] < least or not parts):
                break
            column, times = self.columns[i], max(1, int(whole[i]))
            covers = column.counts + self.task.places[column.place].base
            # Nothing is fixed that would mostly cover pods which are covered already.
            useful = np.minimum(covers, left).sum()
            if found and useful < 0.9 * covers.sum():
                continue
            while times > 1 and (covers * times > left + covers).any():
                times -= 1
            if not self._available(column.place, uppers, times):
                continue
            found.append((column, times))
            uppers[[row - self._n for row in self._rows(column.place)]] -= times
            left = np.maximum(left - covers * times, 0)
            parts -= not whole[i]
        return found

    def _available(self, place: int, uppers: Floats, times: int) -> bool:
        return all(uppers[row - self._n] >= times for row in self._rows(place))

    def _rows(self, place: int) -> list[int]:
        return ([self._limit_row[place]] if place in self._limit_row else []) + self._pool_rows.get(place, [])

    def _use(self, column: Column, times: int, uppers: Floats) -> None:
        """Fix a column: less is left to cover, and less of its place."""
        covers = (column.counts + self.task.places[column.place].base) * times
        touched = np.flatnonzero((covers > 0) & (self._left > 0)).astype(np.int32)
        self._left = np.maximum(self._left - covers, 0)
        self._lp.bound_rows(touched, self._left[touched].astype(np.float64), np.full(len(touched), INFINITY))
        rows = np.array(self._rows(column.place), dtype=np.int32)
        for row in rows.tolist():
            uppers[row - self._n] -= times
        self._lp.bound_rows(rows, np.full(len(rows), -INFINITY), uppers[rows - self._n])


def cost_of(task: Task, column: Column) -> float:
    """Price of the column's place and of the moves to it."""
    place = task.places[column.place]
    return place.price + float(np.maximum(column.counts - place.own, 0) @ task.move_price)


def exactly(task: Task, chosen: list[Column]) -> list[Column] | None:
    """The columns without pods that are covered twice; None where only pods that have to stay could be left out.

    Newcomers go before pods that could stay, and nodes that are worth least for their price give pods up first.
    """
    covered = sum((task.places[one.place].base + one.counts for one in chosen), np.zeros_like(task.demand))
    over = np.asarray(covered - task.demand)
    if not over.any():
        return chosen
    found = sorted(chosen, key=lambda one: float(one.counts @ task.guess) / max(1.0, task.places[one.place].price))
    for newcomers in (True, False):
        for i, one in enumerate(found):
            loose = np.maximum(one.counts - task.places[one.place].own, 0) if newcomers else one.counts
            cut = np.minimum(loose, np.maximum(over, 0))
            if cut.any():
                over = over - cut
                found[i] = Column(one.place, one.counts - cut)
    return None if over.any() else found


def part(place: Place, classes: Ints) -> Place:
    """The place for some of the classes (m,), ascending; those that may not join its base are barred."""
    most, enemies = place.most[classes], place.enemies
    if enemies:
        most[[any(place.base[d] for d in enemies.get(c, ())) for c in classes.tolist()]] = 0
        enemies = among(enemies, classes)
    return Place(place.price, place.room, most, place.base[classes], place.own[classes], place.limit, enemies)


@dataclass(frozen=True, eq=False)
class Offer:
    """A place as a knapsack: newcomers of each class, then those of its own pods that may leave."""

    place: Place
    mine: Ints
    """Classes of which it has pods of its own."""
    requests: Ints
    """(n + own classes, R)"""
    weights: Floats
    """(n + own classes, R): as shares of its room."""

    def values(self, prices: Floats, move_price: Floats) -> Floats:
        """What one pod of each is worth there at these prices (n,)."""
        return np.concatenate([prices - move_price, prices[self.mine]]) if self.mine.size else prices - move_price

    def most(self, left: Ints) -> Ints:
        """Most pods of each when so many (n,) are to be had; own ones are had first."""
        if not self.mine.size:
            return np.minimum(self.place.most, left)
        staying = np.minimum(self.place.own, left)
        return np.concatenate([np.minimum(self.place.most, left - staying), staying[self.mine]])

    def worth_at_most(self, prices: Floats, move_price: Floats, left: Ints, room_price: Floats) -> float:
        """What no filling is worth more than, by any prices (R,) of its room."""
        return float(worth_at_most(self.values(prices, move_price), self.weights, room_price, self.most(left)))


def offered(requests: Ints, place: Place) -> Offer:
    """The place as a knapsack for classes that request this (n, R)."""
    mine = np.flatnonzero(place.own)
    wanted = np.concatenate([requests, requests[mine]]) if mine.size else requests
    return Offer(place, mine, wanted, wanted / np.maximum(place.room, 1))


def filled(
    offer: Offer, prices: Floats, move_price: Floats, *, left: Ints, width: int, floor: float = 0.0
) -> tuple[Ints, float, Floats]:
    """A nearly best filling of a place from so many pods: (n,) pods on it, their worth, and prices (R,) of its room.

    Nothing, of worth 0, where none is found that is worth more than `floor`.

    Classes that may not meet: the one that is worth less there is left out, and the filling made anew.
    """
    place, n = offer.place, len(prices)
    values, most = offer.values(prices, move_price), offer.most(left)
    for c, others in place.enemies.items():
        if any(place.base[d] for d in others):
            most[c] = 0
    kept = dict(zip(offer.mine.tolist(), range(n, len(values)), strict=True))
    for _ in range(4):
        found, worth, room_price = fill(values, offer.requests, place.room, most, width, max(floor, 0.0))
        clash = list(_clashes(place, kept, found))
        if not clash:
            counts = found[:n].copy()
            counts[offer.mine] += found[n:]
            return counts, float(worth), room_price
        for a, b in clash:
            most[b if values[b] * found[b] < values[a] * found[a] else a] = 0
    staying = np.minimum(place.own, left)
    return staying, float(staying @ prices), room_price


def _clashes(place: Place, kept: Mapping[int, int], found: Ints) -> Iterator[tuple[int, int]]:
    """Entries of a knapsack that may not meet: newcomers with each other, and with pods that were there before."""
    for c, others in place.enemies.items():
        for d in others if found[c] else ():
            if found[d] and c < d:
                yield c, d
            if d in kept and found[kept[d]]:
                yield c, kept[d]
