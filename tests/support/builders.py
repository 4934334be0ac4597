"""Builders of observed objects and three named clusters, for everybody's tests.

Amounts are short: CPU in millicores, memory in MiB. Names make uids (`uid-pod-shop-web-0`): two builds are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from kinema_core.events import (
    EMPTY,
    NO_RULES,
    Amounts,
    ClusterObject,
    DisruptionBudget,
    FrozenMap,
    Labels,
    Namespace,
    Node,
    Offer,
    Owner,
    PlacementRules,
    Pod,
    Quarantined,
    QuotaScope,
    ResourceQuota,
    Selector,
    Taint,
    Toleration,
    Workload,
    WorkloadKind,
)
from kinema_core.model.cluster import Cluster, from_objects
from kinema_core.model.match import parse_taint

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=2)
MIB = 2**20
GIB = 2**30


def labels(given: Mapping[str, str] | None = None) -> Labels:
    """A frozen map of labels or annotations."""
    return FrozenMap(given) if given else EMPTY


def amounts(cpu: int = 0, memory: int = 0, **more: int) -> Amounts:
    """Amounts of millicores and MiB, and any other resource by keyword."""
    return FrozenMap({"cpu": cpu, "memory": memory * MIB, **more})


def taint(text: str) -> Taint:
    """`key[=value]:effect`."""
    return parse_taint(text)


def toleration(key: str = "", value: str | None = None, effect: str = "") -> Toleration:
    """Tolerates the key (any value unless one is given)."""
    operator: Literal["Exists", "Equal"] = "Exists" if value is None else "Equal"
    return Toleration(key=key, operator=operator, value=value or "", effect=effect)


def selector(**wanted: str) -> Selector:
    """Selects by equality; nothing given selects everything."""
    return Selector(labels=labels(wanted))


def node(
    name: str,
    *,
    cpu: int = 4000,
    memory: int = 16 * 1024,
    pods: int = 110,
    machine: str | None = "m4",
    zone: str | None = "a",
    spot: bool = False,
    price: str | None = None,
    extra: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[str] = (),
    unschedulable: bool = False,
    ready: bool = True,
) -> Node:
    """A node with allocatable CPU (m) and memory (MiB); `price` is its USD-per-hour annotation."""
    given = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kinema.io/capacity-type": "spot" if spot else "on-demand",
        **({"node.kubernetes.io/instance-type": machine} if machine else {}),
        **({"topology.kubernetes.io/zone": zone} if zone else {}),
        **(labels or {}),
    }
    priced = {"kinema.io/usd-per-hour": price} if price is not None else {}
    return Node(
        name=name,
        uid=f"uid-node-{name}",
        labels=FrozenMap(given),
        annotations=FrozenMap({**priced, **(annotations or {})}),
        taints=tuple(taint(text) for text in taints),
        unschedulable=unschedulable,
        ready=ready,
        allocatable=amounts(cpu, memory, pods=pods, **(extra or {})),
        created=LONG_AGO,
    )


def owner_of(workload: Workload) -> Owner:
    """The reference by which a workload owns something."""
    return Owner(kind=workload.type, name=workload.name, uid=workload.uid)


def pod(
    name: str,
    *,
    node: str | None = None,
    namespace: str = "shop",
    owner: Owner | Workload | None = None,
    cpu: int = 100,
    memory: int = 128,
    extra: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    rules: PlacementRules = NO_RULES,
    **more: Any,
) -> Pod:
    """A pod: running and ready on `node`, or pending without one. `more` sets any other field."""
    bound = node is not None
    state: dict[str, Any] = {
        "phase": "Running" if bound else "Pending",
        "ready": bound,
        "unschedulable": not bound,
        "created": LONG_AGO,
        "started": LONG_AGO if bound else None,
    }
    return Pod(
        name=name,
        namespace=namespace,
        uid=f"uid-pod-{namespace}-{name}",
        node=node,
        owner=owner_of(owner) if isinstance(owner, Workload) else owner,
        labels=FrozenMap(labels or {}),
        annotations=FrozenMap(annotations or {}),
        requests=amounts(cpu, memory, pods=1, **(extra or {})),
        rules=rules,
        **{**state, **more},
    )


def workload(
    kind: WorkloadKind,
    name: str,
    *,
    replicas: int = 1,
    namespace: str = "shop",
    owner: Workload | Owner | None = None,
    cpu: int = 100,
    memory: int = 128,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    rules: PlacementRules = NO_RULES,
    **more: Any,
) -> Workload:
    """A controller whose pods carry the label `app=<name>` unless `labels` says otherwise; all its replicas ready."""
    mine = labels if labels is not None else {"app": name}
    state: dict[str, Any] = {
        "ready": replicas,
        "updated": replicas,
        "current": replicas,
        "generation": 1,
        "observed_generation": 1,
    }
    return Workload(
        name=name,
        namespace=namespace,
        uid=f"uid-{kind.lower()}-{namespace}-{name}",
        type=kind,
        owner=owner_of(owner) if isinstance(owner, Workload) else owner,
        annotations=FrozenMap(annotations or {}),
        labels=FrozenMap(mine),
        selector=Selector(labels=FrozenMap(mine)),
        replicas=replicas,
        template_labels=FrozenMap(mine),
        template_requests=amounts(cpu, memory, pods=1),
        template_rules=rules,
        **{**state, **more},
    )


def deployment(name: str, *, replicas: int = 1, **more: Any) -> Workload:
    """A Deployment."""
    return workload("Deployment", name, replicas=replicas, **more)


def replica_set(name: str, *, replicas: int = 1, owner: Workload | Owner | None = None, **more: Any) -> Workload:
    """A ReplicaSet, of a Deployment when `owner` is one."""
    return workload("ReplicaSet", name, replicas=replicas, owner=owner, **more)


def stateful_set(name: str, *, replicas: int = 1, **more: Any) -> Workload:
    """A StatefulSet."""
    return workload("StatefulSet", name, replicas=replicas, **more)


def daemon_set(name: str, *, replicas: int = 1, namespace: str = "kube-system", **more: Any) -> Workload:
    """A DaemonSet; its pods are built with `pod(..., owner=...)`."""
    return workload("DaemonSet", name, replicas=replicas, namespace=namespace, **more)


def deployed(
    name: str,
    on: Sequence[str | None],
    *,
    namespace: str = "shop",
    cpu: int = 100,
    memory: int = 128,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    pod_annotations: Mapping[str, str] | None = None,
    rules: PlacementRules = NO_RULES,
    max_surge: str = "25%",
    **more: Any,
) -> tuple[ClusterObject, ...]:
    """A Deployment, its ReplicaSet `<name>-rs` and a pod `<name>-<i>` for each place (None: pending).

    `annotations` go to the Deployment, `pod_annotations` and `more` to the pods.
    """
    mine = labels if labels is not None else {"app": name}
    shared: dict[str, Any] = {"namespace": namespace, "cpu": cpu, "memory": memory, "labels": mine, "rules": rules}
    ready = {"ready": sum(place is not None for place in on)}
    top = deployment(name, replicas=len(on), annotations=annotations, max_surge=max_surge, **shared, **ready)
    set_ = replica_set(f"{name}-rs", replicas=len(on), owner=top, **shared, **ready)
    pods = [
        pod(f"{name}-{index}", node=place, owner=set_, annotations=pod_annotations, **shared, **more)
        for index, place in enumerate(on)
    ]
    return (top, set_, *pods)


def stateful(
    name: str,
    on: Sequence[str | None],
    *,
    namespace: str = "shop",
    cpu: int = 100,
    memory: int = 128,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    pod_annotations: Mapping[str, str] | None = None,
    rules: PlacementRules = NO_RULES,
    **more: Any,
) -> tuple[ClusterObject, ...]:
    """A StatefulSet and a pod `<name>-<i>` for each place (None: pending)."""
    mine = labels if labels is not None else {"app": name}
    shared: dict[str, Any] = {"namespace": namespace, "cpu": cpu, "memory": memory, "labels": mine, "rules": rules}
    ready = {"ready": sum(place is not None for place in on)}
    top = stateful_set(name, replicas=len(on), annotations=annotations, **shared, **ready)
    pods = [
        pod(f"{name}-{index}", node=place, owner=top, annotations=pod_annotations, **shared, **more)
        for index, place in enumerate(on)
    ]
    return (top, *pods)


def on_every_node(
    name: str, nodes: Iterable[str], *, namespace: str = "kube-system", cpu: int = 50, memory: int = 64, **more: Any
) -> tuple[ClusterObject, ...]:
    """A DaemonSet and its pod `<name>-<node>` on each of the nodes."""
    names = list(nodes)
    set_ = daemon_set(name, replicas=len(names), namespace=namespace, cpu=cpu, memory=memory, **more)
    pods = [
        pod(f"{name}-{place}", node=place, namespace=namespace, owner=set_, cpu=cpu, memory=memory) for place in names
    ]
    return (set_, *pods)


def mirror(name: str, *, node: str, namespace: str = "kube-system", cpu: int = 100, memory: int = 0) -> Pod:
    """The mirror of a static pod, named `<name>-<node>`."""
    static = Owner(kind="Node", name=node, uid=f"uid-node-{node}")
    return pod(f"{name}-{node}", node=node, namespace=namespace, owner=static, mirror=True, cpu=cpu, memory=memory)


def budget(
    name: str,
    *,
    namespace: str = "shop",
    selects: Mapping[str, str] | None = None,
    min_available: str | None = None,
    max_unavailable: str | None = None,
    allowed: int = 1,
    **more: Any,
) -> DisruptionBudget:
    """A disruption budget over the pods with these labels (default `app=<name>`)."""
    return DisruptionBudget(
        name=name,
        namespace=namespace,
        uid=f"uid-pdb-{namespace}-{name}",
        selector=Selector(labels=FrozenMap(selects if selects is not None else {"app": name})),
        min_available=min_available,
        max_unavailable=max_unavailable,
        allowed=allowed,
        **more,
    )


def quota(
    name: str,
    *,
    hard: Mapping[str, int],
    used: Mapping[str, int] | None = None,
    namespace: str = "shop",
    scopes: Iterable[QuotaScope] = (),
) -> ResourceQuota:
    """A resource quota, of which nothing counts as used but what is said and what pods of the state take."""
    return ResourceQuota(
        name=name,
        namespace=namespace,
        uid=f"uid-quota-{namespace}-{name}",
        hard=FrozenMap(hard),
        used=FrozenMap(dict.fromkeys(hard, 0) if used is None else used),
        scopes=tuple(scopes),
    )


def namespace(name: str, *, labels: Mapping[str, str] | None = None, terminating: bool = False) -> Namespace:
    """A namespace."""
    return Namespace(name=name, uid=f"uid-namespace-{name}", labels=FrozenMap(labels or {}), terminating=terminating)


def unreadable(object_: str, *, node: str | None = None, namespace: str | None = None) -> Quarantined:
    """An object that could not be read, as `Pod shop/web-0`."""
    return Quarantined(object=object_, path="spec", reason="is no object", node=node, namespace=namespace)


def offer(
    machine: str = "m4",
    *,
    zone: str = "a",
    spot: bool = False,
    price: int = 170_000,
    cpu: int = 4000,
    memory: int = 16 * 1024,
    pods: int = 110,
    extra: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[str] = (),
    available: int | None = None,
    **more: Any,
) -> Offer:
    """An offer; `price` in micro-USD per hour, allocatable CPU in millicores and memory in MiB."""
    capacity_type: Literal["on-demand", "spot"] = "spot" if spot else "on-demand"
    given = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": machine,
        **({"topology.kubernetes.io/zone": zone} if zone != "-" else {}),
        "kinema.io/capacity-type": capacity_type,
        **(labels or {}),
    }
    room = amounts(cpu, memory, pods=pods, **(extra or {}))
    return Offer(
        **{
            "name": f"{machine}/{zone}/{capacity_type}",
            "machine_type": machine,
            "zone": zone,
            "capacity_type": capacity_type,
            "micro_usd_per_hour": price,
            "capacity": room,
            "allocatable": room,
            "labels": FrozenMap(given),
            "taints": tuple(taints),
            "available": available,
            **more,
        }
    )


def cluster(*objects: ClusterObject | Iterable[ClusterObject], version: int = 1) -> Cluster:
    """A cluster of objects and groups of objects."""
    flat: list[ClusterObject] = []
    for item in objects:
        flat.extend(item if isinstance(item, Iterable) else [item])
    return from_objects(flat, version)


def offers() -> tuple[Offer, ...]:
    """The machines on sale beside the named clusters: three sizes at 0.0425 USD per core and hour."""
    return (
        offer("m2", cpu=2000, memory=8 * 1024, price=85_000),
        offer("m4", cpu=4000, memory=16 * 1024, price=170_000),
        offer("m8", cpu=8000, memory=32 * 1024, price=340_000),
    )


def tiny() -> Cluster:
    """Two nodes of type m4 with three small pods of one Deployment: one node suffices."""
    return cluster(node("n1"), node("n2"), deployed("web", ["n1", "n1", "n2"], cpu=500, memory=512))


def fragmented() -> Cluster:
    """Six m4 nodes after a peak, a daemon set and three workloads spread thinly: 4.3 cores in use of 24."""
    names = [f"n{index}" for index in range(1, 7)]
    return cluster(
        [node(name) for name in names],
        on_every_node("logger", names),
        deployed("web", names, cpu=400, memory=512),
        deployed("cart", ["n1", "n3", "n5"], cpu=300, memory=1024),
        stateful("db", ["n2", "n4"], cpu=500, memory=2048),
    )


def full() -> Cluster:
    """Two m4 nodes packed to the last millicore, and a pending pod that needs a node of its own."""
    return cluster(
        node("n1"),
        node("n2"),
        deployed("web", ["n1", "n1", "n2", "n2"], cpu=2000, memory=4096),
        deployed("batch", [None], cpu=1500, memory=1024),
    )
