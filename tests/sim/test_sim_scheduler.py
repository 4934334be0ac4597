"""The scheduler: every filter, every score, steering, and what happens to pods that fit nowhere."""

from typing import Any

import pytest
from tests.sim.builders import a_cluster, a_pod, an_app, edit_spec, pods_of, with_deployment

from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import CONFIG_MAP, NODE, POD
from kinema_sim.engine.objects import Obj, condition, name_of, node_of
from kinema_sim.scheduler.books import pod_requests, read_pod
from kinema_sim.scheduler.filters import tolerates
from kinema_sim.scheduler.scores import balanced, least_allocated, node_preference, soft_taints

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def _place(cluster: Cluster, name: str = "p", **spec: Any) -> str:
    """Create a pod and give the node that it lands on, empty for none."""
    cluster.store.create(POD, a_pod(name, **spec))
    cluster.run_for(1)
    return node_of(cluster.api.get(POD, "shop", name))


def _label(cluster: Cluster, node: str, **labels: str) -> None:
    cluster.store.edit(NODE, ("", node), lambda draft: draft["metadata"]["labels"].update(labels))


def _taint(cluster: Cluster, node: str, effect: str) -> None:
    taint = {"key": "special", "value": "yes", "effect": effect}
    cluster.store.edit(NODE, ("", node), lambda draft: draft["spec"].update(taints=[taint]))


def _container(**requests: str) -> list[Obj]:
    return [{"name": "c", "resources": {"requests": requests}}]


def _required(expression: Obj) -> Obj:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _pods_rule(field: str, key: str, **labels: str) -> Obj:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_resources_must_fit() -> None:
    """A pod goes only where every resource that it asks for is left, and the message says what is missing."""
    cluster = a_cluster(nodes=2, machine="e2-standard-2")
    assert _place(cluster, "big", containers=_container(cpu="1900m")) == "n1"
    assert _place(cluster, "too", containers=_container(cpu="1900m")) == "n2"
    assert _place(cluster, "many", containers=_container(cpu="1900m")) == ""
    told = condition(cluster.api.get(POD, "shop", "many"), "PodScheduled")
    assert told is not None
    assert (told["status"], told["reason"]) == ("False", "Unschedulable")
    assert told["message"] == "0/2 nodes are available: 2 Insufficient cpu."


def test_a_waiting_pod_goes_as_soon_as_room_appears() -> None:
    """A pod that fits nowhere is tried again when another pod leaves."""
    cluster = a_cluster(nodes=1, machine="e2-standard-2")
    _place(cluster, "big", containers=_container(cpu="1900m"))
    assert _place(cluster, "next", containers=_container(cpu="1900m")) == ""
    cluster.api.delete(POD, "shop", "big")
    cluster.run_for(5)
    assert node_of(cluster.api.get(POD, "shop", "next")) == "n1"


def test_extended_resources_count() -> None:
    """A resource that no node has keeps the pod pending, and a node that has it takes it."""
    cluster = a_cluster(nodes=2)
    wanted = _container(**{"example.com/gpu": "1"})
    assert _place(cluster, "g", containers=wanted) == ""
    cluster.store.edit(NODE, ("", "n2"), lambda node: node["status"]["allocatable"].update({"example.com/gpu": "1"}))
    cluster.run_for(1)
    assert node_of(cluster.api.get(POD, "shop", "g")) == "n2"
    assert _place(cluster, "h", containers=wanted) == ""


def test_the_number_of_pods_is_a_limit() -> None:
    """A node takes no more pods than its allocatable says."""
    cluster = a_cluster(nodes=1)
    cluster.store.edit(NODE, ("", "n1"), lambda node: node["status"]["allocatable"].update(pods="1"))
    assert _place(cluster, "one") == "n1"
    assert _place(cluster, "two") == ""


def test_a_cordoned_node_takes_nothing() -> None:
    """New pods avoid a cordoned node, and one that tolerates the cordon does not."""
    cluster = a_cluster(nodes=1)
    cluster.store.edit(NODE, ("", "n1"), lambda node: node["spec"].update(unschedulable=True))
    assert _place(cluster, "p") == ""
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert _place(cluster, "q", tolerations=[cordon]) == "n1"


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: Obj, covered: bool) -> None:
    """Key, value, operator and effect of a toleration must all cover the taint; what is left out covers any."""
    assert tolerates([toleration], {"key": "k", "value": "v", "effect": "NoSchedule"}) is covered


def test_taints_keep_pods_off_or_away() -> None:
    """A NoSchedule taint forbids a node, a PreferNoSchedule taint only makes it the last choice."""
    cluster = a_cluster(nodes=2)
    _taint(cluster, "n1", "PreferNoSchedule")
    assert _place(cluster, "a") == "n2"
    _taint(cluster, "n2", "NoSchedule")
    assert _place(cluster, "b") == "n1"


@pytest.mark.parametrize(
    ("expression", "node"),
    [
        ({"key": "size", "operator": "In", "values": ["4"]}, "n2"),
        ({"key": "size", "operator": "NotIn", "values": ["2"]}, "n2"),
        ({"key": "extra", "operator": "Exists"}, "n2"),
        ({"key": "extra", "operator": "DoesNotExist"}, "n1"),
        ({"key": "size", "operator": "Gt", "values": ["3"]}, "n2"),
        ({"key": "size", "operator": "Lt", "values": ["3"]}, "n1"),
        ({"key": "size", "operator": "In", "values": ["8"]}, ""),
    ],
)
def test_required_node_affinity(expression: Obj, node: str) -> None:
    """All six operators select as upstream."""
    cluster = a_cluster(nodes=2)
    _label(cluster, "n1", size="2")
    _label(cluster, "n2", size="4", extra="x")
    assert _place(cluster, affinity=_required(expression)) == node


def test_the_node_selector_must_match() -> None:
    """Every label of the node selector must be on the node."""
    cluster = a_cluster(nodes=2)
    _label(cluster, "n2", disk="ssd")
    assert _place(cluster, "a", nodeSelector={"disk": "ssd"}) == "n2"
    assert _place(cluster, "b", nodeSelector={"disk": "ssd", "gpu": "yes"}) == ""


def test_host_ports_collide() -> None:
    """A host port is given once per node and protocol."""
    cluster = a_cluster(nodes=2)
    tcp = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    udp = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]}]
    assert {_place(cluster, "a", containers=tcp), _place(cluster, "b", containers=tcp)} == {"n1", "n2"}
    assert _place(cluster, "c", containers=tcp) == ""
    assert _place(cluster, "d", containers=udp) != ""


def test_required_anti_affinity_works_both_ways() -> None:
    """A pod avoids pods it dislikes, and pods that dislike it."""
    cluster = a_cluster(nodes=2)
    assert _place(cluster, "a", labels={"app": "a"}, affinity=_pods_rule("podAntiAffinity", HOST, app="b")) == "n1"
    assert _place(cluster, "b", labels={"app": "b"}) == "n2"
    assert _place(cluster, "c", affinity=_pods_rule("podAntiAffinity", HOST, app="a")) == "n2"


def test_required_affinity_follows_and_the_first_of_its_kind_may_start() -> None:
    """A pod goes where a matching pod is; without any, only a pod that matches its own rule may start."""
    cluster = a_cluster(nodes=3)
    rule = _pods_rule("podAffinity", ZONE, app="db")
    assert _place(cluster, "early", affinity=rule) == ""
    first = _place(cluster, "db", labels={"app": "db"}, affinity=rule)
    assert first != ""
    assert node_of(cluster.api.get(POD, "shop", "early")) == first


def test_hard_topology_spread() -> None:
    """No zone gets more than the allowed surplus over the emptiest zone, even when that leaves a pod pending."""
    cluster = a_cluster(nodes=3)
    cluster.store.edit(NODE, ("", "n3"), lambda node: node["spec"].update(unschedulable=True))
    rule = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "s"}},
    }
    landed = [
        _place(cluster, f"s{number}", labels={"app": "s"}, topologySpreadConstraints=[rule]) for number in range(3)
    ]
    assert sorted(landed) == ["", "n1", "n2"]


def test_requests_count_init_steps_sidecars_and_overhead() -> None:
    """The largest init step or the sum of containers and sidecars counts, and the overhead on top."""
    spec = {
        "containers": _container(cpu="100m"),
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
            {"name": "init", "resources": {"requests": {"cpu": "300m", "memory": "1Mi"}}},
        ],
        "overhead": {"cpu": "7m"},
    }
    assert pod_requests({"spec": spec}) == {"cpu": 357, "memory": 1024**2}


def test_least_allocated_and_balanced_figures() -> None:
    """The scores follow upstream's formulas in whole numbers."""
    cluster = a_cluster(nodes=1)
    cluster.store.edit(
        NODE, ("", "n1"), lambda node: node["status"].update(allocatable={"cpu": "1", "memory": "1000", "pods": "9"})
    )
    draft = cluster.store.create(POD, a_pod("p", containers=_container(cpu="250m", memory="500")))
    pod, nodes = read_pod(draft), cluster.scheduler.books.nodes()
    assert least_allocated(pod, nodes, cluster.scheduler.books) == [(75 + 50) // 2]
    assert balanced(pod, nodes, cluster.scheduler.books) == [87]


def test_preferred_node_affinity_is_scaled_to_the_best_node() -> None:
    """The node with the highest sum of weights gets 100, others their share."""
    cluster = a_cluster(nodes=3)
    _label(cluster, "n1", a="1")
    _label(cluster, "n2", a="1", b="1")
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for key, weight in (("a", 20), ("b", 60))
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = read_pod(cluster.store.create(POD, a_pod("p", affinity=affinity)))
    books = cluster.scheduler.books
    assert node_preference(pod, books.nodes(), books) == [25, 100, 0]


def test_soft_taints_score() -> None:
    """The node with most soft taints gets nothing, a clean one everything."""
    cluster = a_cluster(nodes=2)
    _taint(cluster, "n1", "PreferNoSchedule")
    pod = read_pod(cluster.store.create(POD, a_pod("p")))
    books = cluster.scheduler.books
    assert soft_taints(pod, books.nodes(), books) == [0, 100]


def test_pods_of_a_set_spread_by_default() -> None:
    """Without rules of its own, a set's pods go to different nodes and zones first."""
    cluster = a_cluster(nodes=3)
    with_deployment(cluster, an_app(replicas=3))
    assert sorted(node_of(pod) for pod in pods_of(cluster)) == ["n1", "n2", "n3"]


def test_soft_affinity_attracts() -> None:
    """A preferred pod affinity outweighs an emptier node."""
    cluster = a_cluster(nodes=2)
    _place(cluster, "db", labels={"app": "db"}, nodeSelector={HOST: "n2"})
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOST}
    liking = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    }
    assert _place(cluster, "web", affinity=liking) == "n2"


def test_ties_go_to_the_first_name() -> None:
    """Equal nodes are taken in the order of their names."""
    assert _place(a_cluster(nodes=1), "p") == "n1"
    cluster = a_cluster(nodes=5)
    assert _place(cluster, "p") == "n1"


def test_higher_priority_goes_first() -> None:
    """Of two pods that wait for the same room, the one with the higher priority gets it."""
    cluster = a_cluster(nodes=1, machine="e2-standard-2")
    cluster.store.create(POD, a_pod("low", containers=_container(cpu="1900m")))
    cluster.store.create(POD, a_pod("high", containers=_container(cpu="1900m"), priority=10))
    cluster.run_for(1)
    assert node_of(cluster.api.get(POD, "shop", "high")) == "n1"
    assert node_of(cluster.api.get(POD, "shop", "low")) == ""


def _steer(cluster: Cluster, data: dict[str, Any]) -> None:
    metadata = {"name": "kinema-steering", "namespace": "kube-system"}
    cluster.store.create(CONFIG_MAP, {"metadata": metadata, "data": data})


def test_steering_leads_new_pods_to_the_planned_nodes() -> None:
    """New pods of a named Deployment prefer the listed nodes, by name and not by a label; those of others do not."""
    cluster = a_cluster(nodes=6)
    for node in ("n5", "n6"):
        _label(cluster, node, **{HOST: f"{node}.example.org"})
    with_deployment(cluster, an_app(replicas=2))
    with_deployment(cluster, an_app("api", replicas=2))
    before = {name_of(pod) for pod in [*pods_of(cluster), *pods_of(cluster, "api")]}
    _steer(cluster, {"Deployment.shop.web": "n5, n6"})
    edit_spec(cluster, replicas=4)
    edit_spec(cluster, "api", replicas=4)
    cluster.run_for(20)
    fresh = [pod for pod in pods_of(cluster) if name_of(pod) not in before]
    assert sorted(node_of(pod) for pod in fresh) == ["n5", "n6"]
    assert all(len(_preferences(pod)) == 2 for pod in fresh), "one term a node: a field takes one value"
    assert all(not _preferences(pod) for pod in pods_of(cluster, "api"))


def _preferences(pod: Obj) -> list[Obj]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    found: list[Obj] = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return found


@pytest.mark.parametrize("value", [None, 7, "", " , "])
def test_steering_fails_open(value: Any) -> None:
    """An unreadable entry leaves the pods as they are."""
    cluster = a_cluster(nodes=2)
    with_deployment(cluster, an_app(replicas=1))
    _steer(cluster, {"Deployment.shop.web": value})
    edit_spec(cluster, replicas=2)
    cluster.run_for(20)
    assert len(pods_of(cluster)) == 2
    assert not any(_preferences(pod) for pod in pods_of(cluster))
