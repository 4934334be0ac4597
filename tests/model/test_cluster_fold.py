"""The fold of state events gives the same state however a history was cut into events."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import cluster, deployed, node, tiny
from tests.support.strategies import clusters, histories

from kinema_core.events import ClusterDelta, ClusterObject, ClusterSnapshot, ObjectKey
from kinema_core.model.cluster import Cluster, StateGapError, all_objects, difference, evolve, from_objects


def snapshot(state: Cluster) -> ClusterSnapshot:
    """The snapshot of a state."""
    return ClusterSnapshot(version=state.version, objects=tuple(all_objects(state)))


def delta(old: Cluster, new: Cluster) -> ClusterDelta:
    """The delta between two states."""
    upserts, deletes = difference(old, new)
    return ClusterDelta(version=new.version, upserts=upserts, deletes=deletes)


def content(state: Cluster) -> tuple[ClusterObject, ...]:
    """What a state holds, in order."""
    return tuple(all_objects(state))


@given(clusters(1), clusters(2))
def test_the_difference_leads_from_one_state_to_the_other(old: Cluster, new: Cluster) -> None:
    """Evolving by the difference of two states gives the second, and equal states have no difference."""
    reached = evolve(old, delta(old, new))
    assert content(reached) == content(new)
    assert reached.version == 2
    assert difference(new, reached) == ((), ())


@given(histories(), st.data())
def test_any_split_into_snapshots_and_deltas_gives_the_same_state(history: list[Cluster], data: st.DataObject) -> None:
    """Where snapshots stand between the deltas, repeat a version or replace a delta makes no difference."""
    folded = evolve(Cluster(), snapshot(history[0]))
    for old, new in pairwise(history):
        choice = data.draw(st.sampled_from(["delta", "snapshot", "both", "delta twice"]))
        if choice != "snapshot":
            folded = evolve(folded, delta(old, new))
        if choice in ("snapshot", "both"):
            folded = evolve(folded, snapshot(new))
        if choice == "delta twice":
            folded = evolve(folded, delta(old, new))
    assert content(folded) == content(history[-1])
    assert folded.version == history[-1].version


@given(histories())
def test_folding_leaves_earlier_states_alone(history: list[Cluster]) -> None:
    """A state is a value: what was folded from it later does not change it."""
    before = [content(state) for state in history]
    for old, new in pairwise(history):
        evolve(old, delta(old, new))
    assert [content(state) for state in history] == before


def test_a_delta_that_does_not_follow_is_a_gap() -> None:
    """Nobody decides on a state with a hole in it."""
    with pytest.raises(StateGapError, match="version 1 cannot be followed by delta 3"):
        evolve(tiny(), ClusterDelta(version=3))


def test_a_delta_folded_already_changes_nothing() -> None:
    """Redelivered deltas are harmless, whatever they say."""
    state = tiny()
    again = ClusterDelta(version=1, deletes=(ObjectKey(kind="Node", key="n1"),))
    assert evolve(state, again) is state


def test_deleting_what_is_not_there_is_harmless_and_upserts_win() -> None:
    """Deletes come first: an object that is replaced within a tick ends as its new self."""
    state = evolve(
        tiny(),
        ClusterDelta(
            version=2,
            upserts=(node("n1", cpu=1), node("n9")),
            deletes=(ObjectKey(kind="Node", key="n1"), ObjectKey(kind="Node", key="none")),
        ),
    )
    assert [each.name for each in state.nodes] == ["n1", "n2", "n9"]
    first = state.node("n1")
    assert first is not None
    assert first.allocatable["cpu"] == 1


def test_views_follow_the_objects() -> None:
    """Pods are found by node, by uid and by workload; a Deployment owns its replica set's pods."""
    state = cluster(node("n1"), node("n2"), deployed("web", ["n2", "n1", None]))
    assert {name: [each.name for each in pods] for name, pods in state.pods_by_node.items()} == {
        "n1": ["web-1"],
        "n2": ["web-0"],
    }
    assert names(state.pods_by_workload["Deployment/shop/web"]) == ["web-0", "web-1", "web-2"]
    assert state.pods_by_uid["uid-pod-shop-web-2"].node is None


def names(pods: Sequence[ClusterObject]) -> list[str]:
    """Last parts of the keys."""
    return [each.key.rpartition("/")[2] for each in pods]


def test_of_two_objects_with_one_key_the_later_holds() -> None:
    """A list that names an object twice means its last word."""
    state = from_objects([node("n1", cpu=1), node("n1", cpu=2)])
    assert [each.allocatable["cpu"] for each in state.nodes] == [2]
