"""Strategy of a pod's move: by its controller, unless an annotation on pod, set or Deployment sets another."""

from __future__ import annotations

from typing import Final, NamedTuple

from kinema_core.events import Labels, Pod, Strategy, Workload
from kinema_core.model.budgets import blocking_budgets, budgets_by_pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.resource_quotas import no_copy, no_return, tight_namespaces
from kinema_core.model.vocabulary import SPOT, SPOT_VALUES, STRATEGY

CHOICES: Final = ("surge", "rolling", "evict", "none")
"""What the strategy annotation may say."""

KNOWN_CONTROLLERS: Final = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")
_SETS: Final = ("ReplicaSet", "ReplicationController")


class Chain(NamedTuple):
    """The controllers above a pod, the nearest first."""

    keys: tuple[str, ...]
    """Workload keys of the owner and of the one behind it, whether or not the state has them."""
    workloads: tuple[Workload, ...]
    """Those that the state has."""
    top_kind: str
    """The kind that decides: `Deployment` for a Deployment's replica set; empty for a bare pod."""
    annotations: tuple[Labels, ...]
    """Those of the workloads that have any."""


_BARE: Final = Chain((), (), "", ())


def chain_of(cluster: Cluster, pod: Pod) -> Chain:
    """Return the controllers above a pod; worked out once for each owner."""
    owner = pod.owner
    if owner is None:
        return _BARE
    chains = _chains(cluster)
    key = (owner.kind, pod.namespace, owner.name)
    if key not in chains:
        chains[key] = _chain(cluster, owner.key_in(pod.namespace), owner.kind, pod)
    return chains[key]


@derived
def _chains(_: Cluster) -> dict[tuple[str, str, str], Chain]:
    return {}


def _chain(cluster: Cluster, key: str, kind: str, pod: Pod) -> Chain:
    owner = cluster.workload(key)
    if owner is None:
        named = cluster.deployment_named_by(pod)
        return _chained((key,), (), kind) if named is None else _chained((key, named.key), (named,), named.type)
    behind = owner.owner
    if behind is None:
        return _chained((key,), (owner,), kind)
    above = behind.key_in(owner.namespace)
    top = cluster.workload(above)
    decides = "Deployment" if behind.kind == "Deployment" else kind
    return _chained((key, above), (owner,) if top is None else (owner, top), decides)


def _chained(keys: tuple[str, ...], workloads: tuple[Workload, ...], top_kind: str) -> Chain:
    return Chain(keys, workloads, top_kind, tuple(one.annotations for one in workloads if one.annotations))


def annotations_of(cluster: Cluster, pod: Pod) -> tuple[Labels, ...]:
    """Annotations of pod, set and Deployment: the nearest first; empty ones are left out."""
    above = chain_of(cluster, pod).annotations
    return (pod.annotations, *above) if pod.annotations else above


def chosen_strategy(cluster: Cluster, pod: Pod) -> str | None:
    """Return what the strategy annotation nearest to the pod says, None without one."""
    for given in annotations_of(cluster, pod):
        if STRATEGY in given:
            return given[STRATEGY].strip()
    return None


def strategy_of(cluster: Cluster, pod: Pod) -> Strategy:
    """Return how the pod moves, if it may.

    A Deployment surges by default. A set without one can surge by annotation, but has no rollout. A stateful set knows
    neither a surge nor a choice of pods to take away: it is evicted from. So is a pod with volumes, which a second pod
    on another node may have to wait for. Where a quota admits no second pod, one is evicted that a budget lets be away.
    """
    if pod.rules.claims:
        return "evict"
    kind, chosen = chain_of(cluster, pod).top_kind, chosen_strategy(cluster, pod)
    if kind == "Deployment":
        if chosen in ("evict", "rolling"):
            return "evict" if chosen == "evict" else "rolling"
        return "evict" if chosen is None and _makes_way(cluster, pod) else "surge"
    return "surge" if kind in _SETS and chosen in ("surge", "rolling") else "evict"


def _makes_way(cluster: Cluster, pod: Pod) -> bool:
    """Return whether a Deployment's pod has to leave before its copy comes, and may: a budget lets it be away."""
    if pod.namespace not in tight_namespaces(cluster) or no_copy(cluster, pod) is None:
        return False
    budgets, top = budgets_by_pod(cluster).get(pod.key, ()), chain_of(cluster, pod).workloads[-1:]
    allowed = len(budgets) == 1 and budgets[0].key not in blocking_budgets(cluster)
    return allowed and any(one.replicas > 1 for one in top) and no_return(cluster, pod) is None


def no_second_copy(cluster: Cluster, pod: Pod) -> Workload | None:
    """Return the pod's Deployment, if it lets no second pod run beside a single one, not even in an update.

    The annotation `surge` allows a second one.
    """
    if chosen_strategy(cluster, pod) == "surge":
        return None
    above = (one for one in chain_of(cluster, pod).workloads if one.type == "Deployment")
    return next((one for one in above if one.replicas == 1 and one.never_surges), None)


def evades_budgets(cluster: Cluster, pod: Pod) -> bool:
    """Return whether the pod was chosen to move in a way that disruption budgets do not limit."""
    return chosen_strategy(cluster, pod) in ("surge", "rolling") and strategy_of(cluster, pod) != "evict"


def asks_for_spot(cluster: Cluster, pod: Pod, taint_keys: frozenset[str] = frozenset()) -> bool:
    """Return whether the pod asks for spot capacity: by annotation, node selector, required affinity or toleration.

    `taint_keys` are the keys of the offer's own taints. A toleration of everything asks for nothing.
    """
    if any(given.get(SPOT, "").strip().lower() == "allow" for given in annotations_of(cluster, pod)):
        return True
    keys = taint_keys | SPOT_VALUES.keys()
    rules = pod.rules
    return (
        not keys.isdisjoint(rules.node_selector)
        or any(req.key in keys for term in rules.node_terms or () for req in term.expressions)
        or any(item.key in keys for item in rules.tolerations)
    )
