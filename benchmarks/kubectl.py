"""Snapshots as large as `kubectl get … -A -o json` prints them: with all that no rule is about, indented.

A pod of a real cluster takes about ten times the text that decides about its place: images, variables, mounts, the
token's volume, what the API server fills in and what the kubelet reports. Reading it is most of reading a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from benchmarks.kubernetes_list import Json, kubernetes_object
from kinema_core.events import ClusterObject, Pod

_DEFAULTS: Final[Json] = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "restartPolicy": "Always",
    "securityContext": {"fsGroup": 1000, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "serviceAccount": "default",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
}
_WHILE_ANSWERING: Final = [
    {
        "effect": "NoExecute",
        "key": f"node.kubernetes.io/{what}",
        "operator": "Exists",
        "tolerationSeconds": 300,
    }
    for what in ("not-ready", "unreachable")
]
_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def printed(objects: Iterable[ClusterObject]) -> Iterator[bytes]:
    """The text of the snapshot, object by object.

    Raises:
        TypeError: an object of a kind that is in no instance.
    """
    yield b'{\n    "apiVersion": "v1",\n    "items": [\n        '
    for number, item in enumerate(objects):
        made = kubernetes_object(item)
        if isinstance(item, Pod):
            _fill(made, item)
        text = msgspec.json.format(msgspec.json.encode(made), indent=4).replace(b"\n", b"\n        ")
        yield (b",\n        " if number else b"") + text
    yield b'\n    ],\n    "kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n    }\n}\n'


def _fill(made: dict[str, Any], pod: Pod) -> None:
    """Add what admission and the kubelet add to a pod."""
    digest = sha256(pod.uid.encode()).hexdigest()
    token = f"kube-api-access-{digest[:5]}"
    spec, status = made["spec"], made["status"]
    for container in spec["containers"]:
        container.update(_container(token))
        container["resources"]["limits"] = {"memory": container["resources"]["requests"].get("memory", "1Gi")}
    spec.update(_DEFAULTS)
    spec["tolerations"] = [*spec.get("tolerations", ()), *_WHILE_ANSWERING]
    spec["volumes"] = [*spec.get("volumes", ()), _token_volume(token)]
    made["metadata"]["generateName"] = f"{pod.name.rpartition('-')[0]}-"
    made["metadata"]["resourceVersion"] = str(int(digest[:7], 16))
    if pod.node is None:
        return
    at = status["startTime"]
    status["conditions"] = [
        {"lastProbeTime": None, "lastTransitionTime": at, "observedGeneration": 1, "status": "True", "type": type_}
        for type_ in _CONDITIONS
    ]
    status.update(
        hostIP="10.0.0.1",
        podIP="10.1.0.1",
        podIPs=[{"ip": "10.1.0.1"}],
        qosClass="Burstable",
        containerStatuses=[_status(container, digest, at) for container in spec["containers"]],
    )


def _container(token: str) -> Json:
    probe = {"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}
    field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    return {
        "env": [
            {"name": "POD_NAME", "valueFrom": field},
            *({"name": f"SETTING_{index}", "value": f"a value of some length {index}"} for index in range(8)),
        ],
        "imagePullPolicy": "IfNotPresent",
        "livenessProbe": {**probe, "httpGet": {"path": "/live", "port": 8080, "scheme": "HTTP"}},
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "readinessProbe": {**probe, "httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": token, "readOnly": True}
        ],
    }


def _token_volume(token: str) -> Json:
    name = {"fieldPath": "metadata.namespace", "apiVersion": "v1"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
        {"downwardAPI": {"items": [{"fieldRef": name, "path": "namespace"}]}},
    ]
    return {"name": token, "projected": {"defaultMode": 420, "sources": sources}}


def _status(container: dict[str, Any], digest: str, at: str) -> Json:
    image = container["image"]
    return {
        "allocatedResources": container["resources"]["requests"],
        "containerID": f"containerd://{digest}",
        "image": f"docker.io/{image}",
        "imageID": f"docker.io/{image.partition(':')[0]}@sha256:{sha256(image.encode()).hexdigest()}",
        "lastState": {},
        "name": container["name"],
        "ready": True,
        "resources": container["resources"],
        "restartCount": 0,
        "started": True,
        "state": {"running": {"startedAt": at}},
    }
