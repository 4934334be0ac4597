"""Paths of objects, and what is read from their plain JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias
from urllib.parse import quote

Json: TypeAlias = dict[str, Any]

_WORKLOADS: Final = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers",
}


def node_path(name: str) -> str:
    """Path of a node."""
    return f"/api/v1/nodes/{quote(name, safe='')}"


def pods_path(namespace: str) -> str:
    """Path of a namespace's pods."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


def pod_path(pod: Json) -> str:
    """Path of a pod as it was read."""
    return f"{pods_path(pod['metadata']['namespace'])}/{quote(pod['metadata']['name'], safe='')}"


def workload_path(target: str) -> str:
    """Path of a workload named `Type/namespace/name`; ValueError for a kind that has none."""
    kind, namespace, name = target.split("/", 2)
    if kind not in _WORKLOADS:
        raise ValueError(f"{target}: pods of a {kind} cannot be moved this way")
    return f"{_WORKLOADS[kind].format(quote(namespace, safe=''))}/{quote(name, safe='')}"


def has_controller_path(target: str) -> bool:
    """Return whether the workload is of a kind that has a path."""
    return target.split("/", 1)[0] in _WORKLOADS


def annotations_of(item: Json) -> dict[str, str]:
    """Annotations of an object."""
    return item["metadata"].get("annotations") or {}


def labels_of(item: Json) -> dict[str, str]:
    """Labels of an object."""
    return item["metadata"].get("labels") or {}


def uid(item: Json) -> str:
    """Uid of an object."""
    return str(item["metadata"]["uid"])


def generation(item: Json) -> int:
    """Generation of an object's spec."""
    return int(item["metadata"].get("generation") or 0)


def terminating(item: Json) -> bool:
    """Return whether an object is being deleted."""
    return bool(item["metadata"].get("deletionTimestamp"))


def finished(pod: Json) -> bool:
    """Return whether a pod has ended."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def pod_ready(pod: Json) -> bool:
    """Return whether a pod is Ready and stays."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
    return ready and not terminating(pod)


def resident(pod: Json) -> bool:
    """Return whether a pod goes with its node: a daemon set's, or a static pod's mirror."""
    owners: Iterable[Json] = pod["metadata"].get("ownerReferences") or []
    daemon = any(owner.get("controller") and owner.get("kind") in {"DaemonSet", "Node"} for owner in owners)
    return daemon or "kubernetes.io/config.mirror" in annotations_of(pod)


def selector_text(workload: Json) -> str:
    """Return a workload's selector as a query: `a=b,c in (d,e),f,!g`."""
    spec = workload["spec"]
    selector = spec.get("selector") or {}
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for item in selector.get("matchExpressions") or []:
        key, operator, values = item["key"], item["operator"], ",".join(item.get("values") or [])
        written = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append(written.get(operator, f"!{key}"))
    return ",".join(parts)
