"""What pods give up of their preferences about other pods: at each node, while seats change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kinema_core.events import Pod
from kinema_core.model.checks.rules import Group, World, group_of
from kinema_core.model.neighbours import Scope, domain, pod_index, selects, term_scope
from kinema_core.model.preferences import UNWEIGHTED
from kinema_optimizer.logic.problem import Flags, Ints


@dataclass
class _Tally:
    """Pods in a scope per domain of a topology."""

    places: Ints
    """(N,): number of each node's domain; the last domain stands for none."""
    counts: Ints
    """(D + 1,): pods per domain; of the last one 0."""


class _Wish(NamedTuple):
    """A preference: near the pods of a tally, away from them, or no more of them than elsewhere."""

    tally: _Tally
    counted: bool
    """Whether the pod itself is one of them."""
    weight: int
    near: bool = False
    skew: int | None = None
    """Of a spread: how many more there may be than where there are fewest."""
    level: Ints | None = None
    """Of a spread: the domains of which the fewest is taken; none where an empty one counts."""


class Company:
    """Who is with whom, for pods that mind."""

    def __init__(self, world: World, names: Sequence[str], pods: Iterable[Pod]) -> None:
        """`names` are the nodes in the order of all arrays; those that `world` does not know are in no domain."""
        self._world = world
        self._names = names
        self._places: dict[str, tuple[Ints, dict[str, int]]] = {}
        self._tallies: dict[tuple[Scope, str], _Tally] = {}
        self._counted: dict[str, list[_Tally]] = defaultdict(list)
        self._wishes = {pod.key: self._wishes_of(pod) for pod in pods}

    def points(self, key: str, at: int) -> Ints:
        """(N,): weight points that a pod which is at a node now would give up at each, with all others as they are."""
        found = np.zeros(len(self._names), dtype=np.int64)
        for wish in self._wishes.get(key, ()):
            tally = wish.tally
            others = tally.counts.copy()
            others[tally.places[at]] -= int(wish.counted)
            others[-1] = 0
            found += wish.weight * _unmet(wish, others)[tally.places]
        return found

    def move(self, key: str, at: int, to: int) -> None:
        """A pod changes its node."""
        for tally in self._counted.get(key, ()):
            tally.counts[tally.places[at]] -= 1
            tally.counts[tally.places[to]] += 1
            tally.counts[-1] = 0

    def _wishes_of(self, pod: Pod) -> tuple[_Wish, ...]:
        found = []
        cluster = self._world.cluster
        for terms, near in ((pod.rules.affinity, True), (pod.rules.anti_affinity, False)):
            for term in terms:
                if term.weight:
                    scope = term_scope(cluster, pod, term)
                    tally = self._tally(scope, term.topology_key)
                    found.append(_Wish(tally, selects(scope, pod), term.weight, near))
        for spread in pod.rules.spread:
            if spread.when_unsatisfiable == "ScheduleAnyway":
                group = group_of(pod, spread)
                tally, level = self._tally(group.scope, spread.topology_key), self._level(group)
                counted = selects(group.scope, pod)
                found.append(_Wish(tally, counted, UNWEIGHTED, skew=group.max_skew, level=level))
        return tuple(found)

    def _level(self, group: Group) -> Ints | None:
        domains = self._world.domains(group.eligible)
        if not domains or len(domains) < group.min_domains or self._world.loses(group.eligible):
            return None
        numbers = self._numbered(group.eligible.topology_key)[1]
        return np.array(sorted(numbers[name] for name in domains), dtype=np.int64)

    def _tally(self, scope: Scope, topology_key: str) -> _Tally:
        if (scope, topology_key) not in self._tallies:
            places, numbers = self._numbered(topology_key)
            counts = np.zeros(len(numbers) + 1, dtype=np.int64)
            for name, pods in self._world.counts(scope, topology_key).items():
                counts[numbers[name]] = pods
            tally = self._tallies[scope, topology_key] = _Tally(places, counts)
            for pod in pod_index(self._world.cluster).select(scope):
                self._counted[pod.key].append(tally)
        return self._tallies[scope, topology_key]

    def _numbered(self, topology_key: str) -> tuple[Ints, dict[str, int]]:
        """(N,) number of each node's domain, and the numbers by name."""
        if topology_key not in self._places:
            spots = [self._world.nodes.get(name) for name in self._names]
            named = [domain(spot.labels, topology_key) if spot is not None else None for spot in spots]
            numbers = {name: n for n, name in enumerate(dict.fromkeys(name for name in named if name is not None))}
            places = [len(numbers) if name is None else numbers[name] for name in named]
            self._places[topology_key] = np.array(places, dtype=np.int64), numbers
        return self._places[topology_key]


def _unmet(wish: _Wish, others: Ints) -> Flags:
    """(D + 1,): in which domains the preference would not hold, by the other pods in each."""
    if wish.skew is None:
        found: Flags = (others > 0) != wish.near
        return found
    fewest = 0 if wish.level is None else int(others[wish.level].min())
    found = others + int(wish.counted) - fewest > wish.skew
    found[-1] = True
    return found
