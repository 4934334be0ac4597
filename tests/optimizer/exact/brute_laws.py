"""What the rules between pods say, on plain lists of pods and nodes: for brute force, apart from the models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kinema_core.events import HostPort, Labels, PlacementRules, Pod, PodTerm, Spread, Taint
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import node_admits, requirement_matches, selector_matches

People: TypeAlias = list[tuple[Pod, Labels]]
"""Pods, each with the labels of its node."""


@dataclass
class Spot:
    """A node in the making: live or new."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]
    room: dict[str, int]
    price: int
    fixed: bool = False
    open: bool = True
    spot: bool = False
    spot_keys: frozenset[str] = frozenset()
    ports: tuple[HostPort, ...] = ()
    stuck: list[Pod] = field(default_factory=list)
    """Pods that go with it, or that may not move: those that rules count."""
    offer: str = ""
    seats: list[tuple[Pod, bool]] = field(default_factory=list)
    """Movable pods here, and whether they arrive."""


class Scene(NamedTuple):
    """Nodes, and everybody who is on them: whether they arrive there."""

    spots: list[Spot]
    people: list[tuple[Pod, Labels, bool]]


class Laws:
    """The rules between the pods of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.shunned: dict[tuple[int, int, int, int], bool] = {}
        self.meant: dict[tuple[int, int], set[int]] = {}
        self.known_rivals: dict[int, set[int]] = {}

    def rivals(self, pod: Pod) -> set[int]:
        """Identities of the pods that the pod keeps away from some place, or that keep it away."""
        if id(pod) not in self.known_rivals:
            self.known_rivals[id(pod)] = {
                id(other) for other in self.cluster.pods if self._minds(pod, other) or self._minds(other, pod)
            }
        return self.known_rivals[id(pod)]

    def _minds(self, pod: Pod, other: Pod) -> bool:
        return any(term.weight == 0 and id(other) in self._meant(pod, term) for term in pod.rules.anti_affinity)

    def shun(self, a: Pod, at: Labels, b: Pod, there: Labels) -> bool:
        """Whether one of two pods keeps the other away from where they are."""
        key = (id(a), id(at), id(b), id(there))
        if key not in self.shunned:
            self.shunned[key] = self._keeps_away(a, at, b, there) or self._keeps_away(b, there, a, at)
        return self.shunned[key]

    def _keeps_away(self, pod: Pod, at: Labels, other: Pod, there: Labels) -> bool:
        return any(
            term.weight == 0
            and term.topology_key in at
            and at[term.topology_key] == there.get(term.topology_key)
            and id(other) in self._meant(pod, term)
            for term in pod.rules.anti_affinity
        )

    def near(self, pod: Pod, at: Labels, term: PodTerm, people: People) -> bool:
        """Whether an affinity term holds for a pod there: somebody is with it, or it is the first of its kind."""
        key = term.topology_key
        if key not in at:
            return False
        meant = self._meant(pod, term)
        found = [(other, there) for other, there in people if id(other) in meant and key in there]
        if any(other is not pod and there[key] == at[key] for other, there in found):
            return True
        return len(found) == 1 and found[0][0] is pod

    def even(self, pod: Pod, one: Spread, after: Scene, now: Scene) -> bool:
        """Whether a spread of the pod's is no less even than now, or wanted, and lets it in where it arrives."""
        most, fewest = extremes(pod, one, after)
        most_now, fewest_now = extremes(pod, one, now)
        return most - fewest <= max(one.max_skew, most_now - fewest_now) and self.lets_in(pod, one, after)

    def lets_in(self, pod: Pod, one: Spread, scene: Scene) -> bool:
        """Whether a spread of the pod's lets it in where it arrives, if it does."""
        key = one.topology_key
        _, fewest = extremes(pod, one, scene)
        for other, there, comes in scene.people:
            if other is pod and comes:
                same = [each for each, place, _ in scene.people if place.get(key) == there[key]]
                if sum(counted(pod, one, each) for each in same) - fewest > one.max_skew:
                    return False
        return True

    def _meant(self, pod: Pod, term: PodTerm) -> set[int]:
        """Identities of the pods that the term of a pod selects."""
        key = (id(pod), id(term))
        if key not in self.meant:
            self.meant[key] = {id(other) for other in self.cluster.pods if self._selected(pod, term, other)}
        return self.meant[key]

    def _selected(self, pod: Pod, term: PodTerm, other: Pod) -> bool:
        if term.namespace_selector is not None:
            spaces = {space.name: space.labels for space in self.cluster.namespaces}
            chosen = selector_matches(term.namespace_selector, spaces.get(other.namespace, Labels()))
            reached = not spaces or (other.namespace in spaces and chosen) or other.namespace in term.namespaces
        else:
            reached = other.namespace in (term.namespaces or (pod.namespace,))
        same = all(other.labels.get(key) == pod.labels[key] for key in term.match_label_keys if key in pod.labels)
        return reached and same and selector_matches(term.selector, other.labels)


def alive(pod: Pod) -> bool:
    """Whether rules count the pod at all."""
    return not pod.terminating


def hard(pod: Pod) -> list[Spread]:
    """The pod's enforced spread constraints."""
    return [one for one in pod.rules.spread if one.when_unsatisfiable == "DoNotSchedule"]


def extremes(pod: Pod, one: Spread, scene: Scene) -> tuple[int, int]:
    """Most and fewest pods counted in a domain of nodes that count; too few domains count as an empty one."""
    key = one.topology_key
    counts = {spot.labels[key]: 0 for spot in scene.spots if key in spot.labels and eligible(pod, one, spot)}
    for other, there, _ in scene.people:
        if there.get(key) in counts and counted(pod, one, other):
            counts[there[key]] += 1
    if not counts:
        return 0, 0
    return max(counts.values()), min(counts.values()) if len(counts) >= one.min_domains else 0


def counted(pod: Pod, one: Spread, other: Pod) -> bool:
    """Whether the constraint of a pod counts the other."""
    same = all(other.labels.get(key) == pod.labels[key] for key in one.match_label_keys if key in pod.labels)
    return other.namespace == pod.namespace and same and selector_matches(one.selector, other.labels)


def eligible(pod: Pod, one: Spread, spot: Spot) -> bool:
    """Whether the node makes its domain count."""
    rules = pod.rules
    if one.node_affinity_policy == "Honor":
        if any(spot.labels.get(key) != value for key, value in rules.node_selector.items()):
            return False
        terms = rules.node_terms
        if terms is not None and not any(
            all(requirement_matches(each, spot.labels) for each in term.expressions) for term in terms
        ):
            return False
    if one.node_taints_policy == "Honor":
        alone = PlacementRules(tolerations=rules.tolerations)
        return node_admits(alone, name=spot.name, labels=spot.labels, taints=spot.taints) is None
    return True
