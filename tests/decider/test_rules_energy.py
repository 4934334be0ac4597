"""The decider's rules for plans that save energy."""

from __future__ import annotations

import msgspec
import pytest
from tests.decider.cases import Court, refusal
from tests.support.builders import cluster, deployed, node, offer
from tests.support.plans import plan_for

from kinema_core.events import (
    CatalogPublished,
    Cost,
    Plan,
    PlanAccepted,
    PlanRejected,
)
from kinema_core.model.cluster import Cluster


def powered(watts: float, usd: str = "0.1") -> tuple[Cluster, Plan, CatalogPublished]:
    """Two nodes that become one of another type, which draws so much and costs more: a plan for the least energy."""
    old, new = offer("m4", watts=100.0), offer("eco", price=900_000, watts=watts)
    before = cluster(node("n1", price=usd), node("n2", price=usd), deployed("web", ["n1", "n2"], cpu=500))
    to = {"shop/web-0": "new", "shop/web-1": "new"}
    plan = plan_for(before, (old, new), to=to, boot={"new": new.name}, delete=["n1", "n2"])
    cost = Cost(before=200.0, after=watts, lower_bound=watts, gap=0.0, unit="W")
    published = CatalogPublished(source="test", priced=None, offers=(old, new))
    return before, msgspec.structs.replace(plan, cost=cost), published


@pytest.mark.parametrize(("watts", "accepted"), [(180.0, True), (180.5, False)])
async def test_a_plan_for_energy_is_judged_in_watts(watts: float, accepted: bool) -> None:
    """It may cost money: what it has to save, and to pay back, is energy."""
    before, plan, published = powered(watts)
    court = Court(transition_seconds=60.0)
    court.tell(published, "catalog-2")
    body = await court.judge(plan, before)
    assert isinstance(body, PlanAccepted) is accepted, body
    assert body.figures["cost_now_watts"] == 200.0
    if isinstance(body, PlanRejected):
        assert (body.rule, "180.500000 W after the plan" in body.reason) == ("saving", True)


async def test_energy_has_to_come_back_too() -> None:
    """Two restarts at half a watt-hour and ten minutes side by side, for 20 W less over three minutes."""
    before, plan, published = powered(180.0)
    court = Court(expected_plan_lifetime_seconds=180.0, transition_seconds=600.0)
    court.tell(published, "catalog-2")
    refused = await refusal(court, plan, before)
    assert refused.rule == "payback"
    figures = [refused.figures[f"{name}_watt_hours"] for name in ("saved", "double_run", "restarts")]
    assert figures == [1.0, 30.0, 1.0]


async def test_a_plan_for_energy_needs_watts() -> None:
    """Where the catalog has none for a machine type, nothing can be compared."""
    before, plan, published = powered(100.0)
    bare = tuple(msgspec.structs.replace(one, watts=None) for one in published.offers)
    court = Court()
    court.tell(CatalogPublished(source="test", priced=None, offers=bare), "catalog-2")
    refused = await refusal(court, plan, before)
    assert (refused.rule, "eco, m4" in refused.reason, "watts" in refused.would_change) == ("priced", True, True)
