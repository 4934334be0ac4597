"""What goes with a node takes its room, on live nodes and on those to come."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.builders import (
    MIB,
    cluster,
    daemon_set,
    deployed,
    labels,
    mirror,
    node,
    on_every_node,
    pod,
    taint,
    toleration,
    unreadable,
)

from kinema_core.events import ClusterObject, NodeTerm, PlacementRules, Requirement
from kinema_core.model.daemons import daemon_requests, is_resident, resident_requests


def requested(cpu: int, memory: int, pods: int) -> dict[str, int]:
    """Millicores, MiB and pods."""
    return {"cpu": cpu, "memory": memory * MIB, "pods": pods}


def test_a_new_node_runs_the_daemon_sets_that_it_admits() -> None:
    """Daemon sets count where node selector, affinity and taints let them, each as one pod."""
    state = cluster(
        node("n1"),
        daemon_set("everywhere", cpu=50, memory=64, rules=PlacementRules(tolerations=(toleration(),))),
        daemon_set("linux", cpu=10, memory=10, rules=PlacementRules(node_selector=labels({"os": "linux"}))),
        daemon_set("windows", cpu=900, rules=PlacementRules(node_selector=labels({"os": "windows"}))),
        daemon_set("plain", cpu=7, memory=0),
    )
    tainted = (taint("gpu:NoSchedule"),)
    assert daemon_requests(state, name="new", labels=labels({"os": "linux"}), taints=()) == requested(67, 74, 3)
    assert daemon_requests(state, name="new", labels=labels({"os": "linux"}), taints=tainted) == requested(50, 64, 1)


def test_daemon_sets_tolerate_the_state_of_their_node() -> None:
    """What the daemon set controller adds to the pods' tolerations counts, though no template shows it."""
    state = cluster(node("n1", taints=["node.kubernetes.io/unschedulable:NoSchedule"]), daemon_set("log", cpu=50))
    [live] = state.nodes
    assert resident_requests(state, live)["cpu"] == 50


def test_a_live_node_counts_what_runs_and_what_is_to_come() -> None:
    """Pods of daemon sets and mirrors count as they are, and a matching set without a pod there as its template."""
    state = cluster(
        node("n1"),
        node("n2"),
        on_every_node("log", ["n1"], cpu=50, memory=64),
        mirror("proxy", node="n1", cpu=100),
        deployed("web", ["n1"], cpu=1000),
    )
    first, second = state.nodes
    assert resident_requests(state, first) == requested(150, 64, 2)
    assert resident_requests(state, second) == requested(50, 64, 1)


def test_what_admission_adds_to_daemons_is_on_new_nodes_too() -> None:
    """A sidecar or an overhead is in no template: the pods that run show it."""
    state = cluster(node("n1"), on_every_node("log", ["n1"], cpu=50, memory=64))
    heavier = [replace(one, requests=requested(80, 96, 1)) for one in state.pods]
    state = cluster(node("n1"), *state.workloads, *heavier)
    assert daemon_requests(state, name="new", labels=labels({}), taints=()) == requested(80, 96, 1)


def test_the_pods_of_a_set_speak_for_it_where_the_set_is_unknown() -> None:
    """Without daemon sets in the list their pods show what a new node will run, less the pin to their own node."""
    pinned = PlacementRules(
        node_terms=(
            NodeTerm(
                expressions=(Requirement(key="os", operator="In", values=("linux",)),),
                fields=(Requirement(key="metadata.name", operator="In", values=("n1",)),),
            ),
        )
    )
    unseen = daemon_set("log")
    state = cluster(
        node("n1"),
        pod("log-a", node="n1", namespace="kube-system", owner=unseen, cpu=50, memory=64, rules=pinned),
        pod("log-b", node="n1", namespace="kube-system", owner=unseen, cpu=20, memory=96, rules=pinned),
    )
    assert daemon_requests(state, name="new", labels=labels({"os": "linux"}), taints=()) == requested(50, 96, 1)
    assert daemon_requests(state, name="new", labels=labels({"os": "windows"}), taints=()) == {}


def test_mirror_pods_that_every_node_has_are_on_new_nodes_too() -> None:
    """Mirrors are the same but for the node's suffix; the largest counts; one that a node lacks is no common one."""
    state = cluster(
        node("n1"),
        node("n2"),
        mirror("proxy", node="n1", cpu=100),
        mirror("proxy", node="n2", cpu=120),
        mirror("etcd", node="n1", cpu=900),
        deployed("web", ["n1", "n2"]),
        [pod(f"odd-{name}", node=name) for name in ("n1", "n2")],
    )
    assert daemon_requests(state, name="new", labels=labels(), taints=()) == requested(120, 0, 1)


@pytest.mark.parametrize("odd", [unreadable("Pod kube-system/x", node="n2"), unreadable("Pod x", namespace="")])
def test_an_unreadable_pod_may_be_the_mirror_that_its_node_lacks(odd: ClusterObject) -> None:
    """A mirror missing only where something could not be read still counts as common; what is lost may be anywhere."""
    state = cluster(node("n1"), node("n2"), mirror("proxy", node="n1", cpu=100), odd)
    assert daemon_requests(state, name="new", labels=labels(), taints=())["cpu"] == 100


def test_residents_are_mirrors_and_pods_of_daemon_sets() -> None:
    """Nobody else goes with the node."""
    state = cluster(node("n1"), on_every_node("log", ["n1"]), mirror("proxy", node="n1"), deployed("web", ["n1"]))
    assert {each.name for each in state.pods if is_resident(state, each)} == {"log-n1", "proxy-n1"}
