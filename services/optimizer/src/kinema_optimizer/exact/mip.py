"""The exact model: columns, rows for room and for rules between pods, and its objectives.

Columns count how many pods of each class stay, arrive or are left out, and say which nodes there are. Copies of one
machine are alike, and so are pods of one class; neither may multiply the search. So pods are counted by class, and no
copy is booted before the one in front of it. Measured on 200 instances, stronger orders of the copies (by load, or by
the first class on each) make the search slower. `exact.model` says what each rule demands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.exact.model import (
    ALONE,
    NOWHERE,
    ExactAffinity,
    ExactAntiAffinity,
    ExactClass,
    ExactInstance,
    ExactPreference,
    ExactRedundancy,
    ExactShare,
    ExactSolution,
    ExactSpread,
    PodCount,
    Topology,
    affordable,
)
from kinema_optimizer.solvers.mip import Model

_N = TypeVar("_N")
_M = TypeVar("_M")


@dataclass
class Sum:
    """A linear expression over columns."""

    terms: dict[int, float] = field(default_factory=dict)
    constant: float = 0.0

    def add(self, other: Sum, factor: float = 1.0) -> Sum:
        """Add a multiple of another one to this one, and return this one."""
        for column, value in other.terms.items():
            self.terms[column] = self.terms.get(column, 0.0) + factor * value
        self.constant += factor * other.constant
        return self


def column(index: int, factor: float = 1.0) -> Sum:
    """Return a multiple of one column."""
    return Sum({index: factor})


def total(parts: Iterable[Sum]) -> Sum:
    """Return the sum of expressions."""
    found = Sum()
    for part in parts:
        found.add(part)
    return found


@dataclass(frozen=True)
class Site:
    """A live node, or a new node that may be booted."""

    used: int | None
    """The column that says whether it remains or is booted; None: it must stay."""
    node: int | None
    machine: int | None

    def of(self, nodes: Sequence[_N], machines: Sequence[_M]) -> _N | _M:
        """Return the entry of its live node, or of its machine."""
        return nodes[self.node] if self.node is not None else machines[self.machine or 0]

    def is_in(self, nodes: frozenset[int], machines: frozenset[int]) -> bool:
        """Return whether its live node, or its machine, is among these."""
        return self.node in nodes if self.node is not None else self.machine in machines


@dataclass(frozen=True, eq=False)
class ExactLayout:
    """A model of an instance, rules between pods aside, and what its columns stand for."""

    problem: ExactInstance
    model: Model
    sites: tuple[Site, ...]
    """Live nodes, then possible new ones."""
    arrive: dict[tuple[int, int], int]
    """Column by kind and site."""
    stay: dict[tuple[int, int], int]
    """Column by kind and live node, for pods that move one by one."""
    rolls: tuple[int, ...]
    """Column by rolling update."""
    back: dict[tuple[int, int], int]
    """Column by kind and live node: replaced pods that come back to it."""
    lost: dict[int, int]
    """Column by kind, where pods of it may be left out."""

    def used(self, site: int) -> Sum:
        """Return whether the site is there: 0 or 1."""
        index = self.sites[site].used
        return Sum(constant=1.0) if index is None else column(index)

    def arrivals(self, kind: int, site: int) -> Sum:
        """Return the pods of the class that newly arrive."""
        index = self.arrive.get((kind, site))
        return Sum() if index is None else column(index)

    def stayers(self, kind: int, site: int) -> Sum:
        """Return the pods of the class that stay there."""
        index = self.stay.get((kind, site))
        if index is not None:
            return column(index)
        here = self.problem.kinds[kind]
        if here.rollout is None or self.sites[site].node is None or not here.at(site):
            return Sum()
        return Sum({self.rolls[here.rollout]: -float(here.at(site))}, float(here.at(site)))

    def pods(self, kind: int, site: int) -> Sum:
        """Return the pods of the class at the site."""
        return self.arrivals(kind, site).add(self.stayers(kind, site))

    def counted(self, census: PodCount, sites: Iterable[int]) -> Sum:
        """Return the pods that a rule counts at these sites."""
        found = Sum()
        for site in sites:
            for kind in census.kinds:
                found.add(self.pods(kind, site))
            if self.sites[site].node is not None and census.others[site]:
                found.add(self.used(site), census.others[site])
        return found

    def counted_in_all(self, census: PodCount) -> Sum:
        """Return the pods that a rule counts at all sites: what `_assign` makes of them, in few terms."""
        found = Sum(constant=float(sum(len(self.problem.kinds[kind].pods) for kind in census.kinds)))
        for kind in census.kinds & self.lost.keys():
            found.add(column(self.lost[kind]), -1.0)
        for site, count in enumerate(census.others):
            if count:
                found.add(self.used(site), count)
        return found

    def doubled(self, census: PodCount, sites: Iterable[int]) -> Sum:
        """Return the pods that a rule counts at these sites when all have arrived and none has left."""
        found = Sum()
        for site in sites:
            found.add(total(self.arrivals(kind, site) for kind in census.kinds))
            if self.sites[site].node is not None:
                now = sum(self.problem.kinds[kind].at(site) for kind in census.kinds)
                found.constant += now + census.others[site]
        return found

    def domains(self, topology: Topology) -> list[list[int]]:
        """Return the sites of each domain."""
        found: dict[tuple[str, int], list[int]] = {}
        for index, site in enumerate(self.sites):
            number = site.of(topology.nodes, topology.machines)
            if number == ALONE:
                found["new", index] = [index]
            elif number >= 0:
                found.setdefault(("domain", number), []).append(index)
        return list(found.values())

    def row(self, expression: Sum, *, lower: float | None = None, upper: float | None = None) -> None:
        """Add a row over the expression."""
        bounds = {}
        if lower is not None:
            bounds["lower"] = lower - expression.constant
        if upper is not None:
            bounds["upper"] = upper - expression.constant
        self.model.row([(index, value) for index, value in expression.terms.items() if value], **bounds)

    def flag(self) -> Sum:
        """Add a column that is 0 or 1."""
        return column(self.model.column(1.0))

    def price(self) -> dict[int, float]:
        """Return the objective in price units, without the nodes that must stay."""
        unit, nodes, machines = self.problem.price_unit, self.problem.nodes, self.problem.machines
        return {site.used: site.of(nodes, machines).price / unit for site in self.sites if site.used is not None}

    def gone(self) -> Sum:
        """Return the running pods whose node changes."""
        return total(self.moved(index) for index in range(len(self.problem.kinds)))

    def moved(self, index: int) -> Sum:
        """Return those of one class."""
        kind = self.problem.kinds[index]
        found = Sum(constant=float(len(kind.homes)))
        for node in sorted(set(kind.homes)):
            found.add(self.stayers(index, node), -1.0)
            if (index, node) in self.back:
                found.add(column(self.back[index, node]), -1.0)
        return found

    def solution_of(self, values: NDArray[np.float64]) -> ExactSolution:
        """Return the solution that values of the columns stand for."""
        whole = np.rint(values).astype(np.int64).tolist()
        new = [index for index, site in enumerate(self.sites) if site.node is None and whole[site.used or 0]]
        live = len(self.problem.nodes)
        numbers = {index: index for index in range(live)} | {index: live + n for n, index in enumerate(new)}

        def value(expression: Sum) -> int:
            return round(float(expression.constant + sum(whole[c] * factor for c, factor in expression.terms.items())))

        kinds = range(len(self.problem.kinds))
        return ExactSolution(
            keep=tuple(bool(value(self.used(index))) for index in range(live)),
            boots=tuple(self.sites[index].machine or 0 for index in new),
            stay=tuple(_without_zeros({e: value(self.stayers(kind, e)) for e in range(live)}) for kind in kinds),
            arrive=tuple(
                _without_zeros({number: value(self.arrivals(kind, index)) for index, number in numbers.items()})
                for kind in kinds
            ),
            lost=tuple(value(column(self.lost[kind])) if kind in self.lost else 0 for kind in kinds),
        )


def _without_zeros(found: dict[int, int]) -> dict[int, int]:
    return {site: count for site, count in found.items() if count}


def layout_of(problem: ExactInstance, *, budget: int | None, lost: bool) -> ExactLayout:
    """Return the model without rules between pods.

    Args:
        problem: what to model.
        budget: micro-USD per hour; what costs more is left out. None: no limit.
        lost: pending pods may be left without a place.
    """
    model = Model()
    sites = [Site(None if node.fixed else model.column(1.0), e, None) for e, node in enumerate(problem.nodes)]
    for m in range(len(problem.machines)):
        sites += [Site(model.column(1.0), None, m) for _ in range(affordable(problem, m, budget))]
    rolls = tuple(model.column(1.0) for _ in problem.rollouts)
    arrive, stay, back, left_out = {}, {}, {}, {}
    for index, kind in enumerate(problem.kinds):
        for number, site in enumerate(sites):
            if site.is_in(kind.nodes, kind.machines):
                arrive[index, number] = model.column(_most_pods(problem, kind, site))
        for node in sorted(set(kind.homes)):
            if kind.rollout is None and not kind.replaced:
                stay[index, node] = model.column(float(kind.at(node)))
            elif (index, node) in arrive:
                back[index, node] = model.column(float(kind.at(node)))
        if lost and kind.pending:
            left_out[index] = model.column(float(len(kind.pods)))
    layout = ExactLayout(problem, model, tuple(sites), arrive, stay, rolls, back, left_out)
    _assign(layout)
    _hold(layout)
    _order(layout)
    if budget is not None:
        upper = (budget - problem.fixed_price) // problem.price_unit
        layout.row(Sum(layout.price()), upper=float(upper))
    return layout


def _most_pods(problem: ExactInstance, kind: ExactClass, site: Site) -> float:
    """Return the most pods of the class that the site can hold."""
    room = site.of(problem.nodes, problem.machines).room
    fits = [free // need for need, free in zip(kind.requests, room, strict=True) if need and free is not None]
    return float(max(0, min([len(kind.pods), *fits])))


def _assign(layout: ExactLayout) -> None:
    """Put every pod at one site, or leave it out; no pod is on a node that goes."""
    problem = layout.problem
    for index, kind in enumerate(problem.kinds):
        arriving = total(layout.arrivals(index, site) for site in range(len(layout.sites)))
        if kind.rollout is not None:
            arriving.add(column(layout.rolls[kind.rollout]), -float(len(kind.pods)))
            layout.row(arriving, lower=0.0, upper=0.0)
        else:
            arriving.add(total(column(layout.stay[index, e]) for e in set(kind.homes) if (index, e) in layout.stay))
            if index in layout.lost:
                arriving.add(column(layout.lost[index]))
            layout.row(arriving, lower=float(len(kind.pods)), upper=float(len(kind.pods)))
        for site in range(len(layout.sites)):
            _only_if_used(layout, index, site)
        for node in sorted(set(kind.homes)):
            if (index, node) in layout.back:
                layout.row(column(layout.back[index, node]).add(layout.arrivals(index, node), -1.0), upper=0.0)
                if kind.rollout is not None:
                    returned = column(layout.back[index, node]).add(column(layout.rolls[kind.rollout]), -kind.at(node))
                    layout.row(returned, upper=0.0)


def _only_if_used(layout: ExactLayout, index: int, site: int) -> None:
    if layout.sites[site].used is None:
        return
    for here in (layout.arrivals(index, site), layout.stayers(index, site)):
        if here.terms:
            most = max(layout.model.uppers[c] * abs(factor) for c, factor in here.terms.items())
            layout.row(here.add(layout.used(site), -most), upper=0.0)


def _hold(layout: ExactLayout) -> None:
    """Limit what every site holds. A node that is overdrawn now may stay so while no pod arrives that requests more."""
    problem = layout.problem
    for number, site in enumerate(layout.sites):
        room = site.of(problem.nodes, problem.machines).room
        for r, free in enumerate(room):
            if free is None:
                continue
            kinds = [index for index, kind in enumerate(problem.kinds) if kind.requests[r]]
            loads = {index: float(problem.kinds[index].requests[r]) for index in kinds}
            now = sum(kind.at(number) * kind.requests[r] for kind in problem.kinds) if site.node is not None else 0
            wanted = total(Sum().add(layout.pods(index, number), loads[index]) for index in kinds)
            if not wanted.terms:
                continue
            step = float(max(1, free))
            if now > free:
                takes = layout.flag()
                for index in kinds:
                    here = layout.arrivals(index, number)
                    layout.row(here.add(takes, -float(len(problem.kinds[index].pods))), upper=0.0)
                wanted.add(takes, float(now - free))
                layout.row(Sum().add(wanted, 1 / step), upper=now / step)
            else:
                wanted.add(layout.used(number), -float(free))
                layout.row(Sum().add(wanted, 1 / step), upper=0.0)


def _order(layout: ExactLayout) -> None:
    """Boot a copy for a pod, and after those of its machine in front of it; exceed no pool."""
    kinds = range(len(layout.problem.kinds))
    for number, site in enumerate(layout.sites):
        if site.node is None:
            arriving = total(layout.arrivals(kind, number) for kind in kinds)
            layout.row(arriving.add(layout.used(number), -1.0), lower=0.0)
            if layout.sites[number - 1].machine == site.machine:
                layout.row(layout.used(number - 1).add(layout.used(number), -1.0), lower=0.0)
    for pool in layout.problem.pools:
        each = pool.weights
        shared = [
            (site.used, each[site.machine]) for site in layout.sites if site.machine in each and site.used is not None
        ]
        if sum(amount for _, amount in shared) > pool.limit:
            layout.row(Sum({index: float(amount) for index, amount in shared}), upper=float(pool.limit))


Pods: TypeAlias = Callable[[int, int], Sum]
"""Pods of a kind at a site: all of them, or those that arrive."""


def add_rules(layout: ExactLayout) -> None:
    """Add the rows of every rule."""
    for affinity in layout.problem.affinities:
        _add_affinity(layout, affinity)
    for anti_affinity in layout.problem.anti_affinities:
        _add_anti_affinity(layout, anti_affinity)
    for spread in layout.problem.spreads:
        _add_topology_spread(layout, spread)
    for redundancy in layout.problem.redundancies:
        _add_redundancy(layout, redundancy)
    for share in layout.problem.shares:
        _add_share(layout, share)


def _big_m(layout: ExactLayout, census: PodCount) -> float:
    """Return more than a rule can ever count."""
    pods = sum(len(layout.problem.kinds[kind].pods) for kind in census.kinds)
    return float(max(1, pods + sum(census.others)))


def _arriving(layout: ExactLayout, kinds: frozenset[int], sites: Sequence[int]) -> Sum:
    return total(layout.arrivals(kind, site) for kind in sorted(kinds) for site in sites)


def _staying(layout: ExactLayout, kind: int, sites: Sequence[int]) -> Sum:
    return total(layout.stayers(kind, site) for site in sites)


# --- affinity


def _add_affinity(layout: ExactLayout, rule: ExactAffinity) -> None:
    """Let a pod that must obey share its domain with a counted pod besides itself, or be the only one counted."""
    domains = layout.domains(rule.census.topology)
    counted = [layout.counted(rule.census, sites) for sites in domains]
    itself = any(kind in rule.census.kinds for kind, _ in rule.owners) or any(own for _, own in rule.others)
    only = Sum()
    if itself:
        only = layout.flag()
        most = _big_m(layout, rule.census)
        layout.row(total(counted).add(only, most - 1.0), upper=most)
    for sites, count in zip(domains, counted, strict=True):
        for kind, homes in rule.owners:
            bound = _arriving(layout, frozenset({kind}), sites)
            bound.add(_staying(layout, kind, [site for site in sites if site in homes]))
            if bound.terms or bound.constant:
                _demand_company(layout, bound, count, only, kind=kind if kind in rule.census.kinds else None)
        for node, own in rule.others:
            if node in sites:
                held = layout.used(node)
                needs = Sum().add(count).add(held, -2.0 if own else -1.0)
                layout.row(needs.add(only) if own else needs, lower=0.0)


def _demand_company(layout: ExactLayout, bound: Sum, count: Sum, only: Sum, *, kind: int | None) -> None:
    """Where `bound` pods must obey, demand a counted pod; if they count themselves, another one, or `only` them."""
    if kind is None:
        most = bound.constant + sum(layout.model.uppers[c] * max(0.0, value) for c, value in bound.terms.items())
        layout.row(Sum().add(count, most).add(bound, -1.0), lower=0.0)
        return
    there = layout.flag()
    layout.row(Sum().add(bound).add(there, -float(len(layout.problem.kinds[kind].pods))), upper=0.0)
    layout.row(Sum().add(count).add(there, -2.0).add(only), lower=0.0)


# --- anti-affinity and host ports


def _add_anti_affinity(layout: ExactLayout, rule: ExactAntiAffinity) -> None:
    """Let no pod with the rule share its domain with a counted pod, unless both are there and stay."""
    most = _big_m(layout, rule.census)
    for sites in layout.domains(rule.census.topology):
        count = layout.counted(rule.census, sites)
        arriving = _arriving(layout, rule.census.kinds, sites)
        for node in rule.others:
            if node in sites and arriving.terms:
                layout.row(Sum().add(arriving).add(layout.used(node), most), upper=most)
        live = [site for site in sites if layout.sites[site].node is not None]
        broken = any(rule.census.topology.nodes[site] in rule.broken for site in live)
        for kind in sorted(rule.owners):
            if broken:
                _keep_from_worsening(layout, rule, kind, sites, most=most)
            else:
                _forbid_company(layout, rule, kind, layout.pods, sites=sites, count=count, most=most)


def _forbid_company(
    layout: ExactLayout,
    rule: ExactAntiAffinity,
    kind: int,
    which: Pods,
    *,
    sites: Sequence[int],
    count: Sum,
    most: float,
) -> None:
    """Where pods of the class are (`which` of them), allow no other counted pods."""
    here = total(which(kind, site) for site in sites)
    if not here.terms and not here.constant:
        return
    own = float(kind in rule.census.kinds)
    there = layout.flag()
    layout.row(Sum().add(here).add(there, -(1.0 if own else float(len(layout.problem.kinds[kind].pods)))), upper=0.0)
    layout.row(Sum().add(count).add(there, most - own), upper=most)


def _keep_from_worsening(
    layout: ExactLayout, rule: ExactAntiAffinity, kind: int, sites: Sequence[int], *, most: float
) -> None:
    """In a domain where the rule is broken now, let arriving pods obey it, and let none join those that stay."""
    count = layout.counted(rule.census, sites)
    _forbid_company(layout, rule, kind, layout.arrivals, sites=sites, count=count, most=most)
    staying = _staying(layout, kind, sites)
    arriving = _arriving(layout, rule.census.kinds, sites)
    if arriving.terms and (staying.terms or staying.constant):
        there = layout.flag()
        layout.row(Sum().add(staying).add(there, -float(len(layout.problem.kinds[kind].pods))), upper=0.0)
        layout.row(arriving.add(there, most), upper=most)


# --- spread


@dataclass(frozen=True)
class _Domain:
    """A domain that counts for a spread, at some time."""

    sites: Sequence[int]
    exists: Sum
    count: Sum


def _add_topology_spread(layout: ExactLayout, rule: ExactSpread) -> None:
    """Limit the skew over the domains that count to what is allowed, and where a pod arrives, to what is wanted."""
    domains = [
        (sites, counting)
        for sites in layout.domains(rule.census.topology)
        if (counting := [site for site in sites if layout.sites[site].is_in(rule.nodes, rule.machines)])
    ]
    after = [
        _Domain(sites, _exists(layout, counting), layout.counted(rule.census, sites)) for sites, counting in domains
    ]
    fewest = _fewest(layout, rule, after)
    most = _big_m(layout, rule.census)
    for one in after:
        skew = Sum().add(one.count).add(fewest, -1.0)
        layout.row(skew.add(one.exists, most), upper=most + rule.allowed)
    if rule.allowed > rule.max_skew:
        _limit_skew_at_arrivals(layout, rule, after, fewest)
    if layout.problem.doubled and rule.doubles:
        in_transit = [
            _Domain(sites, _existed(layout, counting), layout.doubled(rule.census, sites))
            for sites, counting in domains
        ]
        _limit_skew_at_arrivals(layout, rule, in_transit, _fewest(layout, rule, in_transit))


def _fewest(layout: ExactLayout, rule: ExactSpread, domains: Sequence[_Domain]) -> Sum:
    """Add a column of at most the fewest pods of any domain, and of none where there are too few domains."""
    most = 2 * _big_m(layout, rule.census)
    fewest = column(layout.model.column(most))
    for one in domains:
        layout.row(Sum().add(one.count).add(fewest, -1.0).add(one.exists, -most), lower=-most)
    if rule.min_domains > 1:
        enough = layout.flag()
        layout.row(total(one.exists for one in domains).add(enough, -float(rule.min_domains)), lower=0.0)
        layout.row(Sum().add(fewest).add(enough, -most), upper=0.0)
    return fewest


def _limit_skew_at_arrivals(layout: ExactLayout, rule: ExactSpread, domains: Sequence[_Domain], fewest: Sum) -> None:
    """Where a pod with the rule arrives, allow at most `max_skew` more than the fewest."""
    most = 2 * _big_m(layout, rule.census)
    for one in domains:
        arriving = _arriving(layout, rule.owners, one.sites)
        if arriving.terms:
            lands = layout.flag()
            pods = sum(len(layout.problem.kinds[kind].pods) for kind in rule.owners)
            layout.row(arriving.add(lands, -float(pods)), upper=0.0)
            skew = Sum().add(one.count).add(fewest, -1.0)
            layout.row(skew.add(lands, most), upper=most + rule.max_skew)


def _existed(layout: ExactLayout, sites: Sequence[int]) -> Sum:
    """Return whether the domain has a node that counts as long as no node has gone."""
    alive = any(layout.sites[site].node is not None for site in sites)
    return Sum(constant=1.0) if alive else _exists(layout, sites)


def _exists(layout: ExactLayout, sites: Sequence[int]) -> Sum:
    """Return whether the domain has a node that counts."""
    if any(layout.sites[site].used is None for site in sites):
        return Sum(constant=1.0)
    if len(sites) == 1:
        return layout.used(sites[0])
    exists = layout.flag()
    for site in sites:
        layout.row(Sum().add(exists).add(layout.used(site), -1.0), lower=0.0)
    layout.row(Sum().add(exists).add(total(layout.used(site) for site in sites), -1.0), upper=0.0)
    return exists


# --- redundancy


def _add_redundancy(layout: ExactLayout, rule: ExactRedundancy) -> None:
    """Leave a pod outside of every node, and one in as many zones as there have to be."""
    every = layout.counted_in_all(rule.nodes)
    for sites in layout.domains(rule.nodes.topology):
        here = layout.counted(rule.nodes, sites)
        if here.terms or here.constant:
            layout.row(Sum().add(every).add(here, -1.0), lower=1.0)
    if rule.least_zones > 1:
        served = []
        for sites in layout.domains(rule.zones.topology):
            served.append(layout.flag())
            layout.row(Sum().add(layout.counted(rule.zones, sites)).add(served[-1], -1.0), lower=0.0)
        layout.row(total(served), lower=float(rule.least_zones))


def _add_share(layout: ExactLayout, rule: ExactShare) -> None:
    """Limit the pods of each domain."""
    topology = rule.census.topology
    for sites in layout.domains(topology):
        most = rule.most[layout.sites[sites[0]].of(topology.nodes, topology.machines)]
        here = layout.counted(rule.census, sites)
        if here.terms:
            layout.row(here, upper=float(most))


def worth(layout: ExactLayout) -> Sum:
    """Return the cost of a solution with lost points and moves priced, in worth units, without nodes that must stay.

    Adds columns and rows: call it once for each model.
    """
    problem = layout.problem
    found = Sum().add(Sum(layout.price()), problem.price_unit / problem.worth_unit)
    if problem.choosy:
        points = total([_disliked(layout), *(_lost_points(layout, preference) for preference in problem.preferences)])
        found.add(points, problem.point_price / problem.worth_unit)
    for index, kind in enumerate(problem.kinds):
        if kind.move_price:
            found.add(layout.moved(index), kind.move_price / problem.worth_unit)
    return found


def _disliked(layout: ExactLayout) -> Sum:
    """Return the points that pods lose by the nodes that they are on."""
    found = Sum()
    for index, kind in enumerate(layout.problem.kinds):
        for number, site in enumerate(layout.sites) if kind.disliked_nodes else ():
            points = site.of(kind.disliked_nodes, kind.disliked_machines)
            if points:
                found.add(layout.pods(index, number), float(points))
    return found


def _lost_points(layout: ExactLayout, preference: ExactPreference) -> Sum:
    """Return the points that pods lose by the pods that they share a domain with, or do not."""
    found = Sum()
    for sites in layout.domains(preference.census.topology):
        for kind in sorted(preference.owners):
            found.add(_unmet(layout, preference, kind, sites), float(preference.weight))
    if preference.near:
        for kind in sorted(preference.owners):
            found.add(total(layout.pods(kind, site) for site in _nowhere(layout, preference)), float(preference.weight))
    return found


def _nowhere(layout: ExactLayout, preference: ExactPreference) -> Sequence[int]:
    topology = preference.census.topology
    return [index for index, site in enumerate(layout.sites) if site.of(topology.nodes, topology.machines) == NOWHERE]


def _unmet(layout: ExactLayout, preference: ExactPreference, kind: int, sites: Sequence[int]) -> Sum:
    """Return how many of the class's pods in the domain the preference does not hold for: all of them or none."""
    here = total(layout.pods(kind, site) for site in sites)
    if not here.terms and not here.constant:
        return Sum()
    pods, own = float(len(layout.problem.kinds[kind].pods)), float(kind in preference.census.kinds)
    count, flag = layout.counted(preference.census, sites), layout.flag()
    unmet = column(layout.model.column(pods))
    if preference.near:  # the flag needs another counted pod, and spares all
        layout.row(Sum().add(count).add(flag, -1.0 - own), lower=0.0)
        layout.row(Sum().add(unmet).add(here, -1.0).add(flag, pods), lower=0.0)
    else:  # another counted pod sets the flag, which takes all
        most = float(
            sum(len(layout.problem.kinds[k].pods) for k in preference.census.kinds) + sum(preference.census.others) + 1
        )
        layout.row(Sum().add(count).add(flag, -most), upper=own)
        layout.row(Sum().add(unmet).add(here, -1.0).add(flag, -pods), lower=-pods)
    return unmet
