"""Arithmetic on amounts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinema_core.events import Amounts, FrozenMap
from kinema_core.model.resources import add, fits, lacking, largest, limited, scaled, subtract, total

AMOUNTS: st.SearchStrategy[Amounts] = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "gpu"]), st.integers(0, 9)
).map(FrozenMap)


def nonzero(amounts: Amounts) -> dict[str, int]:
    """The amounts without zeros."""
    return {name: amount for name, amount in amounts.items() if amount}


@given(AMOUNTS, AMOUNTS)
def test_adding_and_subtracting_undo_each_other(a: Amounts, b: Amounts) -> None:
    """What was added and taken away again leaves the amounts as they were."""
    assert nonzero(subtract(add(a, b), b)) == nonzero(a)
    assert add(a, b) == add(b, a)


@given(AMOUNTS, st.integers(0, 4))
def test_scaling_is_repeated_addition(a: Amounts, n: int) -> None:
    """N times the amounts is the total of n of them."""
    assert nonzero(scaled(a, n)) == nonzero(total([a] * n))


@given(AMOUNTS, AMOUNTS)
def test_a_request_fits_exactly_when_nothing_is_overdrawn(request: Amounts, room: Amounts) -> None:
    """Fitting means that taking the request leaves no resource that it asks for below zero."""
    left = subtract(room, request)
    assert fits(request, room) == all(left[name] >= 0 for name, amount in request.items() if amount)


def test_a_resource_that_a_room_does_not_name_is_not_there() -> None:
    """A device that a node does not name fits nobody who asks for it; asking for none of it always fits."""
    room = FrozenMap({"cpu": 100})
    assert lacking(FrozenMap({"cpu": 1, "nvidia.com/gpu": 1}), room) == ("nvidia.com/gpu",)
    assert fits(FrozenMap({"nvidia.com/gpu": 0}), room)
    assert fits(FrozenMap({"cpu": 0}), FrozenMap({"cpu": -1}))


def test_storage_that_a_room_does_not_name_is_not_limited() -> None:
    """Ephemeral storage and volume attachments are limited only where a node names them, also after subtracting."""
    room = FrozenMap({"cpu": 100})
    request = FrozenMap({"ephemeral-storage": 10**12, "attachable-volumes-csi-pd": 3})
    assert not limited("ephemeral-storage")
    assert fits(request, room)
    assert fits(request, subtract(room, request))
    assert not fits(request, FrozenMap({"cpu": 100, "ephemeral-storage": 1}))


def test_the_largest_takes_each_resource_by_itself() -> None:
    """The largest of several amounts is the maximum in each resource."""
    assert largest([FrozenMap({"cpu": 1, "memory": 5}), FrozenMap({"cpu": 3})]) == {"cpu": 3, "memory": 5}
