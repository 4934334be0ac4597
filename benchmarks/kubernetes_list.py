"""Observed objects written as `kubectl get … -o json` prints them, for the kinds and rules that instances have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from kinema_core.events import (
    ClusterObject,
    DisruptionBudget,
    Node,
    Owner,
    PlacementRules,
    Pod,
    Volume,
    VolumeClaim,
    Workload,
)
from kinema_sim.scenarios.placement import label_selector, node_selector, placement_spec

Json: TypeAlias = dict[str, object]


def kubernetes_list(objects: Iterable[ClusterObject]) -> Json:
    """A List of the objects; raises TypeError as `kubernetes_object`."""
    items = [kubernetes_object(item) for item in objects]
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}


def kubernetes_object(item: ClusterObject) -> Json:
    """One object as the API has it, without what no rule is about.

    Raises:
        TypeError: an object of a kind that is in no instance.
    """
    for kind, write in _WRITERS.items():
        if isinstance(item, kind):
            return write(item)
    message = f"a {type(item).__name__} is in no instance"
    raise TypeError(message)


def _node(node: Node) -> Json:
    taints = [{"key": one.key, "value": one.value, "effect": one.effect} for one in node.taints]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": _time(node.created)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(node.name, node.uid, node.labels, annotations=node.annotations, created=node.created),
        "spec": {"taints": taints} if taints else {},
        "status": {
            "allocatable": _amounts(node.allocatable),
            "capacity": _amounts(node.allocatable),
            "conditions": [ready],
        },
    }


def _pod(pod: Pod) -> Json:
    bound = pod.node is not None
    place: Json = {"nodeName": pod.node} if bound else {}
    condition = {"lastTransitionTime": _time(pod.created)}
    if bound:
        status: Json = {
            "phase": "Running",
            "startTime": _time(pod.started),
            "conditions": [{"type": "Ready", "status": "True", **condition}],
        }
    else:
        waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", **condition}
        status = {"phase": "Pending", "conditions": [waiting]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(
            pod.name,
            pod.uid,
            pod.labels,
            namespace=pod.namespace,
            annotations=pod.annotations,
            owner=pod.owner,
            created=pod.created,
        ),
        "spec": {**_pod_spec(pod.requests, pod.rules), **place},
        "status": status,
    }


def _pod_spec(requests: Mapping[str, int], rules: PlacementRules) -> Json:
    asked = {name: amount for name, amount in requests.items() if name != "pods"}
    container = {"name": "main", "image": "example/main:1", "resources": {"requests": _amounts(asked)}}
    return {"schedulerName": rules.scheduler, "containers": [container], **_placement(rules)}


def _placement(rules: PlacementRules) -> Json:
    if not rules.claims:
        return placement_spec(rules)
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in rules.claims]
    return {**placement_spec(rules), "volumes": volumes}


def _budget(item: DisruptionBudget) -> Json:
    least = {} if item.min_available is None else {"minAvailable": _count(item.min_available)}
    most = {} if item.max_unavailable is None else {"maxUnavailable": _count(item.max_unavailable)}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(item.name, item.uid, {}, namespace=item.namespace),
        "spec": {"selector": label_selector(item.selector) or {}, **least, **most},
        "status": {
            "disruptionsAllowed": item.allowed,
            "expectedPods": item.expected,
            "desiredHealthy": item.desired_healthy,
            "currentHealthy": item.healthy,
        },
    }


def _count(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _volume(item: Volume) -> Json:
    spec: Json = {}
    if item.node_terms is not None:
        spec["nodeAffinity"] = {"required": node_selector(item.node_terms)}
    if item.claim is not None:
        namespace, _, name = item.claim.partition("/")
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    if item.driver:
        spec["csi"] = {"driver": item.driver, "volumeHandle": item.name}
    metadata = _metadata(item.name, item.uid, {})
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _claim(item: VolumeClaim) -> Json:
    bound = {"volumeName": item.volume, "storageClassName": item.storage_class}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(item.name, item.uid, {}, namespace=item.namespace),
        "spec": {key: value for key, value in bound.items() if value is not None},
    }


def _workload(item: Workload) -> Json:
    template = {
        "metadata": {"labels": dict(item.template_labels)},
        "spec": _pod_spec(item.template_requests, item.template_rules),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": item.type,
        "metadata": {
            **_metadata(
                item.name,
                item.uid,
                item.labels,
                namespace=item.namespace,
                annotations=item.annotations,
                owner=item.owner,
            ),
            "generation": item.generation,
        },
        "spec": {"replicas": item.replicas, "selector": label_selector(item.selector) or {}, "template": template},
        "status": {
            "replicas": item.current,
            "readyReplicas": item.ready,
            "availableReplicas": item.ready,
            "updatedReplicas": item.updated,
            "observedGeneration": item.observed_generation,
        },
    }


def _metadata(
    name: str,
    uid: str,
    labels: Mapping[str, str],
    *,
    namespace: str = "",
    annotations: Mapping[str, str] | None = None,
    owner: Owner | None = None,
    created: datetime | None = None,
) -> Json:
    found: Json = {"name": name, "uid": uid, "labels": dict(labels)}
    if namespace:
        found["namespace"] = namespace
    if annotations:
        found["annotations"] = dict(annotations)
    if created is not None:
        found["creationTimestamp"] = _time(created)
    if owner is not None:
        reference = {"apiVersion": "apps/v1", "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        found["ownerReferences"] = [{**reference, "controller": True}]
    return found


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


_WRITERS: Final[Mapping[type[ClusterObject], Callable[[Any], Json]]] = {
    Node: _node,
    Pod: _pod,
    Workload: _workload,
    DisruptionBudget: _budget,
    Volume: _volume,
    VolumeClaim: _claim,
}
