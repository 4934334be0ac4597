"""Domains for pending pods that rules between pods concern: one for each, such that every rule holds.

Pods are taken in order of priority, then by name. Each gets the domain where it is sure to find room and where fewest
of its kind are; from then on it counts there. A pod for which no domain keeps every rule goes nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kinema_core.events import Pod
from kinema_core.model.daemons import is_resident
from kinema_core.model.match import HOSTNAME
from kinema_core.model.resources import fits
from kinema_optimizer.problem.admission import Admission, Site
from kinema_optimizer.problem.rules.read import (
    Census,
    Counted,
    PodAffinity,
    PodAntiAffinity,
    PodRules,
    Rule,
    TopologySpread,
)
from kinema_optimizer.problem.rules.reduced import TopologyDemand

Domains = Mapping[str, str | None]
"""Domain by topology key."""


class SitesOnOffer(NamedTuple):
    """Sites for pending pods: live nodes, and offers that no rule closes."""

    sites: tuple[Site, ...]
    """All nodes, then all offers, as the admission numbers them."""
    live: int
    """Number of nodes among them."""
    closed: frozenset[str]
    unlimited: frozenset[str]
    """Offers without a limit."""
    admission: Admission
    resized: frozenset[str]
    """Workloads whose pods may be replaced: no rule can count on where they are."""
    rolling: frozenset[str]
    """Pods that may be replaced, for the same reason, by key."""

    def fresh(self, spread: TopologySpread) -> frozenset[str]:
        """Domains that new nodes could be in and that would count for a spread constraint."""
        offers = (site for site in self.sites[self.live :] if site.name not in self.closed and spread.admits(site))
        return frozenset(site.labels[spread.counted.key] for site in offers)


class _Part(NamedTuple):
    """A pod's part in a rule."""

    carries: bool
    selected: bool


_Parts = dict[Rule, _Part]


@dataclass
class PendingPlacer:
    """The rules that concern pending pods, and where pods were put so far."""

    census: Census
    between: PodRules
    single: Callable[[str], bool]
    market: SitesOnOffer
    _most: dict[Counted, Counter[str]] = field(default_factory=dict)
    """Pods in scope per domain, with all pending ones that were put there."""
    _least: dict[Counted, Counter[str]] = field(default_factory=dict)
    """Only with those that are sure to find room."""
    _keepers: dict[Rule, Counter[str]] = field(default_factory=dict)
    """Per domain, pods that have the anti-affinity term."""
    _firsts: dict[Rule, str] = field(default_factory=dict)
    """The domain of the only pod of a kind that asks for company of its own."""
    _coming: set[Rule] = field(default_factory=set)
    """Rules that count a pending pod that was put somewhere."""
    _places: dict[Rule, frozenset[str]] = field(default_factory=dict)
    """Domains or nodes that a rule looks at, wherever pods are put."""
    company: set[tuple[Counted, str]] = field(default_factory=set)
    """Domains where a pod was put for the company that it asks for: that must stay."""
    _tight: set[tuple[Rule, str]] = field(default_factory=set)
    """Spread constraints, and domains where a pod that has them was put: their skew limits what comes there later."""

    def seats(self, pods: Sequence[Pod]) -> dict[str, TopologyDemand]:
        """Return what each of these pods that rules concern may do, by key."""
        parts = self._parts(pods)
        options = _Options(self.market)
        return {
            pod.key: self._seat(pod, parts[pod.key], options)
            for pod in sorted(pods, key=lambda one: (-one.priority, one.key))
            if pod.key in parts
        }

    def _parts(self, pods: Sequence[Pod]) -> dict[str, _Parts]:
        """By pod key, the rules that concern it; anti-affinity and spread over nodes need no domain."""
        keys = {pod.key for pod in pods}
        found: dict[str, _Parts] = {}
        rules: list[Rule] = [*self.between.affinities]
        rules += [
            rule for rule in (*self.between.anti_affinities, *self.between.spreads) if not self.single(rule.counted.key)
        ]
        for rule in rules if keys else ():
            owners = {pod.key for pod in rule.owners} & keys
            selected = {pod.key for pod in self.census.pods(rule.counted.scope)} & keys
            for key in owners | selected:
                found.setdefault(key, {})[rule] = _Part(key in owners, key in selected)
        return found

    def _seat(self, pod: Pod, parts: _Parts, options: _Options) -> TopologyDemand:
        nodes: frozenset[str] | None = None
        for rule, part in parts.items():
            if self.single(rule.counted.key):
                these = self._beside(rule, part, pod)
                nodes = nodes if these is None else these if nodes is None else nodes & these
        keys = tuple(sorted({rule.counted.key for rule in parts if not self.single(rule.counted.key)}))
        rated = []
        for places, sure in options.of(pod, keys, nodes):
            domains = dict(zip(keys, places, strict=True))
            if all(self._allows(rule, part, domains) for rule, part in parts.items() if rule.counted.key in domains):
                rated.append((not sure, self._crowd(parts, domains), [place or "" for place in places], domains))
        if not rated:
            return TopologyDemand((), frozenset())
        unsure, _, _, domains = min(rated, key=lambda one: one[:3])
        self._coming |= {rule for rule, part in parts.items() if part.selected}
        self._take(parts, domains, sure=not unsure)
        return TopologyDemand(tuple(domains.items()), nodes)

    def _beside(self, rule: Rule, part: _Part, pod: Pod) -> frozenset[str] | None:
        """On which nodes affinity between pods of one node lets the pod be; None: on any."""
        if rule not in self._firsts:
            self._note_first(rule)
        if rule in self._firsts and part.selected:
            return frozenset({self._firsts[rule]})
        if not part.carries:
            return None
        homes = self.homes(rule)
        if not homes and part.selected and rule not in self._coming and not self.census.counts(rule.counted):
            self._firsts[rule] = ""  # on a node that is not known yet: no other pod can follow it there
            return None
        return homes

    def homes(self, rule: Rule) -> frozenset[str]:
        """Nodes with company that stays there."""
        if rule not in self._places:
            pods = self.census.pods(rule.counted.scope)
            self._places[rule] = frozenset(pod.node for pod in pods if pod.node is not None and self._stays(pod))
        return self._places[rule]

    def _stays(self, pod: Pod) -> bool:
        """Return whether others can count on where the pod is, as long as its node is kept."""
        workload = self.census.cluster.controller_of(pod)
        resized = workload is not None and workload.key in self.market.resized
        moves = resized or pod.key in self.market.rolling
        return self.census.domain(pod, HOSTNAME) is not None and not moves

    def _note_first(self, rule: Rule) -> None:
        for pod in rule.owners:
            place = self.census.domain(pod, rule.counted.key)
            if place is not None and self.census.first(pod, rule.counted):
                self._firsts[rule] = (pod.node or "") if self.single(rule.counted.key) else place

    def _allows(self, rule: Rule, part: _Part, domains: Domains) -> bool:
        place = domains[rule.counted.key]
        if isinstance(rule, PodAffinity):
            return self._allows_affinity(rule, part, place)
        if isinstance(rule, TopologySpread):
            return self._allows_spread(rule, part, place)
        if place is None:
            return True
        met = part.carries and self._pods(self._most, rule.counted)[place] > 0
        return not met and not (part.selected and self._keeping(rule)[place] > 0)

    def _allows_affinity(self, rule: PodAffinity, part: _Part, place: str | None) -> bool:
        if rule not in self._firsts:
            self._note_first(rule)
        first = self._firsts.get(rule)
        if first is not None and part.selected:
            return place == first
        if not part.carries:
            return True
        if place is None:
            return False
        return place in self._company(rule) or (part.selected and not self._pods(self._most, rule.counted).total())

    def _company(self, rule: PodAffinity) -> frozenset[str]:
        """Domains of bound pods in scope that stay in them; those of daemon sets go with their node."""
        if rule not in self._places:
            pods = self.census.pods(rule.counted.scope)
            places = (self.census.domain(pod, rule.counted.key) for pod in pods if not self._resident(pod))
            self._places[rule] = frozenset(place for place in places if place is not None)
        return self._places[rule]

    def _resident(self, pod: Pod) -> bool:
        return is_resident(self.census.cluster, pod)

    def _universe(self, rule: TopologySpread) -> frozenset[str]:
        """Domains that count, or that a new node could make count."""
        if rule not in self._places:
            self._places[rule] = self.census.domains(rule) | self.market.fresh(rule)
        return self._places[rule]

    def _allows_spread(self, rule: TopologySpread, part: _Part, place: str | None) -> bool:
        if place is None or not (part.selected or part.carries):
            return not part.carries
        universe = self._universe(rule)
        if place not in universe and not part.carries:
            return True
        least = self._pods(self._least, rule.counted)
        sure = sum(least[one] > 0 for one in universe)
        fewest = 0 if sure < rule.min_domains else min((least[one] for one in universe), default=0)
        bound = part.carries or (rule, place) in self._tight
        allowed = rule.max_skew if bound else max(rule.max_skew, self.census.skew(rule))
        return self._pods(self._most, rule.counted)[place] + int(part.selected) - fewest <= allowed

    def _crowd(self, parts: _Parts, domains: Domains) -> int:
        counts = (self._pods(self._most, rule.counted) for rule in parts if isinstance(rule, TopologySpread))
        return sum(mine[place] for mine in counts for place in domains.values() if place is not None)

    def _take(self, parts: _Parts, domains: Domains, *, sure: bool) -> None:
        counted: dict[Counted, str] = {}
        for rule, part in parts.items():
            place = domains.get(rule.counted.key)
            if place is None:
                continue
            if part.carries and isinstance(rule, PodAntiAffinity):
                self._keeping(rule)[place] += 1
            if part.carries and isinstance(rule, TopologySpread):
                self._tight.add((rule, place))
            if part.carries and isinstance(rule, PodAffinity):
                self.company.add((rule.counted, place))
            if part.selected:
                counted[rule.counted] = place
                alone = not self._pods(self._most, rule.counted).total()
                if isinstance(rule, PodAffinity) and part.carries and alone:
                    self._firsts[rule] = place
        for these, place in counted.items():
            self._pods(self._most, these)[place] += 1
            self._pods(self._least, these)[place] += int(sure)

    def _pods(self, tally: dict[Counted, Counter[str]], counted: Counted) -> Counter[str]:
        if counted not in tally:
            tally[counted] = Counter(self.census.counts(counted))
        return tally[counted]

    def _keeping(self, rule: Rule) -> Counter[str]:
        if rule not in self._keepers:
            places = (self.census.domain(pod, rule.counted.key) for pod in rule.owners)
            self._keepers[rule] = Counter(place for place in places if place is not None)
        return self._keepers[rule]


class _Options:
    """In which domains a pod could be, by rules about nodes and by room."""

    def __init__(self, market: SitesOnOffer) -> None:
        self._market = market
        self._known: dict[tuple[object, ...], tuple[tuple[tuple[str | None, ...], bool], ...]] = {}

    def of(
        self, pod: Pod, keys: tuple[str, ...], nodes: frozenset[str] | None
    ) -> tuple[tuple[tuple[str | None, ...], bool], ...]:
        """Return the domains by these keys of each place for the pod, and whether there is surely room in them."""
        alike = (self._market.admission.row(pod), pod.requests, keys, nodes)
        if alike not in self._known:
            self._known[alike] = self._search(pod, keys, nodes)
        return self._known[alike]

    def _search(
        self, pod: Pod, keys: tuple[str, ...], nodes: frozenset[str] | None
    ) -> tuple[tuple[tuple[str | None, ...], bool], ...]:
        market = self._market
        found: dict[tuple[str | None, ...], bool] = {}
        for index in np.flatnonzero(market.admission.vector(market.admission.row(pod))).tolist():
            site = market.sites[index]
            offered = index >= market.live
            if (offered and (nodes is not None or site.name in market.closed)) or (
                nodes is not None and site.name not in nodes
            ):
                continue
            room = not offered or fits(pod.requests, site.room)
            places = tuple(site.labels.get(key) for key in keys)
            if room:
                found[places] = found.get(places, False) or (offered and site.name in market.unlimited)
        return tuple(found.items())
