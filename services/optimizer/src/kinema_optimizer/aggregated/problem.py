"""The placement problem in integers, and what a solution of it is.

Source: the Kinema thesis, chapter 5.3.4 (algorithm 6, equations 5.1-5.7), with two changes. Pods that are alike are one
class with a count, and pods on an existing node that is kept stay there: a plan then never needs room that another
pod has yet to leave. Where every existing machine is also on sale without limit, that rule costs nothing, because
deleting a node and booting its like frees its pods to go anywhere; elsewhere `unbound` bounds what it may cost.

Sizes: `C` pod classes, `R` resources, `E` existing nodes, `M` machines on sale, `U` workloads moved by rolling update.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

import numpy as np

from kinema_optimizer.problem.arrays import Flags, Ints, frozen


@dataclass(frozen=True, eq=False)
class DenseProblem:
    """A placement problem. Amounts are in the integer unit of their resource, prices in micro-USD per hour."""

    resources: tuple[str, ...]
    requests: Ints
    """(C, R): what one pod of a class requests."""
    pending: Ints
    """(C,): pods that run nowhere yet; the only ones that may be left without a place."""
    rolled: Ints
    """(C,): pods that are replaced in any case, because their requests change."""

    nodes: tuple[str, ...]
    node_price: Ints
    """(E,)"""
    node_room: Ints
    """(E, R): free for newcomers when the node is kept with all that is on it; negative where that is too much."""
    node_limit: Ints
    """(E, C): most newcomers of a class that fit; 0 where the node does not admit them."""
    node_stays: Ints
    """(E, C): movable pods on the node: they stay when it is kept and need another place when it is deleted."""
    node_old: Ints
    """(E, C): pods of `rolled` that run on the node now; a newcomer of their class there has not moved."""
    rollouts: Ints
    """(U, E, C): pods of workloads that are moved by a rolling update: when one of their nodes is deleted, all of a
    workload's pods are replaced, while the old ones keep their room on nodes that stay."""
    node_fixed: Flags
    """(E,): the node must be kept."""
    node_replaceable: Flags
    """(E,): it may be deleted, and its like can be bought without limit for no more money."""
    node_size: Ints
    """(E,): the second term of equation 5.1, in 1e-3 micro-USD."""

    machines: tuple[str, ...]
    machine_price: Ints
    """(M,)"""
    machine_room: Ints
    """(M, R): what a new machine has for pods besides daemon sets."""
    machine_limit: Ints
    """(M, C): most pods of a class that fit on a new machine; 0 where it does not admit them."""
    machine_count: Ints
    """(M,): virtual nodes, `virtual_nodes` capped by what the provider has."""
    machine_size: Ints
    """(M,): the second term of equation 5.1, in 1e-3 micro-USD."""

    pools: tuple[tuple[tuple[int, ...], int], ...] = ()
    """Machines that share a limit, and the limit."""
    conflicts: tuple[tuple[int, int], ...] = ()
    """Pairs of classes of which no node takes newcomers of both; what stays on a node is in its limits already."""

    @property
    def staying_is_free(self) -> bool:
        """No plan that also moves pods between kept nodes can be cheaper than the best one that does not.

        Whatever it puts on a node that has movable pods now, it can as well put on a new one of its like.
        """
        return bool((self.node_replaceable | ~self.movable.any(axis=1)).all())

    @cached_property
    def movable(self) -> Ints:
        """(E, C): pods on each node now that may move or are replaced."""
        return np.asarray(self.node_stays + self.node_old + self.rollouts.sum(axis=0), dtype=np.int64)

    @cached_property
    def demand(self) -> Ints:
        """(C,): pods that need a place whatever is kept."""
        return np.asarray(self.pending + self.rolled, dtype=np.int64)

    @cached_property
    def total(self) -> Ints:
        """(C,): pods that need a place when every node that may go goes, and more than any solution ever places."""
        return np.asarray(self.demand + self.node_stays.sum(axis=0) + self.rollouts.sum(axis=(0, 1)), dtype=np.int64)

    @cached_property
    def price_unit(self) -> int:
        """Every cost is a multiple of this many micro-USD."""
        return gcd(*self.node_price.tolist(), *self.machine_price.tolist()) or 1


@dataclass(frozen=True)
class Boot:
    """One new machine and how many pods of each class it takes."""

    machine: int
    counts: tuple[int, ...]


@dataclass(frozen=True)
class DenseSolution:
    """An answer to a problem: counts per class, not yet which pod."""

    keep: tuple[bool, ...]
    """Per existing node."""
    newcomers: tuple[tuple[int, ...], ...]
    """Per existing node and class."""
    boots: tuple[Boot, ...]
    unplaced: tuple[int, ...]
    """Per class: pending pods left without a place."""


def rolled_out(problem: DenseProblem, keep: Flags) -> Flags:
    """Return which workloads (U,) have a rolling update when these nodes (E,) are kept."""
    return np.asarray(problem.rollouts[:, ~keep].any(axis=(1, 2)), dtype=np.bool_)


def needed(problem: DenseProblem, keep: Flags) -> Ints:
    """(C,): pods that need a place when these nodes (E,) are kept."""
    updates = problem.rollouts[rolled_out(problem, keep)].sum(axis=(0, 1))
    return np.asarray(problem.demand + problem.node_stays[~keep].sum(axis=0) + updates, dtype=np.int64)


def cost(problem: DenseProblem, solution: DenseSolution) -> int:
    """Price of the nodes kept and booted, micro-USD per hour."""
    kept = sum(int(price) for price, keep in zip(problem.node_price, solution.keep, strict=True) if keep)
    return kept + sum(int(problem.machine_price[boot.machine]) for boot in solution.boots)


def size(problem: DenseProblem, solution: DenseSolution) -> int:
    """The second term of equation 5.1, in 1e-3 micro-USD."""
    kept = sum(int(part) for part, keep in zip(problem.node_size, solution.keep, strict=True) if keep)
    return kept + sum(int(problem.machine_size[boot.machine]) for boot in solution.boots)


def moves(problem: DenseProblem, solution: DenseSolution) -> int:
    """Pods whose node changes; a replaced pod that comes back to its old node has not moved."""
    keep = np.array(solution.keep, dtype=bool)
    updates = problem.rollouts[rolled_out(problem, keep)].sum(axis=0)
    back = np.minimum(_newcomers(problem, solution), problem.node_old + updates)
    return int(problem.node_stays[~keep].sum() + problem.rolled.sum() + updates.sum() - back.sum())


def unplaced(solution: DenseSolution) -> int:
    """Pending pods without a place."""
    return sum(solution.unplaced)


def _newcomers(problem: DenseProblem, solution: DenseSolution) -> Ints:
    return np.array(solution.newcomers, dtype=np.int64).reshape(len(problem.nodes), len(problem.requests))


def flaws(problem: DenseProblem, solution: DenseSolution) -> tuple[str, ...]:
    """Every constraint that the solution breaks, in integers; empty when it is a plan for the problem."""
    found: list[str] = []
    taken = _newcomers(problem, solution)
    keep = np.array(solution.keep, dtype=bool)
    lost = np.array(solution.unplaced, dtype=np.int64)
    if (taken < 0).any() or (lost < 0).any() or any(min(boot.counts, default=0) < 0 for boot in solution.boots):
        found.append("a count is negative")
    if (problem.node_fixed & ~keep).any():
        found.append("a node that must stay is deleted")
    if taken[~keep].any():
        found.append("a deleted node takes pods")
    if (taken > problem.node_limit).any():
        found.append("a node takes pods that it does not admit")
    if (taken @ problem.requests > np.maximum(problem.node_room, 0))[keep].any():
        found.append("a node is overfull")
    found += _boot_flaws(problem, solution)
    loads = [*taken, *(np.array(boot.counts, dtype=np.int64) for boot in solution.boots)]
    if any(load[a] and load[b] for load in loads for a, b in problem.conflicts):
        found.append("a node brings together pods that a rule keeps apart")
    placed = taken.sum(axis=0) + lost
    for boot in solution.boots:
        placed = placed + np.array(boot.counts, dtype=np.int64)
    if (placed != needed(problem, keep)).any():
        found.append("pods are lost or placed twice")
    if (lost > problem.pending).any():
        found.append("a running pod is left without a place")
    return tuple(found)


def _boot_flaws(problem: DenseProblem, solution: DenseSolution) -> list[str]:
    found = []
    for boot in solution.boots:
        counts = np.array(boot.counts, dtype=np.int64)
        if (counts > problem.machine_limit[boot.machine]).any():
            found.append(f"a new {problem.machines[boot.machine]} takes pods that it does not admit")
        if (counts @ problem.requests > np.maximum(problem.machine_room[boot.machine], 0)).any():
            found.append(f"a new {problem.machines[boot.machine]} is overfull")
    booted = np.bincount([boot.machine for boot in solution.boots], minlength=len(problem.machines))
    pooled = any(int(booted[list(members)].sum()) > limit for members, limit in problem.pools)
    if pooled or (booted > problem.machine_count).any():
        found.append("more machines are booted than there are")
    return found


def unbound(problem: DenseProblem, *, stay_room: Ints, stay_limit: Ints) -> DenseProblem:
    """The problem without the rule that pods on a kept node stay: a kept node is a machine that exists once.

    `stay_room` (E, R) is each node's room without its movable pods, `stay_limit` (E, C) how many of a class it may
    hold then. Its optimum is a lower bound for every plan, however the pods move.
    """
    return replace(
        problem,
        rolled=frozen(problem.total - problem.pending, problem.rolled.shape),
        node_room=stay_room,
        node_limit=stay_limit,
        node_stays=frozen(np.zeros_like(problem.node_stays), problem.node_stays.shape),
        node_old=frozen(problem.movable, problem.node_old.shape),
        rollouts=frozen([], (0, *problem.node_old.shape)),
    )


def without_replaceable(problem: DenseProblem) -> DenseProblem:
    """Return the problem with every replaceable node gone; only for problems where staying is free.

    A replaceable node that a plan keeps can be replaced by its like at no higher price. So the best plan that keeps
    none costs no more than the best plan, and for the least cost the solver need not look at which to keep.
    """
    kept = np.flatnonzero(~problem.node_replaceable)
    return replace(
        problem,
        rolled=frozen(problem.total - problem.pending, problem.rolled.shape),
        nodes=tuple(problem.nodes[e] for e in kept),
        node_price=problem.node_price[kept],
        node_room=problem.node_room[kept],
        node_limit=problem.node_limit[kept],
        node_stays=problem.node_stays[kept],
        node_old=problem.node_old[kept],
        rollouts=problem.rollouts[:0, kept],
        node_fixed=problem.node_fixed[kept],
        node_replaceable=problem.node_replaceable[kept],
        node_size=problem.node_size[kept],
    )


def as_of(problem: DenseProblem, solution: DenseSolution) -> DenseSolution:
    """Return the solution of `without_replaceable(problem)` as one of the problem."""
    nothing = (0,) * len(problem.requests)
    keep, rows = iter(solution.keep), iter(solution.newcomers)
    return replace(
        solution,
        keep=tuple(not gone and next(keep) for gone in problem.node_replaceable),
        newcomers=tuple(nothing if gone else next(rows) for gone in problem.node_replaceable),
    )
