"""Down-scaling by thresholds on the whole cluster and usable resources.

Source: the cluster-threshold thesis, chapter 4. A node may go when the requests of the others, over the usable capacity
that is left, stay below a threshold for every resource. The order of checks is the thesis's: a linear filter on plain
capacity with a delay, then bin packing, then a linear check on usable capacity. What is in use counts as usable (its
prose; the pseudo-code's zero is a slip). New nodes for pending pods are the Cluster Autoscaler's, as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

import numpy as np

from kinema_core.events import FrozenMap
from kinema_core.model.power import watts_by_type
from kinema_optimizer.policies.cluster_autoscaler import ClusterAutoscaler, has_removable_pods
from kinema_optimizer.policies.first_fit import by_size, place_in_order
from kinema_optimizer.policies.policy import Outcome, Tick, earliest
from kinema_optimizer.policies.proposal import Step, proposal
from kinema_optimizer.policies.world import World, bind
from kinema_optimizer.request.usable import Fill, Ratio, UsableResources, fill_of

CANDIDATE: Final = "candidate/"
"""What is remembered: since when each node has been a candidate."""
USABLE: Final = UsableResources(
    max_percent={"cpu": 80, "memory": 80},
    min_free={"cpu": "100m", "memory": "400M"},
    ratios=(
        Ratio(resource="cpu", most="3600m", per="memory", amount="1G"),
        Ratio(resource="memory", most="20G", per="cpu", amount="1"),
    ),
)
"""The thesis gives usability thresholds (figure 4.1) and leaves the thresholds of utilization to the operator."""
PLAIN: Final = UsableResources(max_percent=USABLE.max_percent)
"""The same thresholds on capacity as it is: what the notion of usable resources is to improve on."""


@dataclass(frozen=True)
class ClusterThreshold:
    """Its settings.

    Attributes:
        name: what it is called in reports.
        rule: thresholds and usability thresholds.
        delay_seconds: how long a node has to be a candidate.
        dearest_by: of several nodes that may go, the one that costs most, or draws most power.
        period_seconds: time between two ticks.
    """

    name: str = "cluster-threshold"
    rule: UsableResources = USABLE
    delay_seconds: float = 600.0
    dearest_by: Literal["cost", "energy"] = "cost"
    period_seconds: float = 10.0
    growth: ClusterAutoscaler = field(default_factory=ClusterAutoscaler)

    def tick(self, tick: Tick) -> Outcome:
        """Return new nodes for pending pods, else at most one node less."""
        world = tick.world()
        steps = self.growth.scale_up(world, most=1)
        found = [CANDIDATE + world.sites[index].name for index in candidates(world, self.rule)]
        since: dict[str, datetime] = {key: tick.held_since(key) for key in found}
        if not steps:
            steps = self._remove_one(world, tick)
        due = earliest(*(at + timedelta(seconds=self.delay_seconds) for at in since.values()), after=tick.now)
        return Outcome(proposal(world, steps, name=self.name), since, due)

    def _remove_one(self, world: World, tick: Tick) -> list[Step]:
        final = [
            index
            for index in candidates(world, self.rule)
            if tick.has_lasted(CANDIDATE + world.sites[index].name, self.delay_seconds) and self.may_go(world, index)
        ]
        rate = self._rates(world, tick)
        for index in sorted(final, key=lambda index: (-rate[world.sites[index].name], world.sites[index].name)):
            mark = world.mark()
            pods = world.evict((index,))
            if not bind(world, pods, "least-allocated") and not world.deserted():
                return [Step("drain", removed=(world.sites[index].name,), evictions=len(pods))]
            world.back_to(mark)
        return []

    def _rates(self, world: World, tick: Tick) -> Mapping[str, int]:
        """Return what each live node costs by the hour, or draws."""
        if self.dearest_by == "cost":
            return {site.name: site.price for site in world.sites}
        watts = watts_by_type(tick.cluster, tick.offers)
        return {site.name: watts[site.machine] for site in world.sites}

    def may_go(self, world: World, index: int) -> bool:
        """Return whether the node's pods fit on the others, which then stay below the thresholds of usable capacity."""
        mark = world.mark()
        allowed = world.alive.copy()
        allowed[index] = False
        pods = list(world.sites[index].pods)
        ordered = [pod for _, keys in by_size(world, pods, world.total[index]) for pod in keys]
        for pod in ordered:
            world.unplace(pod)
        left, _ = place_in_order(world, ordered, allowed)
        world.remove(index)
        valid = not left and not world.deserted()
        fills = usable_part(world, self.rule) if valid else {}
        world.back_to(mark)
        return valid and below(fills, self.rule)


def usable_part(world: World, rule: UsableResources) -> Mapping[str, Fill]:
    """Return requests and usable capacity of the nodes that are there, by resource."""
    nodes = []
    for index in world.live():
        has = world.sites[index].allocatable
        asked = dict(zip(world.resources, (world.total[index] - world.free[index]).tolist(), strict=True))
        nodes.append((has, FrozenMap({name: asked.get(name, 0) for name in rule.resources})))
    return fill_of(nodes, rule)


def below(fills: Mapping[str, Fill], rule: UsableResources) -> bool:
    """Return whether every resource is below its threshold; nothing is below it where nothing is usable."""
    return all(100 * fills[name].requested < most * fills[name].usable for name, most in rule.max_percent.items())


def candidates(world: World, rule: UsableResources) -> list[int]:
    """Return the nodes that pass the linear filter, by index: without them, capacity as it is stays below thresholds.

    A last node never does: no capacity is left without it.
    """
    names = [name for name in rule.max_percent if name in world.resources]
    columns = [world.resources.index(name) for name in names]
    most = np.array([rule.max_percent[name] for name in names], dtype=np.int64)
    live = world.live()
    total, used = world.total[live][:, columns], (world.total - world.free)[live][:, columns]
    daemons = np.array([_daemons(world, index, columns) for index in live], dtype=np.int64).reshape(total.shape)
    left, asked = total.sum(axis=0) - total, used.sum(axis=0) - daemons
    passes = (100 * asked < most * left).all(axis=1)
    return [index for index, ok in zip(live, passes.tolist(), strict=True) if ok and has_removable_pods(world, index)]


def _daemons(world: World, index: int, columns: list[int]) -> list[int]:
    """Return what goes with the node: what it has taken of its allocatable without any pod that could move."""
    site = world.sites[index]
    return [
        site.allocatable.get(name, 0) - site.room.get(name, 0) if name in site.room else 0
        for name in (world.resources[column] for column in columns)
    ]
