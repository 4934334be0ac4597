"""Check that a rolling update gets through, wherever kube-scheduler puts its pods and whichever old ones go first.

The new pods of an update come one by one, and each must be allowed by the rules of its own kind: enforced spread and
required anti-affinity. Where a place that these rules point to is full, an update that began well waits for ever half
way, and so does the way back.

What is asked for is enough: room for one more than those who leave none to others; in a spread, that the emptiest
domains are never all full; for pods that keep apart, a free place beside one for each that leaves none. It is counted
for an update that never has fewer Ready pods than replicas: when a pod waits, as many old ones have gone as new came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from kinema_core.events import Labels, Pod, Spread, Taint
from kinema_core.model.cluster import Cluster
from kinema_core.model.neighbors import domain, enforced, pod_index, required, selects, spread_scope, term_scope
from kinema_core.model.pod_locations import eligible_of

HASH: Final = "pod-template-hash"
"""The label by which a Deployment distinguishes its generations: new pods have another value."""


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
    """Return why an update of a workload might wait for ever; None when it gets through.

    Args:
        cluster: where every pod is now.
        copies: the workload's living pods, which are alike; at least one.
        places: every node that remains, also those that are closed: a spread counts them.
        room: how many new pods would fit on a node beside all that is there now; 0 where none may go.
    """
    crowded = _crowded(copies, places, room)
    rules = copies[0].rules
    if crowded is not None or not (required(rules.anti_affinity) or enforced(rules.spread)):  # most workloads
        return crowded
    update = _Update(cluster, copies, places, room)
    return next((why for why in (*update.apart(), *update.spread()) if why is not None), None)


def _crowded(copies: Sequence[Pod], places: Sequence[Place], room: Callable[[str], int]) -> str | None:
    """Return why they have no room, rules aside: one more than those who leave it on no node that stays."""
    staying = {place.name for place in places}
    wanted = min(sum(pod.node not in staying for pod in copies) + 1, len(copies))
    found = 0
    for place in places:
        found += room(place.name)
        if found >= wanted:
            return None
    return f"there is room for {found} of the {wanted} new pods that need some"


class _Apart(NamedTuple):
    """A rule that keeps pods of this kind from each other."""

    key: str
    taken: Counter[str]
    """Pods that count for new ones, by domain."""
    among_new: bool
    """New pods keep away from new ones only: by the hash of their template."""


class _Update:
    def __init__(
        self, cluster: Cluster, copies: Sequence[Pod], places: Sequence[Place], room: Callable[[str], int]
    ) -> None:
        self._cluster = cluster
        self._copies = copies
        self._pod = copies[0]
        self._places = places
        self._room = room
        self._staying = frozenset(place.name for place in places)
        self._leaving = [node for node in cluster.nodes if node.name not in self._staying]
        self._labels = {place.name: place.labels for place in (*self._leaving, *places)}
        self._apart = tuple(self._rules_apart())

    def _rules_apart(self) -> Iterator[_Apart]:
        for term in required(self._pod.rules.anti_affinity):
            scope, key = term_scope(self._cluster, self._pod, term), term.topology_key
            if not selects(scope, self._pod):
                continue
            among_new = HASH in term.match_label_keys
            held = () if among_new else pod_index(self._cluster).select(scope)
            domains = (domain(self._labels.get(pod.node or ""), key) for pod in held)
            yield _Apart(key, Counter(place for place in domains if place is not None), among_new)

    def apart(self) -> Iterator[str | None]:
        """One free place, beside one for each old pod that leaves none.

        On a node without the rule's label it keeps no pods apart: there each that has room has a place.
        """
        for rule in self._apart:
            roomy, open_to_all = set[str](), 0
            for place in self._places:
                where = domain(place.labels, rule.key)
                if where is None:
                    open_to_all += self._room(place.name)
                elif self._room(place.name):
                    roomy.add(where)
            freed = sum(self._frees(pod, rule, roomy) for pod in self._copies)
            wanted = min(len(self._copies) - freed + 1, len(self._copies))
            free = len(roomy - rule.taken.keys()) + open_to_all
            if free < wanted:
                yield f"its pods keep apart by {rule.key}: {free} of {wanted} places for new ones are free"

    def _frees(self, pod: Pod, rule: _Apart, roomy: Container[str]) -> bool:
        """Return whether a new pod that could go nowhere has a place more once this old one has gone."""
        where = domain(self._labels.get(pod.node or ""), rule.key)
        if where in roomy:
            return not rule.among_new  # it could go there before
        return pod.node in self._staying and where is not None

    def spread(self) -> Iterator[str | None]:
        """Room for one more in each domain that may be the emptiest one."""
        for spread in enforced(self._pod.rules.spread):
            if selects(spread_scope(self._pod, spread), self._pod):
                yield self._uneven(spread)

    def _uneven(self, spread: Spread) -> str | None:
        key, counted = spread.topology_key, self._counted(spread)
        domains, copies = sorted(set(counted.values())), len(self._copies)
        own = Counter(counted[pod.node] for pod in self._copies if pod.node in counted)
        among_new = HASH in spread.match_label_keys
        scope = () if among_new else pod_index(self._cluster).select(spread_scope(self._pod, spread))
        here = Counter(counted[pod.node] for pod in scope if pod.node in counted)
        # Most pods that are counted while one is still to come.
        most = copies - 1 if among_new else here.total() - own.total() + copies - (own.total() == 0)
        few = len(domains) < spread.min_domains
        if most < spread.max_skew and not few:
            return None  # even all in one place would be as good
        if not domains or (few and most >= spread.max_skew * len(domains)):
            return f"its pods are spread by {key}: there are too few domains"
        space = {where: self._space(where, counted) for where in domains}
        if among_new:
            halts = _halts_among_new(copies, own, space)
        else:
            stay = Counter(counted[pod.node] for pod in scope if pod.node in counted and pod.node in self._staying)
            halts = _halts(most, [stay[where] + room for where, room in space.items()])
        return f"its pods are spread by {key}: where the next one has to go may be full" if halts else None

    def _counted(self, spread: Spread) -> Mapping[str | None, str]:
        """Return the domain of every node that the constraint counts."""
        eligible = eligible_of(self._pod, spread)
        # New pods may not go to nodes that leave: their affinity says so, and what it leaves out does not count.
        ignored = spread.node_affinity_policy != "Honor"
        return {
            place.name: place.labels[spread.topology_key]
            for place in (*self._places, *(self._leaving if ignored else ()))
            if eligible.counts(name=place.name, labels=place.labels, taints=place.taints)
        }

    def _space(self, where: str, counted: Mapping[str | None, str]) -> int:
        """Return how many new pods a domain takes, as far as it matters.

        One on a node, and none beside their own, where they keep apart.
        """
        found = 0
        for place in self._places:
            if counted.get(place.name) == where:
                found += self._room_beside_their_own(place) if self._apart else self._room(place.name)
            if found >= len(self._copies):
                break
        return found

    def _room_beside_their_own(self, place: Place) -> int:
        taken = any(rule.taken[domain(place.labels, rule.key) or ""] for rule in self._apart)
        return 0 if taken else min(1, self._room(place.name))


def _halts(most: int, holds: Sequence[int]) -> bool:
    """Return whether each of the emptiest domains may be full at some time, when up to `most` pods are counted.

    `holds`: pods that there is a place for, by domain. With `k` in each of the emptiest, the others have more: so many
    have to be there at least.
    """
    return any((k + 1) * len(holds) - sum(held <= k for held in holds) <= most for k in set(holds))


def _halts_among_new(copies: int, own: Mapping[str, int], space: Mapping[str, int]) -> bool:
    """Return the same for new pods that count only each other; `own` old ones of all `copies` are in a domain now.

    As many of these have gone as new ones came, from anywhere. Who has not gone keeps the room of a domain.
    """
    for k in range(copies):
        staying = 0
        needed = sorted(max(0, own.get(where, 0) + room - k) for where, room in space.items() if room <= k)
        for full, least in enumerate(needed, 1):
            staying += least
            came = (k + 1) * len(space) - full
            if came < copies and staying <= copies - came:
                return True
    return False
