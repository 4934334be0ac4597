"""A FrozenMap cannot change."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kinema_core.events import EMPTY, FrozenMap


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.__setitem__("a", 2),
        lambda found: found.__delitem__("a"),
        lambda found: found.clear(),
        lambda found: found.pop("a"),
        lambda found: found.popitem(),
        lambda found: found.setdefault("b", 1),
        lambda found: found.update(b=1),
        lambda found: found.__ior__({"b": 1}),
    ],
)
def test_no_way_of_changing_a_dict_works(change: Callable[[Any], object]) -> None:
    """Every mutating method refuses and leaves the map as it was."""
    found = FrozenMap({"a": 1})
    with pytest.raises(TypeError, match="build a new one"):
        change(found)
    assert found == {"a": 1}


def test_it_reads_like_a_dict_and_equals_one() -> None:
    """Order of filling matters for neither equality nor hash."""
    one, two = FrozenMap({"a": 1, "b": 2}), FrozenMap({"b": 2, "a": 1})
    assert one == two == {"a": 1, "b": 2}
    assert hash(one) == hash(two)
    assert len({one, two}) == 1
    assert EMPTY == {}


def test_it_survives_pickling() -> None:
    """Copies made for another process are frozen as well."""
    copied = pickle.loads(pickle.dumps(FrozenMap({"a": 1})))
    assert copied == {"a": 1}
    assert isinstance(copied, FrozenMap)
