"""A plan rests on no zone whose only nodes are not Ready."""

from __future__ import annotations

import pytest
from tests.optimizer.planning.test_plans import actions, plan
from tests.support.builders import cluster, deployed, node, pod

from kinema_core.events import ClusterObject
from kinema_optimizer.planning.ordering import last_beside, zone_keepers


def zones(*a: ClusterObject, held: bool = True) -> tuple[ClusterObject, ...]:
    """Nodes of zone a as given, where a1 holds a pod that stays; a light pod on a2; much room on b1."""
    stays = [pod("stays", node="a1")] if held else []
    return (*a, node("b1", zone="b", price="0.1"), *stays, pod("other", node="b1"), *deployed("web", ["a2"], cpu=500))


@pytest.mark.parametrize("ready", [True, False])
def test_the_last_ready_node_of_a_zone_stays_beside_one_that_is_not(*, ready: bool) -> None:
    """What runs on the node that is not Ready may have to start anew in its zone: a node there must take pods."""
    state = cluster(zones(node("a1", price="0.1", ready=ready), node("a2", price="0.1")))
    found = plan(state)
    assert actions(found) == {"a1": "keep", "a2": "delete" if ready else "keep", "b1": "keep"}
    assert found.cost.lower_bound <= found.cost.after
    assert last_beside(found, state) == ({} if ready else {"a2": "a1"})


def test_the_cheapest_such_node_is_enough() -> None:
    """One node that takes pods stays, not the whole zone; a cordoned one takes none."""
    nodes = [
        node("a1", price="0.1", ready=False),
        node("a2", price="0.1"),
        node("a3", price="0.08"),
        node("a4", price="0.01", unschedulable=True),
    ]
    assert actions(plan(cluster(zones(*nodes)))) == {
        "a1": "keep",
        "a2": "delete",
        "a3": "keep",
        "a4": "delete",
        "b1": "keep",
    }


def test_a_zone_that_goes_as_a_whole_needs_no_node() -> None:
    """Where the node that is not Ready goes as well, or holds nobody, nothing is kept for it."""
    state = cluster(zones(node("a1", price="0.1", ready=False), node("a2", price="0.1"), held=False))
    found = plan(state)
    assert actions(found) == {"a1": "delete", "a2": "delete", "b1": "keep"}
    assert zone_keepers(found, state) == frozenset()
