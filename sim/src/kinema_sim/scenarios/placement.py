"""Placement rules of an observed pod, written as the fields of a pod's spec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kinema_core.events import NodeTerm, PlacementRules, PodTerm, Requirement, Selector, Spread, Toleration
from kinema_sim.engine.objects import Obj

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def placement_spec(rules: PlacementRules) -> Obj:
    """Return the fields of `spec` that restrict or steer where a pod may be; volumes and host ports are none of them.

    The observer reads the same rules from them.
    """
    affinity = {
        "nodeAffinity": _node_affinity(rules),
        "podAffinity": _pod_affinity(rules.affinity),
        "podAntiAffinity": _pod_affinity(rules.anti_affinity),
    }
    found: Obj = {
        "affinity": {name: part for name, part in affinity.items() if part},
        "nodeSelector": dict(rules.node_selector),
        "tolerations": [_toleration(one) for one in rules.tolerations],
        "topologySpreadConstraints": [_spread(one) for one in rules.spread],
    }
    return {name: part for name, part in found.items() if part}


def node_selector(terms: Iterable[NodeTerm]) -> Obj:
    """Return a node selector of alternatives."""
    return {"nodeSelectorTerms": [_node_term(one) for one in terms]}


def label_selector(selector: Selector | None) -> Obj | None:
    """Return a label selector; None matches nothing, an empty one everything."""
    if selector is None:
        return None
    found: Obj = {
        "matchLabels": dict(selector.labels),
        "matchExpressions": [_requirement(one) for one in selector.expressions],
    }
    return {name: part for name, part in found.items() if part}


def _node_affinity(rules: PlacementRules) -> Obj:
    found: Obj = {}
    if rules.node_terms is not None:
        found[_REQUIRED] = node_selector(rules.node_terms)
    if rules.preferred_nodes:
        found[_PREFERRED] = [
            {"weight": one.weight, "preference": _node_term(one.term)} for one in rules.preferred_nodes
        ]
    return found


def _node_term(term: NodeTerm) -> Obj:
    found: Obj = {
        "matchExpressions": [_requirement(one) for one in term.expressions],
        "matchFields": [_requirement(one) for one in term.fields],
    }
    return {name: part for name, part in found.items() if part}


def _pod_affinity(terms: Iterable[PodTerm]) -> Obj:
    terms = tuple(terms)
    found: Obj = {
        _REQUIRED: [_pod_term(one) for one in terms if not one.weight],
        _PREFERRED: [{"weight": one.weight, "podAffinityTerm": _pod_term(one)} for one in terms if one.weight],
    }
    return {name: part for name, part in found.items() if part}


def _pod_term(term: PodTerm) -> Obj:
    found: Obj = {"topologyKey": term.topology_key}
    if term.selector is not None:
        found["labelSelector"] = label_selector(term.selector)
    if term.namespaces:
        found["namespaces"] = list(term.namespaces)
    if term.namespace_selector is not None:
        found["namespaceSelector"] = label_selector(term.namespace_selector)
    if term.match_label_keys:
        found["matchLabelKeys"] = list(term.match_label_keys)
    return found


def _toleration(one: Toleration) -> Obj:
    found = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {name: part for name, part in found.items() if part}


def _spread(one: Spread) -> Obj:
    found: Obj = {
        "topologyKey": one.topology_key,
        "maxSkew": one.max_skew,
        "whenUnsatisfiable": one.when_unsatisfiable,
    }
    if one.selector is not None:
        found["labelSelector"] = label_selector(one.selector)
    if one.min_domains != 1:
        found["minDomains"] = one.min_domains
    if one.match_label_keys:
        found["matchLabelKeys"] = list(one.match_label_keys)
    if one.node_affinity_policy != "Honor":
        found["nodeAffinityPolicy"] = one.node_affinity_policy
    if one.node_taints_policy != "Ignore":
        found["nodeTaintsPolicy"] = one.node_taints_policy
    return found


def _requirement(one: Requirement) -> Obj:
    found: Obj = {"key": one.key, "operator": one.operator}
    return {**found, "values": list(one.values)} if one.values else found
