"""Rules between pods in every wave: what kube-scheduler would say of each new copy, whatever has moved before it.

kube-scheduler asks every new copy, and lets none in because things were no better before. Pods that have yet to leave
ask for no company where they are, nor do those that have none before or after the plan either. Pods of a rolling update
are placed by kube-scheduler alone, one by one: of them nothing is asked but room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kinema_core.events import Pod, Spread
from kinema_core.model.checker.itinerary import Itinerary, Leg
from kinema_core.model.checker.view import PlanView, Violation
from kinema_core.model.neighbors import Scope, domain, enforced, pod_index, required, selects, spread_scope, term_scope
from kinema_core.model.pod_locations import Eligible, Spot, eligible_of


@dataclass(frozen=True)
class _Rule:
    """One rule of one pod."""

    kind: str
    holder: Pod
    scope: Scope
    topology_key: str
    spread: Spread | None = None

    @property
    def itself(self) -> int:
        """1 when the holder is in its own scope."""
        return int(selects(self.scope, self.holder))


@dataclass
class _Tally:
    """Pods in one scope by domain: when the wave begins, before the plan, and after it."""

    start: Counter[str]
    before: Counter[str]
    after: Counter[str]
    came: Counter[str]
    gone: Counter[str]
    back: Counter[str]
    """Of those, evicted pods with new copies in the same domain."""

    def most(self, place: str) -> int:
        return self.start[place] + self.came[place]

    def fewest(self, place: str) -> int:
        return self.start[place] - self.gone[place]


class _Replay:
    """Locations of all pods, wave by wave."""

    def __init__(self, view: PlanView, itinerary: Itinerary, rules: list[_Rule]) -> None:
        self.view = view
        self.itinerary = itinerary
        self.nodes = {node.name: Spot(node.labels, node.taints) for node in view.cluster.nodes}
        self.nodes |= {name: Spot(site.labels, site.taints) for name, site in itinerary.sites.items()}
        self.first = {pod.key: pod.node for pod in view.cluster.pods if pod.node is not None and not pod.terminating}
        remaining = {key: node for key, node in self.first.items() if node in view.sites}
        self.last = {**remaining, **{seat.key: seat.to for seat in view.seats}}
        self.where = dict(self.first)
        self.tallies: dict[tuple[Scope, str], _Tally] = {}
        self._by_pod: dict[str, list[tuple[str, _Tally]]] = {
            leg.key: [] for legs in itinerary.legs.values() for leg in legs
        }
        self._eligible: dict[Eligible, Mapping[str, str]] = {}
        self._domains: dict[tuple[int, int], tuple[frozenset[str], frozenset[str]]] = {}
        self.rented = frozenset(node.name for node in view.plan.temporary)
        self.rules = rules
        for rule in rules:
            self._open(rule.scope, rule.topology_key)

    def _open(self, scope: Scope, key: str) -> None:
        if (scope, key) in self.tallies:
            return
        members = frozenset(pod.key for pod in pod_index(self.view.cluster).select(scope))
        before = Counter(place for pod in members if (place := self.domain(self.first.get(pod), key)) is not None)
        after = Counter(place for pod in members if (place := self.domain(self.last.get(pod), key)) is not None)
        tally = self.tallies[scope, key] = _Tally(before.copy(), before, after, Counter(), Counter(), Counter())
        for pod in members & self._by_pod.keys():
            self._by_pod[pod].append((key, tally))

    def domain(self, node: str | None, key: str) -> str | None:
        """Return the domain of a node."""
        found = self.nodes.get(node or "")
        return None if found is None else domain(found.labels, key)

    def begin(self, legs: list[Leg]) -> None:
        """Count who comes and goes in this wave.

        A surge within a domain leaves no gap, an eviction brings no double.
        """
        for tally in self.tallies.values():
            tally.came.clear()
            tally.gone.clear()
            tally.back.clear()
        for leg in legs:
            for key, tally in self._selecting(leg) if not leg.rolled else ():
                here, there = self.domain(leg.source, key), self.domain(leg.to, key)
                if there is not None and not (leg.evicted and here == there):
                    tally.came[there] += 1
                if here is not None and (leg.evicted or here != there):
                    tally.gone[here] += 1
                    tally.back[here] += here == there

    def end(self, legs: list[Leg]) -> None:
        """Old copies are gone."""
        for leg in legs:
            for key, tally in self._selecting(leg):
                here, there = self.domain(leg.source, key), self.domain(leg.to, key)
                if here is not None:
                    tally.start[here] -= 1
                if there is not None:
                    tally.start[there] += 1
        self.where |= {leg.key: leg.to for leg in legs}

    def _selecting(self, leg: Leg) -> list[tuple[str, _Tally]]:
        return self._by_pod.get(leg.key, [])

    def eligible(self, rule: _Rule) -> Mapping[str, str]:
        """Return the domain of every node that counts for a spread constraint, by node."""
        assert rule.spread is not None
        asked = eligible_of(rule.holder, rule.spread)
        if asked not in self._eligible:
            self._eligible[asked] = asked.domains(self.nodes)
        return self._eligible[asked]

    def domains(self, rule: _Rule, wave: int) -> tuple[frozenset[str], frozenset[str]]:
        """Return the domains that count in a wave: of nodes that are there at some moment of it, and all the time.

        A temporary node is never taken to be there all the time.
        """
        asked = (id(self.eligible(rule)), wave)
        if asked not in self._domains:
            born, gone, rented = self.itinerary.booted, self.itinerary.deleted, self.rented
            there = {
                name: place
                for name, place in self.eligible(rule).items()
                if born.get(name, -1) <= wave <= gone.get(name, wave)
            }
            sure = (
                place
                for name, place in there.items()
                if born.get(name, -1) < wave < gone.get(name, wave + 1) and name not in rented
            )
            self._domains[asked] = frozenset(there.values()), frozenset(sure)
        return self._domains[asked]


def check_wave_rules(view: PlanView, itinerary: Itinerary) -> Iterator[Violation]:
    """Required affinity, anti-affinity and enforced spread on the way."""
    ruled = [pod for pod in view.cluster.pods if pod.rules.affinity or pod.rules.anti_affinity or pod.rules.spread]
    rules = [rule for pod in ruled if not pod.terminating for rule in _rules(view, pod)]
    if not rules:
        return
    replay = _Replay(view, itinerary, rules)
    for wave in itinerary.waves:
        legs = {leg.key: leg for leg in itinerary.legs[wave]}
        replay.begin(list(legs.values()))
        for rule in replay.rules:
            detail = _flaw(replay, rule, wave, legs)
            if detail is not None:
                yield Violation(f"wave-{rule.kind}", rule.holder.key, f"wave {wave}: {detail}")
        replay.end(list(legs.values()))


def _rules(view: PlanView, pod: Pod) -> Iterator[_Rule]:
    for term in required(pod.rules.anti_affinity):
        yield _Rule("anti-affinity", pod, term_scope(view.cluster, pod, term), term.topology_key)
    for term in required(pod.rules.affinity):
        yield _Rule("affinity", pod, term_scope(view.cluster, pod, term), term.topology_key)
    for spread in enforced(pod.rules.spread):
        yield _Rule("spread", pod, spread_scope(pod, spread), spread.topology_key, spread)


def _flaw(replay: _Replay, rule: _Rule, wave: int, legs: Mapping[str, Leg]) -> str | None:
    leg = legs.get(rule.holder.key)
    tally = replay.tallies[rule.scope, rule.topology_key]
    if (leg is None and not (tally.came or tally.gone)) or (leg is not None and leg.rolled):
        return None
    match rule.kind:
        case "anti-affinity":
            return _anti_affinity_flaw(replay, rule, leg)
        case "affinity":
            return _affinity_flaw(replay, rule, leg)
        case _:
            return None if leg is None else _spread_flaw(replay, rule, leg, wave)


def _anti_affinity_flaw(replay: _Replay, rule: _Rule, leg: Leg | None) -> str | None:
    """Return a flaw when a pod arrives that this one keeps away, or this one arrives beside such a pod."""
    key, tally = rule.topology_key, replay.tallies[rule.scope, rule.topology_key]
    for node in (replay.where.get(rule.holder.key), leg.to if leg is not None else None):
        place = replay.domain(node, key)
        arrives = leg is not None and place == replay.domain(leg.to, key)
        if place is None or not (arrives or tally.came[place]):
            continue
        others = tally.most(place) - rule.itself
        if others > 0:
            return f"{others} pods it keeps away share its {key}"
    return None


def _affinity_flaw(replay: _Replay, rule: _Rule, leg: Leg | None) -> str | None:
    """Return a flaw when the pod arrives where no pod it needs is sure to be, or the last of those leaves it.

    Pods that are evicted and come back still count for a pod that stays: kube-scheduler asks no running pod again.
    """
    key, tally, pod = rule.topology_key, replay.tallies[rule.scope, rule.topology_key], rule.holder.key
    if leg is not None:
        place = replay.domain(leg.to, key)
        if place is not None and (tally.fewest(place) > 0 or (rule.itself and _first(replay, tally, leg, key))):
            return None
        return f"no pod it needs is sure to share its {key}"
    place = replay.domain(replay.where.get(pod), key)
    if place is None or replay.where.get(pod) != replay.last.get(pod) or not tally.gone[place]:
        return None
    if tally.fewest(place) + tally.back[place] > rule.itself or (rule.itself and tally.start.total() == 1):
        return None
    alone = _alone(tally.after, replay.domain(replay.last.get(pod), key), rule.itself)
    if alone or (pod in replay.first and _alone(tally.before, replay.domain(replay.first[pod], key), rule.itself)):
        return None
    return f"no pod it needs is left in its {key}"


def _alone(counts: Counter[str], place: str | None, itself: int) -> bool:
    if place is not None and counts[place] > itself:
        return False
    return not (itself and counts.total() == itself)


def _first(replay: _Replay, tally: _Tally, leg: Leg, key: str) -> bool:
    """Return whether no other pod in scope is there at any moment of the wave: the first one needs none."""
    here, there = replay.domain(leg.source, key), replay.domain(leg.to, key)
    copies = tally.start.total() + tally.came.total()
    own = int(leg.evicted and here is not None) + int(not (leg.evicted and here == there))
    return copies == own


def _spread_flaw(replay: _Replay, rule: _Rule, leg: Leg, wave: int) -> str | None:
    """Return a flaw when the pod arrives in a domain that has too many; the old copy of a surge counts until then."""
    assert rule.spread is not None
    key, tally = rule.topology_key, replay.tallies[rule.scope, rule.topology_key]
    place = replay.domain(leg.to, key)
    if place is None:
        return f"it comes to a node without {key}"
    if tally.most(place) <= rule.spread.max_skew:
        return None
    own = replay.domain(leg.source, key) if rule.itself and not leg.evicted else None
    there, sure = replay.domains(rule, wave)
    fewest = min((tally.fewest(each) + (each == own) for each in there if each != place), default=tally.most(place) - 1)
    skew = tally.most(place) - (fewest if len(sure) >= rule.spread.min_domains else 0)
    if skew > rule.spread.max_skew:
        return f"skew {skew} over {key} when it comes to {place}"
    return None
