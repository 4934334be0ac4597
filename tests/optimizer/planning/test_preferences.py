"""Preferred rules in plans: they break ties, they can be paid for, and what is given up is reported."""

from __future__ import annotations

import pytest
from tests.optimizer.planned import planned
from tests.optimizer.rule_instances import rule_instance
from tests.support.builders import cluster, deployed, node, offer, selector
from tests.support.planning import unguarded

from kinema_core.events import (
    ClusterObject,
    NodeTerm,
    Offer,
    PlacementRules,
    Plan,
    PodTerm,
    PreferredNodeTerm,
    Requirement,
    Spread,
)
from kinema_core.model.cluster import Cluster

ZONE = "topology.kubernetes.io/zone"
FILL = 90
"""Pods that make a cluster too large for the exact model."""


def zoned(zone: str, weight: int = 50) -> PlacementRules:
    """Prefers a zone."""
    term = NodeTerm(expressions=(Requirement(key=ZONE, operator="In", values=(zone,)),))
    return PlacementRules(preferred_nodes=(PreferredNodeTerm(weight=weight, term=term),))


def plan(state: Cluster, on_sale: tuple[Offer, ...], *, price: int = 1) -> Plan:
    """The plan, checked."""
    return planned(state, on_sale, settings=unguarded(preference_price_usd=price / 1e6), work=400)


def where(found: Plan) -> dict[str, str]:
    """Zone of each pod afterwards."""
    zones = {one.name: one.zone for one in found.nodes}
    return {item.pod: zones[item.to] for item in found.placements}


def crowd(size: int) -> tuple[ClusterObject, ...]:
    """A node that must stay, full of small pods that may move."""
    keep = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    full = node("full", cpu=size * 10, annotations=keep, price="0")
    return (full, *deployed("crowd", ["full"] * size, cpu=10, memory=1))


@pytest.mark.parametrize("size", [0, FILL])
def test_of_equal_machines_the_preferred_zone_is_booted(size: int) -> None:
    """Both by the exact model and by the search; pending pods of two minds each get theirs."""
    on_sale = tuple(offer("m4", zone=zone) for zone in "abc")
    there = crowd(size) if size else (node("full", cpu=10, price="0"),)
    for zone in "bc":
        state = cluster(*there, deployed("web", [None], cpu=3000, rules=zoned(zone)))
        assert where(plan(state, on_sale))["shop/web-0"] == zone
    state = cluster(
        *there,
        deployed("one", [None], cpu=3000, rules=zoned("c")),
        deployed("two", [None], cpu=3000, rules=zoned("b")),
    )
    found = where(plan(state, on_sale))
    assert (found["shop/one-0"], found["shop/two-0"]) == ("c", "b")


@pytest.mark.parametrize("size", [0, FILL])
def test_a_preference_is_given_up_for_money_unless_it_is_worth_more(size: int) -> None:
    """At the default price of a point the dearer node goes, and the plan says what is given up; dear points keep it."""
    there = crowd(size) if size else (node("full", cpu=10, price="0"),)
    state = cluster(
        *there,
        node("near", zone="b"),
        node("far", zone="a", price="0.1"),
        deployed("web", ["near"] * 2, cpu=500, rules=zoned("b")),
        deployed("far", ["far"] * 2, cpu=500),
    )
    found = plan(state, (offer("m4", available=0), offer("m4", zone="b", available=0)))
    assert "near" in {one.name for one in found.nodes if one.action == "delete"}
    (lost,) = found.violated_preferences
    assert (lost.workload, lost.weight, lost.pods, lost.price) == ("Deployment/shop/web", 50, 2, 0.0001)
    dear = plan(state, (offer("m4", available=0), offer("m4", zone="b", available=0)), price=2000)
    assert "near" in {one.name for one in dear.nodes if one.action == "keep"}
    assert dear.violated_preferences == ()


def test_movers_take_the_seats_that_they_prefer() -> None:
    """In the search too: of pods that are alike but for what they prefer, each goes where it likes to be."""
    on_sale = (offer("m4", available=0), offer("m4", zone="b", available=0))
    state = cluster(
        *crowd(FILL),
        node("a", zone="a"),
        node("b", zone="b"),
        node("old", zone="c", price="1"),
        deployed("left", ["a", "b"], cpu=1000),
        deployed("to-a", ["old"] * 2, cpu=1000, rules=zoned("a")),
        deployed("to-b", ["old"] * 2, cpu=1000, rules=zoned("b")),
    )
    found = where(plan(state, on_sale))
    assert {found[f"shop/to-{zone}-{index}"] for zone in "ab" for index in range(2)} == {"a", "b"}
    assert all(found[f"shop/to-{zone}-{index}"] == zone for zone in "ab" for index in range(2))


@pytest.mark.parametrize("near", [False, True])
def test_company_is_sought_or_shunned_where_it_costs_nothing(near: bool) -> None:
    """Two pods that wait go to one node or to two, as they prefer; one that runs moves for nothing to please nobody."""
    keep = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    term = (PodTerm(topology_key="kubernetes.io/hostname", selector=selector(app="web"), weight=10),)
    rules = PlacementRules(affinity=term) if near else PlacementRules(anti_affinity=term)
    state = cluster(
        node("n1", annotations=keep), node("n2", annotations=keep), deployed("web", [None, None], rules=rules)
    )
    found = plan(state, (offer(available=0),))
    assert len({item.to for item in found.placements}) == (1 if near else 2)
    running = cluster(
        node("n1", annotations=keep), node("n2", annotations=keep), deployed("web", ["n1", "n1"], rules=rules)
    )
    assert plan(running, (offer(available=0),)).moves == 0


@pytest.mark.parametrize(("size", "spread"), [(0, False), (FILL, False), (FILL, True)])
def test_company_can_be_paid_for(size: int, spread: bool) -> None:
    """Two nodes become one though their pods had rather be apart, unless that is worth more than a node."""
    host = "kubernetes.io/hostname"
    term = PodTerm(topology_key=host, selector=selector(app="web"), weight=100)
    even = Spread(topology_key=host, max_skew=1, when_unsatisfiable="ScheduleAnyway", selector=selector(app="web"))
    rules = PlacementRules(spread=(even,)) if spread else PlacementRules(anti_affinity=(term,))
    there = crowd(size) if size else ()
    state = cluster(*there, node("n1"), node("n2"), deployed("web", ["n1", "n2"], rules=rules))
    found = plan(state, (offer(available=0),))
    assert (found.cost.after, [(one.weight, one.pods) for one in found.violated_preferences]) == (0.17, [(100, 2)])
    dear = plan(state, (offer(available=0),), price=1000)
    assert (dear.cost.after, dear.violated_preferences) == (0.34, ())


@pytest.mark.parametrize("size", [0, FILL])
def test_the_last_node_of_a_zone_is_given_up_for_money_and_reported(size: int) -> None:
    """A spread over zones that may be broken is given up where its pods end in one; the search can be paid not to."""
    even = Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="ScheduleAnyway", selector=selector(app="web"))
    there = crowd(size) if size else (node("full", cpu=10, price="0"),)
    web = deployed("web", ["n1", "n2"], rules=PlacementRules(spread=(even,)))
    state = cluster(*there, node("n1"), node("n2", zone="b"), web)
    none_on_sale = tuple(offer("m4", zone=zone, available=0) for zone in "ab")
    found = plan(state, none_on_sale)
    assert len({where(found)[f"shop/web-{index}"] for index in range(2)}) == 1
    assert [(one.preference, one.pods) for one in found.violated_preferences] == [(f"spread over {ZONE}", 2)]
    dear = plan(state, none_on_sale, price=1000)
    assert (size == 0) or dear.violated_preferences == ()


def test_a_preference_never_changes_who_is_placed_nor_costs_more_than_it_is_worth() -> None:
    """On instances with every rule: with and without a price of preferences as many are left out, at about the cost."""
    for seed in range(10):
        instance = rule_instance(seed)
        priced, free = (plan(instance.cluster, instance.offers, price=price) for price in (1, 0))
        assert len(priced.unplaced) == len(free.unplaced), seed
        pods = len(instance.cluster.pods)
        assert priced.cost.after <= free.cost.after * 1.001 + pods * 400e-6, seed
