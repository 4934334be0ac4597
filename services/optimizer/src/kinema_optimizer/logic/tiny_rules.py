"""The rules between pods of a small cluster, as counts over kinds of pods and domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from kinema_core.events import HostPort, Labels, PlacementRules, Pod, PodTerm, Spread, Taint
from kinema_core.model.cluster import Cluster
from kinema_core.model.match import node_admits, ports_clash
from kinema_core.model.neighbours import Scope, enforced, pod_index, required, selects, spread_scope, term_scope
from kinema_optimizer.logic.tiny import ALONE, NOWHERE, Apart, Census, Even, Near, Wish, Zoning

_NO_RULES = PlacementRules()


class Ground(NamedTuple):
    """A live node or an offer as the rules see it."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]


class Term(NamedTuple):
    """An affinity or anti-affinity term: whom it counts, over which topology."""

    scope: Scope
    topology_key: str


class Levelling(NamedTuple):
    """A spread constraint: whom it counts, which nodes make a domain count, and how uneven it may be."""

    scope: Scope
    topology_key: str
    eligible: PlacementRules
    taints: bool
    """Whether a node's taints decide too."""
    max_skew: int
    min_domains: int


class Liking(NamedTuple):
    """A preferred affinity (`near`) or anti-affinity term and its weight."""

    term: Term
    weight: int
    near: bool


class Demands(NamedTuple):
    """What one pod demands of others."""

    near: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    even: tuple[Levelling, ...] = ()
    ports: tuple[HostPort, ...] = ()
    likes: tuple[Liking, ...] = ()


def demands_of(cluster: Cluster, pod: Pod, *, wishes: bool) -> Demands:
    """Everything that the pod demands of others, and what it prefers, if `wishes` count."""
    rules = pod.rules
    if rules == _NO_RULES:
        return Demands()
    return Demands(
        near=_terms(cluster, pod, required(rules.affinity)),
        apart=_terms(cluster, pod, required(rules.anti_affinity)),
        even=tuple(dict.fromkeys(_levelling(pod, spread) for spread in enforced(rules.spread))),
        ports=rules.host_ports,
        likes=tuple(_likes(cluster, pod)) if wishes else (),
    )


def _likes(cluster: Cluster, pod: Pod) -> Iterator[Liking]:
    for terms, near in ((pod.rules.affinity, True), (pod.rules.anti_affinity, False)):
        for one in terms:
            if one.weight:
                yield Liking(Term(term_scope(cluster, pod, one), one.topology_key), one.weight, near)


def _terms(cluster: Cluster, pod: Pod, terms: Iterable[PodTerm]) -> tuple[Term, ...]:
    return tuple(dict.fromkeys(Term(term_scope(cluster, pod, term), term.topology_key) for term in terms))


def _levelling(pod: Pod, spread: Spread) -> Levelling:
    rules = pod.rules
    honoured, taints = spread.node_affinity_policy == "Honor", spread.node_taints_policy == "Honor"
    eligible = PlacementRules(
        node_selector=rules.node_selector if honoured else _NO_RULES.node_selector,
        node_terms=rules.node_terms if honoured else None,
        tolerations=rules.tolerations if taints else (),
    )
    scope = spread_scope(pod, spread)
    return Levelling(scope, spread.topology_key, eligible, taints, spread.max_skew, spread.min_domains)


class RuleBook:
    """Every rule of a cluster's pods: first whom they count, then, once the kinds of pods are known, the rules."""

    def __init__(
        self, cluster: Cluster, nodes: Sequence[Ground], offers: Sequence[Ground], *, wishes: bool = False
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._offers = offers
        self._index = {node.name: e for e, node in enumerate(nodes)}
        self._pods = tuple(pod for pod in cluster.pods if not pod.terminating)
        self.demands = {pod.key: demands_of(cluster, pod, wishes=wishes) for pod in self._pods}
        self.kinds: Mapping[str, int] = {}
        """Pod key → kind, for pods that are of a kind; set before the rules are asked for."""

    @cached_property
    def _scopes(self) -> tuple[Scope, ...]:
        found: dict[Scope, None] = {}
        for one in self.demands.values():
            found |= dict.fromkeys(term.scope for term in (*one.near, *one.apart))
            found |= dict.fromkeys(levelling.scope for levelling in one.even)
            found |= dict.fromkeys(liking.term.scope for liking in one.likes)
        return tuple(found)

    def counted(self, pod: Pod) -> tuple[bool, ...]:
        """Which rules count the pod."""
        return tuple(selects(scope, pod) for scope in self._scopes)

    def admits_domain(self, pod: Pod, ground: Ground) -> bool:
        """Whether the node has every label that the pod's affinity and spread go by: without, nobody may arrive."""
        mine = self.demands[pod.key]
        keys = [term.topology_key for term in mine.near] + [levelling.topology_key for levelling in mine.even]
        return all(key in ground.labels for key in keys)

    def _where(self, pod: Pod) -> int | None:
        return self._index.get(pod.node or "")

    def _zoning(self, topology_key: str) -> Zoning:
        """Domains by number. An offer whose nodes get the label from their name is `ALONE`."""
        numbers: dict[str, int] = {}
        node_values = [node.labels.get(topology_key) for node in self._nodes]
        offer_values = [offer.labels.get(topology_key) for offer in self._offers]
        for value in (*node_values, *offer_values):
            if value is not None:
                numbers.setdefault(value, len(numbers))
        own = [offer.labels.get(topology_key) == offer.name for offer in self._offers]
        return Zoning(
            nodes=tuple(NOWHERE if value is None else numbers[value] for value in node_values),
            machines=tuple(
                ALONE if alone else NOWHERE if value is None else numbers[value]
                for value, alone in zip(offer_values, own, strict=True)
            ),
        )

    def _census(self, scope: Scope, topology_key: str) -> Census:
        kinds: set[int] = set()
        others = [0] * len(self._nodes)
        for pod in pod_index(self._cluster).select(scope):
            node = self._where(pod)
            if pod.key in self.kinds:
                kinds.add(self.kinds[pod.key])
            elif node is not None:
                others[node] += 1
        return Census(self._zoning(topology_key), frozenset(kinds), tuple(others))

    def _now(self, census: Census) -> Counter[int]:
        """Pods counted in each domain now."""
        found: Counter[int] = Counter()
        for pod in self._pods:
            node = self._where(pod)
            if node is not None and self.kinds.get(pod.key, NOWHERE) in census.kinds:
                found[census.zoning.nodes[node]] += 1
        for node, count in enumerate(census.others):
            found[census.zoning.nodes[node]] += count
        del found[NOWHERE]
        return found

    def near(self) -> tuple[Near, ...]:
        """Required affinity."""
        terms = dict.fromkeys(term for one in self.demands.values() for term in one.near)
        return tuple(self._near(term) for term in terms)

    def _near(self, term: Term) -> Near:
        census = self._census(*term)
        now = self._now(census)
        holders: dict[int, set[int]] = {}
        others: list[tuple[int, bool]] = []
        for pod in self._pods:
            if term not in self.demands[pod.key].near:
                continue
            node, itself = self._where(pod), selects(term.scope, pod)
            obeys = node is not None and _in_company(now, census.zoning.nodes[node], itself=itself)
            if pod.key in self.kinds:
                homes = holders.setdefault(self.kinds[pod.key], set())
                homes |= {node} if node is not None and obeys else set()
            elif node is not None and obeys:
                others.append((node, itself))
        return Near(census, tuple((kind, frozenset(homes)) for kind, homes in holders.items()), tuple(others))

    def apart(self) -> tuple[Apart, ...]:
        """Required anti-affinity, and host ports, which are had once per node."""
        terms = dict.fromkeys(term for one in self.demands.values() for term in one.apart)
        wanted = dict.fromkeys(one.ports for key, one in self.demands.items() if one.ports and key in self.kinds)
        return (*(self._apart(term) for term in terms), *(self._clash(ports) for ports in wanted))

    def _apart(self, term: Term) -> Apart:
        census = self._census(*term)
        holding = [pod for pod in self._pods if term in self.demands[pod.key].apart]
        others = [self._where(pod) for pod in holding if pod.key not in self.kinds]
        return Apart(
            census=census,
            holders=frozenset(self.kinds[pod.key] for pod in holding if pod.key in self.kinds),
            others=tuple(sorted({node for node in others if node is not None})),
            broken=self._broken(census, holding),
        )

    def _clash(self, ports: tuple[HostPort, ...]) -> Apart:
        """Pods of no kind are left out: admission looks at their ports."""
        clashing = [key for key in self.kinds if ports_clash(ports, self.demands[key].ports) is not None]
        zoning = Zoning(tuple(range(len(self._nodes))), (ALONE,) * len(self._offers))
        census = Census(zoning, frozenset(self.kinds[key] for key in clashing), (0,) * len(self._nodes))
        holding = [pod for pod in self._pods if pod.key in self.kinds and self.demands[pod.key].ports == ports]
        return Apart(census, frozenset(self.kinds[pod.key] for pod in holding), (), self._broken(census, holding))

    def _broken(self, census: Census, holding: Iterable[Pod]) -> frozenset[int]:
        """Domains where a pod of a kind holds the rule and it is broken now."""
        now = self._now(census)
        found = set()
        for pod in holding:
            node = self._where(pod)
            if node is not None and pod.key in self.kinds:
                place = census.zoning.nodes[node]
                if now[place] > int(self.kinds[pod.key] in census.kinds):
                    found.add(place)
        return frozenset(found - {NOWHERE})

    def wishes(self) -> tuple[Wish, ...]:
        """Preferred affinity and anti-affinity of the pods that are of a kind."""
        holders: dict[Liking, set[int]] = {}
        for key, kind in self.kinds.items():
            for liking in self.demands[key].likes:
                holders.setdefault(liking, set()).add(kind)
        return tuple(
            Wish(self._census(*liking.term), frozenset(kinds), liking.weight, liking.near)
            for liking, kinds in holders.items()
        )

    def even(self) -> tuple[Even, ...]:
        """Enforced topology spread."""
        levellings = dict.fromkeys(one for each in self.demands.values() for one in each.even)
        return tuple(self._even(levelling) for levelling in levellings)

    def _even(self, levelling: Levelling) -> Even:
        census = self._census(levelling.scope, levelling.topology_key)
        nodes = frozenset(e for e, node in enumerate(self._nodes) if _counts(levelling, node))
        now, domains = self._now(census), {census.zoning.nodes[e] for e in nodes}
        here = [now[place] for place in domains] or [0]
        skew = max(here) - (0 if len(domains) < levelling.min_domains else min(here))
        return Even(
            census=census,
            nodes=nodes,
            machines=frozenset(m for m, offer in enumerate(self._offers) if _counts(levelling, offer)),
            max_skew=levelling.max_skew,
            allowed=max(levelling.max_skew, skew),
            min_domains=levelling.min_domains,
            holders=frozenset(
                self.kinds[key] for key, one in self.demands.items() if levelling in one.even and key in self.kinds
            ),
        )


def _in_company(now: Counter[int], place: int, *, itself: bool) -> bool:
    """Whether a pod there obeys an affinity: somebody is with it, or it is the only one counted of all."""
    if place == NOWHERE:
        return False
    return now[place] > int(itself) or (itself and now.total() == 1)


def _counts(levelling: Levelling, ground: Ground) -> bool:
    """Whether the node makes its domain count for the spread."""
    taints = ground.taints if levelling.taints else ()
    return (
        levelling.topology_key in ground.labels
        and node_admits(levelling.eligible, name=ground.name, labels=ground.labels, taints=taints) is None
    )
