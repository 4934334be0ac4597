"""A sharper bound: whole fillings of nodes in place of shares of their room.

The assignment LP lets a node hold two thirds of a pod. Here a type of node is bought with a pattern, pods that
fit on it together. Patterns come from `columns.knapsack_exact`: at the prices of the master program, one that
is worth more than its node is a new column, and where there surely is none the prices are a certificate for that type.
Types with too many fillings to search them all keep their shares of room: what is mixed in this way still bounds every
plan (Gilmore and Gomory 1961; Farley 1990 for prices that are not quite there yet).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from kinema_core.events import Stop
from kinema_optimizer.bounds.assignment_lp import compress
from kinema_optimizer.bounds.certificate import SCALE, Bound, Certificate, Objects, prove_bound, worth_by_room
from kinema_optimizer.columns.generation import Column, ColumnGeneration, Subproblem, bins_of_types
from kinema_optimizer.columns.knapsack import knapsack_duals
from kinema_optimizer.columns.knapsack_exact import UNIT, exact_knapsack
from kinema_optimizer.errors import LinearProgramError
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED, Instance
from kinema_optimizer.problem.node_types import NodeTypes
from kinema_optimizer.problem.solution import NodeLoad
from kinema_optimizer.solvers.lp import INFINITY, Floats, LinearProgram
from kinema_optimizer.solvers.stopping import Ends, StopReason

Pattern: TypeAlias = tuple[int, Ints]
"""A type, and how many pods of each class that has to be placed are on one node of it."""

PHASE: Final = "proof"
_ROUNDS: Final = 400
_LEAST_EXCESS: Final = 1e-6
"""Relative excess of a pattern's worth over its node's price from which it enters."""
_SEARCHED_TYPES: Final = 64
"""Up to so many types also those of which there are only some are searched: existing nodes may be of a thousand."""
_PATIENCE: Final = 2
"""Incomplete pattern searches after which a type is held to shares of its room."""


def pattern_bound(problem: Instance, known: Bound, patterns: Sequence[NodeLoad], ends: Ends) -> tuple[Bound, Stop]:
    """Return the bound by patterns, or the known one where that is no less; and where the search for it ended.

    Args:
        problem: what is bounded.
        known: the bound by shares of room.
        patterns: fillings of machines on sale to begin with.
        ends: asked after each round.
    """
    turn, reason = 0, None
    if not known.proof.pod_price or not _unlimited(known.types):
        return known, Stop(reason="optimal", phase=PHASE, iteration=turn)
    try:
        found, turn, reason = _generate_patterns(problem, known, patterns, ends)
        if reason is None:
            relaxation = _PatternLp(problem, known, found)
            while reason is None and relaxation.improve():
                turn += 1
                reason = ends(turn)
            known = _prove(problem, known, relaxation.prices())
    except LinearProgramError:  # numbers too close to each other for HiGHS
        pass
    return known, Stop(reason=reason or "optimal", phase=PHASE, iteration=turn)


def _generate_patterns(
    problem: Instance, known: Bound, patterns: Sequence[NodeLoad], ends: Ends
) -> tuple[list[Pattern], int, StopReason | None]:
    """Return patterns for all pods by column generation, the rounds that it took, and why it was ended."""
    types, mine = known.types, np.flatnonzero(known.demand)
    free = _unlimited(types)
    places = bins_of_types(types, free, known.demand, mine, {})
    subproblem = Subproblem(
        problem.requests[mine], known.demand[mine], np.zeros(len(mine)), places, (), _price_by_room(known)[mine]
    )
    place_of, row = {k: i for i, k in enumerate(free)}, np.full(len(known.demand), -1)
    row[mine] = np.arange(len(mine))
    generation = ColumnGeneration(subproblem)
    columns = []
    for one in patterns:
        if one.machine in place_of:
            counts = np.zeros(len(mine), dtype=np.int64)
            counts[row[one.classes]] = one.counts
            columns.append(Column(place_of[one.machine], counts))
    generation.add(columns)
    rounds, reason = generation.improve(_ROUNDS, ends=ends)
    return [(free[one.bin], one.counts) for one in generation.columns if one.counts.any()], rounds, reason


def _prove(problem: Instance, known: Bound, prices: Floats) -> Bound:
    """Return the bound that prices (C,) of pods prove, all of them lowered until no type holds more than it costs."""
    types, collected = known.types, known.collected
    most = np.minimum(types.fits, known.demand[None])
    for k in _unlimited(types):
        if float(prices @ known.demand) <= known.value - collected:
            return known
        floor, whole = int(types.price[k]) * UNIT, (prices * UNIT).astype(np.int64)
        prices = prices * (floor / exact_knapsack(whole, problem.requests, types.room[k], most[k], floor=floor).most)
    full = np.ones(types.room.shape[1])
    weights = (problem.requests / np.maximum(room, 1) for room in types.room)
    rooms = [knapsack_duals(prices, one, full, most[k].astype(np.float64)) for k, one in enumerate(weights)]
    return prove_bound(problem, prices, np.array(rooms), known, worth_by_knapsack)


def worth_by_knapsack(
    proof: Certificate, k: int, pods: Objects, requests: Objects, types: NodeTypes, most: Ints
) -> int:
    """Return an upper bound as `certificate.worth_by_room` does, looser where there are too many fillings or types.

    Nodes that stay in any case may hold less than they cost: the bound by room shows that, a search above the price
    does not.
    """
    if types.fixed[k] or (types.available[k] < UNLIMITED and len(types.price) > _SEARCHED_TYPES):
        return worth_by_room(proof, k, pods, requests, types, most)
    coarse = SCALE // UNIT
    prices, asked = np.asarray(-(-pods // coarse), dtype=np.int64), requests.astype(np.int64)
    return coarse * exact_knapsack(prices, asked, types.room[k], most, floor=int(types.price[k]) * UNIT).most


def _price_by_room(known: Bound) -> Floats:
    """Return what a pod of each class (C,) is worth by the known bound, micro-USD per hour."""
    return np.array([price / SCALE for price in known.proof.pod_price])


def _unlimited(types: NodeTypes) -> list[int]:
    """Return the types without limit: the dearer of the others would bound nothing."""
    pooled = {k for pool in types.pools for k in pool.members}
    free = np.flatnonzero((types.available >= UNLIMITED) & ~types.fixed).tolist()
    return [k for k in free if k not in pooled]


class _PatternLp:
    """The master program: a row per class that has to be placed; patterns, and shares of the room of some types."""

    def __init__(self, problem: Instance, known: Bound, patterns: Sequence[Pattern]) -> None:
        types = known.types
        self._searched = _unlimited(types)
        self._unsure = dict.fromkeys(self._searched, 0)
        self._mine = np.flatnonzero(known.demand)
        self._requests, self._room, self._price = problem.requests[self._mine], types.room, types.price
        self._fits = np.minimum(types.fits, known.demand[None])[:, self._mine]
        self._classes = len(problem.pending)
        self._rows = rows = len(self._mine)
        self._used = rows
        dearest = float(types.price.max(initial=1))
        self._lp = LinearProgram(known.demand[self._mine].astype(np.float64), np.full(rows, INFINITY), unit=dearest)
        # Pods that only limited nodes hold are worth what they are by shares: those nodes are not in here.
        able = (self._fits[self._searched] > 0).any(axis=0)
        self._lp.add(
            np.where(able, 20.0 * dearest, _price_by_room(known)[self._mine]),
            np.full(rows, INFINITY),
            compress([[(i, 1.0)] for i in range(rows)]),
        )
        self._add(patterns)

    def _add(self, patterns: Sequence[Pattern]) -> None:
        entries = [[(i, float(counts[i])) for i in np.flatnonzero(counts).tolist()] for _, counts in patterns]
        price = self._price[[k for k, _ in patterns]].astype(np.float64)
        self._lp.add(price, np.full(len(patterns), INFINITY), compress(entries))

    def improve(self) -> bool:
        """Add one round of patterns; return whether any is new."""
        prices = (self.prices()[self._mine] * UNIT).astype(np.int64)
        found: list[Pattern] = []
        wide = []
        for k in self._searched:
            floor = int(self._price[k] * (1 + _LEAST_EXCESS) * UNIT)
            best = exact_knapsack(prices, self._requests, self._room[k], self._fits[k], floor=floor)
            better = bool(best.counts.any())
            if better:
                found.append((k, best.counts))
            self._unsure[k] += not best.sure
            if not best.sure and (not better or self._unsure[k] > _PATIENCE):
                wide.append(k)
        self._add(found)
        for k in wide:
            self._share(k)
        return bool(found or wide)

    def _share(self, k: int) -> None:
        """Let a type be bought in shares of its room: rows for each resource, and for the most of each class."""
        self._searched.remove(k)
        able, width = np.flatnonzero(self._fits[k] > 0).tolist(), len(self._room[k])
        weights = self._requests / np.maximum(self._room[k], 1)
        first = self._used
        limit = first + width
        self._used += width + len(able)
        self._lp.add_rows(np.full(width + len(able), -INFINITY), np.zeros(width + len(able)))
        node = [(first + r, -1.0) for r in range(width)]
        node += [(limit + i, -float(self._fits[k, j])) for i, j in enumerate(able)]
        shares = [
            [(j, 1.0), *((first + r, float(part)) for r, part in enumerate(weights[j]) if part > 0), (limit + i, 1.0)]
            for i, j in enumerate(able)
        ]
        cost = np.zeros(1 + len(able))
        cost[0] = self._price[k]
        self._lp.add(cost, np.full(len(cost), INFINITY), compress([node, *shares]))

    def prices(self) -> Floats:
        """Return what the program pays for a pod of each class (C,), micro-USD per hour."""
        found = np.zeros(self._classes)
        found[self._mine] = np.maximum(self._lp.solve().duals[: self._rows], 0.0)
        return found
