"""Pods that an affinity term, a spread constraint or a disruption budget selects, for thousands of pods at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kinema_core.events import Labels, Pod, PodTerm, Requirement, Selector, Spread
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.match import selector_matches


class Scope(NamedTuple):
    """Scope of a selector: namespaces in order (None: all of them) and labels."""

    namespaces: tuple[str, ...] | None
    selector: Selector | None


def selects(scope: Scope, pod: Pod) -> bool:
    """Return whether the pod is in scope."""
    reached = scope.namespaces is None or pod.namespace in scope.namespaces
    return reached and selector_matches(scope.selector, pod.labels)


class PodIndex:
    """Pods by namespace and labels: a selector is evaluated once per distinct set of labels, not once per pod."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._groups: dict[tuple[str, Labels], list[Pod]] = {}
        for pod in pods:
            self._groups.setdefault((pod.namespace, pod.labels), []).append(pod)
        self._by_namespace: dict[str, list[Labels]] = {}
        self._by_label: dict[tuple[str, str, str], list[Labels]] = {}
        for namespace, labels in self._groups:
            self._by_namespace.setdefault(namespace, []).append(labels)
            for key, value in labels.items():
                self._by_label.setdefault((namespace, key, value), []).append(labels)
        self._found: dict[Scope, tuple[Pod, ...]] = {}

    def select(self, scope: Scope) -> tuple[Pod, ...]:
        """Return the pods in scope, sorted by key; asked twice, worked out once."""
        if scope not in self._found:
            self._found[scope] = tuple(sorted(self._search(scope), key=lambda pod: pod.key))
        return self._found[scope]

    def _search(self, scope: Scope) -> Iterable[Pod]:
        if scope.selector is None:
            return
        for namespace in self._by_namespace if scope.namespaces is None else scope.namespaces:
            for labels in self._candidates(namespace, scope.selector):
                if selector_matches(scope.selector, labels):
                    yield from self._groups[namespace, labels]

    def _candidates(self, namespace: str, selector: Selector) -> list[Labels]:
        """Return the sets of labels that may match: of the selector's equalities, the rarest narrows most."""
        narrowed = [self._by_label.get((namespace, key, value), []) for key, value in selector.labels.items()]
        return min(narrowed, key=len) if narrowed else self._by_namespace.get(namespace, [])


@derived
def pod_index(cluster: Cluster) -> PodIndex:
    """Return the index over the cluster's pods that are not terminating."""
    return PodIndex(pod for pod in cluster.pods if not pod.terminating)


def term_scope(cluster: Cluster, pod: Pod, term: PodTerm) -> Scope:
    """Return what an affinity term of this pod reaches.

    Without any namespace object a namespace selector is taken to select every namespace.
    """
    selector = _with_own_labels(term.selector, term.match_label_keys, pod.labels)
    if term.namespace_selector is None:
        return Scope(tuple(sorted(set(term.namespaces))) or (pod.namespace,), selector)
    if not cluster.namespaces:
        return Scope(None, selector)
    reached = {space.name for space in cluster.namespaces if selector_matches(term.namespace_selector, space.labels)}
    return Scope(tuple(sorted(reached | set(term.namespaces))), selector)


def spread_scope(pod: Pod, spread: Spread) -> Scope:
    """Return the pods that a spread constraint of this pod counts."""
    return Scope((pod.namespace,), _with_own_labels(spread.selector, spread.match_label_keys, pod.labels))


def _with_own_labels(selector: Selector | None, keys: tuple[str, ...], labels: Labels) -> Selector | None:
    """Return the selector narrowed to the pod's own values of the keys; keys that it lacks are ignored."""
    own = tuple(Requirement(key=key, operator="In", values=(labels[key],)) for key in keys if key in labels)
    if selector is None or not own:
        return selector
    return Selector(labels=selector.labels, expressions=(*selector.expressions, *own))


def required(terms: tuple[PodTerm, ...]) -> tuple[PodTerm, ...]:
    """Return the terms that must hold; preferred ones carry a weight."""
    return tuple(term for term in terms if term.weight == 0)


def enforced(spreads: tuple[Spread, ...]) -> tuple[Spread, ...]:
    """Return the spread constraints that kube-scheduler enforces."""
    return tuple(spread for spread in spreads if spread.when_unsatisfiable == "DoNotSchedule")


def domain(labels: Mapping[str, str] | None, topology_key: str) -> str | None:
    """Return the topology domain of a node with these labels; None when it is in none."""
    return None if labels is None else labels.get(topology_key)
