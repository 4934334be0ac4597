"""Checks of the rules between pods: who arrives obeys them; for who stays, what is broken does not get worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kinema_core.events import Labels, NodeTerm, PlacementRules, Pod, Spread, Taint, Toleration
from kinema_core.model.checker.view import View, Violation
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident
from kinema_core.model.match import HOSTNAME, node_admits
from kinema_core.model.neighbours import Scope, domain, enforced, pod_index, required, selects, spread_scope, term_scope


class Spot(NamedTuple):
    """A node as the rules see it."""

    labels: Labels
    taints: tuple[Taint, ...]


class _Eligible(NamedTuple):
    """Which nodes count for a spread constraint."""

    topology_key: str
    node_selector: Labels | None
    node_terms: tuple[NodeTerm, ...] | None
    tolerations: tuple[Toleration, ...] | None


class Group(NamedTuple):
    """Spread constraints that are evaluated as one."""

    scope: Scope
    eligible: _Eligible
    max_skew: int
    min_domains: int


@dataclass
class World:
    """Where everybody is, before or after the plan."""

    cluster: Cluster
    nodes: Mapping[str, Spot]
    where: Mapping[str, str]
    gone: Mapping[str, Spot] = field(default_factory=dict)
    """Nodes that a plan deletes, where one asks what pods lose by that."""
    _counts: dict[tuple[Scope, str], Counter[str]] = field(default_factory=dict)
    _domains: dict[_Eligible, frozenset[str]] = field(default_factory=dict)
    _lost: dict[_Eligible, bool] = field(default_factory=dict)

    def domain_of(self, key: str, topology_key: str) -> str | None:
        """The domain that a pod is in."""
        node = self.nodes.get(self.where.get(key, ""))
        return None if node is None else domain(node.labels, topology_key)

    def counts(self, scope: Scope, topology_key: str) -> Counter[str]:
        """Pods in scope per domain."""
        if (scope, topology_key) not in self._counts:
            found = (self.domain_of(pod.key, topology_key) for pod in pod_index(self.cluster).select(scope))
            self._counts[scope, topology_key] = Counter(place for place in found if place is not None)
        return self._counts[scope, topology_key]

    def domains(self, eligible: _Eligible) -> frozenset[str]:
        """The domains of the nodes that count."""
        if eligible not in self._domains:
            self._domains[eligible] = _domains(self.nodes, eligible)
        return self._domains[eligible]

    def loses(self, eligible: _Eligible) -> bool:
        """Whether some domain has lost its last node. Hosts are left out: fewer of them is what plans are for."""
        if not self.gone or eligible.topology_key == HOSTNAME:
            return False
        if eligible not in self._lost:
            self._lost[eligible] = not _domains(self.gone, eligible) <= self.domains(eligible)
        return self._lost[eligible]


def _domains(nodes: Mapping[str, Spot], eligible: _Eligible) -> frozenset[str]:
    rules = PlacementRules(
        node_selector=eligible.node_selector or Labels(),
        node_terms=eligible.node_terms,
        tolerations=eligible.tolerations or (),
    )
    return frozenset(
        node.labels[eligible.topology_key]
        for name, node in nodes.items()
        if eligible.topology_key in node.labels
        and node_admits(
            rules, name=name, labels=node.labels, taints=() if eligible.tolerations is None else node.taints
        )
        is None
    )


def check_rules(view: View) -> Iterator[Violation]:
    """Required pod affinity and anti-affinity in both directions, and enforced topology spread.

    kube-scheduler asks everybody who arrives anew, and lets nobody in because it was no better where it came from.
    """
    ruled = [pod for pod in view.cluster.pods if has_rules(pod) and not pod.terminating]
    if not ruled:
        return
    now, after = world_now(view), world_after(view)
    coming = World(view.cluster, after.nodes, {seat.key: seat.to for seat in view.arriving})
    for pod in ruled:
        if pod.key in after.where:
            yield from _affinity(pod, now, after, coming)
            yield from _anti_affinity(pod, now, after, coming)
            yield from _levels(pod, after, coming)
    yield from _spread(ruled, now, after)


def has_rules(pod: Pod) -> bool:
    """Whether the pod has rules about other pods, preferred ones included."""
    rules = pod.rules
    return bool(rules.affinity or rules.anti_affinity or rules.spread)


def world_now(view: View) -> World:
    """Where everybody is."""
    nodes = {node.name: Spot(node.labels, node.taints) for node in view.cluster.nodes}
    pods = view.cluster.pods_by_key
    where = {key: pod.node for key, pod in pods.items() if pod.node is not None and not pod.terminating}
    return World(view.cluster, nodes, where)


def world_after(view: View) -> World:
    """Where everybody would be."""
    nodes = {name: Spot(site.labels, site.taints) for name, site in view.sites.items()}
    where = {
        key: pod.node
        for key, pod in view.cluster.pods_by_key.items()
        if pod.node in nodes and not pod.terminating and is_resident(view.cluster, pod)
    }
    return World(view.cluster, nodes, {**where, **{seat.key: seat.to for seat in view.seats}})


def _affinity(pod: Pod, now: World, after: World, coming: World) -> Iterator[Violation]:
    for term in required(pod.rules.affinity):
        scope = term_scope(after.cluster, pod, term)
        if not _alone(after, pod, scope, term.topology_key):
            continue
        stays = pod.key in now.where and pod.key not in coming.where
        if not stays or not _alone(now, pod, scope, term.topology_key):
            yield Violation("affinity-broken", pod.key, f"nobody it needs shares its {term.topology_key}")


def _alone(world: World, pod: Pod, scope: Scope, topology_key: str) -> bool:
    """Whether nobody in scope shares the pod's domain. The first of pods that need each other needs nobody."""
    counts = world.counts(scope, topology_key)
    place = world.domain_of(pod.key, topology_key)
    itself = int(place is not None and selects(scope, pod))
    if place is not None and counts[place] > itself:
        return False
    return not (itself and counts.total() == itself)


def _anti_affinity(pod: Pod, now: World, after: World, coming: World) -> Iterator[Violation]:
    """Those who are together against the rule may stay; nobody comes to them, be it for another who leaves."""
    for term in required(pod.rules.anti_affinity):
        scope, key = term_scope(after.cluster, pod, term), term.topology_key
        place, others = after.domain_of(pod.key, key), _others(after, pod, scope, key)
        arrives = pod.key in coming.where
        newcomers = 0 if place is None else coming.counts(scope, key)[place] - int(arrives and selects(scope, pod))
        if others > _others(now, pod, scope, key) or (others and (arrives or newcomers)):
            yield Violation("anti-affinity-broken", pod.key, f"pods it keeps away share its {key}")


def _others(world: World, pod: Pod, scope: Scope, topology_key: str) -> int:
    place = world.domain_of(pod.key, topology_key)
    if place is None:
        return 0
    return world.counts(scope, topology_key)[place] - int(selects(scope, pod))


def _levels(pod: Pod, after: World, coming: World) -> Iterator[Violation]:
    """Whoever arrives is let in by its own spread alone, however uneven others are."""
    for spread in enforced(pod.rules.spread) if pod.key in coming.where else ():
        group, place = group_of(pod, spread), after.domain_of(pod.key, spread.topology_key)
        if place is None:
            yield Violation("spread-broken", pod.key, f"it arrives on a node without {spread.topology_key}")
        elif after.counts(group.scope, spread.topology_key)[place] - fewest_of(after, group) > group.max_skew:
            yield Violation("spread-broken", pod.key, f"it arrives where the skew is above {group.max_skew}")


def _spread(ruled: list[Pod], now: World, after: World) -> Iterator[Violation]:
    groups: dict[Group, str] = {}
    for pod in ruled:
        for spread in enforced(pod.rules.spread):
            groups.setdefault(group_of(pod, spread), pod.key)
    for group, key in groups.items():
        skew = skew_of(after, group)
        if skew > max(group.max_skew, skew_of(now, group)):
            detail = f"skew {skew} over {group.eligible.topology_key}, at most {group.max_skew} is wanted"
            yield Violation("spread-broken", key, detail)


def group_of(pod: Pod, spread: Spread) -> Group:
    """The constraint as it is evaluated, for all pods that share it."""
    rules = pod.rules
    honored = spread.node_affinity_policy == "Honor"
    eligible = _Eligible(
        topology_key=spread.topology_key,
        node_selector=rules.node_selector if honored else None,
        node_terms=rules.node_terms if honored else None,
        tolerations=rules.tolerations if spread.node_taints_policy == "Honor" else None,
    )
    return Group(spread_scope(pod, spread), eligible, spread.max_skew, spread.min_domains)


def skew_of(world: World, group: Group) -> int:
    """Most pods in a domain less fewest, over the nodes that remain."""
    counts = world.counts(group.scope, group.eligible.topology_key)
    here = [counts[place] for place in world.domains(group.eligible)]
    return max(here) - fewest_of(world, group) if here else 0


def fewest_of(world: World, group: Group) -> int:
    """Fewest pods in a domain; too few domains count as an empty one more."""
    domains = world.domains(group.eligible)
    counts = world.counts(group.scope, group.eligible.topology_key)
    return 0 if len(domains) < group.min_domains else min((counts[place] for place in domains), default=0)
