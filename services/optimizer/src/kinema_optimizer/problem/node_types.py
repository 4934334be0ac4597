"""Types of nodes: equal offers as one machine, and existing nodes by kind, without regard to the pods on them.

`machines_of` merges offers that are alike and limits how many of each a plan can use. `node_types` gives the
relaxations their view: every movable pod may go to any kind that admits it, and an existing node that could be replaced
by an equal one from the market for no more money counts as that machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np

from kinema_core.events import Amounts, Offer
from kinema_core.model.stock import Draw, draws, most_of
from kinema_optimizer.problem.arrays import Flags, Ints, Pool, Pools, first_fit_count, most_that_fit, virtual_nodes
from kinema_optimizer.problem.instance import UNLIMITED, Instance


@dataclass(frozen=True, eq=False)
class Machines:
    """Machines on sale: offers that are alike in price, room, admission and availability."""

    offers: tuple[tuple[Offer, ...], ...]
    """Per machine, the offers that are alike, in the order of the catalog."""
    rows: tuple[int, ...]
    """Per machine, the index of its first offer."""
    pools: Pools


def machines_of(
    offers: Sequence[Offer], *, rooms: Ints, admits: Sequence[Flags], could: Sequence[Flags], sizes: Sequence[int]
) -> Machines:
    """Group offers; those that could hold nothing or cannot be had are left out.

    Args:
        offers: what is on sale.
        rooms: (O, R).
        admits: per offer (C,), the classes of which it may hold a pod by every rule.
        could: per offer (C,), those of which it might by rules about nodes alone.
        sizes: per offer, the second term of equation 5.1.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, offer in enumerate(offers):
        if most_of(offer) == 0 or not could[index].any():
            continue
        rules = (admits[index].tobytes(), could[index].tobytes())
        alike = (offer.micro_usd_per_hour, rooms[index].tobytes(), rules, sizes[index], draws(offer))
        groups.setdefault(alike, []).append(index)
    rows = tuple(members[0] for members in groups.values())
    return Machines(
        offers=tuple(tuple(offers[index] for index in members) for members in groups.values()),
        rows=rows,
        pools=pools_of([offers[row] for row in rows]),
    )


def most_useful(requests: Ints, totals: Ints, *, room: Ints, limit: Ints, apart: Flags) -> int:
    """Return how many machines with `room` (R,) a plan can use: algorithm 6, or first fit where whole pods need more.

    `limit` (C,) is how many of a class one holds. Classes of which rules allow fewer than fit, or that may not meet all
    others (`apart`), may each need their own.
    """
    counts = np.where(limit > 0, totals, 0)
    ruled = (limit > 0) & (apart | (limit < np.minimum(most_that_fit(requests, room), totals)))
    alone = int((-(-counts[ruled] // limit[ruled])).sum())
    packed = first_fit_count(requests, np.where(ruled, 0, counts), room)
    return max(virtual_nodes(counts @ requests, room), packed + alone)


def pools_of(firsts: Sequence[Offer]) -> Pools:
    """Return machines, each by its first offer, that share a limit; one alone is limited by its count already."""
    members: dict[str, list[tuple[int, Draw]]] = {}
    for machine, offer in enumerate(firsts):
        for draw in draws(offer):
            members.setdefault(draw.stock, []).append((machine, draw))
    return tuple(_pool(mine) for mine in members.values() if len(mine) > 1)


def _pool(members: Sequence[tuple[int, Draw]]) -> Pool:
    unit = gcd(*(draw.takes for _, draw in members))
    return Pool(
        members=tuple(machine for machine, _ in members),
        takes=tuple(draw.takes // unit for _, draw in members),
        limit=max(0, min(draw.left for _, draw in members)) // unit,
    )


def sizes_of(allocatables: Sequence[Amounts], largest: Amounts) -> tuple[int, ...]:
    """CPU and memory as shares of the largest machine's, together, in thousandths: the second term of 5.1."""
    return tuple(
        sum(1000 * amounts.get(name, 0) // max(1, largest.get(name, 0)) for name in ("cpu", "memory"))
        for amounts in allocatables
    )


_MOST_ALONE: Final = 100
"""Most nodes that are types by themselves: each makes the relaxation larger."""
HUGE = 2**40
"""Pods that fit where nothing limits them: more than any cluster has."""


@dataclass(frozen=True, eq=False)
class NodeTypes:
    """Kinds of node; `K` of them, machines on sale first and in their order."""

    price: Ints
    """(K,) micro-USD per hour; of fixed kinds the sum."""
    room: Ints
    """(K, R) for movable pods; of fixed kinds the sum."""
    available: Ints
    """(K,) how many there can be; 1 of each fixed kind."""
    fixed: Flags
    """(K,) nodes that stay in any case, taken together as one."""
    fits: Ints
    """(K, C) most pods of a class alone on one node of the kind, 0 where it does not admit them."""
    pools: Pools

    @property
    def fixed_price(self) -> int:
        """Return what is paid in any case."""
        return int(self.price[self.fixed].sum())


def node_types(problem: Instance) -> NodeTypes:
    """Return the kinds of a problem."""
    machine_fits = fits_in(problem, problem.machine_room, problem.machine_row)
    rows = [(problem.machine_price, problem.machine_room, problem.machine_available, machine_fits)]
    fixed = [np.zeros(len(problem.machines), dtype=bool)]
    for group in _groups(problem):
        stays = bool(problem.node_fixed[group[0]])
        gross = np.maximum(problem.node_room[group], 0) + problem.stays.loads(problem.requests)[group]
        here = fits_in(problem, gross, problem.node_row[group])
        staying = _present(problem, group)
        many = len(group)
        price = problem.node_price[group].sum() if stays else problem.node_price[group[0]]
        rows.append(
            (
                np.array([price]),
                (gross.sum(axis=0) if stays else gross.max(axis=0))[None],
                np.array([1 if stays else many]),
                np.maximum(here.sum(axis=0) if stays else here.max(axis=0), staying)[None],
            )
        )
        fixed.append(np.array([stays]))
    return NodeTypes(
        price=np.concatenate([row[0] for row in rows]),
        room=np.concatenate([np.maximum(row[1], 0) for row in rows]),
        available=np.concatenate([row[2] for row in rows]),
        fixed=np.concatenate(fixed),
        fits=np.concatenate([np.minimum(row[3], HUGE) for row in rows]),
        pools=problem.pools,
    )


def fits_in(problem: Instance, rooms: Ints, rows: Ints, classes: Ints | None = None) -> Ints:
    """(nodes, n): most pods of each class alone in each of `rooms` (nodes, R) under the admission `rows` (nodes,).

    Of all classes, or of those given (n,).
    """
    mine = np.arange(len(problem.cap)) if classes is None else classes
    found = np.where(problem.admits[np.ix_(rows, mine)], np.minimum(problem.cap[mine], HUGE)[None], 0)
    for r in range(rooms.shape[1]):
        request = problem.requests[mine, r]
        asks = request > 0
        most = np.maximum(rooms[:, r], 0)[:, None] // np.maximum(request, 1)[None]
        found[:, asks] = np.minimum(found, most)[:, asks]
    return np.asarray(found, dtype=np.int64)


def newly_fits(problem: Instance, nodes: Ints, classes: Ints, enemies: Mapping[int, tuple[int, ...]]) -> Ints:
    """(nodes, n): most newcomers of each of these classes (n,) that an existing node takes, all that stay counted."""
    found = fits_in(problem, problem.node_room[nodes], problem.node_row[nodes], classes)
    column = {c: i for i, c in enumerate(classes.tolist())}
    for b, e in enumerate(nodes.tolist()):
        for c, count in problem.present.of(e):
            if c in column:
                found[b, column[c]] = min(found[b, column[c]], max(0, int(problem.cap[c]) - count))
            for d in enemies.get(c, ()):
                if d in column:
                    found[b, column[d]] = 0
    return found


def _present(problem: Instance, group: Ints) -> Ints:
    """(C,): movable pods on these nodes now: they may stay where they would not be admitted."""
    where = np.zeros(len(problem.nodes), dtype=bool)
    where[group] = True
    return problem.stays.totals(len(problem.pending), where)


def _groups(problem: Instance) -> list[Ints]:
    """Existing nodes that are alike: fixed ones by admission; others by price, room, admission unless replaceable.

    Pods that may stay on a node, and come to none like it, may stay on that one alone: it is a group by itself, unless
    there are very many.
    """
    gross = np.maximum(problem.node_room, 0) + problem.stays.loads(problem.requests)
    if not len(problem.nodes):
        return []
    entry = problem.stays
    barred = entry.node_of[~problem.admits[problem.node_row[entry.node_of], entry.classes]]
    barred = np.unique(barred[~problem.node_fixed[barred]])
    alone = np.zeros(len(gross), dtype=np.int64)
    if len(barred) <= _MOST_ALONE:
        alone[barred] = 1 + barred
    keys = np.column_stack([problem.node_fixed, problem.node_row, problem.node_price, alone, gross])
    keys[problem.node_fixed, 2:] = 0
    _, inverse = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)

    def is_replaceable(group: Ints) -> bool:
        e = int(group[0])
        wanted = problem.admits[problem.node_row[e]] | (_present(problem, group) > 0)
        return has_like_on_sale(problem, price=int(problem.node_price[e]), room=gross[e], wanted=wanted)

    return [group for group in groups if problem.node_fixed[group[0]] or not is_replaceable(group)]


def has_like_on_sale(problem: Instance, *, price: int, room: Ints, wanted: Flags) -> bool:
    """Return whether a machine without limit costs no more, has as much `room` (R,) and admits all `wanted` (C,)."""
    like = (problem.machine_available >= UNLIMITED) & (problem.machine_price <= price)
    like[[m for pool in problem.pools for m in pool.members]] = False
    like &= (problem.machine_room >= room).all(axis=1)
    return bool((problem.admits[problem.machine_row[like]] | ~wanted).all(axis=1).any())
