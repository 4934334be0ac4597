"""The assignment LP: shares of pod classes are assigned to node types, which are bought in fractions.

On clusters of hundreds of nodes its optimum lies within hundredths of a percent of what patterns of pods reach, and it
is small: classes times types in use. A type enters when, at the prices of the pods, its best fractional filling is
worth more than the node costs. The prices become a certificate (`bounds.certificate`) and guide the search; the shares
become a first plan (`search.first_plan`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.bounds.covers import NO_ROWS, CoverRows
from kinema_optimizer.columns.knapsack import knapsack_dual_bound, knapsack_duals
from kinema_optimizer.errors import LinearProgramError
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED
from kinema_optimizer.problem.node_types import NodeTypes
from kinema_optimizer.solvers.lp import INFINITY, Floats, LinearProgram, Matrix

_LEAST_EXCESS = 1e-6
"""Relative excess of a type's worth over its price from which it enters."""
_NEGLIGIBLE = 1e-7
_SINGLE_CLASSES = 600
"""Up to so many classes each is a group by itself."""
_DIRECTION_STEPS = 20
"""Steps from asking for nothing of a resource to asking for nothing else."""
_ENTERING_ROUNDS = 12
"""Rounds in which types and limits may enter."""


@dataclass(frozen=True, eq=False)
class AssignmentSolution:
    """An optimum over some of the node types, and prices that hold for all types after scaling."""

    pod_price: Floats
    """(C,) micro-USD per hour for one more pod of the class."""
    room_price: Floats
    """(K, R) what the room of one node of the type is worth per resource, micro-USD per hour for all of it."""
    nodes: Floats
    """(K,) nodes of each type, in fractions."""
    used: NDArray[np.int64]
    """(U,) types that hold anything."""
    shares: Floats
    """(U, C) pods of each class on each of those, in fractions."""
    cover_price: Floats
    """(N,) what one more of each cover's least would cost, micro-USD per hour."""

    @property
    def guiding_price(self) -> Floats:
        """(C,) prices for filling nodes: a pod without price would never be put anywhere."""
        return np.maximum(self.pod_price, 1.0)


def solve_assignment_lp(
    requests: Ints, demand: Ints, types: NodeTypes, rows: CoverRows = NO_ROWS
) -> AssignmentSolution:
    """Solve the assignment LP.

    Args:
        requests: (C, R).
        demand: (C,) pods to place, all of which some type holds.
        types: of nodes.
        rows: of whole nodes that pods need in any case.
    """
    model = _AssignmentLp(requests, demand, types, rows)
    try:
        model.add_types(_types_by_sums(requests, demand, types))
        for left in range(_ENTERING_ROUNDS, -1, -1):
            model.solve()
            model.price_types()
            better = model.improving_types()
            if not left or not (model.add_limits() or better.size):
                break
            model.add_types(better)
    except LinearProgramError:  # the prices before, scaled, certify a bound and guide a search all the same
        model.price_types()
    model.scale_duals()
    return model.solution()


def _types_by_sums(requests: Ints, demand: Ints, types: NodeTypes) -> Ints:
    """Return the types of the cheapest cover of summed requests, for each set of classes that fit the same types."""
    chosen = set(np.flatnonzero(types.fixed).tolist())
    signature = _signatures(types)
    limited = types.available < UNLIMITED
    for g in np.unique(signature[demand > 0]).tolist():
        mine = (signature == g) & (demand > 0)
        total = (requests[mine] * demand[mine, None]).sum(axis=0).astype(np.float64)
        members = np.flatnonzero((types.fits[:, mine][:, 0] > 0) & ~types.fixed)
        if not members.size:
            continue
        chosen |= set(members[limited[members]].tolist()) if len(members) < 60 else set()
        asked = np.flatnonzero(total > 0)
        if not asked.size:
            chosen.add(int(members[np.argmin(types.price[members])]))
            continue
        lp = LinearProgram(np.ones(len(asked)), np.full(len(asked), INFINITY), unit=float(types.price.max()))
        shares = types.room[np.ix_(members, asked)] / total[asked]
        entries = [[(r, share) for r, share in enumerate(row) if share > 0] for row in shares.tolist()]
        lp.add(types.price[members].astype(np.float64), np.full(len(members), INFINITY), compress(entries))
        chosen |= set(members[lp.solve().values > 1e-9].tolist())
    return np.array(sorted(chosen), dtype=np.int64)


class _AssignmentLp:
    """The linear program: rows per group of classes, and per type and resource as the type enters.

    Nodes of a type hold no more pods of a class than fit on each by itself. A row says so where a solution would have
    more: a node has room for a pod and a half, or its own pods alone may stay there.

    Classes that fit the same types and ask for resources in nearly the same proportion are one group: what that loses
    is of second order in the difference, and the certificate is made per class from what the room is worth.
    """

    def __init__(self, requests: Ints, demand: Ints, types: NodeTypes, rows: CoverRows) -> None:
        self._demand, self._types = demand, types
        self._cover = replace(rows, weights=rows.weights.reshape(len(rows.least), len(types.price)))
        self._price = np.where(types.fixed, 0.0, types.price)
        self._cover_price = np.zeros(len(rows.least))
        self._room_price = np.zeros(types.room.shape)
        self._worth = np.zeros(len(types.price))
        self._most = np.minimum(types.fits, demand[None]).astype(np.float64)
        self._weights = requests[None] / np.maximum(types.room, 1)[:, None]
        self._group_of = groups_of(requests, demand, types)
        groups = int(self._group_of.max(initial=-1)) + 1
        self._sums = np.zeros((groups, requests.shape[1]))
        np.add.at(self._sums, self._group_of, requests * demand[:, None].astype(np.float64))
        self._able = np.zeros((len(types.price), groups), dtype=bool)
        self._able[:, self._group_of] = types.fits > 0
        self._able &= (self._sums.sum(axis=1) > 0)[None]
        self._inside = np.zeros(0, dtype=np.int64)
        self._first = np.zeros(0, dtype=np.int64)
        self._limit = np.zeros(0, dtype=np.int64)
        self._limit_row = np.zeros(0, dtype=np.int64)
        self._bought: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._shared: NDArray[np.int64] = np.zeros((0, 3), dtype=np.int64)
        self._artificial_cost = 1e3 * max(1.0, float(types.price.sum()))
        alone = np.where(types.fits > 0, types.price[:, None] / np.maximum(self._most, 1), np.inf)
        self._pod_price = alone.min(axis=0, initial=np.inf)
        self._pod_price[~np.isfinite(self._pod_price)] = self._artificial_cost
        self._nodes = np.zeros(len(types.price))
        self._shares = np.zeros((len(types.price), groups))
        limits = np.array([pool.limit for pool in types.pools], dtype=np.float64)
        self._lp = LinearProgram(
            np.concatenate([np.ones(groups), rows.least, np.full(len(limits), -INFINITY)]),
            np.concatenate([np.full(groups + len(rows.least), INFINITY), limits]),
            unit=float(types.price.max()),
        )
        spare = np.arange(groups + len(rows.least), dtype=np.int32)
        cost = np.full(len(spare), self._artificial_cost)
        self._lp.add(cost, np.full(len(spare), INFINITY), (spare, spare, np.ones(len(spare))))

    def add_types(self, entering: Ints) -> None:
        """Add types: rows for the room of their nodes, columns for the nodes and for each group's share of them."""
        types, rows, covers = self._types, self._sums.shape[1], len(self._cover.least)
        groups = len(self._sums)
        fresh = np.setdiff1d(entering, self._inside)
        first = self._lp.rows + rows * np.arange(len(fresh))
        self._lp.add_rows(np.zeros(rows * len(fresh)), np.full(rows * len(fresh), INFINITY))
        weights = [pool.weights for pool in types.pools]
        entries = [
            [(groups + n, float(self._cover.weights[n, k])) for n in np.flatnonzero(self._cover.weights[:, k]).tolist()]
            + [(groups + covers + p, float(each[k])) for p, each in enumerate(weights) if k in each]
            + [(start + r, 1.0) for r in range(rows)]
            for k, start in zip(fresh.tolist(), first.tolist(), strict=True)
        ]
        self._bought = np.concatenate([self._bought, self._lp.columns + np.arange(len(fresh))])
        self._lp.add(
            np.where(types.fixed[fresh], 0, types.price[fresh]).astype(float),
            np.where(types.available[fresh] >= UNLIMITED, INFINITY, types.available[fresh]).astype(float),
            compress(entries),
        )
        k, g = np.nonzero(self._able[fresh])
        shared = np.column_stack([fresh[k], g, self._lp.columns + np.arange(len(g))])
        self._shared = np.concatenate([self._shared, shared])
        taken = self._sums[g] / np.maximum(types.room, 1)[fresh[k]]
        self._lp.add(
            np.zeros(len(g)),
            np.full(len(g), INFINITY),
            _columns(g, first[k][:, None] + np.arange(rows)[None], -taken),
        )
        self._inside, self._first = np.concatenate([self._inside, fresh]), np.concatenate([self._first, first])

    def add_limits(self) -> bool:
        """Add rows for pods of which the last solution has more on a type than fit one by one; return whether any."""
        if len(self._sums) < len(self._demand):  # of a group, more of one class may fit than of another
            return False
        k, c, column = self._shared.T
        most = self._most[k, c] / self._demand[c]
        over = self._shares[k, c] > most * self._nodes[k] + _NEGLIGIBLE
        over[self._limit] = False
        found = np.flatnonzero(over)
        bought = np.zeros(len(self._price), dtype=np.int64)
        bought[self._inside] = self._bought
        pairs = np.column_stack([bought[k[found]], column[found]]).astype(np.int32)
        values = np.column_stack([most[found], np.full(len(found), -1.0)])
        start = 2 * np.arange(len(found), dtype=np.int32)
        self._limit_row = np.concatenate([self._limit_row, self._lp.rows + np.arange(len(found))])
        self._lp.add_rows(np.zeros(len(found)), np.full(len(found), INFINITY), (start, pairs.ravel(), values.ravel()))
        self._limit = np.concatenate([self._limit, found])
        return bool(found.size)

    def solve(self) -> None:
        """Solve over the types inside; groups that none of them holds have an artificial column."""
        types, inside = self._types, self._inside
        groups, rows = self._sums.shape
        found = self._lp.solve()
        covered = groups + len(self._cover.least)
        self._cover_price = np.maximum(found.duals[groups:covered], 0.0)
        self._price = np.where(types.fixed, 0, types.price) - self._cover_price @ self._cover.weights
        worth = np.maximum(found.duals[self._first[:, None] + np.arange(rows)[None]], 0.0)
        priced = np.full(self._weights.shape[:2], np.inf)
        priced[inside] = np.einsum("kcr,kr->kc", self._weights[inside], worth)
        k, c, _ = self._shared[self._limit].T
        priced[k, c] += np.maximum(found.duals[self._limit_row], 0.0) / self._demand[c]
        self._pod_price = np.where(types.fits > 0, priced, np.inf).min(axis=0, initial=np.inf)
        self._pod_price[~np.isfinite(self._pod_price)] = self._artificial_cost
        self._nodes = np.zeros(len(types.price))
        self._nodes[inside] = found.values[self._bought]
        self._shares = np.zeros((len(types.price), groups))
        self._shares[self._shared[:, 0], self._shared[:, 1]] = found.values[self._shared[:, 2]]

    def price_types(self) -> None:
        """Price the room of every type by the best fractional filling of one node.

        Prices of before are kept where they show that the room is worth no more than it costs.
        """
        for k, price in enumerate(self._price.tolist()):
            mine = np.flatnonzero((self._most[k] > 0) & (self._pod_price > 0))
            values, weights, most = self._pod_price[mine], self._weights[k, mine], self._most[k, mine]
            self._worth[k] = knapsack_dual_bound(values, weights, self._room_price[k], most)
            if self._worth[k] > price:
                self._room_price[k] = knapsack_duals(values, weights, np.ones(weights.shape[1]), most)
                self._worth[k] = knapsack_dual_bound(values, weights, self._room_price[k], most)

    def improving_types(self) -> Ints:
        """Return the quarter of the types outside that are worth most for their price, eight at least."""
        excess = (self._worth - self._price) / np.maximum(self._types.price, 1)
        excess[self._inside] = 0.0
        better = np.flatnonzero((excess > _LEAST_EXCESS) & (self._types.available > 0))
        order = better[np.argsort(-excess[better], kind="stable")]
        return order[: max(8, len(order) // 4)]

    def scale_duals(self) -> None:
        """Scale the prices of pods down until no unlimited type is worth more than it costs: then they are feasible."""
        types = self._types
        free = (types.available >= UNLIMITED) & ~types.fixed
        for k in np.flatnonzero(free & (self._worth > np.maximum(self._price, 0.0))).tolist():
            mine = np.flatnonzero((self._most[k] > 0) & (self._pod_price > 0))
            weights, most = self._weights[k, mine], self._most[k, mine]
            prices = knapsack_duals(self._pod_price[mine], weights, np.ones(weights.shape[1]), most)
            worth = knapsack_dual_bound(self._pod_price[mine], weights, prices, most)
            if worth > max(0.0, self._price[k]):
                part = max(0.0, float(self._price[k]) / worth)
                paid = part * np.maximum(self._pod_price[mine], weights @ prices)
                prices = part * prices
                self._pod_price[mine] = np.minimum(self._pod_price[mine], paid)
            self._room_price[k] = prices

    def solution(self) -> AssignmentSolution:
        """Return the last solution."""
        used = np.flatnonzero(self._shares.max(axis=1, initial=0.0) > _NEGLIGIBLE)
        shares = self._shares[used][:, self._group_of] * self._demand[None]
        return AssignmentSolution(
            pod_price=self._pod_price,
            room_price=self._room_price,
            nodes=self._nodes,
            used=used,
            shares=shares,
            cover_price=self._cover_price,
        )


def groups_of(requests: Ints, demand: Ints, types: NodeTypes) -> NDArray[np.int64]:
    """Return the group of each class (C,): the types that hold it, and the direction of its requests in steps."""
    if len(requests) <= _SINGLE_CLASSES:
        return np.arange(len(requests))
    signature = _signatures(types)
    share = requests / np.maximum(np.median(types.room, axis=0), 1.0)
    parts = share / np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
    steps = np.floor(parts[:, :-1] * _DIRECTION_STEPS).astype(np.int64)
    _, group = np.unique(np.column_stack([signature, steps]), axis=0, return_inverse=True)
    return np.asarray(group, dtype=np.int64)


def _signatures(types: NodeTypes) -> NDArray[np.int64]:
    """Return numbers (C,) that are equal for classes that fit the same types."""
    _, signature = np.unique(np.packbits(types.fits > 0, axis=0), axis=1, return_inverse=True)
    return np.asarray(signature, dtype=np.int64).ravel()


def _columns(first: NDArray[np.int64], others: NDArray[np.int64], values: Floats) -> Matrix:
    """Return columns with 1 in row `first` and `values` in rows `others`."""
    index = np.column_stack([first[:, None], others]).astype(np.int32)
    value = np.column_stack([np.ones(len(first)), values])
    start = np.arange(len(first), dtype=np.int32) * np.int32(index.shape[1])
    return start, index.ravel(), value.ravel()


def compress(columns: list[list[tuple[int, float]]]) -> Matrix:
    """Return columns of (row, value) in the form that HiGHS takes: start of each, row indices, values."""
    sizes = [len(column) for column in columns]
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32) if columns else np.zeros(0, dtype=np.int32)
    flat = [entry for column in columns for entry in column]
    return start, np.array([row for row, _ in flat], dtype=np.int32), np.array([value for _, value in flat])
