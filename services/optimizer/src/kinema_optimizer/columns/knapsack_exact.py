"""The filling of a node that is worth most at some prices of pods, for certain: branch and bound in integers.

At prices at which no filling of any machine is worth more than the machine costs, all pods together are worth no more
than any plan costs. The assignment relaxation guards that by sums of room; what can be *on* a node (whole pods, whole
GPUs) is worth less, and lets prices rise: Gilmore and Gomory (1961) for the prices, Farley (1990) for scaling those
that are nearly so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.columns.compiled import kernel
from kinema_optimizer.columns.knapsack import knapsack_duals
from kinema_optimizer.problem.arrays import Ints

UNIT: Final = 2**16
"""Denominator of the prices here, in micro-USD per hour: 64 bits hold the price of any node."""
BRANCHES: Final = 500_000
"""Branches after which a search stops: a hundredth of a second."""
_FINE: Final = 48
"""Bits behind the point of what a unit of a resource is worth."""
_MOST: Final = 2**61


class ExactFilling(NamedTuple):
    """What is known of the fillings of a node."""

    most: int
    """None is worth more, in 1/`UNIT` micro-USD; what was asked for where none is worth more than that."""
    counts: Ints
    """(n,) pods of the best found that is worth more than asked for; none without one."""
    sure: bool = True
    """Whether all fillings were searched; where there are too many, `most` is what the room is worth."""


def exact_knapsack(prices: Ints, requests: Ints, room: Ints, fits: Ints, *, floor: int) -> ExactFilling:
    """The filling of one node that is worth most, if it is worth more than `floor`.

    Args:
        prices: (n,) of one pod, in 1/`UNIT` micro-USD per hour.
        requests: (n, R)
        room: (R,)
        fits: (n,) most pods of each class.
        floor: in 1/`UNIT` micro-USD per hour.
    """
    counts = np.zeros(len(prices), dtype=np.int64)
    most = np.where(requests > 0, np.maximum(room, 0) // np.maximum(requests, 1), fits[:, None]).min(axis=1)
    most = np.minimum(most, fits)
    able = np.flatnonzero((prices > 0) & (most > 0))
    if not able.size:
        return ExactFilling(floor, counts)
    base, cover = _cover(prices[able], requests[able], room, most[able])
    # Those first that take most of the room; of those that ask for the same the dearest.
    order = np.lexsort((-prices[able], *requests[able].T, -cover))
    able, cover = able[order], cover[order]
    worth, many = prices[able].astype(object), most[able].astype(object)
    beyond = _suffix_sums(np.maximum(worth - cover.astype(object), 0) * many)
    ceiling = base + int(beyond[0])
    if ceiling <= floor:
        return ExactFilling(floor, counts)
    asked = requests[able]
    alike = np.concatenate([[False], (asked[1:] == asked[:-1]).all(axis=1)])
    pods, bounds = (prices[able], cover, asked, alike, most[able]), (_suffix_sums(worth * many), beyond)
    found, counts[able], complete = _branch_and_bound(*pods, *bounds, room, base, floor, BRANCHES)
    return ExactFilling(int(found) if complete else ceiling, counts, sure=complete)


def _cover(prices: Ints, requests: Ints, room: Ints, fits: Ints) -> tuple[int, Ints]:
    """What the room is worth, and (n,) what a pod takes of that at least; pods that fit never take more than all."""
    weights = requests / np.maximum(room, 1)
    paid = knapsack_duals(prices / UNIT, weights, np.ones(len(room)), fits.astype(np.float64))
    unit = [int(one * UNIT / max(int(all_of), 1) * 2**_FINE) for one, all_of in zip(paid, room, strict=True)]
    taken = sum(requests[:, r].astype(object) * one for r, one in enumerate(unit))
    base = sum(int(all_of) * one for all_of, one in zip(room, unit, strict=True))
    return -(-base >> _FINE), np.asarray(taken >> _FINE, dtype=np.int64)


def _suffix_sums(values: NDArray[np.object_]) -> Ints:
    """(n + 1,): sums from each on."""
    sums = [0]
    for one in values[::-1].tolist():
        sums.append(min(sums[-1] + one, _MOST))
    return np.array(sums[::-1], dtype=np.int64)


@kernel
def _branch_and_bound(prices, cover, requests, alike, fits, rest, beyond, room, base, floor, branches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, C901, PLR0913, PLR0917 - compiled: numba infers types, takes no keywords; one loop is what makes it fast
    """(worth of the best filling or `floor`, (n,) its pods, whether there surely is no better one).

    Classes are decided one after the other, the most pods first; of classes `alike` none comes before all of the one
    before it are there. What is open of the room bounds what may follow, and so does what all that follow are worth.
    """
    n, rows = requests.shape
    counts, found = np.zeros(n, np.int64), np.zeros(n, np.int64)
    left = room.copy()
    worth, free, best = np.int64(0), np.int64(base), np.int64(floor)
    j, deeper = 0, True
    while j >= 0:
        if not deeper:
            if counts[j] == 0:
                j -= 1
                continue
            counts[j] -= 1
            worth -= prices[j]
            free += cover[j]
            for r in range(rows):
                left[r] += requests[j, r]
            j, deeper = j + 1, True
        if worth > best:
            best = worth
            found[:] = counts
        if j == n or worth + min(rest[j], free + beyond[j]) <= best:
            j, deeper = j - 1, False
            continue
        branches -= 1
        if branches < 0:
            return best, found, False
        most = fits[j]
        for r in range(rows):
            if requests[j, r] > 0:
                most = min(most, left[r] // requests[j, r])
        if alike[j] and counts[j - 1] < fits[j - 1]:
            most = 0
        counts[j] = most
        worth += most * prices[j]
        free -= most * cover[j]
        for r in range(rows):
            left[r] -= most * requests[j, r]
        j += 1
    return best, found, True
