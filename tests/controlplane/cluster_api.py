"""The core controllers of the real Cluster API, with their webhooks, on the tests' control plane, which manages itself.

What a cloud does is played: for each machine that Cluster API asks of its infrastructure, a thread registers a node
that KWOK runs. Built from the Go modules pinned in `go/cluster-api` when first wanted, some minutes.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.build import build_module, cluster_api
from tests.controlplane.nodes import node
from tests.controlplane.plane import ControlPlane, is_healthy
from tests.controlplane.server import Server

from kinema_cli.local.nats_server import free_port
from kinema_core.events import Offer

NAMESPACE: Final = "fleet"
CLUSTER: Final = "shop"
CORE: Final = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}"
DEPLOYMENTS: Final = f"{CORE}/machinedeployments"
MACHINES: Final = f"{CORE}/machines"
_GROUP: Final = "infrastructure.cluster.x-k8s.io"
_INFRASTRUCTURE: Final = f"/apis/{_GROUP}/v1beta2/namespaces/{NAMESPACE}"
_PLAYED: Final = f"{_INFRASTRUCTURE}/kwokmachines"
_KINDS: Final = ("KwokCluster", "KwokControlPlane", "KwokMachineTemplate", "KwokMachine")
_MERGE: Final = "application/merge-patch+json"
_LOOK_SECONDS: Final = 0.2
_AMOUNTS: Final = ("cpu", "memory", "pods")
_LABELS: Final = "capacity.cluster-autoscaler.kubernetes.io/labels"
_FINALIZER: Final = f"{_GROUP}/played"
"""On machines that are paid for: the cloud ends them first."""
_VERSION: Final = "v1.36.3"
"""Of the MachineDeployments; where a node states another one, or they state none, Cluster API never ends a rollout."""
_UNINITIALIZED: Final = {"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}
"""Taint with which nodes register; Cluster API removes it once it knows their Machines."""


@dataclass
class Cloud:
    """The cloud that is played: machines by their order, and whether it has any left."""

    access: Access
    refusal: str = ""
    """What it answers to every further order; empty: it has machines."""
    silent: bool = False
    """Whether it leaves orders alone."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def paid(self) -> list[str]:
        """Names of the machines that are paid for, sorted: those of their nodes."""
        found = self.access.request("GET", _PLAYED)["items"]
        return sorted(str(one["metadata"]["name"]) for one in found if "providerID" in one["spec"])

    def run(self) -> None:
        """Do what is asked for until `end`."""
        while not self._ended.wait(_LOOK_SECONDS):
            with suppress(RefusedError, OSError):  # written by Cluster API in between, or the API server is down
                for one in self.access.request("GET", _PLAYED)["items"]:
                    self._answer(one)

    def end(self) -> None:
        """Let `run` return."""
        self._ended.set()

    def _answer(self, machine: dict[str, Any]) -> None:
        name, version = machine["metadata"]["name"], machine["metadata"]["resourceVersion"]
        path = f"{_PLAYED}/{name}"
        if machine["metadata"].get("deletionTimestamp"):
            self._patch(path, {"metadata": {"finalizers": None}})
            return
        if self.silent:
            return
        if "providerID" not in machine["spec"]:
            if self.refusal:
                self._refuse(machine, path)
                return
            metadata = {"resourceVersion": version, "finalizers": [_FINALIZER]}
            machine = self._patch(path, {"metadata": metadata, "spec": {"providerID": f"kwok://{name}"}})
        if not (machine.get("status") or {}).get("initialization"):
            made = node(name, **machine["spec"]["node"], taints=[_UNINITIALIZED])
            made["spec"]["providerID"] = f"kwok://{name}"
            made["status"]["nodeInfo"] = {"kubeletVersion": _VERSION}  # else KWOK states its own version
            self.access.ensure("/api/v1/nodes", made)
            provisioned = {"status": {"initialization": {"provisioned": True}, "conditions": []}}
            self._patch(f"{path}/status", provisioned)

    def _refuse(self, machine: dict[str, Any], path: str) -> None:
        since = machine["metadata"]["creationTimestamp"]
        ready = {"type": "Ready", "status": "False", "reason": "CreateFailed", "message": self.refusal}
        status = {"conditions": [{**ready, "lastTransitionTime": since}]}
        if (machine.get("status") or {}).get("conditions") != status["conditions"]:
            self._patch(f"{path}/status", {"status": status})

    def _patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        patched: dict[str, Any] = self.access.request("PATCH", path, body, content_type=_MERGE)
        return patched


@dataclass(frozen=True)
class ClusterApi:
    """The controllers, and the cloud behind them."""

    server: Server
    cloud: Cloud


@contextmanager
def running_cluster_api(plane: ControlPlane, folder: Path) -> Iterator[ClusterApi]:
    """Cluster API within the block, with one Cluster: the control plane itself.

    Raises:
        BuildError: it cannot be built. ServerError: it does not start. CalledProcessError: kubectl fails.
    """
    programs = build_module(cluster_api())
    folder.mkdir(parents=True, exist_ok=True)
    access, config = plane.admin, plane.admin.write_kubeconfig(folder / "cluster-api.kubeconfig")
    for kind in _KINDS:
        access.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition(kind))
    plane.define(programs / "cluster-api-crds")
    webhooks, health = free_port(), free_port()
    command = [
        "env",
        f"KUBECONFIG={config}",
        str(programs / "cluster-api"),
        f"--health-addr=127.0.0.1:{health}",
        f"--diagnostics-address=127.0.0.1:{free_port()}",
        "--insecure-diagnostics",
        f"--webhook-port={webhooks}",
        f"--webhook-cert-dir={plane.folder}",
        "--webhook-cert-name=server.crt",
        "--webhook-key-name=server.key",
    ]
    ready = partial(is_healthy, f"http://127.0.0.1:{health}/readyz", access)
    server = Server("cluster-api", command, folder=folder, is_ready=ready)
    cloud = Cloud(access)
    thread = threading.Thread(target=cloud.run, daemon=True)
    try:
        server.start()
        _serve_webhooks(plane, programs / "cluster-api-webhooks.yaml", webhooks)
        _make_cluster(access, config)
        thread.start()
        yield ClusterApi(server, cloud)
    finally:
        cloud.end()
        server.kill()


def add_deployment(
    access: Access,
    name: str,
    offer: Offer,
    *,
    replicas: int = 0,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Create a MachineDeployment whose machines are of an offer; its annotation says so while it has none."""
    amounts = {key: f"{offer.allocatable[key]}m" if key == "cpu" else str(offer.allocatable[key]) for key in _AMOUNTS}
    made = {**amounts, "zone": offer.zone, "machine": offer.machine_type}
    template = {"apiVersion": f"{_GROUP}/v1beta2", "kind": "KwokMachineTemplate", "metadata": {"name": name}}
    access.request(
        "POST", f"{_INFRASTRUCTURE}/kwokmachinetemplates", {**template, "spec": {"template": {"spec": {"node": made}}}}
    )
    told = f"node.kubernetes.io/instance-type={offer.machine_type},topology.kubernetes.io/zone={offer.zone}"
    spec = {
        "clusterName": CLUSTER,
        "version": _VERSION,
        "bootstrap": {"dataSecretName": "none"},
        "infrastructureRef": {"apiGroup": _GROUP, "kind": "KwokMachineTemplate", "name": name},
    }
    body = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {"name": name, "annotations": {_LABELS: told, **(annotations or {})}},
        "spec": {"clusterName": CLUSTER, "replicas": replicas, "selector": {}, "template": {"spec": spec}},
    }
    access.request("POST", DEPLOYMENTS, body)


def scale(access: Access, name: str, replicas: int, annotations: Mapping[str, str | None] | None = None) -> None:
    """Scale a MachineDeployment as its owner does, and annotate it (None: an annotation goes)."""
    body = {"spec": {"replicas": replicas}, "metadata": {"annotations": dict(annotations or {})}}
    access.request("PATCH", f"{DEPLOYMENTS}/{name}", body, content_type=_MERGE)


def await_nodes(access: Access, number: int) -> list[str]:
    """Wait until there are so many nodes, and pods may be put on all of them; give their names, sorted."""

    def there(found: Any) -> bool:
        return len(found["items"]) == number and all(map(is_usable, found["items"]))

    return sorted(str(one["metadata"]["name"]) for one in access.until("/api/v1/nodes", there)["items"])


def is_usable(found: Mapping[str, Any]) -> bool:
    """Whether a node is Ready and Cluster API has taken its own taint away."""
    return _is_true(found, "Ready") and not found["spec"].get("taints")


def remove_deployments(access: Access) -> None:
    """Delete all MachineDeployments, and wait until their Machines are gone."""
    for one in access.request("GET", DEPLOYMENTS)["items"]:
        name = one["metadata"]["name"]
        access.request("DELETE", f"{DEPLOYMENTS}/{name}")
        access.request("DELETE", f"{_INFRASTRUCTURE}/kwokmachinetemplates/{name}")
    for path in (MACHINES, DEPLOYMENTS):
        access.until(path, lambda found: not found["items"])


def _definition(kind: str) -> dict[str, Any]:
    """Return a custom resource that keeps the contract of Cluster API's infrastructure, `v1beta2`."""
    plural = f"{kind.lower()}s"
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}}
    version = {"name": "v1beta2", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}", "labels": {"cluster.x-k8s.io/v1beta2": "v1beta2"}},
        "spec": {
            "group": _GROUP,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _serve_webhooks(plane: ControlPlane, manifests: Path, port: int) -> None:
    """Let the API server ask the controllers' webhooks, as their own installation does by a Service."""
    authority = base64.b64encode(plane.admin.authority.read_bytes()).decode()
    for configuration in filter(None, yaml.safe_load_all(manifests.read_text())):
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
        kind = configuration["kind"]
        plane.admin.request("POST", f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s", configuration)


def _make_cluster(access: Access, kubeconfig: Path) -> None:
    """Make the Cluster: what made its control plane is played, how it is reached stands in a Secret."""
    access.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    secrets: Sequence[tuple[str, dict[str, str]]] = (
        (f"{CLUSTER}-kubeconfig", {"value": base64.b64encode(kubeconfig.read_bytes()).decode()}),
        ("none", {"value": ""}),  # bootstrap data, which nodes of KWOK do without
    )
    for name, data in secrets:
        metadata = {"name": name, "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER}}
        body = {"metadata": metadata, "type": "cluster.x-k8s.io/secret", "data": data}
        access.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", body)
    references = {}
    managed = {"externalManagedControlPlane": True}  # else Cluster API keeps nodes until it sees one of these
    for kind, which, state, more in (
        ("KwokCluster", "infrastructureRef", "provisioned", {}),
        ("KwokControlPlane", "controlPlaneRef", "controlPlaneInitialized", managed),
    ):
        path = f"{_INFRASTRUCTURE}/{kind.lower()}s"
        body = {"apiVersion": f"{_GROUP}/v1beta2", "kind": kind, "metadata": {"name": CLUSTER}, "spec": {}}
        access.request("POST", path, body)
        status = {"status": {"initialization": {state: True}, **more}}
        access.request("PATCH", f"{path}/{CLUSTER}/status", status, content_type=_MERGE)
        references[which] = {"apiGroup": _GROUP, "kind": kind, "name": CLUSTER}
    host, _, port = access.url.removeprefix("https://").partition(":")
    spec = {"controlPlaneEndpoint": {"host": host, "port": int(port)}, **references}
    cluster = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": CLUSTER}}
    access.request("POST", f"{CORE}/clusters", {**cluster, "spec": spec})
    access.until(f"{CORE}/clusters/{CLUSTER}", lambda found: _is_true(found, "ControlPlaneInitialized"))


def _is_true(found: Mapping[str, Any], kind: str) -> bool:
    conditions = found.get("status", {}).get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)
