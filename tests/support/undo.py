"""What `kubectl rollout undo` sends."""

from __future__ import annotations

from typing import Any, Final

_HASH: Final = "pod-template-hash"
_KEPT: Final = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    "deployment.kubernetes.io/revision-history",
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
    "deprecated.deployment.rollback.to",
)
"""Annotations that stay the Deployment's own; all others are taken from the ReplicaSet."""
JSON_PATCH: Final = "application/json-patch+json"


def undo_patch(deployment: dict[str, Any], replica_set: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that makes a ReplicaSet's template and annotations those of its Deployment."""
    template = replica_set["spec"]["template"]
    labels = {key: value for key, value in template["metadata"]["labels"].items() if key != _HASH}
    old = deployment["metadata"].get("annotations") or {}
    new = replica_set["metadata"].get("annotations") or {}
    annotations = {
        **{key: value for key, value in old.items() if key in _KEPT},
        **{key: value for key, value in new.items() if key not in _KEPT},
    }
    return [
        {
            "op": "replace",
            "path": "/spec/template",
            "value": {**template, "metadata": {**template["metadata"], "labels": labels}},
        },
        {"op": "replace", "path": "/metadata/annotations", "value": annotations},
    ]
