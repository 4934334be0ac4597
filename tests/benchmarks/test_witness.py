"""The witness of the benchmarks on a real control plane sees harm where there is any."""

from __future__ import annotations

from typing import Any

from benchmarks.witness import Verdict


def _pod(uid: str, *, node: str = "a", ready: bool = True, version: int = 1) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    metadata = {
        "name": uid,
        "uid": uid,
        "resourceVersion": str(version),
        "ownerReferences": [{"name": "web-5d4f"}],
    }
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"conditions": conditions}}


def _node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"node.kubernetes.io/instance-type": "small"}}}


def _deployment(replicas: int) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": {"replicas": replicas}}


def _start() -> Verdict:
    found = {"Pod": [_pod("one"), _pod("two")], "Node": [_node("a")], "Deployment": [_deployment(2)]}
    return Verdict({kind: {"items": items} for kind, items in found.items()})


def test_a_surge_lacks_nobody() -> None:
    """A workload that gets a pod more before one goes is never short, and its higher wish is not the owner's."""
    seen = _start()
    seen.take(1.0, "Deployment", "MODIFIED", _deployment(3))
    seen.take(2.0, "Pod", "ADDED", _pod("three", node="b"))
    seen.take(3.0, "Pod", "DELETED", _pod("one"))
    assert (seen.most_missing, seen.ever_short) == (0, set())
    assert (seen.moved, seen.moved_again) == (1, 0)
    assert seen.starts == {("web", "b"): 1}


def test_an_eviction_lacks_the_pod_until_another_is_ready() -> None:
    """The worst moment counts, however soon it is over."""
    seen = _start()
    seen.take(1.0, "Pod", "DELETED", _pod("one"))
    seen.take(2.0, "Pod", "MODIFIED", _pod("two", ready=False))
    seen.take(3.0, "Pod", "ADDED", _pod("three"))
    seen.take(4.0, "Pod", "MODIFIED", _pod("two"))
    assert (seen.most_missing, seen.ever_short) == (2, {"web"})


def test_what_came_and_went_was_in_vain() -> None:
    """A pod that is moved twice and a node that is bought and deleted are told, and when the last change was."""
    seen = _start()
    seen.take(1.0, "Node", "ADDED", _node("b"))
    seen.take(2.0, "Pod", "ADDED", _pod("three", node="b"))
    seen.take(3.0, "Pod", "DELETED", _pod("three", node="b"))
    seen.take(4.0, "Node", "DELETED", _node("b"))
    assert seen.moved_again == 1
    assert (seen.bought, seen.thrown_away) == (["b"], ["b"])
    assert seen.last_change == 4.0


def test_what_is_saved_early_is_judged_by_the_nodes_of_then() -> None:
    """A node of two that may go is gone at the time, and the one bought for a while is gone in the end.

    What was before the first change does not count.
    """
    nodes = [_node(name) for name in "abc"]
    seen = Verdict({kind: {"items": nodes if kind == "Node" else []} for kind in ("Pod", "Deployment", "Node")})
    for at, what, name in [(91.0, "DELETED", "a"), (93.0, "ADDED", "d"), (98.0, "DELETED", "b"), (100, "DELETED", "d")]:
        seen.take(at, "Node", what, _node(name))
    seen.take(92.0, "Node", "MODIFIED", _node("c"))
    assert seen.saved_by(1 / 3, {"small": 2.0}) == 0.0
    assert seen.saved_by(1 / 9, {"small": 2.0}) == 0.5
    assert seen.saved_by(1, {"small": 2.0}) == 1.0


def test_nothing_saved_has_no_share() -> None:
    """Where the nodes cost as much as before there is no saving to be real."""
    assert _start().saved_by(1 / 3, {"small": 2.0}) is None
