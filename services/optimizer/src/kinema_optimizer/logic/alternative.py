"""Where the pods of some nodes would go if those nodes were deleted, and what that would cost at least roughly.

By first fit, largest pods first: into the room that other nodes have free, then onto new machines. It obeys every rule,
so what it finds can be done; a search may find something cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kinema_optimizer.logic.packing import UNLIMITED, PackingProblem, enemies_of
from kinema_optimizer.logic.problem import Ints, by_share, most_that_fit, pour


@dataclass(frozen=True)
class Alternative:
    """What became of the pods of deleted nodes."""

    onto: Mapping[int, Mapping[int, int]]
    """Existing node → class → pods of it that the node takes."""
    boots: tuple[tuple[int, Mapping[int, int]], ...]
    """Machine of each new node, and what it takes in the same way."""
    price: int
    """Of the new nodes together, micro-USD per hour."""
    homeless: tuple[tuple[int, int], ...]
    """(class, pods) that neither node nor machine on sale can take."""


def without(problem: PackingProblem, nodes: Sequence[int]) -> Alternative:
    """The cheaper of using free room first and of new machines alone; what leaves nobody homeless comes first."""
    shop = _Shop(problem, frozenset(nodes))
    found = [shop.placed(use_room=True), shop.placed(use_room=False)]
    return min(found, key=lambda one: (sum(n for _, n in one.homeless), one.price, len(one.boots)))


@dataclass(frozen=True, eq=False)
class _Shop:
    problem: PackingProblem
    gone: frozenset[int]

    def placed(self, *, use_room: bool) -> Alternative:
        """Place the pods of the nodes that go."""
        left = self._displaced()
        onto: dict[int, dict[int, int]] = {}
        if use_room:
            for c in by_share(self.problem.requests, self._largest):
                if left[c]:
                    left[c] -= self._poured(c, int(left[c]), onto)
        boots, left = self._bought(left)
        price = sum(int(self.problem.machine_price[machine]) for machine, _ in boots)
        homeless = tuple((int(c), int(left[c])) for c in np.flatnonzero(left))
        return Alternative(onto, tuple(boots), price, homeless)

    def _displaced(self) -> Ints:
        gone = np.zeros(len(self.problem.nodes), dtype=bool)
        gone[sorted(self.gone)] = True
        return self.problem.stays.totals(len(self.problem.pending), gone)

    @cached_property
    def _largest(self) -> Ints:
        rooms = np.concatenate([self.problem.machine_room, self.problem.node_room])
        return np.asarray(rooms.max(axis=0, initial=1), dtype=np.int64)

    @cached_property
    def _enemies(self) -> Mapping[int, tuple[int, ...]]:
        return enemies_of(self.problem)

    # --- free room on existing nodes; what is poured counts for the classes after it

    def _poured(self, c: int, left: int, onto: dict[int, dict[int, int]]) -> int:
        problem = self.problem
        may = problem.admits[problem.node_row, c].copy()
        may[sorted(self.gone)] = False
        for enemy in self._enemies.get(c, ()):
            may &= self._here[enemy] == 0 if enemy in self._here else self._count(enemy) == 0
        limit = np.where(may, left, 0)
        if problem.cap[c] < UNLIMITED:
            limit = np.minimum(limit, np.maximum(problem.cap[c] - self._count(c), 0))
        put = pour(problem.requests[c], self._spare, left, limit)
        self._spare[:] -= put[:, None] * problem.requests[c]
        self._count(c)[:] += put
        for e in np.flatnonzero(put).tolist():
            onto.setdefault(e, {})[c] = int(put[e])
        return int(put.sum())

    @cached_property
    def _spare(self) -> Ints:
        return self.problem.node_room.copy()

    @cached_property
    def _here(self) -> dict[int, Ints]:
        return {}

    def _count(self, c: int) -> Ints:
        """(E,): pods of a class on each node, newcomers included."""
        if c not in self._here:
            stays = self.problem.stays
            mine = stays.classes == c
            self._here[c] = np.bincount(
                stays.node_of[mine], weights=stays.counts[mine], minlength=len(self.problem.nodes)
            ).astype(np.int64)
        return self._here[c]

    # --- new machines: one for all the rest if that is cheaper than those that are filled best for their price

    def _bought(self, left: Ints) -> tuple[list[tuple[int, Mapping[int, int]]], Ints]:
        stock = _Stock(self.problem)
        bought: list[tuple[int, Mapping[int, int]]] = []
        spent = 0
        whole: tuple[int, list[tuple[int, Mapping[int, int]]]] | None = None
        left = left.copy()
        while left.any():
            fills = {m: self._fill(m, left) for m in range(len(self.problem.machines)) if stock.left(m) > 0}
            fills = {m: counts for m, counts in fills.items() if counts.any()}
            if not fills:
                break
            for m, counts in fills.items():
                price = spent + int(self.problem.machine_price[m])
                if (counts == left).all() and (whole is None or price < whole[0]):
                    whole = (price, [*bought, (m, _named(counts))])
            machine = min(fills, key=lambda m: (*self._rate(m, fills[m]), m))
            bought.append((machine, _named(fills[machine])))
            stock.take(machine)
            spent += int(self.problem.machine_price[machine])
            left = left - fills[machine]
        if whole is not None and (left.any() or whole[0] <= spent):
            return whole[1], np.zeros_like(left)
        return bought, left

    def _rate(self, machine: int, counts: Ints) -> tuple[float, int]:
        """Price per worth of what it takes; smaller is better."""
        price = int(self.problem.machine_price[machine])
        return price / max(1.0, float(counts @ self._worth)), price

    @cached_property
    def _worth(self) -> Ints:
        """(C,): what one pod costs on the machine that is cheapest for it."""
        problem = self.problem
        share = (problem.requests[:, None, :] / np.maximum(problem.machine_room, 1)[None]).max(axis=2, initial=0.0)
        share = np.where(problem.admits[problem.machine_row].T, share, np.inf)
        worth = (share * np.maximum(problem.machine_price, 1)).min(axis=1, initial=np.inf)
        return np.where(np.isfinite(worth), np.ceil(worth), 0).astype(np.int64)

    def _fill(self, machine: int, left: Ints) -> Ints:
        """(C,): what one new machine takes of the pods left, largest share of it first."""
        problem = self.problem
        room = problem.machine_room[machine].copy()
        counts = np.zeros_like(left)
        wanted = [c for c in np.flatnonzero(left).tolist() if problem.admits[problem.machine_row[machine], c]]
        share = (problem.requests[wanted] / np.maximum(room, 1)).max(axis=1, initial=0.0)
        for _, c in sorted(zip((-share).tolist(), wanted, strict=True)):
            if any(counts[enemy] for enemy in self._enemies.get(c, ())):
                continue
            fits = int(most_that_fit(problem.requests[c : c + 1], room)[0])
            counts[c] = min(int(left[c]), int(problem.cap[c]), fits)
            room = room - counts[c] * problem.requests[c]
        return counts


def _named(counts: Ints) -> Mapping[int, int]:
    return {int(c): int(counts[c]) for c in np.flatnonzero(counts)}


class _Stock:
    """How many of each machine can still be bought."""

    def __init__(self, problem: PackingProblem) -> None:
        self._count: list[int] = problem.machine_available.tolist()
        self._pools = [(frozenset(members), [limit]) for members, limit in problem.pools]

    def left(self, machine: int) -> int:
        return min([self._count[machine], *(limit[0] for members, limit in self._pools if machine in members)])

    def take(self, machine: int) -> None:
        self._count[machine] -= 1
        for members, limit in self._pools:
            if machine in members:
                limit[0] -= 1
