"""The limit that the frontier is drawn beside: no plan is below it, and the search comes close to it."""

from __future__ import annotations

import pytest
from benchmarks.clusters import NOW
from benchmarks.least_cost import LeastCost
from benchmarks.starts import deployments_after_peak

from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.solvers.stopping import WorkStop


@pytest.fixture(scope="module")
def after_peak() -> Compiled:
    """Eighty deployments on what three times as many pods needed."""
    start = deployments_after_peak(80)
    return compiled(Question(start.cluster, start.offers, NOW, "reschedule"))


@pytest.fixture(scope="module")
def least(after_peak: Compiled) -> LeastCost:
    """Its limit."""
    return LeastCost(after_peak.relaxed)


def test_without_moves_everything_is_paid_for(after_peak: Compiled, least: LeastCost) -> None:
    """Nothing can go while no pod may move; the more may, the less is the limit."""
    pods = int(after_peak.packing.total.sum())
    costs = [round(least.at(pods * share // 100)) for share in (0, 10, 30, 60, 100)]
    empty = after_peak.packing.stays.loads(after_peak.packing.requests).sum(axis=1) == 0
    assert costs[0] == pytest.approx(float(after_peak.packing.node_price[~empty].sum()))
    assert costs == sorted(costs, reverse=True)


def test_moves_at_a_cost_are_those_that_the_limit_needs_for_it(least: LeastCost) -> None:
    """One move fewer, and the limit is above the cost."""
    cost = int(least.at(40)) + 1
    moves = least.moves_at(cost)
    assert moves <= 40
    assert least.at(moves) <= cost * (1 + 1e-9) < least.at(moves - 1)


@pytest.mark.slow
@pytest.mark.parametrize("share", [10, 30, 50])
def test_a_plan_within_a_limit_on_moves_costs_little_more_than_any_must(
    after_peak: Compiled, least: LeastCost, share: int
) -> None:
    """Nearly all the moves allowed are used, where each saves most: within three percent of the limit, never below."""
    most = int(after_peak.packing.total.sum()) * share // 100
    found = search(after_peak.packing, after_peak.relaxed, SearchOptions(max_moves=most, workers=1), WorkStop(2))
    assert found.moves <= most
    assert least.at(most) <= found.cost * (1 + 1e-9)
    assert found.cost <= least.at(most) * 1.03
