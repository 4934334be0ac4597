"""Covers: what machines cost at least that nothing else can replace, in whole nodes.

The assignment LP buys a hundredth of a machine for pods that take a hundredth of it. Where all places of some classes
are in a set of types, every plan has whole nodes of that set with room for all pods of these classes together. So
whatever is credited to the types of such a set, every plan collects no less than the whole nodes that have this room
and collect least: a covering problem of a few nodes, which `least_credit` solves in integers. Credits are dual values
of such rows in the assignment LP. What no plan costs less than by prices without the credits, and what every plan
collects of them, are together a bound by the true prices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.node_types import NodeTypes
from kinema_optimizer.solvers.lp import Floats

_MOST_SETS: Final = 200
"""Sets of types that are looked at, those of the fewest types first."""
_MOST_NODES: Final = 8
"""Nodes of the largest type up to which a set is worth it: of many nodes a part of one is little."""
_MOST_WORK: Final = 150_000
"""Comparisons of a covering problem, less than a tenth of a second, after which it is left out."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, eq=False)
class Cover:
    """Types that alone hold some classes, and what those ask of them."""

    types: Ints
    """(n,) of the set, those that stay in any case left out."""
    offers: Ints
    """(n, r): what one node of each has: itself, resources, pods of a class; no more than is asked for."""
    asked: Ints
    """(r,): what is asked for together, less what nodes have that stay in any case; of nodes one, where anything is."""


@dataclass(frozen=True, eq=False)
class CoverRows:
    """Rows for a linear program: of each, nodes of all types (K,) with their weight add up to at least so much."""

    weights: Floats
    """(N, K)"""
    least: Floats
    """(N,)"""
    covers: tuple[Cover, ...]
    """(N) of each row."""


NO_ROWS: Final = CoverRows(np.zeros((0, 0)), np.zeros(0), ())


@dataclass(frozen=True, eq=False)
class Credit:
    """What nodes of a cover are credited with."""

    cover: Cover
    each: Ints
    """(n,) micro-USD per hour for a node of each of its types."""


def covers_of(requests: Ints, demand: Ints, types: NodeTypes) -> tuple[Cover, ...]:
    """Return the covers of a demand (C,), one for each set of types that alone holds some class."""
    wanted = np.flatnonzero(demand > 0)
    free = np.flatnonzero(~types.fixed)
    places = types.fits[np.ix_(free, wanted)].T > 0
    sets = np.unique(places, axis=0)
    sets = sets[sets.any(axis=1)]
    found = []
    for one in sets[np.argsort(sets.sum(axis=1), kind="stable")][:_MOST_SETS]:
        cover = _cover(requests, demand, types, free[one], wanted[~places[:, ~one].any(axis=1)])
        if (cover.asked > 0).any() and (cover.asked <= _MOST_NODES * cover.offers.max(axis=0)).all():
            found.append(cover)
    return tuple(found)


def _cover(requests: Ints, demand: Ints, types: NodeTypes, members: Ints, classes: Ints) -> Cover:
    """Return what these classes (n,), which no other types hold but fixed ones, ask of the members (m,)."""
    fits, most = types.fits[:, classes], demand[classes]
    fixed = np.flatnonzero(types.fixed & (fits > 0).any(axis=1))
    has = np.concatenate([types.room, np.minimum(fits, most)], axis=1)
    asked = np.concatenate([demand[classes] @ requests[classes], most]) - has[fixed].sum(axis=0)
    asked = np.concatenate([[(asked > 0).any()], np.maximum(asked, 0)])
    offers = np.minimum(np.concatenate([np.ones((len(members), 1), dtype=np.int64), has[members]], axis=1), asked)
    telling = (offers < asked).any(axis=0)  # what any node has enough of comes with the first one
    telling[0] = True
    return Cover(members, offers[:, telling], asked[telling])


def least_credit(cover: Cover, each: Ints) -> int | None:
    """Return the least sum of credits, `each` (n,), over whole nodes that have what is asked; None where it is unknown.

    No plan has less, however its nodes are limited. Unknown is it of many nodes, and where no nodes have it.
    """
    best: dict[tuple[int, ...], int] = {}
    for offers, credit in zip(cover.offers.tolist(), each.tolist(), strict=True):
        if any(offers):
            best[tuple(offers)] = min(credit, best.get(tuple(offers), credit))
    ways = sorted(best.items(), key=lambda one: one[1])
    known: dict[tuple[int, ...], int] = {}
    most = _MOST_WORK // max(1, len(ways) * len(cover.asked))
    lacks = [tuple(cover.asked.tolist())] if cover.asked.any() else []
    while lacks:
        if len(known) + len(lacks) > most:
            return None
        lack = lacks[-1]
        left = [tuple(max(0, a - b) for a, b in zip(lack, offers, strict=True)) for offers, _ in ways]
        open_ = [one for one in left if any(one) and one not in known and one != lack]
        if open_:
            lacks += open_
            continue
        lacks.pop()
        sums = [credit + known.get(one, 0) for one, (_, credit) in zip(left, ways, strict=True) if one != lack]
        if not sums:  # nothing has what is asked for
            return None
        known[lack] = min(sums)
    return known.get(tuple(cover.asked.tolist()), 0)


def rows_of(covers: Sequence[Cover], types: NodeTypes) -> CoverRows:
    """Return two rows for each cover: of the number of nodes, and of their price."""
    dearest = max(1, int(types.price.max(initial=1)))
    found = list(_rows(covers, types, dearest))
    weights = np.zeros((len(found), len(types.price)))
    for row, (cover, each, _) in zip(weights, found, strict=True):
        row[cover.types] = each
    return CoverRows(weights, np.array([least for _, _, least in found]), tuple(cover for cover, _, _ in found))


def _rows(covers: Sequence[Cover], types: NodeTypes, dearest: int) -> Iterator[tuple[Cover, Floats, float]]:
    for cover in covers:
        for each, unit in ((np.ones(len(cover.types), dtype=np.int64), 1), (types.price[cover.types], dearest)):
            least = least_credit(cover, each)
            if not least:
                break
            yield cover, each / unit, least / unit


def credits_of(rows: CoverRows, duals: Floats, price: Ints) -> tuple[Credit, ...]:
    """Return the credits of dual values (N,) in micro-USD, in all less than what a node of any type (K,) costs.

    Where types run out, a row and their limit may be worth any sum together.
    """
    found, left = [], price - 1.0
    for cover, dual, weights in zip(rows.covers, duals.tolist(), rows.weights, strict=True):
        each = weights[cover.types]
        most = min((left[cover.types] / np.maximum(each, _ROUNDING)).min(), dual) * (1 - _ROUNDING)
        credit = np.floor(np.maximum(most * each, 0.0)).astype(np.int64)
        if credit.any():
            left[cover.types] -= credit
            found.append(Credit(cover, credit))
    return tuple(found)


def collected(given: Sequence[Credit]) -> int:
    """Return what every plan collects of these credits, micro-USD per hour."""
    return sum(least_credit(one.cover, one.each) or 0 for one in given)


def less_credits(given: Sequence[Credit], types: NodeTypes) -> Ints:
    """Return the price (K,) of each type without the credits."""
    price = types.price.copy()
    for one in given:
        np.subtract.at(price, one.cover.types, one.each)
    return price
