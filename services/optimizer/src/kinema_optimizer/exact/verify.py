"""Every constraint of the exact instance again, in integers, on a solution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kinema_optimizer.exact.model import (
    ALONE,
    NOWHERE,
    ExactAffinity,
    ExactAntiAffinity,
    ExactInstance,
    ExactSolution,
    ExactSpread,
    PodCount,
    Topology,
)


def flaws(problem: ExactInstance, solution: ExactSolution) -> tuple[str, ...]:
    """Every constraint that the solution breaks; empty when it is a plan for the problem."""
    world = _World(problem, solution)
    found = [*_counts(problem, solution), *_sites(problem, solution)]
    if found:
        return tuple(found)
    found += [*_rooms(problem, solution), *_limits(problem, solution)]
    found += [flaw for rule in problem.affinities for flaw in _affinity_flaws(world, rule)]
    found += [flaw for rule in problem.anti_affinities for flaw in _anti_affinity_flaws(world, rule)]
    found += [flaw for rule in problem.spreads for flaw in _topology_spread_flaws(world, rule)]
    return tuple(found)


class _World(NamedTuple):
    problem: ExactInstance
    solution: ExactSolution

    @property
    def sites(self) -> list[int]:
        """Sites that remain or are booted."""
        live = [site for site, keep in enumerate(self.solution.keep) if keep]
        return [*live, *range(len(self.solution.keep), len(self.solution.keep) + len(self.solution.boots))]

    def domain(self, topology: Topology, site: int) -> int:
        """The domain of a site; hosts that are domains by themselves are numbered below `ALONE`."""
        live = len(self.solution.keep)
        if site < live:
            return topology.nodes[site]
        number = topology.machines[self.solution.boots[site - live]]
        return ALONE - 1 - site if number == ALONE else number

    def counts(self, census: PodCount) -> Counter[int]:
        """Pods counted by domain."""
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
        """The domains that count for a spread, by these sites."""
        live, boots = len(self.solution.keep), self.solution.boots
        counting = (
            site for site in sites if (site in rule.nodes if site < live else boots[site - live] in rule.machines)
        )
        return {self.domain(rule.census.topology, site) for site in counting}


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
    if any(place.fixed and not keep for place, keep in zip(problem.places, solution.keep, strict=True)):
        yield "a node that must stay is deleted"
    live = len(problem.places)
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
    live = len(problem.places)
    for site in _World(problem, solution).sites:
        room = problem.places[site].room if site < live else problem.machines[solution.boots[site - live]].room
        for r, free in enumerate(room):
            loads = [(kind.requests[r], index) for index, kind in enumerate(problem.kinds)]
            wanted = sum(load * solution.count(index, site) for load, index in loads)
            asked = sum(load * solution.arrive[index].get(site, 0) for load, index in loads)
            if free is not None and asked and wanted > free:
                yield "a site is overfull"


def _limits(problem: ExactInstance, solution: ExactSolution) -> Iterator[str]:
    booted = Counter(solution.boots)
    over = any(machine.limit is not None and booted[m] > machine.limit for m, machine in enumerate(problem.machines))
    if over or any(sum(booted[m] for m in members) > limit for members, limit in problem.pools):
        yield "more machines are booted than there are"


def _affinity_flaws(world: _World, rule: ExactAffinity) -> Iterator[str]:
    counts = world.counts(rule.census)

    def alone(site: int, *, itself: bool) -> bool:
        place = world.domain(rule.census.topology, site)
        if place == NOWHERE:
            return True
        return counts[place] <= int(itself) and not (itself and counts.total() == 1)

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
    if domains and max(counts[place] for place in domains) - _fewest(rule, counts, domains) > rule.allowed:
        yield "pods are spread less evenly than a rule allows"
    if _crowded(world, rule, counts, domains):
        yield "a pod arrives where there are too many already"
    every = range(len(world.solution.keep) + len(world.solution.boots))
    doubled = world.problem.doubled and rule.doubles
    if doubled and _crowded(world, rule, world.doubled(rule.census), world.domains(rule, every)):
        yield "a pod arrives where there are too many already until the old copies have gone"


def _fewest(rule: ExactSpread, counts: Counter[int], domains: set[int]) -> int:
    return 0 if len(domains) < rule.min_domains else min(counts[place] for place in domains)


def _crowded(world: _World, rule: ExactSpread, counts: Counter[int], domains: set[int]) -> bool:
    """Whether a pod that holds the rule arrives where it would be above the skew."""
    if not domains:
        return False
    most = _fewest(rule, counts, domains) + rule.max_skew
    arriving = ((site, count) for kind in rule.owners for site, count in world.solution.arrive[kind].items())
    return any(count and counts[world.domain(rule.census.topology, site)] > most for site, count in arriving)
