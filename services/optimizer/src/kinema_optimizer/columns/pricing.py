"""Compiled pricing: what best fills each place of a task at some prices of its pods."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kinema_optimizer.columns.compiled import kernel
from kinema_optimizer.columns.knapsack import knapsack_beam, knapsack_dual_bound
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.solvers.lp import Floats


class SubproblemArrays(NamedTuple):
    """A task as arrays, for compiled loops: n classes, P places, existing nodes first."""

    requests: Ints
    """(n, R)"""
    guess: Floats
    """(n,) what a pod is worth."""
    move_price: Floats
    """(n,) of a newcomer."""
    price: Floats
    """(P,)"""
    room: Ints
    """(P, R)"""
    most: Ints
    """(P, n) newcomers; 0 also where one may not join the pods that are there."""
    base: Ints
    """(P, n) pods that are there and stay."""
    own: Ints
    """(P, n) pods that are there and may leave: those that do not have not moved."""
    limit: Ints
    """(P,) how many there are."""
    existing: int
    """How many of the places are existing nodes."""
    enemy_start: Ints
    """(n + 1,) enemies of class c are `enemies[enemy_start[c]:enemy_start[c + 1]]`."""
    enemies: Ints
    """Classes that may not share a place."""


@kernel
def _bar_enemies(arrays, mine, new, counts, worth, allowed):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """Whether no newcomers meet enemies; where they do, the entry worth less is barred in `allowed`.

    Entries are pods of classes `mine`: the first `new` of them newcomers, the others have been there before.
    """
    if len(arrays.enemies) == 0:
        return True
    where = np.full((2, len(arrays.guess)), -1, np.int64)
    for i in range(len(mine)):
        if counts[i] > 0:
            where[int(i >= new), mine[i]] = i
    clear = True
    for i in range(new):
        if counts[i] <= 0:
            continue
        for k in range(arrays.enemy_start[mine[i]], arrays.enemy_start[mine[i] + 1]):
            for before in range(2):
                other = where[before, arrays.enemies[k]]
                if other > i:
                    clear = False
                    allowed[other if worth[other] * counts[other] < worth[i] * counts[i] else i] = 0
    return clear


@kernel
def price_bin(arrays, values, place, left, fresh, width, floor, shadow):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0913, PLR0917 - compiled: numba infers types, and takes no keywords
    """Return a nearly best filling of a place: (n,) pods and their worth; no pods and 0 where none is worth more.

    Classes that may not meet: the one that is worth less there is left out, and the filling made again.

    Args:
        arrays: the task.
        values: (n,) what a pod is worth there; a newcomer that less its move.
        place: which.
        left: (n,) pods that are to be had; own ones are had first.
        fresh: classes that it may be filled with.
        width: of the beam.
        floor: what a filling has to be worth more than.
        shadow: (R,) prices of the room before; nan where there are none. What surely has no filling of more worth at
            these is not filled; changed to the prices now.
    """
    new = len(fresh)
    staying = np.minimum(arrays.own[place], left)
    old = fresh[staying[fresh] > 0]
    mine = np.concatenate((fresh, old))
    worth = values[mine]
    worth[:new] -= arrays.move_price[fresh]
    allowed = np.concatenate((np.minimum(arrays.most[place][fresh], left[fresh] - staying[fresh]), staying[old]))
    requests = arrays.requests[mine]
    found = np.zeros_like(left)
    if not np.isnan(shadow[0]):
        weights = requests / np.maximum(arrays.room[place], 1)
        if knapsack_dual_bound(worth, weights, shadow, allowed) <= floor:
            return found, 0.0
    for _ in range(4):
        counts, total, prices = knapsack_beam(worth, requests, arrays.room[place], allowed, width, max(floor, 0.0))
        shadow[:] = prices
        if total <= floor:
            break
        if _bar_enemies(arrays, mine, new, counts, worth, allowed):
            found[fresh] = counts[:new]
            found[old] += counts[new:]
            return found, total
    return found, 0.0


@kernel
def price_bins(arrays, prices, needed, shadow, left, places, width, each):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0913, PLR0917 - compiled: numba infers types, and takes no keywords
    """((k,) places, (k, n) pods): fillings that are worth more than they cost, the best of each place first.

    Args:
        arrays: the task.
        prices: (n,) of its pods.
        needed: (P,) what a filling of each place has to be worth more than.
        shadow: (P, R) prices of the places' room when they were last filled, nan before; changed.
        left: (n,) pods that are to be had.
        places: which ones to fill.
        width: of the beam.
        each: most fillings of one place.
    """
    made = 0
    where = np.empty(len(places) * each, np.int64)
    counts = np.empty((len(places) * each, len(left)), np.int64)
    again = np.empty(arrays.room.shape[1])
    for i in places:
        rest = left.copy()
        for turn in range(each):
            fresh = np.flatnonzero((rest > 0) & ((arrays.most[i] > 0) | (arrays.own[i] > 0)))
            again[:] = np.nan
            held, worth = price_bin(arrays, prices, i, rest, fresh, width, needed[i], shadow[i] if turn == 0 else again)
            if worth <= needed[i]:
                break
            where[made], counts[made] = i, held
            made += 1
            if arrays.limit[i] == 1 or not held.any():
                break
            # The next filling of this place comes from what would be left after using this one while it lasts.
            times = (left[held > 0] // held[held > 0]).min()
            for c in np.flatnonzero(held):
                rest[c] = max(left[c] - held[c] * max(times, 1), 0)
    return where[:made], counts[:made]
