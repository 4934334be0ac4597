"""Comparison of a pod with the template from which its replacement is made.

A plan takes pods as they are. After a resize in place, or while an update waits (`OnDelete`, a partition, a paused or
unfinished rollout), the copy that comes for a moved pod is another one, and may find no place where the plan has it.

Only what a template states counts: admission adds to pods what no template has (defaults of requests, containers,
tolerations, node selectors, expressions), and does so for the copy as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kinema_core.events import (
    EMPTY,
    NO_RULES,
    ContainerRequests,
    NodeTerm,
    PlacementRules,
    Pod,
    PodTerm,
    Selector,
    Spread,
    Toleration,
    Workload,
)
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.quantity import in_words
from kinema_core.model.strategy import chain_of
from kinema_core.model.vocabulary import KINEMA_PREFIX, RESIZED_AT_ADMISSION, ROLLED, RUNTIME_CLASS


class _Stated(NamedTuple):
    """Fields of a template that pods are compared with; `rules` is None where it restricts nothing."""

    containers: tuple[ContainerRequests, ...]
    rules: PlacementRules | None


def template_doubt(cluster: Cluster, pod: Pod) -> str | None:
    """Return why a copy of the pod would not be as the pod is; None when it would, as far as templates are known.

    In the middle of a rolling update by Kinema the new template is what was planned, and held pods would keep the nodes
    that it empties.
    """
    template = cluster.controller_of(pod)
    if template is None or ROLLED in template.annotations:
        return None
    stated = _stated(cluster, template, pod)
    found = None
    if stated.containers and RESIZED_AT_ADMISSION not in pod.annotations:
        found = _asked(stated.containers, pod)
    if found is None and stated.rules is not None and stated.rules != pod.rules:
        found = _ruled(stated.rules, pod)
    if found is None:
        return None
    return f"a copy would be made from the template of {template.key}, {found}: it has to be rolled out first"


def _stated(cluster: Cluster, template: Workload, pod: Pod) -> _Stated:
    known = _known(cluster)
    if template.key not in known:
        sized = any(key in _sized(cluster) for key in chain_of(cluster, pod).keys)
        rules = template.template_rules
        known[template.key] = _Stated(
            containers=() if sized else template.template_containers,
            rules=None if rules == NO_RULES else rules,
        )
    return known[template.key]


@derived
def _known(_: Cluster) -> dict[str, _Stated]:
    return {}


@derived
def _sized(cluster: Cluster) -> frozenset[str]:
    """Return the keys of workloads of which a vertical autoscaler sets the requests, whatever the template states."""
    return frozenset(
        f"{one.target_kind}/{one.namespace}/{one.target_name}" for one in cluster.recommendations if one.mode != "Off"
    )


def _asked(stated: tuple[ContainerRequests, ...], pod: Pod) -> str | None:
    """Return the first request that the template states and the pod has otherwise."""
    if stated == pod.containers:
        return None
    single = not pod.containers
    if single and len(stated) == 1 and stated[0].requests.items() <= pod.requests.items():
        return None  # nearly all pods: spares them the loops
    if single and len(stated) > 1:
        return f"which has {len(stated)} containers with requests where the pod has one"
    for item in stated:
        own = pod.requests if single else next((one.requests for one in pod.containers if one.name == item.name), EMPTY)
        for resource, amount in item.requests.items():
            asked = own.get(resource, 0)
            if asked != amount:
                what = f"container {item.name}" if item.name else "the pod as a whole"
                asks = f"{in_words(resource, amount)} of {resource} where the pod asks for {in_words(resource, asked)}"
                return f"in which {what} requests {asks}"
    return None


def _ruled(stated: PlacementRules, pod: Pod) -> str | None:
    """Return the first required rule that the template states and the pod has otherwise."""
    differing = [field for field, kept in _RULES if not kept(stated, pod)]
    return f"which has another {differing[0]}" if differing else None


def _same_selector(stated: PlacementRules, pod: Pod) -> bool:
    return stated.node_selector.items() <= pod.rules.node_selector.items()


def _same_node_terms(stated: PlacementRules, pod: Pod) -> bool:
    """Return whether each of the pod's alternatives is one of the template's, admission's expressions aside.

    What leads away from disrupted nodes is in a template only for the time of a rolling update by Kinema.
    """
    terms, own_terms = stated.node_terms, pod.rules.node_terms
    if terms is None:
        return True
    wanted = [_owners(term) for term in terms]
    if not all(term.expressions or term.fields for term in wanted):
        return True
    return own_terms is not None and all(any(_within(term, own) for term in wanted) for own in own_terms)


def _owners(term: NodeTerm) -> NodeTerm:
    kept = tuple(one for one in term.expressions if not one.key.startswith(KINEMA_PREFIX))
    return NodeTerm(expressions=kept, fields=term.fields)


def _within(term: NodeTerm, own: NodeTerm) -> bool:
    return all(one in own.expressions for one in term.expressions) and all(one in own.fields for one in term.fields)


def _same_tolerations(stated: PlacementRules, pod: Pod) -> bool:
    return all(any(_covers(own, item) for own in pod.rules.tolerations) for item in stated.tolerations)


def _covers(own: Toleration, item: Toleration) -> bool:
    """Admission may merge tolerations into wider ones."""
    wider = own.operator == "Exists" and own.key in ("", item.key) and own.effect in ("", item.effect)
    return wider or own == item


def _same_affinity(stated: PlacementRules, pod: Pod) -> bool:
    return _same_pod_terms(stated.affinity, pod.rules.affinity)


def _same_anti_affinity(stated: PlacementRules, pod: Pod) -> bool:
    return _same_pod_terms(stated.anti_affinity, pod.rules.anti_affinity)


def _same_pod_terms(stated: tuple[PodTerm, ...], own_terms: tuple[PodTerm, ...]) -> bool:
    return all(item.weight or any(_same_pod_term(item, own) for own in own_terms) for item in stated)


def _same_pod_term(item: PodTerm, own: PodTerm) -> bool:
    return (
        not own.weight
        and own.topology_key == item.topology_key
        and own.namespaces == item.namespaces
        and own.namespace_selector == item.namespace_selector
        and own.match_label_keys == item.match_label_keys
        and _narrowed(item.selector, own.selector)
    )


def _same_spread(stated: PlacementRules, pod: Pod) -> bool:
    enforced = (item for item in stated.spread if item.when_unsatisfiable == "DoNotSchedule")
    return all(any(_same_constraint(item, own) for own in pod.rules.spread) for item in enforced)


def _same_constraint(item: Spread, own: Spread) -> bool:
    return (
        own.when_unsatisfiable == item.when_unsatisfiable
        and (own.topology_key, own.max_skew, own.min_domains) == (item.topology_key, item.max_skew, item.min_domains)
        and own.node_affinity_policy == item.node_affinity_policy
        and own.node_taints_policy == item.node_taints_policy
        and own.match_label_keys == item.match_label_keys
        and _narrowed(item.selector, own.selector)
    )


def _narrowed(stated: Selector | None, own: Selector | None) -> bool:
    """Return whether it is the same selector: the API adds a pod's own labels (`matchLabelKeys`) to that of the pod."""
    if stated is None or own is None:
        return stated is own
    return stated.labels.items() <= own.labels.items() and all(one in own.expressions for one in stated.expressions)


def _same_ports(stated: PlacementRules, pod: Pod) -> bool:
    return all(port in pod.rules.host_ports for port in stated.host_ports)


def _same_claims(stated: PlacementRules, pod: Pod) -> bool:
    """Compare claims. Those of ephemeral volumes begin with the name of the pod, which templates lack (`-<volume>`)."""
    return all(
        claim in pod.rules.claims or (claim.startswith("-") and f"{pod.name}{claim}" in pod.rules.claims)
        for claim in stated.claims
    )


def _same_scheduler(stated: PlacementRules, pod: Pod) -> bool:
    return stated.scheduler in (NO_RULES.scheduler, pod.rules.scheduler)


def _same_unmodeled(stated: PlacementRules, pod: Pod) -> bool:
    return all(path in pod.rules.unmodeled for path in stated.unmodeled if path != RUNTIME_CLASS)


_RULES: Final[tuple[tuple[str, Callable[[PlacementRules, Pod], bool]], ...]] = (
    ("node selector", _same_selector),
    ("required node affinity", _same_node_terms),
    ("set of tolerations", _same_tolerations),
    ("pod affinity", _same_affinity),
    ("pod anti-affinity", _same_anti_affinity),
    ("topology spread", _same_spread),
    ("set of host ports", _same_ports),
    ("set of volume claims", _same_claims),
    ("scheduler", _same_scheduler),
    ("field that this version does not model", _same_unmodeled),
)
