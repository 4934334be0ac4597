"""First plans of the search: the cluster as it is, one built from nothing, and plans that follow the retention LP.

`construct_as_is`, `construct_fresh` and `construct_keeping` build one each; `FirstPlans` builds several and returns the
best.

New nodes come from the assignment LP. Each type is opened as often as it says, in whole nodes, and its share of every
class is distributed evenly, so that all nodes of a type have the mix that fits them best. Pods without room go to the
tightest open nodes, the rest to new nodes, each time of the type that its most valuable filling pays best for.

A deleted node with the room of a new one for no more money takes its place (`swap_in_existing`): the pods on both need
not move. Pairs that save most moves come first.

What fits by sums may not fit by pods: the retention LP at a limit on moves may lead to a worse plan than one that is
held to fewer moves, or whose moves have a price. So `FirstPlans` constructs several plans, each in a fraction of a
round of improvement, and the search improves the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinema_core.events import Stop
from kinema_core.model.disruption_cost import ORDINARY
from kinema_optimizer.bounds.assignment_lp import AssignmentSolution, solve_assignment_lp
from kinema_optimizer.columns.generation import (
    Bin,
    Column,
    ColumnGeneration,
    Subproblem,
    bins_of_types,
    solve_bin,
    trim_overcover,
)
from kinema_optimizer.errors import LinearProgramError
from kinema_optimizer.problem.arrays import Flags, Ints, stock_left
from kinema_optimizer.problem.instance import Instance, among, enemies_of, losses
from kinema_optimizer.problem.node_types import NodeTypes, newly_fits
from kinema_optimizer.problem.solution import NOTHING, Incumbent, NodeLoad, cost_of, filling, moved
from kinema_optimizer.search.dealing import best_fit, distribute_evenly
from kinema_optimizer.search.neighborhood import SearchContext
from kinema_optimizer.search.retention_lp import Retention, RetentionLp, keep_within_cap
from kinema_optimizer.solvers.lp import Floats
from kinema_optimizer.solvers.stopping import StopRule

Enemies = Mapping[int, tuple[int, ...]]

_OFFERED: Final = 24
"""Machines that a neighborhood may buy."""
_PHASE: Final = "columns"
_DIVE: Final = "dive"
_WIDEST: Final = 1024
"""States of the beam when nothing less finds a column."""


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices of pods, and the relaxation that gives them for a demand (C,)."""

    pod_price: Floats
    """(C,)"""
    demand: Ints
    relaxation: AssignmentSolution | None = None
    """Of machines on sale alone; where the same pods are to be placed it need not be solved again."""


def construct_as_is(problem: Instance, kinds: NodeTypes, enemies: Enemies, prices: Prices) -> Incumbent:
    """Every existing node kept; pending and replaced pods on nodes with room, the rest on new nodes."""
    return construct_keeping(problem, kinds, enemies, prices, np.ones(len(problem.nodes), dtype=bool))


def construct_fresh(problem: Instance, kinds: NodeTypes, enemies: Enemies, prices: Prices) -> Incumbent:
    """Only nodes kept that have to be; every pod of the others placed by the relaxation."""
    return construct_keeping(problem, kinds, enemies, prices, problem.node_fixed.copy())


def construct_keeping(problem: Instance, kinds: NodeTypes, enemies: Enemies, prices: Prices, keep: Flags) -> Incumbent:
    """Some nodes kept; what needs a place then on them as far as there is room, and the rest on new nodes."""
    moved = problem.stays.totals(len(problem.pending), ~keep)
    left = problem.pending + problem.rolled + moved
    changes = _fill_free_room(problem, keep, left, enemies, prices.pod_price)
    market = on_sale(kinds, len(problem.machines))
    wanted = np.where((market.fits > 0).any(axis=0), left, 0)
    boots: list[NodeLoad] = []
    if wanted.any():
        known = prices.relaxation
        if known is None or (wanted != prices.demand).any():
            known = solve_assignment_lp(problem.requests, wanted, market)
        boots, rest = construct_nodes(problem.requests, wanted, market, known, enemies)
        left = left - wanted + rest
    return Incumbent(keep, changes, boots, left)


def choose_new_nodes(
    context: SearchContext,
    state: Incumbent,
    kinds: NodeTypes,
    stop: StopRule,
    pool: Executor,
    ready: Callable[[Callable[[], list[NodeLoad]]], None],
    *,
    most: int,
) -> tuple[Incumbent, list[Stop]]:
    """Return the state with its new nodes chosen by column generation over all of their pods, cheaper or not.

    Also where its phases ended; `stop` is asked after each round. Places are priced side by side in `pool`; `ready` is
    handed all columns before a choice is made of them; columns come in at `most` so many rounds.
    """
    problem, market = context.problem, on_sale(kinds, len(context.problem.machines))
    pods = np.zeros(len(problem.pending), dtype=np.int64)
    for one in state.boots:
        pods[one.classes] += one.counts
    mine = np.flatnonzero(pods)
    if not mine.size:  # no pod is on a new node: a program without rows and columns has no solution for HiGHS
        return state, []
    column = np.full(len(pods), -1)
    column[mine] = np.arange(len(mine))
    subproblem = _subproblem_of(context, market, pods, mine)
    generation = ColumnGeneration(subproblem, pool=pool)
    known = []
    for one in state.boots:
        counts = np.zeros(len(mine), dtype=np.int64)
        counts[column[one.classes]] = one.counts
        known.append(Column(one.machine, counts))
    generation.add(known)
    stops, chosen = [], None
    try:
        stop.begin(_PHASE)
        rounds, reason = generation.improve(most, widest=_WIDEST, ends=stop.ends)
        stops.append(Stop(reason=reason or "optimal", phase=_PHASE, iteration=rounds))
        columns = tuple(generation.columns)
        ready(lambda: [_filling(mine, one) for one in columns])
        stop.begin(_DIVE)
        chosen, rounds, reason = generation.dive(ends=stop.ends)
        stops.append(Stop(reason=reason or "optimal", phase=_DIVE, iteration=rounds))
    except LinearProgramError:  # numbers too close to each other for HiGHS
        return state, [*stops, Stop(reason="optimal", phase=_DIVE if stops else _PHASE, iteration=0)]
    boots = [_filling(mine, one) for one in trim_overcover(subproblem, chosen or known) or () if one.counts.any()]
    return (Incumbent(state.keep, state.changes, boots, state.unplaced) if boots else state), stops


def _filling(mine: Ints, column: Column) -> NodeLoad:
    used = np.flatnonzero(column.counts)
    return NodeLoad(column.bin, mine[used], column.counts[used])


def _subproblem_of(context: SearchContext, market: NodeTypes, pool: Ints, mine: Ints) -> Subproblem:
    """Return the classes `mine` of a pool (C,) as a subproblem for machines on sale."""
    places = bins_of_types(market, range(len(market.price)), pool, mine, among(context.enemies, mine))
    free = np.zeros(len(mine))
    return Subproblem(context.problem.requests[mine], pool[mine], free, places, market.pools, context.pod_price[mine])


def on_sale(kinds: NodeTypes, machines: int) -> NodeTypes:
    """Return the kinds that are machines on sale."""
    return NodeTypes(
        price=kinds.price[:machines],
        room=kinds.room[:machines],
        available=kinds.available[:machines],
        fixed=kinds.fixed[:machines],
        fits=kinds.fits[:machines],
        pools=kinds.pools,
    )


def _fill_free_room(
    problem: Instance, keep: Flags, left: Ints, enemies: Enemies, pod_price: Floats
) -> dict[int, NodeLoad]:
    """Fill the room of the nodes kept from `left` (C,), which is lowered; nodes with most room first."""
    if not left.any():
        return {}
    room = np.maximum(problem.node_room, 0)
    nodes = np.flatnonzero(keep & (problem.node_room > 0).any(axis=1))
    size = (room[nodes] / np.maximum(room.max(axis=0, initial=1), 1)).min(axis=1)
    found = {}
    for e in nodes[np.argsort(-size, kind="stable")].tolist():
        wanted = np.flatnonzero(left)
        if not wanted.size:
            break
        fits = np.zeros(len(left), dtype=np.int64)
        fits[wanted] = newly_fits(problem, np.array([e]), wanted, enemies)[0]
        if not fits.any():
            continue
        row = np.zeros(len(left), dtype=np.int64)
        refill(problem.requests, pod_price, row, left, room=room[e], fits=fits, enemies=enemies)
        if row.any():
            found[e] = NodeLoad(-1, np.flatnonzero(row), row[row > 0])
    return found


def first_context(problem: Instance, kinds: NodeTypes, found: AssignmentSolution) -> SearchContext:
    """Return the first context: prices of the assignment LP, the machines that it pays most for, and free moves."""
    machines = len(problem.machines)
    paid = found.room_price.sum(axis=1)[:machines] / np.maximum(kinds.price[:machines], 1)
    used = set(found.used[found.used < machines].tolist())
    best = [m for m in np.argsort(-paid, kind="stable").tolist() if m not in used]
    return SearchContext(
        problem=problem,
        pod_price=found.guiding_price,
        move_price=np.zeros(len(problem.pending)),
        machines=tuple(sorted({*used, *best[: max(0, _OFFERED - len(used))]})),
        machine_fits=kinds.fits[:machines],
        enemies=enemies_of(problem),
    )


_FINISHING_WIDTH = 16
_REFILLING_WIDTH = 12
_CANDIDATES = 60
"""Classes of pods left over that a node is offered when it is filled again."""
_REFILLED = 600
"""Nodes that are filled again, those with most room first: with thousands the first plan would take seconds longer."""
_NEARLY = 0.8
"""Part of a node from which it is opened as a whole: what less of a large machine would hold, a small one does."""


def construct_nodes(
    requests: Ints,
    demand: Ints,
    kinds: NodeTypes,
    relaxation: AssignmentSolution,
    enemies: Mapping[int, tuple[int, ...]],
) -> tuple[list[NodeLoad], Ints]:
    """New nodes for all of `demand` (C,), and what of it (C,) no machine is left for; `kinds` are all on sale."""
    order = np.argsort(-(requests / np.maximum(np.median(kinds.room, axis=0), 1)).max(axis=1), kind="stable")
    fits = np.ascontiguousarray(kinds.fits[:, order])
    mine = _Ordered(order, requests[order], fits, among(enemies, order))
    left = demand[order]
    row, room, content = _open_nodes(mine, left, kinds, relaxation)
    price, free = relaxation.guiding_price[order], (room / np.maximum(kinds.room[row], 1)).min(axis=1)
    for b in np.argsort(-free, kind="stable")[:_REFILLED].tolist() if left.any() else ():
        k = int(row[b])
        refill(mine.requests, price, content[b], left, room=kinds.room[k], fits=mine.fits[k], enemies=mine.enemies)
    for one in content if enemies else ():
        _separate_enemies(one, left, mine.enemies)
    rest = np.zeros_like(left)
    rest[order] = left
    taken = _fillings(row, content, order)
    used = np.bincount([one.machine for one in taken], minlength=len(kinds.price)).astype(np.int64)
    return taken + buy_for_rest(requests, rest, kinds, relaxation, enemies=enemies, used=used), rest


@dataclass(frozen=True, eq=False)
class _Ordered:
    """The classes, largest first: every array of them is in that order."""

    order: Ints
    """(C,) class at each position."""
    requests: Ints
    """(C, R)"""
    fits: Ints
    """(K, C) most pods of each on a node of each kind."""
    enemies: Mapping[int, tuple[int, ...]]
    """By position."""


def _open_nodes(
    mine: _Ordered, left: Ints, kinds: NodeTypes, relaxation: AssignmentSolution
) -> tuple[Ints, Ints, NDArray[np.int32]]:
    """(B,) kinds of the nodes opened, (B, R) room left there, and (B, C) the pods on them; `left` (C,) is lowered."""
    count = _node_counts(kinds, relaxation)
    row = np.repeat(relaxation.used, count)
    room, content = kinds.room[row], np.zeros((len(row), len(left)), dtype=np.int32)
    first = np.cumsum(count) - count
    for u in np.flatnonzero(count).tolist():
        k, opened = int(relaxation.used[u]), slice(int(first[u]), int(first[u] + count[u]))
        share = np.minimum(np.rint(relaxation.shares[u, mine.order]).astype(np.int64), left)
        share[mine.fits[k] == 0] = 0
        rest = share.copy()
        distribute_evenly(mine.requests, rest, mine.fits[k], room[opened], content[opened])
        left -= share - rest
    if len(row) and left.any():
        open_, which = np.unique(row, return_inverse=True)
        best_fit(mine.requests, left, mine.fits[open_], which, room, content)
    return row, room, content


def _node_counts(kinds: NodeTypes, relaxation: AssignmentSolution) -> Ints:
    """(U,): how many nodes of each kind in use are opened; what rounding adds stays within the limits of pools."""
    wanted = relaxation.nodes[relaxation.used]
    count = np.minimum(np.floor(wanted + (1 - _NEARLY)), kinds.available[relaxation.used]).clip(0).astype(np.int64)
    for pool in kinds.pools:
        mine = np.flatnonzero(np.isin(relaxation.used, pool.members))
        each = np.array([pool.weights[k] for k in relaxation.used[mine].tolist()], dtype=np.int64)
        while count[mine] @ each > pool.limit:
            count[mine[np.argmax(np.where(count[mine] > 0, count[mine] - wanted[mine], -np.inf))]] -= 1
    return count


def _fillings(row: Ints, content: NDArray[np.int32], order: Ints) -> list[NodeLoad]:
    """Return the nodes that hold anything."""
    node, column = np.nonzero(content)
    classes, counts = order[column], content[node, column].astype(np.int64)
    sequence = np.lexsort((classes, node))
    node, classes, counts = node[sequence], classes[sequence], counts[sequence]
    cuts = np.flatnonzero(np.diff(node)) + 1
    parts = zip(np.split(node, cuts), np.split(classes, cuts), np.split(counts, cuts), strict=True)
    return [NodeLoad(int(row[nodes[0]]), *filled_) for nodes, *filled_ in parts if len(nodes)]


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
    """Fill a node again from its own pods and from what is `left` (C,), if that makes its pods worth more.

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
    place = _new_bin(room, most, among(enemies, mine))
    counts, worth = solve_bin(requests[mine], pod_price[mine], place, _REFILLING_WIDTH)
    if worth > float(pod_price[own] @ row[own]) * (1 + 1e-9):
        left[mine] += row[mine] - counts
        row[mine] = counts


def _new_bin(room: Ints, most: Ints, enemies: Mapping[int, tuple[int, ...]]) -> Bin:
    """Return a new node with this room (R,) for at most so many pods of each class (n,)."""
    none = np.zeros_like(most)
    return Bin(0.0, room, most, none, none, 1, enemies)


def _separate_enemies(row: NDArray[np.int32], left: Ints, enemies: Mapping[int, tuple[int, ...]]) -> None:
    """Take classes from a node that may not meet others of it; the smaller class index stays."""
    for c in np.flatnonzero(row).tolist():
        if c in enemies and any(row[d] and d < c for d in enemies[c]):
            left[c] += row[c]
            row[c] = 0


def buy_for_rest(
    requests: Ints,
    left: Ints,
    kinds: NodeTypes,
    relaxation: AssignmentSolution,
    *,
    enemies: Mapping[int, tuple[int, ...]],
    used: Ints,
) -> list[NodeLoad]:
    """New nodes one kind after another for what is left, which is lowered; each time the best paid filling.

    The less is left, the less a kind is paid for: those that were paid too little before are not looked at again.
    """
    made: list[NodeLoad] = []
    paid = np.full(len(kinds.price), np.inf)
    while left.any():
        mine = np.flatnonzero(left)
        apart = among(enemies, mine)
        stock = stock_left(kinds.available, kinds.pools, used)
        best, counts = -1, np.zeros(0, dtype=np.int64)
        for k in np.argsort(-paid, kind="stable").tolist():
            if best >= 0 and paid[k] <= paid[best]:
                break
            most = np.minimum(kinds.fits[k][mine], left[mine])
            if stock[k] <= 0 or not most.any():
                paid[k] = 0.0
                continue
            place, prices = _new_bin(kinds.room[k], most, apart), relaxation.guiding_price[mine]
            filling, worth = solve_bin(requests[mine], prices, place, _FINISHING_WIDTH)
            paid[k] = worth / max(1.0, float(kinds.price[k]))
            if filling.any() and (best < 0 or paid[k] > paid[best] * (1 + 1e-9)):
                best, counts = k, filling
        if best < 0:
            return made
        taken = counts > 0
        times = int((left[mine][taken] // counts[taken]).min())
        times = max(1, min(times, int(stock[best])))
        left[mine] -= counts * times
        used[best] += times
        made += [NodeLoad(best, mine[taken], counts[taken])] * times
    return made


_PAIRS: Final = 1_000_000
"""Pairs of a new node and an existing one that are looked at, for each class of pods that they share."""


def swap_in_existing(problem: Instance, state: Incumbent) -> Incumbent:
    """Return the state with deleted nodes kept in the place of new ones."""
    reusable = _reusable(problem, state)
    booted, nodes, saved = _swap_pairs(problem, state.boots, reusable)
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
        after.changes[e] = _swap_change(problem, state.boots[b], e)
        if not after.changes[e].classes.size:
            after.changes.pop(e)
    after.boots = [one for b, one in enumerate(state.boots) if b not in taken]
    return after


def _reusable(problem: Instance, state: Incumbent) -> Flags:
    """(E,): deleted nodes that may give all of their pods up."""
    bound = np.bincount(
        problem.stays.node_of, weights=~problem.releasable[problem.stays.classes], minlength=len(problem.nodes)
    )
    return np.asarray(~state.keep & problem.node_releases & (bound == 0))


def _swap_pairs(problem: Instance, boots: Sequence[NodeLoad], reusable: Flags) -> tuple[Ints, Ints, Ints]:
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
            saved.append(np.minimum(stays.counts[mine], count) * problem.disruption_cost[c])
    found, index = np.unique(np.concatenate(pairs), return_inverse=True)
    total = np.bincount(index, weights=np.concatenate(saved), minlength=len(found)).astype(np.int64)
    return found // max(1, len(problem.nodes)), found % max(1, len(problem.nodes)), total


def _swap_change(problem: Instance, boot: NodeLoad, e: int) -> NodeLoad:
    """Return what changes on the existing node when it holds exactly these pods."""
    counts = dict(zip(boot.classes.tolist(), boot.counts.tolist(), strict=True))
    for c, count in problem.stays.of(e):
        counts[c] = counts.get(c, 0) - count
    found = filling(-1, counts)
    return found if found.classes.size else NOTHING


_CAP_SHARES: Final = (1.0, 0.98, 0.95, 0.9)
"""Parts of the limit that a retention is held to."""
_EXTRA_PRICES: Final = (0.0, 0.1, 0.2, 0.35, 0.5)
"""Costs of a move in a retention besides its price, in mean costs of a pod."""


@dataclass(frozen=True, eq=False)
class FirstPlans:
    """A running cluster, and what its first plans are made of."""

    problem: Instance
    kinds: NodeTypes
    context: SearchContext
    prices: Prices
    now: Incumbent
    """Every node kept."""
    retention: RetentionLp

    def plan(self, kept: Retention, most: int | None = None) -> Incumbent:
        """Return the cheapest plan found with these nodes, and with more where moves are limited; else as it is now."""
        problem = self.problem
        lost = losses(problem, self.now.unplaced)
        keep = kept.nodes if most is None else keep_within_cap(problem, kept.nodes, most)
        prices = (self.prices, replace(self.prices, pod_price=kept.pod_price))
        made = [construct_keeping(problem, self.kinds, self.context.enemies, one, keep) for one in prices]
        made = [one for one in made if losses(problem, one.unplaced) <= lost]
        return swap_in_existing(problem, min(made, key=lambda one: cost_of(problem, one), default=self.now))

    @cached_property
    def fresh(self) -> Incumbent:
        """Plan that is built from nothing, however many pods it moves; the pattern bound starts from it too."""
        return construct_fresh(self.problem, self.kinds, self.context.enemies, self.prices)

    def at_price(
        self, price: float, mean: float, ends: Callable[..., bool], *, most: int | None = None
    ) -> tuple[Incumbent, float]:
        """Return the best of several plans at this price of a move, and what one more than `most` would save at most.

        Args:
            price: of a move, micro-USD per hour.
            mean: cost per pod of the cheapest plan known, likewise.
            ends: whether no time is left after so many plans, the `last` one or not.
            most: moves, pods; None: no limit.
        """
        problem = self.problem
        weights, lost = problem.disruption_cost / ORDINARY, losses(problem, self.now.unplaced)
        found, saved = [self.now, swap_in_existing(problem, self.fresh)], 0.0
        limits = [None] if most is None else [int(most * share) for share in _CAP_SHARES]
        for turn, (limit, extra) in enumerate(product(limits, _EXTRA_PRICES), start=1):
            kept = self.retention.solve(weights * (price + extra * mean), limit)
            found.append(self.plan(kept, limit))
            saved = max(saved, kept.move_price)
            if ends(turn, last=turn == len(limits) * len(_EXTRA_PRICES)):
                break

        def worth(state: Incumbent) -> float:
            return cost_of(problem, state) + float(moved(problem, state) @ weights) * price

        allowed = [one for one in found if most is None or int(moved(problem, one) @ problem.pods) <= most]
        return min((one for one in allowed if losses(problem, one.unplaced) <= lost), key=worth), saved
