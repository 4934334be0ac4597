"""Which offers an enforced topology spread closes.

Pods under such a constraint stay where they are in this version. But a new node can be a new domain, in which none of
them runs, and then the fewest pods of any domain are none: what was even before breaks the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kinema_core.events import PlacementRules, Pod, Spread
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import node_admits
from kinema_core.model.mobility import listed
from kinema_core.model.neighbours import domain, enforced, pod_index, spread_scope
from kinema_optimizer.logic.admission import Site


def closed_by_spread(cluster: Cluster, sites: Iterable[Site]) -> frozenset[str]:
    """Names of the offers whose new nodes would break a spread constraint that holds now, or worsen a broken one."""
    offers = tuple(sites)
    closed: set[str] = set()
    seen: set[tuple[object, ...]] = set()
    for pod in listed(cluster):
        for spread in enforced(pod.rules.spread) if pod.node is not None else ():
            alike = (spread, spread_scope(pod, spread), _eligibility(pod.rules, spread))
            if alike not in seen:
                seen.add(alike)
                closed |= _closed(cluster, pod, spread, offers)
    return frozenset(closed)


def _closed(cluster: Cluster, pod: Pod, spread: Spread, offers: Iterable[Site]) -> set[str]:
    rules, key = _eligibility(pod.rules, spread), spread.topology_key
    honoured = spread.node_taints_policy == "Honor"
    domains = {
        node.labels[key]
        for node in cluster.nodes
        if key in node.labels
        and node_admits(rules, name=node.name, labels=node.labels, taints=node.taints if honoured else ()) is None
    }
    counts: Counter[str] = Counter()
    for other in pod_index(cluster).select(spread_scope(pod, spread)):
        node = cluster.node(other.node or "")
        place = None if node is None else domain(node.labels, key)
        if place in domains:
            counts[place] += 1
    most = max(counts.values(), default=0)
    fewest = min((counts[place] for place in domains), default=0) if len(domains) >= spread.min_domains else 0
    if most <= max(spread.max_skew, most - fewest):
        return set()
    return {
        site.name
        for site in offers
        if key in site.labels
        and site.labels[key] not in domains
        and node_admits(rules, name=site.name, labels=site.labels, taints=site.taints if honoured else ()) is None
    }


def _eligibility(rules: PlacementRules, spread: Spread) -> PlacementRules:
    """What decides whether a node counts for the constraint."""
    honoured = spread.node_affinity_policy == "Honor"
    return PlacementRules(
        node_selector=rules.node_selector if honoured else PlacementRules().node_selector,
        node_terms=rules.node_terms if honoured else None,
        tolerations=rules.tolerations,
    )
