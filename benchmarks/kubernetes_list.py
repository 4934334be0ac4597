"""Observed objects written as `kubectl get … -o json` prints them, for the kinds and rules that instances have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

from kinema_core.events import ClusterObject, Node, Owner, PlacementRules, Pod, PodTerm, Requirement, Selector, Workload

Json: TypeAlias = dict[str, object]


def kubernetes_list(objects: Iterable[ClusterObject]) -> Json:
    """A List of the nodes, pods, Deployments and replica sets.

    Raises:
        TypeError: an object of another kind.
    """
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(map(_item, objects))}


def _item(item: ClusterObject) -> Json:
    if isinstance(item, Node):
        return _node(item)
    if isinstance(item, Pod):
        return _pod(item)
    if isinstance(item, Workload):
        return _workload(item)
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
    affinity: Json = {}
    if rules.node_terms is not None:
        terms = [{"matchExpressions": [_requirement(one) for one in term.expressions]} for term in rules.node_terms]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        affinity["nodeAffinity"] = required
    if rules.anti_affinity:
        apart = [_term(term) for term in rules.anti_affinity]
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": apart}
    found: Json = {"affinity": affinity} if affinity else {}
    if rules.node_selector:
        found["nodeSelector"] = dict(rules.node_selector)
    return found


def _term(term: PodTerm) -> Json:
    return {"topologyKey": term.topology_key, "labelSelector": _selector(term.selector)}


def _requirement(one: Requirement) -> Json:
    return {"key": one.key, "operator": one.operator, "values": list(one.values)}


def _selector(selector: Selector | None) -> Json:
    return {} if selector is None else {"matchLabels": dict(selector.labels)}


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
        "spec": {"replicas": item.replicas, "selector": _selector(item.selector), "template": template},
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
