"""A plan states what it serves, which decides the rules that judge it."""

from __future__ import annotations

import pytest
from tests.optimizer.planned import Unpriced, planned
from tests.optimizer.planning.test_plans import forecast
from tests.support.builders import NOW, cluster, deployed, full, node, offer, offers
from tests.support.planning import unguarded

from kinema_core.events import FrozenMap, Purpose
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.headroom import Headroom
from kinema_optimizer.request.limits import NodeLimit
from kinema_optimizer.request.objective import Window
from kinema_optimizer.request.usable import UsableResources
from kinema_optimizer.settings import PlanningSettings

M4 = (offer("m4", zone="a", cpu=4000, memory=16 * 1024, price=170_000),)
LARGE = FrozenMap({"cpu": "3500m"})


@pytest.mark.parametrize(
    ("settings", "purpose"),
    [
        (unguarded(), "saving"),
        (unguarded(limits=(NodeLimit(min_nodes=3),)), "room"),
        (unguarded(usable=UsableResources(max_percent=FrozenMap({"cpu": 20}))), "room"),
        (unguarded(windows=(Window(headroom=(Headroom(requests=LARGE, count=2),)),)), "room"),
    ],
)
def test_plan_that_buys_room_which_is_missing_is_for_room(settings: PlanningSettings, purpose: Purpose) -> None:
    """Headroom, minimum nodes and usable resources make the plan dearer; without them it saves a node."""
    state = cluster(node("n1"), node("n2"), *deployed("web", ["n1", "n2"], cpu=1000))
    plan = plan_for(state, M4, now=NOW, settings=settings, stop=Unpriced(40))
    assert plan.purpose == purpose
    assert (plan.cost.after < plan.cost.before) == (purpose == "saving")


def test_room_that_is_there_already_makes_no_plan_one_for_room() -> None:
    """A plan that only lowers requests waits for approval, also where headroom that is asked for has room as it is."""
    state = cluster(node("n1"), *deployed("web", ["n1"], cpu=2000))
    asked = unguarded(windows=(Window(headroom=(Headroom(requests=FrozenMap({"cpu": "500m"})),)),))
    lowered = (forecast("web", cpu=2000, after=1000),)
    plan = plan_for(state, M4, now=NOW, settings=asked, stop=Unpriced(40), forecasts=lowered)
    assert plan.resizes
    assert plan.purpose == "saving"


def test_plan_for_pending_pods_is_for_room() -> None:
    """An autoscale plan brings room."""
    assert planned(full(), offers(), mode="autoscale").purpose == "room"


def test_plan_that_only_raises_requests_is_for_safety() -> None:
    """Where nothing is saved, higher requests are what the plan is for; one that saves beside them is one to save."""
    state = cluster(node("n1"), *deployed("web", ["n1"], cpu=500))
    raised = (forecast("web", cpu=500, after=700),)
    assert planned(state, M4, forecasts=raised).purpose == "safety"
    wide = cluster(node("n1"), node("n2"), *deployed("web", ["n1"], cpu=500))
    assert planned(wide, M4, forecasts=raised).purpose == "saving"
