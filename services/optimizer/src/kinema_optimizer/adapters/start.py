"""Plans to start from: the cluster as it is, and one that is made anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

import numpy as np

from kinema_core.events import Stop
from kinema_optimizer.adapters.assignment import Relaxation, relax
from kinema_optimizer.adapters.columns import Column, ColumnGeneration, Task, exactly, new_nodes
from kinema_optimizer.adapters.construct import construct, refill
from kinema_optimizer.adapters.lp import Floats
from kinema_optimizer.adapters.neighbourhood import Guide
from kinema_optimizer.adapters.stops import StopRule
from kinema_optimizer.logic.kinds import Kinds, newly_fits
from kinema_optimizer.logic.packing import PackingProblem, among, enemies_of
from kinema_optimizer.logic.problem import Flags, Ints
from kinema_optimizer.logic.state import Filling, State

Enemies = Mapping[int, tuple[int, ...]]

_OFFERED: Final = 24
"""Machines that a step may buy."""
_PHASE: Final = "columns"
_DIVE: Final = "dive"
_MOST_ROUNDS: Final = 400
_WIDEST: Final = 800
"""States of the beam when nothing less finds a column."""


@dataclass(frozen=True, eq=False)
class Prices:
    """What pods are worth, and the relaxation that says so for a demand (C,)."""

    pod_price: Floats
    """(C,)"""
    demand: Ints
    relaxation: Relaxation | None = None
    """Of machines on sale alone; where the same pods are to be placed it need not be solved again."""


def as_it_is(problem: PackingProblem, kinds: Kinds, enemies: Enemies, prices: Prices) -> State:
    """Every existing node kept; pending and replaced pods on nodes with room, the rest on new nodes."""
    return keeping(problem, kinds, enemies, prices, np.ones(len(problem.nodes), dtype=bool))


def anew(problem: PackingProblem, kinds: Kinds, enemies: Enemies, prices: Prices) -> State:
    """Only nodes kept that have to be; every pod of the others placed by the relaxation."""
    return keeping(problem, kinds, enemies, prices, problem.node_fixed.copy())


def keeping(problem: PackingProblem, kinds: Kinds, enemies: Enemies, prices: Prices, keep: Flags) -> State:
    """Some nodes kept; what needs a place then on them as far as there is room, and the rest on new nodes."""
    moved = problem.stays.totals(len(problem.pending), ~keep)
    left = problem.pending + problem.rolled + moved
    changes = _into_room(problem, keep, left, enemies, prices.pod_price)
    market = on_sale(kinds, len(problem.machines))
    wanted = np.where((market.fits > 0).any(axis=0), left, 0)
    boots: list[Filling] = []
    if wanted.any():
        known = prices.relaxation
        if known is None or (wanted != prices.demand).any():
            known = relax(problem.requests, wanted, market, rounds=0)
        boots, rest = construct(problem.requests, wanted, market, known, enemies)
        left = left - wanted + rest
    return State(keep, changes, boots, left)


def generated(
    guide: Guide,
    state: State,
    kinds: Kinds,
    stop: StopRule,
    pool: Executor,
    ready: Callable[[Callable[[], list[Filling]]], None],
) -> tuple[State, list[Stop]]:
    """The state with its new nodes chosen by column generation over all of their pods, cheaper or not.

    Also where its phases ended; `stop` is asked after each round. Places are priced side by side in `pool`; `ready` is
    handed all columns before a choice is made of them.
    """
    stop.begin(_PHASE)
    problem, market = guide.problem, on_sale(kinds, len(guide.problem.machines))
    pods = np.zeros(len(problem.pending), dtype=np.int64)
    for one in state.boots:
        pods[one.classes] += one.counts
    mine = np.flatnonzero(pods)
    if not mine.size:  # nobody is on a new node: a program without rows and columns has no solution for HiGHS
        return state, []
    column = np.full(len(pods), -1)
    column[mine] = np.arange(len(mine))
    task = _market_task(guide, market, pods, mine)
    generation = ColumnGeneration(task, pool=pool)
    known = []
    for one in state.boots:
        counts = np.zeros(len(mine), dtype=np.int64)
        counts[column[one.classes]] = one.counts
        known.append(Column(one.machine, counts))
    generation.add(known)
    rounds, reason = generation.improve(_MOST_ROUNDS, widest=_WIDEST, ends=stop.ends)
    stops = [Stop(reason=reason or "optimal", phase=_PHASE, iteration=rounds)]
    columns = tuple(generation.columns)
    ready(lambda: [_filling(mine, one) for one in columns])
    stop.begin(_DIVE)
    chosen, rounds, reason = generation.dive(ends=stop.ends)
    stops.append(Stop(reason=reason or "optimal", phase=_DIVE, iteration=rounds))
    boots = [_filling(mine, one) for one in exactly(task, chosen or known) or () if one.counts.any()]
    return (State(state.keep, state.changes, boots, state.unplaced) if boots else state), stops


def _filling(mine: Ints, column: Column) -> Filling:
    used = np.flatnonzero(column.counts)
    return Filling(column.place, mine[used], column.counts[used])


def _market_task(guide: Guide, market: Kinds, pool: Ints, mine: Ints) -> Task:
    """The classes `mine` of a pool (C,) as a task for machines on sale."""
    places = new_nodes(market, range(len(market.price)), pool, mine, among(guide.enemies, mine))
    free = np.zeros(len(mine))
    return Task(guide.problem.requests[mine], pool[mine], free, places, market.pools, guide.pod_price[mine])


def on_sale(kinds: Kinds, machines: int) -> Kinds:
    """The kinds that are machines on sale."""
    return Kinds(
        price=kinds.price[:machines],
        room=kinds.room[:machines],
        available=kinds.available[:machines],
        fixed=kinds.fixed[:machines],
        fits=kinds.fits[:machines],
        pools=kinds.pools,
    )


def _into_room(
    problem: PackingProblem, keep: Flags, left: Ints, enemies: Enemies, pod_price: Floats
) -> dict[int, Filling]:
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
            found[e] = Filling(-1, np.flatnonzero(row), row[row > 0])
    return found


def first_guide(problem: PackingProblem, kinds: Kinds, found: Relaxation) -> Guide:
    """What steps go by at first: prices of the relaxation, and the machines that it pays most for. Moves are free."""
    machines = len(problem.machines)
    paid = found.room_price.sum(axis=1)[:machines] / np.maximum(kinds.price[:machines], 1)
    used = set(found.used[found.used < machines].tolist())
    best = [m for m in np.argsort(-paid, kind="stable").tolist() if m not in used]
    return Guide(
        problem=problem,
        pod_price=found.guiding_price,
        move_price=np.zeros(len(problem.pending)),
        machines=tuple(sorted({*used, *best[: max(0, _OFFERED - len(used))]})),
        machine_fits=kinds.fits[:machines],
        enemies=enemies_of(problem),
    )
