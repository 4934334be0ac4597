"""Preferred rules: which of them hold for a pod where it is, and which a plan violates.

kube-scheduler weighs preferred node affinity and preferred affinity between pods by their weights (1 to 100). A taint
`PreferNoSchedule` and a spread `ScheduleAnyway` have none: they count as much as the heaviest of the others. A domain
(a zone, say) that a plan takes the last node from counts as an empty one for `ScheduleAnyway`: who is spread over three
zones now gives that up in one, though kube-scheduler would find it even. Enforced spreads go by what remains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kinema_core.events import (
    NodeTerm,
    Offer,
    PlacementRules,
    Plan,
    Pod,
    PodTerm,
    Requirement,
    Taint,
    ViolatedPreference,
)
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.catalog_file import MICRO
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import node_term_matches, parse_taints, taint_text, tolerates
from kinema_core.model.mobility import listed_by_key
from kinema_core.model.neighbors import selects, term_scope
from kinema_core.model.pod_locations import PodLocations, Spot, fewest_of, group_of

UNWEIGHTED: Final = 100
"""What a preference counts that Kubernetes gives no weight."""


class Preference(NamedTuple):
    """A preferred rule of a pod, as shown to people, and its weight."""

    text: str
    weight: int


def unmet_on_node(rules: PlacementRules, name: str, spot: Spot) -> Iterator[Preference]:
    """Yield the preferences about nodes that do not hold on this one."""
    for item in rules.preferred_nodes:
        if not node_term_matches(item.term, name=name, labels=spot.labels):
            yield Preference(f"node affinity {_term_text(item.term)}", item.weight)
    for taint in spot.taints:
        if shunned(taint) and not tolerates(rules.tolerations, taint):
            yield Preference(f"taint {taint_text(taint)}", UNWEIGHTED)


def shunned(taint: Taint) -> bool:
    """Return whether pods that do not tolerate the taint had rather be elsewhere."""
    return taint.effect == "PreferNoSchedule"


def unmet(world: PodLocations, pod: Pod) -> Iterator[Preference]:
    """Yield the preferences of the pod that do not hold where it is; none for a pod that is nowhere."""
    name = world.where.get(pod.key, "")
    spot = world.nodes.get(name)
    if spot is None:
        return
    rules = pod.rules
    yield from unmet_on_node(rules, name, spot)
    for term in rules.affinity:
        if term.weight and not _beside(world, pod, term):
            yield Preference(f"pod affinity over {term.topology_key}", term.weight)
    for term in rules.anti_affinity:
        if term.weight and _beside(world, pod, term):
            yield Preference(f"pod anti-affinity over {term.topology_key}", term.weight)
    for spread in rules.spread:
        if spread.when_unsatisfiable == "ScheduleAnyway":
            group, place = group_of(pod, spread), spot.labels.get(spread.topology_key)
            counts = world.counts(group.scope, spread.topology_key)
            fewest = 0 if world.loses(group.eligible) else fewest_of(world, group)
            if place is None or counts[place] - fewest > spread.max_skew:
                yield Preference(f"spread over {spread.topology_key}", UNWEIGHTED)


def _beside(world: PodLocations, pod: Pod, term: PodTerm) -> bool:
    """Return whether another pod that the term is about shares the pod's domain."""
    scope = term_scope(world.cluster, pod, term)
    place = world.domain_of(pod.key, term.topology_key)
    return place is not None and world.counts(scope, term.topology_key)[place] > int(selects(scope, pod))


def violated_preferences(
    plan: Plan, cluster: Cluster, offers: Mapping[str, Offer], price: int
) -> tuple[ViolatedPreference, ...]:
    """Return what of the preferences that hold now does not after the plan, by workload and rule.

    Args:
        plan: any plan for exactly this cluster.
        cluster: the state that it was made for.
        offers: machines on sale, by name.
        price: of a weight point, in millionths of the unit of the plan's cost.
    """
    live = {node.name: Spot(node.labels, node.taints) for node in cluster.nodes}
    after = {
        node.name: _spot(node.name, live, offers.get(node.offer)) for node in plan.nodes if node.action != "delete"
    }
    shuns = any(shunned(taint) for spot in (*live.values(), *after.values()) for taint in spot.taints)
    pods = listed_by_key(cluster)
    asking = [pod for pod in pods.values() if pod.node is not None and (shuns or has_preferences(pod.rules))]
    if not asking or not (plan.moves or any(node.action != "keep" for node in plan.nodes)):
        return ()
    bound = {key: pod.node for key, pod in cluster.pods_by_key.items() if pod.node is not None and not pod.terminating}
    staying = {key: name for key, name in bound.items() if key not in pods and name in after}
    before = PodLocations(cluster, live, bound)
    gone = {name: spot for name, spot in live.items() if name not in after}
    later = PodLocations(cluster, after, {**staying, **{item.pod: item.to for item in plan.placements}}, gone)
    found: Counter[tuple[str, Preference]] = Counter()
    for pod in asking:
        owner = cluster.controller_key_of(pod) or f"Pod/{pod.key}"
        lost = Counter(unmet(later, pod)) - Counter(unmet(before, pod))
        found.update({(owner, one): count for one, count in lost.items()})
    return tuple(
        ViolatedPreference(
            workload=owner,
            preference=one.text,
            weight=one.weight,
            pods=n,
            price=round(one.weight * n * price / MICRO, 6),
        )
        for (owner, one), n in sorted(found.items())
    )


def has_preferences(rules: PlacementRules) -> bool:
    """Return whether a pod with these rules prefers anything, taints of nodes aside."""
    return bool(rules.preferred_nodes) or is_sociable(rules)


def is_sociable(rules: PlacementRules) -> bool:
    """Return whether a pod with these rules prefers to be near other pods, or away from them."""
    if not (rules.affinity or rules.anti_affinity or rules.spread):  # most pods
        return False
    weighted = any(term.weight for term in (*rules.affinity, *rules.anti_affinity))
    return weighted or any(one.when_unsatisfiable == "ScheduleAnyway" for one in rules.spread)


def _spot(name: str, live: Mapping[str, Spot], offer: Offer | None) -> Spot:
    if name in live or offer is None:
        return live[name]
    return Spot(new_node_labels(offer, name), parse_taints(offer.taints))


def _term_text(term: NodeTerm) -> str:
    return " and ".join(_requirement_text(one) for one in (*term.expressions, *term.fields))


def _requirement_text(one: Requirement) -> str:
    return f"{one.key} {one.operator} {','.join(one.values)}".strip()
