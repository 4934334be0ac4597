"""Spot shares as a reduced rule between pods: `with_spot_limits` names the spot pools that each pod may be in.

The limits of a workload (`kinema_core.model.spot_share`) become demands of its pods, so that however they are packed
none is exceeded: pods on spot capacity may stay on it, as many others as the share leaves may come, and the rest may
not. Where a pool has a limit of its own, the pods that may be on spot capacity are divided into groups of at most so
many, and no two groups have a pool in common. A group has the pool that its pods are in; the others are dealt out,
zone by zone, the cheapest first.

Where the pods of a workload are alike, it does not matter which of them are on demand: those that a share keeps there
stand for as many in any plan, and the bound knows of them (`TopologyDemand.on_demand`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from kinema_core.events import Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.machines import machine_type, zone_in
from kinema_core.model.mobility import MobilityOptions
from kinema_core.model.spot_share import (
    SpotLimits,
    SpotPool,
    counted_pods,
    limits_spot,
    live_pool,
    spot_limits_of,
)
from kinema_optimizer.problem.admission import Site
from kinema_optimizer.problem.arrays import Flags
from kinema_optimizer.problem.rules.reduce import Scene
from kinema_optimizer.problem.rules.reduced import NO_DEMAND, UNTAGGED, ReducedRules, TopologyDemand

_NONE: frozenset[SpotPool] = frozenset()


def pool_of_site(site: Site) -> SpotPool | None:
    """Return the spot pool of a node or an offer; None where it is no spot capacity."""
    return SpotPool(machine_type(site.labels), zone_in(site.labels)) if site.spot else None


def open_by_pools(sites: Sequence[Site], pools: frozenset[SpotPool]) -> Flags:
    """(S,): sites that are no spot capacity, or of one of these pools."""
    return np.array([(pool := pool_of_site(site)) is None or pool in pools for site in sites], dtype=bool)


def with_spot_limits(
    ties: ReducedRules, scene: Scene, options: MobilityOptions, *, prices: Sequence[int]
) -> ReducedRules:
    """Return the reduced rules with the spot pools of each pod that a limit concerns.

    Args:
        ties: the rules without.
        scene: cluster and market.
        options: with the operator's shares.
        prices: micro-USD per hour of each site.
    """
    cluster, admission = scene.cluster, scene.market.admission
    spot = np.array([site.spot for site in scene.market.sites], dtype=bool)
    if not spot.any() or not limits_spot(cluster, options):
        return ties
    found: dict[str, TopologyDemand] = {}
    every = _cheapest_first(scene.market.sites, prices)
    for workload in sorted(cluster.pods_by_workload):
        limits = spot_limits_of(cluster, workload, options)
        pods = () if limits is None else counted_pods(cluster, workload)
        able = [pod for pod in pods if _comes(scene, pod) and (admission.vector(admission.row(pod)) & spot).any()]
        if limits is not None and able:
            division = _Division(cluster, limits, every)
            kept = division.kept(pods, able) if _are_alike(ties, scene, workload, able) else frozenset()
            for key, pools in division.pools(pods, able).items():
                found[key] = ties.needs.get(key, NO_DEMAND)._replace(pools=pools, on_demand=key in kept)
    return replace(ties, needs=MappingProxyType({**ties.needs, **found}))


def _comes(scene: Scene, pod: Pod) -> bool:
    """Return whether a plan may bring the pod to another node."""
    if pod.node is None:
        return pod.key not in scene.facts.held
    return scene.mode != "autoscale" and pod.key in scene.facts.strategy


def _are_alike(ties: ReducedRules, scene: Scene, workload: str, pods: Sequence[Pod]) -> bool:
    """Return whether any of these pods could be in the place of any other, so that it does not matter which are where.

    Each runs, moves by itself, and has a node to which the others could come.
    """
    admission, index = scene.market.admission, {site.name: e for e, site in enumerate(scene.nodes)}
    row, grouped = admission.row(pods[0]), {key for group in ties.groups for key in group.pods}
    return workload not in scene.market.resized and all(
        pod.node is not None
        and scene.facts.strategy[pod.key] != "rolling"
        and (pod.requests, pod.rules.host_ports) == (pods[0].requests, pods[0].rules.host_ports)
        and admission.row(pod) == row
        and admission.vector(row)[index[pod.node]]
        and min(scene.nodes[index[pod.node]].room.values(), default=0) >= 0
        and ties.marks.get(pod.key, UNTAGGED) == UNTAGGED
        and pod.key not in grouped
        for pod in pods
    )


def _cheapest_first(sites: Sequence[Site], prices: Sequence[int]) -> tuple[SpotPool, ...]:
    """Return the spot pools of sites by what a core costs there."""
    found: dict[SpotPool, int] = {}
    for site, price in zip(sites, prices, strict=True):
        pool = pool_of_site(site)
        if pool is not None:
            each = 1000 * price // max(1, site.room.get("cpu", 0))
            found[pool] = min(each, found.get(pool, each))
    return tuple(sorted(found, key=lambda pool: (found[pool], pool)))


@dataclass
class _Division:
    """Division of one workload's pods among the spot pools."""

    cluster: Cluster
    limits: SpotLimits
    every: Sequence[SpotPool]
    """The pools, the cheapest first."""

    def kept(self, pods: Sequence[Pod], able: Sequence[Pod]) -> frozenset[str]:
        """Return those of the pods that could be on spot capacity for which the share has no place there, by key."""
        there, coming = self._split(pods, able)
        return frozenset(coming[max(0, self.limits.total - len(there)) :])

    def _split(self, pods: Sequence[Pod], able: Sequence[Pod]) -> tuple[dict[str, SpotPool], list[str]]:
        """Return the pods on spot capacity with their pools, and those that could come there."""
        pool_of = live_pool(self.cluster)
        there = {pod.key: pool for pod in pods if (pool := pool_of(pod.node or "")) is not None}
        return there, sorted(pod.key for pod in able if pod.key not in there)

    def pools(self, pods: Sequence[Pod], able: Sequence[Pod]) -> dict[str, frozenset[SpotPool]]:
        """Return the pools in which each of the pods may be that could be on spot capacity, by key."""
        there, coming = self._split(pods, able)
        groups, divided = self._groups(there, coming[: max(0, self.limits.total - len(there))])
        found = dict.fromkeys((pod.key for pod in able), _NONE)
        for keys, own in zip(groups, divided, strict=True):
            found |= {key: own for key in keys if key in found}
        return found

    def _groups(
        self, there: Mapping[str, SpotPool], coming: Sequence[str]
    ) -> tuple[list[list[str]], list[frozenset[SpotPool]]]:
        """Return groups of pods, and the pools of each."""
        held = Counter(there.values())
        if self.limits.pool >= max(self.limits.total, len(there)):
            return [[*there, *coming]], [frozenset(self.every)]
        mine: list[set[SpotPool]] = [{pool} for pool in sorted(held)]
        groups = [[key for key, at in there.items() if at == pool] for pool in sorted(held)]
        for key in coming:
            roomy = [one for one in groups if len(one) < self.limits.pool]
            if not roomy and len(groups) < len(self.every):
                groups.append([])
                mine.append(set())
                roomy = groups[-1:]
            if roomy:
                roomy[0].append(key)
        open_ = [n for n, one in enumerate(groups) if len(one) <= self.limits.pool]
        for pool in self.every if open_ else ():
            if pool not in held:
                poorest = min(open_, key=lambda n: (sum(one.zone == pool.zone for one in mine[n]), len(mine[n]), n))
                mine[poorest].add(pool)
        return groups, [frozenset(one) for one in mine]
