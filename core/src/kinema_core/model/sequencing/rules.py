"""Rules between pods while they move: what kube-scheduler asks of each new copy, in any order of a wave's moves.

`PodRules` answers whether a move may join a wave; `DomainCounts` counts the pods in one selector's scope by domain, and
`SpreadArrivals` the new copies under one topology spread.

A new copy meets all pods that are there at that moment: those that have not left yet, those that have come, and its own
old copy unless it was evicted first. kube-scheduler admits none because things were no better before. Pods that stay
keep the company that they need, unless they have none before or after the plan either; a pod that is evicted and comes
back to their domain is still company, as kube-scheduler asks no running pod again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, Literal, NamedTuple

from kinema_core.events import Labels, PlacementRules, Pod, Spread
from kinema_core.model.cluster import Cluster
from kinema_core.model.neighbors import Scope, domain, enforced, pod_index, required, selects, spread_scope, term_scope
from kinema_core.model.pod_locations import Eligible, Group, group_of
from kinema_core.model.sequencing.capacity import NodeSpec
from kinema_core.model.sequencing.movers import Mover

AFFINITY: Final = "pod affinity"
ANTI_AFFINITY: Final = "pod anti-affinity"
SPREAD: Final = "topology spread"


@dataclass
class EligibleDomains:
    """Number of nodes that count for a spread constraint, by domain; domains without any are left out."""

    there: Counter[str]
    """Nodes that are there at some moment of the wave."""
    sure: Counter[str]
    """Nodes that are there all the time, until the end of the last wave."""


@dataclass
class SpreadArrivals:
    """Spread constraints that count alike: new copies arrive only where kube-scheduler would let them."""

    max_skew: int
    min_domains: int
    places: EligibleDomains
    arrivals: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)
    """New copies that ask for it in this wave: where they come to, and where their own old copy still is then."""

    def holds(self, tally: DomainCounts) -> bool:
        """Return whether every arrival of the wave may come, in any order of its moves."""
        high = [
            (tally.high(place), place, own) if place is not None else (self.max_skew + 1, None, None)
            for (place, own), count in self.arrivals.items()
            if count > 0
        ]
        if all(copies <= self.max_skew for copies, _, _ in high):
            return True
        if len(self.places.sure) < self.min_domains:
            return False
        fewest = nsmallest(3, ((tally.low(place), place) for place in self.places.there))
        return all(place is not None and self._bears(copies, place, own, fewest) for copies, place, own in high)

    def _bears(self, copies: int, place: str, own: str | None, fewest: Iterable[tuple[int, str]]) -> bool:
        """Return whether nowhere are too few beside so many; an old copy that waits for the new one is still there."""
        return all(copies - low - (other == own) <= self.max_skew for low, other in fewest if other != place)


class DomainCounts:
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
        self.anti_affine_members: Counter[str] = Counter()
        """Pods that keep all others in scope out of their domain."""
        self.anti_affine_outsiders: Counter[str] = Counter()
        """Pods that keep all pods in scope out of their domain, and are not in scope themselves."""
        self.needs: dict[str, Counter[int]] = {}
        """Least copies that pods with affinity need where they stay, and how many pods say so."""
        self.arriving: Counter[str] = Counter()
        """New copies of the wave that need one in the domain that they come to."""
        self.bootstraps: Counter[int] = Counter()
        """Copies that there may be in this wave, for pods that come because no pod is there that they could need."""
        self.spreads: list[SpreadArrivals] = []
        self.version = 0
        """Another one after each wave that changed anything."""
        self._labels = labels
        self._came: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._back: Counter[str] = Counter()
        """Of those, the evicted ones that come back to the domain."""

    def domain(self, node: str | None) -> str | None:
        """Return the domain of a node."""
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
        """Move a member from domain to domain in this wave (`by` 1), or take that back (-1)."""
        if place is not None and not (evicted and source == place):
            self._came[place] += by
        if source is not None and (evicted or source != place):
            self._lost[source] += by
            self._back[source] += by * (source == place)

    def settle(self, source: str | None, place: str | None) -> None:
        """End a move: the old copy is gone."""
        if source is not None:
            self.base[source] -= 1
        if place is not None:
            self.base[place] += 1

    def clear(self) -> None:
        """End the wave."""
        self.version += 1
        self._came.clear()
        self._lost.clear()
        self._back.clear()
        self.arriving.clear()
        self.bootstraps.clear()
        for spread in self.spreads:
            spread.arrivals.clear()

    def broken(self, source: str | None, place: str | None, *, keeping_apart: bool) -> str:
        """Return which rule about the pods in scope breaks after a move between these domains in some order; else "".

        `keeping_apart`: anti-affinity asks about the pods that move; where it is broken already, all others may come.
        """
        if any(n > 0 and self.copies > most for most, n in self.bootstraps.items()):
            return AFFINITY
        if keeping_apart and place is not None and not self._lets_in(place):
            return ANTI_AFFINITY
        if not all(self._keeps(each) for each in (source, place) if each is not None):
            return AFFINITY
        return "" if all(spread.holds(self) for spread in self.spreads) else SPREAD

    def _lets_in(self, place: str) -> bool:
        """Return whether no pod in the domain keeps out one that comes, and none comes that keeps out one of them."""
        copies = self.high(place)
        return not ((copies > 1 and self.anti_affine_members[place]) or (copies and self.anti_affine_outsiders[place]))

    def _keeps(self, place: str) -> bool:
        """Return whether every pod in the domain keeps those that it needs, and one that comes is sure to find some."""
        if self.arriving[place] > 0 and self.low(place) < 1:
            return False
        needs, left = self.needs.get(place), self.low(place) + self._back[place]
        return not needs or left >= max((least for least, n in needs.items() if n > 0), default=0)


class _Own(NamedTuple):
    """Input of a pod's own rules."""

    anti: tuple[tuple[DomainCounts, bool], ...]
    """Whether it is in scope itself."""
    needs: tuple[tuple[DomainCounts, bool, bool], ...]
    """Whether it is in scope itself, and whether it is alone before or after the plan anyway."""
    spreads: tuple[tuple[DomainCounts, SpreadArrivals], ...]


_NO_RULES = _Own((), (), ())


class _Move(NamedTuple):
    mover: Mover
    source: str | None
    to: str
    needs: tuple[tuple[DomainCounts, str], ...]
    """Domains in which the new copy needs company when it arrives."""
    bootstraps: tuple[tuple[DomainCounts, int], ...]
    """Where it needs none because no pod is there, and the copies that there may be."""


class Refusal(NamedTuple):
    """Pod whose rule was against a move, and as of when."""

    tally: DomainCounts
    version: int
    epoch: int


class _Counted(NamedTuple):
    """Nodes that count for spread constraints, and the domains that they make."""

    eligible: Eligible
    places: EligibleDomains

    def domain(self, spec: NodeSpec) -> str | None:
        """Return the domain that the node counts for."""
        counts = self.eligible.counts(name=spec.name, labels=spec.labels, taints=spec.taints)
        return spec.labels[self.eligible.topology_key] if counts else None


class PodRules:
    """Required affinity, anti-affinity and enforced spread of all pods, on the way of the movers."""

    def __init__(self, cluster: Cluster, movers: Iterable[Mover], grounds: Iterable[NodeSpec]) -> None:
        """`grounds`: nodes that take pods."""
        self._cluster = cluster
        self._labels: dict[str, Labels] = {node.name: node.labels for node in cluster.nodes}
        self._grounds: dict[str, NodeSpec] = {}
        self._remaining: frozenset[str] = frozenset()
        self._ledgers: dict[tuple[Scope, str], DomainCounts] = {}
        self._counted: dict[Eligible, _Counted] = {}
        self._spreads: dict[Group, SpreadArrivals] = {}
        self._own: dict[str, _Own] = {}
        self._selected: dict[str, list[DomainCounts]] = {}
        self._ledgers_of: dict[str, tuple[DomainCounts, ...]] = {}
        self._wave: list[_Move] = []
        self._going: list[NodeSpec] = []
        self._refusing: DomainCounts | None = None
        self.broken = ""
        """Kind of the rule that was against the move that was asked for last."""
        self._epoch = 0
        """Another one whenever a spread rule counts other domains than before."""
        ruled = [pod for pod in cluster.pods if _has_rules(pod.rules) and not pod.terminating]
        if not ruled:
            return
        targets = {mover.key: mover.to for mover in movers}
        self._grounds = {spec.name: spec for spec in grounds}
        self._labels |= {spec.name: spec.labels for spec in self._grounds.values()}
        self._remaining = frozenset(self._grounds)
        for node in cluster.nodes:
            live = NodeSpec(name=node.name, labels=node.labels, taints=node.taints, spot=False, spot_keys=frozenset())
            self._grounds.setdefault(node.name, live)
        self._open(ruled, targets)
        for pod in ruled:
            self._own[pod.key] = self._rules_of(pod, targets)
        for pod in ruled:
            self._stand(pod, moves=pod.key in targets)

    # --- what there is

    def _open(self, ruled: list[Pod], targets: Mapping[str, str]) -> None:
        """Open a tally for every scope and topology key that a rule names."""
        for pod in ruled:
            for scope, key in _scopes(self._cluster, pod):
                if (scope, key) in self._ledgers:
                    continue
                members = pod_index(self._cluster).select(scope)
                tally = DomainCounts(key, self._labels, frozenset(other.key for other in members))
                self._ledgers[scope, key] = tally
                for other in members:
                    here = tally.domain(other.node)
                    to = targets.get(other.key, other.node)
                    there = tally.domain(to) if to in self._remaining else None
                    if here is not None:
                        tally.base[here] += 1
                        tally.before[here] += 1
                    if there is not None:
                        tally.after[there] += 1
                    if other.key in targets:
                        self._selected.setdefault(other.key, []).append(tally)

    def add(self, spec: NodeSpec) -> bool:
        """Add a node for a while; return whether a spread rule counts one domain more for it."""
        self._labels[spec.name] = spec.labels
        widened = False
        for eligible in self._counted.values():
            place = eligible.domain(spec)
            if place is not None:
                eligible.places.there[place] += 1
                widened = widened or eligible.places.there[place] == 1
        self._epoch += widened
        return widened

    def drop(self, spec: NodeSpec) -> None:
        """Remove the node that was added last."""
        del self._labels[spec.name]
        self._leave((spec,), "there")

    def vanish(self, names: Iterable[str]) -> None:
        """These nodes are deleted in the wave that comes: they may still be there in it, and are not after it."""
        self._leave(self._going, "there")
        self._going = [self._grounds[name] for name in names if name in self._grounds]
        self._leave(self._going, "sure")

    @property
    def clearing(self) -> bool:
        """Return whether a domain goes with the nodes that are deleted in this wave."""
        places = ((one.places, one.domain(spec)) for one in self._counted.values() for spec in self._going)
        return any(place in each.there and place not in each.sure for each, place in places if place is not None)

    def _leave(self, gone: Sequence[NodeSpec], book: Literal["there", "sure"]) -> None:
        for eligible in self._counted.values() if gone else ():
            counts = eligible.places.there if book == "there" else eligible.places.sure
            for spec in gone:
                place = eligible.domain(spec)
                if place is None:
                    continue
                counts[place] -= 1
                if not counts[place]:
                    del counts[place]
                    self._epoch += 1

    def _rules_of(self, pod: Pod, targets: Mapping[str, str]) -> _Own:
        to = targets.get(pod.key, pod.node)
        to = to if to in self._remaining else None  # else it goes with its node
        anti, needs = [], []
        for term in required(pod.rules.anti_affinity):
            scope = term_scope(self._cluster, pod, term)
            anti.append((self._ledgers[scope, term.topology_key], selects(scope, pod)))
        for term in required(pod.rules.affinity):
            scope = term_scope(self._cluster, pod, term)
            tally, itself = self._ledgers[scope, term.topology_key], selects(scope, pod)
            here, there = tally.domain(pod.node), tally.domain(to)
            free = (pod.node is not None and _alone(tally.before, here, itself=itself)) or _alone(
                tally.after, there, itself=itself
            )
            needs.append((tally, itself, free))
        spreads = tuple(
            (self._ledgers[spread_scope(pod, spread), spread.topology_key], self._spread(pod, spread))
            for spread in enforced(pod.rules.spread)
        )
        return _Own(tuple(anti), tuple(needs), spreads)

    def _spread(self, pod: Pod, spread: Spread) -> SpreadArrivals:
        """Return the rule that this constraint is, shared by all that count alike."""
        group = group_of(pod, spread)
        if group not in self._spreads:
            rule = SpreadArrivals(group.max_skew, group.min_domains, self._places(group.eligible))
            self._ledgers[group.scope, group.eligible.topology_key].spreads.append(rule)
            self._spreads[group] = rule
        return self._spreads[group]

    def _places(self, eligible: Eligible) -> EligibleDomains:
        """Return the domains of the nodes that count; many constraints count the same ones."""
        if eligible not in self._counted:
            places = EligibleDomains(Counter(), Counter())
            self._counted[eligible] = counted = _Counted(eligible, places)
            found = (counted.domain(spec) for spec in self._grounds.values())
            places.there.update(place for place in found if place is not None)
            places.sure.update(places.there)
        return self._counted[eligible].places

    def _stand(self, pod: Pod, *, moves: bool) -> None:
        """Count the rules of a pod where it is now. One that will move away from its company asks nothing of it."""
        own = self._own[pod.key]
        for tally, itself in own.anti:
            _keep_out(tally, pod.node, 1, itself=itself)
        for tally, itself, free in own.needs:
            if not (moves or free or (itself and tally.base.total() == 1)):
                _count(tally.needs, tally.domain(pod.node), 1 + itself, 1)

    # --- moves

    def touches(self, mover: Mover) -> bool:
        """Return whether any rule looks at this pod."""
        return mover.key in self._selected or mover.key in self._own

    def begin(self, mover: Mover, source: str | None, to: str) -> bool:
        """Let the pod move in this wave, if every rule holds then; nothing is changed where one does not.

        Pods of a rolling update are placed by kube-scheduler alone, one by one and as their rules let it.
        """
        self._refusing, self.broken = None, ""
        if not self.touches(mover):
            return True
        begun = self.begun
        self._wave.append(self._apply(mover, source, to))
        if mover.strategy == "rolling":
            return True
        for tally, _, _ in self._own.get(mover.key, _NO_RULES).needs:
            if tally.domain(to) is None:
                self.rewind(begun)
                self.broken = AFFINITY
                return False
        apart = [tally for tally, _ in self._own.get(mover.key, _NO_RULES).anti]
        for tally in self._touched(mover):
            asked = mover.key in tally.members or tally in apart
            self.broken = tally.broken(tally.domain(source), tally.domain(to), keeping_apart=asked)
            if self.broken:
                self._refusing = tally
                self.rewind(begun)
                return False
        return True

    def refusal(self) -> Refusal | None:
        """Return the rule that was against the move that was asked for last; None when none was."""
        tally = self._refusing
        return None if tally is None else Refusal(tally, tally.version, self._epoch)

    def stands(self, refusal: Refusal) -> bool:
        """Return whether nothing has changed since that would let the pod move."""
        return refusal.version == refusal.tally.version and refusal.epoch == self._epoch

    @property
    def begun(self) -> int:
        """Return how many moves of this wave any rule looks at."""
        return len(self._wave)

    def rewind(self, begun: int) -> None:
        """Take back the moves after so many."""
        while len(self._wave) > begun:
            self._retract(self._wave.pop())

    def _touched(self, mover: Mover) -> tuple[DomainCounts, ...]:
        if mover.key not in self._ledgers_of:
            own = self._own.get(mover.key, _NO_RULES)
            found = [*self._selected.get(mover.key, ()), *(item[0] for item in (*own.anti, *own.needs, *own.spreads))]
            self._ledgers_of[mover.key] = tuple({id(tally): tally for tally in found}.values())
        return self._ledgers_of[mover.key]

    def _apply(self, mover: Mover, source: str | None, to: str) -> _Move:
        evicted = mover.strategy == "evict"
        for tally in self._selected.get(mover.key, ()):
            tally.shift(tally.domain(source), tally.domain(to), evicted=evicted, by=1)
        own = self._own.get(mover.key, _NO_RULES)
        for tally, itself in own.anti:
            _keep_out(tally, to, 1, itself=itself)
        for tally, rule in own.spreads:
            rule.arrivals[_arrival(tally, mover, source, to)] += 1
        needs, bootstraps = [], []
        for tally, _, _ in own.needs:
            place = tally.domain(to)
            if place is None:
                continue
            if _first(tally, mover, source, to):
                tally.bootstraps[tally.copies] += 1
                bootstraps.append((tally, tally.copies))
            else:
                tally.arriving[place] += 1
                needs.append((tally, place))
        return _Move(mover, source, to, tuple(needs), tuple(bootstraps))

    def _retract(self, move: _Move) -> None:
        mover, source, to = move.mover, move.source, move.to
        for tally in self._selected.get(mover.key, ()):
            tally.shift(tally.domain(source), tally.domain(to), evicted=mover.strategy == "evict", by=-1)
        own = self._own.get(mover.key, _NO_RULES)
        for tally, itself in own.anti:
            _keep_out(tally, to, -1, itself=itself)
        for tally, rule in own.spreads:
            rule.arrivals[_arrival(tally, mover, source, to)] -= 1
        for tally, place in move.needs:
            tally.arriving[place] -= 1
        for tally, copies in move.bootstraps:
            tally.bootstraps[copies] -= 1

    def settle(self) -> None:
        """End the wave: old copies are gone, and a pod that has come to its place relies on the pods there."""
        touched: dict[int, DomainCounts] = {}
        for move in self._wave:
            mover, source = move.mover, move.source
            touched |= {id(tally): tally for tally in self._touched(mover)}
            for tally in self._selected.get(mover.key, ()):
                tally.settle(tally.domain(source), tally.domain(move.to))
            for tally, itself in self._own.get(mover.key, _NO_RULES).anti:
                _keep_out(tally, source, -1, itself=itself)
        for tally in touched.values():
            tally.clear()
        for move in self._wave:
            if move.to != move.mover.to:
                continue
            for tally, itself, free in self._own.get(move.mover.key, _NO_RULES).needs:
                if not (free or (itself and tally.base.total() == 1)):
                    _count(tally.needs, tally.domain(move.to), 1 + itself, 1)
        self._wave.clear()


def _has_rules(rules: PlacementRules) -> bool:
    if not (rules.affinity or rules.anti_affinity or rules.spread):  # most pods
        return False
    return bool(required(rules.affinity) or required(rules.anti_affinity) or enforced(rules.spread))


def _scopes(cluster: Cluster, pod: Pod) -> Iterator[tuple[Scope, str]]:
    for term in (*required(pod.rules.affinity), *required(pod.rules.anti_affinity)):
        yield term_scope(cluster, pod, term), term.topology_key
    for spread in enforced(pod.rules.spread):
        yield spread_scope(pod, spread), spread.topology_key


def _alone(counts: Counter[str], place: str | None, *, itself: bool) -> bool:
    """Return whether no pod in scope shares the domain. The first of pods that need each other needs none."""
    if place is not None and counts[place] > itself:
        return False
    return not (itself and counts.total() == itself)


def _first(tally: DomainCounts, mover: Mover, source: str | None, to: str) -> bool:
    """Return whether no pod in scope is there beside the new copy: the first of pods that need each other may come."""
    if mover.key not in tally.members:
        return False
    here, there = tally.domain(source), tally.domain(to)
    if mover.strategy == "evict" and here is not None:
        return tally.copies == 1 + (here != there)
    return tally.copies == 1


def _count(books: dict[str, Counter[int]], place: str | None, value: int, by: int) -> None:
    if place is not None:
        books.setdefault(place, Counter())[value] += by


def _keep_out(tally: DomainCounts, node: str | None, by: int, *, itself: bool) -> None:
    """Count a pod with anti-affinity into the node's domain, or out of it (-1)."""
    place = tally.domain(node)
    if place is not None:
        (tally.anti_affine_members if itself else tally.anti_affine_outsiders)[place] += by


def _arrival(tally: DomainCounts, mover: Mover, source: str | None, to: str) -> tuple[str | None, str | None]:
    """Return where a new copy comes to, and where its own old copy is counted then."""
    waits = mover.strategy != "evict" and mover.key in tally.members
    return tally.domain(to), tally.domain(source) if waits else None
