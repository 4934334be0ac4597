"""The rules between pods of a cluster, each with the pods that have it, and where the pods are that it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kinema_core.events import Labels, PlacementRules, Pod, Spread
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import HOSTNAME, node_admits
from kinema_core.model.neighbors import Scope, enforced, pod_index, required, selects, spread_scope, term_scope
from kinema_optimizer.problem.admission import NEW_NODE, Site


class Counted(NamedTuple):
    """Pods in scope, per domain of a topology key."""

    scope: Scope
    key: str


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule of some pods that counts others."""

    counted: Counted
    owners: tuple[Pod, ...]
    """The pods that have it."""


@dataclass(frozen=True, eq=False)
class PodAffinity(Rule):
    """A required affinity term."""


@dataclass(frozen=True, eq=False)
class PodAntiAffinity(Rule):
    """A required anti-affinity term."""


@dataclass(frozen=True, eq=False)
class TopologySpread(Rule):
    """An enforced spread constraint."""

    eligible: PlacementRules
    """Rules that nodes obey which make a domain."""
    taints: bool
    """A node's taints decide, too."""
    max_skew: int
    min_domains: int

    def admits(self, site: Site) -> bool:
        """Return whether this node makes its domain count."""
        taints = site.taints if self.taints else ()
        has = self.counted.key in site.labels
        return has and node_admits(self.eligible, name=site.name, labels=site.labels, taints=taints) is None


@dataclass(frozen=True, eq=False)
class Preferred(Rule):
    """A preferred affinity term (`near`), or a preferred anti-affinity term."""

    weight: int
    near: bool


@dataclass(frozen=True)
class PodRules:
    """All rules between pods that are not terminating; each list in the order of the first pod that has the rule."""

    affinities: tuple[PodAffinity, ...]
    anti_affinities: tuple[PodAntiAffinity, ...]
    spreads: tuple[TopologySpread, ...]

    def __bool__(self) -> bool:
        return bool(self.affinities or self.anti_affinities or self.spreads)


def read_rules(cluster: Cluster) -> PodRules:
    """Return the rules of the pods, pending ones and those that go with their node among them."""
    affinities: dict[Counted, list[Pod]] = {}
    anti_affinities: dict[Counted, list[Pod]] = {}
    spreads: dict[tuple[object, ...], tuple[Spread, list[Pod]]] = {}
    for pod in cluster.pods:
        rules = pod.rules
        if pod.terminating or not (rules.affinity or rules.anti_affinity or rules.spread):
            continue
        for found, terms in ((affinities, rules.affinity), (anti_affinities, rules.anti_affinity)):
            for term in required(terms):
                counted = Counted(term_scope(cluster, pod, term), term.topology_key)
                found.setdefault(counted, []).append(pod)
        for spread in enforced(rules.spread):
            alike = (Counted(spread_scope(pod, spread), spread.topology_key), spread, eligibility(rules, spread))
            spreads.setdefault(alike, (spread, []))[1].append(pod)
    return PodRules(
        affinities=tuple(PodAffinity(counted, tuple(pods)) for counted, pods in affinities.items()),
        anti_affinities=tuple(PodAntiAffinity(counted, tuple(pods)) for counted, pods in anti_affinities.items()),
        spreads=tuple(_topology_spread(spread, pods) for spread, pods in spreads.values()),
    )


def preferred(cluster: Cluster, pods: Iterable[Pod]) -> tuple[Preferred, ...]:
    """Return the preferred terms of these pods, each with those of them that have it."""
    found: dict[tuple[Counted, int, bool], list[Pod]] = {}
    for pod in pods:
        for terms, near in ((pod.rules.affinity, True), (pod.rules.anti_affinity, False)):
            for term in terms:
                if term.weight:
                    counted = Counted(term_scope(cluster, pod, term), term.topology_key)
                    found.setdefault((counted, term.weight, near), []).append(pod)
    return tuple(Preferred(counted, tuple(have), weight, near) for (counted, weight, near), have in found.items())


def _topology_spread(spread: Spread, pods: Sequence[Pod]) -> TopologySpread:
    return TopologySpread(
        counted=Counted(spread_scope(pods[0], spread), spread.topology_key),
        owners=tuple(pods),
        eligible=eligibility(pods[0].rules, spread),
        taints=spread.node_taints_policy == "Honor",
        max_skew=spread.max_skew,
        min_domains=spread.min_domains,
    )


def eligibility(rules: PlacementRules, spread: Spread) -> PlacementRules:
    """Return what decides whether a node counts for the constraint."""
    honored = spread.node_affinity_policy == "Honor"
    return PlacementRules(
        node_selector=rules.node_selector if honored else PlacementRules().node_selector,
        node_terms=rules.node_terms if honored else None,
        tolerations=rules.tolerations if spread.node_taints_policy == "Honor" else (),
    )


@dataclass
class Census:
    """Locations of the pods that rules count: bound ones that are not terminating."""

    cluster: Cluster
    nodes: Sequence[Site]
    _labels: dict[str, Labels] = field(init=False)
    _counts: dict[Counted, Counter[str]] = field(default_factory=dict)
    _domains: dict[tuple[object, ...], frozenset[str]] = field(default_factory=dict)
    _ranges: dict[TopologySpread, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the nodes."""
        self._labels = {node.name: node.labels for node in self.nodes}

    def domain(self, pod: Pod, key: str) -> str | None:
        """Return the domain that the pod is in; None also for a pod that is nowhere."""
        labels = self._labels.get(pod.node or "")
        return None if labels is None else labels.get(key)

    def known(self, pod: Pod) -> bool:
        """Return whether the pod is on a node that the state has."""
        return pod.node in self._labels

    def pods(self, scope: Scope) -> tuple[Pod, ...]:
        """Pods in scope, pending ones included."""
        return pod_index(self.cluster).select(scope)

    def counts(self, counted: Counted) -> Counter[str]:
        """Pods in scope per domain; not to be changed."""
        if counted not in self._counts:
            found = (self.domain(pod, counted.key) for pod in self.pods(counted.scope))
            self._counts[counted] = Counter(place for place in found if place is not None)
        return self._counts[counted]

    def domains(self, spread: TopologySpread) -> frozenset[str]:
        """Domains of the nodes that count for a spread constraint."""
        alike = (spread.counted.key, spread.eligible, spread.taints)
        if alike not in self._domains:
            key = spread.counted.key
            self._domains[alike] = frozenset(node.labels[key] for node in self.nodes if spread.admits(node))
        return self._domains[alike]

    def fewest(self, spread: TopologySpread) -> int:
        """Fewest pods in any of its domains; too few domains count as an empty one more."""
        return 0 if len(self.domains(spread)) < spread.min_domains else self._range(spread)[0]

    def most(self, spread: TopologySpread) -> int:
        """Most pods in any of its domains."""
        return self._range(spread)[1]

    def _range(self, spread: TopologySpread) -> tuple[int, int]:
        if spread not in self._ranges:
            domains = self.domains(spread)
            there = [count for place, count in self.counts(spread.counted).items() if place in domains]
            empty = len(there) < len(domains)
            self._ranges[spread] = (0 if empty else min(there, default=0), max(there, default=0))
        return self._ranges[spread]

    def skew(self, spread: TopologySpread) -> int:
        """Most pods in a domain less fewest."""
        return self.most(spread) - self.fewest(spread)

    def company(self, pod: Pod, counted: Counted) -> int:
        """Pods in scope that share the pod's domain, itself aside."""
        place = self.domain(pod, counted.key)
        return 0 if place is None else self.counts(counted)[place] - int(selects(counted.scope, pod))

    def first(self, pod: Pod, counted: Counted) -> bool:
        """Return whether the pod obeys an affinity term as the only one of the kind that it asks for."""
        itself = self.domain(pod, counted.key) is not None and selects(counted.scope, pod)
        return itself and self.counts(counted).total() == 1


def by_node(nodes: Iterable[Site], offers: Iterable[Site]) -> Callable[[str], bool]:
    """Return whether the domains of a topology key are single nodes, new ones included."""
    names = [node.labels[HOSTNAME] for node in nodes if HOSTNAME in node.labels]
    own = all(offer.labels.get(HOSTNAME) == NEW_NODE for offer in offers)
    single = len(set(names)) == len(names) and own
    return lambda key: single and key == HOSTNAME
