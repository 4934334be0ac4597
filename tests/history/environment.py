"""What is around the workloads of a random cluster, in terms that the simulated and the real one understand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

JSON = dict[str, Any]
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
CONSTRAINTS: Final[Mapping[str, tuple[JSON, ...]]] = MappingProxyType(
    {
        "default-constraints": (
            {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
            {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
        ),
        "hard-constraints": ({"maxSkew": 2, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"},),
    }
)


@dataclass(frozen=True)
class Write:
    """What another client does: a merge patch, or with `create` a new object."""

    second: float
    """After the beginning of the execution, in the time of the simulated cluster."""
    kind: str
    namespace: str
    name: str
    body: JSON
    part: str = ""
    """Subresource."""
    create: bool = False
    each: str = ""
    """`app`: every pod with this label. `ending`: of every namespace, those on their way out. `name` is empty then."""


@dataclass(frozen=True)
class Sidecar:
    """What an admission webhook and a RuntimeClass add to every new pod of the cluster's own namespaces."""

    cpu_m: int = 0
    memory_mi: int = 0
    preference: JSON | None = None
    """A preferred node affinity of its own, as heavy as any."""


@dataclass(frozen=True)
class Environment:
    """What is around the workloads of a random cluster."""

    features: tuple[str, ...] = ()
    scheduler: str = "default"
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """Labels that every node gets, `{}` being its name, or that none has (None)."""
    nodes: Mapping[str, JSON] = field(default_factory=dict)
    """Merge patches of single nodes by name, at the beginning."""
    sidecar: Sidecar = Sidecar()
    overhead: Mapping[str, str] = field(default_factory=dict)
    """Overhead of the RuntimeClass `sandboxed`."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """Requests of containers without any, by a LimitRange."""
    first: tuple[tuple[str, JSON], ...] = ()
    """Kinds and objects that are there before the workloads."""
    last: tuple[tuple[str, JSON], ...] = ()
    """Those that come when the workloads are at rest, such as quotas that leave just what is used."""
    writes: tuple[Write, ...] = ()
    others: frozenset[str] = frozenset()
    """Workloads (`Kind/namespace/name`) that others change: their pods come and go without a step."""


CALM: Final = Environment()


def completed(environment: Environment, pod: JSON) -> None:
    """Complete a new pod in place as LimitRange, RuntimeClass and the webhook of a simulated cluster do."""
    spec = pod["spec"]
    if pod["metadata"].get("namespace", "") == "kube-system":
        return
    for container in spec["containers"]:
        resources = container.setdefault("resources", {})
        if environment.requests and not resources.get("requests"):
            resources["requests"] = dict(environment.requests)
    if spec.get("runtimeClassName") == "sandboxed":
        spec["overhead"] = dict(environment.overhead)
    added = environment.sidecar
    if added.cpu_m:
        requests = {"cpu": f"{added.cpu_m}m", "memory": f"{added.memory_mi}Mi"}
        spec["containers"].append({"name": "proxy", "image": "example/proxy:1", "resources": {"requests": requests}})
    if added.preference is not None:
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(added.preference)


def labeled(environment: Environment, name: str, labels: JSON) -> None:
    """Give a node the labels that nodes of this environment have, in place."""
    for key, value in environment.labels.items():
        if value is None:
            labels.pop(key, None)
        else:
            labels[key] = value.format(name)


def price(environment: Environment, name: str, usd: float) -> float:
    """Return what plans know of a machine's price per hour: the owner's annotation, or nothing for an unknown type."""
    known = environment.nodes.get(name, {}).get("metadata", {})
    return float(known.get("annotations", {}).get("kinema.io/usd-per-hour", 0)) if "labels" in known else usd


def counted(item: JSON, pods: int) -> JSON:
    """Return a quota for so many more pods than there are, as its `+n` says; anything else as it is."""
    hard = (item.get("spec") or {}).get("hard") or {}
    if not str(hard.get("pods", "")).startswith("+"):
        return item
    return {**item, "spec": {"hard": {"pods": str(pods + int(hard["pods"]))}}}


def steps_of(write: Write, pods: Iterable[JSON], now: str) -> Iterator[Write]:
    """Yield the writes of single objects that a write is made of now."""
    if not write.each:
        yield write
        return
    for pod in pods:
        metadata = pod["metadata"]
        if write.each == "ending":
            if "deletionTimestamp" not in metadata or not metadata.get("finalizers"):
                continue
        elif (metadata.get("labels") or {}).get("app") != write.each or pod["status"].get("phase") != "Running":
            continue
        body = {"status": _restarted(pod, write.body["status"], now)} if write.part == "status" else write.body
        yield replace(write, namespace=metadata["namespace"], name=metadata["name"], body=body, each="")


def _restarted(pod: JSON, wanted: JSON, now: str) -> JSON:
    """Return a pod's status after its containers restarted so often, with these conditions."""
    changed = {one["type"]: {**one, "lastTransitionTime": now} for one in wanted["conditions"]}
    conditions = [one for one in pod["status"].get("conditions", ()) if one["type"] not in changed]
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": now, "finishedAt": now}}
    statuses = [
        {**one, "restartCount": wanted["restarts"], "lastState": ended}
        for one in pod["status"].get("containerStatuses", ())
    ]
    return {"conditions": [*conditions, *changed.values()], "containerStatuses": statuses}
