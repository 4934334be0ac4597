"""Plans of clusters full of rules, carried out by the product in the simulated cluster."""

from __future__ import annotations

import pytest
from tests.history.ruled import carried_out


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_plan_under_every_kind_of_rule_is_carried_out(seed: int) -> None:
    """No invariant is broken, nobody is hurt, and most of the saving is real in the end."""
    verdict = carried_out(seed, 16, work=3)
    assert verdict.flaws == ()
    assert verdict.ended == "finished"
    assert verdict.moves > 20
    assert verdict.before - verdict.reached > 0.9 * (verdict.before - verdict.planned)
