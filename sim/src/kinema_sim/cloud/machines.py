"""Machine types of the cloud with their prices, and the node object that a machine registers."""

from dataclasses import dataclass
from functools import cached_property
from importlib import resources

from kinema_core.model.catalog import gke_allocatable, parse_catalog
from kinema_core.model.match import parse_taints
from kinema_sim.engine.objects import Obj

GIB = 1024**3
MIB = 1024**2
ZONES = ("europe-west3-a", "europe-west3-b", "europe-west3-c")
PRICE_DATE = "2024-06-01"
PRICE_SOURCE = "GCE E2 on demand, europe-west3 (Kinema thesis, chapter 6)"
MAX_PODS = 110

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
        reserved: whether the provider keeps a share of CPU and memory.
        measured: millicores and bytes for pods, where no formula says.
        labels: of its nodes, beside those that every node has.
        taints: of its nodes, as `key=value:NoSchedule`.
    """

    machine_type: str
    zone: str
    capacity_type: str
    vcpus: int
    memory_bytes: int
    usd_micro: int
    watts: int
    reserved: bool = True
    measured: tuple[int, int] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Machine type, zone and capacity type in one word."""
        return f"{self.machine_type}/{self.zone}/{self.capacity_type}"

    @cached_property
    def allocatable(self) -> tuple[int, int]:
        """Millicores and bytes left for pods after the provider's reserve."""
        if self.measured is not None:
            return self.measured
        if not self.reserved:
            return self.vcpus * 1000, self.memory_bytes
        return gke_allocatable(self.vcpus, self.memory_bytes)


def load_offers(zones: tuple[str, ...] = ZONES) -> tuple[Offer, ...]:
    """Read the price list that comes with the package: every machine type on demand in every zone."""
    text = resources.files("kinema_sim").joinpath("data/gke-e2-europe-west3.csv").read_text(encoding="utf-8")
    return tuple(
        Offer(
            machine_type=row.machine_type,
            zone=zone,
            capacity_type="on-demand",
            vcpus=int(row.vcpus),
            memory_bytes=row.memory,
            usd_micro=row.micro_usd_per_hour,
            watts=int(row.watts or 0),
        )
        for row in parse_catalog(text)
        for zone in zones
    )


def node_object(name: str, offer: Offer, *, labels: dict[str, str], taints: list[Obj], now: str) -> Obj:
    """Write the Node of a machine that has just registered and is not Ready yet."""
    standard = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": offer.machine_type,
        "topology.kubernetes.io/zone": offer.zone,
        "kinema.io/capacity-type": offer.capacity_type,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**dict(offer.labels), **labels, **standard}, "annotations": {}},
        "spec": {
            "providerID": f"kinema-sim://{offer.zone}/{name}",
            "taints": [*_with_own(taints, offer), dict(NOT_READY_TAINT)],
        },
        "status": _status(name, offer, now),
    }


def _with_own(taints: list[Obj], offer: Offer) -> list[Obj]:
    """Return the taints with those of the offer that are not among them, as a provider sets them by itself."""
    own = [{"key": one.key, "value": one.value, "effect": one.effect} for one in parse_taints(offer.taints)]
    there = {(one["key"], one["effect"]) for one in taints}
    return [*taints, *(one for one in own if (one["key"], one["effect"]) not in there)]


def _status(name: str, offer: Offer, now: str) -> Obj:
    pressures = [
        {"type": kind, "status": "False", "reason": reason, "message": message} for kind, reason, message in _PRESSURES
    ]
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "capacity": {"cpu": str(offer.vcpus), "memory": str(offer.memory_bytes), "pods": str(MAX_PODS)},
        "allocatable": {
            "cpu": f"{offer.allocatable[0]}m",
            "memory": str(offer.allocatable[1]),
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
