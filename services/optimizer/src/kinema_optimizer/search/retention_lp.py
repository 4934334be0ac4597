"""Retention of existing nodes, with every move at a price: one linear program over the whole cluster.

The assignment LP with a choice for each existing node: kept, it costs its price, saves the moves of its pods and gives
its free room to other pods; deleted, its pods are assigned like the rest. Nearly all choices are integral, because
there are far more nodes than rows. Rounded, they are a start for the search that is close to the best trade between
money and moves at that price.

Rows: one per group of classes (all of it has to be placed), then one per resource of each set of existing nodes that
admit the same, and of each machine that the relaxation buys; and one for a limit on the pods that move, whose dual is
the price of a move at which the limit would be kept to by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kinema_optimizer.bounds.assignment_lp import AssignmentSolution, compress, groups_of
from kinema_optimizer.errors import LinearProgramError
from kinema_optimizer.problem.arrays import Flags, Ints
from kinema_optimizer.problem.instance import UNLIMITED, Instance
from kinema_optimizer.problem.node_types import NodeTypes
from kinema_optimizer.solvers.lp import INFINITY, Floats, LinearProgram, Matrix

_LEAST_ROOM = 1 / 64
"""Share of the largest room below which differences do not matter."""
_ARTIFICIAL_COST = 1e3
"""Times the price of everything: what leaving a group out costs."""


@dataclass(frozen=True, eq=False)
class Retention:
    """Nodes worth keeping, and prices."""

    nodes: Flags
    """(E,)"""
    pod_price: Floats
    """(C,) micro-USD per hour for one more pod of the class."""
    move_price: float
    """Micro-USD per hour that one more move would save; 0 where the limit does not bind or there is none."""


class RetentionLp:
    """The linear program of one cluster; solved once per price of moves or limit on them, from the same columns."""

    def __init__(self, problem: Instance, market: NodeTypes, found: AssignmentSolution) -> None:
        self._problem, self._market, self._pod_price = problem, market, found.guiding_price
        self._free = np.flatnonzero(~problem.node_fixed)
        self._machines = found.used[found.used < len(market.price)]
        most = np.maximum(problem.node_room.max(axis=0, initial=0), market.room.max(axis=0, initial=0))
        self._unit = np.maximum(most, 1).astype(np.float64)
        self._room = np.maximum(problem.node_room, 0) / self._unit
        self._group = groups_of(problem.requests, problem.total, market)
        groups = int(self._group.max(initial=-1)) + 1
        self._asked = np.zeros((groups, len(self._unit)))
        np.add.at(self._asked, self._group, problem.requests * problem.total[:, None] / self._unit)
        totals = np.bincount(self._group, weights=problem.total, minlength=groups)
        entry = problem.stays
        group = self._group[entry.classes]
        self._pods = _pods(problem)
        self._share = np.zeros((len(problem.nodes), groups))
        np.add.at(self._share, (entry.node_of, group), entry.counts / np.maximum(totals, 1)[group])
        # Free room is of use only to pods that fit in there: nodes of very different room are different sets.
        size = np.floor(np.log2(np.maximum(self._room, _LEAST_ROOM)))
        _, first, self._set = np.unique(
            np.column_stack([problem.node_row, problem.node_fixed, size]),
            axis=0,
            return_index=True,
            return_inverse=True,
        )
        self._set, self._first = self._set.ravel(), first
        self._sets = len(first)
        self._moves_row = groups + (self._sets + len(self._machines)) * len(self._unit)
        self._kept = compress([self._node(e) for e in self._free.tolist()])
        self._shared, self._bought = self._share_columns()

    def solve(self, move_price: Floats, most: int | None = None) -> Retention:
        """Return which nodes to keep at this price (C,) of moves, micro-USD per hour; at most `most` pods leave.

        Every node where HiGHS fails.
        """
        problem, groups = self._problem, len(self._asked)
        lower = self._least(most)
        unit = max(float(self._market.price.max(initial=1)), float(problem.node_price.max(initial=1)))
        lp = LinearProgram(lower, np.full(len(lower), INFINITY), unit=unit)
        spared = problem.stays.counts * move_price[problem.stays.classes]
        saved = np.bincount(problem.stays.node_of, weights=spared, minlength=len(problem.nodes))
        lp.add(
            (problem.node_price - saved)[self._free].astype(np.float64),
            np.ones(len(self._free)),
            self._kept,
        )
        shares = len(self._shared[0])
        lp.add(np.zeros(shares), np.full(shares, INFINITY), self._shared)
        available = self._market.available[self._machines]
        limit = np.where(available >= UNLIMITED, INFINITY, available)
        lp.add(self._market.price[self._machines].astype(np.float64), limit.astype(np.float64), self._bought)
        dear = _ARTIFICIAL_COST * max(1.0, float(self._market.price.sum() + problem.node_price.sum()))
        slack = np.arange(groups, dtype=np.int32)
        lp.add(np.full(groups, dear), np.full(groups, INFINITY), (slack, slack, np.ones(groups)))
        try:
            found = lp.solve()
        except LinearProgramError:  # numbers too close to each other for HiGHS
            return Retention(np.ones(len(problem.nodes), dtype=bool), self._pod_price, 0.0)
        kept = problem.node_fixed.copy()
        kept[self._free] = found.values[: len(self._free)] > 0.5
        part = (problem.requests / self._unit).sum(axis=1) / np.maximum(self._asked.sum(axis=1), 1e-12)[self._group]
        return Retention(
            kept, np.maximum(found.duals[:groups][self._group] * part, 1.0), max(0.0, float(found.duals[-1]))
        )

    def _least(self, most: int | None) -> Floats:
        """Return the right sides (rows,): fixed nodes give room and place their pods without a choice."""
        fixed, width = self._problem.node_fixed, len(self._unit)
        gone = np.inf if most is None else max(0, most - int(self._problem.rolled @ self._problem.pods))
        staying = max(0.0, self._pods[self._free].sum() - gone)
        needed = 1.0 - self._share[fixed].sum(axis=0)
        given = np.zeros((self._sets + len(self._machines), width))
        np.add.at(given, self._set[fixed], -self._room[fixed])
        return np.concatenate([needed, given.ravel(), [staying]])

    def _node(self, e: int) -> list[tuple[int, float]]:
        """Return the column of an existing node that is kept: it places its pods, gives its free room, spares moves."""
        first = len(self._asked) + int(self._set[e]) * len(self._unit)
        places = [(int(g), float(self._share[e, g])) for g in np.flatnonzero(self._share[e])]
        gives = [(first + r, float(free)) for r, free in enumerate(self._room[e]) if free > 0]
        return [*places, *gives, (self._moves_row, float(self._pods[e]))]

    def _share_columns(self) -> tuple[Matrix, Matrix]:
        """Return columns for the share of each group in each set of nodes and each machine, and for machines bought."""
        problem, market, groups, width = self._problem, self._market, len(self._asked), len(self._unit)
        shares: list[list[tuple[int, float]]] = []
        for one in range(self._sets):
            room = problem.node_room[self._set == one].max(axis=0)
            able = problem.admits[problem.node_row[self._first[one]]] & (problem.requests <= room).all(axis=1)
            shares += self._shares(able, groups + one * width)
        bought: list[list[tuple[int, float]]] = []
        for i, k in enumerate(self._machines.tolist()):
            first = groups + (self._sets + i) * width
            shares += self._shares(market.fits[k] > 0, first)
            room = market.room[k] / self._unit
            bought.append([(first + r, float(part)) for r, part in enumerate(room) if part > 0])
        return compress(shares), compress(bought)

    def _shares(self, able: Flags, first: int) -> list[list[tuple[int, float]]]:
        """Return a column for each group with a class that can go where the room is in rows from `first` on."""
        groups: Ints = np.flatnonzero(np.bincount(self._group, weights=able, minlength=len(self._asked)))
        return [
            [(g, 1.0), *((first + r, -part) for r, part in enumerate(self._asked[g].tolist()) if part > 0)]
            for g in groups.tolist()
            if self._asked[g].any()
        ]


def keep_within_cap(problem: Instance, keep: Flags, most: int) -> Flags:
    """Return the nodes to keep (E,), with enough more that at most `most` pods lose theirs; the cheapest per pod."""
    pods = _pods(problem)
    over = int(pods[~keep].sum() + problem.rolled @ problem.pods) - most
    if over <= 0:
        return keep
    gone = np.flatnonzero(~keep & (pods > 0))
    gone = gone[np.argsort(problem.node_price[gone] / pods[gone], kind="stable")]
    needed = int(np.searchsorted(np.cumsum(pods[gone]), over)) + 1
    kept = keep.copy()
    kept[gone[:needed]] = True
    return kept


def _pods(problem: Instance) -> Floats:
    """Return the movable pods of each node, (E,)."""
    stays = problem.stays
    weights = (stays.counts * problem.pods[stays.classes]).astype(np.float64)
    return np.bincount(stays.node_of, weights=weights, minlength=len(problem.nodes)).astype(np.float64)
