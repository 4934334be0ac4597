"""Rules between pods, counted by topology domain: affinity, anti-affinity and spread, as the scheduler filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kinema_core.events import Labels, Pod, Spread
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import HOSTNAME
from kinema_core.model.neighbors import Scope, enforced, pod_index, required, spread_scope, term_scope

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = Mapping[str, Ints]
"""Topology key → the domain of each node in question; -1 where it is in none."""


@dataclass
class _Count:
    """Pods per domain of one topology key."""

    key: str
    here: Ints = field(default_factory=lambda: np.zeros(64, dtype=np.int64))

    def add(self, domain: int, number: int) -> None:
        if domain >= len(self.here):
            self.here = np.concatenate([self.here, np.zeros(max(len(self.here), domain), dtype=np.int64)])
        self.here[domain] += number

    def at(self, domains: Ints) -> Ints:
        """Return the pods in the domain of each node; 0 where it is in none."""
        known = (domains >= 0) & (domains < len(self.here))
        return np.where(known, self.here[np.where(known, domains, 0)], 0)

    @property
    def total(self) -> int:
        return int(self.here.sum())


@dataclass
class _Rules:
    """Counts that matter to one kind of pods, and counts that it is part of."""

    counted: list[_Count] = field(default_factory=list)
    """Counts that a pod of this kind adds to."""
    avoids: list[_Count] = field(default_factory=list)
    """No domain with any of these: its own anti-affinity, and that of others against it."""
    needs: list[tuple[_Count, bool]] = field(default_factory=list)
    """A domain with some of these; the flag: it is one of them, and may be the first."""
    spreads: list[tuple[_Count, Spread]] = field(default_factory=list)


class Topology:
    """Counts for every rule between pods; `kinds` are given by a sample pod each, and by the kind of every pod key."""

    def __init__(self, cluster: Cluster, samples: Sequence[Pod], kind_of: Mapping[str, int]) -> None:
        self._rules: dict[int, _Rules] = {}
        self._domains: dict[str, dict[str, int]] = {HOSTNAME: {}}
        self._scoped: dict[tuple[Scope, str], _Count] = {}
        self._members: dict[Scope, tuple[int, ...]] = {}
        self._cluster = cluster
        self._kind_of = kind_of
        for kind, pod in enumerate(samples):
            if pod.rules.affinity or pod.rules.anti_affinity or pod.rules.spread:
                self._read(kind, pod)

    def _read(self, kind: int, pod: Pod) -> None:
        mine = self._of(kind)
        for term in required(pod.rules.anti_affinity):
            scope = term_scope(self._cluster, pod, term)
            mine.avoids.append(self._count(scope, term.topology_key))
            owners = _Count(term.topology_key)
            mine.counted.append(owners)
            for other in self._kinds_in(scope):
                self._of(other).avoids.append(owners)
        for term in required(pod.rules.affinity):
            scope = term_scope(self._cluster, pod, term)
            mine.needs.append((self._count(scope, term.topology_key), kind in self._kinds_in(scope)))
        for spread in enforced(pod.rules.spread):
            mine.spreads.append((self._count(spread_scope(pod, spread), spread.topology_key), spread))

    def _of(self, kind: int) -> _Rules:
        return self._rules.setdefault(kind, _Rules())

    def _kinds_in(self, scope: Scope) -> tuple[int, ...]:
        if scope not in self._members:
            found = {
                self._kind_of[pod.key] for pod in pod_index(self._cluster).select(scope) if pod.key in self._kind_of
            }
            self._members[scope] = tuple(sorted(found))
        return self._members[scope]

    def _count(self, scope: Scope, key: str) -> _Count:
        self._domains.setdefault(key, {})
        if (scope, key) not in self._scoped:
            count = self._scoped[scope, key] = _Count(key)
            for kind in self._kinds_in(scope):
                self._of(kind).counted.append(count)
        return self._scoped[scope, key]

    @property
    def keys(self) -> tuple[str, ...]:
        """The topology keys that rules name."""
        return tuple(self._domains)

    def domain(self, key: str, labels: Labels) -> int:
        """Return the number of the domain of a node with these labels; -1 for none."""
        value = labels.get(key)
        known = self._domains[key]
        return -1 if value is None else known.setdefault(value, len(known))

    def concerns(self, kind: int) -> bool:
        """Return whether any rule between pods is about this kind."""
        return kind in self._rules

    def local(self, kind: int) -> bool:
        """Return whether all rules about this kind are about single nodes."""
        mine = self._rules.get(kind)
        return mine is None or all(count.key == HOSTNAME for count in _counts_of(mine))

    def add(self, kind: int, domains: Mapping[str, int], number: int) -> None:
        """Count pods of the kind that come to a node (or leave it, below 0)."""
        mine = self._rules.get(kind)
        for count in mine.counted if mine else ():
            if domains[count.key] >= 0:
                count.add(domains[count.key], number)

    def admits(self, kind: int, places: Places, eligible: Mapping[str, Ints]) -> Flags | None:
        """Return nodes that take one more pod of the kind; None: all. `eligible`: domains that count for its spread."""
        mine = self._rules.get(kind)
        if mine is None:
            return None
        found: Flags = np.ones(len(places[HOSTNAME]), dtype=np.bool_)
        for count in mine.avoids:
            found &= count.at(places[count.key]) == 0
        for count, itself in mine.needs:
            if not (itself and count.total == 0):
                found &= count.at(places[count.key]) > 0
            found &= places[count.key] >= 0
        for count, spread in mine.spreads:
            domains = eligible[count.key]
            least = int(count.at(domains).min(initial=0 if not len(domains) else 2**31))
            if len(domains) < spread.min_domains:
                least = 0
            found &= (count.at(places[count.key]) + 1 - least <= spread.max_skew) & (places[count.key] >= 0)
        return found

    def spread_keys(self, kind: int) -> tuple[str, ...]:
        """Return the topology keys of the kind's spread constraints."""
        mine = self._rules.get(kind)
        return () if mine is None else tuple(dict.fromkeys(count.key for count, _ in mine.spreads))

    def deserted(self, kind: int, domains: Mapping[str, int]) -> bool:
        """Return whether a pod of the kind on such a node now lacks one that it needs."""
        mine = self._rules.get(kind)
        for count, itself in mine.needs if mine else ():
            here = int(count.at(np.array([domains[count.key]]))[0]) - int(itself)
            if here <= 0 and not (itself and count.total == 1):
                return True
        return False

    def needing(self) -> tuple[int, ...]:
        """Return kinds with required affinity."""
        return tuple(kind for kind, mine in sorted(self._rules.items()) if mine.needs)


def _counts_of(mine: _Rules) -> list[_Count]:
    return [*mine.counted, *mine.avoids, *(count for count, _ in mine.needs), *(count for count, _ in mine.spreads)]
