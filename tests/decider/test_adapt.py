"""A plan on the state of now: where each pod goes and what the plan then costs."""

from __future__ import annotations

import pytest
from tests.support.builders import cluster, deployed, node, offers
from tests.support.plans import plan_for

from kinema_core.events import ClusterObject, Placement, Plan
from kinema_core.model.catalog import node_prices
from kinema_core.model.cluster import from_objects
from kinema_decider.logic.adapt import Adapted, adapt

NODES = (node("n1"), node("n2"), node("n3"))


def planned(*places: str | None, to: str) -> Plan:
    """A plan that deletes n3 and sends web-rs-0 to `to`; the other pods stay."""
    return plan_for(cluster(NODES, web(*places)), offers(), to={"shop/web-rs-0": to}, delete=["n3"])


def web(*places: str | None) -> tuple[ClusterObject, ...]:
    """A Deployment with its pods, whose names begin with that of their ReplicaSet."""
    return deployed("web-rs", places, cpu=500)


def adapted(plan: Plan, *objects: ClusterObject) -> Adapted:
    """The plan on a later state of these objects."""
    now = from_objects([*NODES, *objects], 2)
    return adapt(plan, now, node_prices(now, offers()), {item.name: item.micro_usd_per_hour for item in offers()})


def place_of(found: Adapted, pod: str) -> Placement:
    """The place of one pod."""
    (place,) = [place for place in found.plan.placements if place.pod == pod]
    return place


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (None, (None, "n1", "schedule")),
        ("n1", ("n1", "n1", "stay")),
        ("n2", ("n2", "n2", "stay")),
        ("n3", ("n3", "n1", "surge")),
    ],
)
def test_pod_that_was_bound_since_the_plan(bound: str | None, expected: tuple[str | None, str, str]) -> None:
    """It stays where the scheduler put it; on a node to be deleted it still goes where the plan sends it."""
    plan = planned(None, to="n1")
    place = place_of(adapted(plan, *web(bound)), "shop/web-rs-0")
    assert (place.source, place.to, place.strategy) == expected
    assert place.requests == plan.placements[0].requests


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("n3", "n3", ("n3", "n2", "surge")),
        ("n2", "n3", ("n3", "n2", "surge")),
        ("n3", "n1", ("n1", "n1", "stay")),
        ("n3", None, (None, "n2", "schedule")),
    ],
)
def test_pod_that_replaced_another_of_its_owner(
    old: str, new: str | None, expected: tuple[str | None, str, str]
) -> None:
    """It takes the place of the vanished one where it cannot stay, and surges where that one was to stay."""
    *owners, _, heir = web(None, new)
    place = place_of(adapted(planned(old, to="n2"), *owners, heir), "shop/web-rs-1")
    assert (place.source, place.to, place.strategy) == expected


def test_figures_are_those_of_the_present_state() -> None:
    """A node that came is kept and paid for; a pod that is gone moves no more; the gap is to the plan's own bound."""
    plan = planned("n3", "n1", to="n1")
    *owners, first, second = web("n3", "n1")
    found = adapted(plan, node("n4"), *owners, first, second).plan
    assert (found.cost.before, found.cost.after, found.cost.lower_bound) == (0.68, 0.51, 0.34)
    assert found.cost.gap == pytest.approx(0.5)
    assert (found.moves, found.restarts) == (1, 0)
    assert adapted(plan, *owners, second).plan.moves == 0
