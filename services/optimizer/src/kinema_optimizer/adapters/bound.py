"""The lower bound of a packing problem: relaxation, certificate, check in integers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kinema_optimizer.adapters.assignment import relax
from kinema_optimizer.adapters.lp import Floats
from kinema_optimizer.logic.certificate import Certificate, Worth, by_room, certificate, certified_bound
from kinema_optimizer.logic.kinds import Kinds, kinds_of
from kinema_optimizer.logic.packing import PackingProblem
from kinema_optimizer.logic.problem import Ints

_MARGINS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-4)
"""By how much prices are lowered so that rounding leaves them a certificate; the first that does is taken."""
_ENTERING = 12
"""Rounds in which kinds of node may enter the relaxation."""


@dataclass(frozen=True, eq=False)
class Bound:
    """What no plan costs less than (micro-USD per hour), and the proof."""

    value: int
    proof: Certificate
    kinds: Kinds
    demand: Ints


def must_place(problem: PackingProblem, kinds: Kinds, unplaced: Ints | None) -> Ints:
    """(C,): pods that every plan places which leaves as many without a place as `unplaced` (C,).

    Where pending pods are left out for want of machines, another choice among them may be as good: none counts then.
    """
    if unplaced is not None and unplaced.any():
        return np.asarray(problem.total - problem.pending, dtype=np.int64)
    return np.where((kinds.fits > 0).any(axis=0), problem.total, 0)


def lower_bound(problem: PackingProblem, unplaced: Ints | None = None) -> Bound:
    """The certified bound for plans that leave no more than `unplaced` (C,) pods without a place; None: nobody."""
    kinds = kinds_of(problem)
    demand = must_place(problem, kinds, unplaced)
    free = Bound(kinds.fixed_price, Certificate((), ()), kinds, demand)
    if not demand.any() or not len(kinds.price):
        return free
    found = relax(problem.requests, demand, kinds, rounds=_ENTERING)
    return certified(problem, found.pod_price, found.room_price, free)


def certified(
    problem: PackingProblem, pod_price: Floats, room_price: Floats, known: Bound, worth: Worth = by_room
) -> Bound:
    """The bound that prices prove, raised to a whole price unit as every cost is; `known` where that is no less.

    Args:
        problem: what is bounded.
        pod_price: (C,) micro-USD per hour.
        room_price: (K, R) of all room of a node, micro-USD per hour.
        known: a bound, with the kinds and the demand that it holds for.
        worth: what a node can hold at most.
    """
    for margin in _MARGINS:
        proof = certificate(pod_price, room_price, known.kinds, shrink=1.0 - margin)
        value = certified_bound(proof, problem.requests, known.demand, known.kinds, worth)
        if value is not None:
            unit = problem.price_unit
            return max(known, replace(known, value=-(-value // unit) * unit, proof=proof), key=lambda one: one.value)
    return known
