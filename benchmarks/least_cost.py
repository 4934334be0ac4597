"""Lower bound of plans with so many moves: a linear program of the whole cluster, for the frontier's chart.

Existing nodes are kept in part, their pods stay as far as they are kept, and all others go wherever nodes alike,
taken together, have room, machines on sale in fractions. Every plan is a solution of this program, at its own cost and
with its own moves. Rules between pods are left out, and nothing is rounded but by the solver's tolerance of 1e-7.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from kinema_optimizer.bounds.assignment_lp import compress
from kinema_optimizer.problem.arrays import Flags, Ints
from kinema_optimizer.problem.instance import UNLIMITED, Instance
from kinema_optimizer.solvers.lp import INFINITY, LinearProgram

_Column: TypeAlias = list[tuple[int, float]]


class LeastCost:
    """The program of one cluster; asked for any number of moves.

    Rows: the moves; one per class, all of which is placed; one per resource of each set of nodes alike and of each
    machine; and one per class on each node, of which no more stays than is kept of the node.
    """

    def __init__(self, problem: Instance) -> None:
        self._problem = problem
        stays = problem.stays
        room = np.maximum(problem.node_room, 0) + stays.loads(problem.requests)
        alike = np.column_stack([problem.node_row, room])
        _, first, self._set = np.unique(alike, axis=0, return_index=True, return_inverse=True)
        self._set = self._set.ravel()
        self._room = np.concatenate([room, np.maximum(problem.machine_room, 0)])
        self._unit = np.maximum(self._room.max(axis=0, initial=1), 1).astype(np.float64)
        self._rooms = 1 + len(problem.total)
        self._staying = self._rooms + (len(first) + len(problem.machines)) * len(self._unit)
        rows = self._staying + len(stays.counts)
        lower = np.concatenate([[-INFINITY], problem.total, np.zeros(rows - self._rooms)])
        upper = np.full(rows, INFINITY)
        self._lp = LinearProgram(lower, upper, unit=float(max(1, problem.machine_price.max(initial=1))))
        self._keep()
        self._buy(len(first))
        self._place(first)

    def at(self, moves: int) -> float:
        """Micro-USD per hour that no plan with at most so many moves costs less than."""
        row = np.zeros(1, dtype=np.int32)
        self._lp.bound_rows(row, np.full(1, -INFINITY), np.full(1, float(moves)))
        return self._lp.solve().objective + float(self._problem.node_price[self._problem.node_fixed].sum())

    def moves_at(self, cost: int) -> int:
        """Moves that no plan of at most this cost has fewer of, micro-USD per hour; all pods where none is so cheap."""
        low, high = 0, int(self._problem.total.sum())
        while low < high:
            middle = (low + high) // 2
            if self.at(middle) <= cost * (1 + 1e-9):
                high = middle
            else:
                low = middle + 1
        return low

    def _load(self, place: int, c: int) -> _Column:
        """Return the amounts that one pod takes of a set of nodes or of a machine."""
        first = self._rooms + place * len(self._unit)
        asked = self._problem.requests[c] / self._unit
        return [(first + int(r), -float(asked[r])) for r in np.flatnonzero(asked)]

    def _gives(self, place: int, room: Ints) -> _Column:
        first = self._rooms + place * len(self._unit)
        return [(first + int(r), float(room[r] / self._unit[r])) for r in np.flatnonzero(room)]

    def _keep(self) -> None:
        """Existing nodes, without the price of those that stay in any case; pods on them that stay have not moved."""
        problem, stays = self._problem, self._problem.stays
        nodes: list[_Column] = []
        pods: list[_Column] = []
        for e, place in enumerate(self._set.tolist()):
            entries = range(int(stays.start[e]), int(stays.start[e + 1]))
            caps = [(self._staying + entry, float(stays.counts[entry])) for entry in entries]
            nodes.append([*self._gives(place, self._room[e]), *caps])
            for entry in entries:
                c = int(stays.classes[entry])
                pods.append([(1 + c, 1.0), *self._load(place, c), (self._staying + entry, -1.0)])
        self._lp.add(np.where(problem.node_fixed, 0.0, problem.node_price), np.ones(len(nodes)), compress(nodes))
        self._lp.add(np.zeros(len(pods)), stays.counts.astype(np.float64), compress(pods))

    def _buy(self, sets: int) -> None:
        """Machines on sale."""
        problem = self._problem
        rooms = self._room[len(problem.nodes) :]
        bought = [self._gives(sets + m, room) for m, room in enumerate(rooms)]
        most = np.where(problem.machine_available >= UNLIMITED, INFINITY, problem.machine_available)
        self._lp.add(problem.machine_price.astype(np.float64), most.astype(np.float64), compress(bought))

    def _place(self, first: Ints) -> None:
        """Pods that move, to any set of nodes or machine one of which could hold one of them."""
        problem, nodes = self._problem, len(self._problem.nodes)
        able = problem.admits[np.concatenate([problem.node_row[first], problem.machine_row])]
        rooms = np.concatenate([self._room[first], self._room[nodes:]])
        found: list[_Column] = []
        for place, room in enumerate(rooms):
            holds: Flags = able[place] & (problem.requests <= room).all(axis=1)
            found += [[(0, 1.0), (1 + c, 1.0), *self._load(place, c)] for c in np.flatnonzero(holds).tolist()]
        self._lp.add(np.zeros(len(found)), np.full(len(found), INFINITY), compress(found))
