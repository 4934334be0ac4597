"""The real Karpenter on the tests' control plane: its own provider makes KWOK nodes of the e2 types.

Built from the Go modules pinned in `tests/controlplane/go/karpenter` when first wanted, some minutes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.controlplane.build import build_module, karpenter
from tests.controlplane.plane import ControlPlane, is_healthy
from tests.controlplane.server import Server

from benchmarks.clusters import ZONE
from kinema_cli.local.nats_server import free_port
from kinema_core.events import Offer

POOL: Final = "/apis/karpenter.sh/v1/nodepools/all"
_CLASS: Final = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "usual"}
_CAPACITY: Final = "karpenter.sh/capacity-type"
OVERHEAD: Final[Mapping[str, int]] = {"cpu": 100, "memory": 10 * 2**20}
"""Amounts that its provider takes off a type's resources: millicores and bytes."""


@contextmanager
def running_karpenter(plane: ControlPlane, offers: Sequence[Offer], folder: Path) -> Iterator[Server]:
    """Karpenter within the block: it buys for pods that wait, and leaves nodes alone until `consolidate`.

    Raises:
        BuildError: it cannot be built. ServerError: it does not start. CalledProcessError: kubectl fails.
    """
    programs = build_module(karpenter())
    folder.mkdir(parents=True, exist_ok=True)
    config = plane.admin.write_kubeconfig(folder / "karpenter.kubeconfig")
    types = folder / "instance-types.json"
    types.write_text(json.dumps(list(instance_types(offers))))
    plane.define(programs / "crds", programs / "kwok-crds")
    kind = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": _CLASS["kind"]}
    plane.admin.apply(f"/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses/{_CLASS['name']}", kind, spec={})
    _write_pool(plane, budget="0")
    health = free_port()
    settings = {
        "KUBECONFIG": str(config),
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "HEALTH_PROBE_PORT": str(health),
        "METRICS_PORT": str(free_port()),
        "DISABLE_LEADER_ELECTION": "true",
        "SYSTEM_NAMESPACE": "kube-system",
    }
    command = ["env", *(f"{name}={value}" for name, value in settings.items()), str(programs / "karpenter")]
    ready = partial(is_healthy, f"http://127.0.0.1:{health}/readyz", plane.admin)
    with Server("karpenter", command, folder=folder, is_ready=ready) as server:
        yield server


def consolidate(plane: ControlPlane) -> None:
    """Let it take away and replace as many nodes as it likes at once."""
    _write_pool(plane, budget="100%")


def _write_pool(plane: ControlPlane, *, budget: str) -> None:
    """One pool of all types. `budget`: how many nodes may be disrupted at once."""
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "0s",
        "budgets": [{"nodes": budget}],
    }
    on_demand = {"key": _CAPACITY, "operator": "In", "values": ["on-demand"]}
    template = {"spec": {"nodeClassRef": _CLASS, "requirements": [on_demand], "expireAfter": "Never"}}
    spec = {"template": template, "disruption": disruption}
    plane.admin.apply(POOL, {"apiVersion": "karpenter.sh/v1", "kind": "NodePool"}, spec=spec)


def instance_types(offers: Sequence[Offer]) -> Iterator[dict[str, Any]]:
    """The offers as its provider reads them: a new node has for pods what the offer has."""
    by_type: defaultdict[str, list[Offer]] = defaultdict(list)
    for offer in offers:
        by_type[offer.machine_type].append(offer)
    for name, sold in sorted(by_type.items()):
        amounts = {key: amount + OVERHEAD.get(key, 0) for key, amount in sold[0].allocatable.items()}
        units = {key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in amounts.items()}
        offerings = [
            {
                "Price": offer.micro_usd_per_hour / 1e6,
                "Available": True,
                "Requirements": [
                    {"key": _CAPACITY, "operator": "In", "values": [offer.capacity_type]},
                    {"key": ZONE, "operator": "In", "values": [offer.zone]},
                ],
            }
            for offer in sold
        ]
        yield {
            "name": name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": units,
            "offerings": offerings,
        }
