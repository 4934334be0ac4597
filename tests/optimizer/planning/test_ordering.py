"""Plans for clusters where the best state has no order of moves that leads to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.model.checker.test_rules import HOSTNAME, ZONE, apart, even, near
from tests.optimizer.planned import replanned
from tests.optimizer.planning.test_plans import actions, plan
from tests.support.builders import cluster, deployed, node, offer

from kinema_core.events import Plan
from kinema_optimizer.planning import planner
from kinema_optimizer.planning.ordering import Stuck, order_once
from kinema_optimizer.planning.plan import nothing
from kinema_optimizer.planning.portfolio import Portfolio, SolverResult


@pytest.mark.slow
def test_pods_whose_moves_have_no_order_are_planned_for_where_they_are() -> None:
    """A surge of the only replica of a zone never starts: no machine is bought for those that were to go with it."""
    state = cluster(
        [node(name) for name in ("n0", "n1", "n2")],
        deployed("web", ["n0"], cpu=300, rules=apart("web", ZONE)),
        deployed("x", ["n1", "n2"], cpu=500),
    )
    on_sale = (offer("m2", cpu=1900, memory=7000, price=90_000), offer("m4"))
    found = plan(state, on_sale)
    assert actions(found) == {"n0": "keep", "n1": "delete", "n2": "delete"}
    assert found.figures["kept_in_place_without_an_order"] == 1
    assert (found.moves, found.held) == (2, ())
    assert found.cost.lower_bound == pytest.approx(0.17)  # no plan moves that replica: its node counts in the bound
    assert replanned(found, state, on_sale) == found


@pytest.mark.slow
def test_replicas_spread_over_hosts_go_where_the_old_ones_let_them() -> None:
    """One on each of six nodes: two on a new one is the most that kube-scheduler lets in before the old ones have gone.

    All six on one node would be even too, and cost a third; no order leads there.
    """
    names = [f"n{n}" for n in range(6)]
    state = cluster([node(name) for name in names], deployed("web", names, cpu=300, rules=even("web", HOSTNAME)))
    on_sale = (offer("m2", cpu=1900, memory=7000, price=90_000), offer("m4"))
    found = plan(state, on_sale)
    assert [name for name, what in actions(found).items() if what == "boot"] == [f"kinema-1-{n}" for n in (1, 2, 3)]
    assert set(actions(found).values()) == {"boot", "delete"}
    assert found.moves == 6
    assert found.cost.after == pytest.approx(0.27)
    assert found.cost.lower_bound == pytest.approx(0.09)
    assert replanned(found, state, on_sale) == found


def test_moves_that_were_taken_out_for_want_of_an_order_are_counted() -> None:
    """Replicas that ask for each other leave their node only together, and no order does that: one joins the others."""
    kept = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    state = cluster(
        [node("n0", annotations=kept), node("n1"), node("n2")],
        deployed("web", ["n1", "n1", "n2"], cpu=250, rules=near("web", HOSTNAME)),
    )
    found = plan(state, (offer("m4", available=0),))
    assert (actions(found)["n1"], actions(found)["n2"], found.moves) == ("keep", "delete", 1)
    assert found.figures["kept_in_place_without_an_order"] == 2
    assert found.cost.lower_bound < found.cost.after
    blamed = [one for one in found.constraint_costs if one.constraint.startswith("order of moves")]
    assert [(one.constraint, one.usd_per_hour) for one in blamed] == [
        ("order of moves: pod affinity", found.solve.lost_to_order)
    ]
    assert found.solve.lost_to_order > 0


def test_the_cheaper_of_two_ordered_plans_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A next best answer of the exact model that is dearer than the first is compared with that of the search."""
    state = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=300))

    def dear(portfolio: Portfolio, result: SolverResult) -> tuple[SolverResult, Plan, Stuck]:
        problem = portfolio.problem
        return replace(result), order_once(problem, nothing(problem))[0], {"shop/web-0": "room"}

    monkeypatch.setattr(planner, "_order", dear)
    assert actions(plan(state, (offer("m4"),))) in ({"n1": "keep", "n2": "delete"}, {"n1": "delete", "n2": "keep"})
