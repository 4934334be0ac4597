"""Controllers: stateful sets and daemon sets."""

from tests.sim.builders import (
    a_cluster,
    an_app,
    pods_of,
)

from kinema_sim.engine.kinds import (
    DAEMON_SET,
    NODE,
    POD,
    RESOURCE_QUOTA,
    STATEFUL_SET,
)
from kinema_sim.engine.objects import is_ready, is_terminating, labels_of, name_of, node_of
from kinema_sim.scenarios.objects import daemon_set, stateful_set


def test_a_stateful_set_takes_up_its_work_after_a_quota() -> None:
    """A pod that was refused is created once there is room."""
    cluster = a_cluster(nodes=2)
    quota = {"metadata": {"name": "tight", "namespace": "shop"}, "spec": {"hard": {"pods": "1"}}}
    cluster.store.create(RESOURCE_QUOTA, quota)
    cluster.store.create(STATEFUL_SET, stateful_set(an_app("db", replicas=2)))
    cluster.run_for(30)
    assert len(pods_of(cluster, "db")) == 1
    cluster.store.remove(RESOURCE_QUOTA, ("shop", "tight"))
    cluster.run_for(30)
    assert len(pods_of(cluster, "db")) == 2


def test_a_stateful_set_keeps_names_and_order() -> None:
    """Pods are named by ordinal, and the next one is created only when the one before is ready."""
    cluster = a_cluster()
    cluster.store.create(STATEFUL_SET, stateful_set(an_app("db", replicas=3)))
    seen: list[int] = []
    for _ in range(300):
        cluster.run_for(0.1)
        pods = pods_of(cluster, "db")
        assert all(is_ready(pod) for pod in pods[:-1])
        seen.append(len(pods))
    assert sorted(set(seen)) == [1, 2, 3]
    assert [name_of(pod) for pod in pods_of(cluster, "db")] == ["db-0", "db-1", "db-2"]


def test_a_stateful_pod_comes_back_under_its_name_after_it_is_gone() -> None:
    """The replacement has the same name and another uid, and never lives beside the old pod."""
    cluster = a_cluster()
    cluster.store.create(STATEFUL_SET, stateful_set(an_app("db", replicas=2)))
    cluster.run_for(30)
    old = cluster.api.get(POD, "shop", "db-1")
    cluster.api.delete(POD, "shop", "db-1")
    cluster.run_for(0.5)
    assert is_terminating(cluster.api.get(POD, "shop", "db-1"))
    cluster.run_for(30)
    new = cluster.api.get(POD, "shop", "db-1")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert is_ready(new)


def test_a_stateful_set_updates_from_the_top_one_at_a_time() -> None:
    """A new template replaces the highest pod first, and never two at once."""
    cluster = a_cluster()
    cluster.store.create(STATEFUL_SET, stateful_set(an_app("db", replicas=3)))
    cluster.run_for(40)
    cluster.store.edit(
        STATEFUL_SET,
        ("shop", "db"),
        lambda draft: draft["spec"]["template"]["metadata"]["labels"].update(version="2"),
    )
    order: list[str] = []
    for _ in range(600):
        cluster.run_for(0.1)
        ready = [pod for pod in pods_of(cluster, "db") if is_ready(pod)]
        assert len(ready) >= 2
        order += [name_of(pod) for pod in ready if "version" in labels_of(pod) and name_of(pod) not in order]
    assert order == ["db-2", "db-1", "db-0"]
    found = cluster.store.get(STATEFUL_SET, "shop", "db")
    assert found is not None
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"]


def test_a_stateful_pod_is_available_once_it_has_been_ready_for_long() -> None:
    """`minReadySeconds` stands between Ready and available."""
    cluster = a_cluster()
    app = stateful_set(an_app("db", replicas=1))
    app["spec"]["minReadySeconds"] = 20
    cluster.store.create(STATEFUL_SET, app)
    seen = []
    for _ in range(60):
        cluster.run_for(1)
        status = (cluster.store.get(STATEFUL_SET, "shop", "db") or {})["status"]
        seen.append((status["readyReplicas"], status["availableReplicas"]))
    ready, available = seen.index((1, 0)), seen.index((1, 1))
    assert 19 <= available - ready <= 22


def test_a_stateful_set_shrinks_from_the_top() -> None:
    """Scaling down takes the highest ordinal."""
    cluster = a_cluster()
    cluster.store.create(STATEFUL_SET, stateful_set(an_app("db", replicas=3)))
    cluster.run_for(40)
    cluster.store.edit(STATEFUL_SET, ("shop", "db"), lambda draft: draft["spec"].update(replicas=1))
    cluster.run_for(20)
    assert [name_of(pod) for pod in pods_of(cluster, "db")] == ["db-0"]


def test_daemon_pods_run_on_every_matching_node() -> None:
    """A daemon set covers nodes that match its selector and tolerate its taints, cordoned ones too."""
    cluster = a_cluster(nodes=3)
    cluster.store.edit(NODE, ("", "n1"), lambda node: node["spec"].update(unschedulable=True))
    cluster.store.edit(
        NODE, ("", "n2"), lambda node: node["spec"].update(taints=[{"key": "special", "effect": "NoSchedule"}])
    )
    draft = daemon_set(an_app("agent"))
    draft["spec"]["template"]["spec"]["tolerations"] = []
    cluster.store.create(DAEMON_SET, draft)
    cluster.run_for(20)
    assert sorted(node_of(pod) for pod in pods_of(cluster, "agent")) == ["n1", "n3"]
    found = cluster.store.get(DAEMON_SET, "shop", "agent")
    assert found is not None
    assert (found["status"]["desiredNumberScheduled"], found["status"]["numberReady"]) == (2, 2)


def test_a_new_node_gets_its_daemon_pod_before_it_is_ready() -> None:
    """A daemon set that tolerates everything is bound to a node that is still not Ready."""
    cluster = a_cluster(nodes=1)
    cluster.store.create(DAEMON_SET, daemon_set(an_app("agent")))
    cluster.cloud.never_ready.add("late")
    offer = cluster.cloud.offers["e2-standard-2/europe-west3-a/on-demand"]
    cluster.cloud.boot("late", offer, "op", labels={}, taints=[])
    cluster.run_for(70)
    late = [pod for pod in pods_of(cluster, "agent") if node_of(pod) == "late"]
    assert len(late) == 1
    assert not is_ready(late[0])
