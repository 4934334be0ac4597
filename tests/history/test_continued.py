"""Pods that are sent elsewhere at random cost time and moves, and in the end hardly any money."""

from __future__ import annotations

import pytest
from tests.history.continued import continued
from tests.history.random_clusters import random_cluster

SEEDS = (300, 304, 306)
"""Clusters with several moves; in the last one half of the pods elsewhere leave no room for the rest as planned."""


@pytest.mark.slow
@pytest.mark.parametrize(("share", "dearer", "longer"), [(0.05, 1.01, 1.5), (0.5, 1.02, 2.5)])
def test_misplaced_pods_cost_hardly_any_money(share: float, dearer: float, longer: float) -> None:
    """Nothing is unready or left closed, the cost is that of the undisturbed run, and it takes not much longer."""
    plans = 0
    for seed in SEEDS:
        calm, seconds, _ = continued(random_cluster(seed), 0.0)
        found, took, count = continued(random_cluster(seed), share)
        assert not found.flaws
        assert found.reached <= calm.reached * dearer
        assert took <= seconds * longer
        plans += count
    assert plans > len(SEEDS) or share < 0.5
