"""From a cluster and what is on sale to a `Problem`, and what the problem's indices stand for.

Pods are one class when they request the same and the same nodes and offers admit them. Offers are one machine when
price, room and admitted classes are equal, so that a zone without meaning for anybody does not multiply the problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from kinema_core.events import Mode, Offer, Resize, WorkloadForecast
from kinema_core.model.catalog import node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import Mobility, MobilityOptions, mobility
from kinema_core.model.resources import largest
from kinema_optimizer.logic.admission import Admission, Site, node_site, offer_site
from kinema_optimizer.logic.machines import Machines, machines_of, sizes_of
from kinema_optimizer.logic.movers import Mover, PodClass, class_of, movers_of, resizes_of, stuck_updates
from kinema_optimizer.logic.problem import Flags, Ints, Problem, frozen, most_that_fit, unbound
from kinema_optimizer.logic.rooms import daemon_ports, node_room, resources_of, room_vector, vector, with_ports
from kinema_optimizer.logic.spread import closed_by_spread


@dataclass(frozen=True)
class Question:
    """What is asked of a cluster."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    now: datetime
    mode: Mode
    forecasts: tuple[WorkloadForecast, ...] = ()
    percent: int = 100
    """Ceiling on every node's CPU and memory utilisation: nothing new is placed above it."""
    options: MobilityOptions = field(default_factory=MobilityOptions)


@dataclass(frozen=True)
class Sites:
    """Live nodes and offers as places for pods, and what may move."""

    nodes: tuple[Site, ...]
    offers: tuple[Site, ...]
    prices: Mapping[str, int]
    """Micro-USD per hour of each live node."""
    mobility: Mobility
    admission: Admission


@dataclass(frozen=True)
class Compiled:
    """A problem, and what its indices stand for."""

    question: Question
    sites: Sites
    problem: Problem
    unbound: Problem
    """The problem without the rule that pods on kept nodes stay."""
    taken: Ints
    """(E, R): what movable pods take of each node now."""
    classes: tuple[PodClass, ...]
    offers: tuple[tuple[Offer, ...], ...]
    """Per machine, the offers that are alike."""
    resizes: tuple[Resize, ...]
    updates: tuple[str, ...]
    """Workloads that move by rolling update: those of the problem's rollouts."""
    homeless: tuple[tuple[int, Mover], ...]
    """Pending pods that no node has room for and no offer can hold, each with its class."""


def compiled(question: Question) -> Compiled:
    """The problem that a question comes to; a forecast for pods that nothing could hold is left out.

    Raises:
        PriceError: live nodes have no price; all of them are named.
    """
    sites = _sites(question)
    while True:
        draft = _Draft.of(question, sites)
        hopeless = draft.hopeless()
        if not hopeless:
            return draft.compiled()
        kept = tuple(one for one in question.forecasts if one.workload not in hopeless)
        question = replace(question, forecasts=kept)


def _sites(question: Question) -> Sites:
    cluster, percent = question.cluster, question.percent
    prices = node_prices(cluster, question.offers)
    facts = mobility(cluster, question.now, question.options)
    nodes = tuple(
        node_site(node, room=node_room(cluster, node, percent=percent), open_=node.name in facts.open_nodes)
        for node in cluster.nodes
    )
    offers = tuple(offer_site(offer, cluster, percent=percent) for offer in question.offers)
    closed = closed_by_spread(cluster, offers)
    offers = tuple(replace(site, open=site.name not in closed) for site in offers)
    return Sites(nodes, offers, prices, facts, Admission(cluster, question.options, (*nodes, *offers)))


@dataclass(frozen=True, eq=False)
class _Draft:
    """One attempt: classes, and rooms and limits of nodes and offers; shapes as in `Problem`."""

    question: Question
    sites: Sites
    resizes: tuple[Resize, ...]
    resources: tuple[str, ...]
    members: tuple[tuple[Mover, ...], ...]
    requests: Ints
    admitted: Flags
    """(C, E): by rule, room aside."""
    offer_admitted: Flags
    """(C, O): by rule, room aside."""
    node_room: Ints
    node_limit: Ints
    offer_room: Ints
    offer_limit: Ints

    @classmethod
    def of(cls, question: Question, sites: Sites) -> _Draft:
        """Classes by requests and admission, in the order of their first pods."""
        forecasts = question.forecasts if question.mode == "reschedule" else ()
        resizes = resizes_of(question.cluster, sites.mobility, forecasts)
        movers = movers_of(question.cluster, sites.mobility, question.mode, resizes)
        resources = resources_of(mover.requests for mover in movers)
        found: dict[tuple[tuple[int, ...], tuple[bool, ...]], list[Mover]] = {}
        for mover in movers:
            key = (vector(mover.requests, resources), sites.admission.admits(mover.pod))
            found.setdefault(key, []).append(mover)
        requests = frozen([key[0] for key in found], (len(found), len(resources)))
        admits = np.array([key[1] for key in found], dtype=bool).reshape(len(found), len(sites.nodes + sites.offers))
        most = {name: sum(mover.requests.get(name, 0) for mover in movers) for name in resources}
        node_room = _rooms(sites.nodes, resources, most, frozenset())
        offer_room = _rooms(sites.offers, resources, most, daemon_ports(question.cluster))
        nodes = len(sites.nodes)
        return cls(
            question=question,
            sites=sites,
            resizes=resizes,
            resources=resources,
            members=tuple(tuple(movers) for movers in found.values()),
            requests=requests,
            admitted=admits[:, :nodes],
            offer_admitted=admits[:, nodes:],
            node_room=node_room,
            node_limit=_limits(requests, node_room, admits[:, :nodes]),
            offer_room=offer_room,
            offer_limit=_limits(requests, offer_room, admits[:, nodes:]),
        )

    def _placeable(self) -> list[bool]:
        """Per class, whether a node or an offer that can be had holds at least one of its pods."""
        on_sale = np.array([offer.available != 0 for offer in self.question.offers], dtype=bool)
        homes = self.node_limit.sum(axis=0) + self.offer_limit[on_sale].sum(axis=0)
        return [bool(home) for home in homes > 0]

    def hopeless(self) -> frozenset[str]:
        """Workloads whose pods nothing holds at the size that a forecast gives them."""
        resized = frozenset(one.workload for one in self.resizes)
        found = set()
        for members, placeable in zip(self.members, self._placeable(), strict=True):
            for mover in () if placeable else members:
                workload = self.question.cluster.controller_of(mover.pod)
                found |= {workload.key} & resized if workload is not None else set()
        return frozenset(found)

    def compiled(self) -> Compiled:
        """The finished problem."""
        placeable = self._placeable()
        classes = tuple(class_of(movers, placeable=fits) for movers, fits in zip(self.members, placeable, strict=True))
        live = [node.allocatable for node in self.question.cluster.nodes]
        on_sale = [offer.allocatable for offer in self.question.offers]
        biggest = largest([*live, *on_sale])
        offer_sizes = sizes_of(on_sale, biggest)
        machines = machines_of(
            self.question.offers,
            requests=self.requests,
            totals=frozen([one.size for one in classes], (len(classes),)),
            rooms=self.offer_room,
            limits=self.offer_limit,
            sizes=offer_sizes,
        )
        problem = self._problem(classes, machines, sizes_of(live, biggest), offer_sizes)
        return Compiled(
            question=self.question,
            sites=self.sites,
            problem=problem,
            unbound=self._unbound(problem),
            taken=self._taken_by_movable(),
            classes=classes,
            offers=machines.offers,
            resizes=self.resizes,
            updates=_updates(classes),
            homeless=tuple(
                (c, mover)
                for c, (movers, fits) in enumerate(zip(self.members, placeable, strict=True))
                for mover in movers
                if mover.role == "pending" and not fits
            ),
        )

    def _problem(
        self, classes: Sequence[PodClass], machines: Machines, sizes: Sequence[int], offer_sizes: Sequence[int]
    ) -> Problem:
        nodes, kinds = self.question.cluster.nodes, len(classes)
        counts, fixed = self._counts(classes), self._fixed()
        rows = list(machines.rows)
        prices = [offer.micro_usd_per_hour for offer in self.question.offers]
        return Problem(
            resources=self.resources,
            requests=self.requests,
            pending=frozen([len(one.pending) for one in classes], (kinds,)),
            rolled=frozen([len(one.rolled) for one in classes], (kinds,)),
            nodes=tuple(node.name for node in nodes),
            node_price=frozen([self.sites.prices[node.name] for node in nodes], (len(nodes),)),
            node_room=self.node_room,
            node_limit=self.node_limit,
            node_stays=counts.stays,
            node_old=counts.old,
            rollouts=counts.rollouts,
            node_fixed=fixed,
            node_replaceable=self._replaceable(
                machines, fixed, counts.stays + counts.old + counts.rollouts.sum(axis=0)
            ),
            node_size=frozen(sizes, (len(nodes),)),
            machines=tuple(same[0].name for same in machines.offers),
            machine_price=frozen([prices[row] for row in rows], (len(rows),)),
            machine_room=frozen(self.offer_room[rows], (len(rows), len(self.resources))),
            machine_limit=frozen(self.offer_limit[rows], (len(rows), kinds)),
            machine_count=frozen(machines.count, (len(rows),)),
            machine_size=frozen([offer_sizes[row] for row in rows], (len(rows),)),
            pools=machines.pools,
        )

    def _counts(self, classes: Sequence[PodClass]) -> _Counts:
        nodes = self.question.cluster.nodes
        index = {node.name: e for e, node in enumerate(nodes)}
        workloads = _updates(classes)
        stays = np.zeros((len(nodes), len(classes)), dtype=np.int64)
        old = np.zeros_like(stays)
        rollouts = np.zeros((len(workloads), *stays.shape), dtype=np.int64)
        for c, one in enumerate(classes):
            for mover in one.stays:
                stays[index[mover.pod.node or ""], c] += 1
            for mover in one.rolled:
                old[index[mover.pod.node or ""], c] += 1
            for mover in one.updated:
                rollouts[workloads.index(mover.workload), index[mover.pod.node or ""], c] += 1
        return _Counts(frozen(stays, stays.shape), frozen(old, old.shape), frozen(rollouts, rollouts.shape))

    def _fixed(self) -> Flags:
        """(E,): nodes that must stay, also because of workloads whose rolling update would restart a held pod."""
        cluster, facts = self.question.cluster, self.sites.mobility
        pinned = {pod.node for key in stuck_updates(cluster, facts) for pod in cluster.pods_by_workload[key]}
        adds_only = self.question.mode == "autoscale"
        fixed = [adds_only or facts.deletable[node.name] is not None or node.name in pinned for node in cluster.nodes]
        return np.array(fixed, dtype=bool)

    def _unbound(self, problem: Problem) -> Problem:
        """The problem without the rule that pods on kept nodes stay."""
        room = np.maximum(self.node_room, 0) + self._taken_by_movable()
        limit = np.maximum(_limits(self.requests, room, self.admitted), problem.movable)
        return unbound(problem, stay_room=frozen(room, room.shape), stay_limit=frozen(limit, limit.shape))

    def _replaceable(self, machines: Machines, fixed: Flags, present: Ints) -> Flags:
        """(E,): deletable nodes of which the like, or better for no more money, can be bought without limit."""
        rows = list(machines.rows)
        price = np.array([self.question.offers[row].micro_usd_per_hour for row in rows], dtype=np.int64)
        room = np.maximum(self.node_room, 0) + self._taken_by_movable()
        admits = self.admitted.T | (present > 0)
        found = np.zeros(len(fixed), dtype=bool)
        for e, node in enumerate(self.question.cluster.nodes):
            like = (
                np.array(machines.ample, dtype=bool)
                & (price <= self.sites.prices[node.name])
                & (self.offer_room[rows] >= room[e]).all(axis=1)
                & (self.offer_admitted[:, rows].T | ~admits[e]).all(axis=1)
            )
            found[e] = bool(like.any()) and not fixed[e]
        return found

    def _taken_by_movable(self) -> Ints:
        """(E, R): what movable pods take of each node now."""
        index = {node.name: e for e, node in enumerate(self.question.cluster.nodes)}
        taken = np.zeros_like(self.node_room)
        for movers in self.members:
            for mover in movers:
                if mover.pod.node is not None:
                    now = with_ports(mover.pod.requests, mover.pod)
                    taken[index[mover.pod.node]] += np.array(vector(now, self.resources), dtype=np.int64)
        return taken


@dataclass(frozen=True, eq=False)
class _Counts:
    """Movable pods by where they are; arrays as in `Problem`."""

    stays: Ints
    old: Ints
    rollouts: Ints

    @property
    def present(self) -> Ints:
        """(E, C): all of them."""
        return np.asarray(self.stays + self.old + self.rollouts.sum(axis=0), dtype=np.int64)


def _updates(classes: Sequence[PodClass]) -> tuple[str, ...]:
    return tuple(sorted({mover.workload for one in classes for mover in one.updated}))


def _rooms(sites: Sequence[Site], resources: tuple[str, ...], most: Mapping[str, int], ports: frozenset[str]) -> Ints:
    rooms = [room_vector(site.room, resources, most, ports) for site in sites]
    return frozen(rooms, (len(sites), len(resources)))


def _limits(requests: Ints, rooms: Ints, admits: Flags) -> Ints:
    """(sites, C): most pods of a class that fit into the room of each site that admits them."""
    fits = np.array([most_that_fit(requests, room) for room in rooms], dtype=np.int64)
    return frozen(np.where(admits.T, fits.reshape(len(rooms), len(requests)), 0), (len(rooms), len(requests)))
