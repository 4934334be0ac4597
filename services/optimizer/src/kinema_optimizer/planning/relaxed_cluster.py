"""A cluster without one of its rules: the question is asked again on it to price the rule.

Each function takes a rule away and leaves everything else: what two rules hold still stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec.structs import replace

from kinema_core.events import (
    ClusterObject,
    FrozenMap,
    Labels,
    Node,
    Owner,
    PlacementRules,
    Pod,
    Quarantined,
    Toleration,
    Unknown,
    Workload,
)
from kinema_core.model.budgets import budgets_by_pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import listed
from kinema_core.model.vocabulary import STRATEGY
from kinema_optimizer.request.headroom import NAMESPACE

T = TypeVar("T", Node, Pod, Workload)

RELEASED: Final = "kinema.io~released"
"""Owner of pods that are taken to be replaceable; no set can have this name."""
_ANYWHERE: Final = Toleration(operator="Exists")
_FREE: Final = PlacementRules()


def own_pods(cluster: Cluster) -> Iterator[Pod]:
    """Return the listed pods without the placeholders of an optimizer's question."""
    return (pod for pod in listed(cluster) if pod.namespace != NAMESPACE)


def changed(cluster: Cluster, kind: str, objects: Mapping[str, ClusterObject | None]) -> Cluster:
    """Return the cluster with these objects of a kind by key; None takes one away."""
    mine = {**cluster.objects.get(kind, {}), **objects}
    kept: Mapping[str, ClusterObject] = {key: item for key, item in mine.items() if item is not None}
    return Cluster(version=cluster.version, objects=MappingProxyType({**cluster.objects, kind: kept}))


def without_annotation(cluster: Cluster, key: str) -> Cluster:
    """Pods and workloads without the annotation, and namespaces without it as a label."""
    pods = {pod.key: _bared(pod, key) for pod in listed(cluster) if key in pod.annotations}
    sets = {one.key: _bared(one, key) for one in cluster.workloads if key in one.annotations}
    spaces = {one.name: replace(one, labels=_but(one.labels, key)) for one in cluster.namespaces if key in one.labels}
    return changed(changed(changed(cluster, "Pod", pods), "Workload", sets), "Namespace", spaces)


def without_node_annotations(cluster: Cluster, keys: Iterable[str], names: Collection[str]) -> Cluster:
    """These nodes without these annotations."""
    nodes: dict[str, ClusterObject | None] = {}
    for node in cluster.nodes:
        if node.name in names:
            nodes[node.name] = replace(node, annotations=_but(node.annotations, *keys))
    return changed(cluster, "Node", nodes)


def _bared(item: T, key: str) -> T:
    return replace(item, annotations=_but(item.annotations, key))


def _but(labels: Labels, *keys: str) -> Labels:
    return FrozenMap({name: text for name, text in labels.items() if name not in keys})


def without_budgets(cluster: Cluster, keys: Collection[str]) -> Cluster:
    """Return the cluster without these disruption budgets."""
    return changed(cluster, "DisruptionBudget", dict.fromkeys(keys))


def without_quotas(cluster: Cluster, keys: Collection[str]) -> Cluster:
    """Return the cluster without these resource quotas."""
    return changed(cluster, "ResourceQuota", dict.fromkeys(keys))


def without_quarantine(cluster: Cluster, _: Collection[str]) -> Cluster:
    """Return the cluster without the objects that could not be read."""
    unread = {Quarantined.__name__, Unknown.__name__}
    kept = {kind: objects for kind, objects in cluster.objects.items() if kind not in unread}
    return Cluster(version=cluster.version, objects=MappingProxyType(kept))


def replaceable(cluster: Cluster, keys: Iterable[str]) -> Cluster:
    """These pods as if a set that tolerates evictions stood behind them; budgets still hold."""
    return _with_pods(cluster, keys, _owned)


def _owned(pod: Pod) -> Pod:
    owner = Owner(kind="ReplicaSet", name=RELEASED, uid=f"{RELEASED}/{pod.key}")
    return replace(pod, owner=owner, annotations=FrozenMap({**pod.annotations, STRATEGY: "evict"}))


def without_host_paths(cluster: Cluster, keys: Iterable[str]) -> Cluster:
    """These pods as if they used no directory of their node."""
    return _with_pods(cluster, keys, lambda pod: replace(pod, host_path=False))


def with_rules(cluster: Cluster, without: Callable[[PlacementRules], PlacementRules]) -> Cluster:
    """Every listed pod of the cluster's own with its placement rules as `without` leaves them."""
    memo: dict[int, PlacementRules] = {}
    pods: dict[str, ClusterObject | None] = {}
    for pod in own_pods(cluster):
        rules = memo.get(id(pod.rules))
        if rules is None:
            rules = memo[id(pod.rules)] = without(pod.rules)
        if rules is not pod.rules:
            pods[pod.key] = replace(pod, rules=rules)
    return changed(changed(cluster, "Pod", pods), "Workload", _templates(cluster, without))


def _templates(
    cluster: Cluster, without: Callable[[PlacementRules], PlacementRules]
) -> dict[str, ClusterObject | None]:
    """Their templates likewise: a pod without a rule that its template still states would be held for that."""
    return {
        one.key: replace(one, template_rules=without(one.template_rules))
        for one in cluster.workloads
        if one.type != "DaemonSet" and one.template_rules != _FREE
    }


def without_templates(cluster: Cluster, _: Collection[str]) -> Cluster:
    """As if what replaces a pod were as the pod is, whatever its template says."""
    free: dict[str, ClusterObject | None] = {
        one.key: replace(one, template_containers=(), template_rules=_FREE)
        for one in cluster.workloads
        if one.type != "DaemonSet"
    }
    return changed(cluster, "Workload", free)


def _with_pods(cluster: Cluster, keys: Iterable[str], change: Callable[[Pod], Pod]) -> Cluster:
    found = {key: pod for key in keys if (pod := cluster.pod(key)) is not None}
    return changed(cluster, "Pod", {key: change(pod) for key, pod in found.items()})


def released(cluster: Cluster, keys: Collection[str]) -> Cluster:
    """Return the cluster with these pods free to move: no rule about whether they may holds for them any more.

    Their rules about where they may be stay, as far as they are modeled.
    """
    over = {budget.key for key in keys for budget in budgets_by_pod(cluster).get(key, ())}
    return _with_pods(without_budgets(cluster, over), sorted(keys), _released)


def _released(pod: Pod) -> Pod:
    rules = replace(pod.rules, unmodeled=(), scheduler=_FREE.scheduler, gated=False)
    owner = Owner(kind="ReplicaSet", name=RELEASED, uid=f"{RELEASED}/{pod.key}")
    return replace(pod, owner=owner, annotations=FrozenMap({STRATEGY: "evict"}), host_path=False, rules=rules)


# --- parts of the placement rules; a pod without the part keeps the very same rules


def no_anti_affinity(rules: PlacementRules) -> PlacementRules:
    """Without anti-affinity towards other pods."""
    return replace(rules, anti_affinity=()) if rules.anti_affinity else rules


def no_affinity(rules: PlacementRules) -> PlacementRules:
    """Without affinity towards other pods."""
    return replace(rules, affinity=()) if rules.affinity else rules


def no_spread(rules: PlacementRules) -> PlacementRules:
    """Without topology spread constraints."""
    return replace(rules, spread=()) if rules.spread else rules


def no_volumes(rules: PlacementRules) -> PlacementRules:
    """Without volumes."""
    return replace(rules, claims=()) if rules.claims else rules


def no_host_ports(rules: PlacementRules) -> PlacementRules:
    """Without host ports."""
    return replace(rules, host_ports=()) if rules.host_ports else rules


def no_node_rules(rules: PlacementRules) -> PlacementRules:
    """Without node selector and required node affinity."""
    if not rules.node_selector and rules.node_terms is None:
        return rules
    return replace(rules, node_selector=_FREE.node_selector, node_terms=None)


def no_taints(rules: PlacementRules) -> PlacementRules:
    """Tolerating every taint."""
    return rules if _ANYWHERE in rules.tolerations else replace(rules, tolerations=(*rules.tolerations, _ANYWHERE))


def no_unmodeled(rules: PlacementRules) -> PlacementRules:
    """Without what is not modeled: other schedulers, and fields that this version does not know."""
    if not rules.unmodeled and rules.scheduler == _FREE.scheduler:
        return rules
    return replace(rules, unmodeled=(), scheduler=_FREE.scheduler)
