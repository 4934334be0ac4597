"""A plan that expected replicas undo lasts until then: it must have paid back by that time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.decider.cases import Court, refusal
from tests.support.builders import NOW, cluster, deployed, node, offers
from tests.support.plans import plan_for

from kinema_core.events import ForecastMade, Plan, PlanAccepted, ReplicasAhead, ReplicasExpected
from kinema_core.model.cluster import Cluster

WEB = "Deployment/shop/web"
LIMITS = {"transition_seconds": 300, "restart_price_usd": 0.0, "expected_plan_lifetime_seconds": 3600}


def halved() -> tuple[Cluster, Plan]:
    """Two nodes of four cores with a pod of a core each become one."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=1000))
    return before, plan_for(before, offers(), to={"shop/web-1": "n1"}, delete=["n2"])


def told(minutes: float, to: int) -> Court:
    """A decider that has heard of so many replicas in so many minutes."""
    court = Court(**LIMITS)
    replicas = (2,) * (3 + round(minutes / 5)) + (to,) * 12
    ahead = ReplicasAhead(
        start=NOW - timedelta(minutes=15),
        step_seconds=300,
        workloads=(ReplicasExpected(workload=WEB, replicas=replicas),),
    )
    court.tell(ForecastMade(version=1, forecasts=(), ahead=ahead), "forecast-1")
    return court


async def test_a_plan_that_is_undone_before_it_has_paid_back_is_rejected() -> None:
    """Five pods need more than one node: in five minutes the node has saved less than it costs to have it again."""
    state, plan = halved()
    body = await refusal(told(5, 5), plan, state)
    assert body.rule == "payback"
    assert body.figures["undone_in_seconds"] == 299
    assert body.figures["saved_usd"] == pytest.approx(0.17 * 299 / 3600, abs=1e-6)
    assert body.figures["double_run_usd"] == pytest.approx(0.17 * 300 / 3600, abs=1e-6)
    assert "later rise" in body.would_change


@pytest.mark.parametrize(("minutes", "to"), [(10, 5), (5, 4), (90, 9)])
async def test_a_plan_that_pays_back_before_or_leaves_room_enough_is_accepted(minutes: float, to: int) -> None:
    """Later, fewer, or after the time that a plan is expected to last."""
    state, plan = halved()
    assert isinstance(await told(minutes, to).judge(plan, state), PlanAccepted)


async def test_a_plan_that_takes_no_room_away_is_not_undone() -> None:
    """More is expected than there is with and without it: a cheaper node of the same size saves all the same."""
    state = cluster(node("n1", price="0.9"), deployed("web", ["n1", "n1"], cpu=1000))
    plan = plan_for(
        state, offers(), to={"shop/web-0": "k1", "shop/web-1": "k1"}, boot={"k1": "m4/a/on-demand"}, delete=["n1"]
    )
    assert isinstance(await told(5, 50).judge(plan, state), PlanAccepted)
