"""One Kubernetes object of each kind that the observer reads, and a churn that changes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

JSON = dict[str, Any]
CSI_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"
MERGE: Final = "application/merge-patch+json"
_QUICK: Final = {
    f"pod-{stage}.stage.kwok.x-k8s.io/{part}": "100ms"
    for stage in ("create", "ready", "delete")
    for part in ("delay", "jitter-delay")
}


def template(app: str, **spec: Any) -> JSON:
    """A pod template whose pods start within a fifth of a second."""
    container = {"name": "c", "image": "example/none:1", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    return {
        "metadata": {"labels": {"app": app}, "annotations": _QUICK},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


def objects(namespace: str) -> Iterator[tuple[str, JSON]]:
    """Path and object, in the order in which to create them; all their pods run, but for one that waits for ever."""
    apps, core = f"/apis/apps/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}"
    yield "/api/v1/namespaces", _named(namespace)
    yield "/apis/scheduling.k8s.io/v1/priorityclasses", {**_named(f"{namespace}-high"), "value": 1000}
    slow = {"provisioner": "example.com/none", "volumeBindingMode": "WaitForFirstConsumer"}
    yield "/apis/storage.k8s.io/v1/storageclasses", {**_named(f"{namespace}-slow"), **slow}
    yield "/api/v1/persistentvolumes", _volume(namespace)
    yield f"{core}/persistentvolumeclaims", {**_named("data"), "spec": _claim("", volumeName=f"{namespace}-data")}
    selector = {"matchLabels": {"app": "web"}}
    yield f"{apps}/deployments", _workload("web", replicas=2)
    yield f"{apps}/statefulsets", _workload("db", replicas=1, serviceName="db")
    yield f"{apps}/daemonsets", _workload("agent")
    yield (
        f"{core}/replicationcontrollers",
        {**_named("old"), "spec": {"replicas": 1, "selector": {"app": "old"}, "template": template("old")}},
    )
    yield (
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        {**_named("once"), "spec": {"template": template("once", restartPolicy="Never", nodeSelector={"no": "where"})}},
    )
    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    yield (
        f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers",
        {**_named("web"), "spec": {"scaleTargetRef": scaled, "minReplicas": 1, "maxReplicas": 9}},
    )
    yield f"{core}/resourcequotas", {**_named("ample"), "spec": {"hard": {"pods": "1000"}}}
    budget = {"maxUnavailable": 1, "selector": selector}
    yield f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", {**_named("web"), "spec": budget}


def vertical_definition() -> JSON:
    """The definition of VerticalPodAutoscalers, as far as it takes to store them."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": "verticalpodautoscalers", "singular": "verticalpodautoscaler", "kind": "VerticalPodAutoscaler"}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"}
    return {
        "metadata": {"name": "verticalpodautoscalers.autoscaling.k8s.io", "annotations": approved},
        "spec": {"group": "autoscaling.k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def vertical(cpu: str) -> JSON:
    """A VerticalPodAutoscaler for `web` with a recommendation."""
    target = {"cpu": cpu, "memory": "64Mi"}
    recommended = {"containerName": "c", "target": target, "lowerBound": target, "upperBound": target}
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        **_named("web"),
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        "status": {"recommendation": {"containerRecommendations": [recommended]}},
    }


def csi_node(node: str, count: int | None, driver: str = "disk.example.com") -> JSON:
    """The CSINode of a node with one driver, which may state a count."""
    limit = {} if count is None else {"allocatable": {"count": count}}
    stated = {"name": driver, "nodeID": node, "topologyKeys": [], **limit}
    return {**_named(node), "spec": {"drivers": [stated]}}


def change(namespace: str, node: str, chance: random.Random, count: int) -> tuple[str, str, JSON]:
    """Method, path and body of one more change to those objects."""
    apps, core = f"/apis/apps/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}"
    mark = {"metadata": {"labels": {"round": str(count)}}}
    changes: list[tuple[str, str, JSON]] = [
        ("PATCH", f"{apps}/deployments/web/scale", {"spec": {"replicas": chance.randint(0, 6)}}),
        ("PATCH", f"{apps}/statefulsets/db/scale", {"spec": {"replicas": chance.randint(0, 2)}}),
        ("PATCH", f"{apps}/deployments/web", {"spec": {"template": mark}}),
        ("PATCH", f"{core}/replicationcontrollers/old", mark),
        ("PATCH", f"/api/v1/nodes/{node}", {**mark, "spec": {"unschedulable": chance.random() < 0.3}}),
        (
            "PATCH",
            f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/web",
            {"spec": {"maxUnavailable": chance.randint(0, 3)}},
        ),
        ("DELETE", f"{core}/pods/db-0", {}),
        ("POST", CSI_NODES, csi_node(node, chance.randint(0, 9))),
        ("DELETE", f"{CSI_NODES}/{node}", {}),
        (
            "POST",
            f"{core}/pods",
            {**template("bare"), "metadata": {"name": f"bare-{count}", "annotations": _QUICK}},
        ),
        ("DELETE", f"{core}/pods/bare-{count - chance.randint(1, 8)}", {}),
    ]
    return chance.choice(changes)


def _named(name: str) -> JSON:
    return {"metadata": {"name": name}}


def _workload(app: str, **spec: Any) -> JSON:
    return {**_named(app), "spec": {"selector": {"matchLabels": {"app": app}}, "template": template(app), **spec}}


def _claim(storage_class: str, **more: str) -> JSON:
    return {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
        **more,
    }


def _volume(namespace: str) -> JSON:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "hostPath": {"path": "/nowhere"},
        "claimRef": {"namespace": namespace, "name": "data"},
    }
    return {**_named(f"{namespace}-data"), "spec": spec}
