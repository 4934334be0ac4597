"""Works out what the rules between pods of a cluster come to (see `ties`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from kinema_core.events import Held, Mode, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident, residents_of
from kinema_core.model.match import HOSTNAME, node_admits
from kinema_core.model.mobility import Mobility, listed
from kinema_core.model.neighbours import required, selects, term_scope
from kinema_optimizer.logic.admission import Site
from kinema_optimizer.logic.between import Between, Census, Counted, Near, by_node, rules_between
from kinema_optimizer.logic.kept import kept_in_place
from kinema_optimizer.logic.movers import stuck_updates
from kinema_optimizer.logic.pending import Market, Waiting
from kinema_optimizer.logic.spread import closed_by_spread
from kinema_optimizer.logic.ties import UNMARKED, Ban, Marks, Need, Ties
from kinema_optimizer.logic.together import Ask, asking, together


@dataclass(frozen=True)
class Scene:
    """What the rules are worked out on."""

    cluster: Cluster
    facts: Mobility
    mode: Mode
    market: Market

    @property
    def nodes(self) -> tuple[Site, ...]:
        """The live nodes."""
        return self.market.sites[: self.market.live]

    @property
    def offers(self) -> tuple[Site, ...]:
        """What is on sale."""
        return self.market.sites[self.market.live :]


def ties_of(scene: Scene) -> Ties:
    """Pins, marks, bans and whatever else the rules between pods come to; `closed` of the market is worked out here."""
    between = rules_between(scene.cluster)
    if not between:
        return Ties()
    census = Census(scene.cluster, scene.nodes)
    single = by_node(scene.nodes, scene.offers)
    kept = kept_in_place(between, census, single, lambda pod: _rolls(scene, pod))
    closed = closed_by_spread(between.even, census, scene.offers)
    marking = _marking(between, census, single)
    pending = [pod for pod in listed(scene.cluster) if pod.node is None and pod.key not in scene.facts.held]
    waiting = Waiting(census, between, single, scene.market._replace(closed=closed))
    seats = waiting.seats(pending)
    asks = asking(between, census, single, waiting.homes)
    lonely = _lonely(scene, [near for near in between.near if single(near.counted.key)], census)
    united = together(asks, _able(scene, {**lonely, **kept.pods}, kept.nodes), marking.marks)
    stays = {**lonely, **united.stuck, **kept.pods}
    return Ties(
        needs=MappingProxyType({**_needs(waiting, asks), **seats}),
        marks=MappingProxyType(marking.marks),
        most=MappingProxyType(marking.most),
        bans=MappingProxyType({**_live_bans(scene, marking), **_daemon_bans(scene, marking)}),
        restricted=MappingProxyType(_restricted(scene, stays)),
        fixed=MappingProxyType(kept.nodes),
        groups=united.groups,
        closed=closed,
    )


@dataclass(frozen=True)
class _Marking:
    """Marks by pod key, those of pods that go with their node too, and what the rules' numbers stand for."""

    marks: dict[str, Marks]
    most: dict[int, int]
    apart: dict[Counted, int]
    even: dict[Counted, int]


def _marking(between: Between, census: Census, single: Callable[[str], bool]) -> _Marking:
    found: dict[str, tuple[set[int], set[int], set[int]]] = {}
    apart: dict[Counted, int] = {}
    even: dict[Counted, int] = {}
    most: dict[int, int] = {}

    def add(pods: Iterable[Pod], what: int, rule: int) -> None:
        for pod in pods:
            found.setdefault(pod.key, (set(), set(), set()))[what].add(rule)

    for keeping in between.apart:
        if single(keeping.counted.key):
            rule = apart.setdefault(keeping.counted, len(apart))
            add(keeping.carriers, 0, rule)
            add(census.pods(keeping.counted.scope), 1, rule)
    for spread in between.even:
        if single(spread.counted.key):
            rule = even.setdefault(spread.counted, len(even))
            # Where every node has some, new nodes are closed and no node's pods get fewer: more may be on each.
            crowded = census.most(spread) > spread.max_skew
            limit = spread.max_skew + (census.fewest(spread) if crowded else 0)
            most[rule] = min(limit, most.get(rule, limit))
            add(census.pods(spread.counted.scope), 2, rule)
            outside = [pod for pod in spread.carriers if not selects(spread.counted.scope, pod)]
            if outside:  # who has the rule and is not counted is kept from those who are, to be sure of few of them
                rule = apart.setdefault(spread.counted, len(apart))
                add(outside, 0, rule)
                add(census.pods(spread.counted.scope), 1, rule)
    company = [near.counted.scope for near in between.near if single(near.counted.key)]
    leaned_on = {pod.key for scope in company for pod in census.pods(scope)}
    for key in sorted(leaned_on):
        found.setdefault(key, (set(), set(), set()))
    marks = {key: Marks(frozenset(a), frozenset(b), frozenset(c), key in leaned_on) for key, (a, b, c) in found.items()}
    return _Marking(marks, most, apart, even)


def _rolls(scene: Scene, pod: Pod) -> bool:
    """Whether a rolling update may replace the pod wherever it is."""
    workload = scene.cluster.controller_of(pod)
    resized = workload is not None and workload.key in scene.market.resized
    return resized or scene.facts.strategy.get(pod.key) == "rolling"


def _lonely(scene: Scene, nears: Iterable[Near], census: Census) -> dict[str, Held]:
    """Pods that ask for their own kind and are the only ones of it, where a new copy comes before the old one goes.

    Of rules whose domains are nodes.
    """
    why = "its required affinity lets a new copy in only beside the old one; one that is evicted first could go"
    return {
        pod.key: Held(pod=pod.key, code="affinity-first", reason=why)
        for near in nears
        for pod in near.carriers
        if scene.facts.strategy.get(pod.key) == "surge" and census.known(pod) and census.first(pod, near.counted)
    }


def _able(scene: Scene, kept: Iterable[str], nodes: Collection[str]) -> Callable[[str], bool]:
    """Tells who may move, and by itself, from a node that may be deleted; `kept` pods and `nodes` stay."""
    cluster, facts = scene.cluster, scene.facts
    named = all(HOSTNAME in node.labels for node in scene.nodes)
    fixed = {pod.node for key in kept if (pod := cluster.pod(key)) is not None}.union(nodes)

    def able(key: str) -> bool:
        pod = cluster.pod(key)
        if pod is None or pod.node is None or pod.node in fixed or not named or scene.mode == "autoscale":
            return False
        alone = facts.strategy.get(key, "rolling") != "rolling" and not _rolls(scene, pod)
        return alone and facts.deletable[pod.node] is None

    return able


def _needs(waiting: Waiting, asks: Mapping[str, Ask]) -> dict[str, Need]:
    """Bound pods that rules concern, pinned to the domains that they are in, or to nodes with the company they need."""
    census, between, single = waiting.census, waiting.between, waiting.single
    keys: dict[str, set[str]] = {}
    asked = (
        (pod, counted.key)
        for counted, place in waiting.company
        for pod in census.pods(counted.scope)
        if census.domain(pod, counted.key) == place
    )
    for pod, key in chain(_concerned(between, census, single), asked):
        if census.known(pod) and not is_resident(census.cluster, pod):
            keys.setdefault(pod.key, set()).add(key)
    known: dict[Need, Need] = {}
    found: dict[str, Need] = {}
    for name in sorted(keys.keys() | asks.keys()):
        one = census.cluster.pods_by_key[name]
        pins = tuple((key, census.domain(one, key)) for key in sorted(keys.get(name, ())))
        need = Need(pins, asks[name].homes if name in asks else None)
        found[name] = known.setdefault(need, need)
    return found


def _concerned(between: Between, census: Census, single: Callable[[str], bool]) -> Iterator[tuple[Pod, str]]:
    """Pods and the topology keys by which a rule counts on where they are, or they depend on it."""
    for rule in (*between.apart, *between.even):
        key = rule.counted.key
        if not single(key):
            yield from ((pod, key) for pod in (*rule.carriers, *census.pods(rule.counted.scope)))
    for near in between.near:
        key = near.counted.key
        if not single(key):
            places = {census.domain(pod, key) for pod in near.carriers}
            yield from ((pod, key) for pod in near.carriers)
            yield from ((pod, key) for pod in census.pods(near.counted.scope) if census.domain(pod, key) in places)


def _restricted(scene: Scene, kept: Mapping[str, Held]) -> dict[str, Held]:
    """Of the pods to keep those that could move; where one moves by rolling update, all pods of its workload."""
    cluster, strategy = scene.cluster, scene.facts.strategy
    found = {key: held for key, held in kept.items() if key in strategy}
    for key, held in list(found.items()):
        pod = cluster.pod(key)
        workload = None if pod is None or strategy[key] != "rolling" else cluster.controller_of(pod)
        for other in () if workload is None else cluster.pods_by_workload[workload.key]:
            if other.key in strategy:
                why = f"a rolling update would restart pod {key}: {held.reason}"
                found.setdefault(other.key, Held(pod=other.key, code=held.code, reason=why))
    return found


def _live_bans(scene: Scene, marking: _Marking) -> dict[str, frozenset[Ban]]:
    """By live node, whom the pods that stay there whatever happens keep out."""
    cluster, strategy = scene.cluster, scene.facts.strategy
    stuck = stuck_updates(cluster, scene.facts)
    found: dict[str, set[Ban]] = {}
    for key in sorted(marking.marks):
        pod = cluster.pod(key)
        if pod is None or pod.node is None:
            continue
        workload = cluster.controller_of(pod)
        moves = key in strategy and scene.mode != "autoscale" and (workload is None or workload.key not in stuck)
        if not moves:
            found.setdefault(pod.node, set()).update(_bans(marking.marks[key]))
    return {name: frozenset(bans) for name, bans in found.items()}


def _bans(marks: Marks) -> Iterator[Ban]:
    yield from (Ban("kept_away", rule) for rule in marks.keeps_away)
    yield from (Ban("keeps_away", rule) for rule in marks.kept_away)
    yield from (Ban("counted", rule) for rule in marks.counted)


def _daemon_bans(scene: Scene, marking: _Marking) -> dict[str, frozenset[Ban]]:
    """By offer, whom the daemon sets' pods that come with a new node keep out."""
    ghosts = [
        (daemon.rules, _bans(_ghost_marks(scene, daemon.key, marking)))
        for daemon in residents_of(scene.cluster).daemons
    ]
    banning = [(rules, frozenset(bans)) for rules, bans in ghosts]
    found: dict[str, frozenset[Ban]] = {}
    for offer in scene.offers:
        landing = (
            bans
            for rules, bans in banning
            if bans and node_admits(rules, name=offer.name, labels=offer.labels, taints=offer.taints) is None
        )
        found[offer.name] = frozenset[Ban]().union(*landing)
    return {name: bans for name, bans in found.items() if bans}


def _ghost_marks(scene: Scene, key: str, marking: _Marking) -> Marks:
    """The marks that a daemon set's next pod will have."""
    workload = scene.cluster.workload(key)
    if workload is None:
        return UNMARKED
    ghost = Pod(
        name=workload.name,
        uid="",
        namespace=workload.namespace,
        labels=workload.template_labels,
        rules=workload.template_rules,
    )
    terms = required(ghost.rules.anti_affinity)
    mine = {Counted(term_scope(scene.cluster, ghost, term), term.topology_key) for term in terms}
    return Marks(
        keeps_away=frozenset(rule for counted, rule in marking.apart.items() if counted in mine),
        kept_away=frozenset(rule for counted, rule in marking.apart.items() if selects(counted.scope, ghost)),
        counted=frozenset(rule for counted, rule in marking.even.items() if selects(counted.scope, ghost)),
    )


__all__ = ["Scene", "ties_of"]
