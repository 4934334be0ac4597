"""Checks of each node: who may be there, and whether there is room."""

from __future__ import annotations

from collections.abc import Iterator

from kinema_core.model.checker.free_places import FreePlaces, asks, spot_is_fine
from kinema_core.model.checker.view import PlannedPod, PlanView, Site, Violation
from kinema_core.model.daemons import unlisted
from kinema_core.model.ending import ending_refuses
from kinema_core.model.match import node_admits, ports_clash
from kinema_core.model.resources import lacking, total
from kinema_core.model.volumes import volume_refuses


def check_targets(view: PlanView) -> Iterator[Violation]:
    """Check that every pod's node remains or is booted, and admits the pods that arrive."""
    deleted = {node.name for node in view.plan.nodes if node.action == "delete"}
    for name, seats in view.seats_by_node.items():
        site = view.sites.get(name)
        if name in deleted:
            yield from (Violation("to-deleted", seat.key, f"node {name} is to be deleted") for seat in seats)
        elif site is None:
            lost = seats if view.cluster.node(name) is not None else view.arriving_by_node.get(name, ())
            yield from (Violation("to-unknown", seat.key, f"no node {name} remains or is booted") for seat in lost)
        else:
            for seat in view.arriving_by_node.get(name, ()):
                yield from _admission(view, seat, site)


def _admission(view: PlanView, seat: PlannedPod, site: Site) -> Iterator[Violation]:
    if site.live and site.name not in view.mobility.open_nodes:
        yield Violation("node-closed", seat.key, f"node {site.name} takes no pods")
    reason = node_admits(seat.pod.rules, name=site.name, labels=site.labels, taints=site.taints)
    if reason is not None:
        yield Violation("not-admitted", seat.key, f"node {site.name}: {reason}")
    if seat.pod.node == site.name:
        return
    for code, reason in (
        ("anti-affinity-broken", ending_refuses(view.cluster, seat.pod, site.labels)),
        ("volume-unreachable", volume_refuses(view.cluster, seat.pod, name=site.name, labels=site.labels)),
    ):
        if reason is not None:
            yield Violation(code, seat.key, f"node {site.name}: {reason}")
    if not spot_is_fine(view, seat.pod, site):
        yield Violation("spot-not-allowed", seat.key, f"it may not be put on spot capacity such as node {site.name}")


def check_room(view: PlanView) -> Iterator[Violation]:
    """Each node holds its pods in every resource, and no two of them want one host port.

    A node that is overdrawn now is not the plan's fault, as long as the plan puts no pod there that asks for what is
    lacking.
    """
    for name in sorted(view.arriving_by_node):
        site = view.sites.get(name)
        if site is None:
            continue
        seats, arriving = view.seats_by_node[name], view.arriving_by_node[name]
        wanted = total(asks(view, seat.pod, seat.requests) for seat in seats)
        for resource in lacking(wanted, site.room):
            if any(asks(view, seat.pod, seat.requests).get(resource, 0) > 0 for seat in arriving):
                detail = f"{resource}: {wanted[resource]} wanted, room for {site.room.get(resource, 0)}"
                yield Violation("over-capacity", name, detail)
        yield from _ports(view, name, site)


def _ports(view: PlanView, name: str, site: Site) -> Iterator[Violation]:
    arriving = [seat for seat in view.arriving_by_node[name] if seat.pod.rules.host_ports]
    if not arriving:
        return
    others = [seat.pod for seat in view.seats_by_node[name]] + list(unlisted(view.cluster, name))
    takers = [(pod.key, pod.rules.host_ports) for pod in others if pod.rules.host_ports]
    takers += [("a daemon set", site.ports)] if site.ports else []
    for seat in arriving:
        for who, ports in takers:
            port = None if who == seat.key else ports_clash(seat.pod.rules.host_ports, ports)
            if port is not None:
                detail = f"host port {port.port}/{port.protocol} on {name} is taken by {who}"
                yield Violation("host-port", seat.key, detail)


def check_pending(view: PlanView) -> Iterator[Violation]:
    """No pending pod is left over that a live node (also one to be deleted) or an offer could hold.

    Equal pods are tried once.
    """
    tried: dict[tuple[object, ...], str | None] = {}
    held = view.mobility.held
    waiting = [pod for key, pod in view.pods.items() if key in view.unplaced and pod.node is None and key not in held]
    if not waiting:
        return
    vacancies = FreePlaces(view)
    for pod in waiting:
        kind = (pod.rules, pod.requests, view.workload_key(pod), pod.annotations, pod.labels, pod.namespace)
        if kind not in tried:
            tried[kind] = None if (found := vacancies.find(pod)) is None else found.text
        if tried[kind] is not None:
            yield Violation("pending-placeable", pod.key, f"{tried[kind]} could hold it")
