"""Limits on the share of a workload's pods that spot capacity holds: in all, and in one spot pool.

The machines of a spot pool, which are those of one machine type in one zone, are reclaimed together. The shares are
the operator's or those of a workload's annotations, and rounded down to pods. Where more are there than a limit, they
may stay, and no more may come. A limit of no pods lets none arrive (`mobility.spot_allowed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

import msgspec

from kinema_core.events import Pod
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.machines import machine_of
from kinema_core.model.pod_rules import MobilityOptions, listed_by_key
from kinema_core.model.strategy import chain_of
from kinema_core.model.vocabulary import SPOT_MAX_SHARE, SPOT_MAX_SHARE_PER_POOL
from kinema_core.ranges import Share, check_ranges

_ALL: Final = Decimal(1)


class SpotShare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on the share of a workload's pods that spot capacity holds, rounded down to pods."""

    max_share: Share | None = None
    """Share of a workload's pods, 0 to 1, that may be on spot capacity, rounded down to pods; null: any. Optimizer and
    decider need the same value."""
    max_share_per_pool: Share | None = None
    """The same for one spot pool, which is a machine type in a zone: its machines are reclaimed together."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self, "spot.")


class SpotPool(NamedTuple):
    """A spot pool."""

    machine_type: str
    zone: str


PoolOf = Callable[[str], SpotPool | None]
"""Gives the pool of a node by its name; None where it is no spot capacity."""


@dataclass(frozen=True)
class SpotLimits:
    """Most pods of one workload on spot capacity, and in one pool."""

    total: int
    pool: int


@dataclass(frozen=True)
class SpotExcess:
    """A workload with more pods on spot capacity than its limit, and than now."""

    workload: str
    """`Type/namespace/name`."""
    pods: int
    most: int
    pool: SpotPool | None
    """None: all of them together."""

    @property
    def text(self) -> str:
        """What is wrong, for people."""
        where = f"in the spot pool {self.pool.machine_type} of {self.pool.zone}" if self.pool else "on spot capacity"
        return f"{self.pods} of its pods would be {where}, at most {self.most} may be"


def live_pool(cluster: Cluster) -> PoolOf:
    """Return the spot pools of live nodes."""
    return _live_pools(cluster).get


@derived
def _live_pools(cluster: Cluster) -> Mapping[str, SpotPool]:
    machines = {node.name: machine_of(node) for node in cluster.nodes}
    return {name: SpotPool(kind, zone) for name, (kind, zone, capacity) in machines.items() if capacity == "spot"}


def counted_pods(cluster: Cluster, workload: str) -> tuple[Pod, ...]:
    """Return the pods of a workload that its shares are about: pending ones too, and no terminating ones."""
    listed = listed_by_key(cluster)
    return tuple(pod for pod in cluster.pods_by_workload.get(workload, ()) if pod.key in listed)


def spot_limits_of(cluster: Cluster, workload: str, options: MobilityOptions) -> SpotLimits | None:
    """Return the limits of a workload; None where there are none."""
    known, key = _known_limits(cluster), (workload, options.spot_share, options.spot_pool_share)
    if key not in known:
        known[key] = _limits(cluster, workload, options)
    return known[key]


@derived
def _known_limits(_: Cluster) -> dict[tuple[str, float | None, float | None], SpotLimits | None]:
    return {}


def _limits(cluster: Cluster, workload: str, options: MobilityOptions) -> SpotLimits | None:
    pods = counted_pods(cluster, workload)
    given = _shares(cluster, pods[0], options) if pods else (_ALL, _ALL)
    if min(given) >= _ALL:
        return None
    total, pool = (int(share * len(pods)) for share in given)
    return SpotLimits(total if pool else 0, pool)


def _shares(cluster: Cluster, pod: Pod, options: MobilityOptions) -> tuple[Decimal, Decimal]:
    return (
        _share(cluster, pod, SPOT_MAX_SHARE, options.spot_share),
        _share(cluster, pod, SPOT_MAX_SHARE_PER_POOL, options.spot_pool_share),
    )


def _share(cluster: Cluster, pod: Pod, annotation: str, default: float | None) -> Decimal:
    """Return the share that the nearest set or Deployment states; one that cannot be read allows none."""
    said = next((given[annotation] for given in chain_of(cluster, pod).annotations if annotation in given), None)
    if said is None:
        return _ALL if default is None else Decimal(str(default))
    try:
        share = Decimal(said.strip())
    except InvalidOperation:
        return Decimal(0)
    return share if share.is_finite() and 0 <= share <= 1 else Decimal(0)


def may_be_spot(cluster: Cluster, pod: Pod, options: MobilityOptions) -> bool:
    """Return whether the limits of the pod's workload let any of its pods arrive on spot capacity."""
    workload = cluster.controller_key_of(pod) if limits_spot(cluster, options) else None
    limits = None if workload is None else spot_limits_of(cluster, workload, options)
    return limits is None or limits.total > 0


def limits_spot(cluster: Cluster, options: MobilityOptions) -> bool:
    """Return whether there may be limits at all: most clusters have none, and need no further look."""
    return options.spot_share is not None or options.spot_pool_share is not None or _annotated(cluster)


@derived
def _annotated(cluster: Cluster) -> bool:
    keys = {SPOT_MAX_SHARE, SPOT_MAX_SHARE_PER_POOL}
    return any(not keys.isdisjoint(one.annotations) for one in cluster.workloads)


def held_by(nodes: Iterable[str], pool_of: PoolOf) -> Counter[SpotPool]:
    """Return how many of the pods on these nodes each spot pool holds."""
    return Counter(pool for name in nodes if (pool := pool_of(name)) is not None)


class SpotBooks:
    """Where the pods of workloads with limits are, by workload: how many each pool holds, and what it may hold."""

    def __init__(
        self, cluster: Cluster, options: MobilityOptions, places: Mapping[str, str], pool_after: PoolOf
    ) -> None:
        """Read the state of now, and `places`: pod key → node after a plan."""
        self._cluster = cluster
        self._options = options
        self._places = places
        self._pool_after = pool_after
        self._active = limits_spot(cluster, options)
        self._known: dict[str, tuple[SpotLimits, Counter[SpotPool], Counter[SpotPool]] | None] = {}

    def _of(self, workload: str | None) -> tuple[SpotLimits, Counter[SpotPool], Counter[SpotPool]] | None:
        """Return the limits of a workload, and what pools hold now and after."""
        if workload is None or not self._active:
            return None
        if workload not in self._known:
            limits = spot_limits_of(self._cluster, workload, self._options)
            pods = counted_pods(self._cluster, workload)
            now = held_by((pod.node for pod in pods if pod.node), live_pool(self._cluster))
            after = held_by((self._places[pod.key] for pod in pods if pod.key in self._places), self._pool_after)
            self._known[workload] = None if limits is None else (limits, now, after)
        return self._known[workload]

    def excesses(self) -> Iterator[SpotExcess]:
        """Workloads above their limits, by key."""
        listed = listed_by_key(self._cluster) if self._active else {}
        moving = (pod for key, to in self._places.items() if (pod := listed.get(key)) and pod.node != to)
        for workload in sorted({key for pod in moving if (key := self._cluster.controller_key_of(pod)) is not None}):
            if (found := self._of(workload)) is None:
                continue
            limits, now, after = found
            most = max(limits.total, now.total())
            if after.total() > most:
                yield SpotExcess(workload, after.total(), most, None)
            for pool in sorted(after):
                if after[pool] > max(limits.pool, now[pool]):
                    yield SpotExcess(workload, after[pool], max(limits.pool, now[pool]), pool)

    def admits(self, pod: Pod, pool: SpotPool | None) -> bool:
        """Return whether a pod without a place may have one in a pool."""
        found = None if pool is None else self._of(self._cluster.controller_key_of(pod))
        if found is None or pool is None:
            return True
        limits, now, after = found
        fits = after[pool] < max(limits.pool, now[pool])
        return fits and after.total() < max(limits.total, now.total())

    def add(self, pod: Pod, pool: SpotPool | None, count: int = 1) -> None:
        """Give a pod a place in a pool, or take it away (`count` -1)."""
        found = None if pool is None else self._of(self._cluster.controller_key_of(pod))
        if found is not None and pool is not None:
            found[2][pool] += count
