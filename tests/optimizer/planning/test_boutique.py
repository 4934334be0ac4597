"""The instance of the demo's size: Online Boutique after a peak, with Google's e2 machines and prices."""

from __future__ import annotations

import pytest
from tests.optimizer.instances import boutique
from tests.support.builders import NOW
from tests.support.planning import unguarded

from kinema_core.model.checker.check import check_plan
from kinema_optimizer.planning.planner import plan_for, reference_for
from kinema_optimizer.solvers.stopping import WorkStop


def test_ten_replicas_of_everything_are_solved_to_the_proven_optimum() -> None:
    """120 pods on 12 nodes: 0.57 USD/h, the optimum known from other solvers, with its proof."""
    state, offers = boutique(10)
    found = plan_for(state, offers, now=NOW, settings=unguarded(), stop=WorkStop(5000))
    assert (found.status, found.cost.after, found.cost.lower_bound) == ("optimal", 0.57, 0.57)
    assert check_plan(found, state, offers, NOW) == ()
    assert {stop.reason for stop in found.solve.stops} == {"optimal"}


def test_five_replicas_of_everything_reach_the_optimum_of_the_literal_model() -> None:
    """60 pods on 8 nodes: the literal model, in which every pod may go anywhere, finds nothing cheaper."""
    state, offers = boutique(5, nodes=8)
    found = plan_for(state, offers, now=NOW, settings=unguarded(), stop=WorkStop(5000))
    literal = reference_for(
        state,
        offers,
        now=NOW,
        settings=unguarded(),
        stop=WorkStop(5000),
        at_most=round(found.cost.after * 10**6),
    )
    assert literal.proven
    assert literal.cost == round(found.cost.after * 10**6) == 310_000


def test_seven_replicas_of_everything_are_proven() -> None:
    """84 pods on 14 nodes, as in the demo: 0.39 USD/h."""
    state, offers = boutique(7, seed=4, nodes=14)
    found = plan_for(state, offers, now=NOW, settings=unguarded(), stop=WorkStop(5000))
    assert found.cost.after == found.cost.lower_bound == 0.39


@pytest.mark.slow
def test_a_large_cluster_is_planned_within_two_percent_of_its_bound_without_branch_and_bound() -> None:
    """4,800 pods: the search comes close to the certified bound in a few rounds."""
    state, offers = boutique(400, seed=1, nodes=500)
    found = plan_for(state, offers, now=NOW, settings=unguarded(), stop=WorkStop(10))
    assert found.status == "feasible"
    assert found.cost.gap is not None
    assert found.cost.gap < 0.02
    assert found.solve.method.startswith("assignment bound")
    assert check_plan(found, state, offers, NOW) == ()
