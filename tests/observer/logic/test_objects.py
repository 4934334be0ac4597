"""Reading everything that is not a pod."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from tests.observer.kube_json import JSON, container, node, raw, thing

from kinema_core.events import (
    Autoscaler,
    ClusterObject,
    Namespace,
    Node,
    NodeTerm,
    Owner,
    Pod,
    PriorityClass,
    Quarantined,
    Requirement,
    ResourceQuota,
    Selector,
    StorageClass,
    Taint,
    Volume,
    VolumeClaim,
    Workload,
)
from kinema_core.events.frozen import FrozenMap
from kinema_observer.logic.kubernetes import decode_object

T = TypeVar("T", bound=ClusterObject)
GIB = 2**30
HPA = "HorizontalPodAutoscaler"
VPA = "VerticalPodAutoscaler"


def read(value: JSON) -> ClusterObject:
    """The object, which must be part of the state."""
    found = decode_object(value["kind"], raw(value))
    assert found is not None
    return found


def read_as(type_: type[T], value: JSON) -> T:
    """The object, which must be of this class."""
    found = read(value)
    assert isinstance(found, type_), found
    return found


def odd(kind: str, metadata: object, spec: object = 7) -> JSON:
    """An object of which the given parts are all there is."""
    return {"kind": kind, "metadata": metadata, "spec": spec}


def workload(kind: str, **parts: Any) -> Workload:
    """A workload of this kind, which must be readable."""
    return read_as(Workload, thing(kind, **parts))


def test_a_node_keeps_what_placement_needs() -> None:
    """Allocatable in integers, taints, cordon, readiness; heartbeats and addresses are left out."""
    found = read_as(
        Node,
        node(
            metadata={"annotations": {"kinema.io/usd-per-hour": "0.17", "volumes.kubernetes.io/x": "true"}},
            spec={"unschedulable": True, "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]},
        ),
    )
    assert (found.allocatable["cpu"], found.allocatable["memory"], found.allocatable["pods"]) == (
        3920,
        13312000000,
        110,
    )
    assert found.allocatable["ephemeral-storage"] == 47093746742
    assert found.taints == (Taint(key="dedicated", value="gpu", effect="NoSchedule"),)
    assert found.annotations == {"kinema.io/usd-per-hour": "0.17"}
    assert (found.unschedulable, found.ready) == (True, True)


def test_a_node_heartbeat_changes_nothing() -> None:
    """Nodes report every few minutes; a quiet cluster makes no deltas."""
    later = node(metadata={"resourceVersion": "8"})
    later["status"]["conditions"][1]["lastHeartbeatTime"] = "2026-03-02T12:04:30Z"
    assert read(node()) == read(later)


def test_a_node_without_conditions_or_on_its_way_out_takes_no_pods() -> None:
    """Not Ready unless it says so; one that is being deleted counts as cordoned; without allocatable, capacity."""
    bare = read_as(Node, node(spec={}, status={"conditions": None, "allocatable": None}))
    assert (bare.ready, bare.allocatable["cpu"]) == (False, 4000)
    leaving = read_as(Node, node(metadata={"deletionTimestamp": "2026-03-02T12:00:00Z"}))
    assert leaving.unschedulable


def test_a_taint_of_unknown_effect_freezes_the_node() -> None:
    """An unknown effect may keep anything out: the node is quarantined under its own name."""
    found = read_as(Quarantined, node("n7", spec={"taints": [{"key": "a", "effect": "NoThing"}]}))
    assert (found.object, found.node, found.path) == ("Node n7", "n7", "spec.taints[0].effect")


def test_a_deployment() -> None:
    """Counts, template and rolling limits; the strategy's defaults are those of Kubernetes."""
    template = {
        "metadata": {"labels": {"app": "web"}, "creationTimestamp": None},
        "spec": {"containers": [container(cpu="200m", memory=None)], "nodeSelector": {"disk": "ssd"}},
    }
    found = workload(
        "Deployment",
        metadata={"generation": 4},
        spec={"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template, "paused": True},
        status={"replicas": 4, "readyReplicas": 2, "updatedReplicas": 1, "observedGeneration": 3},
    )
    assert found.key == "Deployment/shop/web"
    assert (found.replicas, found.current, found.ready, found.updated) == (3, 4, 2, 1)
    assert (found.generation, found.observed_generation, found.paused) == (4, 3, True)
    assert found.selector == Selector(labels=FrozenMap({"app": "web"}))
    assert found.template_labels == {"app": "web"}
    assert found.template_requests == {"cpu": 200, "pods": 1}
    assert found.template_rules.node_selector == {"disk": "ssd"}
    assert (found.max_surge, found.max_unavailable) == ("25%", "25%")


def test_pods_count_once_they_have_been_ready_for_as_long_as_the_workload_asks() -> None:
    """With `minReadySeconds` a controller relies on what is available: so do we."""
    status = {"replicas": 4, "readyReplicas": 4, "availableReplicas": 3}
    for kind in ("Deployment", "ReplicaSet", "StatefulSet"):
        assert workload(kind, spec={"replicas": 3, "minReadySeconds": 30}, status=status).ready == 3
        assert workload(kind, spec={"replicas": 3, "minReadySeconds": 0}, status=status).ready == 4
    assert workload("Deployment", spec={"minReadySeconds": 30}, status={"readyReplicas": 2}).ready == 0


def test_update_limits_are_kept_as_written() -> None:
    """A number or a percentage; Recreate takes all pods away and adds none; sets take one at a time."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}}
    given = workload("Deployment", spec={"strategy": strategy})
    assert (given.max_surge, given.max_unavailable) == ("0", "10%")
    recreated = workload("Deployment", spec={"strategy": {"type": "Recreate"}})
    assert (recreated.max_surge, recreated.max_unavailable) == ("0", "100%")
    stateful = workload("StatefulSet", spec={})
    assert (stateful.max_surge, stateful.max_unavailable) == ("0", "1")


def test_replicas_default_to_one_and_zero_is_kept() -> None:
    """Missing desired replicas mean 1; a written 0 stays 0."""
    assert workload("StatefulSet", spec={}).replicas == 1
    assert workload("Deployment", spec={"replicas": 0}).replicas == 0
    assert workload("Deployment", spec={}, status=None).replicas == 1


def test_a_replica_set_points_to_its_deployment_and_old_ones_are_left_out() -> None:
    """A Deployment keeps ten empty old replica sets: they are no part of the state while they have no pods."""
    owner = [{"kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}]
    live = workload(
        "ReplicaSet", metadata={"ownerReferences": owner}, spec={"replicas": 2}, status={"readyReplicas": 2}
    )
    assert live.owner == Owner(kind="Deployment", name="web", uid="uid-web")
    old = thing("ReplicaSet", metadata={"ownerReferences": owner}, spec={"replicas": 0}, status={"replicas": 0})
    assert decode_object("ReplicaSet", raw(old)) is None
    draining = thing("ReplicaSet", metadata={"ownerReferences": owner}, spec={"replicas": 0}, status={"replicas": 1})
    assert decode_object("ReplicaSet", raw(draining)) is not None
    alone = thing("ReplicaSet", spec={"replicas": 0}, status={"replicas": 0})
    assert decode_object("ReplicaSet", raw(alone)) is not None


def test_a_workload_tells_why_its_pods_are_refused() -> None:
    """The complaint of its controller, without the pod's name, which changes at each try; nothing once it is over."""
    why = "exceeded quota: tight, requested: pods=1, used: pods=4, limited: pods=4"
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}

    def refused(**more: str) -> str:
        return workload("Deployment", spec={}, status={"conditions": [{**failure, **more}]}).refused

    assert refused(message=f'pods "web-5d4f-x2x9k" is forbidden: {why}') == why
    assert refused(message="no webhook answers") == "no webhook answers"
    assert refused() == "FailedCreate"
    assert refused(status="False", message=why) == ""
    assert refused(reason="FailedDelete", message=why) == ""
    progress = {"type": "Progressing", "status": "False", "reason": "ReplicaSetCreateError"}
    said = f'Failed to create new replica set "web-5d4f": replicasets.apps "web-5d4f" is forbidden: {why}'
    assert refused(**progress, message=said) == why
    assert refused(**{**progress, "reason": "ProgressDeadlineExceeded"}, message=said) == ""


def test_daemon_sets_and_jobs_count_in_their_own_fields() -> None:
    """Desired numbers come from the status of a daemon set and from the parallelism of a Job."""
    status = {
        "desiredNumberScheduled": 5,
        "currentNumberScheduled": 4,
        "updatedNumberScheduled": 3,
        "numberReady": 2,
    }
    daemon = workload("DaemonSet", spec={}, status=status)
    assert (daemon.replicas, daemon.current, daemon.updated, daemon.ready) == (5, 4, 3, 2)
    job = workload("Job", group="batch/v1", spec={"parallelism": 3, "suspend": True}, status={"active": 2, "ready": 1})
    assert (job.replicas, job.current, job.ready, job.paused) == (3, 2, 1, True)
    done = thing("Job", group="batch/v1", spec={}, status={"conditions": [{"type": "Complete", "status": "True"}]})
    assert decode_object("Job", raw(done)) is None


def test_a_replication_controller_selects_by_equal_labels() -> None:
    """Its selector is a plain map."""
    found = workload("ReplicationController", group="v1", spec={"selector": {"app": "old"}, "replicas": 2})
    assert found.selector == Selector(labels=FrozenMap({"app": "old"}))


def test_what_cannot_be_known_of_a_template_is_named() -> None:
    """A runtime class adds rules to pods at admission, which a template does not show; a later field may be one."""
    spec = {"containers": [container()], "runtimeClassName": "gvisor"}
    assert workload("DaemonSet", spec={"template": {"spec": spec}}).template_rules.unmodeled == (
        "spec.runtimeClassName",
    )
    later = {"template": {"spec": {"containers": [container()], "rackPolicy": "Same"}}}
    assert workload("Deployment", spec=later).template_rules.unmodeled == ("spec.rackPolicy",)


def test_an_unreadable_workload_freezes_its_namespace() -> None:
    """It may have forbidden to move its pods: it is named with the path into its template."""
    template = {"spec": {"containers": [container(cpu="lots")]}}
    found = read_as(Quarantined, thing("Deployment", spec={"template": template}))
    assert (found.object, found.namespace, found.node) == ("Deployment shop/web", "shop", None)
    assert found.path == "spec.template.spec.containers[0].resources.requests.cpu"


@pytest.mark.parametrize(
    ("kind", "group", "spec", "status", "path"),
    [
        ("Deployment", "apps/v1", {"replicas": -3}, {}, "spec.replicas"),
        ("Job", "batch/v1", {"parallelism": -1}, {}, "spec.parallelism"),
        ("StatefulSet", "apps/v1", {"replicas": 3}, {"readyReplicas": -2}, "status, ready pods"),
        (
            HPA,
            "autoscaling/v2",
            {"scaleTargetRef": {"kind": "D", "name": "w"}, "minReplicas": -1},
            {},
            "spec.minReplicas",
        ),
    ],
)
def test_a_negative_number_of_pods_is_quarantined(kind: str, group: str, spec: JSON, status: JSON, path: str) -> None:
    """No cluster has it: a plan that counts with it would count wrong."""
    found = read_as(Quarantined, thing(kind, group=group, spec=spec, status=status))
    assert (found.path, found.namespace) == (path, "shop")
    assert "a number of pods is 0 or more" in found.reason


def test_volumes_claims_and_classes() -> None:
    """Where a volume can be reached from, who claims it, and whether its class waits for the first pod."""
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    volume = read(
        thing(
            "PersistentVolume",
            "pv-1",
            group="v1",
            namespace=None,
            spec={
                "claimRef": {"namespace": "shop", "name": "data"},
                "csi": {"driver": "pd.csi.storage.gke.io"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
            },
        )
    )
    term = NodeTerm(expressions=(Requirement(key="topology.kubernetes.io/zone", operator="In", values=("a",)),))
    assert isinstance(volume, Volume)
    assert (volume.claim, volume.driver, volume.node_terms) == ("shop/data", "pd.csi.storage.gke.io", (term,))
    claim = read_as(
        VolumeClaim,
        thing("PersistentVolumeClaim", "data", group="v1", spec={"volumeName": "pv-1", "storageClassName": "s"}),
    )
    assert (claim.volume, claim.storage_class) == ("pv-1", "s")
    allowed = [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a"]}]}]
    class_ = read_as(
        StorageClass,
        thing(
            "StorageClass",
            "s",
            group="storage.k8s.io/v1",
            namespace=None,
            volumeBindingMode="WaitForFirstConsumer",
            allowedTopologies=allowed,
        ),
    )
    assert (class_.wait_for_consumer, class_.node_terms) == (True, (term,))


def test_resource_quotas() -> None:
    """What is about pods and ReplicaSets, amounts of 0 too, under one name each; scopes by either field."""
    counted = {"pods": "0", "count/replicasets.apps": "4", "count/deployments.apps": "2", "services": "3"}
    hard = {**counted, "cpu": "2", "requests.cpu": "1500m", "limits.memory": "1Gi"}
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    spec = {"hard": hard, "scopes": ["NotBestEffort"], "scopeSelector": {"matchExpressions": [expression]}}
    found = read_as(
        ResourceQuota, thing("ResourceQuota", "tight", group="v1", spec=spec, status={"used": {"pods": "0"}})
    )
    assert found.hard == {"pods": 0, "count/replicasets.apps": 4, "requests.cpu": 1500, "limits.memory": 2**30}
    assert found.used == {"pods": 0}
    assert [(one.name, one.operator, one.values) for one in found.scopes] == [
        ("NotBestEffort", "Exists", ()),
        ("PriorityClass", "In", ("high",)),
    ]
    odd = read(thing("ResourceQuota", "odd", group="v1", spec={"hard": {"pods": "many"}}))
    assert isinstance(odd, Quarantined)
    assert (odd.path, odd.namespace) == ("spec.hard.pods", "shop")


def test_limits_of_a_pod_count_as_a_quota_counts_them() -> None:
    """Containers and sidecars together, or the init container that is larger."""
    containers = [{"name": "a", "resources": {"limits": {"cpu": "1"}}}, {"name": "b"}]
    first = {"name": "first", "resources": {"limits": {"memory": "64Mi", "cpu": "2"}}}
    side = {"name": "side", "restartPolicy": "Always", "resources": {"limits": {"cpu": "500m"}}}
    spec = {"containers": containers, "initContainers": [side, first]}
    assert read_as(Pod, thing("Pod", "web-0", group="v1", spec=spec)).limits == {"cpu": 2500, "memory": 64 * 2**20}


def test_priority_classes_and_namespaces() -> None:
    """The value of a class; the labels of a namespace, and whether it is going."""
    high = read(thing("PriorityClass", "high", group="scheduling.k8s.io/v1", namespace=None, value=1000))
    assert high == PriorityClass(name="high", uid="uid-cluster-high", value=1000)
    space = read(
        thing(
            "Namespace",
            "shop",
            group="v1",
            namespace=None,
            metadata={"labels": {"a": "b"}},
            status={"phase": "Terminating"},
        )
    )
    assert space == Namespace(name="shop", uid="uid-cluster-shop", labels=FrozenMap({"a": "b"}), terminating=True)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (thing("Pod", group="v1", spec=None), "spec"),
        (thing("Node", group="v1", namespace=None, spec=None), "spec"),
        (thing("Deployment", spec=None), "spec"),
        (thing("PersistentVolumeClaim", group="v1", spec=None), "spec"),
        (thing("Deployment", spec={"template": {"spec": None}}), "spec.template.spec"),
        (thing("StatefulSet", spec={"template": {}}), "spec.template.spec"),
        (thing("DaemonSet", spec={"template": {"spec": {"containers": None}}}), "spec.template.spec.containers"),
        (thing("ReplicaSet", spec={"template": {"spec": {"containers": []}}}), "spec.template.spec.containers"),
    ],
)
def test_an_object_that_says_nothing_is_quarantined(value: JSON, path: str) -> None:
    """No server makes one without a spec, or a pod without containers: whoever wrote it left something out."""
    found = read_as(Quarantined, value)
    assert found.path == path


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"kind": "Node", "metadata": {"uid": "u"}}, "metadata.name"),
        ({"kind": "Node", "metadata": []}, "metadata"),
        ({"kind": "Node"}, "metadata"),
        ({"kind": "Node", "metadata": {"name": "n1", "creationTimestamp": "yesterday"}}, "metadata.creationTimestamp"),
        ({"kind": "Node", "metadata": {"name": "n1", "labels": {"a": None}}}, "metadata.labels[...]"),
    ],
)
def test_odd_metadata_is_quarantined_too(value: JSON, path: str) -> None:
    """Without a name, the text itself stands for it, so that the object is named once."""
    found = read_as(Quarantined, value)
    assert found.path == path
    assert found == read(value)
    assert found.object.startswith("Node ")


@pytest.mark.parametrize(("labels", "made_by"), [({}, ""), ({"scaledobject.keda.sh/name": "queue"}, "queue")])
def test_an_autoscaler_names_the_scaled_object_that_made_it(labels: dict[str, str], made_by: str) -> None:
    """KEDA sets the limits of such a one again and again."""
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3}
    metadata = {"name": "keda-hpa-web", "namespace": "shop", "uid": "u1", "labels": labels}
    assert read_as(Autoscaler, odd(HPA, metadata, spec)).scaled_object == made_by


@pytest.mark.parametrize(
    ("value", "frozen"),
    [
        (odd("PodDisruptionBudget", 7), ""),
        (odd("PodDisruptionBudget", {"name": "web", "namespace": 7}), ""),
        (odd("StatefulSet", {"name": 7, "namespace": "shop"}), "shop"),
        (odd("StatefulSet", {"name": "web"}), ""),
        (odd("Namespace", {}), ""),
        (odd("Pod", {"name": "web-0"}), ""),
        (odd("Pod", 7), ""),
        (odd("Pod", 7, spec={}), None),
        (odd("HorizontalPodAutoscaler", 7), ""),
        (odd("PriorityClass", 7), None),
    ],
)
def test_a_namespace_that_cannot_be_told_may_be_any(value: JSON, frozen: str | None) -> None:
    """Empty is not none: a budget forbids in one that is not known, an unreadable pending pod nowhere."""
    found = read_as(Quarantined, value)
    assert found.namespace == frozen


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"labels": ["a"]}, "metadata.labels", "is a list: write an object"),
        ({"generation": "1"}, "metadata.generation", "is text: write a whole number"),
        ({"ownerReferences": [{"name": 7}]}, "metadata.ownerReferences[0].name", "is a whole number: write text"),
        ({"creationTimestamp": "yesterday"}, "metadata.creationTimestamp", "is no time: write one such as 2026-"),
    ],
)
def test_a_reason_says_what_to_write_instead(value: JSON, path: str, reason: str) -> None:
    """In the words of Kubernetes' own reference, not in those of the decoder."""
    found = read_as(Quarantined, {"kind": "Node", "metadata": {"name": "n1", **value}})
    assert (found.path, found.reason[: len(reason)]) == (path, reason)
