"""Policies that look at usage: Trimaran's target load packing, and the metric descheduler.

Source: the Kinema thesis, chapters 4.2 and 5.1, where both are tried and found wanting: the first changes where new
pods go and removes no node, the second evicts pods that the scheduler brings back. Nodes are added by the Cluster
Autoscaler; beside the metric descheduler it also removes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from typing import Final

import numpy as np

from kinema_core.events import Amounts
from kinema_optimizer.policies.cluster_autoscaler import ClusterAutoscaler
from kinema_optimizer.policies.policy import Outcome, Tick, earliest
from kinema_optimizer.policies.proposal import Step, proposal
from kinema_optimizer.policies.world import World, bind

EVICTED: Final = "evicted"
"""What is remembered: when pods were last evicted."""


def target_load_score(predicted: Fraction, target: int) -> Fraction:
    """Return the score of a node from 0 to 100: it rises towards the target utilization and falls steeply beyond it.

    Args:
        predicted: utilization of the node's CPU in per cent with the pod on it.
        target: the utilization that is wanted, in per cent, below 100.
    """
    if predicted <= target:
        return (100 - target) * predicted / target + target
    return target * (100 - predicted) / (100 - target) if predicted <= 100 else Fraction(0)


def cpu_percent(world: World, usage: Mapping[str, Amounts]) -> list[Fraction]:
    """Return the utilization of each node's CPU, by index; pods without a reading use nothing."""
    used = [0] * len(world.sites)
    index_of = {site.name: index for index, site in enumerate(world.sites)}
    for key, amounts in usage.items():
        pod = world.cluster.pod(key)
        if pod is not None and pod.node in index_of:
            used[index_of[pod.node]] += amounts.get("cpu", 0)
    return [Fraction(100 * cpu, int(world.total[index, 0])) for index, cpu in enumerate(used)]


@dataclass(frozen=True)
class Trimaran:
    """Target load packing: waiting pods go where the node's CPU comes closest to the target; no node is removed."""

    name: str = "trimaran"
    target_percent: int = 40
    period_seconds: float = 10.0
    growth: ClusterAutoscaler = field(default_factory=ClusterAutoscaler)

    def tick(self, tick: Tick) -> Outcome:
        """Return places for waiting pods, and nodes for those that have none."""
        world = tick.world()
        percent = cpu_percent(world, tick.usage)
        for pod in sorted(world.waiting(), key=lambda key: (-world.pods[key].priority, key)):
            index = self._best(world, pod, percent)
            if index is not None:
                world.place(pod, index)
                percent[index] += self._share(world, pod, index)
        return Outcome(proposal(world, self.growth.scale_up(world, most=1), name=self.name))

    def _best(self, world: World, pod: str, percent: Sequence[Fraction]) -> int | None:
        takes = np.flatnonzero(world.fits(world.kind_of[pod])).tolist()
        scores = {i: target_load_score(percent[i] + self._share(world, pod, i), self.target_percent) for i in takes}
        return max(takes, key=lambda index: (scores[index], -index), default=None)

    @staticmethod
    def _share(world: World, pod: str, index: int) -> Fraction:
        """Return the pod's request in per cent of the node's CPU."""
        return Fraction(100 * int(world.kinds[world.kind_of[pod]].requests[0]), int(world.total[index, 0]))


@dataclass(frozen=True)
class MetricDescheduler:
    """Evicts all pods of the node with the lowest CPU utilization, beside the Cluster Autoscaler."""

    name: str = "metric-descheduler"
    threshold_percent: int = 30
    interval_seconds: float = 300.0
    period_seconds: float = 10.0
    beside: ClusterAutoscaler = field(default_factory=ClusterAutoscaler)

    def tick(self, tick: Tick) -> Outcome:
        """Return what the Cluster Autoscaler does; where it does nothing and the interval is over, evictions."""
        found = self.beside.tick(tick)
        last = tick.since.get(EVICTED)
        since = dict(found.since) | ({} if last is None else {EVICTED: last})
        interval = timedelta(seconds=self.interval_seconds)
        due = [] if found.due is None else [found.due]
        if found.proposal.steps or (last is not None and tick.now - last < interval):
            due += [] if last is None else [last + interval]
            return replace(found, since=since, due=earliest(*due, after=tick.now))
        world = tick.world()
        bind(world, world.waiting(), "least-allocated")
        steps = self._evict(world, tick.usage)
        since[EVICTED] = tick.now
        due.append(tick.now + interval)
        return Outcome(proposal(world, steps, name=self.name), since, earliest(*due, after=tick.now))

    def _evict(self, world: World, usage: Mapping[str, Amounts]) -> list[Step]:
        percent = cpu_percent(world, usage)
        live = world.live()
        if not live or not usage:
            return []
        lowest = min(live, key=lambda index: (percent[index], world.sites[index].name))
        pods = [pod for pod in world.sites[lowest].pods if pod not in world.mobility.held]
        if percent[lowest] >= self.threshold_percent or not pods:
            return []
        for pod in pods:
            world.unplace(pod)
        if bind(world, pods, "least-allocated"):
            return []
        return [Step("evict", emptied=(world.sites[lowest].name,), evictions=len(pods))]
