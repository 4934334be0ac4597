"""Builders of Kubernetes JSON, as the API server writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

JSON = dict[str, Any]
CREATED = "2026-03-01T10:00:00Z"


def meta(name: str, namespace: str | None = "shop", **more: Any) -> JSON:
    """`metadata` with uid, version and times."""
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "uid": f"uid-{namespace or 'cluster'}-{name}",
        "resourceVersion": "7",
        "creationTimestamp": CREATED,
        "managedFields": [{"manager": "kubectl", "operation": "Update", "time": CREATED, "fieldsV1": {"f:spec": {}}}],
        **more,
    }


def container(name: str = "main", cpu: str | None = "100m", memory: str | None = "128Mi", **more: Any) -> JSON:
    """A container with requests; None leaves one out."""
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    return {"name": name, "image": "registry.example/app:1", "resources": {"requests": requests}, **more}


def pod(
    name: str = "web-0",
    *,
    namespace: str = "shop",
    node: str | None = "n1",
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> JSON:
    """A pod that runs on `node` and is ready, owned by replica set `web-rs`; `spec` adds to or replaces its fields."""
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-rs", "uid": "uid-rs", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **meta(name, namespace, labels={"app": "web"}, ownerReferences=[owner]),
            **(metadata or {}),
        },
        "spec": {
            "containers": [container()],
            "schedulerName": "default-scheduler",
            "restartPolicy": "Always",
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-03-01T10:00:05Z",
            "conditions": conditions,
            "containerStatuses": [{"name": "main", "restartCount": 0, "ready": True, "lastState": {}}],
            **(status or {}),
        },
    }


def node(name: str = "n1", *, metadata: Mapping[str, Any] | None = None, **parts: Any) -> JSON:
    """A Ready node with 4 cores; `parts` replaces `spec` or adds to `status`."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**meta(name, None, labels={"kubernetes.io/hostname": name}), **(metadata or {})},
        "spec": parts.get("spec", {"providerID": f"x://{name}"}),
        "status": {
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "allocatable": {"cpu": "3920m", "memory": "13000000Ki", "pods": "110", "ephemeral-storage": "47093746742"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": "2026-03-02T11:59:30Z"},
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-02T11:59:30Z"},
            ],
            **parts.get("status", {}),
        },
    }


def thing(
    kind: str, name: str = "web", *, group: str = "apps/v1", namespace: str | None = "shop", **parts: Any
) -> JSON:
    """Any other object: `metadata` is merged, the rest stands as given."""
    metadata = {**meta(name, namespace), **parts.pop("metadata", {})}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, **parts}


def raw(value: JSON) -> bytes:
    """The object as bytes."""
    return json.dumps(value).encode()


def listed(*items: Any, kind: str = "List") -> bytes:
    """A list of objects, as `kubectl get -o json` prints it."""
    return json.dumps({"apiVersion": "v1", "kind": kind, "items": list(items), "metadata": {}}, indent=4).encode()
