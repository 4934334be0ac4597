"""The rules between pods of a small cluster, as counts over kinds of pods and domains.

From a small cluster and what is on sale to a `TinyProblem`.

Autoscaling that may move running pods: which ones, so that the exact model weighs them against new nodes.

A pending pod that fits nowhere may fit where others leave for room elsewhere, and a few moves may be cheaper than a
node. The exact model decides that with every rule and for all machine types at once, but for a few dozen pods: those
that wait, and those of the nodes with most free room, where least has to leave. Nodes are only added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Final, NamedTuple

from kinema_core.events import (
    Amounts,
    FrozenMap,
    HostPort,
    Labels,
    Node,
    Offer,
    PlacementRules,
    Pod,
    PodTerm,
    Spread,
    Taint,
)
from kinema_core.model.catalog import machine_of, new_node_labels
from kinema_core.model.checker.rules import Spot
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, is_resident, resident_requests, residents_of
from kinema_core.model.ending import ending_refuses
from kinema_core.model.match import node_admits, parse_taints, ports_clash
from kinema_core.model.mobility import Mobility, spot_allowed
from kinema_core.model.neighbours import Scope, enforced, pod_index, required, selects, spread_scope, term_scope
from kinema_core.model.preferences import shunned, unmet_on_node
from kinema_core.model.resources import limited, subtract, total
from kinema_core.model.risk import ORDINARY, restart_risk
from kinema_core.model.volumes import attachments, volume_refuses
from kinema_optimizer.exact.model import (
    ALONE,
    NOWHERE,
    Apart,
    Census,
    Even,
    Kind,
    Machine,
    Near,
    Place,
    TinyProblem,
    Wish,
    Zoning,
    columns_of,
)
from kinema_optimizer.problem.pods import Mover, ceiled, movers_of, resizes_of, stuck_updates
from kinema_optimizer.problem.question import Question, Sites

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


MOST_PODS: Final = 40
"""Movable and pending pods of the largest problem that is solved exactly."""
MOST_COLUMNS: Final = 6_000
"""Of its model."""
_NEW_NODE: Final = "kinema-new-node"
"""Stands for the name of a node that does not exist yet; no rule can mean it."""


def tiny_problem(question: Question, sites: Sites) -> TinyProblem | None:
    """The exact problem that a question comes to; None when it is too large for the exact model."""
    return tiny_problem_of(question, sites.mobility, sites.prices, sites.ties.restricted)


def tiny_problem_of(
    question: Question, facts: Mobility, prices: Mapping[str, int], restricted: Container[str] = ()
) -> TinyProblem | None:
    """As `tiny_problem`, from who may move and the micro-USD per hour of each live node.

    `restricted` pods may move here, but get no other size: the plan's new requests are those of the other models.
    """
    cluster = question.cluster
    forecasts = question.forecasts if question.mode == "reschedule" else ()
    resizes = resizes_of(cluster, facts, forecasts, restricted)
    movers = movers_of(cluster, facts, question.mode, resizes)
    if len(movers) > MOST_PODS:
        return None
    problem = tiny_problem_with(question, facts, prices, movers)
    return problem if columns_of(problem) <= MOST_COLUMNS else None


def tiny_problem_with(
    question: Question, facts: Mobility, prices: Mapping[str, int], movers: tuple[Mover, ...]
) -> TinyProblem:
    """The problem in which these pods may be anywhere and all others stay, however large it is."""
    return _Draft(question, facts, movers, prices).problem()


@dataclass(frozen=True, eq=False)
class _Draft:
    """A problem in the making."""

    question: Question
    facts: Mobility
    movers: tuple[Mover, ...]
    prices: Mapping[str, int]

    @property
    def _cluster(self) -> Cluster:
        return self.question.cluster

    @cached_property
    def _offers(self) -> tuple[Offer, ...]:
        return tuple(offer for offer in self.question.offers if offer.available != 0)

    @cached_property
    def _nodes(self) -> tuple[Ground, ...]:
        return tuple(Ground(node.name, node.labels, node.taints) for node in self._cluster.nodes)

    @cached_property
    def _grounds(self) -> tuple[Ground, ...]:
        """What the offers would be as nodes."""
        return tuple(
            Ground(_NEW_NODE, new_node_labels(offer, _NEW_NODE), parse_taints(offer.taints)) for offer in self._offers
        )

    @cached_property
    def _book(self) -> RuleBook:
        return RuleBook(self._cluster, self._nodes, self._grounds, wishes=self.question.point_price > 0)

    @cached_property
    def _moving(self) -> Mapping[str, Mover]:
        return {mover.pod.key: mover for mover in self.movers}

    @cached_property
    def _requests(self) -> Mapping[str, Amounts]:
        """What every mover requests, volumes attached included."""
        return {
            mover.pod.key: FrozenMap({**_plain(mover.requests), **attachments(self._cluster, mover.pod)})
            for mover in self.movers
        }

    @cached_property
    def _units(self) -> Mapping[str, int]:
        """Resources of which anything is requested, each with the unit that all requests are multiples of."""
        names = sorted({name for each in self._requests.values() for name, amount in each.items() if amount > 0})
        return {name: gcd(*(each.get(name, 0) for each in self._requests.values())) for name in names}

    def problem(self) -> TinyProblem:
        """The finished problem."""
        book, workloads = self._book, sorted({one.workload for one in self.movers if one.role == "updated"})
        rooms = [self._vector(room) for room in self._machine_rooms()]
        kinds: list[Kind] = []
        homeless: list[str] = []
        for members in self._alike():
            kind = self._kind(members, rooms, workloads)
            if kind.pending and not kind.nodes and not kind.machines:
                homeless += kind.pods
            else:
                kinds.append(kind)
        kinds.sort(key=lambda kind: (-_weight(kind, rooms), kind.pods))
        book.kinds = {key: index for index, kind in enumerate(kinds) for key in kind.pods}
        draft = TinyProblem(
            kinds=tuple(kinds),
            places=self._places(),
            machines=tuple(
                Machine((offer.name,), offer.micro_usd_per_hour, room, offer.available)
                for offer, room in zip(self._offers, rooms, strict=True)
            ),
            pools=(),
            rollouts=tuple(workloads),
            near=book.near(),
            apart=book.apart(),
            even=book.even(),
            homeless=tuple(sorted(homeless)),
            point_price=self.question.point_price,
            wishes=book.wishes(),
            priced=self.question.move_price is not None,
        )
        return merged(draft, [_share(offer) for offer in self._offers])

    # --- kinds

    def _alike(self) -> Iterable[list[Mover]]:
        found: dict[tuple[object, ...], list[Mover]] = {}
        for mover in self.movers:
            pod = mover.pod
            key = (
                mover.role,
                mover.workload if mover.role == "updated" else "",
                pod.priority if mover.role == "pending" else 0,
                self._requests[pod.key],
                self._admitting(mover),
                self._book.demands[pod.key],
                self._book.counted(pod),
                self._disliked(pod),
                self._move_price(mover),
            )
            found.setdefault(key, []).append(mover)
        return found.values()

    def _kind(self, members: Sequence[Mover], rooms: Sequence[tuple[int | None, ...]], workloads: list[str]) -> Kind:
        first = members[0]
        index = {node.name: e for e, node in enumerate(self._nodes)}
        requests = tuple(self._requests[first.pod.key].get(name, 0) // unit for name, unit in self._units.items())
        nodes, machines = self._admitting(first)
        return Kind(
            pods=tuple(mover.pod.key for mover in members),
            homes=() if first.role == "pending" else tuple(index[mover.pod.node or ""] for mover in members),
            requests=requests,
            nodes=frozenset(e for e in nodes if _fits(requests, self._places()[e].room)),
            machines=frozenset(m for m in machines if _fits(requests, rooms[m])),
            priority=first.pod.priority if first.role == "pending" else 0,
            replaced=first.role == "rolled",
            rollout=workloads.index(first.workload) if first.role == "updated" else None,
            disliked_nodes=self._disliked(first.pod)[: len(self._nodes)],
            disliked_machines=self._disliked(first.pod)[len(self._nodes) :],
            move_price=self._move_price(first),
        )

    def _move_price(self, mover: Mover) -> int:
        price = self.question.move_price
        return 0 if mover.role == "pending" or not price else price * restart_risk(self._cluster, mover.pod) // ORDINARY

    def _disliked(self, pod: Pod) -> tuple[int, ...]:
        """Weight points that the pod gives up on each live node and offer; empty when it is as well anywhere."""
        if not (self.question.point_price and (self._shuns or pod.rules.preferred_nodes)):
            return ()
        grounds = (*self._nodes, *self._grounds)
        spots = [(ground.name, Spot(ground.labels, ground.taints)) for ground in grounds]
        each = [sum(one.weight for one in unmet_on_node(pod.rules, name, spot)) for name, spot in spots]
        return tuple(each) if len(set(each)) > 1 else ()

    @cached_property
    def _shuns(self) -> bool:
        return any(shunned(taint) for ground in (*self._nodes, *self._grounds) for taint in ground.taints)

    def _admitting(self, mover: Mover) -> tuple[frozenset[int], frozenset[int]]:
        """Live nodes and offers where the pod may arrive, room and rules between pods aside."""
        pod = mover.pod
        nodes = frozenset(e for e, node in enumerate(self._nodes) if self._node_admits(pod, node))
        return nodes, frozenset(m for m, offer in enumerate(self._offers) if self._offer_admits(pod, m, offer))

    def _node_admits(self, pod: Pod, ground: Ground) -> bool:
        if ground.name not in self.facts.open_nodes:
            return False
        machine = machine_of(self._cluster.nodes[self._nodes.index(ground)])
        keys = {
            taint.key
            for offer in self.question.offers
            if (offer.machine_type, offer.zone, offer.capacity_type) == machine
            for taint in parse_taints(offer.taints)
        }
        here = self._cluster.pods_by_node.get(ground.name, ())
        taken = [port for other in here if other.key not in self._moving for port in other.rules.host_ports]
        spot = machine[2] == "spot" and pod.node != ground.name
        return self._admits(pod, ground, spot=spot, keys=frozenset(keys), taken=tuple(taken))

    def _offer_admits(self, pod: Pod, index: int, offer: Offer) -> bool:
        ground = self._grounds[index]
        landing = [
            port
            for daemon in residents_of(self._cluster).daemons
            if node_admits(daemon.rules, name=ground.name, labels=ground.labels, taints=ground.taints) is None
            for port in daemon.rules.host_ports
        ]
        keys = frozenset(taint.key for taint in ground.taints)
        return self._admits(pod, ground, spot=offer.capacity_type == "spot", keys=keys, taken=tuple(landing))

    def _admits(
        self, pod: Pod, ground: Ground, *, spot: bool, keys: frozenset[str], taken: tuple[HostPort, ...]
    ) -> bool:
        if spot and not spot_allowed(self._cluster, pod, taint_keys=keys, options=self.question.options):
            return False
        return (
            node_admits(pod.rules, name=ground.name, labels=ground.labels, taints=ground.taints) is None
            and volume_refuses(self._cluster, pod, name=ground.name, labels=ground.labels) is None
            and ending_refuses(self._cluster, pod, ground.labels) is None
            and self._book.admits_domain(pod, ground)
            and ports_clash(pod.rules.host_ports, taken) is None
        )

    # --- places and machines

    def _places(self) -> tuple[Place, ...]:
        return self._cached_places

    @cached_property
    def _cached_places(self) -> tuple[Place, ...]:
        stuck = stuck_updates(self._cluster, self.facts)
        pinned = {pod.node for key in stuck for pod in self._cluster.pods_by_workload[key]}
        adds_only = self.question.mode == "autoscale"
        return tuple(
            Place(
                name=node.name,
                price=self.prices[node.name],
                room=self._vector(self._room(node.name)),
                fixed=adds_only or self.facts.deletable[node.name] is not None or node.name in pinned,
            )
            for node in self._cluster.nodes
        )

    def _room(self, name: str) -> Amounts:
        """What a live node has for movers: its allocatable less everybody else who is on it."""
        node = self._cluster.node(name)
        assert node is not None, f"no node {name}"
        here = self._cluster.pods_by_node.get(name, ())
        others = [pod for pod in here if pod.key not in self._moving]
        staying = [pod.requests for pod in others if not is_resident(self._cluster, pod)]
        volumes = [FrozenMap(attachments(self._cluster, pod)) for pod in others]
        taken = total([resident_requests(self._cluster, node), *staying, *volumes])
        return subtract(ceiled(node.allocatable, self.question.percent), taken)

    def _machine_rooms(self) -> Iterable[Amounts]:
        for offer, ground in zip(self._offers, self._grounds, strict=True):
            daemons = daemon_requests(self._cluster, name=ground.name, labels=ground.labels, taints=ground.taints)
            yield subtract(ceiled(offer.allocatable, self.question.percent), daemons)

    def _vector(self, room: Amounts) -> tuple[int | None, ...]:
        return tuple(
            room.get(name, 0) // unit if name in room or limited(name) else None for name, unit in self._units.items()
        )


def _plain(requests: Amounts) -> dict[str, int]:
    """Requests without host ports: their addresses matter here, so that they are rules between pods."""
    return {name: amount for name, amount in requests.items() if not name.startswith("port:")}


def _fits(requests: Sequence[int], room: Sequence[int | None]) -> bool:
    return all(free is None or need == 0 or need <= free for need, free in zip(requests, room, strict=True))


def _weight(kind: Kind, rooms: Sequence[tuple[int | None, ...]]) -> float:
    """The largest share that one pod takes of the largest machine."""
    shares = [0.0]
    for r, need in enumerate(kind.requests):
        largest = max((room[r] or 0 for room in rooms), default=0)
        shares.append(need / largest if largest > 0 else 0.0)
    return max(shares)


def _share(offer: Offer) -> str:
    """Offers with the same text draw on the same stock; empty for those without limit."""
    return "" if offer.available is None else offer.pool or offer.name


def merged(problem: TinyProblem, shares: Sequence[str]) -> TinyProblem:
    """The problem with offers as one machine that nobody could tell apart; `shares` tells who draws on one stock."""
    censuses = [rule.census for rules in (problem.near, problem.apart, problem.even) for rule in rules]
    censuses += [wish.census for wish in problem.wishes]
    groups: dict[tuple[object, ...], list[int]] = {}
    for m, machine in enumerate(problem.machines):
        admitted = tuple(m in kind.machines for kind in problem.kinds)
        if any(admitted):
            zones = tuple(census.zoning.machines[m] for census in censuses)
            counts = tuple(m in rule.machines for rule in problem.even)
            disliked = tuple(kind.disliked_machines[m] for kind in problem.kinds if kind.disliked_machines)
            key = (machine.price, machine.room, shares[m], admitted, zones, counts, disliked)
            groups.setdefault(key, []).append(m)
    rows = [members[0] for members in groups.values()]
    renumbered = {m: new for new, m in enumerate(rows)}
    stocks: dict[str, list[int]] = {}
    for new, m in enumerate(rows):
        if shares[m]:
            stocks.setdefault(shares[m], []).append(new)
    return replace(
        problem,
        kinds=tuple(_sold(kind, rows, renumbered) for kind in problem.kinds),
        machines=tuple(
            replace(problem.machines[members[0]], offers=tuple(problem.machines[m].offers[0] for m in members))
            for members in groups.values()
        ),
        pools=tuple(
            (frozenset(members), problem.machines[rows[members[0]]].limit or 0)
            for members in stocks.values()
            if len(members) > 1
        ),
        near=tuple(replace(rule, census=_kept(rule.census, rows)) for rule in problem.near),
        apart=tuple(replace(rule, census=_kept(rule.census, rows)) for rule in problem.apart),
        even=tuple(
            replace(rule, census=_kept(rule.census, rows), machines=_renumber(rule.machines, renumbered))
            for rule in problem.even
        ),
        wishes=tuple(replace(rule, census=_kept(rule.census, rows)) for rule in problem.wishes),
    )


def _sold(kind: Kind, rows: Sequence[int], renumbered: Mapping[int, int]) -> Kind:
    """The kind in terms of the machines that are told apart."""
    disliked = tuple(kind.disliked_machines[m] for m in rows) if kind.disliked_machines else ()
    return replace(kind, machines=_renumber(kind.machines, renumbered), disliked_machines=disliked)


def _renumber(machines: frozenset[int], renumbered: Mapping[int, int]) -> frozenset[int]:
    return frozenset(renumbered[m] for m in machines if m in renumbered)


def _kept(census: Census, rows: Sequence[int]) -> Census:
    zoning = census.zoning
    return replace(census, zoning=Zoning(zoning.nodes, tuple(zoning.machines[m] for m in rows)))


MOST_WAITING: Final = MOST_PODS // 2
"""Pending pods for which running ones are asked to move; where more wait, nodes are added."""
_NODES: Final = 24
"""Nodes that anybody may go to."""


def relocation(question: Question, sites: Sites) -> TinyProblem | None:
    """The exact problem of the pods that wait and some that may move for them; None where it is too large, or idle."""
    cluster, facts = question.cluster, sites.mobility
    waiting = movers_of(cluster, facts, "autoscale", ())
    if not waiting or len(waiting) > MOST_WAITING:
        return None
    roomy = sorted(
        (node for node in cluster.nodes if node.name in facts.open_nodes),
        key=lambda node: (-_free(cluster, node), node.name),
    )[:_NODES]
    movers = (*waiting, *_leaving(question, facts, roomy, MOST_PODS - len(waiting)))
    problem = tiny_problem_with(question, facts, sites.prices, tuple(sorted(movers, key=lambda one: one.pod.key)))
    among = {e for e, place in enumerate(problem.places) if place.name in {node.name for node in roomy}}
    kinds = tuple(replace(kind, nodes=kind.nodes & (among | set(kind.homes))) for kind in problem.kinds)
    problem = replace(problem, kinds=kinds)
    return problem if _columns(problem) <= MOST_COLUMNS else None


def _leaving(question: Question, facts: Mobility, nodes: Sequence[Node], most: int) -> Sequence[Mover]:
    """Movable pods of these nodes, node by node: the smallest first, for they find room elsewhere."""
    able = {mover.pod.key: mover for mover in movers_of(question.cluster, facts, "reschedule", ())}
    found: list[Mover] = []
    for node in nodes:
        here = [able[pod.key] for pod in question.cluster.pods_by_node.get(node.name, ()) if pod.key in able]
        found += sorted((mover for mover in here if mover.role == "stays"), key=lambda mover: _size(node, mover.pod))
    return found[:most]


def _size(node: Node, pod: Pod) -> tuple[int, str]:
    """The largest share of the node that the pod takes, in thousandths."""
    shares = [1000 * amount // max(1, node.allocatable.get(name, 0)) for name, amount in pod.requests.items()]
    return max(shares, default=0), pod.key


def _free(cluster: Cluster, node: Node) -> int:
    """Thousandths of the node that are free, in CPU and memory, whichever is less."""
    here = cluster.pods_by_node.get(node.name, ())
    free = 1000
    for name in ("cpu", "memory"):
        taken = sum(pod.requests.get(name, 0) for pod in here)
        free = min(free, 1000 * (node.allocatable.get(name, 0) - taken) // max(1, node.allocatable.get(name, 0)))
    return free


def _columns(problem: TinyProblem) -> int:
    """Columns of the model, those of rules aside; every pod that waits may have a machine of each type."""
    copies = sum(len(kind.pods) for kind in problem.kinds if kind.pending)
    return sum(len(kind.nodes) + len(set(kind.homes)) + copies * len(kind.machines) for kind in problem.kinds)
