"""The rows of the exact model for rules between pods; what each rule says is told in `logic.tiny`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kinema_optimizer.adapters.exact_layout import ExactLayout, Sum, column, total
from kinema_optimizer.logic.tiny import Apart, Census, Even, Near

Pods: TypeAlias = Callable[[int, int], Sum]
"""Pods of a kind at a site: all of them, or those that arrive."""


def add_rules(layout: ExactLayout) -> None:
    """Add the rows of every rule."""
    for near in layout.problem.near:
        _near(layout, near)
    for apart in layout.problem.apart:
        _apart(layout, apart)
    for even in layout.problem.even:
        _even(layout, even)


def _most(layout: ExactLayout, census: Census) -> float:
    """More than a rule can ever count."""
    pods = sum(len(layout.problem.kinds[kind].pods) for kind in census.kinds)
    return float(max(1, pods + sum(census.others)))


def _arriving(layout: ExactLayout, kinds: frozenset[int], sites: Sequence[int]) -> Sum:
    return total(layout.arrivals(kind, site) for kind in sorted(kinds) for site in sites)


def _staying(layout: ExactLayout, kind: int, sites: Sequence[int]) -> Sum:
    return total(layout.stayers(kind, site) for site in sites)


# --- affinity


def _near(layout: ExactLayout, rule: Near) -> None:
    """Whoever must obey shares its domain with somebody counted besides itself, or is the only one counted."""
    domains = layout.domains(rule.census.zoning)
    counted = [layout.counted(rule.census, sites) for sites in domains]
    itself = any(kind in rule.census.kinds for kind, _ in rule.holders) or any(own for _, own in rule.others)
    only = Sum()
    if itself:
        only = layout.flag()
        most = _most(layout, rule.census)
        layout.row(total(counted).add(only, most - 1.0), upper=most)
    for sites, count in zip(domains, counted, strict=True):
        for kind, homes in rule.holders:
            bound = _arriving(layout, frozenset({kind}), sites)
            bound.add(_staying(layout, kind, [site for site in sites if site in homes]))
            if bound.terms or bound.constant:
                _in_company(layout, bound, count, only, kind=kind if kind in rule.census.kinds else None)
        for node, own in rule.others:
            if node in sites:
                held = layout.used(node)
                needs = Sum().add(count).add(held, -2.0 if own else -1.0)
                layout.row(needs.add(only) if own else needs, lower=0.0)


def _in_company(layout: ExactLayout, bound: Sum, count: Sum, only: Sum, *, kind: int | None) -> None:
    """Where `bound` pods must obey, `count` has one; `kind`, when the rule counts them: another one, or `only` they."""
    if kind is None:
        most = bound.constant + sum(layout.model.uppers[c] * max(0.0, value) for c, value in bound.terms.items())
        layout.row(Sum().add(count, most).add(bound, -1.0), lower=0.0)
        return
    there = layout.flag()
    layout.row(Sum().add(bound).add(there, -float(len(layout.problem.kinds[kind].pods))), upper=0.0)
    layout.row(Sum().add(count).add(there, -2.0).add(only), lower=0.0)


# --- anti-affinity and host ports


def _apart(layout: ExactLayout, rule: Apart) -> None:
    """Whoever holds the rule shares its domain with nobody counted, unless both are there and stay."""
    most = _most(layout, rule.census)
    for sites in layout.domains(rule.census.zoning):
        count = layout.counted(rule.census, sites)
        arriving = _arriving(layout, rule.census.kinds, sites)
        for node in rule.others:
            if node in sites and arriving.terms:
                layout.row(Sum().add(arriving).add(layout.used(node), most), upper=most)
        live = [site for site in sites if layout.sites[site].node is not None]
        broken = any(rule.census.zoning.nodes[site] in rule.broken for site in live)
        for kind in sorted(rule.holders):
            if broken:
                _no_worse(layout, rule, kind, sites, most=most)
            else:
                _alone(layout, rule, kind, layout.pods, sites=sites, count=count, most=most)


def _alone(
    layout: ExactLayout, rule: Apart, kind: int, which: Pods, *, sites: Sequence[int], count: Sum, most: float
) -> None:
    """Where pods of the kind are (`which` of them), at most they themselves are counted."""
    here = total(which(kind, site) for site in sites)
    if not here.terms and not here.constant:
        return
    own = float(kind in rule.census.kinds)
    there = layout.flag()
    layout.row(Sum().add(here).add(there, -(1.0 if own else float(len(layout.problem.kinds[kind].pods)))), upper=0.0)
    layout.row(Sum().add(count).add(there, most - own), upper=most)


def _no_worse(layout: ExactLayout, rule: Apart, kind: int, sites: Sequence[int], *, most: float) -> None:
    """In a domain where the rule is broken now: whoever arrives obeys it, and nobody joins those who stay."""
    count = layout.counted(rule.census, sites)
    _alone(layout, rule, kind, layout.arrivals, sites=sites, count=count, most=most)
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


def _even(layout: ExactLayout, rule: Even) -> None:
    """Most less fewest over the domains that count is at most what is allowed, and where somebody arrives, wanted."""
    domains = [
        (sites, counting)
        for sites in layout.domains(rule.census.zoning)
        if (counting := [site for site in sites if _counts(layout, rule, site)])
    ]
    after = [
        _Domain(sites, _exists(layout, counting), layout.counted(rule.census, sites)) for sites, counting in domains
    ]
    fewest = _fewest(layout, rule, after)
    most = _most(layout, rule.census)
    for one in after:
        skew = Sum().add(one.count).add(fewest, -1.0)
        layout.row(skew.add(one.exists, most), upper=most + rule.allowed)
    if rule.allowed > rule.max_skew:
        _land_evenly(layout, rule, after, fewest)
    if layout.problem.doubled and rule.doubles:
        meanwhile = [
            _Domain(sites, _existed(layout, counting), layout.doubled(rule.census, sites))
            for sites, counting in domains
        ]
        _land_evenly(layout, rule, meanwhile, _fewest(layout, rule, meanwhile))


def _fewest(layout: ExactLayout, rule: Even, domains: Sequence[_Domain]) -> Sum:
    """A new column: no more than the fewest pods of any domain; none where there are too few domains."""
    most = 2 * _most(layout, rule.census)
    fewest = column(layout.model.column(most))
    for one in domains:
        layout.row(Sum().add(one.count).add(fewest, -1.0).add(one.exists, -most), lower=-most)
    if rule.min_domains > 1:
        enough = layout.flag()
        layout.row(total(one.exists for one in domains).add(enough, -float(rule.min_domains)), lower=0.0)
        layout.row(Sum().add(fewest).add(enough, -most), upper=0.0)
    return fewest


def _land_evenly(layout: ExactLayout, rule: Even, domains: Sequence[_Domain], fewest: Sum) -> None:
    """Where somebody arrives who holds the rule, there are at most `max_skew` more than the fewest."""
    most = 2 * _most(layout, rule.census)
    for one in domains:
        arriving = _arriving(layout, rule.holders, one.sites)
        if arriving.terms:
            lands = layout.flag()
            pods = sum(len(layout.problem.kinds[kind].pods) for kind in rule.holders)
            layout.row(arriving.add(lands, -float(pods)), upper=0.0)
            skew = Sum().add(one.count).add(fewest, -1.0)
            layout.row(skew.add(lands, most), upper=most + rule.max_skew)


def _existed(layout: ExactLayout, sites: Sequence[int]) -> Sum:
    """Whether the domain has a node that counts as long as no node has gone."""
    alive = any(layout.sites[site].node is not None for site in sites)
    return Sum(constant=1.0) if alive else _exists(layout, sites)


def _counts(layout: ExactLayout, rule: Even, site: int) -> bool:
    one = layout.sites[site]
    return one.node in rule.nodes if one.node is not None else one.machine in rule.machines


def _exists(layout: ExactLayout, sites: Sequence[int]) -> Sum:
    """Whether the domain has a node that counts."""
    if any(layout.sites[site].used is None for site in sites):
        return Sum(constant=1.0)
    if len(sites) == 1:
        return layout.used(sites[0])
    exists = layout.flag()
    for site in sites:
        layout.row(Sum().add(exists).add(layout.used(site), -1.0), lower=0.0)
    layout.row(Sum().add(exists).add(total(layout.used(site) for site in sites), -1.0), upper=0.0)
    return exists
