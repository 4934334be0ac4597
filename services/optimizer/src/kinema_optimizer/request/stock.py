"""Stock-outs that the log has shown: an offer that could not be booted is left for a while that doubles.

Few providers publish what they have left; a boot that fails is how one learns it. Otherwise the next plan would ask for
the same machine again, and pending pods would wait for what is not to be had. A machine type that is sold out in two
zones is left in every zone, and what a quota refused limits every offer that takes as much of the same quotas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from kinema_core.events import Event, Offer, StepFailed

OFFER: Final = "offer"
"""Figure of a failed boot: the offer that was asked for."""
_REASONS: Final = frozenset(
    {
        "stock-out",
        "quota",
        "permission",
        "denied",
        "invalid",
        "node-never-ready",
        "less-allocatable",
        "pods-never-ready",
        "roll-stuck",
    }
)
"""Failures that the next request of the same machine would meet again."""
_LONGEST: Final = timedelta(hours=4)
_ZONES: Final = 2


class _Failure(NamedTuple):
    at: datetime
    times: int
    """Failures in a row, each within twice the rest after the one before it."""
    quota: bool = False
    """A quota refused it."""

    def rest(self, seconds: float) -> timedelta:
        """Return how long the offer is left."""
        return min(timedelta(seconds=seconds * 2.0 ** min(self.times - 1, 20)), _LONGEST)


@dataclass(frozen=True)
class StockOuts:
    """The last failure of each offer, by its name."""

    last: Mapping[str, _Failure] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, event: Event, seconds: float) -> StockOuts:
        """Return the stock-outs with what a log event adds; `seconds` is the rest after the first failure."""
        body = event.body
        if not isinstance(body, StepFailed) or body.retry or body.reason not in _REASONS:
            return self
        offer = body.figures.get(OFFER)
        if not isinstance(offer, str):
            return self
        before = self.last.get(offer)
        again = before is not None and event.time - before.at < 2 * before.rest(seconds)
        times = before.times + 1 if before is not None and again else 1
        failure = _Failure(event.time, times, body.reason == "quota")
        return StockOuts(MappingProxyType({**self.last, offer: failure}))

    def shown_in(self, offers: Sequence[Offer], now: datetime, seconds: float) -> tuple[Offer, ...]:
        """Return the offers, with none available of those that are left alone at `now`."""
        out = {name for name, failure in self.last.items() if now - failure.at < failure.rest(seconds)}
        if not out:
            return tuple(offers)
        refused = [offer for offer in offers if offer.name in out and offer.quotas and self.last[offer.name].quota]
        out |= {offer.name for offer in offers if any(_takes_as_much(offer, one) for one in refused)}
        zones: dict[tuple[str, str], set[str]] = {}
        for offer in offers:
            if offer.name in out:
                zones.setdefault((offer.machine_type, offer.capacity_type), set()).add(offer.zone)
        everywhere = {kind for kind, found in zones.items() if len(found) >= _ZONES}
        return tuple(
            msgspec.structs.replace(offer, available=0)
            if offer.name in out or (offer.machine_type, offer.capacity_type) in everywhere
            else offer
            for offer in offers
        )


def _takes_as_much(offer: Offer, refused: Offer) -> bool:
    """Return whether an offer takes as much of all quotas of one that was refused, whichever of them it was."""
    takes = {one.name: one.takes for one in offer.quotas}
    return all(takes.get(one.name, 0) >= one.takes for one in refused.quotas)
