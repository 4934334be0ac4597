"""Checks of the rules between pods: arriving pods obey them; for the others what is broken does not get worse."""

from __future__ import annotations

from collections.abc import Iterator

from kinema_core.events import Pod
from kinema_core.model.checker.view import PlanView, Violation
from kinema_core.model.daemons import is_resident
from kinema_core.model.neighbors import Scope, enforced, required, selects, term_scope
from kinema_core.model.pod_locations import Group, PodLocations, Spot, fewest_of, group_of, skew_of


def check_rules(view: PlanView) -> Iterator[Violation]:
    """Required pod affinity and anti-affinity in both directions, and enforced topology spread.

    kube-scheduler asks every pod that arrives, and admits none because it was no better where it came from.
    """
    ruled = [pod for pod in view.cluster.pods if has_rules(pod) and not pod.terminating]
    if not ruled:
        return
    now, after = locations_now(view), locations_after(view)
    coming = PodLocations(view.cluster, after.nodes, {seat.key: seat.to for seat in view.arriving})
    for pod in ruled:
        if pod.key in after.where:
            yield from _affinity(pod, now, after, coming)
            yield from _anti_affinity(pod, now, after, coming)
            yield from _spread_at_arrival(pod, after, coming)
    yield from _spread(ruled, now, after)


def has_rules(pod: Pod) -> bool:
    """Return whether the pod has rules about other pods, preferred ones included."""
    rules = pod.rules
    return bool(rules.affinity or rules.anti_affinity or rules.spread)


def locations_now(view: PlanView) -> PodLocations:
    """Return where every pod is."""
    nodes = {node.name: Spot(node.labels, node.taints) for node in view.cluster.nodes}
    pods = view.cluster.pods_by_key
    where = {key: pod.node for key, pod in pods.items() if pod.node is not None and not pod.terminating}
    return PodLocations(view.cluster, nodes, where)


def locations_after(view: PlanView) -> PodLocations:
    """Return where every pod would be."""
    nodes = {name: Spot(site.labels, site.taints) for name, site in view.sites.items()}
    where = {
        key: pod.node
        for key, pod in view.cluster.pods_by_key.items()
        if pod.node in nodes and not pod.terminating and is_resident(view.cluster, pod)
    }
    return PodLocations(view.cluster, nodes, {**where, **{seat.key: seat.to for seat in view.seats}})


def _affinity(pod: Pod, now: PodLocations, after: PodLocations, coming: PodLocations) -> Iterator[Violation]:
    for term in required(pod.rules.affinity):
        scope = term_scope(after.cluster, pod, term)
        if not _alone(after, pod, scope, term.topology_key):
            continue
        stays = pod.key in now.where and pod.key not in coming.where
        if not stays or not _alone(now, pod, scope, term.topology_key):
            yield Violation("affinity-broken", pod.key, f"no pod it needs shares its {term.topology_key}")


def _alone(locations: PodLocations, pod: Pod, scope: Scope, topology_key: str) -> bool:
    """Return whether no pod in scope shares the pod's domain. The first of pods that need each other needs none."""
    counts = locations.counts(scope, topology_key)
    place = locations.domain_of(pod.key, topology_key)
    itself = int(place is not None and selects(scope, pod))
    if place is not None and counts[place] > itself:
        return False
    return not (itself and counts.total() == itself)


def _anti_affinity(pod: Pod, now: PodLocations, after: PodLocations, coming: PodLocations) -> Iterator[Violation]:
    """Pods that are together against the rule may stay; none may join them, not even for another one that leaves."""
    for term in required(pod.rules.anti_affinity):
        scope, key = term_scope(after.cluster, pod, term), term.topology_key
        place, others = after.domain_of(pod.key, key), _others(after, pod, scope, key)
        arrives = pod.key in coming.where
        newcomers = 0 if place is None else coming.counts(scope, key)[place] - int(arrives and selects(scope, pod))
        if others > _others(now, pod, scope, key) or (others and (arrives or newcomers)):
            yield Violation("anti-affinity-broken", pod.key, f"pods it keeps away share its {key}")


def _others(locations: PodLocations, pod: Pod, scope: Scope, topology_key: str) -> int:
    place = locations.domain_of(pod.key, topology_key)
    if place is None:
        return 0
    return locations.counts(scope, topology_key)[place] - int(selects(scope, pod))


def _spread_at_arrival(pod: Pod, after: PodLocations, coming: PodLocations) -> Iterator[Violation]:
    """Check that an arriving pod is admitted by its own spread alone, however uneven others are."""
    for spread in enforced(pod.rules.spread) if pod.key in coming.where else ():
        group, place = group_of(pod, spread), after.domain_of(pod.key, spread.topology_key)
        if place is None:
            yield Violation("spread-broken", pod.key, f"it arrives on a node without {spread.topology_key}")
        elif after.counts(group.scope, spread.topology_key)[place] - fewest_of(after, group) > group.max_skew:
            yield Violation("spread-broken", pod.key, f"it arrives where the skew is above {group.max_skew}")


def _spread(ruled: list[Pod], now: PodLocations, after: PodLocations) -> Iterator[Violation]:
    groups: dict[Group, str] = {}
    for pod in ruled:
        for spread in enforced(pod.rules.spread):
            groups.setdefault(group_of(pod, spread), pod.key)
    for group, key in groups.items():
        skew = skew_of(after, group)
        if skew > max(group.max_skew, skew_of(now, group)):
            detail = f"skew {skew} over {group.eligible.topology_key}, at most {group.max_skew} is wanted"
            yield Violation("spread-broken", key, detail)
