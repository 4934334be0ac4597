"""Plans keep and buy room for replicas that are expected soon, name it, and say what it costs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import NOW, cluster, deployed, labels, node, offer, toleration
from tests.support.planning import unguarded

from kinema_core.events import (
    CatalogPublished,
    Event,
    ForecastMade,
    IterationStarted,
    NoPlanFound,
    PlacementRules,
    Plan,
    ReplicasAhead,
    ReplicasExpected,
)
from kinema_core.model.boot_times import BootTimes
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_optimizer.request.ahead import room_ahead
from kinema_optimizer.service import Optimizer
from kinema_optimizer.settings import Settings

ON_SALE = (offer("m4", zone="a", cpu=4000, memory=16 * 1024, price=170_000),)
WEB = "Deployment/shop/web"


def wide(**rules: Any) -> Cluster:
    """Two nodes of four cores, with two pods of a core each: one node would hold both."""
    return cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=1000, rules=PlacementRules(**rules)))


def rising(in_minutes: float, to: int, now_at: int = 2) -> ReplicasAhead:
    """A workload of two replicas that will have so many then."""
    steps = round(in_minutes / 5)
    replicas = (now_at,) * (3 + steps) + (to,) * 12
    return ReplicasAhead(
        start=NOW - timedelta(minutes=15),
        step_seconds=300,
        workloads=(ReplicasExpected(workload=WEB, replicas=replicas),),
    )


async def answer(state: Cluster, ahead: ReplicasAhead | None, *, mode: str = "reschedule") -> Plan | NoPlanFound:
    """What the optimizer answers after a forecast."""
    stage = Optimizer(
        Settings(runtime=RuntimeSettings(cluster="test"), planning=unguarded(restart_price_usd=0.0)),
    )

    def event(body: CatalogPublished | ForecastMade | IterationStarted, n: int) -> Event:
        found = origin(body, id_=f"e{n}", cluster="test", iteration="i1", now=NOW)
        stage.recall(found)
        return found

    event(CatalogPublished(source="test", priced=NOW, offers=ON_SALE), 1)
    asked = event(ForecastMade(version=1, forecasts=(), ahead=ahead), 2)
    if mode == "autoscale":
        asked = event(IterationStarted(mode="autoscale", version=1, reason="ahead"), 3)
    (found,) = await stage.handle(asked, state, Moment(NOW))
    assert isinstance(found, Plan | NoPlanFound)
    return found


def actions(plan: Plan | NoPlanFound) -> list[str]:
    """What becomes of the nodes."""
    assert isinstance(plan, Plan), plan
    return sorted(one.action for one in plan.nodes)


async def test_a_node_goes_unless_its_room_is_needed_soon() -> None:
    """Seven pods need both nodes. In an hour they can be bought again, in five minutes not."""
    assert actions(await answer(wide(), None)) == ["delete", "keep"]
    assert actions(await answer(wide(), rising(60, 7))) == ["delete", "keep"]
    assert isinstance(await answer(wide(), rising(5, 7)), NoPlanFound)


async def test_plans_that_save_buy_nothing_for_the_rise() -> None:
    """What lacks is bought by an iteration for it, so that a plan which moves pods is never for room."""
    assert isinstance(await answer(wide(), rising(5, 10)), NoPlanFound)


async def test_nodes_are_booted_before_the_rise_and_nothing_moves() -> None:
    """Ten pods need a third node; the plan is for room, and names nothing that does not exist."""
    plan = await answer(wide(), rising(5, 10), mode="autoscale")
    assert actions(plan) == ["boot", "keep", "keep"]
    assert isinstance(plan, Plan)
    assert (plan.purpose, plan.moves, len(plan.placements)) == ("room", 0, 2)
    assert "room for 8 expected replicas" in plan.objective
    prices = {one.constraint: one.usd_per_hour for one in plan.constraint_costs}
    assert prices["replicas that are expected"] == pytest.approx(0.17)


def test_expected_pods_go_where_a_pod_of_theirs_may() -> None:
    """Selector and tolerations are kept; rules between pods are not theirs to break."""
    state = wide(node_selector=labels({"pool": "web"}), tolerations=(toleration("web"),))
    found = placed(state, rising(5, 4))
    assert [one.requests["cpu"] for one in found] == [1000, 1000]
    assert all(one.rules.node_selector == {"pool": "web"} and one.rules.tolerations for one in found)


def placed(state: Cluster, ahead: ReplicasAhead, boot_times: BootTimes | None = None, **settings: float) -> Any:
    """Placeholders for what is expected."""
    planning = unguarded(**settings)
    return room_ahead(
        ahead, state, ON_SALE, NOW, mode="autoscale", boot_times=boot_times or BootTimes(), settings=planning
    )


def test_the_horizon_follows_from_boots_restarts_and_prices() -> None:
    """Two restarts at 0.017 USD are what two nodes of 0.17 cost in six minutes; slow boots lengthen it as well."""
    rise = rising(10, 4)
    assert len(placed(wide(), rise, transition_seconds=300, restart_price_usd=0.0)) == 0
    assert len(placed(wide(), rise, transition_seconds=300, restart_price_usd=0.017)) == 2
    slow = BootTimes(last={"m4/a/on-demand": (timedelta(minutes=6),)})
    assert len(placed(wide(), rise, slow, transition_seconds=300, restart_price_usd=0.0)) == 2
