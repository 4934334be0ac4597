"""Nodes and pods as an API server stores them, written straight into etcd."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, TypeAlias

Json: TypeAlias = dict[str, object]
Entry: TypeAlias = tuple[str, Json]
"""Key in etcd, and the object."""

_BATCH: Final = 500
_WORKLOADS: Final = 3_000
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ZONES: Final = 3


class Writer:
    """Writes objects through etcd's HTTP gateway, hundreds per transaction."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v3/kv/txn"

    def put(self, entries: Iterable[Entry]) -> int:
        """Write all, holding few of them at a time; give the bytes of the objects."""
        size, left = 0, iter(entries)
        while batch := list(islice(left, _BATCH)):
            texts = [(key, json.dumps(value, separators=(",", ":")).encode()) for key, value in batch]
            size += sum(len(text) for _, text in texts)
            operations = [{"requestPut": {"key": _base64(key.encode()), "value": _base64(text)}} for key, text in texts]
            body = json.dumps({"success": operations}).encode()
            with urllib.request.urlopen(self._url, data=body, timeout=120) as answer:  # noqa: S310 - our etcd
                answer.read()
        return size


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def node(number: int) -> Entry:
    """A node of 32 cores and 128 GiB, as a kubelet reports it."""
    name = f"node-{number:05d}"
    amounts = {"cpu": "31850m", "memory": "125829120Ki", "pods": "110", "ephemeral-storage": "95Gi"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "e2-standard-32",
        "topology.kubernetes.io/zone": f"zone-{number % _ZONES}",
        "topology.kubernetes.io/region": "region",
    }
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    body: Json = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(name, "", labels),
        "spec": {"podCIDR": f"10.{number >> 8}.{number & 255}.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [_condition(kind, str(kind == "Ready")) for kind in kinds],
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": dict.fromkeys(("kernelVersion", "osImage", "kubeletVersion", "architecture"), "v1"),
            "images": [{"names": [f"example.com/image-{count}:1"], "sizeBytes": 10**8} for count in range(20)],
        },
    }
    return f"/registry/minions/{name}", body


def pod(number: int, nodes: int) -> Entry:
    """A running pod of one of some thousand Deployments, with all that an API server and a kubelet add to it."""
    workload = number % _WORKLOADS
    app, namespace = f"app-{workload}", f"team-{workload % 200}"
    name = f"{app}-5d9c7b6f4d-{number:06d}"
    labels = {"app": app, "pod-template-hash": "5d9c7b6f4d", "team": namespace, "tier": ("web", "batch")[workload % 2]}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name.rsplit("-", 1)[0], "uid": _uid(workload)}
    metadata = _metadata(name, namespace, labels) | {
        "generateName": f"{app}-5d9c7b6f4d-",
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        "annotations": {"prometheus.io/scrape": "true", "checksum/config": "0" * 64},
    }
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": _pod_spec(app, workload) | {"nodeName": f"node-{number % nodes:05d}"},
        "status": _pod_status(number),
    }
    return f"/registry/pods/{namespace}/{name}", body


def changed(number: int, nodes: int, round_: int) -> Entry:
    """The same pod after its containers have restarted once more."""
    key, body = pod(number, nodes)
    return key, body | {"status": _pod_status(number, restarts=round_ + 1)}


def _pod_spec(app: str, workload: int) -> Json:
    requests = {"cpu": f"{50 + workload % 40 * 10}m", "memory": f"{64 + workload % 50 * 16}Mi"}
    mounts = [
        {"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    ]
    sources: list[Json] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    containers = [
        {
            "name": name,
            "image": f"example.com/{app}/{name}:1.2.3",
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "env": [{"name": f"SETTING_{count}", "value": f"value of setting {count}"} for count in range(8)],
            "resources": {"requests": requests, "limits": requests},
            "volumeMounts": mounts,
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }
        for name in ("server", "proxy")
    ]
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    return {
        "volumes": [{"name": "kube-api-access", "projected": {"sources": sources, "defaultMode": 420}}],
        "containers": containers,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": app,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "schedulerName": "default-scheduler",
        "tolerations": tolerations,
        "priority": 0,
        "topologySpreadConstraints": [spread] if workload % 4 == 0 else [],
    }


def _pod_status(number: int, restarts: int = 0) -> Json:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    states = [
        {
            "name": name,
            "image": f"example.com/{name}:1.2.3",
            "imageID": "sha256:" + "0" * 64,
            "containerID": f"containerd://{number:064d}",
            "ready": True,
            "started": True,
            "restartCount": restarts,
            "state": {"running": {"startedAt": _time(number)}},
        }
        for name in ("server", "proxy")
    ]
    return {
        "phase": "Running",
        "conditions": [_condition(kind) for kind in kinds],
        "hostIP": "192.0.2.1",
        "podIP": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
        "startTime": _time(number),
        "containerStatuses": states,
        "qosClass": "Guaranteed",
    }


def _metadata(name: str, namespace: str, labels: dict[str, str]) -> Json:
    fields: Json = {f"f:{key}": {} for key in labels}
    fields |= {f"f:field{count}": {".": {}, "f:part": {}} for count in range(40)}
    managed = {
        "manager": "kubelet",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _time(0),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": fields},
    }
    where = {"namespace": namespace} if namespace else {}
    number = int(name.rsplit("-", 1)[1])
    return {
        "name": name,
        **where,
        "uid": _uid(number),
        "creationTimestamp": _time(number),
        "labels": labels,
        "managedFields": [managed],
    }


def _condition(kind: str, status: str = "True") -> Json:
    return {"type": kind, "status": status, "lastTransitionTime": _time(0), "reason": "Stated"}


def _uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def _time(number: int) -> str:
    return (_BEGIN + timedelta(seconds=number % 86_400)).strftime("%Y-%m-%dT%H:%M:%SZ")
