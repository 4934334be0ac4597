"""Which nodes are closed when: only as many at a time as allowed, those first that save most for the time they take.

A stage of a plan is an exchange: nodes that go, and the nodes that are booted for their pods. Nodes are closed one
after another as places become free. What the next ones need is booted in the meantime. So the cost falls with every
exchange that has ended, and a plan that is stopped keeps what it has saved (ADR 15).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from kinema_core.events import Plan
from kinema_rescheduler.plan.route import Route

_MICRO: Final = 1_000_000
_FIXED_ROUNDS: Final = 2
"""What closing and deleting a node take beside its moves, in moves one after another."""


@dataclass(frozen=True)
class Closing:
    """A node that is to go."""

    node: str
    boots: frozenset[str]
    """Booted nodes that its pods go to."""


def closings_of(plan: Plan, route: Route) -> tuple[Closing, ...]:
    """Return the nodes that a plan deletes, in the order in which they are closed.

    By the first wave in which a pod leaves; nodes with pods of rolling updates later, since these come last. Among
    equals empty ones first, then the one that saves most for the time that it takes, less what has yet to be booted for
    it. Workloads move side by side and the pods of one after another: the one with most pods on a node decides how long
    that takes. Where that is the same, the node with fewest pods: all moves share the API server.
    """
    booted = {node.name: _price(node.usd_per_hour) for node in plan.nodes if node.action == "boot"}
    prices = {node.name: _price(node.usd_per_hour) for node in plan.nodes if node.action == "delete"}
    first: dict[str, int] = {}
    targets: dict[str, set[str]] = {name: set() for name in prices}
    moves: dict[str, Counter[str]] = {name: Counter() for name in prices}
    rolling: set[str] = set()
    for place in plan.placements:
        if place.source not in prices:
            continue
        legs = route.legs.get(place.uid, ())
        for leg in legs[:1]:
            first[place.source] = min(leg.wave, first.get(place.source, leg.wave))
        targets[place.source].update(leg.to for leg in legs if leg.to in booted)
        moves[place.source][place.pod.rpartition("-")[0]] += 1  # by the set that made them
        if place.strategy == "rolling":
            rolling.add(place.source)
    groups: dict[tuple[int, bool], list[str]] = {}
    for name in sorted(prices):
        groups.setdefault((first.get(name, 0), name in rolling), []).append(name)
    order: list[str] = []
    paid: set[str] = set()
    for key in sorted(groups):
        order += _by_saving(groups[key], prices, booted, targets, moves, paid)
    return tuple(Closing(name, frozenset(targets[name])) for name in order)


def _price(usd_per_hour: float) -> int:
    return round(usd_per_hour * _MICRO)


def _by_saving(
    names: Iterable[str],
    prices: Mapping[str, int],
    booted: Mapping[str, int],
    targets: Mapping[str, set[str]],
    moves: Mapping[str, Counter[str]],
    paid: set[str],
) -> list[str]:
    """Return the names, greedily by saving for the time; notes in `paid` what is booted for them."""
    missing = {name: sum(booted[boot] for boot in targets[name] - paid) for name in names}
    users: dict[str, list[str]] = {}
    for name in missing:
        for boot in targets[name] - paid:
            users.setdefault(boot, []).append(name)

    def rank(name: str) -> tuple[bool, float, int, str]:
        rounds, pods = max(moves[name].values(), default=0), moves[name].total()
        return rounds > 0, (missing[name] - prices[name]) / (_FIXED_ROUNDS + rounds), pods, name

    order: dict[str, None] = {}
    queue = [rank(name) for name in missing]
    heapify(queue)
    while queue:
        best = heappop(queue)[-1]
        if best in order:
            continue
        order[best] = None
        for boot in sorted(targets[best] - paid):
            paid.add(boot)
            for user in users.get(boot, ()):
                missing[user] -= booted[boot]
                heappush(queue, rank(user))
    return list(order)


def most_closed(limit: int | str, nodes: int) -> int:
    """Return how many of so many nodes may be closed at a time, by a number or a share in percent; at least 1."""
    if isinstance(limit, int):
        return max(1, limit)
    return max(1, nodes * int(limit.removesuffix("%")) // 100)
