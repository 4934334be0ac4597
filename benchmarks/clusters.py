"""Observed objects for benchmarks: what a cluster of given pods on given machines looks like to every service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from benchmarks.assemble import PodClass, Running
from benchmarks.machine_types import ZONES, MachineType
from kinema_core.events import (
    EMPTY,
    NO_RULES,
    Amounts,
    ClusterObject,
    DisruptionBudget,
    FrozenMap,
    Labels,
    Node,
    NodeTerm,
    Offer,
    Owner,
    PlacementRules,
    Pod,
    PodTerm,
    Requirement,
    Selector,
    Workload,
)
from kinema_core.model.cluster import Cluster, from_objects
from kinema_optimizer.problem.instance import UNLIMITED

NOW: Final = datetime(2026, 1, 3, tzinfo=UTC)
CREATED: Final = NOW - timedelta(days=2)
ZONE: Final = "topology.kubernetes.io/zone"
TYPE: Final = "node.kubernetes.io/instance-type"
HOSTNAME: Final = "kubernetes.io/hostname"
CAPACITY: Final = "kinema.io/capacity-type"
LABEL: Final = "bench.kinema.io/machine"
GPU: Final = "example.com/gpu-milli"
NAMESPACE: Final = "load"
SURGE: Final = FrozenMap({"kinema.io/strategy": "surge"})
"""Annotation that lets the only pod of a Deployment move, too."""
_MANY: Final = 10_000
"""Pods per node where the problem does not count them."""
_SYSTEM: Final = {"os": "linux", "arch": "amd64"}
"""Labels of every node, without their domain."""


@dataclass(frozen=True)
class Deployed:
    """A Deployment and where its pods run; None: they wait."""

    name: str
    requests: Amounts
    on: tuple[str | None, ...]
    rules: PlacementRules = NO_RULES
    annotations: Labels = EMPTY
    pod_annotations: Mapping[int, Labels] = field(default_factory=dict)
    """By number of the pod."""
    budget: str | None = None
    """`maxUnavailable` of its disruption budget."""

    def objects(self) -> list[ClusterObject]:
        """The Deployment, its replica set, its pods, and its budget."""
        labels = FrozenMap({"app": self.name})
        running = sum(place is not None for place in self.on)
        top, set_ = (self._workload(kind, labels, running) for kind in ("Deployment", "ReplicaSet"))
        pods: list[ClusterObject] = [
            Pod(
                name=f"{self.name}-5d4f-{number:05d}",
                namespace=NAMESPACE,
                uid=f"p-{self.name}-{number:05d}",
                phase="Running" if place else "Pending",
                node=place,
                owner=Owner(kind="ReplicaSet", name=set_.name, uid=set_.uid),
                labels=labels,
                annotations=self.pod_annotations.get(number, EMPTY),
                requests=self.requests,
                rules=self.rules,
                ready=place is not None,
                unschedulable=place is None,
                created=CREATED,
                started=CREATED if place else None,
            )
            for number, place in enumerate(self.on)
        ]
        return [top, set_, *pods, *self._budgets(labels, running)]

    def _workload(self, kind: str, labels: Labels, running: int) -> Workload:
        top = kind == "Deployment"
        owner = None if top else Owner(kind="Deployment", name=self.name, uid=f"d-{self.name}")
        return Workload(
            type="Deployment" if top else "ReplicaSet",
            name=self.name if top else f"{self.name}-5d4f",
            namespace=NAMESPACE,
            uid=f"{'d' if top else 'r'}-{self.name}",
            owner=owner,
            labels=labels,
            annotations=self.annotations if top else EMPTY,
            selector=Selector(labels=labels),
            replicas=len(self.on),
            ready=running,
            updated=running if top else 0,
            current=len(self.on),
            generation=1,
            observed_generation=1,
            template_labels=labels,
            template_requests=self.requests,
            template_rules=self.rules,
        )

    def _budgets(self, labels: Labels, running: int) -> list[ClusterObject]:
        if self.budget is None:
            return []
        allowed = int(self.budget)
        return [
            DisruptionBudget(
                name=self.name,
                namespace=NAMESPACE,
                uid=f"b-{self.name}",
                selector=Selector(labels=labels),
                max_unavailable=self.budget,
                allowed=allowed,
                expected=len(self.on),
                desired_healthy=max(0, len(self.on) - allowed),
                healthy=running,
            )
        ]


def node_of(name: str, offer: Offer) -> Node:
    """A ready node of an offer."""
    labels = {HOSTNAME: name, **offer.labels}
    return Node(
        name=name,
        uid=f"n-{name}",
        labels=FrozenMap(labels),
        ready=True,
        allocatable=offer.allocatable,
        created=CREATED,
    )


def offer_of(machine: MachineType, resources: Sequence[str], zone: str) -> Offer:
    """A machine type on sale in a zone, all that it has for pods."""
    named = zip(resources, machine.amounts, strict=True)
    given = {GPU if name == "gpu" else name: amount for name, amount in named if amount}
    amounts = FrozenMap({"pods": _MANY, **given})
    system = {f"{older}kubernetes.io/{key}": value for older in ("", "beta.") for key, value in _SYSTEM.items()}
    labels = {TYPE: machine.name, ZONE: zone, CAPACITY: "on-demand", LABEL: machine.label or "none"}
    return Offer(
        name=f"{machine.name}/{zone}/on-demand",
        machine_type=machine.name,
        zone=zone,
        capacity_type="on-demand",
        micro_usd_per_hour=machine.micro_usd_per_hour,
        capacity=amounts,
        allocatable=amounts,
        labels=FrozenMap({**system, **labels}),
    )


def cluster_of(
    resources: Sequence[str],
    classes: Sequence[PodClass],
    machines: Sequence[MachineType],
    running: Sequence[Running] | None,
) -> tuple[Cluster, tuple[Offer, ...]]:
    """The objects of a generated problem: a Deployment per class, its pods where the nodes hold them, or pending.

    Machines without a zone are in the first; a Deployment of one pod allows the move by annotation.
    """
    nodes = [
        node_of(f"node-{index:05d}", offer_of(node.machine, resources, node.machine.zone or ZONES[0]))
        for index, node in enumerate(running or ())
    ]
    places: list[list[str | None]] = [[] for _ in classes]
    for node, state in zip(nodes, running or (), strict=True):
        for c, count in sorted(state.pods.items()):
            places[c] += [node.name] * count
    objects: list[ClusterObject] = [*nodes]
    for c, one in enumerate(classes):
        amounts = {"pods": 1, **{GPU if n == "gpu" else n: a for n, a in zip(resources, one.requests, strict=True)}}
        objects += Deployed(
            name=f"app-{c:05d}",
            requests=FrozenMap({name: amount for name, amount in amounts.items() if amount}),
            on=tuple(places[c] if running else [None] * one.count),
            rules=_rules(one, f"app-{c:05d}"),
            annotations=SURGE if one.count == 1 else EMPTY,
        ).objects()
    return from_objects(objects), tuple(offer_of(machine, resources, machine.zone or ZONES[0]) for machine in machines)


def _rules(one: PodClass, name: str) -> PlacementRules:
    if not one.labels and not one.zone and one.cap == UNLIMITED:
        return NO_RULES
    expressions = []
    if one.labels:
        expressions.append(Requirement(key=LABEL, operator="In", values=one.labels))
    if one.zone:
        expressions.append(Requirement(key=ZONE, operator="In", values=(one.zone,)))
    alone = PodTerm(topology_key=HOSTNAME, selector=Selector(labels=FrozenMap({"app": name})))
    return PlacementRules(
        node_terms=(NodeTerm(expressions=tuple(expressions)),) if expressions else None,
        anti_affinity=(alone,) if one.cap == 1 else (),
    )
