"""Quotas that no plan can reach are left out of the problem.

A machine under a quota counts as limited, and limited machines have the weaker bound and the narrower search: how many
of a cheap one are left may decide. Most quotas of a cloud account are for more than the cluster could use.

Keeping every node, and buying each pod that needs a new place a machine of its own, is what no plan has to cost more
than. So much money buys only so much of a quota, and twice as much leaves room for what is found before the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kinema_core.events import Offer

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
