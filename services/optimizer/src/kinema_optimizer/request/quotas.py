"""Quotas: of the cloud, those that a plan can reach, and of namespaces what new nodes and new requests take of them.

Quotas that no plan can reach are left out of the problem.

A machine under a quota counts as limited, and limited machines have the weaker bound and the narrower search: how many
of a cheap one are left may decide. Most quotas of a cloud account are for more than the cluster could use.

Keeping every node, and buying each pod that needs a new place a machine of its own, is what no plan has to cost more
than. So much money buys only so much of a quota, and twice as much leaves room for what is found before the best.

A new node brings the pods of daemon sets. Where these are in a namespace with a quota, they would take the last places,
and pods that surge or are evicted would find none: new nodes count against what the quota leaves beside one surge.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from kinema_core.events import Amounts, FrozenMap, Offer, Pod, Quota, ResourceQuota, WorkloadForecast
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import landing_daemons
from kinema_core.model.match import parse_taints
from kinema_core.model.mobility import listed_by_key
from kinema_core.model.resource_quotas import QuotaRoom, charge, left_by_quota, quotas_by_namespace
from kinema_core.model.resources import fits, largest, subtract, total
from kinema_core.model.strategy import strategy_of
from kinema_optimizer.request.headroom import without_placeholders_in

NAMESPACED: Final = "ResourceQuota "
"""Begins the names of quotas of namespaces."""

_SPARE: Final = 2
"""Plans for up to so many times the money are counted."""


def without_idle_quotas(offers: Sequence[Offer], *, live: int, places: int) -> tuple[Offer, ...]:
    """Return the offers without the quotas that no plan can reach.

    Args:
        offers: what is on sale.
        live: micro-USD per hour of all live nodes.
        places: how many pods need a new place: those that wait, and those that get new requests.
    """
    money = _SPARE * (live + places * max((offer.micro_usd_per_hour for offer in offers), default=0))
    reached = {
        one.name
        for offer in offers
        for one in offer.quotas
        if one.takes * money > max(0, one.left) * offer.micro_usd_per_hour
    }
    return tuple(_with_quotas(offer, reached) for offer in offers)


def _with_quotas(offer: Offer, names: set[str]) -> Offer:
    return msgspec.structs.replace(offer, quotas=tuple(one for one in offer.quotas if one.name in names))


def with_namespace_quotas(offers: Sequence[Offer], cluster: Cluster) -> tuple[Offer, ...]:
    """Return the offers, each with what the daemon sets of its nodes take of quotas.

    Where pods wait for a node they get one: they are admitted already.
    """
    spaces, pods = quotas_by_namespace(cluster), listed_by_key(without_placeholders_in(cluster)).values()
    if not spaces or any(pod.node is None for pod in pods):
        return tuple(offers)
    left = {quota.key: _beside_a_surge(cluster, quota, pods) for quotas in spaces.values() for quota in quotas}

    def taken(offer: Offer) -> Iterator[Quota]:
        labels, taints = new_node_labels(offer, "new"), parse_taints(offer.taints)
        daemons = [one.pod for one in landing_daemons(cluster, name="new", labels=labels, taints=taints)]
        for quota in (one for quotas in spaces.values() for one in quotas):
            here = (charge(cluster, quota, daemon) for daemon in daemons if daemon.namespace == quota.namespace)
            for name, takes in sorted(total(here).items()):
                if takes:
                    yield Quota(name=f"{NAMESPACED}{quota.key}: {name}", takes=takes, left=left[quota.key][name])

    return tuple(msgspec.structs.replace(offer, quotas=(*offer.quotas, *taken(offer))) for offer in offers)


def _beside_a_surge(cluster: Cluster, quota: ResourceQuota, pods: Iterable[Pod]) -> Amounts:
    """Return what a quota has left beside the largest pod that may surge; all that is left where that has no room."""
    left = FrozenMap({name: max(0, amount) for name, amount in left_by_quota(cluster)[quota.key].items()})
    mine = (pod for pod in pods if pod.namespace == quota.namespace and strategy_of(cluster, pod) != "evict")
    surge = largest(charge(cluster, quota, pod) for pod in mine)
    return subtract(left, surge) if fits(surge, left) else left


def within_quotas(
    forecasts: Sequence[WorkloadForecast], cluster: Cluster, resizable: Container[str] = ()
) -> tuple[WorkloadForecast, ...]:
    """Return the forecasts whose new requests the quotas of namespaces admit, for all pods of a workload and one more.

    Each counts beside those before it, as they are given. All but the `resizable` workloads need a new ReplicaSet.
    """
    if not quotas_by_namespace(cluster):
        return tuple(forecasts)
    room, kept = QuotaRoom(cluster), list[WorkloadForecast]()
    for one in forecasts:
        pods = [pod for pod in cluster.pods_by_workload.get(one.workload, ()) if not pod.terminating]
        if not pods:
            kept.append(one)
            continue
        pod = pods[0]
        new = FrozenMap({**pod.requests, **one.requests_after})
        more = FrozenMap({name: max(0, amount - pod.requests.get(name, 0)) for name, amount in new.items()})
        rolled = one.workload not in resizable
        if rolled and room.why_no_set(pod.namespace):
            continue
        if room.grows(pod, new, more, len(pods)):
            kept.append(one)
            if rolled:
                room.take_set(pod.namespace)
    return tuple(kept)
