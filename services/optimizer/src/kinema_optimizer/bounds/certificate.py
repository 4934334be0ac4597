"""Lower bound on the cost of every plan, with a certificate that is checked in exact integer arithmetic.

`lower_bound` solves the relaxation and returns the checked bound; `prove_bound` makes a bound of given prices.

What whole nodes cost beyond their shares, where nothing else holds some pods, is credited apart (`bounds.covers`).

The proof is weak duality of the assignment LP (`bounds.assignment_lp`). A certificate is a price per pod of each class
and, for each type of node, a price per unit of each resource. A node of type k then carries at most

    worth(k) = sum over resources of price x room + sum over classes of fits x max(0, pod price - priced request)

of pods, whatever is put on it. Where worth(k) is no more than what the node costs, all pods together cost no less than
the sum of their prices. Types that are limited may be worth more: each of them then lowers the bound by its excess.
Nothing here trusts how the prices were found: any certificate gives a true bound, good prices give a good one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.bounds.assignment_lp import solve_assignment_lp
from kinema_optimizer.bounds.covers import Credit, collected, covers_of, credits_of, less_credits, rows_of
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED, Instance
from kinema_optimizer.problem.node_types import NodeTypes, node_types
from kinema_optimizer.solvers.lp import Floats

SCALE: Final = 2**50
"""Denominator of every price in a certificate."""


@dataclass(frozen=True)
class Certificate:
    """Integer prices, all with the denominator `SCALE`, in micro-USD per hour."""

    pod_price: tuple[int, ...]
    """Per class, for one pod."""
    unit_price: tuple[tuple[int, ...], ...]
    """Per type and resource, for one unit (millicore, byte, piece)."""


def make_certificate(
    pod_price: NDArray[np.float64], room_price: NDArray[np.float64], types: NodeTypes, *, shrink: float
) -> Certificate:
    """Return prices as a certificate: of pods rounded down, of room rounded up, all scaled by `shrink` (0 to 1).

    Args:
        pod_price: (C,) micro-USD per hour.
        room_price: (K, R) for all of a type's room.
        types: of nodes.
        shrink: what all prices are multiplied by, so that no unlimited type is worth more than it costs.
    """
    units = room_price / np.maximum(types.room, 1)
    return Certificate(
        pod_price=tuple(int(price * shrink * SCALE) for price in np.maximum(pod_price, 0.0).tolist()),
        unit_price=tuple(
            tuple(ceil(price * shrink * SCALE) for price in row) for row in np.maximum(units, 0.0).tolist()
        ),
    )


Objects: TypeAlias = NDArray[np.object_]
"""Integers of any size."""


def worth_by_room(proof: Certificate, k: int, pods: Objects, requests: Objects, types: NodeTypes, most: Ints) -> int:
    """Return `SCALE` times what the pods on one node of type k can be worth at most: by the prices of its room.

    Args:
        proof: prices of pods and room.
        k: the type.
        pods: (C,) their prices once more.
        requests: (C, R).
        types: of nodes.
        most: (C,) most pods of each class on one.
    """
    units = proof.unit_price[k]
    worth = sum(unit * int(room) for unit, room in zip(units, types.room[k], strict=True))
    able = np.flatnonzero(most > 0)
    rest = pods[able] - sum(unit * requests[able, r] for r, unit in enumerate(units))
    above = rest > 0
    return int(worth + (rest[above] * most[able[above]].astype(object)).sum())


Worth: TypeAlias = Callable[[Certificate, int, Objects, Objects, NodeTypes, Ints], int]
"""`SCALE` times what the pods on one node of a type can be worth at most; see `worth_by_room`."""


def check_certificate(
    proof: Certificate, requests: Ints, demand: Ints, types: NodeTypes, worth: Worth = worth_by_room
) -> int | None:
    """Return the cost (micro-USD per hour) that no plan for `demand` (C,) is below; None when the certificate is none.

    Args:
        proof: prices of pods and room.
        requests: (C, R).
        demand: (C,) pods that have to be placed.
        types: of nodes that may hold them.
        worth: what a node of a type can hold at most.
    """
    pods = np.array(proof.pod_price, dtype=object)
    total = int((pods * demand.astype(object)).sum())
    asked = requests.astype(object)
    most = np.minimum(types.fits, demand[None])
    excess = [worth(proof, k, pods, asked, types, most[k]) - SCALE * int(price) for k, price in enumerate(types.price)]
    pooled = {k for pool in types.pools for k in pool.members}
    for k, over in enumerate(excess):
        if types.fixed[k]:
            total -= over + SCALE * int(types.price[k])
        elif over > 0 and k not in pooled:
            if types.available[k] >= UNLIMITED:
                return None
            total -= int(types.available[k]) * over
    total -= _most_of_pools({k: excess[k] for k in sorted(pooled) if excess[k] > 0}, types)
    return types.fixed_price + max(0, -(-total // SCALE))


def _most_of_pools(excess: dict[int, int], types: NodeTypes) -> int:
    """Return what machines that share limits are worth above their price at most, `excess` each.

    A plan has no more of a type than are on sale, and its machines take no more of a pool than its limit. A type counts
    in one of its pools: the one that saves most on the types that are left comes next.
    """

    def of(members: Iterable[int]) -> int:
        return sum(int(types.available[k]) * excess[k] for k in members)

    total = 0
    while excess:
        shares = []
        for number, pool in enumerate(types.pools):
            mine = [(k, each) for k, each in pool.weights.items() if k in excess]
            together = max((-(-pool.limit * excess[k] // each) for k, each in mine), default=0)
            shares.append((of(k for k, _ in mine) - together, -number, together))
        saved, number, together = max(shares, default=(0, 0, 0))
        if saved <= 0:
            return total + of(excess)
        total += together
        excess = {k: over for k, over in excess.items() if k not in types.pools[-number].members}
    return total


_MARGINS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-4)
"""By how much prices are lowered so that rounding leaves them a certificate; the first that does is taken."""


@dataclass(frozen=True, eq=False)
class Bound:
    """What no plan costs less than (micro-USD per hour), and the proof."""

    value: int
    proof: Certificate
    types: NodeTypes
    """At their prices less the credits."""
    demand: Ints
    credits: tuple[Credit, ...] = ()
    """Of nodes that every plan has, see `bounds.covers`."""

    @property
    def collected(self) -> int:
        """Return what every plan collects of the credits, micro-USD per hour."""
        return collected(self.credits)


def required_pods(problem: Instance, types: NodeTypes, unplaced: Ints | None) -> Ints:
    """Return the pods (C,) that every plan places which leaves as many without a place as `unplaced` (C,).

    Where pending pods are left out for want of machines, another choice among them may be as good: none counts then.
    """
    if unplaced is not None and unplaced.any():
        return np.asarray(problem.total - problem.pending, dtype=np.int64)
    return np.where((types.fits > 0).any(axis=0), problem.total, 0)


def lower_bound(problem: Instance, unplaced: Ints | None = None) -> Bound:
    """Return the certified bound for plans that leave at most `unplaced` (C,) pods without a place, by default none."""
    types = node_types(problem)
    demand = required_pods(problem, types, unplaced)
    free = Bound(types.fixed_price, Certificate((), ()), types, demand)
    if not demand.any() or not len(types.price):
        return free
    rows = rows_of(covers_of(problem.requests, demand, types), types)
    found = solve_assignment_lp(problem.requests, demand, types, rows)
    given = credits_of(rows, found.cover_price, types.price)
    if given:
        free = replace(free, types=replace(types, price=less_credits(given, types)), credits=given)
    return prove_bound(problem, found.pod_price, found.room_price, free)


def prove_bound(
    problem: Instance, pod_price: Floats, room_price: Floats, known: Bound, worth: Worth = worth_by_room
) -> Bound:
    """Return the bound that prices prove, raised to a whole price unit as every cost is; `known` where that is no less.

    Args:
        problem: what is bounded.
        pod_price: (C,) micro-USD per hour.
        room_price: (K, R) of all room of a node, micro-USD per hour.
        known: a bound, with the types and the demand that it holds for.
        worth: what a node can hold at most.
    """
    for margin in _MARGINS:
        proof = make_certificate(pod_price, room_price, known.types, shrink=1.0 - margin)
        value = check_certificate(proof, problem.requests, known.demand, known.types, worth)
        if value is not None:
            unit = problem.price_unit
            value = -(-(value + known.collected) // unit) * unit
            return max(known, replace(known, value=value, proof=proof), key=lambda one: one.value)
    return known
