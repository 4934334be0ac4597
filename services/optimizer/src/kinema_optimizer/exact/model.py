"""An instance small enough to be solved exactly with every rule between pods, and its solution.

Nothing is simplified here: pods may move between kept nodes, and rules count over any topology. Pods that no rule,
request, node or role distinguishes are one class; which of them goes where is settled by name afterwards. A machine is
a set of offers that nothing distinguishes, to be booted as often as there are of them.

A rule is about the state after the plan. A pod that arrives obeys it in full, as kube-scheduler will demand; a pod that
stays breaks no more of it than now. `flaws` checks all of it again, in integers, on a solution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Final, NamedTuple

import numpy as np

from kinema_optimizer.problem.arrays import Pools, stock_left
from kinema_optimizer.problem.instance import UNLIMITED

NOWHERE: Final = -1
"""The domain of a node without the topology's label."""
ALONE: Final = -2
"""The domain of a new node that is a domain by itself, as every host is."""


@dataclass(frozen=True)
class ExactClass:
    """Pods that are alike in every respect but, where they run, their node."""

    pods: tuple[str, ...]
    """Keys, in the order in which pods are chosen."""
    homes: tuple[int, ...]
    """Per pod the live node that it runs on; empty for pending ones."""
    requests: tuple[int, ...]
    """One pod's requests once the plan is executed, in units of the problem's resources."""
    nodes: frozenset[int]
    """Live nodes where one may arrive, room and rules between pods aside."""
    machines: frozenset[int]
    priority: int = 0
    replaced: bool = False
    """Every pod is replaced in any case, because its requests change."""
    rollout: int | None = None
    """The rolling update that replaces these pods together with others, or none of them."""
    disliked_nodes: tuple[int, ...] = ()
    """Weight points that one loses on each live node; empty when they are as well on any node."""
    disliked_machines: tuple[int, ...] = ()
    move_price: int = 0
    """Micro-USD per hour that a plan has to save for each that moves."""

    @property
    def pending(self) -> bool:
        """Whether they run nowhere: only such pods may be left without a place."""
        return not self.homes

    def at(self, node: int) -> int:
        """Return how many run on this live node now."""
        return self.homes.count(node)


@dataclass(frozen=True)
class ExactNode:
    """A live node."""

    name: str
    price: int
    """Micro-USD per hour."""
    room: tuple[int | None, ...]
    """What there is for pods of the kinds, theirs now included; None where nothing limits it; negative: overdrawn."""
    fixed: bool
    """It must stay."""


@dataclass(frozen=True)
class ExactMachine:
    """Offers that nothing distinguishes."""

    offers: tuple[str, ...]
    price: int
    room: tuple[int | None, ...]
    limit: int | None
    """How many can be had; None: no limit."""


@dataclass(frozen=True)
class Topology:
    """A topology: the domain of each live node and machine, numbered from 0, or `NOWHERE`, or `ALONE`."""

    nodes: tuple[int, ...]
    machines: tuple[int, ...]

    @property
    def single(self) -> bool:
        """Whether every node is a domain by itself."""
        return len(set(self.nodes)) == len(self.nodes) and all(machine == ALONE for machine in self.machines)


@dataclass(frozen=True)
class PodCount:
    """The pods that a rule counts, by domain: those of some kinds, and so many others that go with each live node."""

    topology: Topology
    kinds: frozenset[int]
    others: tuple[int, ...]


@dataclass(frozen=True)
class ExactAffinity:
    """Required affinity: a pod with the rule shares the domain of a counted one, or is the only one counted of all."""

    census: PodCount
    owners: tuple[tuple[int, frozenset[int]], ...]
    """Kinds, each with the live nodes whose pods obey the rule now and must when they stay."""
    others: tuple[tuple[int, bool], ...]
    """Pods of no kind that obey it now: their live node, and whether the rule counts themselves."""


@dataclass(frozen=True)
class ExactAntiAffinity:
    """Required anti-affinity, or host ports: a pod with the rule shares its domain with no other counted pod."""

    census: PodCount
    owners: frozenset[int]
    others: tuple[int, ...]
    """Live nodes of pods of no class that have the rule: no counted pod may arrive in their domain."""
    broken: frozenset[int]
    """Domains where it is broken now: pods that are there may stay."""


@dataclass(frozen=True)
class ExactSpread:
    """An enforced topology spread."""

    census: PodCount
    nodes: frozenset[int]
    """Live nodes that make a domain count."""
    machines: frozenset[int]
    max_skew: int
    allowed: int
    """The skew now, where that is larger; no pod may arrive above `max_skew`, though."""
    min_domains: int
    owners: frozenset[int]

    @property
    def doubles(self) -> bool:
        """Whether old copies get in the way of new ones: over zones a pod can follow the one that it replaces."""
        return self.census.topology.single


@dataclass(frozen=True)
class ExactRedundancy:
    """The pods of a workload: on two nodes at least, and in so many zones."""

    nodes: PodCount
    zones: PodCount
    least_zones: int


@dataclass(frozen=True)
class ExactShare:
    """The pods of a workload on spot capacity, or in each spot pool: at most so many."""

    census: PodCount
    most: tuple[int, ...]
    """By domain: the limit, or as many as now, where that is more."""


@dataclass(frozen=True)
class ExactPreference:
    """A preferred affinity term (`near`), or a preferred anti-affinity term."""

    census: PodCount
    owners: frozenset[int]
    weight: int
    """Points that each owner loses that shares its domain with no other counted pod (`near`), or with one."""
    near: bool


@dataclass(frozen=True)
class ExactInstance:
    """Classes of pods, nodes for them, and every rule."""

    kinds: tuple[ExactClass, ...]
    nodes: tuple[ExactNode, ...]
    machines: tuple[ExactMachine, ...]
    pools: Pools
    rollouts: tuple[str, ...]
    """Workloads that move by rolling update."""
    affinities: tuple[ExactAffinity, ...]
    anti_affinities: tuple[ExactAntiAffinity, ...]
    spreads: tuple[ExactSpread, ...]
    homeless: tuple[str, ...]
    """Pending pods that no node and no machine on sale could hold even alone."""
    point_price: int = 0
    """Micro-USD per hour of a weight point of a preference."""
    preferences: tuple[ExactPreference, ...] = ()
    redundancies: tuple[ExactRedundancy, ...] = ()
    shares: tuple[ExactShare, ...] = ()
    priced: bool = False
    """Moves have a price, be it 0: plans that cost nearly as little do not count as equal."""
    doubled: bool = False
    """Spreads over nodes let a pod arrive only where they would also while every old copy is still there."""

    @property
    def choosy(self) -> bool:
        """Whether preferences change a plan's worth."""
        return self.point_price > 0 and bool(self.preferences or any(kind.disliked_nodes for kind in self.kinds))

    @property
    def weighs(self) -> bool:
        """Whether a plan's worth is more than its nodes: preferences or moves have a price."""
        return self.choosy or any(kind.move_price for kind in self.kinds)

    @property
    def worth_unit(self) -> int:
        """Every `worth` is a multiple of this many micro-USD."""
        points = self.point_price if self.choosy else 0
        return gcd(self.price_unit, points, *(kind.move_price for kind in self.kinds))

    @property
    def pods(self) -> int:
        """Pods of all kinds."""
        return sum(len(kind.pods) for kind in self.kinds)

    @cached_property
    def price_unit(self) -> int:
        """Every cost is a multiple of this many micro-USD."""
        return gcd(*(node.price for node in self.nodes), *(machine.price for machine in self.machines)) or 1

    @property
    def fixed_price(self) -> int:
        """What the nodes cost that must stay."""
        return sum(node.price for node in self.nodes if node.fixed)


@dataclass(frozen=True)
class ExactSolution:
    """An answer in counts. Sites are the live nodes, then the new ones, in order."""

    keep: tuple[bool, ...]
    boots: tuple[int, ...]
    """The machine of each new node."""
    stay: tuple[dict[int, int], ...]
    """Per kind: how many stay where they are, by live node."""
    arrive: tuple[dict[int, int], ...]
    """Per kind: how many newly arrive, by site."""
    lost: tuple[int, ...]
    """Per kind: pending pods without a place."""

    def count(self, kind: int, site: int) -> int:
        """Return the pods of the class at the site."""
        return self.stay[kind].get(site, 0) + self.arrive[kind].get(site, 0)


class _World(NamedTuple):
    problem: ExactInstance
    solution: ExactSolution

    @property
    def sites(self) -> list[int]:
        """Sites that remain or are booted."""
        live = [site for site, keep in enumerate(self.solution.keep) if keep]
        return [*live, *range(len(self.solution.keep), len(self.solution.keep) + len(self.solution.boots))]

    def domain(self, topology: Topology, site: int) -> int:
        """Return the domain of a site; hosts that are domains by themselves are numbered below `ALONE`."""
        live = len(self.solution.keep)
        if site < live:
            return topology.nodes[site]
        number = topology.machines[self.solution.boots[site - live]]
        return ALONE - 1 - site if number == ALONE else number

    def counts(self, census: PodCount) -> Counter[int]:
        """Return the pods counted by domain."""
        found: Counter[int] = Counter()
        for site in self.sites:
            here = sum(self.solution.count(kind, site) for kind in census.kinds)
            here += census.others[site] if site < len(self.solution.keep) else 0
            found[self.domain(census.topology, site)] += here
        del found[NOWHERE]
        return found

    def doubled(self, census: PodCount) -> Counter[int]:
        """Return the pods counted by domain when all have arrived and none has left."""
        found: Counter[int] = Counter()
        for kind in census.kinds:
            for home in self.problem.kinds[kind].homes:
                found[self.domain(census.topology, home)] += 1
            for site, count in self.solution.arrive[kind].items():
                found[self.domain(census.topology, site)] += count
        for site, count in enumerate(census.others):
            found[self.domain(census.topology, site)] += count
        del found[NOWHERE]
        return found

    def domains(self, rule: ExactSpread, sites: Iterable[int]) -> set[int]:
        """Return the domains that count for a spread, by these sites."""
        live, boots = len(self.solution.keep), self.solution.boots
        counting = (
            site for site in sites if (site in rule.nodes if site < live else boots[site - live] in rule.machines)
        )
        return {self.domain(rule.census.topology, site) for site in counting}


def cost(problem: ExactInstance, solution: ExactSolution) -> int:
    """Return the price of the nodes kept and booted, micro-USD per hour."""
    kept = sum(node.price for node, keep in zip(problem.nodes, solution.keep, strict=True) if keep)
    return kept + sum(problem.machines[machine].price for machine in solution.boots)


def points(problem: ExactInstance, solution: ExactSolution) -> int:
    """Return the weight points of preferences that pods give up where they are."""
    found = 0
    for index, kind in enumerate(problem.kinds):
        for site in {*solution.stay[index], *solution.arrive[index]} if kind.disliked_nodes else ():
            live = len(problem.nodes)
            new = site >= live
            each = kind.disliked_machines[solution.boots[site - live]] if new else kind.disliked_nodes[site]
            found += each * solution.count(index, site)
    return found + sum(_unmet(problem, solution, preference) * preference.weight for preference in problem.preferences)


def _unmet(problem: ExactInstance, solution: ExactSolution, preference: ExactPreference) -> int:
    """Return how many pods have the preference and do not find it met."""
    world = _World(problem, solution)
    counts, found = world.counts(preference.census), 0
    for kind in preference.owners:
        for site in world.sites:
            others = counts[world.domain(preference.census.topology, site)] - int(kind in preference.census.kinds)
            found += solution.count(kind, site) if (others > 0) != preference.near else 0
    return found


def worth(problem: ExactInstance, solution: ExactSolution) -> int:
    """Return the cost of a solution with lost points and moves at their prices, micro-USD per hour."""
    given_up = points(problem, solution) if problem.choosy else 0
    moving = sum(kind.move_price * _moved(solution, index, kind) for index, kind in enumerate(problem.kinds))
    return cost(problem, solution) + problem.point_price * given_up + moving


def moves(problem: ExactInstance, solution: ExactSolution) -> int:
    """Return how many running pods change their node; one that is replaced on its own node has not moved."""
    return sum(_moved(solution, index, kind) for index, kind in enumerate(problem.kinds))


def _moved(solution: ExactSolution, index: int, kind: ExactClass) -> int:
    return len(kind.homes) - sum(min(kind.at(node), solution.count(index, node)) for node in set(kind.homes))


def restarts(problem: ExactInstance, solution: ExactSolution) -> int:
    """Return how many running pods are replaced on their own node."""
    found = 0
    for index, kind in enumerate(problem.kinds):
        if kind.replaced or kind.rollout is not None:
            arrivals = solution.arrive[index]
            found += sum(min(kind.at(node), arrivals.get(node, 0)) for node in set(kind.homes))
    return found


def updates(problem: ExactInstance, solution: ExactSolution) -> frozenset[str]:
    """Return the workloads that are moved by a rolling update, which replaces their every pod."""
    found = {kind.rollout for kind, arriving in zip(problem.kinds, solution.arrive, strict=True) if arriving}
    return frozenset(workload for number, workload in enumerate(problem.rollouts) if number in found)


def lost_by_priority(problem: ExactInstance, solution: ExactSolution) -> tuple[int, ...]:
    """Return the pods without a place by priority, the highest first."""
    levels = sorted({kind.priority for kind in problem.kinds if kind.pending}, reverse=True)
    pairs = [(kind.priority, lost) for kind, lost in zip(problem.kinds, solution.lost, strict=True)]
    return tuple(sum(lost for priority, lost in pairs if priority == level) for level in levels)


def as_it_is(problem: ExactInstance) -> ExactSolution | None:
    """Return the solution that changes nothing and places no pending pod; None when some pod must be replaced."""
    if any(kind.replaced for kind in problem.kinds):
        return None
    return ExactSolution(
        keep=(True,) * len(problem.nodes),
        boots=(),
        stay=tuple({node: kind.at(node) for node in sorted(set(kind.homes))} for kind in problem.kinds),
        arrive=tuple({} for _ in problem.kinds),
        lost=tuple(len(kind.pods) if kind.pending else 0 for kind in problem.kinds),
    )


def assignment(problem: ExactInstance, solution: ExactSolution) -> dict[str, int | None]:
    """Return the site of every pod, None for those without one; of a class, pods stay where they can, by key."""
    found: dict[str, int | None] = {}
    for index, kind in enumerate(problem.kinds):
        at = {site: solution.count(index, site) for site in sorted({*solution.stay[index], *solution.arrive[index]})}
        waiting = []
        for key, home in zip(kind.pods, kind.homes or (NOWHERE,) * len(kind.pods), strict=True):
            if at.get(home, 0):
                at[home] -= 1
                found[key] = home
            else:
                waiting.append(key)
        seats = [site for site, free in at.items() for _ in range(free)]
        places: list[int | None] = [*seats, *[None] * solution.lost[index]]
        found |= dict(zip(waiting, places, strict=True))
    return dict(sorted(found.items()))


def sufficient(problem: ExactInstance) -> int | None:
    """Return a price (micro-USD per hour) at which all pods can be placed unless rules or limits forbid it.

    Everything is kept, and each pod that needs a new place has a machine of its own. None: one finds no machine.
    """
    price = sum(node.price for node in problem.nodes)
    for kind in problem.kinds:
        if kind.pending or kind.replaced:
            prices = [problem.machines[m].price for m in kind.machines]
            if not prices and not kind.nodes:
                return None
            price += len(kind.pods) * min(prices, default=0)
    return price


def affordable(problem: ExactInstance, machine: int, budget: int | None) -> int:
    """Return how many of a machine a plan can use: one for each pod, as many as there are, as can be paid."""
    chosen = problem.machines[machine]
    most = sum(len(kind.pods) for kind in problem.kinds if machine in kind.machines)
    if chosen.limit is not None:
        most = min(most, chosen.limit)
    if budget is not None and chosen.price:
        most = min(most, max(0, budget - problem.fixed_price) // chosen.price)
    return most


def columns_of(problem: ExactInstance) -> int:
    """Return how many columns the exact model has at the price that suffices, those of rules aside."""
    budget = sufficient(problem)
    copies = [affordable(problem, m, budget) for m in range(len(problem.machines))]
    found = len(problem.nodes) + sum(copies)
    for kind in problem.kinds:
        found += len(kind.nodes) + len(set(kind.homes)) + sum(copies[m] for m in kind.machines)
    return found


def flaws(problem: ExactInstance, solution: ExactSolution) -> tuple[str, ...]:
    """Return every constraint that the solution breaks; nothing when it is a plan for the problem."""
    world = _World(problem, solution)
    found = [*_counts(problem, solution), *_sites(problem, solution)]
    if found:
        return tuple(found)
    found += [*_rooms(problem, solution), *_limits(problem, solution)]
    found += [flaw for rule in problem.affinities for flaw in _affinity_flaws(world, rule)]
    found += [flaw for rule in problem.anti_affinities for flaw in _anti_affinity_flaws(world, rule)]
    found += [flaw for rule in problem.spreads for flaw in _topology_spread_flaws(world, rule)]
    found += ["a workload loses its redundancy" for rule in problem.redundancies if not _is_redundant(world, rule)]
    found += ["spot capacity holds more of a workload than it may" for rule in problem.shares if _exceeds(world, rule)]
    return tuple(found)


def _counts(problem: ExactInstance, solution: ExactSolution) -> Iterator[str]:
    for index, kind in enumerate(problem.kinds):
        stay, arrive, lost = solution.stay[index], solution.arrive[index], solution.lost[index]
        if min([lost, *stay.values(), *arrive.values()]) < 0:
            yield "a count is negative"
        if lost and not kind.pending:
            yield "a running pod is left without a place"
        if sum(stay.values()) + sum(arrive.values()) + lost != len(kind.pods):
            yield "pods are lost or placed twice"
        if any(count > kind.at(node) for node, count in stay.items()):
            yield "more pods stay than there are"
        if kind.replaced and any(stay.values()):
            yield "a pod that is replaced stays"
    for rollout in range(len(problem.rollouts)):
        members = [index for index, kind in enumerate(problem.kinds) if kind.rollout == rollout]
        stays = sum(sum(solution.stay[index].values()) for index in members)
        if 0 < stays < sum(len(problem.kinds[index].pods) for index in members):
            yield "a rolling update replaces a part of its workload"


def _sites(problem: ExactInstance, solution: ExactSolution) -> Iterator[str]:
    if any(node.fixed and not keep for node, keep in zip(problem.nodes, solution.keep, strict=True)):
        yield "a node that must stay is deleted"
    live = len(problem.nodes)
    for index, kind in enumerate(problem.kinds):
        for site, count in solution.arrive[index].items():
            admits = site in kind.nodes if site < live else solution.boots[site - live] in kind.machines
            if count and not admits:
                yield "a site takes pods that it does not admit"
        used = {site for site in {*solution.stay[index], *solution.arrive[index]} if solution.count(index, site)}
        if any(site < live and not solution.keep[site] for site in used):
            yield "a deleted node holds pods"
    for site in range(live, live + len(solution.boots)):
        if not any(solution.count(index, site) for index in range(len(problem.kinds))):
            yield "a node is booted for no pod"


def _rooms(problem: ExactInstance, solution: ExactSolution) -> Iterator[str]:
    live = len(problem.nodes)
    for site in _World(problem, solution).sites:
        room = problem.nodes[site].room if site < live else problem.machines[solution.boots[site - live]].room
        for r, free in enumerate(room):
            loads = [(kind.requests[r], index) for index, kind in enumerate(problem.kinds)]
            wanted = sum(load * solution.count(index, site) for load, index in loads)
            asked = sum(load * solution.arrive[index].get(site, 0) for load, index in loads)
            if free is not None and asked and wanted > free:
                yield "a site is overfull"


def _limits(problem: ExactInstance, solution: ExactSolution) -> Iterator[str]:
    available = [UNLIMITED if machine.limit is None else machine.limit for machine in problem.machines]
    booted = np.bincount(solution.boots, minlength=len(available))
    if (stock_left(np.array(available, dtype=np.int64), problem.pools, booted) < 0).any():
        yield "more machines are booted than there are"


def _affinity_flaws(world: _World, rule: ExactAffinity) -> Iterator[str]:
    counts = world.counts(rule.census)

    def alone(site: int, *, itself: bool) -> bool:
        domain = world.domain(rule.census.topology, site)
        if domain == NOWHERE:
            return True
        return counts[domain] <= int(itself) and not (itself and counts.total() == 1)

    for kind, homes in rule.owners:
        itself = kind in rule.census.kinds
        bound = {site for site, count in world.solution.arrive[kind].items() if count}
        bound |= {site for site, count in world.solution.stay[kind].items() if count and site in homes}
        if any(alone(site, itself=itself) for site in bound):
            yield "a pod is without those that it needs"
    for node, itself in rule.others:
        if world.solution.keep[node] and alone(node, itself=itself):
            yield "a pod that may not move is left without those that it needs"


def _anti_affinity_flaws(world: _World, rule: ExactAntiAffinity) -> Iterator[str]:
    topology, counts, arriving = rule.census.topology, world.counts(rule.census), Counter[int]()
    for kind in rule.census.kinds:
        for site, count in world.solution.arrive[kind].items():
            arriving[world.domain(topology, site)] += count
    del arriving[NOWHERE]
    for kind in rule.owners:
        own = int(kind in rule.census.kinds)
        for site, count in world.solution.arrive[kind].items():
            if count and counts[world.domain(topology, site)] > own:
                yield "a pod arrives where those are that it keeps away"
        for site, count in world.solution.stay[kind].items():
            if count and arriving[world.domain(topology, site)]:
                yield "a pod arrives where it is kept away"
    if any(world.solution.keep[node] and arriving[topology.nodes[node]] for node in rule.others):
        yield "a pod arrives where one that may not move keeps it away"


def _topology_spread_flaws(world: _World, rule: ExactSpread) -> Iterator[str]:
    counts, domains = world.counts(rule.census), world.domains(rule, world.sites)
    if domains and max(counts[domain] for domain in domains) - _fewest(rule, counts, domains) > rule.allowed:
        yield "pods are spread less evenly than a rule allows"
    if _crowded(world, rule, counts, domains):
        yield "a pod arrives where there are too many already"
    every = range(len(world.solution.keep) + len(world.solution.boots))
    doubled = world.problem.doubled and rule.doubles
    if doubled and _crowded(world, rule, world.doubled(rule.census), world.domains(rule, every)):
        yield "a pod arrives where there are too many already until the old copies have gone"


def _is_redundant(world: _World, rule: ExactRedundancy) -> bool:
    nodes, zones = (sum(count > 0 for count in world.counts(one).values()) for one in (rule.nodes, rule.zones))
    return nodes > 1 and zones >= rule.least_zones


def _exceeds(world: _World, rule: ExactShare) -> bool:
    return any(count > rule.most[domain] for domain, count in world.counts(rule.census).items())


def _fewest(rule: ExactSpread, counts: Counter[int], domains: set[int]) -> int:
    return 0 if len(domains) < rule.min_domains else min(counts[domain] for domain in domains)


def _crowded(world: _World, rule: ExactSpread, counts: Counter[int], domains: set[int]) -> bool:
    """Return whether a pod that holds the rule arrives where it would be above the skew."""
    if not domains:
        return False
    most = _fewest(rule, counts, domains) + rule.max_skew
    arriving = ((site, count) for kind in rule.owners for site, count in world.solution.arrive[kind].items())
    return any(count and counts[world.domain(rule.census.topology, site)] > most for site, count in arriving)
