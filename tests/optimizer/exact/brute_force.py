"""The least cost by trying everything: for tiny problems only, sharing nothing with the models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from kinema_optimizer.problem.dense import DenseInstance


def least_cost(problem: DenseInstance) -> int | None:
    """Least cost with every pod placed; None when that cannot be."""
    found = [cost for keep in _keeps(problem) if (cost := _with(problem, keep)) is not None]
    return min(found, default=None)


def _keeps(problem: DenseInstance) -> Iterator[tuple[bool, ...]]:
    return product(*[[True] if fixed else [True, False] for fixed in problem.node_fixed.tolist()])


def _with(problem: DenseInstance, keep: tuple[bool, ...]) -> int | None:
    """Least cost when exactly these nodes are kept."""
    classes = range(len(problem.requests))
    count = [int(problem.pending[c] + problem.rolled[c]) for c in classes]
    for e, kept in enumerate(keep):
        if not kept:
            count = [count[c] + int(problem.node_stays[e, c]) for c in classes]
    for rollout in problem.node_updates.tolist():
        if any(not keep[e] and any(row) for e, row in enumerate(rollout)):
            count = [count[c] + sum(row[c] for row in rollout) for c in classes]
    pods = [c for c in classes for _ in range(count[c])]
    bins = [
        (list(problem.node_room[e].tolist()), list(problem.node_limit[e].tolist()))
        for e, kept in enumerate(keep)
        if kept
    ]
    paid = sum(int(problem.node_price[e]) for e, kept in enumerate(keep) if kept)
    return _place(problem, pods, bins, [], paid=paid)


def _place(
    problem: DenseInstance, pods: list[int], bins: list[tuple[list[int], list[int]]], boots: list[int], *, paid: int
) -> int | None:
    """Place the first pod everywhere it may go, then the rest."""
    if not pods:
        return paid
    c, rest = pods[0], pods[1:]
    request = problem.requests[c].tolist()
    found: list[int] = []
    for room, limit in bins:
        if limit[c] > 0 and all(free >= need or need == 0 for free, need in zip(room, request, strict=True)):
            for r, need in enumerate(request):
                room[r] -= need
            limit[c] -= 1
            cost = _place(problem, rest, bins, boots, paid=paid)
            found += [] if cost is None else [cost]
            for r, need in enumerate(request):
                room[r] += need
            limit[c] += 1
    for m, limits in enumerate(problem.machine_limit.tolist()):
        if limits[c] > 0 and _left(problem, boots, m) > 0:
            fresh = (list(problem.machine_room[m].tolist()), list(limits))
            for r, need in enumerate(request):
                fresh[0][r] -= need
            fresh[1][c] -= 1
            cost = _place(problem, rest, [*bins, fresh], [*boots, m], paid=paid + int(problem.machine_price[m]))
            found += [] if cost is None else [cost]
    return min(found, default=None)


def _left(problem: DenseInstance, boots: list[int], machine: int) -> int:
    own = int(problem.machine_count[machine]) - boots.count(machine)
    shared = []
    for pool in problem.pools:
        each = pool.weights
        if machine in each:
            shared.append((pool.limit - sum(each.get(m, 0) for m in boots)) // each[machine])
    return min([own, *shared])
