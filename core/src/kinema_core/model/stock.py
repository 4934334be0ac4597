"""How many machines of an offer can be had: by its own count, by that of its pool, and by quotas that offers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kinema_core.events import Offer


class Draw(NamedTuple):
    """What one machine of an offer takes of something that is limited, and how much of that is left."""

    stock: str
    """Name of what is limited: offers with the same one draw on it together."""
    takes: int
    left: int


def draws(offer: Offer) -> tuple[Draw, ...]:
    """Return all that limits an offer; empty where nothing does."""
    counted = () if offer.available is None else (Draw(offer.pool or offer.name, 1, offer.available),)
    return (*counted, *(Draw(one.name, one.takes, one.left) for one in offer.quotas if one.takes > 0))


def most_of(offer: Offer) -> int | None:
    """Return how many machines of an offer can be booted where nothing else is; None: any number."""
    return min((max(0, one.left) // one.takes for one in draws(offer)), default=None)


def left_of(offers: Iterable[Offer], booted: Mapping[str, int]) -> dict[str, int | None]:
    """Return how many more of each offer can be booted beside those that are, by name; below 0 where they are too many.

    None: any number. `booted` counts machines by the name of their offer.
    """
    offers = tuple(offers)
    used = Counter[str]()
    for offer in offers:
        for one in draws(offer):
            used[one.stock] += one.takes * booted.get(offer.name, 0)
    return {
        offer.name: min(((one.left - used[one.stock]) // one.takes for one in draws(offer)), default=None)
        for offer in offers
    }
