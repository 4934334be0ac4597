"""Room for replicas that are expected soon: kept, as headroom is, where deleting nodes and buying them back costs more.

A node that goes and comes back saves its price until then, less what the change costs: the new node from its order on,
as long as boots take, old and new ones side by side, and the restarts of the pods that are moved off. The time after
which it pays is the same for all nodes: restarts count with those of a mean node.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kinema_core.events import EMPTY, FrozenMap, Mode, Node, Offer, PlacementRules, Pod, ReplicasAhead
from kinema_core.model.ahead import more_within
from kinema_core.model.boot_times import BootTimes
from kinema_core.model.catalog import node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import room_left
from kinema_core.model.match import node_admits
from kinema_core.model.mobility import listed, mobility
from kinema_core.model.resources import shift, times
from kinema_core.model.vocabulary import SPOT
from kinema_optimizer.request.headroom import AHEAD, placeholders
from kinema_optimizer.settings import PlanningSettings


def room_ahead(
    ahead: ReplicasAhead | None,
    cluster: Cluster,
    offers: Sequence[Offer],
    now: datetime,
    *,
    mode: Mode,
    boot_times: BootTimes,
    settings: PlanningSettings,
) -> tuple[Pod, ...]:
    """Return placeholders for the pods that are expected before deleting and buying back would have paid.

    Only autoscale iterations buy room, others keep what there is. Each placeholder requests what a pod of its workload
    does and goes to the nodes that take one; rules between pods are left out.

    Raises:
        PriceError: no live node has a price.
    """
    if ahead is None:
        return ()
    found: list[Pod] = []
    seconds = _pays_after(cluster, offers, boot_times, settings)
    rooms = _rooms(cluster, now, settings) if mode == "reschedule" else None
    for index, (workload, count) in enumerate(sorted(more_within(ahead, cluster, now, seconds).items())):
        like = cluster.pods_by_workload[workload][0]
        most = count if rooms is None else _taken(rooms, like, count)
        rules = PlacementRules(
            node_selector=like.rules.node_selector,
            node_terms=like.rules.node_terms,
            tolerations=like.rules.tolerations,
        )
        spot = FrozenMap({SPOT: like.annotations[SPOT]}) if SPOT in like.annotations else EMPTY
        found += [
            msgspec.structs.replace(one, rules=rules, annotations=spot)
            for one in placeholders(f"{AHEAD}{index}-", like.requests, most)
        ]
    return tuple(found)


def _rooms(cluster: Cluster, now: datetime, settings: PlanningSettings) -> list[tuple[Node, dict[str, int]]]:
    """Return what is left of the nodes that take pods."""
    open_nodes = mobility(cluster, now, settings.mobility).open_nodes
    return [(node, dict(room_left(cluster)[node.name])) for node in cluster.nodes if node.name in open_nodes]


def _taken(rooms: Sequence[tuple[Node, dict[str, int]]], like: Pod, count: int) -> int:
    """Return for how many pods like this one there is room, up to `count`; take it, first node first."""
    left = count
    for node, room in rooms:
        if node_admits(like.rules, name=node.name, labels=node.labels, taints=node.taints) is None:
            found = times(like.requests, room, left)
            shift(room, like.requests, -found)
            left -= found
    return count - left


def _pays_after(cluster: Cluster, offers: Sequence[Offer], boot_times: BootTimes, settings: PlanningSettings) -> float:
    """Return the seconds after which a node that was deleted and is bought back has saved what that costs."""
    per_hour = sum(node_prices(cluster, offers).values()) / 1e6
    restarts = settings.restart_price_usd * len(listed(cluster))
    bought_back = float(boot_times.seconds()) + settings.transition_seconds
    return bought_back + (3600 * restarts / per_hour if per_hour else 0.0)
