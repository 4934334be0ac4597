"""Arithmetic on amounts of resources: integers by resource name, never floats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kinema_core.events import EMPTY, Amounts, FrozenMap

ATTACHABLE_ANY: Final = "attachable-volumes-"
"""Begins every resource that stands for attachments of volumes."""


def limited(resource: str) -> bool:
    """Return whether a node that does not name the resource has none of it.

    Ephemeral storage and volume attachments are the exception: where a node or an offer says nothing about them,
    they are not limited there.
    """
    return resource != "ephemeral-storage" and not resource.startswith(ATTACHABLE_ANY)


def add(a: Amounts, b: Amounts) -> Amounts:
    """Return the sum, over every resource that either names."""
    return FrozenMap({**a, **{name: a.get(name, 0) + amount for name, amount in b.items()}})


def subtract(a: Amounts, b: Amounts) -> Amounts:
    """Return what `b` leaves of the room `a`; negative where it is overdrawn.

    A resource that is not limited in `a` stays so.
    """
    if not b:
        return a
    taken = {name: a.get(name, 0) - amount for name, amount in b.items() if name in a or limited(name)}
    return FrozenMap({**a, **taken})


def excess(a: Amounts, b: Amounts) -> Amounts:
    """Return by how much `a` is above `b`; resources of which it is not are left out."""
    return FrozenMap({name: amount - b.get(name, 0) for name, amount in a.items() if amount > b.get(name, 0)})


def total(items: Iterable[Mapping[str, int]]) -> Amounts:
    """Return the sum of all; empty for none."""
    summed: dict[str, int] = {}
    for item in items:
        for name, amount in item.items():
            summed[name] = summed.get(name, 0) + amount
    return FrozenMap(summed) if summed else EMPTY


def largest(items: Iterable[Amounts]) -> Amounts:
    """Return the largest amount of each resource over all items."""
    found: dict[str, int] = {}
    for item in items:
        for name, amount in item.items():
            found[name] = max(found.get(name, 0), amount)
    return FrozenMap(found) if found else EMPTY


def scaled(a: Amounts, n: int) -> Amounts:
    """`n` times the amounts."""
    return FrozenMap({name: amount * n for name, amount in a.items()})


def lacking(request: Amounts, room: Amounts) -> tuple[str, ...]:
    """Resources of which the request asks more than there is room for, by name; asking for 0 always fits."""
    return tuple(
        name
        for name in sorted(request)
        if request[name] > 0 and (name in room or limited(name)) and request[name] > room.get(name, 0)
    )


def times(request: Amounts, room: Mapping[str, int], most: int) -> int:
    """Return how often the room holds the request, up to `most` times."""
    found = most
    for name, amount in request.items():
        if amount > 0 and (name in room or limited(name)):
            found = min(found, max(0, room.get(name, 0)) // amount)
    return found


def shift(room: dict[str, int], amounts: Mapping[str, int], times: int) -> None:
    """Add `times` the amounts to a room, in place; a resource that is not limited in it stays so."""
    for name, amount in amounts.items():
        if name in room or limited(name):
            room[name] = room.get(name, 0) + times * amount


def fits(request: Amounts, room: Mapping[str, int]) -> bool:
    """Return whether the room holds the request in every resource."""
    for name, amount in request.items():
        if amount > 0 and amount > room.get(name, 0) and (name in room or limited(name)):
            return False
    return True
