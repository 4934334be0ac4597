"""Cluster Autoscaler and Karpenter over time: what they remember from loop to loop."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from tests.support.builders import NOW, cluster, deployed, node, offer, offers

from kinema_core.events import Pod, Taint
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_optimizer.policies.cluster_autoscaler import ADDED, OPTIMIZE_UTILIZATION, UNNEEDED, ClusterAutoscaler
from kinema_optimizer.policies.karpenter import NOMINATED, Karpenter
from kinema_optimizer.policies.policy import Outcome, Policy, Tick

OFFERS = (offer(),)


def after(
    seconds: float, state: Cluster, since: Mapping[str, datetime], policy: Policy | None = None, **more: Any
) -> Outcome:
    """The loop so many seconds after the first."""
    tick = Tick(state, OFFERS, NOW + timedelta(seconds=seconds), since, **more)
    return (policy or ClusterAutoscaler()).tick(tick)


def removed(outcome: Outcome) -> list[str]:
    """Nodes that go."""
    return [name for step in outcome.proposal.steps for name in step.removed]


def unneeded() -> Cluster:
    """Four nodes: n1 and n2 could be drained, n3 is empty, n4 is needed."""
    on = ["n1", "n2", *["n4"] * 2]
    nodes = [node(f"n{i}") for i in range(1, 5)]
    return cluster(nodes, deployed("web", on, cpu=500), deployed("big", ["n4"], cpu=2000))


def test_a_node_has_to_be_unneeded_for_ten_minutes() -> None:
    """Empty ones go first, then one with pods, one loop after the other."""
    first = after(0, unneeded(), {})
    assert not first.proposal.steps
    assert first.due == NOW + timedelta(seconds=600)
    assert UNNEEDED + "n3" in first.since
    assert removed(after(599, unneeded(), first.since)) == []
    assert removed(after(600, unneeded(), first.since)) == ["n3"]
    left = from_objects(item for item in all_objects(unneeded()) if item.key != "n3")
    assert removed(after(610, left, first.since)) == ["n1"]


def test_several_nodes_are_drained_in_one_loop_where_that_is_set() -> None:
    """As many as may be, each with room for its pods on nodes that stay."""
    first = after(0, unneeded(), {})
    left = from_objects(item for item in all_objects(unneeded()) if item.key != "n3")
    assert removed(after(610, left, first.since, ClusterAutoscaler(most_drains=2))) == ["n1", "n2"]


def test_a_node_that_is_needed_once_begins_again() -> None:
    """Its time counts from the loop in which it is unneeded again."""
    on = ["n1", "n2"]
    idle = cluster([node(name) for name in on], deployed("web", on, cpu=500))
    busy = cluster([node(name) for name in on], deployed("web", on, cpu=2500))
    first = after(0, idle, {})
    between = after(300, busy, first.since)
    assert not between.since
    assert removed(after(600, idle, between.since)) == []
    assert removed(after(1200, idle, after(600, idle, between.since).since)) == ["n1"]


def test_nothing_goes_for_ten_minutes_after_nodes_came() -> None:
    """The timers of unneeded nodes go on meanwhile."""
    waiting = cluster(unneeded().nodes, deployed("big", [None] * 5, cpu=3900))
    grown = after(0, waiting, after(-3600, unneeded(), {}).since)
    assert [step.action for step in grown.proposal.steps] == ["scale-up"]
    assert grown.since[ADDED] == NOW
    since = {UNNEEDED + "n3": NOW - timedelta(hours=1), ADDED: NOW}
    assert removed(after(599, unneeded(), since)) == []
    assert removed(after(600, unneeded(), since)) == ["n3"]


def test_one_node_is_drained_at_a_time() -> None:
    """While one has its taint, no other one with pods is begun."""
    draining = Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")
    nodes = [node("n1"), msgspec.structs.replace(node("n2"), taints=(draining,)), node("n4"), node("n5")]
    state = cluster(nodes, deployed("web", ["n1", "n2", "n4"], cpu=500))
    since = {UNNEEDED + name: NOW - timedelta(hours=1) for name in ("n1", "n4")}
    assert removed(after(0, state, since)) == []
    assert removed(after(0, cluster([node("n1"), node("n4")], deployed("web", ["n1", "n4"], cpu=500)), since)) == ["n1"]


def test_a_pod_with_files_on_its_node_keeps_it() -> None:
    """An emptyDir blocks the drain, unless the pod is marked as safe to evict."""
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}

    def gone(**more: Any) -> list[str]:
        objects = deployed("web", ["n1"], cpu=500, **more)
        state = cluster(node("n1"), node("n2"), objects, deployed("big", ["n2"], cpu=2500))
        return removed(after(600, state, after(0, state, {}).since))

    assert gone() == ["n1"]
    assert gone(local_storage=True) == []
    assert gone(local_storage=True, pod_annotations=safe) == ["n1"]
    assert Pod.__struct_defaults__  # the field has a default: states without it are read


def test_the_packing_profile_is_quicker() -> None:
    """A minute, up to 85 %."""
    on = ["n1", "n2", "n3"]
    state = cluster([node(name) for name in on], deployed("web", [*on, *on], cpu=1200, memory=512))
    assert not after(0, state, {}).since
    first = after(0, state, {}, OPTIMIZE_UTILIZATION)
    assert removed(after(60, state, first.since, OPTIMIZE_UTILIZATION)) == ["n1"]


def test_karpenter_waits_for_its_validation() -> None:
    """A command that still holds after 15 s is executed; another one begins again."""
    state = cluster([node(f"n{i}") for i in range(3)], deployed("web", ["n0", "n0"], cpu=1500))
    first = after(0, state, {}, Karpenter())
    assert not first.proposal.steps
    assert first.due == NOW + timedelta(seconds=15)
    assert not after(14, state, first.since, Karpenter()).proposal.steps
    assert len(removed(after(15, state, first.since, Karpenter()))) == 1


def two_of_which_one_goes(*more: str) -> Cluster:
    """n1 and n2 have room for each other's pods; n1 and `more` have one pod each, n2 two."""
    names = ["n1", "n2", *more]
    return cluster([node(name) for name in names], deployed("web", [*names, "n2"], cpu=500))


def test_karpenter_executes_what_it_found_where_another_command_would_be_found_by_now() -> None:
    """A node that becomes the better choice in the meantime does not restart the wait."""
    first = after(0, two_of_which_one_goes(), {}, Karpenter())
    single = [key for key in first.since if key.startswith("consolidate-single")]
    assert single == ["consolidate-single//n1"]
    assert removed(after(15, two_of_which_one_goes("n0"), first.since, Karpenter(budget_percent=100))) == ["n1"]


def test_karpenter_drops_a_command_that_holds_no_longer() -> None:
    """n2 has been filled: nothing goes, and nothing is remembered."""
    first = after(0, two_of_which_one_goes(), {}, Karpenter())
    full = cluster(node("n1"), node("n2"), deployed("web", ["n1"], cpu=500), deployed("big", ["n2"], cpu=3900))
    found = after(15, full, first.since, Karpenter())
    assert not found.proposal.steps
    assert not found.since


def test_karpenter_leaves_nodes_alone_that_it_has_just_chosen_for_pods() -> None:
    """For 20 s after n1's pod was to go to n2, n2 is no candidate; n1, which is still there, would be one again."""
    first = after(0, two_of_which_one_goes(), {}, Karpenter())
    moved = after(15, two_of_which_one_goes(), first.since, Karpenter())
    assert removed(moved) == ["n1"]
    assert moved.since == {NOMINATED + "n2": NOW + timedelta(seconds=15)}
    assert moved.due == NOW + timedelta(seconds=35)
    left = cluster(node("n2"), node("n3"), deployed("web", ["n2"], cpu=500), deployed("api", ["n3", "n3"], cpu=500))
    for seconds, expected in ((34, "consolidate-single//n3"), (35, "consolidate-single//n2")):
        found = after(seconds, left, moved.since, Karpenter())
        assert [key for key in found.since if not key.startswith(NOMINATED)] == [expected]


def test_karpenter_takes_equal_nodes_in_the_order_that_is_set() -> None:
    """Five of six alike may go: without an order the first by name, with others not always the same."""
    names = [f"n{i}" for i in range(6)]
    state = cluster([node(name) for name in names], deployed("web", names, cpu=500))
    found = [after(0, state, {}, Karpenter(budget_percent=100, order=order)).since.keys() for order in range(5)]
    assert found[0] == {"consolidate-several//n0,n1,n2,n3,n4"}
    assert len(set(map(tuple, found))) > 1


def test_karpenter_spares_nodes_for_pods_of_a_node_as_long_as_that_is_emptied() -> None:
    """The pod of n1, which goes, is to land on n2: n3 is the candidate, however long that takes."""
    going = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
    nodes = [msgspec.structs.replace(node("n1"), taints=(going,)), node("n2"), node("n3")]
    state = cluster(nodes, deployed("web", ["n1", "n2", "n3"], cpu=500))
    all_at_once = Karpenter(budget_percent=100)
    found = after(0, state, {}, all_at_once)
    assert found.since.keys() == {NOMINATED + "n2", "consolidate-single//n3"}
    assert removed(after(60, state, found.since, all_at_once)) == ["n3"]


def test_karpenter_counts_on_no_node_that_is_on_its_way() -> None:
    """The pod of n1 fits on n2 alone, which is not Ready yet."""
    ordered = node("n2", annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"})
    state = cluster(node("n1"), ordered, deployed("web", ["n1"], cpu=500))
    assert after(0, state, {}, Karpenter()).since
    assert not after(0, state, {}, Karpenter(), coming=frozenset({"n2"})).since


def test_karpenter_keeps_to_a_tenth_of_the_nodes() -> None:
    """Of twenty empty nodes two go at once, and none while two are going."""
    names = [f"n{i:02}" for i in range(20)]
    state = cluster([node(name) for name in names], deployed("web", ["n19"], cpu=1500))
    first = after(0, state, {}, Karpenter())
    assert len(removed(after(15, state, first.since, Karpenter()))) == 2
    going = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
    nodes = [
        msgspec.structs.replace(one, taints=(going,)) if one.name in {"n00", "n01"} else one for one in state.nodes
    ]
    busy = cluster(nodes, deployed("web", ["n19"], cpu=1500))
    assert not after(0, busy, {}, Karpenter()).since


def test_karpenter_counts_pods_of_nodes_that_are_emptied_already() -> None:
    """n0 has room for the pod of one node; the pod of n1, which goes already, needs it, so n2 stays."""
    state = cluster(
        [node("n0"), node("n1"), node("n2")],
        deployed("web", ["n1", "n2"], cpu=1500),
        deployed("big", ["n0"], cpu=2000),
    )
    all_at_once = Karpenter(budget_percent=100)
    assert after(0, state, {}, all_at_once).since
    going = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
    marked = msgspec.structs.replace(state.nodes[1], taints=(going,))
    emptied = from_objects([marked, *(one for one in all_objects(state) if one.key != "n1")])
    assert after(0, emptied, {}, all_at_once).since.keys() == {NOMINATED + "n0"}


def test_karpenter_buys_at_once() -> None:
    """Pods that wait need no validation."""
    state = cluster(node("n1"), deployed("old", ["n1"], cpu=4000), deployed("web", [None] * 3, cpu=2000))
    [step] = Karpenter().tick(Tick(state, offers(), NOW)).proposal.steps
    assert step.action == "provision"
