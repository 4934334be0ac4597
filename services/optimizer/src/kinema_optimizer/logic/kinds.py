"""What a node can be when it is forgotten which pods are on it: machines on sale, and existing nodes by kind.

The relaxations look at a cluster in this way: every movable pod may go to any kind that admits it, and an existing node
that could be replaced by its like from the market for no more money need not be told from that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kinema_optimizer.logic.packing import UNLIMITED, PackingProblem
from kinema_optimizer.logic.problem import Flags, Ints

HUGE = 2**40
"""Pods that fit where nothing limits them: more than any cluster has."""


@dataclass(frozen=True, eq=False)
class Kinds:
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
    pools: tuple[tuple[tuple[int, ...], int], ...]
    """Kinds that share a limit, and the limit."""

    @property
    def fixed_price(self) -> int:
        """What is paid in any case."""
        return int(self.price[self.fixed].sum())


def kinds_of(problem: PackingProblem) -> Kinds:
    """The kinds of a problem."""
    machine_fits = fits_in(problem, problem.machine_room, problem.machine_row)
    rows = [(problem.machine_price, problem.machine_room, problem.machine_available, machine_fits)]
    fixed = [np.zeros(len(problem.machines), dtype=bool)]
    for group in _groups(problem, machine_fits):
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
    return Kinds(
        price=np.concatenate([row[0] for row in rows]),
        room=np.concatenate([np.maximum(row[1], 0) for row in rows]),
        available=np.concatenate([row[2] for row in rows]),
        fixed=np.concatenate(fixed),
        fits=np.concatenate([np.minimum(row[3], HUGE) for row in rows]),
        pools=problem.pools,
    )


def fits_in(problem: PackingProblem, rooms: Ints, rows: Ints, classes: Ints | None = None) -> Ints:
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


def newly_fits(problem: PackingProblem, nodes: Ints, classes: Ints, enemies: Mapping[int, tuple[int, ...]]) -> Ints:
    """(nodes, n): most newcomers of each of these classes (n,) that an existing node takes, all that stay counted."""
    found = fits_in(problem, problem.node_room[nodes], problem.node_row[nodes], classes)
    column = {c: i for i, c in enumerate(classes.tolist())}
    for b, e in enumerate(nodes.tolist()):
        for c, count in problem.stays.of(e):
            if c in column:
                found[b, column[c]] = min(found[b, column[c]], max(0, int(problem.cap[c]) - count))
            for d in enemies.get(c, ()):
                if d in column:
                    found[b, column[d]] = 0
    return found


def _present(problem: PackingProblem, group: Ints) -> Ints:
    """(C,): movable pods on these nodes now: they may stay where they would not be admitted."""
    where = np.zeros(len(problem.nodes), dtype=bool)
    where[group] = True
    return problem.stays.totals(len(problem.pending), where)


def _groups(problem: PackingProblem, machine_fits: Ints) -> list[Ints]:
    """Existing nodes that are alike: fixed ones by admission; others by price, room, admission unless replaceable."""
    gross = np.maximum(problem.node_room, 0) + problem.stays.loads(problem.requests)
    if not len(problem.nodes):
        return []
    keys = np.column_stack([problem.node_fixed, problem.node_row, problem.node_price, gross])
    keys[problem.node_fixed, 2:] = 0
    _, inverse = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)
    return [group for group in groups if problem.node_fixed[group[0]] or not _like(problem, group, gross, machine_fits)]


def _like(problem: PackingProblem, group: Ints, gross: Ints, machine_fits: Ints) -> bool:
    """Whether a machine without limit costs no more, has as much room and admits as much as each of these nodes."""
    first = int(group[0])
    wanted = problem.admits[problem.node_row[first]] | (_present(problem, group) > 0)
    pooled = {m for members, _ in problem.pools for m in members}
    for m in np.flatnonzero(
        (problem.machine_available >= UNLIMITED) & (problem.machine_price <= problem.node_price[first])
    ).tolist():
        roomy = bool((problem.machine_room[m] >= gross[first]).all())
        if m not in pooled and roomy and bool((problem.admits[problem.machine_row[m]] | ~wanted).all()):
            return True
    return False
