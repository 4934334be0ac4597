"""A first plan from the assignment relaxation: open its nodes, deal its shares, finish with knapsacks.

Every kind of node that the relaxation uses is opened as often as it says, in whole nodes, and gets its share of every
class dealt evenly, so that all of its nodes have the mix that fits them best. What finds no room goes to the tightest
nodes open, and the rest to new nodes, each time the kind that the most valuable filling pays best for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.adapters.assignment import Relaxation
from kinema_optimizer.adapters.columns import Place, filled
from kinema_optimizer.adapters.dealing import best_fit, deal
from kinema_optimizer.adapters.lp import Floats
from kinema_optimizer.logic.kinds import Kinds
from kinema_optimizer.logic.packing import among
from kinema_optimizer.logic.problem import Ints
from kinema_optimizer.logic.state import Filling

_FINISHING_WIDTH = 16
_REFILLING_WIDTH = 12
_CANDIDATES = 60
"""Classes of pods left over that a node is offered when it is filled anew."""
_REFILLED = 600
"""Nodes that are filled anew, those with most room first: with thousands the first plan would take seconds longer."""
_NEARLY = 0.8
"""Part of a node from which it is opened as a whole: what less of a large machine would hold, a small one does."""


def construct(
    requests: Ints, demand: Ints, kinds: Kinds, relaxation: Relaxation, enemies: Mapping[int, tuple[int, ...]]
) -> tuple[list[Filling], Ints]:
    """New nodes for all of `demand` (C,), and what of it (C,) no machine is left for; `kinds` are all on sale."""
    order = np.argsort(-(requests / np.maximum(np.median(kinds.room, axis=0), 1)).max(axis=1), kind="stable")
    fits = np.ascontiguousarray(kinds.fits[:, order])
    mine = _Ordered(order, requests[order], fits, among(enemies, order))
    left = demand[order]
    row, room, content = _dealt(mine, left, kinds, relaxation)
    price, free = relaxation.guiding_price[order], (room / np.maximum(kinds.room[row], 1)).min(axis=1)
    for b in np.argsort(-free, kind="stable")[:_REFILLED].tolist() if left.any() else ():
        k = int(row[b])
        refill(mine.requests, price, content[b], left, room=kinds.room[k], fits=mine.fits[k], enemies=mine.enemies)
    for one in content if enemies else ():
        _part(one, left, mine.enemies)
    rest = np.zeros_like(left)
    rest[order] = left
    taken = _fillings(row, content, order)
    used = np.bincount([one.machine for one in taken], minlength=len(kinds.price)).astype(np.int64)
    return taken + finish(requests, rest, kinds, relaxation, enemies=enemies, used=used), rest


@dataclass(frozen=True, eq=False)
class _Ordered:
    """The classes, largest first: every array of them is in that order."""

    order: Ints
    """(C,) class at each position."""
    requests: Ints
    """(C, R)"""
    fits: Ints
    """(K, C) most pods of each on a node of each kind."""
    enemies: Mapping[int, tuple[int, ...]]
    """By position."""


def _dealt(mine: _Ordered, left: Ints, kinds: Kinds, relaxation: Relaxation) -> tuple[Ints, Ints, NDArray[np.int32]]:
    """(B,) kinds of the nodes opened, (B, R) room left there, and (B, C) the pods on them; `left` (C,) is lowered."""
    count = np.floor(relaxation.nodes[relaxation.used] + (1 - _NEARLY))
    count = np.maximum(np.minimum(count, kinds.available[relaxation.used]), 0).astype(np.int64)
    row = np.repeat(relaxation.used, count)
    room, content = kinds.room[row], np.zeros((len(row), len(left)), dtype=np.int32)
    first = np.cumsum(count) - count
    for u in np.flatnonzero(count).tolist():
        k, opened = int(relaxation.used[u]), slice(int(first[u]), int(first[u] + count[u]))
        share = np.minimum(np.rint(relaxation.shares[u, mine.order]).astype(np.int64), left)
        share[mine.fits[k] == 0] = 0
        rest = share.copy()
        deal(mine.requests, rest, mine.fits[k], room[opened], content[opened])
        left -= share - rest
    if len(row) and left.any():
        open_, which = np.unique(row, return_inverse=True)
        best_fit(mine.requests, left, mine.fits[open_], which, room, content)
    return row, room, content


def _fillings(row: Ints, content: NDArray[np.int32], order: Ints) -> list[Filling]:
    """The nodes that hold anything."""
    node, column = np.nonzero(content)
    classes, counts = order[column], content[node, column].astype(np.int64)
    sequence = np.lexsort((classes, node))
    node, classes, counts = node[sequence], classes[sequence], counts[sequence]
    cuts = np.flatnonzero(np.diff(node)) + 1
    parts = zip(np.split(node, cuts), np.split(classes, cuts), np.split(counts, cuts), strict=True)
    return [Filling(int(row[nodes[0]]), *filled_) for nodes, *filled_ in parts if len(nodes)]


def refill(
    requests: Ints,
    pod_price: Floats,
    row: Ints | NDArray[np.int32],
    left: Ints,
    *,
    room: Ints,
    fits: Ints,
    enemies: Mapping[int, tuple[int, ...]],
) -> None:
    """Fill a node anew from its own pods and from what is `left` (C,), if that makes its pods worth more.

    `row` (C,) are its pods and `left` those left over: both are changed. `room` (R,) is all that it has, `fits` (C,)
    the most of each class.
    """
    own = np.flatnonzero(row)
    others = np.flatnonzero((left > 0) & (fits > 0) & (row == 0))
    if len(others) > _CANDIDATES:  # a sample that differs from node to node, and not from run to run
        others = others[(np.arange(_CANDIDATES) * len(others) // _CANDIDATES + int(row.sum())) % len(others)]
    mine = np.unique(np.concatenate([own, others]))
    if not others.size and not left[own].any():
        return
    most = np.minimum(fits[mine], row[mine] + left[mine])
    place = _place(room, most, among(enemies, mine))
    counts, worth = filled(requests[mine], pod_price[mine], place, _REFILLING_WIDTH)
    if worth > float(pod_price[own] @ row[own]) * (1 + 1e-9):
        left[mine] += row[mine] - counts
        row[mine] = counts


def _place(room: Ints, most: Ints, enemies: Mapping[int, tuple[int, ...]]) -> Place:
    """A new node with this room (R,) for at most so many pods of each class (n,)."""
    nobody = np.zeros_like(most)
    return Place(0.0, room, most, nobody, nobody, 1, enemies)


def _part(row: NDArray[np.int32], left: Ints, enemies: Mapping[int, tuple[int, ...]]) -> None:
    """Take classes from a node that may not meet others of it; the smaller class index stays."""
    for c in np.flatnonzero(row).tolist():
        if c in enemies and any(row[d] and d < c for d in enemies[c]):
            left[c] += row[c]
            row[c] = 0


def finish(
    requests: Ints,
    left: Ints,
    kinds: Kinds,
    relaxation: Relaxation,
    *,
    enemies: Mapping[int, tuple[int, ...]],
    used: Ints,
) -> list[Filling]:
    """New nodes one kind after another for what is left, which is lowered; each time the best paid filling.

    The less is left, the less a kind is paid for: those that were paid too little before are not looked at again.
    """
    made: list[Filling] = []
    paid = np.full(len(kinds.price), np.inf)
    while left.any():
        mine = np.flatnonzero(left)
        apart = among(enemies, mine)
        best, counts = -1, np.zeros(0, dtype=np.int64)
        for k in np.argsort(-paid, kind="stable").tolist():
            if best >= 0 and paid[k] <= paid[best]:
                break
            most = np.minimum(kinds.fits[k][mine], left[mine])
            if used[k] >= kinds.available[k] or _pool_full(kinds, used, k) or not most.any():
                paid[k] = 0.0
                continue
            place, prices = _place(kinds.room[k], most, apart), relaxation.guiding_price[mine]
            filling, worth = filled(requests[mine], prices, place, _FINISHING_WIDTH)
            paid[k] = worth / max(1.0, float(kinds.price[k]))
            if filling.any() and (best < 0 or paid[k] > paid[best] * (1 + 1e-9)):
                best, counts = k, filling
        if best < 0:
            return made
        taken = counts > 0
        times = int((left[mine][taken] // counts[taken]).min())
        times = max(1, min(times, int(kinds.available[best] - used[best])))
        left[mine] -= counts * times
        used[best] += times
        made += [Filling(best, mine[taken], counts[taken])] * times
    return made


def _pool_full(kinds: Kinds, used: Ints, k: int) -> bool:
    return any(k in members and int(used[list(members)].sum()) >= limit for members, limit in kinds.pools)
