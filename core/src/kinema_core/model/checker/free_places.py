"""Places that a plan leaves free for pods that it leaves out.

`FreePlaces` finds them by room, `ArrivalRules` by the rules between pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from kinema_core.events import Amounts, Labels, Offer, Pod, PodTerm, Taint
from kinema_core.model.catalog import machine_type
from kinema_core.model.catalog_file import MICRO
from kinema_core.model.checker.nodes import left_over
from kinema_core.model.checker.rules import has_rules, locations_after, locations_now
from kinema_core.model.checker.spot_share import spot_books, spot_pool
from kinema_core.model.checker.view import PlanView, Site, boot_site
from kinema_core.model.daemons import unlisted
from kinema_core.model.ending import ending_refuses
from kinema_core.model.match import node_admits, ports_clash
from kinema_core.model.mobility import spot_allowed
from kinema_core.model.neighbors import Scope, enforced, required, selects, term_scope
from kinema_core.model.pod_locations import Group, PodLocations, Spot, group_of, skew_of
from kinema_core.model.resources import add, fits, subtract, total
from kinema_core.model.volumes import volume_refuses, with_attachments


class _About(NamedTuple):
    """The rules that concern one pod's arrival: pods in scope, or counts, by topology key."""

    keeps_away: tuple[tuple[Scope, str], ...]
    kept_away: tuple[tuple[str, Counter[str]], ...]
    needs: tuple[tuple[Scope, str], ...]
    follows: tuple[tuple[str, str], ...]
    """Keys and the domain in which a pod waits for its kind."""
    own: tuple[Group, ...]
    counted: tuple[Group, ...]


class ArrivalRules:
    """The state after a plan, and which pods may join it."""

    def __init__(self, view: PlanView) -> None:
        self._cluster = view.cluster
        self._now = locations_now(view)
        self._after = locations_after(view)
        self._ruled = [pod for pod in view.cluster.pods if has_rules(pod) and not pod.terminating]
        self._about: dict[str, _About] = {}
        self._opened: dict[tuple[str, Spot], frozenset[Group]] = {}
        self._unconcerned: dict[tuple[str, Labels], bool] = {}
        self._arrived: set[tuple[Group, str]] = set()
        """Spread constraints of pods that arrive, and the domains to which they come: there their skew bounds all."""
        for seat in view.arriving:
            if seat.pod.rules.spread:
                self._note(seat.pod, self._after.nodes[seat.to].labels if seat.to in self._after.nodes else Labels())

    def refuses(self, pod: Pod, *, name: str, labels: Labels, taints: tuple[Taint, ...]) -> str | None:
        """Return the rule, its own or another's, that the pod's arrival on this node would break; None for none.

        The node may be a new one, which can be a new domain for any pod's spread.
        """
        return next(self._broken(pod, name, Spot(labels, taints)), None)

    def _broken(self, pod: Pod, name: str, spot: Spot) -> Iterator[str]:
        about, labels = self._about_of(pod), spot.labels
        if any(self._near(scope, key, labels) for scope, key in about.keeps_away):
            yield "required pod anti-affinity"
        if any(keepers[labels[key]] for key, keepers in about.kept_away if key in labels):
            yield "another pod's required anti-affinity"
        if not all(self._in_company(pod, scope, key, labels) for scope, key in about.needs):
            yield "required pod affinity"
        if any(labels.get(key) != place for key, place in about.follows):
            yield "another pod's required affinity"
        if any(group.eligible.topology_key not in labels for group in about.own):
            yield "a topology spread over a label that the node lacks"
        counted = dict.fromkeys(about.counted, 1)
        concerned = [(group, counted.get(group, 0)) for group in dict.fromkeys((*about.counted, *about.own))]
        if any(self._uneven(group, name, spot, more=more, own=group in about.own) for group, more in concerned):
            yield "a topology spread"
        if name not in self._after.nodes and self._opening(name, spot) - set(about.counted):
            yield "another pod's topology spread"

    def concerns_nobody(self, pod: Pod) -> bool:
        """Return whether no rule between pods, its own or another's, is about this pod."""
        if has_rules(pod):
            return False
        kind = (pod.namespace, pod.labels)
        if kind not in self._unconcerned:
            self._unconcerned[kind] = not any(selects(scope, pod) for scope in self._scopes)
        return self._unconcerned[kind]

    def seat(self, pod: Pod, *, name: str, labels: Labels, taints: tuple[Taint, ...]) -> None:
        """Let the pod arrive on this node."""
        self._note(pod, labels)
        self._after.add_node(name, Spot(labels, taints))
        self._move(pod, name)

    def _note(self, pod: Pod, labels: Labels) -> None:
        groups = (group_of(pod, spread) for spread in enforced(pod.rules.spread))
        places = ((group, labels.get(group.eligible.topology_key)) for group in groups)
        self._arrived.update((group, place) for group, place in places if place is not None)

    def leave(self, pod: Pod) -> None:
        """Take the pod from its node."""
        self._move(pod, None)

    def _move(self, pod: Pod, to: str | None) -> None:
        self._after.move(pod, to)
        self._about.clear()
        self._opened.clear()
        for cached in ("_keepers", "_firsts"):
            self.__dict__.pop(cached, None)

    def _near(self, scope: Scope, key: str, labels: Labels) -> bool:
        return key in labels and self._after.counts(scope, key)[labels[key]] > 0

    def _in_company(self, pod: Pod, scope: Scope, key: str, labels: Labels) -> bool:
        counts = self._after.counts(scope, key)
        return key in labels and (counts[labels[key]] > 0 or (not counts.total() and selects(scope, pod)))

    def _uneven(self, group: Group, name: str, spot: Spot, *, more: int, own: bool = False) -> bool:
        """Return whether the constraint would be broken with this node and so many pods more on it.

        A pod with the constraint is admitted by its skew alone, however uneven others are.
        """
        place = spot.labels.get(group.eligible.topology_key)
        if place is None:
            return False
        counts = self._after.counts(group.scope, group.eligible.topology_key).copy()
        counts[place] += more
        trial = PodLocations(self._cluster, {name: spot}, {})
        domains = self._after.domains(group.eligible) | trial.domains(group.eligible)
        here = [counts[one] for one in domains]
        if not here:
            return False
        fewest = 0 if len(domains) < group.min_domains else min(here)
        bound = own or (more and (group, place) in self._arrived)
        if bound and counts[place] - fewest > group.max_skew:
            return True
        before = skew_of(self._now, group)
        return max(here) - fewest > max(group.max_skew, before, 0 if more else skew_of(self._after, group))

    def _opening(self, name: str, spot: Spot) -> frozenset[Group]:
        """Return the constraints that a new node alone would break. New nodes of any offer are tried by one name."""
        if (name, spot) not in self._opened:
            broken = (one for one in self._groups if self._uneven(one, name, spot, more=0))
            self._opened[name, spot] = frozenset(broken)
        return self._opened[name, spot]

    @cached_property
    def _groups(self) -> tuple[Group, ...]:
        return tuple(dict.fromkeys(group_of(pod, one) for pod in self._ruled for one in enforced(pod.rules.spread)))

    @cached_property
    def _scopes(self) -> frozenset[Scope]:
        """Return the scopes of all rules."""
        terms = ((pod, term) for pod in self._ruled for term in (*pod.rules.affinity, *pod.rules.anti_affinity))
        found = {term_scope(self._cluster, pod, term) for pod, term in terms if term.weight == 0}
        return frozenset(found | {group.scope for group in self._groups})

    @cached_property
    def _keepers(self) -> dict[tuple[Scope, str], Counter[str]]:
        """Per anti-affinity term, in which domains a pod has it."""
        found: dict[tuple[Scope, str], Counter[str]] = {}
        for pod in self._ruled:
            for term in required(pod.rules.anti_affinity):
                place = self._after.domain_of(pod.key, term.topology_key)
                if place is not None:
                    alike = (term_scope(self._cluster, pod, term), term.topology_key)
                    found.setdefault(alike, Counter())[place] += 1
        return found

    @cached_property
    def _firsts(self) -> dict[tuple[Scope, str], str]:
        """Per affinity term, the domain of the only pod that it counts, where that has the term itself."""
        found: dict[tuple[Scope, str], str] = {}
        for pod in self._ruled:
            for term in required(pod.rules.affinity):
                alike = (term_scope(self._cluster, pod, term), term.topology_key)
                place = self._after.domain_of(pod.key, term.topology_key)
                if place is not None and selects(alike[0], pod) and self._after.counts(*alike).total() == 1:
                    found[alike] = place
        return found

    def _about_of(self, pod: Pod) -> _About:
        if pod.key not in self._about:
            rules = pod.rules
            self._about[pod.key] = _About(
                keeps_away=self._terms(pod, rules.anti_affinity),
                kept_away=tuple((key, n) for (scope, key), n in self._keepers.items() if selects(scope, pod)),
                needs=self._terms(pod, rules.affinity),
                follows=tuple((key, place) for (scope, key), place in self._firsts.items() if selects(scope, pod)),
                own=tuple(group_of(pod, spread) for spread in enforced(rules.spread)),
                counted=tuple(group for group in self._groups if selects(group.scope, pod)),
            )
        return self._about[pod.key]

    def _terms(self, pod: Pod, terms: tuple[PodTerm, ...]) -> tuple[tuple[Scope, str], ...]:
        return tuple((term_scope(self._cluster, pod, term), term.topology_key) for term in required(terms))


class FreePlace(NamedTuple):
    """A place for a pod: on a node of the plan, on one that it deletes, or on a new one of an offer."""

    site: Site
    offer: Offer | None
    price: int = 0
    """Micro-USD per hour that the plan costs more with it."""

    @property
    def text(self) -> str:
        """Return its name, for people."""
        if self.offer is not None:
            return f"a new {machine_type(self.site.labels)}"
        return f"node {self.site.name}, which is deleted," if self.price else f"node {self.site.name}"


class FreePlaces:
    """Nodes that remain or are booted, with the room that is left there, and offers that can still be had."""

    def __init__(self, view: PlanView) -> None:
        self._view = view
        self._arrivals = ArrivalRules(view)
        self._sites = {name: site for name, site in view.sites.items() if _open(view, site)}
        self._rooms: dict[str, Amounts] = {}
        """Room of nodes that was asked for, or that has changed."""
        self._added: dict[str, list[Pod]] = {}
        self._left = left_over(view)
        self._booted = Counter[str]()
        self._gone: set[str] = set()
        self._spot = spot_books(view)

    @cached_property
    def _deleted(self) -> dict[str, FreePlace]:
        """Nodes that the plan deletes and that could be kept, by name."""
        view = self._view
        return {
            site.name: FreePlace(site, None, round(node.usd_per_hour * MICRO))
            for node in view.plan.nodes
            if (site := view.deleted.get(node.name)) is not None and _open(view, site) and self._lonely(site)
        }

    def _lonely(self, site: Site) -> bool:
        """Return whether no rule between pods is about those that go with a node and would be back with it."""
        return all(self._arrivals.concerns_nobody(pod) for pod in unlisted(self._view.cluster, site.name))

    def find(self, pod: Pod) -> FreePlace | None:
        """Return a place for the pod: on a node first, else the cheapest of new nodes and those to be deleted."""
        place = self.find_free(pod, lambda _: True)
        if place is not None:
            return place
        return next((one for one in self._dearer() if self._holds(pod, one.site, one.site.room)), None)

    def find_free(self, pod: Pod, among: Callable[[Site], bool]) -> FreePlace | None:
        """Return a place for the pod on one of these nodes that remain or are booted in any case."""
        for name, site in self._sites.items():
            if among(site) and self._holds(pod, site, self._room(name)):
                return FreePlace(site, None)
        return None

    def _room(self, name: str) -> Amounts:
        if name not in self._rooms:
            self._rooms[name] = subtract(self._sites[name].room, _taken(self._view, name))
        return self._rooms[name]

    def _dearer(self) -> Iterator[FreePlace]:
        """Places that would have to be paid for, the cheapest first; of equal ones nodes that are there already."""
        view, fresh = self._view, self._new_name()
        ranked = [(one.price, False, name) for name, one in self._deleted.items()]
        on_sale = (one for one in view.offers.values() if (left := self._left[one.name]) is None or left > 0)
        ranked += [(one.micro_usd_per_hour, True, one.name) for one in on_sale]
        for price, sold, name in sorted(ranked):
            if sold:
                yield FreePlace(boot_site(view.cluster, view.offers[name], fresh), view.offers[name], price)
            else:
                yield self._deleted[name]

    def find_instead(self, pod: Pod, others: Mapping[str, Sequence[Pod]]) -> tuple[FreePlace, tuple[Pod, ...]] | None:
        """Return a node that could hold the pod without some of `others`, and those: as few as possible.

        They are tried in their order. Only pods that no rule between pods concerns are taken away, so that none breaks.
        """
        best: tuple[int, str, FreePlace, tuple[Pod, ...]] | None = None
        asked = asks(self._view, pod, pod.requests)
        for name, site in self._sites.items():
            gone: list[Pod] = []
            room = self._room(name)
            for other in others.get(name, ()):
                if not fits(asked, room) and self._arrivals.concerns_nobody(other):
                    gone.append(other)
                    room = add(room, asks(self._view, other, other.requests))
            if gone and (best is None or (len(gone), name) < best[:2]) and self._holds(pod, site, room):
                best = (len(gone), name, FreePlace(site, None), tuple(gone))
        return None if best is None else best[2:]

    def give_up(self, pod: Pod, name: str) -> None:
        """Take a pod's place on a node of the plan from it."""
        self._rooms[name] = add(self._room(name), asks(self._view, pod, pod.requests))
        self._gone.add(pod.key)
        self._spot.add(pod, spot_pool(self._sites[name]), -1)
        self._arrivals.leave(pod)

    def take(self, pod: Pod, vacancy: FreePlace) -> None:
        """Give the place that was found to the pod."""
        site, offer, _ = vacancy
        if site.name not in self._sites:
            self._sites[site.name], self._rooms[site.name] = site, site.room
            self._deleted.pop(site.name, None)
        if offer is not None:
            self._booted[offer.name] += 1
            self._left = left_over(self._view, more=self._booted)
        self._rooms[site.name] = subtract(self._room(site.name), asks(self._view, pod, pod.requests))
        self._added.setdefault(site.name, []).append(pod)
        self._spot.add(pod, spot_pool(site))
        self._arrivals.seat(pod, name=site.name, labels=site.labels, taints=site.taints)

    def _new_name(self) -> str:
        taken = {node.name for node in self._view.plan.nodes} | self._sites.keys()
        version, number = self._view.cluster.version, len(self._view.plan.nodes) + self._booted.total()
        while f"kinema-{version}-{number}" in taken:
            number += 1
        return f"kinema-{version}-{number}"

    def _holds(self, pod: Pod, site: Site, room: Amounts) -> bool:
        view = self._view
        return (
            fits(asks(view, pod, pod.requests), room)
            and spot_is_fine(view, pod, site)
            and self._spot.admits(pod, spot_pool(site))
            and node_admits(pod.rules, name=site.name, labels=site.labels, taints=site.taints) is None
            and volume_refuses(view.cluster, pod, name=site.name, labels=site.labels) is None
            and ending_refuses(view.cluster, pod, site.labels) is None
            and not ports_clash(pod.rules.host_ports, site.ports)
            and not any(ports_clash(pod.rules.host_ports, other.rules.host_ports) for other in self._there(pod, site))
            and self._arrivals.refuses(pod, name=site.name, labels=site.labels, taints=site.taints) is None
        )

    def _there(self, pod: Pod, site: Site) -> Iterable[Pod]:
        """Return the other pods of the node, for a pod that wants a port."""
        if not pod.rules.host_ports:
            return ()
        seats = self._view.seats_by_node.get(site.name, ())
        seated = [seat.pod for seat in seats if seat.key not in self._gone]
        return [*seated, *unlisted(self._view.cluster, site.name), *self._added.get(site.name, ())]


def asks(view: PlanView, pod: Pod, requests: Amounts) -> Amounts:
    """Return what the pod takes of its node: attachments of its volumes too."""
    return with_attachments(view.cluster, pod, requests)


def spot_is_fine(view: PlanView, pod: Pod, site: Site) -> bool:
    """Return whether the site is no spot capacity, or the pod may be put there."""
    return not site.spot or spot_allowed(view.cluster, pod, taint_keys=site.spot_keys, options=view.options)


def _open(view: PlanView, site: Site) -> bool:
    return not site.live or site.name in view.mobility.open_nodes


def _taken(view: PlanView, name: str) -> Amounts:
    return total(asks(view, seat.pod, seat.requests) for seat in view.seats_by_node.get(name, ()))
