"""Checks of each node: who may be there, and whether there is room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kinema_core.events import Amounts, Pod
from kinema_core.model.catalog import machine_type
from kinema_core.model.checks.nodes import left_over
from kinema_core.model.checks.view import Seat, Site, View, Violation, boot_site
from kinema_core.model.daemons import is_resident
from kinema_core.model.match import node_admits, ports_clash
from kinema_core.model.mobility import spot_allowed
from kinema_core.model.resources import fits, lacking, subtract, total


def check_targets(view: View) -> Iterator[Violation]:
    """Every pod's node remains or is booted, and it admits whoever arrives."""
    actions = {node.name: node.action for node in view.plan.nodes}
    for seat in view.seats:
        site = view.sites.get(seat.to)
        if actions.get(seat.to) == "delete":
            yield Violation("to-deleted", seat.pod.key, f"node {seat.to} is to be deleted")
        elif site is None:
            if seat.arrives or view.cluster.node(seat.to) is not None:
                yield Violation("to-unknown", seat.pod.key, f"no node {seat.to} remains or is booted")
        elif seat.arrives:
            yield from _admission(view, seat, site)


def _admission(view: View, seat: Seat, site: Site) -> Iterator[Violation]:
    if site.live and site.name not in view.mobility.open_nodes:
        yield Violation("node-closed", seat.pod.key, f"node {site.name} takes no pods")
    reason = node_admits(seat.pod.rules, name=site.name, labels=site.labels, taints=site.taints)
    if reason is not None:
        yield Violation("not-admitted", seat.pod.key, f"node {site.name}: {reason}")
    if seat.pod.node != site.name and not _spot(view, seat.pod, site):
        yield Violation("spot-not-allowed", seat.pod.key, f"it does not ask for spot capacity such as node {site.name}")


def _spot(view: View, pod: Pod, site: Site) -> bool:
    return not site.spot or spot_allowed(view.cluster, pod, taint_keys=site.spot_keys, options=view.options)


def check_room(view: View) -> Iterator[Violation]:
    """Each node holds its pods in every resource, and no two of them want one host port.

    A node that is overdrawn now is not the plan's fault, as long as the plan puts nobody there who asks for what is
    lacking.
    """
    for name in sorted(view.seats_by_node):
        site = view.sites.get(name)
        if site is None:
            continue
        seats = view.seats_by_node[name]
        lacked = lacking(total(seat.requests for seat in seats), site.room)
        asked = total(seat.requests for seat in seats if seat.arrives)
        for resource in lacked:
            if asked.get(resource, 0) > 0:
                wanted = sum(seat.requests.get(resource, 0) for seat in seats)
                detail = f"{resource}: {wanted} wanted, room for {site.room.get(resource, 0)}"
                yield Violation("over-capacity", name, detail)
        yield from _ports(view, name, seats)


def _ports(view: View, name: str, seats: tuple[Seat, ...]) -> Iterator[Violation]:
    arriving = [seat for seat in seats if seat.arrives and seat.pod.rules.host_ports]
    if not arriving:
        return
    others = [seat.pod for seat in seats if seat.pod.rules.host_ports]
    others += [pod for pod in _besides(view, name) if pod.rules.host_ports]
    for seat in arriving:
        for other in others:
            port = None if other is seat.pod else ports_clash(seat.pod.rules.host_ports, other.rules.host_ports)
            if port is not None:
                detail = f"host port {port.port}/{port.protocol} on {name} is taken by {other.key}"
                yield Violation("host-port", seat.pod.key, detail)


def _besides(view: View, name: str) -> Iterable[Pod]:
    """Pods on a live node that the plan does not list: those that go with it and those that terminate."""
    here = view.cluster.pods_by_node.get(name, ())
    return (pod for pod in here if pod.terminating or is_resident(view.cluster, pod))


def check_pending(view: View) -> Iterator[Violation]:
    """No pending pod is left over that a remaining node or an offer could hold. Equal pods are tried once."""
    tried: dict[tuple[object, ...], str | None] = {}
    waiting = [pod for key, pod in view.pods.items() if key in view.unplaced and pod.node is None]
    places = _places(view) if waiting else []
    for pod in waiting:
        if pod.key in view.mobility.held:
            continue
        kind = (pod.rules, pod.requests, view.workload_key(pod), pod.annotations)
        if kind not in tried:
            tried[kind] = _place_for(view, pod, places)
        if tried[kind] is not None:
            yield Violation("pending-placeable", pod.key, f"{tried[kind]} could hold it")


def _places(view: View) -> list[tuple[Site, Amounts]]:
    """Remaining and possible nodes with the room that the plan leaves there."""
    places = [
        (site, subtract(site.room, total(seat.requests for seat in view.seats_by_node.get(name, ()))))
        for name, site in view.sites.items()
        if not site.live or name in view.mobility.open_nodes
    ]
    left = left_over(view)
    for name in sorted(view.offers):
        more = left[name]
        if more is None or more > 0:
            site = boot_site(view.cluster, view.offers[name], f"new-{len(places)}")
            places.append((site, site.room))
    return places


def _place_for(view: View, pod: Pod, places: list[tuple[Site, Amounts]]) -> str | None:
    for site, room in places:
        taken = [seat.pod for seat in view.seats_by_node.get(site.name, ())] + list(_besides(view, site.name))
        if (
            fits(pod.requests, room)
            and _spot(view, pod, site)
            and node_admits(pod.rules, name=site.name, labels=site.labels, taints=site.taints) is None
            and not any(ports_clash(pod.rules.host_ports, other.rules.host_ports) for other in taken)
        ):
            return f"node {site.name}" if site.name in view.sites else f"a new {machine_type(site.labels)}"
    return None


def check_transition(view: View) -> Iterator[Violation]:
    """While the plan is carried out, old copies keep their room until the new ones are Ready.

    The cautious count: on each node that remains, everybody who is there now and everybody who will be, at once.
    """
    leaving: dict[str, list[Amounts]] = {}
    for seat in view.seats:
        if seat.pod.node is not None and seat.arrives:
            leaving.setdefault(seat.pod.node, []).append(seat.pod.requests)
    for name in sorted(leaving):
        site = view.sites.get(name)
        if site is None:
            continue
        seats = view.seats_by_node.get(name, ())
        asked = total(seat.requests for seat in seats if seat.arrives)
        wanted = total([*leaving[name], *(seat.requests for seat in seats)])
        for resource in lacking(wanted, site.room):
            if asked.get(resource, 0) > 0:
                detail = f"{resource}: {wanted[resource]} wanted for a while, room for {site.room.get(resource, 0)}"
                yield Violation("no-room-meanwhile", name, detail)
