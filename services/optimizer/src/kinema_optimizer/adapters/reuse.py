"""Existing nodes instead of new ones that are no cheaper: a plan made anew for less money, with fewer moves.

Where a deleted node has the room of a new one for no more money, it can take that one's place; whoever is on both need
not move. Pairs with most moves to save come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kinema_optimizer.logic.packing import PackingProblem
from kinema_optimizer.logic.problem import Flags, Ints
from kinema_optimizer.logic.state import NOTHING, Filling, State, filling

_PAIRS: Final = 1_000_000
"""Pairs of a new node and an existing one that are looked at, for each class of pods that they share."""


def with_reused(problem: PackingProblem, state: State) -> State:
    """The state with deleted nodes kept in the place of new ones."""
    reusable = _reusable(problem, state)
    booted, nodes, saved = _common(problem, state.boots, reusable)
    order = np.lexsort((nodes, booted, -saved))
    after = state.copy()
    taken: set[int] = set()
    for b, e in zip(booted[order].tolist(), nodes[order].tolist(), strict=True):
        if b in taken or after.keep[e]:
            continue
        if not problem.admits[problem.node_row[e], state.boots[b].classes].all():
            continue
        taken.add(b)
        after.keep[e] = True
        after.changes[e] = _change(problem, state.boots[b], e)
        if not after.changes[e].classes.size:
            after.changes.pop(e)
    after.boots = [one for b, one in enumerate(state.boots) if b not in taken]
    return after


def _reusable(problem: PackingProblem, state: State) -> Flags:
    """(E,): deleted nodes that may give all of their pods up."""
    bound = np.bincount(
        problem.stays.node_of, weights=~problem.leaves[problem.stays.classes], minlength=len(problem.nodes)
    )
    return np.asarray(~state.keep & problem.gives & (bound == 0))


def _common(problem: PackingProblem, boots: Sequence[Filling], reusable: Flags) -> tuple[Ints, Ints, Ints]:
    """New nodes, existing ones that can replace them and have pods of the same classes, and what moves that saves."""
    stays = problem.stays
    entry = np.flatnonzero(reusable[stays.node_of])
    entry = entry[np.argsort(stays.classes[entry], kind="stable")]
    first = np.searchsorted(stays.classes[entry], np.arange(len(problem.pending) + 1))
    room = problem.node_room + problem.stays.loads(problem.requests)
    most = max(1, _PAIRS // max(1, sum(one.classes.size for one in boots)))
    pairs, saved = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for b, one in enumerate(boots):
        fits = (problem.node_price <= problem.machine_price[one.machine]) & reusable
        fits &= (room >= one.counts @ problem.requests[one.classes]).all(axis=1)
        for c, count in zip(one.classes.tolist(), one.counts.tolist(), strict=True):
            mine = entry[first[c] : first[c + 1]]
            mine = mine[fits[stays.node_of[mine]]][:most]
            pairs.append(b * len(problem.nodes) + stays.node_of[mine])
            saved.append(np.minimum(stays.counts[mine], count) * problem.disruption[c])
    found, index = np.unique(np.concatenate(pairs), return_inverse=True)
    total = np.bincount(index, weights=np.concatenate(saved), minlength=len(found)).astype(np.int64)
    return found // max(1, len(problem.nodes)), found % max(1, len(problem.nodes)), total


def _change(problem: PackingProblem, boot: Filling, e: int) -> Filling:
    """What changes on the existing node when it holds exactly these pods."""
    counts = dict(zip(boot.classes.tolist(), boot.counts.tolist(), strict=True))
    for c, count in problem.stays.of(e):
        counts[c] = counts.get(c, 0) - count
    found = filling(-1, counts)
    return found if found.classes.size else NOTHING
