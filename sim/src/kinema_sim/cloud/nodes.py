"""The node object that a machine registers."""

from kinema_sim.cloud.offers import MAX_PODS, Offer, allocatable_cpu_m, allocatable_memory
from kinema_sim.engine.objects import Obj

NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
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
