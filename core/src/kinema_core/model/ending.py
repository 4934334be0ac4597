"""Places from which pods that are ending keep others away, until they are gone.

kube-scheduler counts a terminating pod for required anti-affinity, its own and that of who arrives, as it may run for
any time yet. For topology spread it counts none. As company such a pod is not counted here either: it is about to go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kinema_core.events import Labels, Pod, PodTerm
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.neighbors import PodIndex, Scope, domain, required, selects, term_scope

Barred: TypeAlias = tuple[tuple[str, str], ...]
"""Labels with their values: a pod may not arrive on a node that has one of them."""


@dataclass(frozen=True)
class _Ending:
    """Bound pods that are terminating, and what they keep away."""

    pods: PodIndex
    keeps_away: Mapping[Scope, frozenset[tuple[str, str]]]
    nodes: Mapping[str, Labels]
    found: dict[tuple[str, Labels, tuple[PodTerm, ...]], Barred] = field(default_factory=dict)


def barred(cluster: Cluster, pod: Pod) -> Barred:
    """Return where the pod may not arrive for the sake of pods that are ending; sorted, for most pods empty."""
    ending = _ending(cluster)
    if ending is None:
        return ()
    alike = (pod.namespace, pod.labels, required(pod.rules.anti_affinity))
    if alike not in ending.found:
        ending.found[alike] = _barred(cluster, ending, pod)
    return ending.found[alike]


def ending_refuses(cluster: Cluster, pod: Pod, labels: Labels) -> str | None:
    """Return why a pod that is ending keeps this one off a node with these labels; None where none does."""
    key = next((key for key, value in barred(cluster, pod) if labels.get(key) == value), None)
    return None if key is None else f"required anti-affinity over {key} with a pod that is ending there"


@derived
def _ending(cluster: Cluster) -> _Ending | None:
    pods = [pod for pod in cluster.pods if pod.terminating and pod.node is not None]
    if not pods:
        return None
    nodes = {node.name: node.labels for node in cluster.nodes}
    keeps_away: dict[Scope, set[tuple[str, str]]] = {}
    for pod in pods:
        for term in required(pod.rules.anti_affinity):
            place = domain(nodes.get(pod.node or ""), term.topology_key)
            if place is not None:
                keeps_away.setdefault(term_scope(cluster, pod, term), set()).add((term.topology_key, place))
    return _Ending(PodIndex(pods), {scope: frozenset(places) for scope, places in keeps_away.items()}, nodes)


def _barred(cluster: Cluster, ending: _Ending, pod: Pod) -> Barred:
    places = {place for scope, labels in ending.keeps_away.items() if selects(scope, pod) for place in labels}
    for term in required(pod.rules.anti_affinity):
        for other in ending.pods.select(term_scope(cluster, pod, term)):
            place = domain(ending.nodes.get(other.node or ""), term.topology_key)
            if place is not None:
                places.add((term.topology_key, place))
    return tuple(sorted(places))
