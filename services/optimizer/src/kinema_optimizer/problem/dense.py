"""The dense form of the instance, for models of small clusters: every class on every node.

Pods on an existing node that is kept stay there, unlike in the thesis: a plan then never needs room that another pod
has yet to leave. Where every existing machine is also on sale without limit, that rule costs nothing, because deleting
a node and booting its like frees its pods to go anywhere; elsewhere `unbound` bounds what it may cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from kinema_optimizer.problem.arrays import Flags, Ints
from kinema_optimizer.problem.instance import (
    Content,
    Instance,
    Solution,
    content_of,
    enemies_of,
    rollouts_of,
)
from kinema_optimizer.problem.node_types import fits_in, has_like_on_sale, most_useful, newly_fits


@dataclass(frozen=True, eq=False, kw_only=True)
class DenseInstance(Instance):
    """An instance with limits by node and class."""

    node_limit: Ints
    """(E, C): most newcomers of a class that fit; 0 where the node does not admit them."""
    node_replaceable: Flags
    """(E,): it may be deleted, and its like can be bought without limit for no more money."""
    node_size: Ints
    """(E,): the second term of equation 5.1, in 1e-3 micro-USD."""
    machine_limit: Ints
    """(M, C): most pods of a class that fit on a new machine; 0 where it does not admit them."""
    machine_count: Ints
    """(M,): virtual nodes (algorithm 6), capped by what the provider has."""
    machine_size: Ints
    """(M,): the second term of equation 5.1, in 1e-3 micro-USD."""

    @property
    def staying_is_free(self) -> bool:
        """No plan that also moves pods between kept nodes can be cheaper than the best one that does not.

        Whatever it puts on a node that has movable pods now, it can as well put on a new one of its like.
        """
        return bool((self.node_replaceable | ~self.movable.any(axis=1)).all())

    @cached_property
    def node_stays(self) -> Ints:
        """(E, C): movable pods on the node: they stay when it is kept and need another place when it is deleted."""
        return self.stays.matrix(len(self.pending))

    @cached_property
    def node_old(self) -> Ints:
        """(E, C): pods of `rolled` that run on the node now; a newcomer of their class there has not moved."""
        return self.old.matrix(len(self.pending))

    @cached_property
    def node_updates(self) -> Ints:
        """(U, E, C): pods by rollout, node and class."""
        found = [one.matrix(len(self.pending)) for one in self.rollouts]
        return np.array(found, dtype=np.int64).reshape(len(found), *self.node_limit.shape)

    @cached_property
    def movable(self) -> Ints:
        """(E, C): pods on each node now that may move or are replaced."""
        return np.asarray(self.present.matrix(len(self.pending)) + self.node_old, dtype=np.int64)

    @cached_property
    def demand(self) -> Ints:
        """(C,): pods that need a place whatever is kept."""
        return np.asarray(self.pending + self.rolled, dtype=np.int64)

    def needed(self, keep: Flags) -> Ints:
        """Return the pods (C,) that need a place when these nodes (E,) are kept."""
        updates = self.node_updates[sorted(rollouts_of(self, keep))].sum(axis=(0, 1))
        return np.asarray(self.demand + self.node_stays[~keep].sum(axis=0) + updates, dtype=np.int64)

    def solution(self, keep: Flags, newcomers: Ints, boots: Sequence[tuple[int, Ints]], unplaced: Ints) -> Solution:
        """Return the solution with `newcomers` (E, C), and with `boots`: machines and what they take (C,)."""
        order = sorted(boots, key=lambda boot: (boot[0], boot[1].tolist()))
        booted = np.array([counts for _, counts in order], dtype=np.int64).reshape(len(order), len(self.pending))
        return Solution(
            keep=keep,
            changes=content_of(newcomers),
            boots=np.array([machine for machine, _ in order], dtype=np.int64),
            booted=content_of(booted),
            unplaced=unplaced,
            updates=rollouts_of(self, keep),
        )


def dense_instance(
    problem: Instance, free: Instance, *, node_size: Sequence[int], machine_size: Sequence[int]
) -> DenseInstance:
    """Return the dense form of a problem; `free` is the same with rules about nodes only."""
    kinds = np.arange(len(problem.pending))
    machine_limit = fits_in(problem, problem.machine_room, problem.machine_row)
    return DenseInstance(
        **{one.name: getattr(problem, one.name) for one in fields(Instance)},
        node_limit=newly_fits(problem, np.arange(len(problem.nodes)), kinds, enemies_of(problem)),
        node_replaceable=_replaceable(problem, _gross(free)),
        node_size=np.array(node_size, dtype=np.int64),
        machine_limit=machine_limit,
        machine_count=_machine_counts(problem, machine_limit),
        machine_size=np.array(machine_size, dtype=np.int64),
    )


def unbound(problem: DenseInstance, free: Instance) -> DenseInstance:
    """Return the problem without the rule that pods on a kept node stay, and with no rule that a reduction adds.

    A kept node is a machine that exists once. The optimum is a lower bound for every plan, however the pods move.
    `free` is the same problem with rules about nodes only.
    """
    room = _gross(free)
    machine_limit = fits_in(free, free.machine_room, free.machine_row)
    return replace(
        problem,
        rolled=problem.total - problem.pending,
        cap=free.cap,
        conflicts=free.conflicts,
        node_room=room,
        node_fixed=free.node_fixed,
        stays=_nothing(len(problem.nodes)),
        old=content_of(problem.movable),
        rollouts=(),
        node_limit=np.maximum(fits_in(free, room, free.node_row), problem.movable),
        machine_limit=machine_limit,
        machine_count=_machine_counts(problem, machine_limit),
    )


def without_replaceable(problem: DenseInstance) -> DenseInstance:
    """Return the problem with every replaceable node gone; only for problems where staying is free.

    A replaceable node that a plan keeps can be replaced by its like at no higher price. So the best plan that keeps
    none costs no more than the best plan, and for the least cost the solver need not look at which to keep.
    """
    kept = np.flatnonzero(~problem.node_replaceable)
    return replace(
        problem,
        rolled=problem.total - problem.pending,
        nodes=tuple(problem.nodes[e] for e in kept),
        stays=_nothing(len(kept)),
        old=_nothing(len(kept)),
        rollouts=(),
        **{
            name: getattr(problem, name)[kept]
            for name in (
                "node_price",
                "node_room",
                "node_row",
                "node_fixed",
                "node_keeps_all",
                "node_limit",
                "node_replaceable",
                "node_size",
            )
        },
    )


def with_replaceable(problem: DenseInstance, solution: Solution) -> Solution:
    """Return the solution of `without_replaceable(problem)` as one of the problem."""
    keep, newcomers = np.zeros(len(problem.nodes), dtype=bool), np.zeros_like(problem.node_limit)
    keep[~problem.node_replaceable] = solution.keep
    newcomers[~problem.node_replaceable] = solution.changes.matrix(len(problem.pending))
    return replace(solution, keep=keep, changes=content_of(newcomers), updates=rollouts_of(problem, keep))


def _nothing(nodes: int) -> Content:
    return content_of(np.zeros((nodes, 0), dtype=np.int64))


def _gross(free: Instance) -> Ints:
    """Return the room (E, R) of each node without its movable pods."""
    return np.asarray(np.maximum(free.node_room, 0) + free.stays.loads(free.requests), dtype=np.int64)


def _machine_counts(problem: Instance, limits: Ints) -> Ints:
    """Return how many of each machine (M,) a plan can use, when one holds at most `limits` (M, C) pods."""
    apart = np.zeros(len(problem.pending), dtype=bool)
    apart[problem.conflicts.ravel()] = True
    found = [
        most_useful(problem.requests, problem.total, room=room, limit=limit, apart=apart)
        for room, limit in zip(problem.machine_room, limits, strict=True)
    ]
    return np.minimum(np.array(found, dtype=np.int64), problem.machine_available)


def _replaceable(problem: Instance, room: Ints) -> Flags:
    """Return the deletable nodes (E,) of which the like, or better for no more money, can be bought without limit."""
    wanted = problem.admits[problem.node_row] | (problem.present.matrix(len(problem.pending)) > 0)
    wanted |= problem.old.matrix(len(problem.pending)) > 0
    found = [
        not fixed and has_like_on_sale(problem, price=int(price), room=room[e], wanted=wanted[e])
        for e, (fixed, price) in enumerate(zip(problem.node_fixed, problem.node_price, strict=True))
    ]
    return np.array(found, dtype=bool)
