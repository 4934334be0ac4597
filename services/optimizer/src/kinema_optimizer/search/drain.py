"""Plan without a search: nodes go whose pods fit into free room of other nodes, by first fit.

It needs no compiled kernels and little time. It buys no machine and proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from kinema_optimizer.problem.arrays import Ints, by_share, pour
from kinema_optimizer.problem.instance import UNLIMITED, Instance, enemies_of
from kinema_optimizer.problem.solution import Incumbent, filling
from kinema_optimizer.request.objective import price_of_moves
from kinema_optimizer.solvers.stopping import Over


def drain(problem: Instance, over: Over, *, move_price: int | None, max_moves: int | None) -> Incumbent | None:
    """Return the cluster without the nodes whose pods fit on others; None where no node goes.

    Nodes are tried in turn, those first that save most for the room that their pods take, until it is `over`. None goes
    that costs no more than its moves, or whose moves exceed their limit. Where a pod that needs a place in any case
    finds no free room, every node is needed.
    """
    stays, loads = problem.stays, problem.stays.loads(problem.requests)
    unit = np.maximum((problem.node_room + loads).max(axis=0, initial=1), 1)
    room_per_price = (loads / unit).sum(axis=1) / np.maximum(problem.node_price, 1)
    last = np.argsort(np.where(problem.node_fixed, -np.inf, -room_per_price), kind="stable")
    draft, moves = _Draft(problem, unit, last), int(problem.rolled @ problem.pods)
    waiting = problem.pending + problem.rolled
    if not draft.put((c, int(waiting[c])) for c in np.flatnonzero(waiting).tolist()):
        return None
    for e in np.argsort(room_per_price, kind="stable").tolist():
        if over(""):
            break
        if problem.node_fixed[e] or draft.newcomers[e]:
            continue
        pods = stays.of(e)
        more = sum(count * int(problem.pods[c]) for c, count in pods)
        price = price_of_moves(move_price, sum(count * int(problem.disruption_cost[c]) for c, count in pods))
        allowed = max_moves is None or moves + more <= max_moves
        if allowed and price < problem.node_price[e] and draft.drain(e, pods):
            moves += more
    return draft.incumbent() if not draft.keep.all() else None


class _Draft:
    """The cluster with some nodes drained; pods go to the first of the `order` (E,) of nodes that has room."""

    def __init__(self, problem: Instance, unit: Ints, order: Ints) -> None:
        self.keep = np.ones(len(problem.nodes), dtype=bool)
        self.newcomers = np.zeros(len(problem.nodes), dtype=np.int64)
        self._problem, self._order, self._room = problem, order, problem.node_room.copy()
        self._rank = {c: rank for rank, c in enumerate(by_share(problem.requests, unit))}
        self._enemies = enemies_of(problem)
        self._counts: dict[int, Ints] = {}
        """(E,) pods on each node, of each class whose place depends on that."""
        self._taken: list[tuple[int, Ints, Ints]] = []
        """Class, nodes, and newcomers of the class there."""

    def drain(self, e: int, pods: Iterable[tuple[int, int]]) -> bool:
        """Delete a node if its pods find places, and return whether they do."""
        before, self._order = self._order, self._order[self._order != e]
        self.keep[e] = not self.put(pods)
        if self.keep[e]:
            self._order = before
        return not self.keep[e]

    def put(self, pods: Iterable[tuple[int, int]]) -> bool:
        """Place all of these pods, a class and a count each, the largest first; none where one finds no place."""
        first = len(self._taken)
        for c, count in sorted(pods, key=lambda one: self._rank[one[0]]):
            fits = pour(self._problem.requests[c], self._room[self._order], count, self._limit(c)[self._order])
            some = fits > 0
            self._taken.append((c, self._order[some], fits[some]))
            self._add(self._taken[-1], 1)
            if fits.sum() < count:
                for one in self._taken[first:]:
                    self._add(one, -1)
                del self._taken[first:]
                return False
        return True

    def incumbent(self) -> Incumbent:
        """Return the plan."""
        changes: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for c, nodes, counts in self._taken:
            for e, count in zip(nodes.tolist(), counts.tolist(), strict=True):
                changes[e][c] += count
        none = np.zeros(len(self._problem.pending), dtype=np.int64)
        return Incumbent(self.keep, {e: filling(-1, some) for e, some in changes.items()}, [], none)

    def _add(self, taken: tuple[int, Ints, Ints], sign: int) -> None:
        c, nodes, counts = taken
        self.newcomers[nodes] += sign * counts
        self._room[nodes] -= sign * counts[:, None] * self._problem.requests[c]
        if c in self._counts:
            self._counts[c][nodes] += sign * counts

    def _limit(self, c: int) -> Ints:
        """(E,): most newcomers of the class that each node admits, room aside."""
        problem, enemies = self._problem, self._enemies.get(c, ())
        most: Ints = np.where(problem.admits[problem.node_row, c], problem.cap[c], 0)
        if problem.cap[c] < UNLIMITED:
            most = np.clip(most - self._on_nodes(c), 0, most)
        for d in enemies:
            most = np.where(self._on_nodes(d) > 0, 0, most)
        return most

    def _on_nodes(self, c: int) -> Ints:
        if c not in self._counts:
            here, found = self._problem.present, np.zeros(len(self.keep), dtype=np.int64)
            mine = here.classes == c
            np.add.at(found, here.node_of[mine], here.counts[mine])
            for other, nodes, counts in self._taken:
                if other == c:
                    found[nodes] += counts
            self._counts[c] = found
        return self._counts[c]
