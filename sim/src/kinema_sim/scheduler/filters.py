"""Filters: which nodes can take a pod, by its own rules and by rules between pods. Each gives a reason, or None."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kinema_sim.engine.objects import Obj
from kinema_sim.engine.selectors import match_node_term, matches
from kinema_sim.scheduler.books import Books, NodeInfo, PodInfo, namespace_matches

Filter = Callable[[PodInfo, NodeInfo], str | None]

_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_BLOCKING = ("NoSchedule", "NoExecute")
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # the wildcard that the API means, nothing binds to it
NamespaceLabels = Mapping[str, Mapping[str, str]]


def tolerates(tolerations: Sequence[Obj], taint: Obj) -> bool:
    """Return whether one of the tolerations covers a taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    key = toleration.get("key") or ""
    if key and key != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def unschedulable(pod: PodInfo, node: NodeInfo) -> str | None:
    """A cordoned node takes only pods that tolerate the cordon."""
    if node.node["spec"].get("unschedulable") and not tolerates(pod.tolerations, _CORDON):
        return "node(s) were unschedulable"
    return None


def taints(pod: PodInfo, node: NodeInfo) -> str | None:
    """Every NoSchedule and NoExecute taint must be tolerated."""
    for taint in node.taints:
        if taint["effect"] in _BLOCKING and not tolerates(pod.tolerations, taint):
            return "node(s) had untolerated taint(s)"
    return None


def affinity(pod: PodInfo, node: NodeInfo) -> str | None:
    """The node selector and one required node affinity term must match."""
    labels = node.labels
    if pod.node_selector and any(labels.get(key) != value for key, value in pod.node_selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    if pod.required is not None and not any(match_node_term(term, node.node) for term in pod.required):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def ports(pod: PodInfo, node: NodeInfo) -> str | None:
    """No host port may be taken."""
    if not pod.ports:
        return None
    for address, protocol, port in sorted(pod.ports):
        for other in node.pods.values():
            for taken_address, taken_protocol, taken_port in other.ports:
                same_address = _ANY_ADDRESS in (address, taken_address) or address == taken_address
                if (protocol, port) == (taken_protocol, taken_port) and same_address:
                    return "node(s) didn't have free ports for the requested pod ports"
    return None


def fit(pod: PodInfo, node: NodeInfo) -> str | None:
    """Every resource asked for must be left, and a place among the node's pods."""
    if len(node.pods) + 1 > node.allocatable.get("pods", 0):
        return "Too many pods"
    for name, amount in pod.requests.items():
        if amount and node.used.get(name, 0) + amount > node.allocatable.get(name, 0):
            return f"Insufficient {name}"
    return None


FILTERS: tuple[Filter, ...] = (unschedulable, taints, affinity, ports, fit)
"""In the order of upstream; the first reason is reported."""


def first_reason(pod: PodInfo, node: NodeInfo) -> str | None:
    """Give the first filter's reason why a node cannot take a pod, or None."""
    for check in FILTERS:
        reason = check(pod, node)
        if reason is not None:
            return reason
    return None


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
    if rule.get("nodeAffinityPolicy", "Honor") == "Honor" and affinity(pod, node) is not None:
        return False
    return rule.get("nodeTaintsPolicy", "Ignore") == "Ignore" or taints(pod, node) is None


def count_matching(selector: Obj | None, namespace: str, node: NodeInfo) -> int:
    """Count a node's pods of a namespace that a selector selects, leaving out those on their way out."""
    return sum(
        1
        for other in node.pods.values()
        if other.namespace == namespace and not other.terminating and matches(selector, other.labels)
    )
