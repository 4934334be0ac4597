"""The placement problem at the size of the largest clusters, and an answer to it: sparse, in integers.

Source: the Kinema thesis, chapter 5.3.4 (algorithm 6, equations 5.1-5.7); pods that are alike are one class with a
count. No array has nodes times classes but one of truth values per distinct admission (`problem.dense` adds the
others for small clusters). Rules between pods come as two things that a node can be held against by itself:
the most pods of a class that it may hold (`cap`), and pairs of classes that may not share it (`conflicts`). What pods
hold that are on a node already never counts as broken; a newcomer obeys every rule. A node that is kept may give pods
up that others do not count on (`releasable`), so that pods which fill its room better can come.

Sizes: `C` pod classes, `R` resources, `E` existing nodes, `M` machines on sale, `A` distinct admissions, `U` workloads
moved by rolling update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Final

import numpy as np

from kinema_optimizer.problem.arrays import Flags, Ints, Pools, stock_left

UNLIMITED: Final = 2**31 - 1
"""Stands for no limit, in caps and in machines available."""


@dataclass(frozen=True, eq=False)
class Content:
    """Pods by class for each of a list of nodes, as compressed rows: node `i` has entries `start[i]:start[i + 1]`."""

    start: Ints
    """(nodes + 1,)"""
    classes: Ints
    """Class of each entry; ascending within a node."""
    counts: Ints
    """Pods of each entry, never 0; below it, in changes, pods that leave."""

    def of(self, node: int) -> tuple[tuple[int, int], ...]:
        """(class, pods) on one node."""
        row = slice(int(self.start[node]), int(self.start[node + 1]))
        return tuple(zip(self.classes[row].tolist(), self.counts[row].tolist(), strict=True))

    @property
    def nodes(self) -> int:
        """Return how many nodes are listed."""
        return len(self.start) - 1

    @cached_property
    def node_of(self) -> Ints:
        """Node of each entry."""
        return np.repeat(np.arange(self.nodes), np.diff(self.start))

    def matrix(self, classes: int) -> Ints:
        """(nodes, C): pods of each class on each node."""
        found = np.zeros((self.nodes, classes), dtype=np.int64)
        found[self.node_of, self.classes] = self.counts
        return found

    def totals(self, classes: int, where: Flags | None = None) -> Ints:
        """(C,): pods of each class on all nodes, or on those of `where` (nodes,)."""
        counts = self.counts if where is None else self.counts * where[self.node_of]
        return np.bincount(self.classes, weights=counts, minlength=classes).astype(np.int64)

    def loads(self, requests: Ints) -> Ints:
        """(nodes, R): what the pods of each node request together."""
        found = np.zeros((self.nodes, requests.shape[1]), dtype=np.int64)
        np.add.at(found, self.node_of, requests[self.classes] * self.counts[:, None])
        return found


def content(rows: list[dict[int, int]]) -> Content:
    """Content from one mapping of class to pods per node; zeros are left out."""
    kept = [sorted((c, n) for c, n in row.items() if n) for row in rows]
    flat = [entry for row in kept for entry in row]
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in kept], out=starts[1:])
    columns = np.array(flat, dtype=np.int64).reshape(len(flat), 2)
    return Content(starts, columns[:, 0].copy(), columns[:, 1].copy())


def content_of(matrix: Ints) -> Content:
    """Return the content that `matrix` (nodes, C) counts."""
    nodes, classes = np.nonzero(matrix)
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(matrix, axis=1))]).astype(np.int64)
    return Content(starts, classes.astype(np.int64), matrix[nodes, classes])


@dataclass(frozen=True, eq=False)
class Instance:
    """A placement problem. Amounts are in the integer unit of their resource, prices in micro-USD per hour."""

    resources: tuple[str, ...]
    requests: Ints
    """(C, R): what one pod of a class requests."""
    pending: Ints
    """(C,): pods that run nowhere yet; the only ones that may be left without a place."""
    rolled: Ints
    """(C,): pods that are replaced in any case, because their requests change."""
    cap: Ints
    """(C,): most pods of the class on a node that takes newcomers of it; `UNLIMITED` where no rule limits them."""
    conflicts: Ints
    """(P, 2): pairs of different classes that no node may newly bring together; smaller class first, sorted."""
    disruption_cost: Ints
    """(C,): what moving one pod of the class counts, in thousandths of an ordinary move."""
    pods: Ints
    """(C,): how many pods one of the class is: more than one where pods move only together."""
    releasable: Flags
    """(C,): a node that is kept may give pods of the class up: no pod needs their company there."""
    admits: Flags
    """(A, C): distinct admissions by rule, room aside."""

    nodes: tuple[str, ...]
    node_price: Ints
    """(E,)"""
    node_room: Ints
    """(E, R): free for newcomers when the node is kept with all that is on it; negative where that is too much."""
    node_row: Ints
    """(E,): its row of `admits`; what held pods on the node rule out is ruled out there."""
    node_fixed: Flags
    """(E,): the node must be kept."""
    node_keeps_all: Flags
    """(E,): it releases no pod. Nodes that must stay and could make no room for a pod that waits are among them."""
    stays: Content
    """Movable pods of each existing node: they need another place when it is deleted, or when it gives them up."""
    old: Content
    """Pods of `rolled` by the node that they run on; a newcomer of their class there has not moved."""

    machines: tuple[str, ...]
    machine_price: Ints
    """(M,)"""
    machine_room: Ints
    """(M, R): what a new machine has for pods besides daemon sets."""
    machine_row: Ints
    """(M,): its row of `admits`."""
    machine_available: Ints
    """(M,): how many can be had; `UNLIMITED` where that is not limited."""
    pools: Pools = ()
    rollouts: tuple[Content, ...] = ()
    """(U) pods of each existing node that move by rolling update: when one of these nodes is deleted, all of a
    workload's pods are replaced, while the old ones keep their room on nodes that stay."""

    @cached_property
    def present(self) -> Content:
        """Pods of each existing node that need no other place while it is kept: those of `stays` and `rollouts`."""
        if not self.rollouts:
            return self.stays
        kinds = len(self.pending)
        updated = sum((one.matrix(kinds) for one in self.rollouts), start=self.stays.matrix(kinds))
        return content_of(updated)

    @cached_property
    def node_releases(self) -> Flags:
        """(E,): the node may give pods up while it is kept: it is not overfull."""
        return np.asarray(~self.node_keeps_all & (self.node_room >= 0).all(axis=1))

    @cached_property
    def total(self) -> Ints:
        """(C,): all pods of the class that are placed or could be."""
        return np.asarray(self.pending + self.rolled + self.present.totals(len(self.pending)), dtype=np.int64)

    @cached_property
    def everybody(self) -> int:
        """Return how many pods there are."""
        return int(self.total @ self.pods)

    @cached_property
    def price_unit(self) -> int:
        """Every cost is a multiple of this many micro-USD."""
        return gcd(*self.node_price.tolist(), *self.machine_price.tolist()) or 1


@dataclass(frozen=True, eq=False)
class Solution:
    """An answer: counts per class and node, not yet which pod."""

    keep: Flags
    """(E,): existing nodes that stay."""
    changes: Content
    """Pods that come to each existing node, and, below 0, pods of its own that leave it; none where it is deleted."""
    boots: Ints
    """(B,): machine of each new node."""
    booted: Content
    """Pods of each new node."""
    unplaced: Ints
    """(C,): pending pods left without a place."""
    updates: frozenset[int] | None = None
    """Rollouts that happen; None: they were not weighed, and classes are those of pods that move as groups."""


def rollouts_of(problem: Instance, keep: Flags) -> frozenset[int]:
    """Return the rollouts that happen when these nodes (E,) are kept."""
    return frozenset(u for u, one in enumerate(problem.rollouts) if not keep[one.node_of].all())


def cost(problem: Instance, packing: Solution) -> int:
    """Price of the nodes kept and booted, micro-USD per hour."""
    return int(problem.node_price[packing.keep].sum() + problem.machine_price[packing.boots].sum())


def displaced(problem: Instance, packing: Solution) -> Ints:
    """(C,): pods whose node is deleted, or that a rolling update replaces."""
    kinds = len(problem.pending)
    updated = (problem.rollouts[u].totals(kinds) for u in packing.updates or ())
    return np.asarray(sum(updated, start=problem.stays.totals(kinds, ~packing.keep)), dtype=np.int64)


def given_up(problem: Instance, packing: Solution) -> Ints:
    """(C,): pods that leave a node which is kept."""
    counts = np.maximum(-packing.changes.counts, 0)
    return np.bincount(packing.changes.classes, weights=counts, minlength=len(problem.pending)).astype(np.int64)


def moves(problem: Instance, packing: Solution) -> int:
    """Pods whose node changes."""
    return int(_moved(problem, packing) @ problem.pods)


def _moved(problem: Instance, packing: Solution) -> Ints:
    replaced = Counter[tuple[int, int]]()
    for one in (problem.old, *(problem.rollouts[u] for u in packing.updates or ())):
        for e, c, count in zip(one.node_of.tolist(), one.classes.tolist(), one.counts.tolist(), strict=True):
            replaced[e, c] += count
    back = np.zeros(len(problem.pending), dtype=np.int64)
    for (e, c), count in sorted(replaced.items()):
        back[c] += min(count, max(0, dict(packing.changes.of(e)).get(c, 0)))
    gone = displaced(problem, packing) + given_up(problem, packing)
    return np.asarray(gone + problem.rolled - back, dtype=np.int64)


def flaws(problem: Instance, packing: Solution) -> tuple[str, ...]:
    """Every constraint that the packing breaks, in integers; empty when it is a plan for the problem."""
    found = [*_count_flaws(problem, packing)]
    if (problem.node_fixed & ~packing.keep).any():
        found.append("a node that must stay is deleted")
    if (np.diff(packing.changes.start)[~packing.keep] > 0).any():
        found.append("a deleted node takes or gives pods")
    if (packing.updates or frozenset()) != rollouts_of(problem, packing.keep):
        found.append("a rolling update replaces a part of its workload")
    found += _leaving_flaws(problem, packing)
    coming = replace(packing.changes, counts=np.maximum(packing.changes.counts, 0)).loads(problem.requests)
    if ((coming > 0) & (packing.changes.loads(problem.requests) > problem.node_room)).any():
        found.append("a node is overfull")
    if (packing.booted.loads(problem.requests) > np.maximum(problem.machine_room[packing.boots], 0)).any():
        found.append("a new node is overfull")
    found += _admission_flaws(problem, packing)
    booted = np.bincount(packing.boots, minlength=len(problem.machines))
    if (stock_left(problem.machine_available, problem.pools, booted) < 0).any():
        found.append("more machines are booted than there are")
    return tuple(found)


def losses(problem: Instance, unplaced: Ints) -> tuple[int, int]:
    """Pods without a place, `unplaced` (C,) by class: those that run and have to be replaced, and all of them."""
    return int(np.maximum(unplaced - problem.pending, 0).sum()), int(unplaced.sum())


def _count_flaws(problem: Instance, packing: Solution) -> list[str]:
    found = []
    kinds = len(problem.pending)
    if (packing.booted.counts < 0).any() or (packing.unplaced < 0).any():
        found.append("a count is negative")
    if losses(problem, packing.unplaced)[0]:
        found.append("a running pod is left without a place")
    placed = packing.changes.totals(kinds) + packing.booted.totals(kinds) + packing.unplaced
    if (placed != problem.pending + problem.rolled + displaced(problem, packing)).any():
        found.append("pods are lost or placed twice")
    return found


def _leaving_flaws(problem: Instance, packing: Solution) -> list[str]:
    leaving = np.flatnonzero(packing.changes.counts < 0)
    nodes, classes = packing.changes.node_of[leaving], packing.changes.classes[leaving]
    found = []
    if not (problem.node_releases[nodes] & problem.releasable[classes]).all():
        found.append("a node gives pods up that have to stay")
    for node, c, count in zip(nodes.tolist(), classes.tolist(), packing.changes.counts[leaving].tolist(), strict=True):
        if dict(problem.stays.of(node)).get(c, 0) < -count:
            found.append("a node gives pods up that it does not have")
    return sorted(set(found))


def _admission_flaws(problem: Instance, packing: Solution) -> list[str]:
    found = []
    enemies = enemies_of(problem)
    for rows, content_, stays in (
        (problem.node_row, packing.changes, problem.present),
        (problem.machine_row[packing.boots], packing.booted, None),
    ):
        if not (problem.admits[rows[content_.node_of], content_.classes] | (content_.counts < 0)).all():
            found.append("a node takes pods that it does not admit")
        for node in np.flatnonzero(np.diff(content_.start) > 0).tolist():
            changed = content_.of(node)
            after = Counter(dict(stays.of(node)) if stays is not None else {})
            after.update(dict(changed))
            for c in (c for c, count in changed if count > 0):
                if after[c] > problem.cap[c]:
                    found.append("a node takes more pods of a class than a rule allows")
                if any(after[d] > 0 for d in enemies.get(c, ())):
                    found.append("a node brings together pods that a rule keeps apart")
    return sorted(set(found))


def enemies_of(problem: Instance) -> dict[int, tuple[int, ...]]:
    """For every class with conflicts, the classes that it may not share a node with."""
    found: dict[int, list[int]] = {}
    for a, b in problem.conflicts.tolist():
        found.setdefault(a, []).append(b)
        found.setdefault(b, []).append(a)
    return {c: tuple(sorted(others)) for c, others in found.items()}


def among(enemies: Mapping[int, tuple[int, ...]], classes: Ints) -> dict[int, tuple[int, ...]]:
    """Return the same for some classes (n,) alone, each named by its position among them."""
    if not enemies:
        return {}
    local = {c: i for i, c in enumerate(classes.tolist())}
    return {local[c]: tuple(local[d] for d in enemies[c] if d in local) for c in sorted(enemies.keys() & local)}
