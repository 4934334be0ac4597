"""A plan leaves room for one more of the largest pods in every zone, where there is that room now.

By default pods that take more than 3% of their zone do not count.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from tests.optimizer.planned import Unpriced, planned
from tests.support.builders import NOW, cluster, deployed, node, offer, pod
from tests.support.planning import unguarded

from kinema_core.model.cluster import Cluster
from kinema_core.model.resources import fits
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.headroom import LEFT
from kinema_optimizer.request.spare_room import SpareRoom, room_to_leave
from kinema_optimizer.settings import PlanningSettings

ON_SALE = (
    offer("m2", zone="a", cpu=2000, memory=8 * 1024, price=90_000),
    offer("m4", zone="a", cpu=4000, memory=16 * 1024, price=170_000),
)
ROOM = unguarded(headroom=1, max_headroom_fraction=1.0)


def wide() -> Cluster:
    """Two nodes of four cores with a pod of 1.5 cores each: one of two cores more would hold what is on the second."""
    return cluster(node("n1"), node("n2"), *deployed("web", ["n1", "n2"], cpu=1500))


def rooms(state: Cluster, count: int = 1, fraction: float = 1.0) -> list[tuple[str, int]]:
    """Zone and CPU of each placeholder."""
    made = room_to_leave(state, NOW, SpareRoom(count, fraction=fraction))
    return [(one.name.removeprefix(LEFT).rpartition("-")[0], one.requests["cpu"]) for one in made]


def test_plan_leaves_room_for_one_more() -> None:
    """Both pods fill three of four cores; the plan without headroom leaves one core, one with it 1.5."""
    full = planned(wide(), ON_SALE, settings=unguarded())
    assert full.cost.after == 0.17
    kept = planned(wide(), ON_SALE, settings=ROOM)
    assert kept.cost.after > full.cost.after
    assert kept.cost.after < kept.cost.before
    assert {one.pod.partition("/")[0] for one in kept.placements} == {"shop"}
    assert kept.figures["placeholders_missing"] == 0
    assert kept.purpose == "saving"


def test_plan_states_what_it_costs() -> None:
    """As for any other rule, the price is what the bound falls by without it."""
    plan = plan_for(wide(), ON_SALE, now=NOW, settings=ROOM)
    prices = {one.constraint: one.usd_per_hour for one in plan.constraint_costs}
    assert prices == {"headroom": pytest.approx(plan.cost.after - 0.17)}


@pytest.mark.parametrize("first", [{"terminating": True}, {"priority": -5}])
def test_a_pod_counts_beside_one_that_requests_the_same(first: dict[str, Any]) -> None:
    """Pods share what they request: the first one is going, or may preempt no other."""
    fraction = 0.01 if "priority" in first else 1.0
    one = structs.replace(pod("a", node="n1", cpu=500), **first)
    other = structs.replace(one, name="b", uid="b", terminating=False, priority=0)
    assert rooms(cluster(node("n1"), one), fraction=fraction) == []
    assert [cpu for _, cpu in rooms(cluster(node("n1"), one, other), fraction=fraction)] == [500]


def test_room_is_as_large_as_the_largest_pod_for_which_there_is_some() -> None:
    """The largest pod of zone a has no room; that of the next size has. Zone b is full, and none is asked for there."""
    state = cluster(
        node("a1"),
        node("a2"),
        node("b1", zone="b"),
        *deployed("large", ["a1"], cpu=3000),
        *deployed("small", ["a2", "a2"], cpu=800),
        *deployed("other", ["b1"], cpu=4000),
    )
    assert rooms(state) == [("a", 800)]
    assert rooms(state, count=5) == [("a", 800)] * 4
    assert rooms(state, count=0) == []


def test_pods_that_take_a_large_share_of_the_zone_do_not_count() -> None:
    """Of eight cores in zone a, 3000m are 37.5%, 800m are 10% and 100m are 1.25%; a share is inclusive."""
    state = cluster(
        node("a1"),
        node("a2"),
        *deployed("large", ["a1"], cpu=3000),
        *deployed("small", ["a2"], cpu=800),
        *deployed("tiny", ["a2"], cpu=100),
    )
    assert rooms(state) == [("a", 3000)]
    assert rooms(state, fraction=0.3) == [("a", 800)]
    assert rooms(state, fraction=0.1) == [("a", 800)]
    assert rooms(state, fraction=0.09) == [("a", 100)]
    assert rooms(state, fraction=0.01) == []


def test_memory_counts_as_a_share_too() -> None:
    """A pod with little CPU and half of the zone's memory is a large one."""
    state = cluster(node("n1"), *deployed("cache", ["n1"], cpu=100, memory=8 * 1024))
    assert rooms(state) == [("a", 100)]
    assert rooms(state, fraction=0.4) == []


def test_by_default_no_node_is_kept_for_a_pod_that_takes_much_of_the_cluster() -> None:
    """Room for a pod of 1.5 cores would keep half of a cluster of eight; nothing that runs needs it."""
    assert PlanningSettings().max_headroom_fraction == 0.03
    plan = planned(wide(), ON_SALE, settings=unguarded(headroom=1))
    assert (plan.cost.after, plan.figures.get("placeholders")) == (0.17, None)


def test_a_full_cluster_gets_no_node_for_it() -> None:
    """Where no room is, none is left, and nothing is bought."""
    state = cluster(node("n1"), *deployed("web", ["n1", "n1"], cpu=2000))
    assert rooms(state) == []
    plan = planned(state, ON_SALE, settings=ROOM)
    assert (plan.cost.after, plan.moves) == (plan.cost.before, 0)


def test_a_cluster_that_is_as_small_as_can_be_stays_as_it_is() -> None:
    """Its room is left: no pod moves, and the plan is not one for room, which would not wait for approval."""
    state = cluster(node("n1"), *deployed("web", ["n1", "n1"], cpu=1200))
    assert rooms(state) == [("a", 1200)]
    plan = plan_for(state, ON_SALE, now=NOW, settings=ROOM, stop=Unpriced(40))
    assert (plan.purpose, plan.moves, plan.cost.after) == ("saving", 0, plan.cost.before)


def test_pending_pods_come_first() -> None:
    """While one waits that fits into the room of now, no room is left; one that fits nowhere does not count."""
    assert rooms(cluster(*wide().nodes, *wide().pods, *wide().workloads, pod("waits", cpu=500))) == []
    huge = pod("huge", cpu=64_000)
    assert rooms(cluster(*wide().nodes, *wide().pods, *wide().workloads, huge)) == [("a", 1500)]
    assert not fits(huge.requests, node("n1").allocatable)


def test_nodes_that_take_no_pods_have_no_room() -> None:
    """Cordoned nodes and spot capacity hold no room that any pod could use."""
    closed = cluster(node("n1", unschedulable=True), *deployed("web", ["n1"], cpu=500))
    assert rooms(closed) == []


@pytest.mark.parametrize("priority", [0, 1000])
def test_a_pod_that_may_preempt_others_counts_whatever_it_takes(priority: int) -> None:
    """Without room for one more, kube-scheduler would end a pod of `low` for it: no share of the zone is too large."""
    state = cluster(
        node("n1"),
        node("n2"),
        *deployed("web", ["n1", "n2"], cpu=1500, priority=priority),
        *deployed("low", ["n1"], cpu=200),
    )
    assert rooms(state, fraction=0.03) == ([("a", 1500)] if priority else [("a", 200)])
    kept = planned(state, ON_SALE, settings=unguarded(headroom=1))
    assert (kept.cost.after > 0.17) is bool(priority)
