"""What a plan leaves free, for pods that it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kinema_core.events import Amounts, Offer, Pod
from kinema_core.model.catalog import machine_type
from kinema_core.model.checks.arrivals import Arrivals
from kinema_core.model.checks.nodes import left_over
from kinema_core.model.checks.view import MICRO, Site, View, boot_site
from kinema_core.model.daemons import unlisted
from kinema_core.model.ending import ending_refuses
from kinema_core.model.match import node_admits, ports_clash
from kinema_core.model.mobility import spot_allowed
from kinema_core.model.resources import add, fits, subtract, total
from kinema_core.model.volumes import volume_refuses, with_attachments


class Vacancy(NamedTuple):
    """A place for a pod: on a node of the plan, on one that it deletes, or on a new one of an offer."""

    site: Site
    offer: Offer | None
    price: int = 0
    """Micro-USD per hour that the plan costs more with it."""

    @property
    def text(self) -> str:
        """As people are told of it."""
        if self.offer is not None:
            return f"a new {machine_type(self.site.labels)}"
        return f"node {self.site.name}, which is deleted," if self.price else f"node {self.site.name}"


class Vacancies:
    """Nodes that remain or are booted, with the room that is left there, and offers that can still be had."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._arrivals = Arrivals(view)
        self._sites = {name: site for name, site in view.sites.items() if _open(view, site)}
        self._deleted = {
            site.name: Vacancy(site, None, round(node.usd_per_hour * MICRO))
            for node in view.plan.nodes
            if (site := view.deleted.get(node.name)) is not None and _open(view, site) and self._lonely(site)
        }
        self._rooms = {name: subtract(site.room, _taken(view, name)) for name, site in self._sites.items()}
        self._added: dict[str, list[Pod]] = {}
        self._left = dict(left_over(view))
        self._booted = 0
        self._gone: set[str] = set()

    def _lonely(self, site: Site) -> bool:
        """Whether no rule between pods is about those that go with a node and would be back with it."""
        return all(self._arrivals.concerns_nobody(pod) for pod in unlisted(self._view.cluster, site.name))

    def find(self, pod: Pod) -> Vacancy | None:
        """A place that could hold the pod: on a node first, else the cheapest of new nodes and those to be deleted."""
        for name, site in self._sites.items():
            if self._holds(pod, site, self._rooms[name]):
                return Vacancy(site, None)
        return next((one for one in self._dearer() if self._holds(pod, one.site, one.site.room)), None)

    def _dearer(self) -> Iterator[Vacancy]:
        """Places that would have to be paid for, the cheapest first; of equal ones nodes that are there already."""
        view, fresh = self._view, self._new_name()
        ranked = [(one.price, False, name) for name, one in self._deleted.items()]
        on_sale = (one for one in view.offers.values() if (left := self._left[one.name]) is None or left > 0)
        ranked += [(one.micro_usd_per_hour, True, one.name) for one in on_sale]
        for price, sold, name in sorted(ranked):
            if sold:
                yield Vacancy(boot_site(view.cluster, view.offers[name], fresh), view.offers[name], price)
            else:
                yield self._deleted[name]

    def find_instead(self, pod: Pod, others: Mapping[str, Sequence[Pod]]) -> tuple[Vacancy, tuple[Pod, ...]] | None:
        """A node that could hold the pod without some of `others` there, and whom: as few as can be.

        They are tried in their order. Only pods that no rule between pods concerns are given up, so that none breaks.
        """
        best: tuple[int, str, Vacancy, tuple[Pod, ...]] | None = None
        asked = asks(self._view, pod, pod.requests)
        for name, site in self._sites.items():
            gone: list[Pod] = []
            room = self._rooms[name]
            for other in others.get(name, ()):
                if not fits(asked, room) and self._arrivals.concerns_nobody(other):
                    gone.append(other)
                    room = add(room, asks(self._view, other, other.requests))
            if gone and (best is None or (len(gone), name) < best[:2]) and self._holds(pod, site, room):
                best = (len(gone), name, Vacancy(site, None), tuple(gone))
        return None if best is None else best[2:]

    def give_up(self, pod: Pod, name: str) -> None:
        """Take a pod's place on a node of the plan from it."""
        self._rooms[name] = add(self._rooms[name], asks(self._view, pod, pod.requests))
        self._gone.add(pod.key)
        self._arrivals.leave(pod)

    def take(self, pod: Pod, vacancy: Vacancy) -> None:
        """Give the place that was found to the pod."""
        site, offer, _ = vacancy
        if site.name not in self._sites:
            self._sites[site.name], self._rooms[site.name] = site, site.room
            self._deleted.pop(site.name, None)
        if offer is not None:
            self._booted += 1
            for name, left in self._left.items():
                shared = self._view.offers[name].pool if offer.pool else ""
                if left is not None and (name == offer.name or (shared and shared == offer.pool)):
                    self._left[name] = left - 1
        self._rooms[site.name] = subtract(self._rooms[site.name], asks(self._view, pod, pod.requests))
        self._added.setdefault(site.name, []).append(pod)
        self._arrivals.seat(pod, name=site.name, labels=site.labels, taints=site.taints)

    def _new_name(self) -> str:
        taken = {node.name for node in self._view.plan.nodes} | self._sites.keys()
        version, number = self._view.cluster.version, len(self._view.plan.nodes) + self._booted
        while f"kinema-{version}-{number}" in taken:
            number += 1
        return f"kinema-{version}-{number}"

    def _holds(self, pod: Pod, site: Site, room: Amounts) -> bool:
        view = self._view
        return (
            fits(asks(view, pod, pod.requests), room)
            and spot_is_fine(view, pod, site)
            and node_admits(pod.rules, name=site.name, labels=site.labels, taints=site.taints) is None
            and volume_refuses(view.cluster, pod, name=site.name, labels=site.labels) is None
            and ending_refuses(view.cluster, pod, site.labels) is None
            and not ports_clash(pod.rules.host_ports, site.ports)
            and not any(ports_clash(pod.rules.host_ports, other.rules.host_ports) for other in self._there(pod, site))
            and self._arrivals.refuses(pod, name=site.name, labels=site.labels, taints=site.taints) is None
        )

    def _there(self, pod: Pod, site: Site) -> Iterable[Pod]:
        """The other pods of the node, for a pod that wants a port."""
        if not pod.rules.host_ports:
            return ()
        seats = self._view.seats_by_node.get(site.name, ())
        seated = [seat.pod for seat in seats if seat.key not in self._gone]
        return [*seated, *unlisted(self._view.cluster, site.name), *self._added.get(site.name, ())]


def asks(view: View, pod: Pod, requests: Amounts) -> Amounts:
    """What the pod takes of its node: attachments of its volumes too."""
    return with_attachments(view.cluster, pod, requests)


def spot_is_fine(view: View, pod: Pod, site: Site) -> bool:
    """Whether the site is no spot capacity, or the pod may be put there."""
    return not site.spot or spot_allowed(view.cluster, pod, taint_keys=site.spot_keys, options=view.options)


def _open(view: View, site: Site) -> bool:
    return not site.live or site.name in view.mobility.open_nodes


def _taken(view: View, name: str) -> Amounts:
    return total(asks(view, seat.pod, seat.requests) for seat in view.seats_by_node.get(name, ()))
