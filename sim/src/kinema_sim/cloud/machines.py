"""Machine types of the cloud with their prices, and the node object that a machine registers."""

import csv
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources

from kinema_sim.engine.objects import Obj

GIB = 1024**3
MIB = 1024**2
ZONES = ("europe-west3-a", "europe-west3-b", "europe-west3-c")
PRICE_DATE = "2024-06-01"
PRICE_SOURCE = "GCE E2 on demand, europe-west3 (Kinema thesis, chapter 6)"
MAX_PODS = 110

_CPU_RESERVE = ((1, Fraction(6, 100)), (1, Fraction(1, 100)), (2, Fraction(5, 1000)), (None, Fraction(25, 10_000)))
_MEMORY_RESERVE = (
    (4, Fraction(25, 100)),
    (4, Fraction(20, 100)),
    (8, Fraction(10, 100)),
    (112, Fraction(6, 100)),
    (None, Fraction(2, 100)),
)
_EVICTION_THRESHOLD = 100 * MIB
_SMALL_MACHINE_RESERVE = 255 * MIB
NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


@dataclass(frozen=True)
class Offer:
    """A kind of node on sale in one zone.

    Attributes:
        machine_type: name of the machine type.
        zone: where.
        capacity_type: `on-demand` or `spot`.
        vcpus: processors.
        memory_bytes: memory of the machine.
        usd_micro: price per hour in micro-USD.
        watts: electrical power, an estimate.
    """

    machine_type: str
    zone: str
    capacity_type: str
    vcpus: int
    memory_bytes: int
    usd_micro: int
    watts: int

    @property
    def name(self) -> str:
        """Machine type, zone and capacity type in one word."""
        return f"{self.machine_type}/{self.zone}/{self.capacity_type}"


def _tiered(amount: Fraction, tiers: tuple[tuple[int | None, Fraction], ...]) -> Fraction:
    total = Fraction(0)
    for size, share in tiers:
        part = amount if size is None else min(amount, Fraction(size))
        total += part * share
        amount -= part
    return total


def allocatable_cpu_m(vcpus: int) -> int:
    """Give the millicores left for pods after the provider's reserve (GKE's formula, rounded down)."""
    return int((Fraction(vcpus) - _tiered(Fraction(vcpus), _CPU_RESERVE)) * 1000)


def allocatable_memory(memory_bytes: int) -> int:
    """Give the bytes left for pods after the provider's reserve and the eviction threshold, rounded down."""
    if memory_bytes < GIB:
        return max(0, memory_bytes - _SMALL_MACHINE_RESERVE - _EVICTION_THRESHOLD)
    gib = Fraction(memory_bytes, GIB)
    return int((gib - _tiered(gib, _MEMORY_RESERVE)) * GIB) - _EVICTION_THRESHOLD


def load_offers(zones: tuple[str, ...] = ZONES) -> tuple[Offer, ...]:
    """Read the price list that comes with the package: every machine type on demand in every zone."""
    text = resources.files("kinema_sim").joinpath("data/gke-e2-europe-west3.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        Offer(
            machine_type=row["machine_type"],
            zone=zone,
            capacity_type="on-demand",
            vcpus=int(row["vcpus"]),
            memory_bytes=int(row["memory_gib"]) * GIB,
            usd_micro=int(Fraction(row["usd_per_hour"]) * 1_000_000),
            watts=int(row["watts"]),
        )
        for row in rows
        for zone in zones
    )


def node_object(name: str, offer: Offer, *, labels: dict[str, str], taints: list[Obj], now: str) -> Obj:
    """Write the Node of a machine that has just registered and is not Ready yet."""
    standard = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": offer.machine_type,
        "topology.kubernetes.io/zone": offer.zone,
        "kinema.io/capacity-type": offer.capacity_type,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, **standard}, "annotations": {}},
        "spec": {
            "providerID": f"kinema-sim://{offer.zone}/{name}",
            "taints": [*taints, dict(NOT_READY_TAINT)],
        },
        "status": _status(name, offer, now),
    }


def _status(name: str, offer: Offer, now: str) -> Obj:
    pressures = [
        {"type": kind, "status": "False", "reason": reason, "message": message} for kind, reason, message in _PRESSURES
    ]
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "capacity": {"cpu": str(offer.vcpus), "memory": str(offer.memory_bytes), "pods": str(MAX_PODS)},
        "allocatable": {
            "cpu": f"{allocatable_cpu_m(offer.vcpus)}m",
            "memory": str(allocatable_memory(offer.memory_bytes)),
            "pods": str(MAX_PODS),
        },
        "conditions": [*({**entry, **times} for entry in pressures), ready_condition(now, ready=False)],
        "addresses": [{"type": "Hostname", "address": name}],
        "nodeInfo": {
            "machineID": name,
            "systemUUID": name,
            "bootID": name,
            "kernelVersion": "6.12.0",
            "kubeProxyVersion": "v1.36.3",
            "kubeletVersion": "v1.36.3",
            "operatingSystem": "linux",
            "architecture": "amd64",
            "osImage": "simulated",
            "containerRuntimeVersion": "simulated://1",
        },
    }


def ready_condition(now: str, *, ready: bool) -> Obj:
    """Write a node's Ready condition."""
    return {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "kubelet is posting ready status" if ready else "container runtime network not ready",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def make_ready(node: Obj, now: str) -> None:
    """Turn a cloned node Ready: the condition, and the taint that kept pods off."""
    conditions = [entry for entry in node["status"]["conditions"] if entry["type"] != "Ready"]
    node["status"]["conditions"] = [*conditions, ready_condition(now, ready=True)]
    taints = [taint for taint in node["spec"].get("taints") or () if taint["key"] != NOT_READY_TAINT["key"]]
    node["spec"].pop("taints", None)
    if taints:
        node["spec"]["taints"] = taints
