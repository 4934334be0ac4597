"""Whether a rolling update gets through, wherever kube-scheduler puts its pods and whichever old ones go first.

The new pods of an update come one by one, and each must be allowed by the rules of its own kind: enforced spread and
required anti-affinity. Where a place that these rules point to is full, an update that began well waits for ever half
way, and so does the way back.

What is asked for is enough, and no more than a check of it: that the emptiest domain of a spread takes one pod more at
every moment, and that a place without one of its own is free for every pod that leaves none. It is counted for an
update that never has fewer Ready pods than replicas: when a pod waits, as many old ones have gone as new ones came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from kinema_core.events import Labels, PlacementRules, Pod, Spread, Taint
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import node_admits
from kinema_core.model.neighbours import Scope, domain, enforced, pod_index, required, selects, spread_scope, term_scope


class Place(Protocol):
    """A node that stays or comes: the update's pods may go there, as far as there is room and it takes pods."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def labels(self) -> Labels:
        """Its labels."""

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Its taints."""


def why_stuck(
    cluster: Cluster, copies: Sequence[Pod], places: Sequence[Place], room: Callable[[str], int]
) -> str | None:
    """Why an update of a workload might wait for ever; None when it gets through.

    Args:
        cluster: where everybody is now.
        copies: the workload's living pods, which are alike; at least one.
        places: every node that remains, also those that are closed: a spread counts them.
        room: how many new pods would fit on a node beside all that is there now; 0 where none may go.
    """
    rules = copies[0].rules
    if not (required(rules.anti_affinity) or enforced(rules.spread)):  # most workloads
        return None
    update = _Update(cluster, copies, places, room)
    return next((why for why in (*update.apart(), *update.spread()) if why is not None), None)


class _Update:
    def __init__(
        self, cluster: Cluster, copies: Sequence[Pod], places: Sequence[Place], room: Callable[[str], int]
    ) -> None:
        self._cluster = cluster
        self._copies = copies
        self._pod = copies[0]
        self._places = places
        self._room = room
        self._labels = {place.name: place.labels for place in places}
        self._anti = tuple(self._keeping_apart())

    def _keeping_apart(self) -> Iterator[tuple[Scope, str]]:
        """Anti-affinity that keeps pods of this kind from each other."""
        for term in required(self._pod.rules.anti_affinity):
            scope = term_scope(self._cluster, self._pod, term)
            if selects(scope, self._pod):
                yield scope, term.topology_key

    def _holders(self, scope: Scope, key: str) -> Counter[str]:
        """Pods in scope by domain, of those on nodes that remain."""
        found = (domain(self._labels.get(pod.node or ""), key) for pod in pod_index(self._cluster).select(scope))
        return Counter(place for place in found if place is not None)

    def apart(self) -> Iterator[str | None]:
        """One place free of their own, beside one for each old pod whose place nobody can have after it."""
        for scope, key in self._anti:
            taken = self._holders(scope, key)
            roomy = {
                where
                for place in self._places
                if (where := domain(place.labels, key)) is not None and self._room(place.name)
            }
            lost = sum(
                pod.node not in self._labels and domain(self._cluster_labels(pod), key) not in roomy
                for pod in self._copies
            )
            wanted = min(lost + 1, len(self._copies))
            free = len(roomy - taken.keys())
            if free < wanted:
                yield f"its pods keep apart by {key}: {free} of {wanted} places for new ones are free"

    def _cluster_labels(self, pod: Pod) -> Labels | None:
        node = self._cluster.node(pod.node or "")
        return None if node is None else node.labels

    def spread(self) -> Iterator[str | None]:
        """Room for one more in each domain that may be the emptiest one."""
        for spread in enforced(self._pod.rules.spread):
            if selects(spread_scope(self._pod, spread), self._pod):
                yield self._uneven(spread)

    def _uneven(self, spread: Spread) -> str | None:
        key, counted = spread.topology_key, self._counted(spread)
        here: Counter[str] = Counter()
        for pod in pod_index(self._cluster).select(spread_scope(self._pod, spread)):
            if (where := counted.get(pod.node or "")) is not None:
                here[where] += 1
        own = sum(pod.node in counted for pod in self._copies)
        most = here.total() - own + len(self._copies) - (own == 0)  # that are counted while one is still to come
        domains = sorted(set(counted.values()))
        if most < spread.max_skew and len(domains) >= spread.min_domains:
            return None  # even all in one place would be as good
        level = most // len(domains) if domains else 0
        if not domains or (len(domains) < spread.min_domains and level >= spread.max_skew):
            return f"its pods are spread by {key}: there are too few domains"
        for where in domains:
            wanted = level + 1 - here[where]
            if wanted > 0 and self._space(where, counted) < wanted:
                return f"its pods are spread by {key}: {where} has no room for {wanted} more"
        return None

    def _counted(self, spread: Spread) -> Mapping[str, str]:
        """The domain of every node that the constraint counts."""
        rules, honored = self._pod.rules, spread.node_affinity_policy == "Honor"
        honors_taints = spread.node_taints_policy == "Honor"
        wanted = PlacementRules(
            node_selector=rules.node_selector if honored else Labels(),
            node_terms=rules.node_terms if honored else None,
            tolerations=rules.tolerations if honors_taints else (),
        )
        return {
            place.name: where
            for place in self._places
            if (where := domain(place.labels, spread.topology_key)) is not None
            and not node_admits(
                wanted, name=place.name, labels=place.labels, taints=place.taints if honors_taints else ()
            )
        }

    def _space(self, where: str, counted: Mapping[str, str]) -> int:
        """How many new pods a domain takes; one on a node, and none beside their own, where they keep apart."""
        names = [name for name, each in counted.items() if each == where]
        if not self._anti:
            return sum(self._room(name) for name in names)
        taken = [(key, self._holders(scope, key)) for scope, key in self._anti]
        alone = (name for name in names if not any(held[domain(self._labels[name], key) or ""] for key, held in taken))
        return sum(min(1, self._room(name)) for name in alone)
