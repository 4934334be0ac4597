"""Pods that must stay because another pod's rules, which we do not model, count on where they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kinema_core.events import Labels, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.neighbours import Scope, domain, enforced, pod_index, required, spread_scope, term_scope


class _Claim(NamedTuple):
    """What one rule of a pod demands of others: those in `scope` stay; with `within`, those of one domain only."""

    scope: Scope
    within: tuple[str, str] | None
    """Topology key and domain."""
    code: str
    word: str


def peers(cluster: Cluster) -> Mapping[str, tuple[str, str]]:
    """Code and reason by pod key, for each pod that the rules of a bound pod select.

    A pod that another's anti-affinity or spread selects could break it wherever it goes; one that another's affinity
    selects, by leaving their common domain.
    """
    labels = {node.name: node.labels for node in cluster.nodes}
    found: dict[str, tuple[str, str]] = {}
    seen: set[tuple[Scope, tuple[str, str] | None]] = set()
    for pod in cluster.pods:
        if pod.node is None or pod.terminating:
            continue
        for claim in _claims(cluster, pod, labels.get(pod.node)):
            if (claim.scope, claim.within) in seen:
                continue
            seen.add((claim.scope, claim.within))
            verdict = (claim.code, f"the {claim.word} of pod {pod.key} counts on where it is")
            for other in pod_index(cluster).select(claim.scope):
                if claim.within is None or _within(claim.within, labels.get(other.node or "")):
                    found.setdefault(other.key, verdict)
    return found


def _claims(cluster: Cluster, pod: Pod, labels: Labels | None) -> Iterator[_Claim]:
    rules = pod.rules
    for term in required(rules.anti_affinity):
        yield _Claim(term_scope(cluster, pod, term), None, "anti-affinity-peer", "required anti-affinity")
    for spread in enforced(rules.spread):
        yield _Claim(spread_scope(pod, spread), None, "spread-peer", "topology spread")
    for term in required(rules.affinity):
        place = domain(labels, term.topology_key)
        if place is not None:
            within = (term.topology_key, place)
            yield _Claim(term_scope(cluster, pod, term), within, "affinity-peer", "required affinity")


def _within(within: tuple[str, str], labels: Labels | None) -> bool:
    return domain(labels, within[0]) == within[1]
