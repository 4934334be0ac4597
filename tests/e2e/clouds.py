"""Clouds beside a control plane, for whole pipelines: the real Karpenter, the real Cluster API, and the fake GKE."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.karpenter import POOL, running_karpenter
from tests.controlplane import cluster_api
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane
from tests.e2e.pipeline_run import catalog
from tests.e2e.shop import ZONES

from kinema_core.events import Offer
from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster
from kinema_core.runtime import starter
from kinema_rescheduler.providers.karpenter import NODE_CLAIMS, claim_object

_SPEED: Final = 10
"""Seconds of the fake GKE in one of ours: a node pool takes two of ours, a machine three to six."""


@dataclass(frozen=True)
class Cloud:
    """A cloud beside a control plane."""

    provider: Mapping[str, object]
    """Setting of the rescheduler."""
    paid: Callable[[], list[str]]
    """Names of the nodes whose machines are paid for, sorted; of an order without a node, its own name."""

    @property
    def kind(self) -> str:
        """Name of the provider."""
        return str(self.provider["kind"])


@contextmanager
def real_karpenter(plane: ControlPlane, folder: Path) -> Iterator[Cloud]:
    """The real Karpenter with machines of the simulator's catalog. It leaves the nodes that it has bought alone."""
    with running_karpenter(plane, _offers(folder), folder / "karpenter"):

        def paid() -> list[str]:
            claims = plane.admin.request("GET", NODE_CLAIMS)["items"]
            return sorted(claim.get("status", {}).get("nodeName", claim["metadata"]["name"]) for claim in claims)

        yield Cloud({"kind": "karpenter", "node_pool": "all", "catalog": str(catalog(folder))}, paid)


@contextmanager
def real_cluster_api(plane: ControlPlane, folder: Path, sold: Sequence[str]) -> Iterator[Cloud]:
    """The real Cluster API with an empty MachineDeployment for each machine type that is `sold`, and each zone."""
    with cluster_api.running_cluster_api(plane, folder / "cluster-api") as found:
        for offer in _offers(folder, sold):
            cluster_api.add_deployment(plane.admin, _deployment(offer.machine_type, offer.zone), offer)
        places = {"namespace": cluster_api.NAMESPACE, "cluster": cluster_api.CLUSTER}
        prices = str(catalog(folder / "prices", sold))
        yield Cloud({"kind": "cluster-api", "catalog": prices, **places}, found.cloud.paid)


def raise_deployments(access: Access, machine: str, count: int) -> None:
    """Let the owner of MachineDeployments raise those of one machine type, zone after zone, and wait for the nodes."""
    there = len(access.request("GET", "/api/v1/nodes")["items"])
    for number in range(count):
        name = _deployment(machine, ZONES[number % len(ZONES)])
        before = access.request("GET", f"{cluster_api.DEPLOYMENTS}/{name}")["spec"]["replicas"]
        cluster_api.scale(access, name, before + 1)
    cluster_api.await_nodes(access, there + count)


def _deployment(machine: str, zone: str) -> str:
    return f"{machine}-{zone}"


def _offers(folder: Path, sold: Sequence[str] = ()) -> tuple[Offer, ...]:
    rows = parse_catalog(catalog(folder, sold).read_text())
    return offers_from([replace(row, zone=zone) for row in rows for zone in ZONES], Cluster())


def order_claims(access: Access, folder: Path, machine: str, names: Sequence[str]) -> None:
    """Order nodes of one machine type as an earlier plan of Kinema has, over all zones, and wait until they are Ready.

    `folder` is where the prices are.
    """
    pool = access.request("GET", POOL)
    sold = [offer for offer in _offers(folder) if offer.machine_type == machine]
    for number, name in enumerate(names):
        access.request("POST", NODE_CLAIMS, claim_object(name, sold[number % len(sold)], pool))

    def ready(found: Mapping[str, Sequence[Mapping[str, object]]]) -> bool:
        return len(found["items"]) >= len(names) and all(map(_initialized, found["items"]))

    access.until(NODE_CLAIMS, ready)


def _initialized(claim: Mapping[str, object]) -> bool:
    status = claim.get("status")
    conditions = status.get("conditions", ()) if isinstance(status, dict) else ()
    return any(one["type"] == "Initialized" and one["status"] == "True" for one in conditions)


@contextmanager
def fake_gke(plane: ControlPlane, folder: Path, sold: Sequence[str] = ()) -> Iterator[Cloud]:
    """The fake GKE, whose machines are nodes that KWOK runs on the control plane; those that are there are its own.

    `sold` are the machine types on sale; none named: all.
    """
    config = plane.admin.write_kubeconfig(folder / "gke.kubeconfig")
    command = [sys.executable, "-m", "kinema_sim", "--nodes-of", str(config), "--speed", str(_SPEED), starter.FLAG]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as fake:
        try:
            assert fake.stdout is not None
            url = json.loads(fake.stdout.readline())["url"]

            def paid() -> list[str]:
                with urllib.request.urlopen(f"{url}/cloud/v1/nodes", timeout=10) as answer:
                    return sorted(machine["name"] for machine in json.load(answer))

            places = {"project": "shop", "location": "europe-west3", "cluster": "prod", "token_url": ""}
            urls = {"container_url": "container", "compute_url": "compute/v1", "resource_manager_url": "crm"}
            addresses = {name: f"{url}/gke/{path}" for name, path in urls.items()}
            yield Cloud({"kind": "gke", "catalog": str(catalog(folder / "gke", sold)), **places, **addresses}, paid)
        finally:
            fake.terminate()
