"""Rules between pods: pod affinity and anti-affinity, and topology spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kinema_sim.engine.objects import Obj
from kinema_sim.engine.selectors import matches
from kinema_sim.scheduler.books import Books, NodeInfo
from kinema_sim.scheduler.filters import affinity as node_affinity
from kinema_sim.scheduler.filters import taints as node_taints
from kinema_sim.scheduler.podinfo import PodInfo, namespace_matches

NamespaceLabels = Mapping[str, Mapping[str, str]]


def term_matches(term: Obj, *, of: PodInfo, pod: PodInfo, namespaces: NamespaceLabels) -> bool:
    """Return whether a pod affinity term that stands in the pod `of` selects a pod."""
    if not namespace_matches(term, of.namespace, pod.namespace, labels=namespaces):
        return False
    return matches(_with_label_keys(term, of), pod.labels)


def _with_label_keys(rule: Obj, pod: PodInfo) -> Obj | None:
    """Add what matchLabelKeys means: the pod's own values of those labels."""
    selector: Obj | None = rule.get("labelSelector")
    keys = rule.get("matchLabelKeys") or ()
    if selector is None or not keys:
        return selector
    own = {key: pod.labels[key] for key in keys if key in pod.labels}
    return {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **own}}


@dataclass
class SpreadRule:
    """A hard topology spread constraint with the counts of the moment.

    Attributes:
        key: topology label.
        max_skew: allowed surplus over the emptiest domain.
        self_match: 1 when the pod itself counts, else 0.
        counts: pods by domain, over the nodes that the pod may use.
        least: the emptiest domain's count (0 with fewer than minDomains).
    """

    key: str
    max_skew: int
    self_match: int
    counts: dict[str, int]
    least: int


@dataclass
class Between:
    """Everything about other pods that one scheduling decision needs, computed once.

    Attributes:
        need: for each required affinity term, topology key and the domains where a match is.
        first: whether the affinity terms may be waived because the pod is the first of its kind.
        avoid: (topology key, domain) pairs where the pod must not go.
        spread: hard spread constraints.
    """

    need: list[tuple[str, set[str]]] = field(default_factory=list)
    first: bool = False
    avoid: set[tuple[str, str]] = field(default_factory=set)
    spread: list[SpreadRule] = field(default_factory=list)

    def refuses(self, node: NodeInfo) -> str | None:
        """Give the reason why these rules keep the pod off a node, or None."""
        labels = node.labels
        for rule in self.spread:
            domain = labels.get(rule.key)
            if domain is None or rule.counts.get(domain, 0) + rule.self_match - rule.least > rule.max_skew:
                return "node(s) didn't match pod topology spread constraints"
        for key, domains in self.need:
            domain = labels.get(key)
            if domain is None or (domain not in domains and not self.first):
                return "node(s) didn't match pod affinity rules"
        if self.avoid and any((key, value) in self.avoid for key, value in labels.items()):
            return "node(s) didn't match pod anti-affinity rules"
        return None


def look_around(pod: PodInfo, books: Books, nodes: Sequence[NodeInfo]) -> Between:
    """Compute what other pods mean for a pod."""
    result = Between()
    has_rules = pod.affinity or pod.anti_affinity or books.anti
    namespaces = books.namespaces() if has_rules else {}
    for term in pod.affinity:
        result.need.append((term["topologyKey"], _domains(term, pod, nodes, namespaces=namespaces)))
    if result.need and not any(domains for _, domains in result.need):
        result.first = all(term_matches(term, of=pod, pod=pod, namespaces=namespaces) for term in pod.affinity)
    for term in pod.anti_affinity:
        key = term["topologyKey"]
        result.avoid.update((key, domain) for domain in _domains(term, pod, nodes, namespaces=namespaces))
    for other, where in books.anti.values():
        node = books.node(where)
        for term in other.anti_affinity if node is not None else ():
            domain = node.labels.get(term["topologyKey"]) if node is not None else None
            if domain is not None and term_matches(term, of=other, pod=pod, namespaces=namespaces):
                result.avoid.add((term["topologyKey"], domain))
    result.spread = [
        _spread_rule(rule, pod, nodes)
        for rule in pod.spread
        if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]
    return result


def _domains(term: Obj, pod: PodInfo, nodes: Sequence[NodeInfo], *, namespaces: NamespaceLabels) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        domain = node.labels.get(term["topologyKey"])
        if domain is None or domain in found:
            continue
        if any(term_matches(term, of=pod, pod=other, namespaces=namespaces) for other in node.pods.values()):
            found.add(domain)
    return found


def _spread_rule(rule: Obj, pod: PodInfo, nodes: Sequence[NodeInfo]) -> SpreadRule:
    selector = _with_label_keys(rule, pod)
    counts: dict[str, int] = {}
    for node in nodes:
        domain = node.labels.get(rule["topologyKey"])
        if domain is None or not _counts_node(rule, pod, node):
            continue
        counts[domain] = counts.get(domain, 0) + count_matching(selector, pod.namespace, node)
    least = min(counts.values(), default=0) if len(counts) >= rule.get("minDomains", 1) else 0
    self_match = 1 if matches(selector, pod.labels) else 0
    return SpreadRule(rule["topologyKey"], rule["maxSkew"], self_match, counts, least)


def _counts_node(rule: Obj, pod: PodInfo, node: NodeInfo) -> bool:
    if rule.get("nodeAffinityPolicy", "Honor") == "Honor" and node_affinity(pod, node) is not None:
        return False
    return rule.get("nodeTaintsPolicy", "Ignore") == "Ignore" or node_taints(pod, node) is None


def count_matching(selector: Obj | None, namespace: str, node: NodeInfo) -> int:
    """Count a node's pods of a namespace that a selector selects, leaving out those on their way out."""
    return sum(
        1
        for other in node.pods.values()
        if other.namespace == namespace and not other.terminating and matches(selector, other.labels)
    )
