"""Pending pods that a solution leaves out, tried again when everybody else is seated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from tests.support.builders import NOW, cluster, deployed, labels, node, offer, on_every_node, selector
from tests.support.plans import plan_for

from kinema_core.events import ClusterObject, Offer, PlacementRules, Plan, PodTerm
from kinema_core.model.checker.check import check_plan
from kinema_core.model.mobility import MobilityOptions
from kinema_optimizer.planning.leftovers import with_leftovers

HOSTNAME = "kubernetes.io/hostname"
NONE = (offer(available=0),)


def finished(
    *objects: ClusterObject | Iterable[ClusterObject],
    to: Mapping[str, str],
    out: Iterable[str],
    on_sale: tuple[Offer, ...] = NONE,
) -> Plan:
    """The plan that seats pods like this on one node, and leaves others out, with those seated that can be."""
    on = cluster(node("n1"), *objects)
    plan = plan_for(on, on_sale, to=to, unplaced=dict.fromkeys(out, "no-room"))
    found = with_leftovers(plan, on, on_sale, now=NOW, options=MobilityOptions())
    assert check_plan(found, on, on_sale, NOW) == ()
    return found


def places(plan: Plan) -> dict[str, str]:
    """Where pods end up."""
    return {item.pod: item.to for item in plan.placements}


def test_a_pod_takes_the_room_that_is_left() -> None:
    """On a node that is there, rather than on a new one."""
    found = finished(deployed("web", [None]), to={}, out=["shop/web-0"], on_sale=(offer(),))
    assert places(found) == {"shop/web-0": "n1"}
    assert found.cost.after == found.cost.before


def test_a_pod_gets_the_cheapest_new_node() -> None:
    """When no node has room; what follows it goes there too."""
    big = deployed("big", [None, None], cpu=1500)
    on_sale = (offer("m4"), offer("m2", cpu=3000, price=90_000))
    found = finished(deployed("full", ["n1"], cpu=3900), big, to={}, out=["shop/big-0", "shop/big-1"], on_sale=on_sale)
    assert places(found)["shop/big-0"] == places(found)["shop/big-1"]
    assert [one.machine_type for one in found.nodes] == ["m4", "m2"]
    assert (found.cost.after, found.unplaced) == (0.26, ())


def test_the_more_important_pod_takes_the_room_of_lesser_ones() -> None:
    """Of as few as can be, the least important first; they are left out by name."""
    low, mid = deployed("low", [None, None], cpu=1500), deployed("mid", [None], cpu=900, priority=5)
    high = deployed("high", [None], cpu=1500, priority=9)
    to = {"shop/low-0": "n1", "shop/low-1": "n1", "shop/mid-0": "n1"}
    found = finished(low, mid, high, to=to, out=["shop/high-0"])
    assert places(found).keys() == {"shop/low-1", "shop/mid-0", "shop/high-0"}
    assert [(item.pod, item.code) for item in found.unplaced] == [("shop/low-0", "priority")]


def test_nobody_gives_way_to_an_equal_or_for_a_rule() -> None:
    """Pods of the same priority keep their room, and so do those that a rule between pods is about."""
    low, other = deployed("low", [None], cpu=3000), deployed("other", [None], cpu=3000)
    assert places(finished(low, other, to={"shop/low-0": "n1"}, out=["shop/other-0"])) == {"shop/low-0": "n1"}
    shy = PlacementRules(anti_affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="x")),))
    ruled = deployed("low", [None], cpu=3000, rules=shy)
    high = deployed("high", [None], cpu=3000, priority=9)
    assert places(finished(ruled, high, to={"shop/low-0": "n1"}, out=["shop/high-0"])) == {"shop/low-0": "n1"}


def test_the_next_pod_may_be_what_another_lacked() -> None:
    """A pod that asks for company is tried again when it has come."""
    near = PlacementRules(affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="late")),))
    early = deployed("early", [None], rules=near, priority=9)
    found = finished(early, deployed("late", [None]), to={}, out=["shop/early-0", "shop/late-0"])
    assert places(found) == {"shop/early-0": "n1", "shop/late-0": "n1"}


def test_a_plan_that_leaves_nobody_out_is_left_as_it_is() -> None:
    """The very same plan."""
    on = cluster(node("n1"), deployed("web", ["n1"]))
    plan = plan_for(on, NONE)
    assert with_leftovers(plan, on, NONE, now=NOW, options=MobilityOptions()) is plan


def test_a_node_is_not_deleted_from_under_a_pod_that_needs_it() -> None:
    """A pod that only one node admits gets it when those who filled it go elsewhere; the cheapest way is taken."""
    rules = PlacementRules(node_selector=labels({"disk": "ssd"}))
    state = cluster(
        node("n1"),
        node("n2", labels={"disk": "ssd"}),
        node("n3", labels={"disk": "ssd"}, price="0.3"),
        deployed("web", ["n2", "n3"], cpu=1500),
        deployed("picky", [None], cpu=3000, rules=rules),
    )
    gone = {"shop/web-0": "n1", "shop/web-1": "n1"}
    plan = plan_for(state, NONE, to=gone, delete=["n2", "n3"], unplaced={"shop/picky-0": "no-room"})
    assert [one.code for one in check_plan(plan, state, NONE, NOW)] == ["pending-placeable"]
    found = with_leftovers(plan, state, NONE, now=NOW, options=MobilityOptions())
    assert check_plan(found, state, NONE, NOW) == ()
    assert places(found) == {**gone, "shop/picky-0": "n2"}
    assert {one.name: one.action for one in found.nodes} == {"n1": "keep", "n2": "keep", "n3": "delete"}
    assert (found.cost.after, found.unplaced) == (0.34, ())


def test_a_node_does_not_come_back_with_pods_that_a_rule_is_about() -> None:
    """The daemon set's pods of a node that is to be deleted would be there again: who keeps away from them waits."""
    shy = PlacementRules(anti_affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="logger")),))
    web, waits = deployed("web", ["n2"]), deployed("shy", [None], rules=shy)
    for kind, free in (("logger", False), ("other", True)):
        daemons, *pods = on_every_node("logger", ["n1", "n2"], namespace="shop")
        marked = [msgspec.structs.replace(one, labels=labels({"app": kind})) for one in pods]
        on = cluster(node("n1", unschedulable=True), node("n2"), web, waits, daemons, marked)
        plan = plan_for(on, NONE, to={"shop/web-0": "n1"}, delete=["n2"], unplaced={"shop/shy-0": "no-room"})
        found = with_leftovers(plan, on, NONE, now=NOW, options=MobilityOptions())
        assert (found.unplaced == ()) is free
