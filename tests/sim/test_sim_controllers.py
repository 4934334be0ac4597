"""Controllers: sets, rollouts, budgets, jobs, garbage."""

import pytest
from tests.sim.builders import (
    a_cluster,
    a_pod,
    an_app,
    edit_spec,
    pods_of,
    ready_count,
    with_deployment,
)

from kinema_sim.cluster import Cluster
from kinema_sim.controllers.base import DELETION_COST, deletion_order
from kinema_sim.controllers.deployment import Bounds, SetState, bounds, grow_new, scaled, share_out, shrink_old
from kinema_sim.controllers.kubelet import RUN_SECONDS
from kinema_sim.engine.clock import EPOCH_MS, stamp
from kinema_sim.engine.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    NAMESPACE,
    NODE,
    PDB,
    POD,
    REPLICA_SET,
    RESOURCE_QUOTA,
    Kind,
)
from kinema_sim.engine.objects import Obj, condition, key_of, name_of, node_of
from kinema_sim.scenarios.objects import pdb

NOW = EPOCH_MS + 10_000_000


def _complaint(cluster: Cluster, kind: Kind) -> str:
    """What the only object of a kind says of refused pods."""
    (found,) = cluster.store.each(kind)
    told = condition(found, "ReplicaFailure")
    return "" if told is None else str(told["message"])


def test_without_a_quota_no_pod_is_counted_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's creation looks at no other pod: a namespace of thousands would take ever longer."""
    cluster = a_cluster(nodes=2)

    def count(_: str) -> list[Obj]:
        raise AssertionError("the pods of a namespace are counted")

    monkeypatch.setattr(cluster.store, "pods_in", count)
    with_deployment(cluster, an_app(replicas=3))
    assert ready_count(cluster) == 3


def test_a_quota_refuses_pods_and_the_workload_says_so() -> None:
    """No pod beyond the quota; set and Deployment complain until there is room, then all pods come."""
    cluster = a_cluster(nodes=2)
    with_deployment(cluster, an_app(replicas=2))
    quota = {"metadata": {"name": "tight", "namespace": "shop"}, "spec": {"hard": {"pods": "3"}}}
    cluster.store.create(RESOURCE_QUOTA, quota)
    edit_spec(cluster, replicas=5)
    cluster.run_for(20)
    assert ready_count(cluster) == 3
    assert cluster.store.each(RESOURCE_QUOTA)[0]["status"]["used"] == {"pods": "3"}
    for kind in (REPLICA_SET, DEPLOYMENT):
        assert "exceeded quota: tight, requested: pods=1, used: pods=3, limited: pods=3" in _complaint(cluster, kind)
    cluster.store.edit(RESOURCE_QUOTA, ("shop", "tight"), lambda draft: draft["spec"]["hard"].update(pods="9"))
    cluster.run_for(30)
    assert ready_count(cluster) == 5
    assert (_complaint(cluster, REPLICA_SET), _complaint(cluster, DEPLOYMENT)) == ("", "")


def _pod(name: str, **facts: object) -> Obj:
    """Write a running, ready pod on its own node; facts change that."""
    ready_ago = int(str(facts.get("ready_ago", 1000)))
    status = {
        "phase": facts.get("phase", "Running"),
        "conditions": [
            {
                "type": "Ready",
                "status": "True" if facts.get("ready", True) else "False",
                "lastTransitionTime": stamp(NOW - ready_ago * 1000),
            }
        ],
        "containerStatuses": [{"restartCount": facts.get("restarts", 0)}],
    }
    metadata: Obj = {
        "name": name,
        "namespace": "shop",
        "uid": name,
        "creationTimestamp": stamp(NOW - int(str(facts.get("age", 2000))) * 1000),
    }
    if "cost" in facts:
        metadata["annotations"] = {DELETION_COST: str(facts["cost"])}
    return {"metadata": metadata, "spec": {"nodeName": facts.get("node", f"node-{name}")}, "status": status}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"node": "", "cost": 9}, {"phase": "Pending", "ready": False}),
        ({"phase": "Pending", "ready": False, "cost": 9}, {"ready": False}),
        ({"ready": False, "cost": 9}, {"cost": -9}),
        ({"cost": -1, "ready_ago": 9000}, {"cost": 0, "ready_ago": 1}),
        ({"cost": "x", "node": "crowded"}, {"cost": 0}),
        ({"ready_ago": 10}, {"ready_ago": 1000, "restarts": 5}),
        ({"restarts": 3, "age": 9000}, {"restarts": 1, "age": 10}),
        ({"age": 10}, {"age": 9000}),
    ],
    ids=["unassigned", "pending", "not-ready", "cost", "crowded-node", "young-ready", "restarts", "young"],
)
def test_surplus_pods_go_in_upstreams_order(first: dict[str, object], second: dict[str, object]) -> None:
    """Each rule of the deletion order decides when all earlier rules are even, and beats all later ones."""
    goes, stays = _pod("z-first", **first), _pod("a-second", **second)
    crowd = [_pod("neighbor", node="crowded")]
    ranked = deletion_order([stays, goes], [goes, stays, *crowd], NOW)
    assert [name_of(pod) for pod in ranked] == ["z-first", "a-second"]


def test_ages_of_the_same_magnitude_are_the_same() -> None:
    """Ready times within a factor of two do not decide: the uid does."""
    ranked = deletion_order([_pod("b", ready_ago=1000), _pod("a", ready_ago=1040)], [], NOW)
    assert [name_of(pod) for pod in ranked] == ["a", "b"]


def test_a_deployment_comes_up() -> None:
    """A Deployment makes one ReplicaSet, its pods run, and its status says so."""
    cluster = a_cluster()
    with_deployment(cluster, an_app(replicas=3))
    found = cluster.store.get(DEPLOYMENT, "shop", "web")
    assert found is not None
    assert len(cluster.store.each(REPLICA_SET)) == 1
    assert {key: found["status"].get(key) for key in ("replicas", "readyReplicas", "updatedReplicas")} == {
        "replicas": 3,
        "readyReplicas": 3,
        "updatedReplicas": 3,
    }
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    assert ready_count(cluster) == 3


def test_exactly_the_cheap_pods_go() -> None:
    """After scaling up by two and down by two, precisely the two pods with the lowest deletion cost are gone."""
    cluster = a_cluster()
    with_deployment(cluster, an_app(replicas=4))
    victims = [name_of(pod) for pod in pods_of(cluster)[:2]]
    kept = {name_of(pod) for pod in pods_of(cluster)[2:]}
    for name in victims:
        cluster.store.edit(
            POD, ("shop", name), lambda pod: pod["metadata"].setdefault("annotations", {}).update({DELETION_COST: "-9"})
        )
    edit_spec(cluster, replicas=6)
    cluster.run_for(30)
    assert ready_count(cluster) == 6
    edit_spec(cluster, replicas=4)
    cluster.run_for(30)
    left = {name_of(pod) for pod in pods_of(cluster)}
    assert not left & set(victims)
    assert kept <= left


def _watch_rollout(cluster: Cluster, seconds: int) -> tuple[int, int]:
    """Let time pass; give the fewest ready and the most existing pods seen."""
    least, most = 10**6, 0
    for _ in range(seconds * 10):
        cluster.run_for(0.1)
        least = min(least, ready_count(cluster))
        most = max(most, len(pods_of(cluster)))
    return least, most


def _set_image(cluster: Cluster, image: str) -> None:
    def change(draft: Obj) -> None:
        draft["spec"]["template"]["spec"]["containers"][0]["image"] = image

    cluster.store.edit(DEPLOYMENT, ("shop", "web"), change)


def test_a_rolling_update_stays_within_its_bounds() -> None:
    """With surge 1 and nothing unavailable, the ready pods never dip and one pod more exists at most."""
    cluster = a_cluster()
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    with_deployment(cluster, an_app(replicas=4), strategy=rolling)
    old = {name_of(pod) for pod in pods_of(cluster)}
    _set_image(cluster, "example/web:2")
    assert _watch_rollout(cluster, 60) == (4, 5)
    new = pods_of(cluster)
    assert ready_count(cluster) == 4
    assert not {name_of(pod) for pod in new} & old
    revisions = [
        rs["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for rs in cluster.store.each(REPLICA_SET)
    ]
    assert sorted(revisions) == ["1", "2"]


def test_going_back_to_an_old_template_reuses_its_set() -> None:
    """A template that was used before brings its ReplicaSet back with a new revision."""
    cluster = a_cluster()
    with_deployment(cluster, an_app(replicas=2))
    for image in ("example/web:2", "example/web:1"):
        _set_image(cluster, image)
        cluster.run_for(60)
    sets = {rs["spec"]["replicas"]: rs for rs in cluster.store.each(REPLICA_SET)}
    assert sorted(sets) == [0, 2]
    assert sets[2]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"


def test_a_paused_deployment_keeps_its_pods_when_its_template_goes_back() -> None:
    """The one ReplicaSet that has pods keeps as many as are asked for: its elder may not surge before it goes on."""
    cluster = a_cluster()
    with_deployment(cluster, an_app(replicas=2))
    _set_image(cluster, "example/web:2")
    cluster.run_for(60)

    def pause(draft: Obj) -> None:
        draft["spec"]["paused"] = True
        draft["spec"]["template"]["spec"]["containers"][0]["image"] = "example/web:1"

    (found,) = cluster.store.each(DEPLOYMENT)
    cluster.store.edit(DEPLOYMENT, key_of(found), pause)
    before = {name_of(pod) for pod in pods_of(cluster)}
    cluster.run_for(60)
    assert {name_of(pod) for pod in pods_of(cluster)} == before


def test_percentages_round_as_upstream() -> None:
    """Surge rounds up, unavailable rounds down, and both zero means one may be missing."""
    assert scaled("25%", 10, up=True) == 3
    assert scaled("25%", 10, up=False) == 2
    assert bounds(4, surge="25%", unavailable="25%") == Bounds(4, 1, 1)
    assert bounds(3, surge=0, unavailable="10%") == Bounds(3, 0, 1)


def test_rollout_arithmetic() -> None:
    """The new set grows into the surge, and old sets shrink by what is available beyond the least allowed."""
    limits = Bounds(10, 3, 2)
    assert grow_new(SetState("new", 0, 0), [SetState("old", 10, 10)], limits) == 3
    assert shrink_old(SetState("new", 3, 0), [SetState("old", 10, 10)], limits) == {"old": 8}
    assert shrink_old(SetState("new", 3, 3), [SetState("old", 8, 8)], limits) == {"old": 5}
    assert shrink_old(SetState("new", 3, 0), [SetState("old", 10, 6)], limits) == {"old": 8}
    assert share_out([SetState("new", 5, 5), SetState("old", 8, 8)], Bounds(20, 5, 0), before=13) == {
        "new": 10,
        "old": 15,
    }


def test_a_deleted_deployment_takes_its_pods_along() -> None:
    """What a deleted owner owned is collected, down to the pods."""
    cluster = a_cluster()
    with_deployment(cluster, an_app(replicas=2))
    cluster.api.delete(DEPLOYMENT, "shop", "web")
    cluster.run_for(10)
    assert cluster.store.each(REPLICA_SET) == []
    assert cluster.store.each(POD) == []


def test_a_deleted_namespace_takes_everything_along() -> None:
    """Whatever lived in a namespace is gone with it, and other namespaces keep what they have."""
    cluster = a_cluster()
    with_deployment(cluster, an_app(replicas=2))
    cluster.api.create(NAMESPACE, "", {"metadata": {"name": "other"}})
    cluster.api.create(CONFIG_MAP, "other", {"metadata": {"name": "kept"}})
    cluster.api.delete(NAMESPACE, "", "shop")
    cluster.run_for(10)
    assert [cluster.store.count(kind) for kind in (DEPLOYMENT, REPLICA_SET, POD, CONFIG_MAP)] == [0, 0, 0, 1]


def test_pods_of_a_vanished_node_are_replaced() -> None:
    """When a node is gone its pods are collected at once and come up elsewhere."""
    cluster = a_cluster(nodes=2)
    with_deployment(cluster, an_app(replicas=4))
    cluster.store.remove(NODE, ("", "n1"))
    cluster.run_for(30)
    assert {node_of(pod) for pod in pods_of(cluster)} == {"n2"}
    assert ready_count(cluster) == 4


def test_a_no_execute_taint_drives_pods_off() -> None:
    """Pods that do not tolerate a NoExecute taint leave the node, and others stay."""
    cluster = a_cluster(nodes=2)
    with_deployment(cluster, an_app(replicas=4))
    taint = {"key": "gone", "effect": "NoExecute"}
    cluster.store.edit(NODE, ("", "n1"), lambda node: node["spec"].update(taints=[taint]))
    cluster.run_for(30)
    assert {node_of(pod) for pod in pods_of(cluster)} == {"n2"}


def _budget(cluster: Cluster, name: str = "web") -> Obj:
    found = cluster.store.get(PDB, "shop", name)
    assert found is not None
    return dict(found["status"])


@pytest.mark.parametrize(
    ("rule", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 2, 1),
        ({"minAvailable": "50%"}, 2, 1),
        ({"maxUnavailable": 1}, 2, 1),
        ({"maxUnavailable": "50%"}, 1, 2),
        ({"maxUnavailable": 0}, 3, 0),
        ({"minAvailable": "100%"}, 3, 0),
    ],
)
def test_budget_arithmetic(rule: dict[str, int | str], desired: int, allowed: int) -> None:
    """Percentages round up, and what is allowed is what is healthy beyond what must be."""
    cluster = a_cluster()
    app = an_app(replicas=3)
    with_deployment(cluster, app)
    cluster.store.create(PDB, pdb(app, **rule))
    cluster.run_for(1)
    status = _budget(cluster)
    assert (status["expectedPods"], status["currentHealthy"]) == (3, 3)
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed)


def test_a_budget_falls_with_its_pods() -> None:
    """A pod that leaves lowers the healthy count until its replacement is ready."""
    cluster = a_cluster()
    app = an_app(replicas=2)
    with_deployment(cluster, app)
    cluster.store.create(PDB, pdb(app, maxUnavailable=1))
    cluster.run_for(1)
    cluster.api.delete(POD, "shop", name_of(pods_of(cluster)[0]))
    cluster.run_for(1)
    assert _budget(cluster)["disruptionsAllowed"] == 0
    cluster.run_for(30)
    assert _budget(cluster)["disruptionsAllowed"] == 1


def test_a_job_runs_to_completion() -> None:
    """A job keeps its parallelism until enough pods have succeeded, and is then complete."""
    cluster = a_cluster()
    template = {"metadata": {"annotations": {RUN_SECONDS: "5"}}, "spec": a_pod("x")["spec"]}
    spec = {"parallelism": 2, "completions": 3, "template": template}
    cluster.store.create(JOB, {"metadata": {"name": "batch", "namespace": "shop"}, "spec": spec})
    cluster.run_for(5)
    assert len(cluster.store.each(POD)) == 2
    cluster.run_for(30)
    job = cluster.store.get(JOB, "shop", "batch")
    assert job is not None
    assert job["status"]["succeeded"] == 3
    assert job["status"]["active"] == 0
    assert [entry["type"] for entry in job["status"]["conditions"]] == ["Complete"]


def test_a_pod_held_back_never_becomes_ready_until_released() -> None:
    """The fault keeps pods of one app unready, and lifting it makes them ready."""
    cluster = a_cluster()
    cluster.kubelets.never_ready.add(("shop", "web"))
    with_deployment(cluster, an_app(replicas=2))
    assert ready_count(cluster) == 0
    cluster.kubelets.release()
    cluster.run_for(1)
    assert ready_count(cluster) == 2
