"""A first plan from the assignment relaxation: open its nodes, deal its shares, finish with knapsacks.

Every kind of node that the relaxation uses is opened as often as it says, in whole nodes, and gets its share of every
class dealt evenly, so that all of its nodes have the mix that fits them best. What finds no room goes to the tightest
nodes open, and the rest to new nodes, each time the kind that the most valuable filling pays best for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.adapters.assignment import Relaxation
from kinema_optimizer.adapters.columns import Place, filled, offered
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
_NEARLY = 0.8
"""Part of a node from which it is opened as a whole: what less of a large machine would hold, a small one does."""


def construct(
    requests: Ints, demand: Ints, kinds: Kinds, relaxation: Relaxation, enemies: Mapping[int, tuple[int, ...]]
) -> tuple[list[Filling], Ints]:
    """New nodes for all of `demand` (C,), and what of it (C,) no machine is left for; `kinds` are all on sale."""
    left = demand.copy()
    nodes, rooms, contents = [], [], []
    used = np.zeros(len(kinds.price), dtype=np.int64)
    order = np.argsort(-(requests / np.maximum(np.median(kinds.room, axis=0), 1)).max(axis=1), kind="stable")
    for u, k in enumerate(relaxation.used.tolist()):
        count = int(min(np.floor(relaxation.nodes[k] + (1 - _NEARLY)), kinds.available[k]))
        if count <= 0:
            continue
        share = np.minimum(np.rint(relaxation.shares[u]).astype(np.int64), left)
        share[kinds.fits[k] == 0] = 0
        given, room = share[order], np.repeat(kinds.room[k][None], count, axis=0)
        content = np.zeros((count, len(demand)), dtype=np.int32)
        deal(requests[order], given, kinds.fits[k][order], room, content)
        put = np.zeros_like(content)
        put[:, order] = content
        left -= put.sum(axis=0)
        used[k] += count
        nodes += [k] * count
        rooms.append(room)
        contents.append(put)
    if nodes and left.any():
        _squeeze(requests, left, kinds, order, np.array(nodes), rooms, contents)
    rows = [row for content in contents for row in content]
    for k, row in zip(nodes, rows, strict=True) if left.any() else ():
        refill(requests, relaxation.guiding_price, row, left, room=kinds.room[k], fits=kinds.fits[k], enemies=enemies)
    for row in rows if enemies else ():
        _part(row, left, enemies)
    fillings = [
        Filling(k, np.flatnonzero(row), row[row > 0].astype(np.int64)) for k, row in zip(nodes, rows, strict=True)
    ]
    taken = [one for one in fillings if one.classes.size]
    used = np.bincount([one.machine for one in taken], minlength=len(used)).astype(np.int64)
    return taken + finish(requests, left, kinds, relaxation, enemies=enemies, used=used), left


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
    offer = offered(requests[mine], _place(room, most, among(enemies, mine)))
    counts, worth, _ = filled(offer, pod_price[mine], np.zeros(len(mine)), left=most, width=_REFILLING_WIDTH)
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


def _squeeze(
    requests: Ints,
    left: Ints,
    kinds: Kinds,
    order: Ints,
    nodes: Ints,
    rooms: list[Ints],
    contents: list[NDArray[np.int32]],
) -> None:
    """Best fit of what is left into the nodes open."""
    opened, row = np.unique(nodes, return_inverse=True)
    room, content = np.concatenate(rooms), np.concatenate(contents)[:, order].copy()
    rest = left[order]
    most = np.ascontiguousarray(kinds.fits[opened][:, order])
    best_fit(requests[order], rest, most, row, room, content)
    back = np.zeros_like(content)
    back[:, order] = content
    left[order] = rest
    start = 0
    for i, one in enumerate(contents):
        contents[i] = back[start : start + len(one)]
        start += len(one)


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
            offer, prices = offered(requests[mine], _place(kinds.room[k], most, apart)), relaxation.guiding_price[mine]
            filling, worth, _ = filled(offer, prices, np.zeros(len(mine)), left=most, width=_FINISHING_WIDTH)
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
