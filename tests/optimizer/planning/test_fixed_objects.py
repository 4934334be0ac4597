"""Plans around objects that nobody may touch or nobody can read."""

from __future__ import annotations

from tests.optimizer.planning.test_plans import actions, plan
from tests.support.builders import (
    cluster,
    deployed,
    node,
    pod,
    unreadable,
)


def test_a_held_pod_keeps_its_node() -> None:
    """The node of a pod that may not move stays, and the plan says which rule holds it."""
    state = cluster(
        node("n1"), node("n2"), deployed("web", ["n1"]), pod("bare", node="n2"), deployed("api", ["n1"], cpu=300)
    )
    found = plan(state)
    assert actions(found) == {"n1": "delete", "n2": "keep"}
    assert [(one.pod, one.code) for one in found.held] == [("shop/bare", "bare-pod")]


def test_an_unreadable_object_freezes_its_node_and_is_named() -> None:
    """What could not be read might forbid anything."""
    state = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"]), unreadable("Pod shop/odd", node="n1"))
    found = plan(state)
    assert actions(found)["n1"] == "keep"
    assert [one.object for one in found.quarantined] == ["Pod shop/odd"]


def test_an_object_of_no_kind_freezes_nothing_and_is_named() -> None:
    """No API server lists one: the entry is damage to the file."""
    state = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"]), unreadable("Object nameless-1"))
    found = plan(state)
    assert "delete" in actions(found).values()
    assert [one.object for one in found.quarantined] == ["Object nameless-1"]
