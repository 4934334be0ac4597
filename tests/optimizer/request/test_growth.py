"""A plan for pending pods chooses machines by the mix of the cluster's requests: more pods are expected to follow."""

from __future__ import annotations

import pytest
from tests.optimizer.planned import Unpriced, planned
from tests.support.builders import NOW, cluster, deployed, node, offer, offers
from tests.support.planning import unguarded

from kinema_core.events import Offer, Plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.growth import Growth, less_what_follows
from kinema_optimizer.request.objective import Window
from kinema_optimizer.settings import PlanningSettings

LEAN = offer("lean2", cpu=2000, memory=2 * 1024, price=60_000, watts=20.0)
EVEN = offer("even2", cpu=2000, memory=8 * 1024, price=85_000, watts=25.0)
LARGE = offer("even8", cpu=8000, memory=32 * 1024, price=340_000, watts=100.0)
ON_SALE = (LEAN, EVEN, LARGE)
DEFAULT = unguarded(expected_use_fraction=PlanningSettings().expected_use_fraction)


def heavy(waiting: int = 1) -> Cluster:
    """A full node of pods that request three GiB per core; `waiting` more of them wait."""
    return cluster(
        node("n1", machine="even8", cpu=4000, memory=16 * 1024),
        deployed("web", ["n1"] * 10 + [None] * waiting, cpu=400, memory=1200),
    )


def bought(plan: Plan) -> list[str]:
    """Machine types of new nodes."""
    return sorted(one.machine_type for one in plan.nodes if one.action == "boot")


def prices(state: Cluster, on_sale: tuple[Offer, ...], growth: Growth) -> list[int]:
    """What the solver sees."""
    return [one.micro_usd_per_hour for one in less_what_follows(state, on_sale, growth)]


def test_a_machine_is_bought_that_suits_the_pods_to_come() -> None:
    """One pod waits: the cheapest machine holds it and no second one; the next holds four and costs less than two."""
    assert bought(planned(heavy(), ON_SALE, settings=unguarded(), mode="autoscale")) == ["lean2"]
    plan = planned(heavy(), ON_SALE, settings=DEFAULT, mode="autoscale")
    assert bought(plan) == ["even2"]
    assert {one.usd_per_hour for one in plan.nodes} == {0.34, 0.085}
    assert plan.cost.after == pytest.approx(plan.cost.before + 0.085)
    assert plan.cost.lower_bound <= plan.cost.after
    assert plan.status == "feasible"
    assert plan.figures["expected_to_be_used_usd_per_hour"] == pytest.approx(0.0425)


def test_no_larger_machine_than_the_waiting_pods_need() -> None:
    """Where price goes with size, half of the room's worth favors no size."""
    assert bought(planned(heavy(), (EVEN, LARGE), settings=DEFAULT, mode="autoscale")) == ["even2"]
    assert bought(planned(heavy(4), ON_SALE, settings=DEFAULT, mode="autoscale")) == ["even2"]


def test_a_plan_that_saves_expects_nothing() -> None:
    """It answers what is there: no machine costs less in it."""
    plan = planned(heavy(), ON_SALE, settings=DEFAULT)
    assert "expected_to_be_used_usd_per_hour" not in plan.figures
    assert plan.nodes == planned(heavy(), ON_SALE, settings=unguarded()).nodes


def test_worth_of_room() -> None:
    """Room is worth what the cheapest machine for the mix takes for it: 11 pods of 1,200 MiB, of which lean2 holds one.

    even2 carries 8192 of 13,200 MiB, 2000 of 4,400m: CPU is what it lacks. lean2 carries 2048 of 13,200 MiB.
    """
    rate = 85_000 * 4400 / 2000
    worth = [rate * 2048 / 13_200, 85_000, 340_000]
    for fraction in (0.5, 0.25):
        found = prices(heavy(), ON_SALE, Growth(fraction))
        assert found == [
            price - int(fraction * one) for price, one in zip((60_000, 85_000, 340_000), worth, strict=True)
        ]
    assert prices(heavy(), ON_SALE, Growth(0.0)) == [60_000, 85_000, 340_000]


def test_machines_that_ordinary_pods_do_not_use_keep_their_price() -> None:
    """Behind a taint, as spot capacity, or paid for already; sold-out ones set no rate."""
    tainted = offer("gpu", cpu=4000, price=50_000, taints=("gpu=yes:NoSchedule",))
    spot = offer("cheap", spot=True, price=30_000)
    committed = offer("ours", price=0, available=2, committed=2)
    assert prices(heavy(), (tainted, spot, committed), Growth(0.5)) == [50_000, 30_000, 0]
    assert prices(heavy(), (spot,), Growth(0.5, allow_spot=True)) == [15_000]
    gone = offer("gone", cpu=64_000, memory=256 * 1024, price=1, available=0)
    assert prices(heavy(), (EVEN, gone), Growth(0.5))[0] == 42_500
    assert prices(cluster(node("n1")), ON_SALE, Growth(0.5)) == [60_000, 85_000, 340_000]


def test_energy_is_restated_alike() -> None:
    """Watts take the place of prices first; the plan has watts and money of the machines as they are."""
    energy = unguarded(windows=(Window(objective="energy"),), expected_use_fraction=0.5)
    plan = plan_for(heavy(), ON_SALE, now=NOW, settings=energy, mode="autoscale", stop=Unpriced(40))
    assert bought(plan) == ["even2"]
    assert plan.cost.unit == "W"
    assert plan.cost.after - plan.cost.before == pytest.approx(25.0)
    assert plan.figures["usd_per_hour_after"] == pytest.approx(0.425)


def test_nodes_whose_price_is_not_known_stay_so() -> None:
    """They count nothing, as in any plan."""
    state = cluster(
        node("n1", machine="even8", cpu=4000), node("old", machine="unsold"), *heavy().pods, *heavy().workloads
    )
    plan = planned(state, ON_SALE, settings=DEFAULT, mode="autoscale", work=40)
    assert {one.name: one.usd_per_hour for one in plan.nodes if one.action == "keep"} == {"n1": 0.34, "old": 0.0}


def test_equal_machines_are_bought_as_before() -> None:
    """Machines of one shape at prices by size: the default changes nothing."""
    state = cluster(node("n1"), deployed("web", ["n1"], cpu=4000), deployed("big", [None], cpu=2000))
    found = [planned(state, offers(), settings=one, mode="autoscale") for one in (unguarded(), DEFAULT)]
    assert [bought(one) for one in found] == [["m2"], ["m2"]]
