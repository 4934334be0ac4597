"""What of the preferred rules a plan gives up."""

from __future__ import annotations

from typing import Any

from tests.support.builders import cluster, deployed, node, offer, selector, toleration
from tests.support.plans import plan_for

from kinema_core.events import NodeTerm, PlacementRules, PodTerm, PreferredNodeTerm, Requirement, Spread
from kinema_core.model.cluster import Cluster
from kinema_core.model.preferences import violated_preferences

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def in_zone(zone: str, weight: int) -> PlacementRules:
    """Prefers a zone."""
    term = NodeTerm(expressions=(Requirement(key=ZONE, operator="In", values=(zone,)),))
    return PlacementRules(preferred_nodes=(PreferredNodeTerm(weight=weight, term=term),))


def told(on: Cluster, **more: Any) -> list[tuple[str, str, int, int]]:
    """Workload, rule, weight and pods of what a plan gives up."""
    on_sale = (offer("m4", zone="a"), offer("m4", zone="b"))
    plan = plan_for(on, on_sale, **more)
    found = violated_preferences(plan, on, {one.name: one for one in on_sale}, 2)
    assert all(one.price == round(one.weight * one.pods * 2e-6, 6) for one in found)
    return [(one.workload, one.preference, one.weight, one.pods) for one in found]


def test_a_zone_that_pods_leave_is_given_up() -> None:
    """With its weight, for the pods for which it held; those that never were there lose nothing."""
    on = cluster(node("n1"), node("n2", zone="b"), deployed("web", ["n1", "n1", "n2"], rules=in_zone("a", 30)))
    moved = {"shop/web-0": "n2", "shop/web-1": "n2"}
    rule = f"node affinity {ZONE} In a"
    assert told(on, to=moved, delete=["n1"]) == [("Deployment/shop/web", rule, 30, 2)]
    new = {"shop/web-0": "new", "shop/web-1": "new"}
    assert told(on, to=new, delete=["n1"], boot={"new": "m4/a/on-demand"}) == []
    assert told(on) == []


def test_a_taint_that_pods_had_rather_avoid_counts_as_much_as_the_heaviest() -> None:
    """Unless they tolerate it."""
    on = cluster(
        node("n1"),
        node("n2", taints=["old:PreferNoSchedule"]),
        deployed("web", ["n1"]),
        deployed("log", ["n1"], rules=PlacementRules(tolerations=(toleration("old"),))),
    )
    moved = {"shop/web-0": "n2", "shop/log-0": "n2"}
    assert told(on, to=moved, delete=["n1"]) == [("Deployment/shop/web", "taint old:PreferNoSchedule", 100, 1)]


def test_company_is_given_up_by_whoever_stays_behind_too() -> None:
    """Preferred affinity is lost by the pod that stays, anti-affinity by both that meet."""
    near = PlacementRules(affinity=(PodTerm(topology_key=HOST, selector=selector(app="db"), weight=7),))
    on = cluster(node("n1"), node("n2"), deployed("web", ["n1"], rules=near), deployed("db", ["n1"]))
    rule = f"pod affinity over {HOST}"
    assert told(on, to={"shop/db-0": "n2"}) == [("Deployment/shop/web", rule, 7, 1)]
    apart = PlacementRules(anti_affinity=(PodTerm(topology_key=HOST, selector=selector(app="web"), weight=50),))
    on = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], rules=apart))
    rule = f"pod anti-affinity over {HOST}"
    assert told(on, to={"shop/web-1": "n1"}, delete=["n2"]) == [("Deployment/shop/web", rule, 50, 2)]


def test_a_spread_that_may_be_broken_is_reported_when_it_is() -> None:
    """By the pods of the domain that has too many."""
    even = Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="ScheduleAnyway", selector=selector(app="web"))
    rules = PlacementRules(spread=(even,))
    on = cluster(node("n1"), node("n2", zone="b"), deployed("web", ["n1", "n2"], rules=rules))
    assert told(on, to={"shop/web-1": "n1"}) == [("Deployment/shop/web", f"spread over {ZONE}", 100, 2)]


def test_a_zone_that_goes_counts_as_an_empty_one() -> None:
    """Who was spread over zones is not in one; who keeps zones, never was in two, or goes by hosts, loses nothing."""

    def even(key: str, skew: int = 1) -> PlacementRules:
        spread = Spread(
            topology_key=key, max_skew=skew, when_unsatisfiable="ScheduleAnyway", selector=selector(app="web")
        )
        return PlacementRules(spread=(spread,))

    nodes = (node("n1"), node("n2", zone="b"), node("n3", zone="b"))
    rules, rule = even(ZONE), ("Deployment/shop/web", f"spread over {ZONE}", 100, 2)
    on = cluster(nodes, deployed("web", ["n1", "n2"], rules=rules))
    assert told(on, to={"shop/web-1": "n1"}, delete=["n2", "n3"]) == [rule]
    assert told(on, to={"shop/web-1": "n3"}, delete=["n2"]) == []
    new = {"boot": {"new": "m4/b/on-demand"}, "delete": ["n2", "n3"]}
    assert told(on, to={"shop/web-1": "new"}, **new) == []
    uneven = cluster(nodes, deployed("web", ["n1", "n1"], rules=rules))
    assert told(uneven, to={}, delete=["n2", "n3"]) == []
    for other in (even(ZONE, skew=2), even(HOST)):
        on = cluster(nodes, deployed("web", ["n1", "n2"], rules=other))
        assert told(on, to={"shop/web-1": "n1"}, delete=["n2", "n3"]) == []
