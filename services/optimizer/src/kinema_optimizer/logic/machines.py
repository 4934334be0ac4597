"""Offers that are alike as one machine, and how many of each a plan can possibly use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinema_core.events import Amounts, Offer
from kinema_optimizer.logic.problem import Flags, Ints, first_fit_count, virtual_nodes


@dataclass(frozen=True, eq=False)
class Machines:
    """Machines on sale; arrays as in `Problem`."""

    offers: tuple[tuple[Offer, ...], ...]
    """Per machine, the offers that are alike, in the order of the catalog."""
    rows: tuple[int, ...]
    """Per machine, the index of its first offer."""
    count: tuple[int, ...]
    ample: tuple[bool, ...]
    """There are as many as any plan could use."""
    pools: tuple[tuple[tuple[int, ...], int], ...]


def machines_of(
    offers: Sequence[Offer], *, requests: Ints, totals: Ints, rooms: Ints, limits: Ints, sizes: Sequence[int]
) -> Machines:
    """Group offers; those that admit nothing or cannot be had are left out.

    Args:
        offers: what is on sale.
        requests: (C, R), `totals` (C,) pods of each class, `rooms` (O, R) and `limits` (O, C) of the offers.
        totals: see above.
        rooms: see above.
        limits: see above.
        sizes: per offer, the second term of equation 5.1.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, offer in enumerate(offers):
        if offer.available == 0 or not (limits[index] > 0).any():
            continue
        share = "" if offer.available is None else (offer.pool or offer.name)
        alike = (offer.micro_usd_per_hour, rooms[index].tobytes(), limits[index].tobytes(), sizes[index], share)
        groups.setdefault(alike, []).append(index)
    rows = tuple(members[0] for members in groups.values())
    most = [most_useful(requests, totals, room=rooms[row], admits=limits[row] > 0) for row in rows]
    caps = [offers[row].available for row in rows]
    return Machines(
        offers=tuple(tuple(offers[index] for index in members) for members in groups.values()),
        rows=rows,
        count=tuple(n if cap is None else min(n, cap) for n, cap in zip(most, caps, strict=True)),
        ample=tuple(cap is None for cap in caps),
        pools=_pools([offers[row] for row in rows]),
    )


def most_useful(requests: Ints, totals: Ints, *, room: Ints, admits: Flags) -> int:
    """How many machines with `room` (R,) a plan can use: algorithm 6, or first fit where whole pods need more."""
    counts = np.where(admits, totals, 0)
    return max(virtual_nodes(counts @ requests, room), first_fit_count(requests, counts, room))


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
