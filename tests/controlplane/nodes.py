"""Nodes that KWOK runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, Final

from tests.controlplane.access import Access, RefusedError
from tests.controlplane.flags import FAKE_NODE

_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}"

QUICK: Final = {
    f"pod-{stage}.stage.kwok.x-k8s.io/{part}": delay
    for stage, delay in (("create", "300ms"), ("ready", "1s"), ("delete", "300ms"))
    for part in ("delay", "jitter-delay")
}
"""Annotations of pods that start and end as quickly as those of a small Go program; without, KWOK takes 2 to 12 s."""


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: str = "110",
    zone: str = "zone-a",
    machine: str = "e2-standard-4",
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """A node as its kubelet would register it. Without the annotation that KWOK looks for it never becomes Ready."""
    region = zone.rsplit("-", 1)[0]
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "100Gi"}
    wellknown = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region,
        "node.kubernetes.io/instance-type": machine,
    }
    # KWOK serves the usage of all its nodes on one port: the path tells them apart.
    usage = {"metrics.k8s.io/resource-metrics-path": f"/metrics/nodes/{name}/metrics/resource"}
    annotations = {FAKE_NODE: "fake", **usage}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations, "labels": {**wellknown, **(labels or {})}},
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def add_nodes(access: Access, *nodes: Mapping[str, Any]) -> None:
    """Create nodes, and wait until they are Ready and pods may be put on them; raises RefusedError, TimeoutError."""
    for each in nodes:
        access.request("POST", "/api/v1/nodes", each)
    for each in nodes:
        access.until(f"/api/v1/nodes/{each['metadata']['name']}", _is_usable)


@contextmanager
def nodes_for_a_while(access: Access, *nodes: Mapping[str, Any]) -> Iterator[None]:
    """Nodes that are there within the block: others who share the control plane find none left over."""
    try:
        add_nodes(access, *nodes)
        yield
    finally:
        for each in nodes:
            with suppress(OSError, RefusedError):  # a test may have ended the server or deleted the node
                access.request("DELETE", f"/api/v1/nodes/{each['metadata']['name']}")


def fall_silent(access: Access, name: str) -> None:
    """Keep a node's kubelet from reporting, as if it were cut off: NotReady after `Options.node_silence_seconds`."""
    # Whoever holds the lease runs the node, and this holder does nothing.
    spec = {"holderIdentity": "nobody", "leaseDurationSeconds": 24 * 3600}
    access.request("PATCH", _LEASE.format(name), {"spec": spec}, content_type="application/merge-patch+json")


def speak_again(access: Access, name: str) -> None:
    """Let a silent node's kubelet report again, its pods too; Ready within seconds."""
    access.request("DELETE", _LEASE.format(name))
    access.until(f"/api/v1/nodes/{name}", _is_usable)
    # Pods of a node that is not Ready are marked so too. A kubelet would take that back, and end the pods that were
    # deleted in the meantime; KWOK does neither.
    for pod in access.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")["items"]:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            _end(access, path)
        elif pod["status"].get("phase") == "Running":
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            access.request("PATCH", f"{path}/status", ready, content_type="application/strategic-merge-patch+json")


def _end(access: Access, pod: str) -> None:
    """Delete a pod at once, if it is still there."""
    try:
        access.request("DELETE", pod, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    except RefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


def _is_usable(found: Any) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    taints = found.get("spec", {}).get("taints", [])
    return ready and not any(taint["key"].startswith("node.kubernetes.io/not-ready") for taint in taints)
