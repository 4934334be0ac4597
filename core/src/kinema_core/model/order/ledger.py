"""Pods in one selector's scope, counted by domain, while a wave of moves goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest

from kinema_core.events import Labels
from kinema_core.model.neighbours import domain


@dataclass
class Places:
    """How many of the nodes that count for a spread constraint each domain has; domains without any are left out."""

    there: Counter[str]
    """Nodes that are there at some moment of the wave."""
    sure: Counter[str]
    """Nodes that are there all the time, until the end of the last wave."""


@dataclass
class SpreadRule:
    """Spread constraints that count alike: new copies arrive only where kube-scheduler would let them."""

    max_skew: int
    min_domains: int
    places: Places
    arrivals: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)
    """New copies that ask for it in this wave: where they come to, and where their own old copy still is then."""

    def holds(self, ledger: Ledger) -> bool:
        """Whether every arrival of the wave may come, in any order of its moves."""
        high = [
            (ledger.high(place), place, own) if place is not None else (self.max_skew + 1, None, None)
            for (place, own), count in self.arrivals.items()
            if count > 0
        ]
        if all(copies <= self.max_skew for copies, _, _ in high):
            return True
        if len(self.places.sure) < self.min_domains:
            return False
        fewest = nsmallest(3, ((ledger.low(place), place) for place in self.places.there))
        return all(place is not None and self._bears(copies, place, own, fewest) for copies, place, own in high)

    def _bears(self, copies: int, place: str, own: str | None, fewest: Iterable[tuple[int, str]]) -> bool:
        """Whether nowhere are too few beside so many; an old copy that waits for the new one is still there."""
        return all(copies - low - (other == own) <= self.max_skew for low, other in fewest if other != place)


class Ledger:
    """Copies per domain: at the start of the wave, those that come in it, and those that it takes away.

    In any order of the wave's moves a domain has at most `high` and at least `low` copies. A surge within the domain
    never lowers the count, and an eviction never raises it. Who is evicted and comes back to the domain is away for a
    moment: a new copy may not count on it, but who stays keeps it as company.
    """

    def __init__(self, topology_key: str, labels: Mapping[str, Labels], members: frozenset[str]) -> None:
        """`labels` of every node, kept and looked at again; `members` are the keys of the pods in scope."""
        self.topology_key = topology_key
        self.members = members
        self.base: Counter[str] = Counter()
        self.before: Counter[str] = Counter()
        self.after: Counter[str] = Counter()
        self.loners: Counter[str] = Counter()
        """Pods that keep all others in scope out of their domain."""
        self.strangers: Counter[str] = Counter()
        """Pods that keep everybody in scope out of their domain, and are not in scope themselves."""
        self.needs: dict[str, Counter[int]] = {}
        """Least copies that pods with affinity need where they stay, and how many pods say so."""
        self.arriving: Counter[str] = Counter()
        """New copies of the wave that need one in the domain that they come to."""
        self.firsts: Counter[int] = Counter()
        """Copies that there may be in this wave, for pods that come because nobody is there whom they could need."""
        self.spreads: list[SpreadRule] = []
        self.version = 0
        """Another one after each wave that changed anything."""
        self._labels = labels
        self._came: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._back: Counter[str] = Counter()
        """Of those, the evicted ones that come back to the domain."""

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
            self._back[source] += by * (source == place)

    def settle(self, source: str | None, place: str | None) -> None:
        """The move is over: the old copy is gone."""
        if source is not None:
            self.base[source] -= 1
        if place is not None:
            self.base[place] += 1

    def clear(self) -> None:
        """The wave is over."""
        self.version += 1
        self._came.clear()
        self._lost.clear()
        self._back.clear()
        self.arriving.clear()
        self.firsts.clear()
        for spread in self.spreads:
            spread.arrivals.clear()

    def holds(self, source: str | None, place: str | None, *, keeping_apart: bool) -> bool:
        """Whether every rule about the pods in scope holds after a move between these domains, in any order.

        `keeping_apart`: anti-affinity asks about whoever moves; where that is broken already, all others may come.
        """
        if any(n > 0 and self.copies > most for most, n in self.firsts.items()):
            return False
        if keeping_apart and place is not None and not self._lets_in(place):
            return False
        if not all(self._keeps(each) for each in (source, place) if each is not None):
            return False
        return all(spread.holds(self) for spread in self.spreads)

    def _lets_in(self, place: str) -> bool:
        """Whether nobody in the domain keeps somebody out who comes, or comes and keeps out who is there."""
        copies = self.high(place)
        return not ((copies > 1 and self.loners[place]) or (copies and self.strangers[place]))

    def _keeps(self, place: str) -> bool:
        """Whether everybody in the domain keeps the company that it needs, and who comes is sure to find some."""
        if self.arriving[place] > 0 and self.low(place) < 1:
            return False
        needs, left = self.needs.get(place), self.low(place) + self._back[place]
        return not needs or left >= max((least for least, n in needs.items() if n > 0), default=0)
