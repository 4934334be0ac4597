"""Reduction of the rules between pods to limits on nodes and classes: `reduce_rules` makes the `ReducedRules`.

`closed_by_spread`: offers that an enforced topology spread closes. Pods that a spread over zones counts stay in their
zone, but a new node can be a new domain without any of them: the fewest pods of a domain are then none, and counts that
differed little before break the rule.

`kept_in_place`: pods whose rule a move could break, and nodes that rules depend on.

`together`: pods that leave their node together or not at all, which are those that ask for company and that company. A
required affinity whose domains are nodes lets a pod in only beside a pod that it asks for. Pods can follow such
company: one that asks for none goes first, or to a node where company stays, and the others come in later waves, each
when the pods that it asks for are there. So a group goes anywhere like one pod that requests what all of them do. Where
each of them asks for another, as replicas do that ask for each other, none can go first: kube-scheduler admits the
first of a kind anywhere, but only once no other copy exists, and all of them would have to be gone before one is back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from kinema_core.events import Held, Mode, Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident, residents_of
from kinema_core.model.match import HOSTNAME, node_admits
from kinema_core.model.mobility import Mobility, listed
from kinema_core.model.neighbors import required, selects, term_scope
from kinema_optimizer.problem.admission import Site
from kinema_optimizer.problem.pods import stuck_updates
from kinema_optimizer.problem.rules.pending import PendingPlacer, SitesOnOffer
from kinema_optimizer.problem.rules.read import (
    Census,
    Counted,
    PodAffinity,
    PodAntiAffinity,
    PodRules,
    TopologySpread,
    by_node,
    read_rules,
)
from kinema_optimizer.problem.rules.reduced import (
    UNTAGGED,
    MoveGroup,
    NodeExclusion,
    ReducedRules,
    RuleTags,
    TopologyDemand,
)


def closed_by_spread(rules: Iterable[TopologySpread], census: Census, offers: Iterable[Site]) -> frozenset[str]:
    """Names of the offers whose new nodes would break a spread constraint that holds now, or worsen a broken one."""
    sites = tuple(offers)
    return frozenset(name for spread in rules for name in _closed(spread, census, sites))


def _closed(spread: TopologySpread, census: Census, offers: tuple[Site, ...]) -> Iterable[str]:
    counts, key, domains = census.counts(spread.counted), spread.counted.key, census.domains(spread)
    fresh = [site for site in offers if site.labels.get(key) not in domains and spread.admits(site)]
    # Pods on nodes that do not count are in a domain that a new node would make count.
    most = max([census.most(spread), *(counts[site.labels[key]] for site in fresh)])
    fewest = census.fewest(spread)
    allowed = max(spread.max_skew, census.skew(spread))
    return [site.name for site in fresh if most - min(fewest, counts[site.labels[key]]) > allowed]


@dataclass(frozen=True)
class Kept:
    """Pods, by key, that stay though they might move, and nodes kept for other reasons, with the reason."""

    pods: dict[str, Held]
    nodes: dict[str, str]


def kept_in_place(
    between: PodRules, census: Census, single: Callable[[str], bool], rolls: Callable[[Pod], bool]
) -> Kept:
    """Choose the pods to keep.

    Pods that others count on leave a node only when it is deleted, so that rules whose domains are single nodes
    (`single`) bind newcomers only, but for pods that a rolling update may replace wherever they are (`rolls`).
    """
    kept = Kept({}, {})
    for affinity in between.affinities:
        _keep_unmet(kept, affinity, census)
        if single(affinity.counted.key):
            _keep_company(kept, affinity, census, rolls)
        else:
            _keep_daemon_company(kept, affinity, census)
    for anti_affinity in between.anti_affinities:
        if not single(anti_affinity.counted.key):
            _keep_met(kept, anti_affinity, census)
    for spread in between.spreads:
        if single(spread.counted.key):
            _keep_crowded(kept, spread, census, rolls)
        else:
            _keep_uneven(kept, spread, census)
            _keep_counted_residents(kept, spread, census)
        if spread.min_domains > 1 and census.most(spread) > max(spread.max_skew, census.skew(spread)):
            _keep_domains(kept, spread, census)
    return kept


def _keep_unmet(kept: Kept, affinity: PodAffinity, census: Census) -> None:
    """Pods that miss the company that they ask for: no other place is known to be better."""
    obeying = {pod.key for pod in _obeying(affinity, census)}
    for pod in affinity.owners:
        if census.known(pod) and pod.key not in obeying:
            _keep(kept, pod, "affinity-unmet", "no pod that its required affinity asks for is near it")


def _keep_met(kept: Kept, anti_affinity: PodAntiAffinity, census: Census) -> None:
    """Pods that share a domain with one that keeps them away: they would not be let in where they are pinned to."""
    key = anti_affinity.counted.key
    clashes = {census.domain(pod, key) for pod in anti_affinity.owners if census.company(pod, anti_affinity.counted)}
    for pod in (*anti_affinity.owners, *census.pods(anti_affinity.counted.scope)) if clashes else ():
        place = census.domain(pod, key)
        if place is not None and place in clashes:
            _keep(kept, pod, "anti-affinity-met", f"pods that a required anti-affinity keeps apart share its {key}")


def _keep_alone(kept: Kept, anti_affinity: PodAntiAffinity, census: Census, scene: Scene) -> dict[str, Held]:
    """Pods that no second copy may share a domain with, where every other domain has one of their kind too.

    A surge starts the new copy first. In its own domain the old one keeps it out; a stop needs a domain without any.
    Returns those that no plan can move, because all of their kind wait for each other.
    """
    key, market, strategy = anti_affinity.counted.key, scene.market, scene.facts.strategy
    taken, vector = census.counts(anti_affinity.counted), market.admission.vector
    why = f"its required anti-affinity lets no second copy into its {key}, and pods of its kind are in every other one"
    found: dict[str, Held] = {}
    for pod in anti_affinity.owners:
        surges = strategy.get(pod.key) == "surge" and selects(anti_affinity.counted.scope, pod)
        if not surges or not census.known(pod) or census.domain(pod, key) is None:
            continue
        could = (market.sites[one] for one in np.flatnonzero(vector(market.admission.row(pod))).tolist())
        if all(site.labels.get(key) in taken for site in could):
            found[pod.key] = Held(pod=pod.key, code="anti-affinity-alone", reason=why)
    for pod_key, held in found.items():
        kept.pods.setdefault(pod_key, held)
    others = (pod for pod in census.pods(anti_affinity.counted.scope) if pod.node is not None)
    stay = all(pod.key in found or pod.key not in strategy for pod in others)
    return found if stay and not any(_rolls(scene, census.cluster.pods_by_key[one]) for one in found) else {}


def _keep_uneven(kept: Kept, spread: TopologySpread, census: Census) -> None:
    """Pods that a spread would not let into their own domain again, or that are in none."""
    counts, fewest = census.counts(spread.counted), census.fewest(spread)
    for pod in spread.owners:
        place = census.domain(pod, spread.counted.key)
        if census.known(pod) and (place is None or counts[place] - fewest > spread.max_skew):
            _keep(kept, pod, "spread-uneven", "its topology spread would not let it into its domain again")


def _obeying(affinity: PodAffinity, census: Census) -> Iterator[Pod]:
    """Bound pods that have the term and obey it now."""
    for pod in affinity.owners:
        if census.known(pod) and (census.company(pod, affinity.counted) or census.first(pod, affinity.counted)):
            yield pod


def _keep_company(kept: Kept, affinity: PodAffinity, census: Census, rolls: Callable[[Pod], bool]) -> None:
    """Pods that others must share a node with, where a rolling update could take them away."""
    homes: dict[str | None, str] = {}
    waits = any(pod.node is None for pod in census.pods(affinity.counted.scope))
    for pod in _obeying(affinity, census):
        homes[pod.node] = pod.key
        if waits and census.first(pod, affinity.counted):
            _keep(kept, pod, "affinity-node", "pending pods of its kind have to share its node")
    for other in census.pods(affinity.counted.scope) if homes else ():
        if other.node in homes and rolls(other):
            _keep(kept, other, "affinity-peer", f"the required affinity of pod {homes[other.node]} asks for it there")


def _keep_daemon_company(kept: Kept, affinity: PodAffinity, census: Census) -> None:
    """Keep a node whose daemon sets' pods are all the company that some pod has in its domain."""
    residents: dict[str | None, Pod] = {}
    others: Counter[str | None] = Counter()
    for other in census.pods(affinity.counted.scope):
        place = census.domain(other, affinity.counted.key)
        if is_resident(census.cluster, other):
            residents.setdefault(place, other)
        else:
            others[place] += 1
    for pod in _obeying(affinity, census) if residents else ():
        place = census.domain(pod, affinity.counted.key)
        itself = selects(affinity.counted.scope, pod) and not is_resident(census.cluster, pod)
        if place in residents and others[place] == int(itself):
            kept.nodes.setdefault(residents[place].node or "", f"the required affinity of pod {pod.key} leans on it")


def _keep_crowded(kept: Kept, spread: TopologySpread, census: Census, rolls: Callable[[Pod], bool]) -> None:
    """Pods that a spread over nodes counts where it is even only because every node has some of them."""
    if census.most(spread) > spread.max_skew and census.fewest(spread):
        for pod in census.pods(spread.counted.scope):
            if census.known(pod) and rolls(pod):
                _keep(kept, pod, "spread-tight", "its topology spread is even only as long as no node loses a pod")


def _keep_counted_residents(kept: Kept, spread: TopologySpread, census: Census) -> None:
    """Nodes whose daemon sets' pods a spread over larger domains counts: they would go with the node."""
    for pod in census.pods(spread.counted.scope):
        if census.known(pod) and is_resident(census.cluster, pod):
            kept.nodes.setdefault(
                pod.node or "", f"the topology spread of pod {spread.owners[0].key} counts pod {pod.key}"
            )


def _keep_domains(kept: Kept, spread: TopologySpread, census: Census) -> None:
    """Keep a node in every domain, where one domain fewer would be too few."""
    seen: set[str] = set()
    for node in census.nodes:
        if spread.admits(node) and node.labels[spread.counted.key] not in seen:
            seen.add(node.labels[spread.counted.key])
            kept.nodes.setdefault(node.name, f"the topology spread of pod {spread.owners[0].key} needs its domain")


def _keep(kept: Kept, pod: Pod, code: str, reason: str) -> None:
    kept.pods.setdefault(pod.key, Held(pod=pod.key, code=code, reason=reason))


class Ask(NamedTuple):
    """The company that a bound pod asks for on its node."""

    node: str
    company: tuple[tuple[str, ...], ...]
    """For each affinity term, the keys of the pods there that it counts, perhaps the pod itself among them."""
    homes: frozenset[str]
    """Nodes where company stays for every term."""


def asking(
    between: PodRules, census: Census, single: Callable[[str], bool], homes: Callable[[PodAffinity], frozenset[str]]
) -> Mapping[str, Ask]:
    """Bound pods that need company on their node, by key; the only one of its kind that asks for its kind needs none.

    Args:
        between: the rules.
        census: where pods are.
        single: whether the domains of a topology key are nodes.
        homes: nodes with company that stays, for a rule.
    """
    found: dict[str, Ask] = {}
    for affinity in between.affinities:
        if not single(affinity.counted.key):
            continue
        here: dict[str, list[str]] = {}
        for pod in census.pods(affinity.counted.scope):
            here.setdefault(pod.node or "", []).append(pod.key)
        company = {node: tuple(keys) for node, keys in here.items()}
        for pod in affinity.owners:
            if census.known(pod) and not census.first(pod, affinity.counted):
                node, stays = pod.node or "", homes(affinity)
                known = found.get(pod.key, Ask(node, (), stays))
                found[pod.key] = Ask(node, (*known.company, company.get(node, ())), known.homes & stays)
    return found


@dataclass(frozen=True)
class Together:
    """Pods that move together, and pods that cannot move."""

    groups: tuple[MoveGroup, ...]
    stuck: Mapping[str, Held]
    """By key."""


def together(asks: Mapping[str, Ask], able: Callable[[str], bool], marks: Mapping[str, RuleTags]) -> Together:
    """Groups of pods, each of which has all the company that it needs to go elsewhere.

    Args:
        asks: pods that ask for company.
        able: whether a pod may move, and by itself, and its node may be deleted.
        marks: their parts in other rules.
    """
    by_node: dict[str, dict[str, Ask]] = {}
    for key in sorted(asks):
        if able(key):
            by_node.setdefault(asks[key].node, {})[key] = asks[key]
    groups: list[MoveGroup] = []
    stuck: dict[str, Held] = {}
    for node in sorted(by_node):
        here = by_node[node]
        found = _on_one_node(here, able)
        grouped = {key for one in found for key in one.pods}
        groups += [one for one in found if not _quarrel([marks.get(key, UNTAGGED) for key in one.pods])]
        for key, ask in here.items():
            if key not in grouped and not ask.homes - {node}:
                stuck[key] = Held(pod=key, code="affinity-together", reason=_why(ask, here))
    return Together(tuple(groups), stuck)


def _why(ask: Ask, here: Collection[str]) -> str:
    company = sorted({key for keys in ask.company for key in keys})
    if all(key in here for key in company):
        return "its required affinity and that of its company on the node ask for each other: none could go first"
    return "its required affinity asks for company on its node that cannot go elsewhere before it"


def _on_one_node(asks: Mapping[str, Ask], able: Callable[[str], bool]) -> list[MoveGroup]:
    """Return groups of at least two pods: those that need no pod outside, then those that follow another group."""
    company = {key for one in asks.values() for keys in one.company for key in keys}
    joined = {key: [key] for key in sorted(company - asks.keys()) if able(key)}
    _follow(joined, asks)
    away: dict[str, frozenset[str]] = {}
    for key, ask in asks.items():
        if key not in joined and ask.homes - {ask.node}:
            away[key] = ask.homes - {ask.node}
            joined[key] = [key]
    _follow(joined, asks)
    distinct = {id(pods): pods for pods in joined.values() if len(pods) > 1}
    return [MoveGroup(tuple(pods), _common(away[key] for key in pods if key in away)) for pods in distinct.values()]


def _follow(joined: dict[str, list[str]], asks: Mapping[str, Ask]) -> None:
    """Add pods that find all the company that they ask for in groups (by pod) to them, until none does any more.

    Of several groups with such company the smallest is joined: it finds room most easily.
    """
    while fresh := [key for key, ask in asks.items() if key not in joined and _met(ask, joined)]:
        for key in fresh:
            merged: list[str] = []
            for keys in asks[key].company:
                if not any(other in merged for other in keys):
                    groups = (joined[other] for other in keys if other in joined)
                    smallest = min(groups, key=lambda one: (len(one), one))
                    merged += smallest
            merged.append(key)
            joined |= dict.fromkeys(merged, merged)


def _met(ask: Ask, joined: Collection[str]) -> bool:
    return all(any(other in joined for other in keys) for keys in ask.company)


def _common(places: Iterable[frozenset[str]]) -> frozenset[str] | None:
    """Return what is in all of them; None where there are none."""
    found = list(places)
    return frozenset.intersection(*found) if found else None


def _quarrel(marks: Iterable[RuleTags]) -> bool:
    """Return whether a rule that they break together now would keep them from coming together again."""
    known = list(marks)
    counted = Counter(rule for one in known for rule in one.counted)
    if any(count > 1 for count in counted.values()):
        return True
    keepers = Counter(rule for one in known for rule in one.keeps_away)
    return any(keepers[rule] > (rule in one.keeps_away) for one in known for rule in one.kept_away)


@dataclass(frozen=True)
class Scene:
    """Cluster and market that rules are reduced for."""

    cluster: Cluster
    facts: Mobility
    mode: Mode
    market: SitesOnOffer

    @property
    def nodes(self) -> tuple[Site, ...]:
        """Return the live nodes."""
        return self.market.sites[: self.market.live]

    @property
    def offers(self) -> tuple[Site, ...]:
        """Return what is on sale."""
        return self.market.sites[self.market.live :]


def reduce_rules(scene: Scene) -> ReducedRules:
    """Pins, marks, bans and whatever else the rules between pods come to; `closed` of the market is worked out here."""
    between = read_rules(scene.cluster)
    if not between:
        return ReducedRules()
    census = Census(scene.cluster, scene.nodes)
    single = by_node(scene.nodes, scene.offers)
    kept = kept_in_place(between, census, single, lambda pod: _rolls(scene, pod))
    alone: dict[str, Held] = {}
    for anti_affinity in between.anti_affinities:
        if not single(anti_affinity.counted.key):
            alone |= _keep_alone(kept, anti_affinity, census, scene)
    closed = closed_by_spread(between.spreads, census, scene.offers)
    marking = _marking(between, census, single)
    pending = [pod for pod in listed(scene.cluster) if pod.node is None and pod.key not in scene.facts.held]
    waiting = PendingPlacer(census, between, single, scene.market._replace(closed=closed))
    seats = waiting.seats(pending)
    asks = asking(between, census, single, waiting.homes)
    lonely = _lonely(scene, [affinity for affinity in between.affinities if single(affinity.counted.key)], census)
    united = together(asks, _able(scene, {**lonely, **kept.pods}, kept.nodes), marking.marks)
    stays = {**lonely, **united.stuck, **kept.pods}
    needs = {**_needs(waiting, asks), **seats}
    return ReducedRules(
        needs=MappingProxyType(needs),
        ruled=bool(needs or marking.marks or united.groups),
        marks=MappingProxyType(marking.marks),
        most=MappingProxyType(marking.most),
        bans=MappingProxyType({**_live_bans(scene, marking), **_daemon_bans(scene, marking)}),
        restricted=MappingProxyType(_restricted(scene, stays)),
        fixed=MappingProxyType(kept.nodes),
        immovable=MappingProxyType(alone),
        groups=united.groups,
        closed=closed,
    )


@dataclass(frozen=True)
class _Marking:
    """Marks by pod key, those of pods that go with their node too, and what the rules' numbers stand for."""

    marks: dict[str, RuleTags]
    most: dict[int, int]
    anti_affinities: dict[Counted, int]
    spreads: dict[Counted, int]


def _marking(between: PodRules, census: Census, single: Callable[[str], bool]) -> _Marking:
    found: dict[str, tuple[set[int], set[int], set[int]]] = {}
    anti_affinities: dict[Counted, int] = {}
    spreads: dict[Counted, int] = {}
    most: dict[int, int] = {}

    def add(pods: Iterable[Pod], what: int, rule: int) -> None:
        for pod in pods:
            found.setdefault(pod.key, (set(), set(), set()))[what].add(rule)

    for keeping in between.anti_affinities:
        if single(keeping.counted.key):
            rule = anti_affinities.setdefault(keeping.counted, len(anti_affinities))
            add(keeping.owners, 0, rule)
            add(census.pods(keeping.counted.scope), 1, rule)
    for spread in between.spreads:
        if single(spread.counted.key):
            rule = spreads.setdefault(spread.counted, len(spreads))
            # Where every node has some, new nodes are closed and no node's pods get fewer: more may be on each.
            crowded = census.most(spread) > spread.max_skew
            limit = spread.max_skew + (census.fewest(spread) if crowded else 0)
            most[rule] = min(limit, most.get(rule, limit))
            add(census.pods(spread.counted.scope), 2, rule)
            outside = [pod for pod in spread.owners if not selects(spread.counted.scope, pod)]
            if outside:  # owners that the rule does not count keep away from counted pods, to be sure of few of those
                rule = anti_affinities.setdefault(spread.counted, len(anti_affinities))
                add(outside, 0, rule)
                add(census.pods(spread.counted.scope), 1, rule)
    company = [affinity.counted.scope for affinity in between.affinities if single(affinity.counted.key)]
    targets = {pod.key for scope in company for pod in census.pods(scope)}
    for key in sorted(targets):
        found.setdefault(key, (set(), set(), set()))
    marks = {
        key: RuleTags(frozenset(a), frozenset(b), frozenset(c), key in targets) for key, (a, b, c) in found.items()
    }
    return _Marking(marks, most, anti_affinities, spreads)


def _rolls(scene: Scene, pod: Pod) -> bool:
    """Return whether a rolling update may replace the pod wherever it is."""
    workload = scene.cluster.controller_of(pod)
    resized = workload is not None and workload.key in scene.market.resized
    return resized or scene.facts.strategy.get(pod.key) == "rolling"


def _lonely(scene: Scene, affinities: Iterable[PodAffinity], census: Census) -> dict[str, Held]:
    """Pods that ask for their own kind and are the only ones of it, where a new copy comes before the old one goes.

    Of rules whose domains are nodes.
    """
    why = "its required affinity lets a new copy in only beside the old one; one that is evicted first could go"
    return {
        pod.key: Held(pod=pod.key, code="affinity-first", reason=why)
        for affinity in affinities
        for pod in affinity.owners
        if scene.facts.strategy.get(pod.key) == "surge" and census.known(pod) and census.first(pod, affinity.counted)
    }


def _able(scene: Scene, kept: Iterable[str], nodes: Collection[str]) -> Callable[[str], bool]:
    """Return whether a pod may move, and by itself, from a node that may be deleted; `kept` pods and `nodes` stay."""
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


def _needs(waiting: PendingPlacer, asks: Mapping[str, Ask]) -> dict[str, TopologyDemand]:
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
    known: dict[TopologyDemand, TopologyDemand] = {}
    found: dict[str, TopologyDemand] = {}
    for name in sorted(keys.keys() | asks.keys()):
        one = census.cluster.pods_by_key[name]
        pins = tuple((key, census.domain(one, key)) for key in sorted(keys.get(name, ())))
        need = TopologyDemand(pins, asks[name].homes if name in asks else None)
        found[name] = known.setdefault(need, need)
    return found


def _concerned(between: PodRules, census: Census, single: Callable[[str], bool]) -> Iterator[tuple[Pod, str]]:
    """Pods and the topology keys by which a rule counts on where they are, or they depend on it."""
    for rule in (*between.anti_affinities, *between.spreads):
        key = rule.counted.key
        if not single(key):
            yield from ((pod, key) for pod in (*rule.owners, *census.pods(rule.counted.scope)))
    for affinity in between.affinities:
        key = affinity.counted.key
        if not single(key):
            places = {census.domain(pod, key) for pod in affinity.owners}
            yield from ((pod, key) for pod in affinity.owners)
            yield from ((pod, key) for pod in census.pods(affinity.counted.scope) if census.domain(pod, key) in places)


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


def _live_bans(scene: Scene, marking: _Marking) -> dict[str, frozenset[NodeExclusion]]:
    """Return by live node the pods that those which stay there in any case keep out."""
    cluster, strategy = scene.cluster, scene.facts.strategy
    stuck = stuck_updates(cluster, scene.facts)
    found: dict[str, set[NodeExclusion]] = {}
    for key in sorted(marking.marks):
        pod = cluster.pod(key)
        if pod is None or pod.node is None:
            continue
        workload = cluster.controller_of(pod)
        moves = key in strategy and scene.mode != "autoscale" and (workload is None or workload.key not in stuck)
        if not moves:
            found.setdefault(pod.node, set()).update(_bans(marking.marks[key]))
    return {name: frozenset(bans) for name, bans in found.items()}


def _bans(marks: RuleTags) -> Iterator[NodeExclusion]:
    yield from (NodeExclusion("kept_away", rule) for rule in marks.keeps_away)
    yield from (NodeExclusion("keeps_away", rule) for rule in marks.kept_away)
    yield from (NodeExclusion("counted", rule) for rule in marks.counted)


def _daemon_bans(scene: Scene, marking: _Marking) -> dict[str, frozenset[NodeExclusion]]:
    """Return by offer the pods that the daemon sets' pods of a new node keep out."""
    ghosts = [
        (daemon.rules, _bans(_ghost_marks(scene, daemon.key, marking)))
        for daemon in residents_of(scene.cluster).daemons
    ]
    banning = [(rules, frozenset(bans)) for rules, bans in ghosts]
    found: dict[str, frozenset[NodeExclusion]] = {}
    for offer in scene.offers:
        landing = (
            bans
            for rules, bans in banning
            if bans and node_admits(rules, name=offer.name, labels=offer.labels, taints=offer.taints) is None
        )
        found[offer.name] = frozenset[NodeExclusion]().union(*landing)
    return {name: bans for name, bans in found.items() if bans}


def _ghost_marks(scene: Scene, key: str, marking: _Marking) -> RuleTags:
    """Return the marks that a daemon set's next pod will have."""
    workload = scene.cluster.workload(key)
    if workload is None:
        return UNTAGGED
    ghost = Pod(
        name=workload.name,
        uid="",
        namespace=workload.namespace,
        labels=workload.template_labels,
        rules=workload.template_rules,
    )
    terms = required(ghost.rules.anti_affinity)
    mine = {Counted(term_scope(scene.cluster, ghost, term), term.topology_key) for term in terms}
    return RuleTags(
        keeps_away=frozenset(rule for counted, rule in marking.anti_affinities.items() if counted in mine),
        kept_away=frozenset(rule for counted, rule in marking.anti_affinities.items() if selects(counted.scope, ghost)),
        counted=frozenset(rule for counted, rule in marking.spreads.items() if selects(counted.scope, ghost)),
    )
