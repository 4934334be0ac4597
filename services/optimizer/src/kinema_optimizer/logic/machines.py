"""Offers that are alike as one machine, and how many of each a plan can possibly use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinema_core.events import Amounts, Offer
from kinema_optimizer.logic.problem import Flags, Ints, first_fit_count, most_that_fit, virtual_nodes


@dataclass(frozen=True, eq=False)
class Machines:
    """Machines on sale: offers that are alike in price, room, admission and availability."""

    offers: tuple[tuple[Offer, ...], ...]
    """Per machine, the offers that are alike, in the order of the catalog."""
    rows: tuple[int, ...]
    """Per machine, the index of its first offer."""
    pools: tuple[tuple[tuple[int, ...], int], ...]

    @property
    def ample(self) -> Flags:
        """(M,): there are as many as any plan could use."""
        return np.array([same[0].available is None for same in self.offers], dtype=bool)


def machines_of(
    offers: Sequence[Offer], *, rooms: Ints, admits: Sequence[Flags], could: Sequence[Flags], sizes: Sequence[int]
) -> Machines:
    """Group offers; those that could hold nothing or cannot be had are left out.

    Args:
        offers: what is on sale.
        rooms: (O, R).
        admits: per offer (C,), the classes of which it may hold a pod by every rule.
        could: per offer (C,), those of which it might by rules about nodes alone.
        sizes: per offer, the second term of equation 5.1.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, offer in enumerate(offers):
        if offer.available == 0 or not could[index].any():
            continue
        share = "" if offer.available is None else (offer.pool or offer.name)
        rules = (admits[index].tobytes(), could[index].tobytes())
        alike = (offer.micro_usd_per_hour, rooms[index].tobytes(), rules, sizes[index], share)
        groups.setdefault(alike, []).append(index)
    rows = tuple(members[0] for members in groups.values())
    return Machines(
        offers=tuple(tuple(offers[index] for index in members) for members in groups.values()),
        rows=rows,
        pools=_pools([offers[row] for row in rows]),
    )


def most_useful(requests: Ints, totals: Ints, *, room: Ints, limit: Ints, apart: Flags) -> int:
    """How many machines with `room` (R,) a plan can use: algorithm 6, or first fit where whole pods need more.

    `limit` (C,) is how many of a class one holds. Classes of which rules allow fewer than fit, or that may not meet all
    others (`apart`), may each need their own.
    """
    counts = np.where(limit > 0, totals, 0)
    ruled = (limit > 0) & (apart | (limit < np.minimum(most_that_fit(requests, room), totals)))
    alone = int((-(-counts[ruled] // limit[ruled])).sum())
    packed = first_fit_count(requests, np.where(ruled, 0, counts), room)
    return max(virtual_nodes(counts @ requests, room), packed + alone)


def _pools(firsts: Sequence[Offer]) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Machines that share what is available; one alone is limited by its count already."""
    members: dict[str, list[int]] = {}
    for machine, offer in enumerate(firsts):
        if offer.pool and offer.available is not None:
            members.setdefault(offer.pool, []).append(machine)
    return tuple(
        (tuple(machines), int(firsts[machines[0]].available or 0)) for machines in members.values() if len(machines) > 1
    )


def sizes_of(allocatables: Sequence[Amounts], largest: Amounts) -> tuple[int, ...]:
    """CPU and memory as shares of the largest machine's, together, in thousandths: the second term of 5.1."""
    return tuple(
        sum(1000 * amounts.get(name, 0) // max(1, largest.get(name, 0)) for name in ("cpu", "memory"))
        for amounts in allocatables
    )
