"""Whether an exchange that another process has made may be carried out: same pods, every rule kept, in integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kinema_optimizer.adapters.neighbourhood import Exchange, Step
from kinema_optimizer.logic.packing import UNLIMITED, Content, Packing, PackingProblem, content, flaws
from kinema_optimizer.logic.problem import Ints
from kinema_optimizer.logic.state import NOTHING, Filling, contents


def faults(problem: PackingProblem, step: Step, exchange: Exchange) -> tuple[str, ...]:
    """What is wrong with the exchange; empty when it may be carried out for the step.

    The nodes of the step are looked at as a problem of their own: the pods that came to them, less those that left, are
    its pods without a place.
    """
    nodes = (*step.kept, *step.deleted)
    if not exchange.kept.keys() <= set(nodes):
        return ("an exchange keeps nodes that are not of its step",)
    filled = (*exchange.kept.values(), *exchange.boots)
    found = [*_form_faults(problem, filled)]
    if any((one.counts < 0).any() for one in exchange.boots):
        found.append("an exchange lists pods in disorder: a new node has none to give up")
    if any(not 0 <= one.machine < len(problem.machines) for one in exchange.boots):
        found.append("an exchange boots a machine that is not on sale")
    if found:
        return tuple(found)
    rows = [exchange.kept.get(e, NOTHING) for e in nodes]
    packing = Packing(
        keep=np.array([e in exchange.kept for e in nodes], dtype=bool),
        changes=contents(rows),
        boots=np.array([one.machine for one in exchange.boots], dtype=np.int64),
        booted=contents(exchange.boots),
        unplaced=np.zeros(len(problem.pending), dtype=np.int64),
    )
    return flaws(_part(problem, step, nodes), packing)


def _form_faults(problem: PackingProblem, filled: Sequence[Filling]) -> list[str]:
    found = []
    for one in filled:
        if one.classes.dtype != np.int64 or one.counts.dtype != np.int64 or one.classes.ndim != 1:
            found.append("an exchange has pods that are no integers")
        elif one.classes.shape != one.counts.shape or (np.diff(one.classes) <= 0).any() or (one.counts == 0).any():
            found.append("an exchange lists pods in disorder")
        elif one.classes.size and not 0 <= one.classes[0] <= one.classes[-1] < len(problem.pending):
            found.append("an exchange has pods of unknown classes")
    return found


def _part(problem: PackingProblem, step: Step, nodes: Sequence[int]) -> PackingProblem:
    """The problem of the step's nodes alone; machines are as many as the step has and may boot besides."""
    some = np.array(nodes, dtype=np.int64)
    stays = _rows(problem.stays, nodes)
    deleted = np.arange(len(nodes)) >= len(step.kept)
    pool = _total(problem, (*step.changes, *step.boots)) - stays.totals(len(problem.pending), deleted)
    booted = Counter(one.machine for one in step.boots)
    available = np.array(
        [min(UNLIMITED, step.allowance.get(m, UNLIMITED) + booted[m]) for m in range(len(problem.machines))],
        dtype=np.int64,
    )
    return replace(
        problem,
        pending=np.zeros_like(problem.pending),
        rolled=pool,  # they all need a place, and may not be left without one
        nodes=tuple(problem.nodes[e] for e in nodes),
        node_price=problem.node_price[some],
        node_room=problem.node_room[some],
        node_row=problem.node_row[some],
        node_fixed=problem.node_fixed[some],
        node_bound=problem.node_bound[some],
        stays=stays,
        old=content([{} for _ in nodes]),
        machine_available=available,
        pools=(),
    )


def _total(problem: PackingProblem, filled: Sequence[Filling]) -> Ints:
    total = np.zeros(len(problem.pending), dtype=np.int64)
    for one in filled:
        total[one.classes] += one.counts
    return total


def _rows(given: Content, nodes: Sequence[int]) -> Content:
    return content([dict(given.of(e)) for e in nodes])
