"""Prices of machines for pods that wait, where more pods are expected to follow them.

The cheapest machine that holds a waiting pod often has no room for the pods that come next, and one such machine after
the other is bought. What a machine leaves free is of use to the next pods as far as it can carry the mix of what the
cluster requests. `less_what_follows` takes a fraction of the worth of that off its price: the worth of the room of a
machine for the mix is what the cheapest machine on sale takes for as much.

Half of it is for one who does not know whether more pods will follow: the rest of the price still counts, so that the
smallest of the machines that suit the mix is bought, and no more of them than the waiting pods need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import msgspec

from kinema_core.events import Amounts, Offer
from kinema_core.model.catalog import new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests
from kinema_core.model.match import parse_taints
from kinema_core.model.mobility import listed
from kinema_core.model.resources import subtract, total
from kinema_core.model.stock import most_of

_MIX: Final = ("cpu", "memory", "pods")


@dataclass(frozen=True)
class Growth:
    """Pods that are expected to follow those that wait."""

    fraction: float
    """Of the room that a new machine has, what is expected to be used later; 0: nothing is expected."""
    allow_spot: bool = False
    """Ordinary pods may be on spot capacity."""


NO_GROWTH: Final = Growth(0.0)


def less_what_follows(cluster: Cluster, offers: Sequence[Offer], growth: Growth) -> tuple[Offer, ...]:
    """Return the offers, less the growth's fraction of what their room is worth for the cluster's mix of requests.

    The price stays of machines that keep ordinary pods away (by a taint, or as spot capacity), of committed ones, and
    of all where no pod requests anything. No price falls by more than the fraction.
    """
    mix = total(pod.requests for pod in listed(cluster))
    spot = growth.allow_spot
    carried = {one.name: _carried(cluster, one, mix) for one in offers if _takes_ordinary_pods(one, spot=spot)}
    rates = [
        Fraction(one.micro_usd_per_hour) / carried[one.name]
        for one in offers
        if carried.get(one.name) and most_of(one) != 0
    ]
    if not rates:
        return tuple(offers)
    least, part = min(rates), Fraction(str(growth.fraction))

    def priced(one: Offer) -> Offer:
        worth = min(least * carried.get(one.name, 0), Fraction(one.micro_usd_per_hour))
        return msgspec.structs.replace(one, micro_usd_per_hour=one.micro_usd_per_hour - int(part * worth))

    return tuple(map(priced, offers))


def _takes_ordinary_pods(offer: Offer, *, spot: bool) -> bool:
    taints = parse_taints(offer.taints)
    open_to_all = all(taint.effect == "PreferNoSchedule" for taint in taints)
    return open_to_all and offer.committed is None and (spot or offer.capacity_type != "spot")


def _carried(cluster: Cluster, offer: Offer, mix: Amounts) -> Fraction:
    """Return the share of the mix that a new node of the offer can carry; more than 1 where it carries all of it."""
    labels, taints = new_node_labels(offer, offer.name), parse_taints(offer.taints)
    room = subtract(offer.allocatable, daemon_requests(cluster, name=offer.name, labels=labels, taints=taints))
    return _least(room, mix)


def _least(room: Mapping[str, int], mix: Amounts) -> Fraction:
    shares: Iterable[Fraction] = (Fraction(max(0, room.get(name, 0)), mix[name]) for name in _MIX if mix.get(name))
    return min(shares, default=Fraction(0))
