"""Pending pods that a plan leaves out: whether the rules between pods would have let them in somewhere."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.support.builders import NOW, cluster, deployed, node, offer, selector
from tests.support.plans import plan_for

from kinema_core.events import (
    ClusterObject,
    Node,
    NodeTerm,
    Offer,
    PlacementRules,
    Pod,
    PodTerm,
    Requirement,
    Spread,
    Volume,
    VolumeClaim,
)
from kinema_core.model import pod_locations
from kinema_core.model.checker.check import check_plan
from kinema_core.model.checker.free_places import ArrivalRules
from kinema_core.model.checker.view import view_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions
from kinema_core.model.neighbors import PodIndex, pod_index
from kinema_core.model.pod_locations import PodLocations

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
SOLD_OUT = (offer(zone="a", available=0), offer(zone="b", available=0))


def apart(app: str, key: str = HOSTNAME) -> PlacementRules:
    """Keeps away pods of that app."""
    return PlacementRules(anti_affinity=(PodTerm(topology_key=key, selector=selector(app=app)),))


def near(app: str, key: str = ZONE) -> PlacementRules:
    """Asks for a pod of that app."""
    return PlacementRules(affinity=(PodTerm(topology_key=key, selector=selector(app=app)),))


def even(app: str, key: str = ZONE) -> PlacementRules:
    """Spreads pods of that app evenly."""
    rule = Spread(topology_key=key, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app=app))
    return PlacementRules(spread=(rule,))


def placeable(
    *objects: ClusterObject | Iterable[ClusterObject], on_sale: tuple[Offer, ...] = SOLD_OUT, nodes: str = "ab"
) -> bool:
    """Whether the checker finds a place for the pending pod `web-0`, with a node in each of the zones."""
    on = cluster([node(f"n-{zone}", zone=zone) for zone in nodes], *objects)
    every = {one.name: one for one in (*SOLD_OUT, *on_sale)}
    plan = plan_for(on, every.values(), unplaced={"shop/web-0": "no-room"})
    found = {one.code for one in check_plan(plan, on, every.values(), NOW)}
    assert found <= {"pending-placeable"}
    return bool(found)


def web(rules: PlacementRules) -> tuple[ClusterObject, ...]:
    """The pending pod, and its controllers."""
    return deployed("web", [None], rules=rules)


@pytest.mark.parametrize(("there", "expected"), [(["n-a"], True), (["n-a", "n-b"], False)])
def test_its_own_anti_affinity_bars_a_node(there: list[str], expected: bool) -> None:
    """It may be left out only when nobody it keeps away is anywhere missing."""
    assert placeable(web(apart("db")), deployed("db", there)) is expected


@pytest.mark.parametrize(("there", "expected"), [(["n-a"], True), (["n-a", "n-b"], False)])
def test_anothers_anti_affinity_bars_a_node(there: list[str], expected: bool) -> None:
    """Pods that keep it away bar their nodes."""
    assert placeable(web(PlacementRules()), deployed("db", there, rules=apart("web"))) is expected


def test_a_new_node_is_free_of_others() -> None:
    """Anti-affinity over nodes never bars a new node, one over zones does where the zone is taken."""
    both = deployed("db", ["n-a", "n-b"])
    assert placeable(web(apart("db")), both, on_sale=(offer(zone="a"),))
    assert not placeable(web(apart("db", ZONE)), both, on_sale=(offer(zone="a"),))
    assert placeable(web(apart("db", ZONE)), both, on_sale=(offer(zone="c"),))


def test_affinity_asks_for_company() -> None:
    """Where it is, it could go; where the kind that it asks for is its own and nowhere, it may be the first."""
    assert placeable(web(near("db")), deployed("db", ["n-b"]))
    assert not placeable(web(near("db")))
    assert placeable(web(near("web")))


def test_the_first_of_a_kind_is_followed() -> None:
    """A pod that is alone with what it asks for would miss its company if the next came elsewhere."""
    first = deployed("lone", ["n-b"], labels={"app": "pair"}, rules=near("pair"))
    mate = deployed("web", [None], labels={"app": "pair"}, cpu=3000)
    assert placeable(first, mate)
    assert not placeable(first, mate, deployed("big", ["n-b"], cpu=3000))


def test_a_spread_bars_the_fuller_zone() -> None:
    """With a skew of 1 the third pod goes to the emptier zone, or nowhere when that is full."""
    spread = deployed("db", ["n-a"], labels={"app": "web"})
    assert placeable(web(even("web")), spread)
    full = deployed("big", ["n-b"], cpu=4000)
    assert not placeable(web(even("web")), spread, full)
    assert placeable(web(even("db")), deployed("db", ["n-a"]), full), "a pod that the rule does not count adds nothing"


def test_an_empty_new_zone_breaks_the_spread_of_others() -> None:
    """Two pods in each of two zones are even; a third zone without any makes them uneven."""
    others = deployed("db", ["n-a", "n-a", "n-b", "n-b"], rules=even("db"))
    big = deployed("big", ["n-a", "n-b"], cpu=3800)
    assert placeable(web(PlacementRules()), others, big, on_sale=(offer(zone="a"),))
    assert not placeable(web(PlacementRules()), others, big, on_sale=(offer(zone="c"),))
    cheap = offer("m2", zone="c", price=1)  # new nodes have one name until one is bought, whatever their zone
    assert placeable(web(PlacementRules()), others, big, on_sale=(cheap, offer(zone="a")))


def test_a_volume_bars_nodes_that_cannot_reach_it() -> None:
    """It could go to the volume's zone only."""
    term = NodeTerm(expressions=(Requirement(key=ZONE, operator="In", values=("b",)),))
    disk = (
        Volume(name="pv", uid="u", node_terms=(term,)),
        VolumeClaim(name="data", namespace="shop", uid="c", volume="pv"),
    )
    pending = web(PlacementRules(claims=("data",)))
    assert placeable(pending, disk)
    assert not placeable(pending, disk, nodes="a")


def test_pods_that_are_seated_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pods take a place one after the other, the pods of a rule are counted once; the count is right."""
    on = cluster(node("n-a", zone="a"), node("n-b", zone="b"), deployed("web", [None] * 8, rules=even("web")))
    plan = plan_for(on, SOLD_OUT, unplaced={pod.key: "no-room" for pod in on.pods})
    arrivals = ArrivalRules(view_of(plan, on, SOLD_OUT, now=NOW, options=MobilityOptions()))
    counted: list[Cluster] = []

    def counting(state: Cluster) -> PodIndex:
        counted.append(state)
        return pod_index(state)

    monkeypatch.setattr(pod_locations, "pod_index", counting)

    def arrives(pod: Pod, place: Node) -> bool:
        refusal = arrivals.refuses(pod, name=place.name, labels=place.labels, taints=place.taints)
        if refusal is None:
            arrivals.seat(pod, name=place.name, labels=place.labels, taints=place.taints)
        return refusal is None

    for pod in on.pods:
        assert any(arrives(pod, place) for place in on.nodes)
        arrivals.leave(pod)
        assert any(arrives(pod, place) for place in on.nodes)
    where = arrivals._after
    assert sorted(where.where.values()) == ["n-a"] * 4 + ["n-b"] * 4
    assert len(counted) == len(where._counts) + len(arrivals._now._counts)
    fresh = PodLocations(on, dict(where.nodes), dict(where.where))
    assert all(counts == fresh.counts(*asked) for asked, counts in where._counts.items())
