"""Commitments: machines that are paid for already, first the live ones that they cover, then new ones.

A commitment is a pool of offers with `committed` machines. It covers that many live nodes of its machine type, zones
and capacity type; what it has beyond them can be booted at its price. Which nodes it covers changes no bill, as a cloud
applies it to whatever runs: those that have to stay come first, then those with the most pods, so that a plan deletes
nodes that cost something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec

from kinema_core.events import Node, Offer
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.machines import machine_of
from kinema_core.model.mobility import MobilityOptions, mobility
from kinema_core.model.pod_rules import listed
from kinema_core.model.vocabulary import PRICE

_LATER: Final = datetime.max.replace(tzinfo=UTC)
"""No protection that ends decides which nodes are covered: the answer depends on the cluster alone."""


def covered_nodes(cluster: Cluster, offers: Iterable[Offer]) -> Mapping[str, int]:
    """Micro-USD per hour of the live nodes that commitments cover, by name; an annotated price keeps a node out."""
    covered: dict[str, int] = {}
    for members in _pools(offers).values():
        machines = {(offer.machine_type, offer.zone, offer.capacity_type) for offer in members}
        there = [node for node in _in_order(cluster) if node.name not in covered and machine_of(node) in machines]
        covered.update({node.name: members[0].micro_usd_per_hour for node in there[: members[0].committed]})
    return MappingProxyType(covered)


def offers_left(offers: Sequence[Offer], cluster: Cluster) -> tuple[Offer, ...]:
    """Return the offers; of commitments only what the cluster's nodes have left of them is available."""
    pools = _pools(offers)
    if not pools:
        return tuple(offers)
    used = Counter[str]()
    known = set[str]()
    for name, members in pools.items():
        covered = covered_nodes(cluster, members).keys() - known
        known |= covered
        used[name] = len(covered)
    return tuple(
        offer
        if offer.committed is None
        else msgspec.structs.replace(offer, available=max(0, offer.committed - used[offer.pool]))
        for offer in offers
    )


def _pools(offers: Iterable[Offer]) -> dict[str, list[Offer]]:
    pools: dict[str, list[Offer]] = {}
    for offer in offers:
        if offer.committed is not None:
            pools.setdefault(offer.pool, []).append(offer)
    return pools


@derived
def _in_order(cluster: Cluster) -> tuple[Node, ...]:
    """Return the nodes without a price of their own in the order in which commitments cover them."""
    stays = mobility(cluster, _LATER, MobilityOptions(hold_restless=False)).deletable
    pods = Counter(pod.node for pod in listed(cluster))
    nodes = [node for node in cluster.nodes if PRICE not in node.annotations]
    return tuple(sorted(nodes, key=lambda node: (stays[node.name] is None, -pods[node.name], node.name)))
