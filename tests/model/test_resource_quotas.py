"""Resource quotas: what one more pod takes of them, and which pods may move under one that is used up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.builders import MIB, NOW, amounts, budget, cluster, daemon_set, deployed, node, pod, quota, stateful

from kinema_core.events import EMPTY, ClusterObject, FrozenMap, PriorityClass, QuotaScope
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import residents_of
from kinema_core.model.mobility import MobilityOptions, mobility
from kinema_core.model.resource_quotas import (
    SETS,
    QuotaRoom,
    charge,
    left_by_quota,
    no_copy,
    no_return,
    quotas_against,
    tight_namespaces,
)

FULL = quota("tight", hard={"pods": 3})


def web(*more: ClusterObject) -> Cluster:
    """Three pods of a Deployment on two nodes."""
    return cluster(node("n1"), node("n2"), deployed("web", ["n1", "n1", "n2"]), *more)


def ways(state: Cluster) -> set[str]:
    """How the pods would move."""
    return set(mobility(state, NOW).strategy.values())


def codes(state: Cluster, options: MobilityOptions | None = None) -> set[str]:
    """Why pods stay."""
    return {item.code for item in mobility(state, NOW, options or MobilityOptions()).held.values()}


def test_a_pod_takes_what_it_requests_and_its_limits() -> None:
    """Of what the quota names and of nothing else."""
    one = pod("a", node="n1", cpu=250, memory=64, limits=amounts(500, 128))
    hard = {"pods": 9, "requests.cpu": 9, "limits.memory": 9, "requests.example.com/gpu": 9}
    assert charge(cluster(one), quota("q", hard=hard), one) == {
        "pods": 1,
        "requests.cpu": 250,
        "limits.memory": 128 * MIB,
        "requests.example.com/gpu": 0,
    }


@pytest.mark.parametrize(
    ("scope", "counted"),
    [
        (QuotaScope(name="NotBestEffort"), True),
        (QuotaScope(name="BestEffort"), False),
        (QuotaScope(name="NotTerminating"), True),
        (QuotaScope(name="Terminating"), False),
        (QuotaScope(name="CrossNamespacePodAffinity"), False),
        (QuotaScope(name="PriorityClass", operator="In", values=("high",)), True),
    ],
)
def test_scopes(scope: QuotaScope, *, counted: bool) -> None:
    """A quota is about the pods that match its scopes; where the state does not show that, about all."""
    state = web(quota("q", hard={"pods": 3}, scopes=[scope]))
    assert (no_copy(state, state.pods[0]) is not None) == counted


@pytest.mark.parametrize(
    ("operator", "names", "counted"),
    [
        ("In", ("high",), {1000}),
        ("In", ("high", "unknown"), {0, 10, 1000}),
        ("NotIn", ("high",), {0, 10, 1000}),
        ("NotIn", ("high", "as-high"), {0, 10}),
        ("Exists", (), {10, 1000}),
        ("DoesNotExist", (), {0}),
    ],
)
def test_a_quota_of_priority_classes(operator: str, names: tuple[str, ...], counted: set[int]) -> None:
    """A class shows in the priority of its pods; where two have the same, or one is not known, the pod counts."""
    values = {"high": 1000, "as-high": 1000, "low": 10}
    classes = [PriorityClass(name=name, uid=name, value=value) for name, value in values.items()]
    of_classes = quota(
        "q", hard={"pods": 3}, scopes=[QuotaScope(name="PriorityClass", operator=operator, values=names)]
    )
    state = web(of_classes, *classes)
    pods = {value: replace(state.pods[0], priority=value) for value in (0, 10, 1000)}
    assert {value for value, one in pods.items() if charge(state, of_classes, one)} == counted


def test_a_daemon_has_the_priority_of_its_pods() -> None:
    """What its next pod takes of a quota by class shows in those that are there."""
    agents = daemon_set("agent")
    one = pod("agent-1", namespace="kube-system", node="n1", owner=agents)
    state = cluster(node("n1"), agents, replace(one, priority=1000))
    assert [daemon.pod.priority for daemon in residents_of(state).daemons] == [1000]


def test_what_is_left_counts_the_pods_of_the_state() -> None:
    """The quota's own count comes later; an amount that it has not counted at all admits none."""
    assert left_by_quota(web(quota("q", hard={"pods": 5})))["shop/q"] == {"pods": 2}
    assert left_by_quota(web(quota("q", hard={"pods": 5}, used={"pods": 4})))["shop/q"] == {"pods": 1}
    assert left_by_quota(web(quota("q", hard={"pods": 5}, used={})))["shop/q"] == {"pods": -1}


def test_room_is_handed_out_once() -> None:
    """What one move takes, the next does not see."""
    state = web(quota("q", hard={"pods": 9, "requests.cpu": 500}))
    room, one = QuotaRoom(state), state.pods[0]
    assert room.fits(one, one.requests, 5) == 2
    room.take(one, one.requests, 1)
    assert room.fits(one, one.requests, 5) == 1
    assert room.why(one, one.requests) == ""
    room.take(one, one.requests, 1)
    assert room.why(one, one.requests) == "ResourceQuota shop/q lacks requests.cpu"


def test_without_room_for_a_copy_pods_stay_and_the_quota_is_named() -> None:
    """One more place, another namespace's quota or an execution changes that."""
    assert codes(web(FULL)) == {"quota"}
    assert "ResourceQuota shop/tight has no room for one more of its pods (pods: 0 of 3)" in (
        mobility(web(FULL), NOW).held["shop/web-0"].reason
    )
    for other in (quota("tight", hard={"pods": 4}), replace(FULL, namespace="other")):
        assert ways(web(other)) == {"surge"}
    assert codes(web(FULL), MobilityOptions(hold_restless=False)) == set(), "its own moves take room"


def test_a_budget_lets_a_pod_make_way() -> None:
    """The owner says that one may be away: it is evicted and comes back. One that never allows it does not."""
    assert ways(web(FULL, budget("web", max_unavailable="1"))) == {"evict"}
    assert codes(web(FULL, budget("web", min_available="100%"))) == {"pdb-never"}
    alone = cluster(
        node("n1"), deployed("web", ["n1"]), budget("web", max_unavailable="1"), quota("q", hard={"pods": 1})
    )
    assert codes(alone) == {"quota"}, "the only pod would be away"


def test_the_owners_word_is_kept() -> None:
    """Who asks for a surge or a rolling update is not evicted; who chose evictions is."""
    for way, held in (("surge", {"quota"}), ("rolling", {"quota"}), ("evict", set())):
        chosen = deployed("web", ["n1", "n1", "n2"], annotations={"kinema.io/strategy": way})
        state = cluster(node("n1"), node("n2"), *chosen, budget("web", max_unavailable="1"), FULL)
        assert codes(state) == held


@pytest.mark.parametrize(("way", "held"), [("rolling", {"quota"}), ("surge", set()), ("evict", set())])
def test_a_rolling_update_needs_a_replica_set(way: str, held: set[str]) -> None:
    """Under a quota for ReplicaSets that is used up, pods that would be rolled stay; the others need no new set."""
    chosen = deployed("web", ["n1", "n1", "n2"], annotations={"kinema.io/strategy": way})
    sets = quota("sets", hard={SETS: 4}, used={SETS: 4})
    state = cluster(node("n1"), node("n2"), *chosen, sets)
    assert codes(state) == held
    assert codes(state, MobilityOptions(hold_restless=False)) == set(), "its own rolls take room"
    assert tight_namespaces(state) == {"shop"}
    assert [quotas_against(state, state.pods[0], rolled=rolled) for rolled in (True, False)] == [("shop/sets",), ()]
    assert codes(cluster(node("n1"), node("n2"), *chosen, replace(sets, hard=FrozenMap({SETS: 5})))) == set()


def test_replica_sets_are_handed_out_once() -> None:
    """The quota is named with what it counts, and that others got the rest."""
    full, why = "ResourceQuota shop/sets has no room for the ReplicaSet of a rolling update", "count/replicasets.apps"
    sets = quota("sets", hard={SETS: 5}, used={SETS: 4})
    room = QuotaRoom(web(sets))
    room.take_set("other")
    assert [room.why_no_set("shop") for _ in range(2)] == [None, None], "to ask takes none"
    room.take_set("shop")
    assert room.why_no_set("shop") == f"{full} ({why}: 4 of 5; other updates take the rest)"
    room = QuotaRoom(web(replace(sets, used=FrozenMap({SETS: 5}))))
    assert room.why_no_set("shop") == f"{full} ({why}: 5 of 5)"


def test_no_pod_is_evicted_that_would_not_be_admitted_again() -> None:
    """Its quota was lowered since, or asks for an amount that it does not state."""
    db = cluster(node("n1"), node("n2"), stateful("db", ["n1", "n2"]))
    lowered = cluster(*db.nodes, *db.workloads, *db.pods, quota("q", hard={"pods": 1}))
    assert codes(lowered) == {"quota"}
    assert codes(lowered, MobilityOptions(hold_restless=False)) == {"quota"}
    unstated = cluster(*db.nodes, *db.workloads, *db.pods, quota("q", hard={"limits.cpu": 9000}))
    assert "does not state limits.cpu" in str(no_return(unstated, unstated.pods[0]))
    stated = [replace(one, limits=FrozenMap(cpu=100)) for one in db.pods]
    assert codes(cluster(*db.nodes, *db.workloads, *stated, quota("q", hard={"limits.cpu": 9000}))) == set()


def test_no_place_is_given_up_that_another_workload_waits_for() -> None:
    """A daemon set that lacks a pod would take the place of an evicted one."""
    short = replace(daemon_set("agent", replicas=2, namespace="shop"), current=1)
    state = web(FULL, budget("web", max_unavailable="1"), short)
    assert codes(state) == {"quota"}
    assert "DaemonSet/shop/agent waits for one" in mobility(state, NOW).held["shop/web-0"].reason


def test_states_without_quotas_are_as_before() -> None:
    """As of old recordings."""
    assert web().quotas == ()
    assert web().pods[0].limits == EMPTY
    assert ways(web()) == {"surge"}
