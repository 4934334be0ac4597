"""Ruin and recreate: the quick step of the search, and what ends the other kind.

Some nodes are emptied, the others filled anew from their own pods and from those that lost their node, and what is left
over goes to new nodes. One try takes a millisecond where column generation takes a second, which pays where hardly two
pods are alike and a master program has a row for each of them. All of it is compiled (`recreate`) and leaves the
interpreter to others meanwhile.
"""

from __future__ import annotations

import numpy as np

from kinema_optimizer.adapters.columns import Column
from kinema_optimizer.adapters.neighbourhood import View
from kinema_optimizer.adapters.recreate import Job, recreate


def tried(view: View, nodes: list[Column], *, tries: int, seed: tuple[int, ...]) -> list[Column]:
    """Nodes that cost less than these for the same pods, where so many tries find some."""
    if not nodes or not len(view.mine):
        return nodes
    places = np.array([one.place for one in nodes], dtype=np.int64)
    counts = np.stack([one.counts for one in nodes])
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    _, places, counts = recreate(_job(view), places, counts, tries, start)
    return [Column(place, row) for place, row in zip(places.tolist(), counts, strict=True)]


def _job(view: View) -> Job:
    """The view's task as arrays."""
    task, classes = view.task, range(len(view.mine))
    apart = next((place.enemies for place in task.places), {})  # the same for all places
    others = [apart.get(c, ()) for c in classes]
    most = np.stack([place.most for place in task.places])
    for p, place in enumerate(task.places):
        for c, enemies in place.enemies.items():
            if any(place.base[d] for d in enemies):
                most[p, c] = 0
    return Job(
        requests=task.requests,
        guess=task.guess,
        move_price=task.move_price,
        price=np.array([place.price for place in task.places]),
        room=np.stack([place.room for place in task.places]),
        most=most,
        base=np.stack([place.base for place in task.places]),
        own=np.stack([place.own for place in task.places]),
        limit=np.array([place.limit for place in task.places], dtype=np.int64),
        existing=len(view.existing),
        enemy_start=np.concatenate([[0], np.cumsum([len(one) for one in others])]).astype(np.int64),
        enemies=np.array([d for one in others for d in one], dtype=np.int64),
    )
