"""The auditor on changes in the orders in which separate watches may tell them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.e2e.auditor import Auditor
from tests.e2e.follower import JSON, KINDS, Change, Objects, Told, key_of

NEW, OLD = "web-6bf", "web-5d4"
SHORT = ["Deployment shop/web: 1 ready, 2 needed"]


class Script:
    """Tells what a test says, in that order."""

    def __init__(self, *first: tuple[str, JSON]) -> None:
        self.objects: Objects = {kind: {} for kind in KINDS}
        self.lock = threading.Lock()
        self.gaps = 0
        self._told: Told | None = None
        for kind, item in first:
            self.objects[kind][key_of(item)] = item

    def read(self) -> dict[str, str]:
        """Everything is there already."""
        return dict.fromkeys(KINDS, "1")

    @contextmanager
    def following(self, versions: Mapping[str, str], changed: Told) -> Iterator[None]:
        """Whoever is told within the block."""
        assert versions
        self._told = changed
        yield

    def tell(self, type_: str, kind: str, item: JSON) -> None:
        """One change."""
        assert self._told is not None
        if type_ == "DELETED":
            self.objects[kind].pop(key_of(item), None)
        else:
            self.objects[kind][key_of(item)] = item
        self._told(Change(datetime(2026, 1, 1, tzinfo=UTC), type_, kind, item))


def deployment(name: str = "web") -> tuple[str, JSON]:
    """A Deployment of two."""
    metadata = {"name": name, "namespace": "shop", "uid": name}
    return "Deployment", {"metadata": metadata, "spec": {"replicas": 2}}


def replica_set(name: str, uid: str = "") -> tuple[str, JSON]:
    """A version of its template."""
    owner = {"kind": "Deployment", "name": "web", "uid": "web", "controller": True}
    metadata = {"name": name, "namespace": "shop", "uid": uid or name, "ownerReferences": [owner]}
    return "ReplicaSet", {"metadata": metadata, "spec": {"replicas": 2}}


def pod(number: int, of: str, *, ready: bool = True, uid: str = "", **metadata: Any) -> tuple[str, JSON]:
    """A pod of a ReplicaSet (`uid` where that is not its name), as its template marks it."""
    owner = {"kind": "ReplicaSet", "name": of, "uid": uid or of, "controller": True}
    about = {
        "name": f"{of}-{number}",
        "namespace": "shop",
        "uid": f"{uid or of}-{number}",
        "labels": {"pod-template-hash": of.rpartition("-")[2]},
        "ownerReferences": [owner],
        **metadata,
    }
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return "Pod", {"metadata": about, "spec": {"nodeName": "n1"}, "status": status}


def node() -> tuple[str, JSON]:
    """Where all of them are."""
    return "Node", {"metadata": {"name": "n1", "uid": "n1"}, "spec": {}}


@contextmanager
def rolling(*more: tuple[str, JSON]) -> Iterator[tuple[Script, Auditor]]:
    """A Deployment with two Ready pods of its old template, watched."""
    script = Script(node(), deployment(), replica_set(OLD), pod(1, OLD), pod(2, OLD), *more)
    auditor = Auditor(script)
    with auditor.watching():
        yield script, auditor


def test_a_pod_told_before_its_replica_set_is_counted_for_its_deployment() -> None:
    """Kinds are watched apart: that a ReplicaSet is told late is no shortage, and its pod has come by then."""
    with rolling() as (script, auditor):
        script.tell("ADDED", *pod(1, NEW))
        script.tell("MODIFIED", *pod(1, OLD, deletionTimestamp="now"))
        assert auditor.flaws == []
        assert auditor.starts == {"Deployment shop/web": ["n1"]}
        script.tell("ADDED", *replica_set(NEW))
        script.tell("DELETED", *pod(1, OLD))
    assert auditor.flaws == []


def test_a_shortage_in_the_same_order_is_found() -> None:
    """The old pod ends while the new one, of a ReplicaSet told late, is not Ready."""
    with rolling() as (script, auditor):
        script.tell("ADDED", *pod(1, NEW, ready=False))
        script.tell("MODIFIED", *pod(1, OLD, deletionTimestamp="now"))
        script.tell("ADDED", *replica_set(NEW))
        script.tell("MODIFIED", *pod(1, NEW))
    assert auditor.flaws == SHORT


@pytest.mark.parametrize(
    "foreign",
    [
        pod(1, "api-6bf"),
        pod(1, NEW, labels={"pod-template-hash": "777"}),
        pod(1, NEW, labels={}),
        pod(1, NEW, labels={"pod-template-hash": ""}),
        pod(1, OLD, name="late"),
    ],
    ids=["no known Deployment", "another hash", "no hash", "an empty hash", "its ReplicaSet is gone"],
)
def test_nobody_elses_pod_fills_a_gap(foreign: tuple[str, JSON]) -> None:
    """Only names and hash of a known Deployment count, and only until the ReplicaSet was told for the first time."""
    with rolling() as (script, auditor):
        for number in (1, 2):
            script.tell("DELETED", *pod(number, OLD))
        auditor.flaws.clear()
        script.tell("DELETED", *replica_set(OLD))
        script.tell("ADDED", *foreign)
    assert auditor.flaws == ["Deployment shop/web: 0 ready, 2 needed"]


def test_a_replica_set_that_is_made_again_is_another() -> None:
    """A template that comes back has the name of before: its set is told late as any other, by another uid."""
    with rolling() as (script, auditor):
        script.tell("ADDED", *replica_set(NEW, "first"))
        script.tell("DELETED", *replica_set(NEW, "first"))
        script.tell("ADDED", *pod(1, NEW, uid="second"))
        script.tell("MODIFIED", *pod(1, OLD, deletionTimestamp="now"))
    assert auditor.flaws == []


def test_a_pod_told_before_its_node_has_not_lost_it() -> None:
    """One that was booted a moment ago; when it goes, the pod has."""
    script = Script(deployment(), replica_set(NEW), node(), pod(1, NEW), pod(2, NEW))
    auditor = Auditor(script)
    kind, late = node()
    late = {**late, "metadata": {**late["metadata"], "name": "n2", "uid": "n2"}}
    _, guest = pod(3, NEW)
    guest["spec"]["nodeName"] = "n2"
    with auditor.watching():
        script.tell("ADDED", "Pod", guest)
        script.tell("ADDED", kind, late)
        assert auditor.flaws == []
        script.tell("DELETED", kind, late)
        assert auditor.flaws == [f"pod shop/{NEW}-3 lost its node n2"]


def quota(used: int) -> tuple[str, JSON]:
    """One for two pods."""
    status = {"hard": {"pods": "2"}, "used": {"pods": str(used)}}
    return "ResourceQuota", {"metadata": {"name": "tight", "namespace": "shop"}, "spec": {}, "status": status}


def budget() -> tuple[str, JSON]:
    """One pod of everything may be away."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {}}}
    return "PodDisruptionBudget", {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


@pytest.mark.parametrize(
    ("more", "flaws"),
    [((quota(2), budget()), []), ((quota(1), budget()), SHORT), ((quota(2),), SHORT), ((budget(),), SHORT)],
    ids=["both", "room in the quota", "no budget", "no quota"],
)
def test_one_less_may_be_ready_under_a_used_up_quota(more: tuple[tuple[str, JSON], ...], flaws: list[str]) -> None:
    """Where no pod can come first, and the owner lets one be away; never two."""
    with rolling(*more) as (script, auditor):
        script.tell("MODIFIED", *pod(1, OLD, deletionTimestamp="now"))
        assert auditor.flaws == flaws
        script.tell("MODIFIED", *pod(2, OLD, deletionTimestamp="now"))
    assert "Deployment shop/web: 0 ready, 1 needed" in auditor.flaws or flaws == SHORT


@pytest.mark.parametrize("by_owner", [False, True])
@pytest.mark.parametrize("bound", [{"minAvailable": 1}, {"maxUnavailable": 1}])
def test_a_budget_without_a_pod_is_broken_unless_its_owner_ended_them(bound: JSON, *, by_owner: bool) -> None:
    """What a budget covers shows in templates, too: the last pod's end is no end of it, nor of others' changes."""
    _, about = budget()
    about["spec"] = {**bound, "selector": {"matchLabels": {}}}
    with rolling(("PodDisruptionBudget", about)) as (script, auditor):
        auditor.others = frozenset({"Deployment/shop/web"}) if by_owner else frozenset()
        for number in (1, 2):
            script.tell("DELETED", *pod(number, OLD))
    broken = [flaw for flaw in auditor.flaws if flaw.startswith("budget shop/web: 0 healthy")]
    assert broken == ([] if by_owner else ["budget shop/web: 0 healthy, 1 needed"])
