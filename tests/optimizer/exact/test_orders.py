"""Whole plans with their orders against every end state and every order, on tiny clusters."""

from __future__ import annotations

from itertools import islice

import pytest
from tests.optimizer.exact.brute_orders import INSTANCES, compared, summary


@pytest.mark.slow
def test_the_first_plans_are_the_best() -> None:
    """No better state of these has an order."""
    found = summary(list(islice(compared(), 10)))
    assert found["equal"] == found["instances"] == 10


@pytest.mark.long
def test_nearly_all_plans_are_the_best() -> None:
    """98 of 100 plans are equal to brute force; the others are named, with what the search missed."""
    found = summary(list(islice(compared(), INSTANCES)))
    assert float(str(found["equal_percent"])) >= 98, found["others"]
