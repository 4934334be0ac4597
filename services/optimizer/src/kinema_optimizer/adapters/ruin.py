"""Ruin and recreate: the quick step of the search, for nodes that hold few pods of many classes each.

Some nodes are emptied, the others filled anew from their own pods and from those that lost their node, and what is left
over goes to new nodes. One try takes milliseconds where column generation takes a second, which pays where hardly two
pods are alike and a master program has a row for each of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kinema_optimizer.adapters.columns import Column, Place, filled, offered, part
from kinema_optimizer.adapters.lp import Floats
from kinema_optimizer.adapters.neighbourhood import BETTER, Exchange, Guide, Step, View, view_of
from kinema_optimizer.logic.problem import Ints

_WIDTH: Final = 10
_NOISE: Final = 0.03
"""Relative disturbance of the prices of pods, so that no two tries fill alike."""
_EMPTIED: Final = 0.3
"""Most nodes that a try empties, as a share."""
_SAMPLE: Final = 80
"""Classes of the pool that a node is offered."""
_MARKET: Final = 8
"""Machines that a try looks at for what is left over."""


def ruin(guide: Guide, step: Step, *, tries: int, seed: tuple[int, ...]) -> Exchange | None:
    """A cheaper exchange for the step, if so many tries find one."""
    view = view_of(guide, step)
    draw = np.random.default_rng(seed)
    now = view.current()
    before = cost = view.cost(now)
    for _ in range(tries):
        made = _try(view, now, draw)
        if made is not None and (after := view.cost(made)) < cost - BETTER:
            now, cost = made, after
    return view.exchange(now, before - cost) if cost < before - BETTER else None


def _try(view: View, now: list[Column], draw: np.random.Generator) -> list[Column] | None:
    """The nodes with some of them emptied and their pods elsewhere; None where not every pod finds a place."""
    task = view.task
    values = task.guess * (1 + _NOISE * draw.standard_normal(len(task.guess)))
    worth = np.array([float(task.guess @ (one.counts + task.places[one.place].base)) for one in now])
    price = np.array([task.places[one.place].price for one in now])
    # Nodes that cost more than their pods are worth come first, and nodes that stay in any case not at all.
    keys = draw.gumbel(size=len(now)) + 20 * (price - worth) / np.maximum(price, 1.0)
    count = 1 + int(max(1, _EMPTIED * len(now)) * draw.random() ** 2)
    emptied = [i for i in np.argsort(-keys, kind="stable").tolist() if price[i] > 0][:count]
    pool = np.zeros(len(task.demand), dtype=np.int64)
    for i in emptied:
        pool += now[i].counts + task.places[now[i].place].base
    gone = set(emptied)
    made = []
    for i in draw.permutation([i for i in range(len(now)) if i not in gone]).tolist():
        one, place = now[i], task.places[now[i].place]
        counts = _refilled(view, place, one.counts, pool, values=values, draw=draw)
        pool += one.counts - counts
        if place.base.any() or counts.any() or place.price == 0:
            made.append(Column(one.place, counts))
    rest = _on_new_nodes(view, values, pool, made, draw)
    return None if rest is None else [view.cheapest(one) for one in (*made, *rest)]


def _refilled(view: View, place: Place, own: Ints, pool: Ints, *, values: Floats, draw: np.random.Generator) -> Ints:
    """(n,) what a node holds of its own pods and of a sample of the pool's classes."""
    free = np.flatnonzero((pool > 0) & (place.most > 0) & (own == 0))
    if len(free) > _SAMPLE:
        free = draw.choice(free, _SAMPLE, replace=False)
    mine = np.sort(np.concatenate([np.flatnonzero(own), free]))
    counts = np.zeros_like(own)
    if len(mine):
        offer = offered(view.task.requests[mine], part(place, mine))
        left, moves = (own + pool)[mine], view.task.move_price[mine]
        counts[mine] = filled(offer, values[mine], moves, left=left, width=_WIDTH)[0]
    return counts


def _on_new_nodes(
    view: View, values: Floats, pool: Ints, made: list[Column], draw: np.random.Generator
) -> list[Column] | None:
    """New nodes for the pool, each time the best paid filling; None where a pod fits none that can be had."""
    task, first = view.task, len(view.existing)
    used = np.bincount([one.place for one in made], minlength=len(task.places))
    nobody = np.zeros_like(pool)
    found: list[Column] = []
    while pool.any():
        best: tuple[float, Column | None] = (0.0, None)
        market = first + draw.permutation(len(task.places) - first)
        looked = 0
        for i in market.tolist():
            place = task.places[i]
            if used[i] >= place.limit or (looked >= _MARKET and best[1] is not None):
                continue
            looked += 1
            counts = _refilled(view, place, nobody, pool, values=values, draw=draw)
            worth = float(values @ counts)
            # A last node is as good as the cheapest machine that holds what is on it.
            column = view.cheapest(Column(i, counts))
            paid = worth / max(1.0, task.places[column.place].price)
            if paid > best[0]:
                best = (paid, column)
        chosen = best[1]
        if chosen is None:
            return None
        used[chosen.place] += 1
        pool = pool - chosen.counts
        found.append(chosen)
    return found
