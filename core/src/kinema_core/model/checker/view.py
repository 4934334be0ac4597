"""A plan laid over its cluster: who would sit where, on which machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from kinema_core.events import Amounts, FrozenMap, HostPort, Labels, Node, Offer, Placement, Plan, PlanNode, Pod, Taint
from kinema_core.model.budgets import budgets_by_pod
from kinema_core.model.catalog import keeping_unpriced, machine_of, new_node_labels, taint_keys
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_ports, daemon_requests, is_resident, resident_requests, unlisted
from kinema_core.model.derived import derived
from kinema_core.model.match import parse_taints
from kinema_core.model.mobility import Mobility, MobilityOptions, listed_by_key, mobility
from kinema_core.model.resizing import resized_in_place
from kinema_core.model.resources import subtract, total
from kinema_core.model.volumes import attachments


@dataclass(frozen=True)
class Violation:
    """One rule that a plan breaks: its code, the pod, node or field concerned, and what was found."""

    code: str
    subject: str
    detail: str


class PlannedPod(NamedTuple):
    """One pod's place in the plan."""

    key: str
    """The pod's."""
    pod: Pod
    to: str
    requests: Amounts
    workload: str | None
    """Key of the workload that the pod belongs to."""
    rolled: bool
    """A rolling update replaces the pod, wherever it is."""
    arrives: bool
    """Return whether the place has to admit it: it comes from elsewhere, or is replaced."""


@dataclass(frozen=True)
class Site:
    """A node that remains or is booted; `room` is what it has for listed pods."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]
    room: Amounts
    spot: bool
    live: bool
    spot_keys: frozenset[str]
    """Keys of the taints of its offer: a pod that tolerates one asks for this machine, also if it is spot capacity."""
    ports: tuple[HostPort, ...] = ()
    """Host ports that daemon sets will take on a new node."""


@dataclass(frozen=True)
class PlanView:
    """Everything that the checks look at. Doubtful parts of the plan (unknown names, doubles) are left out of it."""

    plan: Plan
    cluster: Cluster
    offers: Mapping[str, Offer]
    options: MobilityOptions
    mobility: Mobility
    sites: Mapping[str, Site]
    seats: tuple[PlannedPod, ...]

    @cached_property
    def seats_by_node(self) -> Mapping[str, tuple[PlannedPod, ...]]:
        """Seats of each node that has any."""
        return _by_node(self.seats)

    @cached_property
    def arriving(self) -> tuple[PlannedPod, ...]:
        """Return the pods that their nodes have to admit."""
        return tuple(seat for seat in self.seats if seat.arrives)

    @cached_property
    def arriving_by_node(self) -> Mapping[str, tuple[PlannedPod, ...]]:
        """Return those of each node that has any."""
        return _by_node(self.arriving)

    @cached_property
    def healthy(self) -> Mapping[str, int]:
        """Pods of each budget that are Ready or will be: pending ones with a place, and who comes for leaving ones."""
        found: Counter[str] = Counter()
        budgets = budgets_by_pod(self.cluster)
        for key, pod in self.cluster.pods_by_key.items():
            if pod.terminating:
                siblings = self.cluster.pods_by_workload.get(self.cluster.controller_key_of(pod) or "", ())
                found.update({one.key for other in siblings for one in budgets.get(other.key, ())})
            elif pod.ready or (pod.node is None and key not in self.unplaced):
                found.update(one.key for one in budgets.get(key, ()))
        return found

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Return the pods that the plan has to list, by key and in that order."""
        return listed_by_key(self.cluster)

    @cached_property
    def unplaced(self) -> frozenset[str]:
        """Keys of the pods that the plan places nowhere."""
        return frozenset(item.pod for item in self.plan.unplaced)

    @cached_property
    def deleted(self) -> Mapping[str, Site]:
        """Return the live nodes that the plan deletes, as if they were kept and all their pods had left."""
        spot_keys = taint_keys(self.offers.values())
        names = [node.name for node in self.plan.nodes if node.action == "delete"]
        live = [node for name in names if (node := self.cluster.node(name)) is not None]
        return {node.name: live_site(self.cluster, node, spot_keys) for node in live}

    @cached_property
    def resized(self) -> Mapping[str, Amounts]:
        """New requests by workload key."""
        return {item.workload: item.requests_after for item in self.plan.resizes}

    @cached_property
    def rolled(self) -> frozenset[str]:
        """Keys of the workloads of which the plan rolls a pod: a rolling update restarts them all."""
        return frozenset(seat.workload for seat in self.arriving if seat.rolled and seat.workload is not None)

    @cached_property
    def running_on(self) -> frozenset[str]:
        """Keys of the workloads that get new requests while their pods run on."""
        return resized_in_place(self.plan, self.cluster, self.options)

    def workload_key(self, pod: Pod) -> str | None:
        """Return the workload that the pod belongs to, as named in resizes."""
        return self.cluster.controller_key_of(pod)


def _by_node(seats: Iterable[PlannedPod]) -> Mapping[str, tuple[PlannedPod, ...]]:
    found: dict[str, list[PlannedPod]] = {}
    for seat in seats:
        found.setdefault(seat.to, []).append(seat)
    return {name: tuple(here) for name, here in found.items()}


def view_of(
    plan: Plan,
    cluster: Cluster,
    offers: Iterable[Offer],
    *,
    now: datetime,
    options: MobilityOptions,
    drifted: bool = False,
) -> PlanView:
    """Lay the plan over the cluster that it was made for, or over a later one (`drifted`).

    On a later one what went is left out, and what appeared stays where it is. A pod that the plan knew under another
    uid is another pod. One that was pending and found a node stays there.
    """
    by_name = {offer.name: offer for offer in offers}
    spot_keys = taint_keys(by_name.values())
    sites = {node.name: site for node in plan.nodes if (site := _site(node, cluster, by_name, spot_keys)) is not None}
    if drifted:
        planned = {node.name for node in plan.nodes}
        sites |= {node.name: live_site(cluster, node, spot_keys) for node in cluster.nodes if node.name not in planned}
    facts = mobility(cluster, now, options)
    return PlanView(
        plan=plan,
        cluster=cluster,
        offers=by_name,
        options=options,
        mobility=facts if plan.cost.unit == "W" else keeping_unpriced(facts, cluster, by_name.values()),
        sites=sites,
        seats=tuple(_drifted_seats(plan, cluster) if drifted else _seats(plan, cluster)),
    )


def _seats(plan: Plan, cluster: Cluster) -> Iterator[PlannedPod]:
    left = dict(listed_by_key(cluster))
    resized = {item.workload: item.requests_after for item in plan.resizes}
    for item in plan.placements:
        pod = left.pop(item.pod, None)
        if pod is not None:
            yield _seat(item, pod, cluster.controller_key_of(pod), resized)


def _drifted_seats(plan: Plan, cluster: Cluster) -> Iterator[PlannedPod]:
    planned = {item.pod: item for item in plan.placements}
    resized = {item.workload: item.requests_after for item in plan.resizes}
    for key, pod in listed_by_key(cluster).items():
        item = planned.get(key)
        workload = cluster.controller_key_of(pod)
        if item is not None and item.uid == pod.uid and item.source == pod.node:
            yield _seat(item, pod, workload, resized)
        elif pod.node is not None:
            yield PlannedPod(key, pod, pod.node, pod.requests, workload, rolled=False, arrives=False)


def _seat(item: Placement, pod: Pod, workload: str | None, resized: Mapping[str, Amounts]) -> PlannedPod:
    rolled = item.strategy == "rolling"
    requests = expected_requests(pod, resized.get(workload)) if workload and resized else pod.requests
    return PlannedPod(item.pod, pod, item.to, requests, workload, rolled=rolled, arrives=rolled or pod.node != item.to)


def _site(
    node: PlanNode,
    cluster: Cluster,
    offers: Mapping[str, Offer],
    spot_keys: Mapping[tuple[str, str, str], frozenset[str]],
) -> Site | None:
    if node.action == "keep":
        live = cluster.node(node.name)
        return None if live is None else live_site(cluster, live, spot_keys)
    offer = offers.get(node.offer)
    return boot_site(cluster, offer, node.name) if node.action == "boot" and offer is not None else None


def live_site(cluster: Cluster, node: Node, spot_keys: Mapping[tuple[str, str, str], frozenset[str]]) -> Site:
    """Return a live node: its allocatable less what goes with it and less terminating pods, which keep their room."""
    machine = machine_of(node)
    return Site(
        name=node.name,
        labels=node.labels,
        taints=node.taints,
        room=_rooms(cluster)[node.name],
        spot=machine[2] == "spot",
        live=True,
        spot_keys=spot_keys.get(machine, frozenset()),
    )


@derived
def _rooms(cluster: Cluster) -> Mapping[str, Amounts]:
    def of(node: Node) -> Amounts:
        besides = unlisted(cluster, node.name)
        leaving = [pod.requests for pod in besides if not is_resident(cluster, pod)]
        attached = [attachments(cluster, pod) for pod in besides if pod.rules.claims]
        return subtract(node.allocatable, total([resident_requests(cluster, node), *leaving, *attached]))

    return {node.name: of(node) for node in cluster.nodes}


def boot_site(cluster: Cluster, offer: Offer, name: str) -> Site:
    """Return a new node of an offer: its allocatable less the daemon sets and mirror pods that will be there."""
    labels, taints = new_node_labels(offer, name), parse_taints(offer.taints)
    return Site(
        name=name,
        labels=labels,
        taints=taints,
        room=subtract(offer.allocatable, daemon_requests(cluster, name=name, labels=labels, taints=taints)),
        spot=offer.capacity_type == "spot",
        live=False,
        spot_keys=frozenset(taint.key for taint in taints),
        ports=daemon_ports(cluster, name=name, labels=labels, taints=taints),
    )


def expected_requests(pod: Pod, resized: Amounts | None) -> Amounts:
    """Return what a placement has to state: the pod's requests, with those of its workload's resize over them."""
    return pod.requests if resized is None else FrozenMap({**pod.requests, **resized})
