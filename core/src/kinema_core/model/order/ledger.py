"""Pods in one selector's scope, counted by domain, while a wave of moves goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from kinema_core.events import Labels
from kinema_core.model.neighbours import domain


@dataclass
class SpreadRule:
    """Spread constraints that count alike: new copies arrive only where kube-scheduler would let them."""

    bound: int
    """The skew that is allowed: what was asked for, or what is there before or after the plan where that is more."""
    domains: set[str]
    min_domains: int
    arrivals: Counter[str] = field(default_factory=Counter)
    """New copies that ask for it, by domain, in this wave."""

    def holds(self, ledger: Ledger) -> bool:
        """Whether every arrival of the wave may come, in any order of its moves."""
        places = [place for place, count in self.arrivals.items() if count > 0]
        if not places:
            return True
        highest = max(ledger.high(place) for place in places)
        if highest <= self.bound:
            return True
        if len(self.domains) < self.min_domains:
            return False
        return highest - min(ledger.low(place) for place in self.domains) <= self.bound


class Ledger:
    """Copies per domain: at the start of the wave, those that come in it, and those that it takes away.

    In any order of the wave's moves a domain has at most `high` and at least `low` copies. A surge within the domain
    never lowers the count, and an eviction never raises it.
    """

    def __init__(self, topology_key: str, labels: Mapping[str, Labels], members: frozenset[str]) -> None:
        """`labels` of every node, kept and looked at again; `members` are the keys of the pods in scope."""
        self.topology_key = topology_key
        self.members = members
        self.base: Counter[str] = Counter()
        self.before: Counter[str] = Counter()
        self.after: Counter[str] = Counter()
        self.limits: dict[str, Counter[int]] = {}
        """Most copies that pods with anti-affinity bear in their domain, and how many pods say so."""
        self.needs: dict[str, Counter[int]] = {}
        """Least copies that pods with affinity need in their domain, and how many pods say so."""
        self.firsts: Counter[int] = Counter()
        """Copies that there may be in this wave, for pods that come because nobody is there whom they could need."""
        self.spreads: list[SpreadRule] = []
        self._labels = labels
        self._came: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()

    def domain(self, node: str | None) -> str | None:
        """The domain of a node."""
        return None if node is None else domain(self._labels.get(node), self.topology_key)

    def high(self, place: str) -> int:
        """Most copies in the domain during the wave."""
        return self.base[place] + self._came[place]

    def low(self, place: str) -> int:
        """Fewest copies in the domain during the wave."""
        return self.base[place] - self._lost[place]

    @property
    def copies(self) -> int:
        """All copies that are there at some moment of the wave."""
        return self.base.total() + self._came.total()

    def shift(self, source: str | None, place: str | None, *, evicted: bool, by: int) -> None:
        """A member moves from domain to domain in this wave (`by` 1), or does not after all (-1)."""
        if place is not None and not (evicted and source == place):
            self._came[place] += by
        if source is not None and (evicted or source != place):
            self._lost[source] += by

    def settle(self, source: str | None, place: str | None) -> None:
        """The move is over: the old copy is gone."""
        if source is not None:
            self.base[source] -= 1
        if place is not None:
            self.base[place] += 1

    def clear(self) -> None:
        """The wave is over."""
        self._came.clear()
        self._lost.clear()
        self.firsts.clear()
        for spread in self.spreads:
            spread.arrivals.clear()

    def holds(self, *places: str | None) -> bool:
        """Whether every rule about the pods in scope holds in these domains, in any order of the wave's moves."""
        if any(n > 0 and self.copies > most for most, n in self.firsts.items()):
            return False
        for place in places:
            if place is None:
                continue
            limits, needs = self.limits.get(place), self.needs.get(place)
            if limits and self.high(place) > min(
                (most for most, n in limits.items() if n > 0), default=self.high(place)
            ):
                return False
            if needs and self.low(place) < max((least for least, n in needs.items() if n > 0), default=0):
                return False
        return all(spread.holds(self) for spread in self.spreads)
