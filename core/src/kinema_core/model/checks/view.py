"""A plan laid over its cluster: who would sit where, on which machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from kinema_core.events import Amounts, FrozenMap, Labels, Node, Offer, Placement, Plan, PlanNode, Pod, Taint
from kinema_core.model.catalog import machine_of, new_node_labels
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import daemon_requests, is_resident, resident_requests
from kinema_core.model.match import parse_taints
from kinema_core.model.mobility import Mobility, MobilityOptions, listed, mobility
from kinema_core.model.resources import subtract, total

MICRO: Final = 10**6


@dataclass(frozen=True)
class Violation:
    """One rule that a plan breaks: its code, the pod, node or field concerned, and what was found."""

    code: str
    subject: str
    detail: str


@dataclass(frozen=True)
class Seat:
    """One pod's place in the plan. `arrives`: a new copy of it has to be put there."""

    pod: Pod
    to: str
    requests: Amounts
    rolled: bool = False

    @property
    def arrives(self) -> bool:
        """Whether the place has to admit it anew."""
        return self.rolled or self.pod.node != self.to


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
    """Keys of the taints of its offer: whoever tolerates one asks for this machine, be it spot capacity."""


@dataclass(frozen=True)
class View:
    """Everything that the checks look at. Doubtful parts of the plan (unknown names, doubles) are left out of it."""

    plan: Plan
    cluster: Cluster
    offers: Mapping[str, Offer]
    options: MobilityOptions
    mobility: Mobility
    sites: Mapping[str, Site]
    seats: tuple[Seat, ...]

    @cached_property
    def seats_by_node(self) -> Mapping[str, tuple[Seat, ...]]:
        """Seats of each node that has any."""
        found: dict[str, list[Seat]] = {}
        for seat in self.seats:
            found.setdefault(seat.to, []).append(seat)
        return {name: tuple(seats) for name, seats in found.items()}

    @cached_property
    def pods(self) -> Mapping[str, Pod]:
        """The pods that the plan has to list, by key."""
        return {pod.key: pod for pod in listed(self.cluster)}

    @cached_property
    def unplaced(self) -> frozenset[str]:
        """Keys of the pods that the plan places nowhere."""
        return frozenset(item.pod for item in self.plan.unplaced)

    @cached_property
    def resized(self) -> Mapping[str, Amounts]:
        """New requests by workload key."""
        return {item.workload: item.requests_after for item in self.plan.resizes}

    @cached_property
    def rolled(self) -> frozenset[str]:
        """Keys of the workloads of which the plan rolls a pod: a rolling update restarts them all."""
        keys = (self.workload_key(seat.pod) for seat in self.seats if seat.rolled)
        return frozenset(key for key in keys if key is not None)

    def workload_key(self, pod: Pod) -> str | None:
        """The workload that the pod belongs to, as named in resizes."""
        workload = self.cluster.controller_of(pod)
        return None if workload is None else workload.key


def view_of(plan: Plan, cluster: Cluster, offers: Iterable[Offer], *, now: datetime, options: MobilityOptions) -> View:
    """The plan over exactly the cluster that it was made for."""
    by_name = {offer.name: offer for offer in offers}
    spot_keys = _spot_keys(by_name)
    sites = {node.name: site for node in plan.nodes if (site := _site(node, cluster, by_name, spot_keys)) is not None}
    return View(
        plan=plan,
        cluster=cluster,
        offers=by_name,
        options=options,
        mobility=mobility(cluster, now, options),
        sites=sites,
        seats=tuple(_seats(plan, cluster)),
    )


def drifted_view(
    plan: Plan, cluster: Cluster, offers: Iterable[Offer], *, now: datetime, options: MobilityOptions
) -> View:
    """The plan over a later cluster: what went is left out; what appeared stays where it is.

    A pod that the plan knew under another uid is another pod. One that was pending and found a node stays there.
    """
    view = view_of(plan, cluster, offers, now=now, options=options)
    mentioned = {node.name for node in plan.nodes}
    spot_keys = _spot_keys(view.offers)
    appeared = {node.name: live_site(cluster, node, spot_keys) for node in cluster.nodes if node.name not in mentioned}
    planned = {item.pod: item for item in plan.placements}
    seats: list[Seat] = []
    for pod in listed(cluster):
        item = planned.get(pod.key)
        if item is not None and item.uid == pod.uid and item.source == pod.node:
            seats.append(_seat(item, pod, view.resized.get(view.workload_key(pod) or "")))
        elif pod.node is not None:
            seats.append(Seat(pod=pod, to=pod.node, requests=pod.requests))
    return View(
        plan=plan,
        cluster=cluster,
        offers=view.offers,
        options=options,
        mobility=view.mobility,
        sites={**view.sites, **appeared},
        seats=tuple(seats),
    )


def _seats(plan: Plan, cluster: Cluster) -> Iterable[Seat]:
    pods = {pod.key: pod for pod in listed(cluster)}
    resized = {item.workload: item.requests_after for item in plan.resizes}
    for item in plan.placements:
        pod = pods.pop(item.pod, None)
        if pod is not None:
            workload = cluster.controller_of(pod)
            yield _seat(item, pod, None if workload is None else resized.get(workload.key))


def _seat(item: Placement, pod: Pod, resized: Amounts | None) -> Seat:
    rolled = item.strategy == "rolling"
    return Seat(pod=pod, to=item.to, requests=expected_requests(pod, resized), rolled=rolled)


def _spot_keys(offers: Mapping[str, Offer]) -> Mapping[tuple[str, str, str], frozenset[str]]:
    """Keys of the taints of the offers, by machine type, zone and capacity type."""
    found: dict[tuple[str, str, str], frozenset[str]] = {}
    for offer in offers.values():
        machine = (offer.machine_type, offer.zone, offer.capacity_type)
        keys = frozenset(taint.key for taint in parse_taints(offer.taints))
        found[machine] = found.get(machine, frozenset()) | keys
    return found


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
    """A live node: its allocatable less what goes with it and less terminating pods, which keep their room."""
    leaving = [
        pod.requests
        for pod in cluster.pods_by_node.get(node.name, ())
        if pod.terminating and not is_resident(cluster, pod)
    ]
    taken = total([resident_requests(cluster, node), *leaving])
    return Site(
        name=node.name,
        labels=node.labels,
        taints=node.taints,
        room=subtract(node.allocatable, taken),
        spot=machine_of(node)[2] == "spot",
        live=True,
        spot_keys=spot_keys.get(machine_of(node), frozenset()),
    )


def boot_site(cluster: Cluster, offer: Offer, name: str) -> Site:
    """A new node of an offer: its allocatable less the daemon sets and mirror pods that will be there."""
    labels, taints = new_node_labels(offer, name), parse_taints(offer.taints)
    return Site(
        name=name,
        labels=labels,
        taints=taints,
        room=subtract(offer.allocatable, daemon_requests(cluster, name=name, labels=labels, taints=taints)),
        spot=offer.capacity_type == "spot",
        live=False,
        spot_keys=frozenset(taint.key for taint in taints),
    )


def expected_requests(pod: Pod, resized: Amounts | None) -> Amounts:
    """What a placement has to state: the pod's requests, with those of its workload's resize over them."""
    return pod.requests if resized is None else FrozenMap({**pod.requests, **resized})
