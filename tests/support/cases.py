"""Random cases: as many as every run of the tests has time for, and the others for `make exhaustive`.

What only `make exhaustive` runs is marked `exhaustive`. A property has no cases that could be marked: by
KINEMA_EXHAUSTIVE=1 it takes more examples and the mark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., Any])
_EXHAUSTIVE: Final = os.environ.get("KINEMA_EXHAUSTIVE") == "1"


def exhaustive(*values: object) -> pytest.ParameterSet:
    """Return a case of `make exhaustive` alone."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)


def first(many: int, values: Iterable[object]) -> list[pytest.ParameterSet]:
    """Return cases: the first so many for every run, the others for `make exhaustive`."""
    return [pytest.param(value) if at < many else exhaustive(value) for at, value in enumerate(values)]


def examples(few: int, many: int) -> Callable[[Test], Test]:
    """Hold a property against so many random examples in every run, and in `make exhaustive` against more."""

    def decorated(test: Test) -> Test:
        held = settings(max_examples=many if _EXHAUSTIVE else few, deadline=None)(test)
        if _EXHAUSTIVE:
            pytest.mark.exhaustive(held)
        return held

    return decorated
