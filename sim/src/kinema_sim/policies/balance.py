"""Balancing of similar node groups, as the Cluster Autoscaler splits new nodes over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kinema_core.events import Amounts, Offer
from kinema_core.model.catalog import ZONE
from kinema_core.model.match import HOSTNAME

_TOLERANCE: Final = 5
"""Per cent by which allocatable and free amounts may differ."""


def balanced(sizes: Sequence[int], most: Sequence[int | None], new: int) -> tuple[int, ...]:
    """How many of `new` nodes each group gets: always one to the smallest, the first of equals, never above its most.

    `sizes` are the groups' nodes now; `most` how many each may have, None: any number.
    """
    after = list(sizes)
    for _ in range(new):
        open_ = [(size, group) for group, size in enumerate(after) if most[group] is None or size < (most[group] or 0)]
        if not open_:
            break
        after[min(open_)[1]] += 1
    return tuple(now - before for now, before in zip(after, sizes, strict=True))


def similar(a: Offer, b: Offer, *, free_a: Amounts, free_b: Amounts) -> bool:
    """Whether two offers are groups of one kind: all but zone and host name alike, allocatable and free within 5%."""
    return (
        a.capacity == b.capacity
        and a.capacity_type == b.capacity_type
        and a.taints == b.taints
        and _labels(a) == _labels(b)
        and _near(a.allocatable, b.allocatable)
        and _near(free_a, free_b)
    )


def _labels(offer: Offer) -> dict[str, str]:
    return {key: value for key, value in offer.labels.items() if key not in (*ZONE, HOSTNAME)}


def _near(a: Amounts, b: Amounts) -> bool:
    return all(
        100 * abs(a.get(name, 0) - b.get(name, 0)) <= _TOLERANCE * max(a.get(name, 0), b.get(name, 0))
        for name in sorted(a.keys() | b.keys())
    )
