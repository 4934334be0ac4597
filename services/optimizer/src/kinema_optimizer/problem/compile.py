"""Compilation of a cluster and its offers to a problem in integers, and the meaning of the problem's indices.

`compiled` is the entry point. Pods are one class when they request the same, the same nodes and offers admit them, and
the same rules between pods concern them. Offers are one machine when price, room and admitted classes are equal, so
that a zone that no pod asks for does not multiply the instance.

`may_release`: of the nodes that have to stay, those whose pods may move, because that makes room for a pending pod.
Others keep their pods: moves between nodes of which none can go save nothing by themselves, and a search that may make
them finds less in the same time (a quarter of a percent of the cost where every twelfth node has to stay).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np

from kinema_core.events import Held, Node, Offer, Pod, Resize
from kinema_core.model.catalog import keeping_unpriced, node_prices
from kinema_core.model.mobility import Mobility, holding, mobility
from kinema_core.model.preferences import is_sociable
from kinema_core.model.resources import lacking, largest
from kinema_core.model.stock import draws, most_of
from kinema_optimizer.problem.admission import Admission, NodePreferences, node_site, offer_site, taint_keys
from kinema_optimizer.problem.arrays import Flags, Ints, frozen
from kinema_optimizer.problem.assemble import build_instance
from kinema_optimizer.problem.classes import Draft
from kinema_optimizer.problem.dense import DenseInstance, dense_instance, unbound
from kinema_optimizer.problem.instance import Instance
from kinema_optimizer.problem.node_types import Machines, machines_of, sizes_of
from kinema_optimizer.problem.pods import Mover, PodClass, class_of, node_room, stuck_updates
from kinema_optimizer.problem.question import Question, Sites
from kinema_optimizer.problem.rules.pending import SitesOnOffer
from kinema_optimizer.problem.rules.reduce import Scene, reduce_rules
from kinema_optimizer.problem.rules.spot_share import with_spot_limits

_NO_ORDER: Final = (
    "no-order",
    "no order of moves brings it to another node: rules, room, ports or volumes of the old pod are in the way",
)
_STILL: Final = "max-moves", "no pod is to move"


@dataclass(frozen=True, eq=False)
class Compiled:
    """A problem in its two forms, each made when it is asked for, and what its indices stand for."""

    draft: Draft
    classes: tuple[PodClass, ...]
    machines: Machines

    @property
    def question(self) -> Question:
        """Return what was asked."""
        return self.draft.question

    @property
    def sites(self) -> Sites:
        """Live nodes and offers as places for pods, and what may move."""
        return self.draft.sites

    @property
    def offers(self) -> tuple[tuple[Offer, ...], ...]:
        """Per machine, the offers that are alike."""
        return self.machines.offers

    @property
    def resizes(self) -> tuple[Resize, ...]:
        """Return the forecasts that the plan applies."""
        return self.draft.resizes

    @cached_property
    def updates(self) -> tuple[str, ...]:
        """Workloads that move by rolling update: those of the dense form's rollouts."""
        return tuple(sorted({mover.workload for one in self.classes for mover in one.updated}))

    @cached_property
    def homeless(self) -> tuple[tuple[int, Mover], ...]:
        """Pending pods that no node has room for and no offer can hold, each with its class."""
        return tuple(
            (c, mover)
            for c, (movers, fits) in enumerate(zip(self.draft.members, self.draft.placeable, strict=True))
            for mover in movers
            if mover.role == "pending" and not fits
        )

    def refusal(self, c: int, mover: Mover) -> tuple[str, str]:
        """Code and reason why a pending pod of class `c` has no place: what the nearest offer lacks, or rules."""
        sites = self.sites
        nodes = len(sites.nodes)
        fits = np.array([not lacking(mover.requests, site.room) for site in (*sites.nodes, *sites.offers)], dtype=bool)
        on_sale = [most_of(offer) != 0 for offer in self.question.offers]
        open_ = np.array([True] * nodes + on_sale, dtype=bool)
        if (sites.admission.vector(sites.admission.row(mover.pod)) & fits & open_).any():
            return (
                "pod-rules",
                "rules between pods (affinity, anti-affinity, spread or spot shares) leave no place for it",
            )
        return sites.admission.refusal(mover.pod, mover.requests, sites.offers)

    @cached_property
    def priority(self) -> Ints:
        """(C,): the highest priority of a class's pods; where those of pending pods differ, no class mixes any."""
        found = [max((mover.pod.priority for mover in movers), default=0) for movers in self.draft.members]
        return frozen(found, (len(found),))

    @cached_property
    def node_preferences(self) -> NodePreferences:
        """Return what pods prefer of nodes and offers."""
        return NodePreferences(self.sites.nodes, self.sites.offers)

    @cached_property
    def with_node_preferences(self) -> Mapping[str, tuple[int, Pod]]:
        """Pods that could go somewhere and prefer some nodes, with their class, by key."""
        movers = ((c, mover.pod) for c, members in enumerate(self.draft.members) for mover in members)
        return {pod.key: (c, pod) for c, pod in movers if self.node_preferences.points(pod) is not None}

    @cached_property
    def with_pod_preferences(self) -> Mapping[str, tuple[int, Pod]]:
        """Pods that could go somewhere and prefer the company of some pods, or none of it, with their class, by key."""
        movers = ((c, mover.pod) for c, members in enumerate(self.draft.members) for mover in members)
        return {pod.key: (c, pod) for c, pod in movers if is_sociable(pod.rules)}

    @property
    def restricted(self) -> Mapping[str, Held]:
        """Bound pods that the reduction of rules keeps where they are, though they might move, by key."""
        return self.sites.ties.restricted

    @cached_property
    def kept_by_packing(self) -> Mapping[str, Held]:
        """Bound pods that `packing` keeps where they are: `restricted`, and those that move by rolling update only."""
        rolling = [mover.pod.key for one in self.classes for mover in one.updated]
        why = "it moves by rolling update only, which plans of this size do not weigh"
        found = {key: Held(pod=key, code="rolling-update", reason=why) for key in rolling}
        return MappingProxyType({**found, **self.restricted})

    @cached_property
    def problem(self) -> DenseInstance:
        """Return the dense form: nodes times classes, with rolling updates."""
        fixed = self._fixed(self.restricted)
        problem = build_instance(
            self.draft,
            self.classes,
            self.machines,
            fixed=fixed,
            bound=np.ones_like(fixed),
            free=False,
            updates=self.updates,
        )
        return dense_instance(
            problem,
            self._relaxed,
            node_size=_sizes(self.draft, self.question.cluster.nodes),
            machine_size=_sizes(self.draft, [same[0] for same in self.offers]),
        )

    @cached_property
    def unbound(self) -> DenseInstance:
        """Return the dense form without the rules that this reduction adds; pods on kept nodes may leave them."""
        return unbound(self.problem, self._relaxed)

    @cached_property
    def grouped(self) -> Compiled:
        """Return the same with pods that leave their node only together as one: what the classes of `packing` are."""
        if not self.sites.ties.groups:
            return self
        cluster, fixed = self.question.cluster, self._fixed(self.kept_by_packing)
        free = {node.name for node, stays in zip(cluster.nodes, fixed.tolist(), strict=True) if not stays}
        groups = [group for group in self.sites.ties.groups if cluster.pods_by_key[group.pods[0]].node in free]
        return _finished(self.draft.with_groups(groups)) if groups else self

    @cached_property
    def packing(self) -> Instance:
        """Return the sparse form."""
        made, kept = self.grouped, self.kept_by_packing
        fixed = self._fixed(kept)
        pending = np.array([len(one.pending) for one in made.classes], dtype=np.int64)
        bound = fixed & ~may_release(made.draft, pending, fixed & ~self._pinned(kept))
        return build_instance(made.draft, made.classes, made.machines, fixed=fixed, bound=bound, free=False)

    @cached_property
    def relaxed(self) -> Instance:
        """Return the sparse form with rules about nodes only: no plan of any kind costs less than its optimum.

        Its classes are those that redundancy has not divided.
        """
        whole = self.draft.undivided
        return self._relaxed if whole is None else _finished(whole)._relaxed

    @cached_property
    def _relaxed(self) -> Instance:
        fixed = self._fixed(None)
        free = np.zeros_like(fixed)
        return build_instance(self.draft, self.classes, self.machines, fixed=fixed, bound=free, free=True)

    def _fixed(self, kept: Mapping[str, Held] | None) -> Flags:
        """(E,): nodes that must stay: by mobility, for rolling updates that may not be, and, unless None, for `kept`.

        None asks for what holds whatever the reduction of rules.
        """
        cluster, facts = self.question.cluster, self.sites.mobility
        others = {} if kept is None else self.sites.ties.fixed
        pinning = self.sites.ties.immovable if kept is None else kept
        adds_only = self.question.mode == "autoscale"
        return np.array(
            [
                adds_only or facts.deletable[node.name] is not None or pinned or node.name in others
                for node, pinned in zip(cluster.nodes, self._pinned(pinning).tolist(), strict=True)
            ],
            dtype=bool,
        )

    def _pinned(self, kept: Mapping[str, Held]) -> Flags:
        """(E,): nodes of `kept` pods and of pods whose rolling update may not be."""
        cluster = self.question.cluster
        stuck = stuck_updates(cluster, self.sites.mobility)
        pinned = {pod.node for key in stuck for pod in cluster.pods_by_workload[key]}
        pinned |= {pod.node for key in kept if (pod := cluster.pod(key)) is not None}
        return np.array([node.name in pinned for node in cluster.nodes], dtype=bool)


def compiled(question: Question) -> Compiled:
    """Return the problem that a question comes to; a forecast for pods that nothing could hold is left out.

    Raises:
        PriceError: no live node has a price; all of them are named.
    """
    sites = sites_of(question)
    while True:
        draft = Draft.of(question, sites)
        hopeless = draft.hopeless()
        if not hopeless:
            return _finished(draft)
        kept = tuple(one for one in question.forecasts if one.workload not in hopeless)
        question = replace(question, forecasts=kept)


def sites_of(question: Question) -> Sites:
    """Return live nodes and offers as places for pods, what may move, and the reduced rules between pods.

    Raises:
        PriceError: no live node has a price; all of them are named.
    """
    cluster, percent = question.cluster, question.percent
    prices = node_prices(cluster, question.offers)
    facts = keeping_unpriced(mobility(cluster, question.now, question.options), cluster, question.offers)
    facts = holding(facts, cluster, _held_back(question, facts))
    on_sale = taint_keys(question.offers)
    nodes = tuple(
        node_site(
            node,
            room=node_room(cluster, node, percent=percent),
            open_=node.name in facts.open_nodes,
            on_sale=on_sale,
        )
        for node in cluster.nodes
    )
    offers = tuple(offer_site(offer, cluster, percent=percent) for offer in question.offers)
    admission = Admission(cluster, question.options, (*nodes, *offers))
    market = SitesOnOffer(
        sites=(*nodes, *offers),
        live=len(nodes),
        closed=frozenset(),
        unlimited=frozenset(offer.name for offer in question.offers if not draws(offer)),
        admission=admission,
        resized=frozenset(one.workload for one in question.forecasts),
        rolling=frozenset(key for key, strategy in facts.strategy.items() if strategy == "rolling"),
    )
    scene = Scene(cluster, facts, question.mode, market)
    each = [*(prices[node.name] for node in cluster.nodes), *(one.micro_usd_per_hour for one in question.offers)]
    ties = with_spot_limits(reduce_rules(scene), scene, question.options, prices=each)
    return Sites(nodes, offers, prices, facts, admission, ties)


def _held_back(question: Question, facts: Mobility) -> dict[str, Held]:
    """Return the pods that the question holds though they might move."""
    code, why = _STILL if question.still else _NO_ORDER
    return {key: Held(pod=key, code=code, reason=why) for key in sorted(question.unmoved & facts.strategy.keys())}


def _finished(draft: Draft) -> Compiled:
    classes = tuple(
        class_of(movers, placeable=fits) for movers, fits in zip(draft.members, draft.placeable, strict=True)
    )
    on_sale = draft.question.offers
    nodes = len(draft.sites.nodes)
    fits = draft.offer_fits > 0
    machines = machines_of(
        on_sale,
        rooms=draft.offer_room,
        admits=[draft.admitted(nodes + index) & fits[index] for index in range(len(on_sale))],
        could=[draft.could[draft.kinds, nodes + index] & fits[index] for index in range(len(on_sale))],
        sizes=_sizes(draft, on_sale),
    )
    return Compiled(draft, classes, machines)


def _sizes(draft: Draft, sites: Iterable[Node | Offer]) -> tuple[int, ...]:
    every: tuple[Node | Offer, ...] = (*draft.question.cluster.nodes, *draft.question.offers)
    return sizes_of([site.allocatable for site in sites], largest(site.allocatable for site in every))


_NODES: Final = 8
"""For each class of pods that wait: those of which the least has to leave."""
_CLASSES: Final = 64
"""Of pods that wait, those that request most; where more kinds wait, new machines are bought anyway."""


def may_release(draft: Draft, pending: Ints, able: Flags) -> Flags:
    """(E,): which of the nodes that are `able` (E,) give pods up.

    Args:
        draft: the classes and rooms.
        pending: (C,) how many pods of each class wait.
        able: nodes that must stay and whose pods may be moved one by one.
    """
    found = np.zeros(len(able), dtype=bool)
    waiting = np.flatnonzero(pending)
    if not waiting.size or not able.any():
        return found
    rooms, most = draft.node_room, draft.node_room + draft.taken
    size = (draft.requests[waiting] / np.maximum(rooms.max(axis=0), 1)).max(axis=1)
    for c in waiting[np.argsort(-size, kind="stable")][:_CLASSES].tolist():
        request = draft.requests[c]
        lack = (np.maximum(request - np.maximum(rooms, 0), 0) / np.maximum(request, 1)).max(axis=1)
        could = able & draft.admits[draft.kinds[c], : len(able)] & ((request == 0) | (request <= most)).all(axis=1)
        could &= lack > 0
        found[np.flatnonzero(could)[np.argsort(lack[could], kind="stable")][:_NODES]] = True
    return found
