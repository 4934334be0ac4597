"""What the reduction of rules keeps in place: pods whose rule a move could break, and nodes that rules lean on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kinema_core.events import Held, Pod
from kinema_core.model.daemons import is_resident
from kinema_core.model.neighbours import selects
from kinema_optimizer.logic.between import Apart, Between, Census, Even, Near


@dataclass(frozen=True)
class Kept:
    """Pods, by key, that stay though they might move, and nodes kept for other reasons, with the reason."""

    pods: dict[str, Held]
    nodes: dict[str, str]


def kept_in_place(
    between: Between, census: Census, single: Callable[[str], bool], rolls: Callable[[Pod], bool]
) -> Kept:
    """Whom to keep.

    Pods that others count on leave a node only when it is deleted, so that rules whose domains are nodes (`single`
    tells) bind newcomers only, but for pods that a rolling update may replace wherever they are (`rolls`).
    """
    kept = Kept({}, {})
    for near in between.near:
        _keep_unmet(kept, near, census)
        if single(near.counted.key):
            _keep_company(kept, near, census, rolls)
        else:
            _keep_leaned_on(kept, near, census)
    for apart in between.apart:
        if not single(apart.counted.key):
            _keep_met(kept, apart, census)
    for even in between.even:
        if single(even.counted.key):
            _keep_crowded(kept, even, census, rolls)
        else:
            _keep_uneven(kept, even, census)
            _keep_counted_residents(kept, even, census)
        if even.min_domains > 1 and census.most(even) > max(even.max_skew, census.skew(even)):
            _keep_domains(kept, even, census)
    return kept


def _keep_unmet(kept: Kept, near: Near, census: Census) -> None:
    """Pods that miss the company that they ask for: no other place is known to be better."""
    obeying = {pod.key for pod in _obeying(near, census)}
    for pod in near.carriers:
        if census.known(pod) and pod.key not in obeying:
            _keep(kept, pod, "affinity-unmet", "nobody that its required affinity asks for is near it")


def _keep_met(kept: Kept, apart: Apart, census: Census) -> None:
    """Pods that share a domain with one that keeps them away: they would not be let in where they are pinned to."""
    key = apart.counted.key
    clashes = {census.domain(pod, key) for pod in apart.carriers if census.company(pod, apart.counted)}
    for pod in (*apart.carriers, *census.pods(apart.counted.scope)) if clashes else ():
        place = census.domain(pod, key)
        if place is not None and place in clashes:
            _keep(kept, pod, "anti-affinity-met", f"pods that a required anti-affinity keeps apart share its {key}")


def _keep_uneven(kept: Kept, even: Even, census: Census) -> None:
    """Pods that a spread would not let into their own domain again, or that are in none."""
    counts, fewest = census.counts(even.counted), census.fewest(even)
    for pod in even.carriers:
        place = census.domain(pod, even.counted.key)
        if census.known(pod) and (place is None or counts[place] - fewest > even.max_skew):
            _keep(kept, pod, "spread-uneven", "its topology spread would not let it into its domain again")


def _obeying(near: Near, census: Census) -> Iterator[Pod]:
    """Bound pods that have the term and obey it now."""
    for pod in near.carriers:
        if census.known(pod) and (census.company(pod, near.counted) or census.first(pod, near.counted)):
            yield pod


def _keep_company(kept: Kept, near: Near, census: Census, rolls: Callable[[Pod], bool]) -> None:
    """Pods that others must share a node with, where a rolling update could take them away."""
    homes: dict[str | None, str] = {}
    waits = any(pod.node is None for pod in census.pods(near.counted.scope))
    for pod in _obeying(near, census):
        homes[pod.node] = pod.key
        if waits and census.first(pod, near.counted):
            _keep(kept, pod, "affinity-node", "pending pods of its kind have to share its node")
    for other in census.pods(near.counted.scope) if homes else ():
        if other.node in homes and rolls(other):
            _keep(kept, other, "affinity-peer", f"the required affinity of pod {homes[other.node]} asks for it there")


def _keep_leaned_on(kept: Kept, near: Near, census: Census) -> None:
    """A node whose daemon sets' pods are all the company that some pod has in its domain."""
    residents: dict[str | None, Pod] = {}
    others: Counter[str | None] = Counter()
    for other in census.pods(near.counted.scope):
        place = census.domain(other, near.counted.key)
        if is_resident(census.cluster, other):
            residents.setdefault(place, other)
        else:
            others[place] += 1
    for pod in _obeying(near, census) if residents else ():
        place = census.domain(pod, near.counted.key)
        itself = selects(near.counted.scope, pod) and not is_resident(census.cluster, pod)
        if place in residents and others[place] == int(itself):
            kept.nodes.setdefault(residents[place].node or "", f"the required affinity of pod {pod.key} leans on it")


def _keep_crowded(kept: Kept, even: Even, census: Census, rolls: Callable[[Pod], bool]) -> None:
    """Pods that a spread over nodes counts where it is even only because every node has some of them."""
    if census.most(even) > even.max_skew and census.fewest(even):
        for pod in census.pods(even.counted.scope):
            if census.known(pod) and rolls(pod):
                _keep(kept, pod, "spread-tight", "its topology spread is even only as long as no node loses a pod")


def _keep_counted_residents(kept: Kept, even: Even, census: Census) -> None:
    """Nodes whose daemon sets' pods a spread over larger domains counts: they would go with the node."""
    for pod in census.pods(even.counted.scope):
        if census.known(pod) and is_resident(census.cluster, pod):
            kept.nodes.setdefault(
                pod.node or "", f"the topology spread of pod {even.carriers[0].key} counts pod {pod.key}"
            )


def _keep_domains(kept: Kept, even: Even, census: Census) -> None:
    """A node in every domain, where one domain fewer would be too few."""
    seen: set[str] = set()
    for node in census.nodes:
        if even.admits(node) and node.labels[even.counted.key] not in seen:
            seen.add(node.labels[even.counted.key])
            kept.nodes.setdefault(node.name, f"the topology spread of pod {even.carriers[0].key} needs its domain")


def _keep(kept: Kept, pod: Pod, code: str, reason: str) -> None:
    kept.pods.setdefault(pod.key, Held(pod=pod.key, code=code, reason=reason))
