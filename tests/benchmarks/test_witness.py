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
