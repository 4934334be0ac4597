"""Scores: among the nodes that can take a pod, which is best. Plugins and weights are upstream's defaults."""

import math
from collections.abc import Callable, Sequence

from kinema_sim.engine.objects import Obj
from kinema_sim.engine.selectors import match_node_term
from kinema_sim.scheduler.books import Books, NodeInfo, PodInfo
from kinema_sim.scheduler.filters import count_matching, term_matches, tolerates

MAX = 100
"""Highest score of a plugin."""

Scorer = Callable[[PodInfo, Sequence[NodeInfo], Books], list[int]]
"""Gives one score from 0 to MAX per node, in the order of the nodes."""

_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_SPREAD_OWNERS = ("ReplicaSet", "StatefulSet", "ReplicationController")
_HARD_AFFINITY_WEIGHT = 1


def least_allocated(pod: PodInfo, nodes: Sequence[NodeInfo], _: Books) -> list[int]:
    """Prefer nodes with much room left, CPU and memory weighing the same."""
    scores: list[int] = []
    for node in nodes:
        total = 0
        for index, name in enumerate(("cpu", "memory")):
            have = node.allocatable.get(name, 0)
            left = have - node.weighed[index] - pod.weighed[index]
            total += left * MAX // have if have and left > 0 else 0
        scores.append(total // 2)
    return scores


def most_allocated(pod: PodInfo, nodes: Sequence[NodeInfo], _: Books) -> list[int]:
    """Prefer nodes with little room left: how a scheduler packs."""
    return [MAX - score for score in least_allocated(pod, nodes, _)]


def balanced(pod: PodInfo, nodes: Sequence[NodeInfo], _: Books) -> list[int]:
    """Prefer nodes where CPU and memory would be filled alike: 1 less the standard deviation of the two shares."""
    scores: list[int] = []
    for node in nodes:
        shares: list[int] = []
        for name in ("cpu", "memory"):
            have = node.allocatable.get(name, 0)
            want = node.used.get(name, 0) + pod.requests.get(name, 0)
            shares.append(min(want * 1_000_000 // have, 1_000_000) if have else 0)
        deviation = abs(shares[0] - shares[1]) // 2
        scores.append((1_000_000 - deviation) * MAX // 1_000_000)
    return scores


def node_preference(pod: PodInfo, nodes: Sequence[NodeInfo], _: Books) -> list[int]:
    """Add the weights of the preferred node affinity terms that match, the best node getting MAX."""
    if not pod.preferred:
        return [0] * len(nodes)
    raw = [
        sum(int(entry["weight"]) for entry in pod.preferred if match_node_term(entry["preference"], node.node))
        for node in nodes
    ]
    best = max(raw, default=0)
    return [score * MAX // best for score in raw] if best else raw


def soft_taints(pod: PodInfo, nodes: Sequence[NodeInfo], _: Books) -> list[int]:
    """Prefer nodes with few PreferNoSchedule taints that the pod does not tolerate."""
    raw = [
        sum(
            1
            for taint in node.taints
            if taint["effect"] == "PreferNoSchedule" and not tolerates(pod.tolerations, taint)
        )
        if node.taints
        else 0
        for node in nodes
    ]
    worst = max(raw, default=0)
    return [MAX - score * MAX // worst for score in raw] if worst else [MAX] * len(raw)


def spread(pod: PodInfo, nodes: Sequence[NodeInfo], books: Books) -> list[int]:
    """Prefer domains with few pods of the same set; without own soft constraints, upstream's defaults hold."""
    soft = [rule for rule in pod.spread if rule.get("whenUnsatisfiable") == "ScheduleAnyway"]
    if pod.spread:
        raw = _own_spread(pod, nodes, books, rules=soft)
    elif pod.owner_kind in _SPREAD_OWNERS:
        raw = _default_spread(pod, nodes, books)
    else:
        return [0] * len(nodes)
    counted = [score for score in raw if score is not None]
    high, low = max(counted, default=0), min(counted, default=0)
    if not counted or (pod.spread and not soft):
        return [0] * len(nodes)
    return [0 if score is None else MAX if not high else MAX * (high + low - score) // high for score in raw]


def _default_spread(pod: PodInfo, nodes: Sequence[NodeInfo], books: Books) -> list[int | None]:
    """System defaults: skew 3 over hosts, skew 5 over zones, counted over the pods of the same controller."""
    by_host: dict[str, int] = {}
    by_zone: dict[str, int] = {}
    for other, where in books.of_owner(pod.owner):
        node = books.node(where)
        if node is None or other.terminating:
            continue
        by_host[where] = by_host.get(where, 0) + 1
        zone = node.labels.get(_ZONE, "")
        by_zone[zone] = by_zone.get(zone, 0) + 1
    zones = {node.labels[_ZONE] for node in nodes if _ZONE in node.labels}
    host_weight, zone_weight = math.log(len(nodes) + 2), math.log(len(zones) + 2)
    scores: list[int | None] = []
    for node in nodes:
        score = by_host.get(node.name, 0) * host_weight + 2 if _HOST in node.labels else 0.0
        if _ZONE in node.labels:
            score += by_zone.get(node.labels[_ZONE], 0) * zone_weight + 4
        scores.append(_rounded(score))
    return scores


def _own_spread(pod: PodInfo, nodes: Sequence[NodeInfo], books: Books, *, rules: Sequence[Obj]) -> list[int | None]:
    keys = [rule["topologyKey"] for rule in rules]
    usable = [node for node in nodes if all(key in node.labels for key in keys)]
    parts: list[tuple[str, int, float, dict[str, int]]] = []
    for rule in rules:
        key = rule["topologyKey"]
        domains = {node.labels[key] for node in usable}
        counts = dict.fromkeys(sorted(domains), 0)
        for node in books.nodes():
            domain = node.labels.get(key)
            if domain in counts:
                counts[domain] += count_matching(rule.get("labelSelector"), pod.namespace, node)
        parts.append((key, rule["maxSkew"], math.log(len(domains) + 2), counts))
    scores: list[int | None] = []
    for node in nodes:
        if not all(key in node.labels for key in keys):
            scores.append(None)
            continue
        scores.append(
            _rounded(sum(counts[node.labels[key]] * weight + skew - 1 for key, skew, weight, counts in parts))
        )
    return scores


def _rounded(score: float) -> int:
    return math.floor(score + 0.5)


def neighbors(pod: PodInfo, nodes: Sequence[NodeInfo], books: Books) -> list[int]:
    """Add up preferred pod affinity: the pod's own wishes, and those of the pods that run already."""
    weights: dict[tuple[str, str], int] = {}
    if pod.liked:
        _add_own_wishes(pod, books, weights)
    if books.liking:
        _add_wishes_of_others(pod, books, weights)
    if not weights:
        return [0] * len(nodes)
    raw = [sum(weights.get(label, 0) for label in node.labels.items()) for node in nodes]
    low, high = min(raw), max(raw)
    return [(score - low) * MAX // (high - low) if high > low else 0 for score in raw]


def _add_own_wishes(pod: PodInfo, books: Books, weights: dict[tuple[str, str], int]) -> None:
    namespaces = books.namespaces()
    for weight, term in pod.liked:
        for node in books.nodes():
            domain = node.labels.get(term["topologyKey"])
            if domain is None:
                continue
            found = sum(term_matches(term, of=pod, pod=other, namespaces=namespaces) for other in node.pods.values())
            if found:
                place = term["topologyKey"], domain
                weights[place] = weights.get(place, 0) + weight * found


def _add_wishes_of_others(pod: PodInfo, books: Books, weights: dict[tuple[str, str], int]) -> None:
    namespaces = books.namespaces()
    for other, where in books.liking.values():
        node = books.node(where)
        if node is None:
            continue
        hard = tuple((_HARD_AFFINITY_WEIGHT, term) for term in other.affinity)
        for weight, term in (*other.liked, *hard):
            domain = node.labels.get(term["topologyKey"])
            if domain is not None and term_matches(term, of=other, pod=pod, namespaces=namespaces):
                place = term["topologyKey"], domain
                weights[place] = weights.get(place, 0) + weight


SCORERS: tuple[tuple[Scorer, int], ...] = (
    (soft_taints, 3),
    (node_preference, 2),
    (spread, 2),
    (neighbors, 2),
    (least_allocated, 1),
    (balanced, 1),
)
"""Plugins and their weights."""


def with_fit(scorer: Scorer, weight: int = 1) -> tuple[tuple[Scorer, int], ...]:
    """Return the plugins with another one in place of those that spread pods by what nodes have left."""
    kept = tuple(entry for entry in SCORERS if entry[0] not in (least_allocated, balanced))
    return (*kept, (scorer, weight))
