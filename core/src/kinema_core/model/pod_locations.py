"""Locations of pods before or after a plan, and their counts by domain, as rules between pods need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kinema_core.events import EMPTY, Labels, NodeTerm, PlacementRules, Pod, Spread, Taint, Toleration
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import HOSTNAME, node_admits
from kinema_core.model.neighbors import Scope, domain, pod_index, selects, spread_scope


class Spot(NamedTuple):
    """A node as the rules see it."""

    labels: Labels
    taints: tuple[Taint, ...]


class Eligible(NamedTuple):
    """Nodes that count for a spread constraint: None where its policy ignores the rule."""

    topology_key: str
    node_selector: Labels | None
    node_terms: tuple[NodeTerm, ...] | None
    tolerations: tuple[Toleration, ...] | None

    def counts(self, *, name: str, labels: Labels, taints: tuple[Taint, ...]) -> bool:
        """Return whether a node counts."""
        rules = PlacementRules(
            node_selector=self.node_selector or EMPTY, node_terms=self.node_terms, tolerations=self.tolerations or ()
        )
        asked = () if self.tolerations is None else taints
        return self.topology_key in labels and node_admits(rules, name=name, labels=labels, taints=asked) is None

    def domains(self, nodes: Mapping[str, Spot]) -> dict[str, str]:
        """Return the domain of each of these nodes that counts, by node."""
        return {
            name: node.labels[self.topology_key]
            for name, node in nodes.items()
            if self.counts(name=name, labels=node.labels, taints=node.taints)
        }


def eligible_of(pod: Pod, spread: Spread) -> Eligible:
    """Return which nodes count for a pod's spread constraint."""
    honored = spread.node_affinity_policy == "Honor"
    return Eligible(
        topology_key=spread.topology_key,
        node_selector=pod.rules.node_selector if honored else None,
        node_terms=pod.rules.node_terms if honored else None,
        tolerations=pod.rules.tolerations if spread.node_taints_policy == "Honor" else None,
    )


class Group(NamedTuple):
    """Spread constraints that are evaluated as one."""

    scope: Scope
    eligible: Eligible
    max_skew: int
    min_domains: int


@dataclass
class PodLocations:
    """Locations of all pods, before or after the plan."""

    cluster: Cluster
    nodes: dict[str, Spot]
    where: dict[str, str]
    """Node of each pod, by `namespace/name`."""
    gone: Mapping[str, Spot] = field(default_factory=dict)
    """Nodes that a plan deletes, where one asks what pods lose by that."""
    _counts: dict[tuple[Scope, str], Counter[str]] = field(default_factory=dict)
    _domains: dict[Eligible, frozenset[str]] = field(default_factory=dict)
    _lost: dict[Eligible, bool] = field(default_factory=dict)

    def move(self, pod: Pod, to: str | None) -> None:
        """Put a pod of the cluster on one of the nodes, or on none."""
        concerned = [asked for asked in self._counts if selects(asked[0], pod)]
        for scope, key in concerned:
            if (place := self.domain_of(pod.key, key)) is not None:
                self._counts[scope, key][place] -= 1
        self.where.pop(pod.key, None)
        if to is not None:
            self.where[pod.key] = to
        for scope, key in concerned:
            if (place := self.domain_of(pod.key, key)) is not None:
                self._counts[scope, key][place] += 1

    def add_node(self, name: str, spot: Spot) -> None:
        """Add a node, which may open a domain."""
        if self.nodes.get(name) != spot:
            self.nodes[name] = spot
            self._domains.clear()
            self._lost.clear()

    def domain_of(self, key: str, topology_key: str) -> str | None:
        """Return the domain that a pod is in."""
        node = self.nodes.get(self.where.get(key, ""))
        return None if node is None else domain(node.labels, topology_key)

    def counts(self, scope: Scope, topology_key: str) -> Counter[str]:
        """Pods in scope per domain."""
        if (scope, topology_key) not in self._counts:
            found = (self.domain_of(pod.key, topology_key) for pod in pod_index(self.cluster).select(scope))
            self._counts[scope, topology_key] = Counter(place for place in found if place is not None)
        return self._counts[scope, topology_key]

    def domains(self, eligible: Eligible) -> frozenset[str]:
        """Return the domains of the nodes that count."""
        if eligible not in self._domains:
            self._domains[eligible] = frozenset(eligible.domains(self.nodes).values())
        return self._domains[eligible]

    def loses(self, eligible: Eligible) -> bool:
        """Return whether a domain has lost its last node. Hosts are left out: fewer of them is what plans are for."""
        if not self.gone or eligible.topology_key == HOSTNAME:
            return False
        if eligible not in self._lost:
            self._lost[eligible] = not self.domains(eligible).issuperset(eligible.domains(self.gone).values())
        return self._lost[eligible]


def group_of(pod: Pod, spread: Spread) -> Group:
    """Return the constraint as it is evaluated, for all pods that share it."""
    return Group(spread_scope(pod, spread), eligible_of(pod, spread), spread.max_skew, spread.min_domains)


def skew_of(locations: PodLocations, group: Group) -> int:
    """Most pods in a domain less fewest, over the nodes that remain."""
    counts = locations.counts(group.scope, group.eligible.topology_key)
    here = [counts[place] for place in locations.domains(group.eligible)]
    return max(here) - fewest_of(locations, group) if here else 0


def fewest_of(locations: PodLocations, group: Group) -> int:
    """Fewest pods in a domain; too few domains count as an empty one more."""
    domains = locations.domains(group.eligible)
    counts = locations.counts(group.scope, group.eligible.topology_key)
    return 0 if len(domains) < group.min_domains else min((counts[place] for place in domains), default=0)
