"""Classes of pods and the places for them, in arrays: what both forms of the problem are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kinema_core.events import Resize
from kinema_core.model.resources import total
from kinema_core.model.stock import most_of
from kinema_optimizer.problem.admission import Site
from kinema_optimizer.problem.arrays import Flags, Ints, frozen, most_that_fit
from kinema_optimizer.problem.pods import Mover, movers_of, resizes_of, resources_of, room_vector, vector
from kinema_optimizer.problem.question import Question, Sites
from kinema_optimizer.problem.rules.reduced import (
    NO_DEMAND,
    UNTAGGED,
    MoveGroup,
    ReducedRules,
    RuleTags,
    TopologyDemand,
)
from kinema_optimizer.problem.rules.redundancy import with_redundancy
from kinema_optimizer.problem.rules.spot_share import open_by_pools


@dataclass(frozen=True, eq=False)
class Draft:
    """Classes, and rooms of nodes and offers; sites are all nodes, then all offers. `K` distinct kinds of admission."""

    question: Question
    sites: Sites
    resizes: tuple[Resize, ...]
    resources: tuple[str, ...]
    members: tuple[tuple[Mover, ...], ...]
    """Per class, in the order of their keys."""
    requests: Ints
    """(C, R)"""
    kinds: Ints
    """(C,): which admission."""
    marks: tuple[RuleTags, ...]
    """Per class."""
    disruption_costs: Ints
    """(C,): what the restart of one pod counts, in thousandths of an ordinary one."""
    admits: Flags
    """(K, S): where pods of a kind may newly be, by every rule but limits and bans on single nodes."""
    could: Flags
    """(K, S): where they might be if other pods were elsewhere: by rules about nodes alone."""
    node_room: Ints
    """(E, R): free for newcomers; negative where a node is overfull."""
    offer_room: Ints
    """(O, R)"""
    undivided: Draft | None = None
    """The draft with classes that redundancy has not divided; None where it has divided none."""

    @classmethod
    def of(cls, question: Question, sites: Sites) -> Draft:
        """Classes by requests, admission and part in rules between pods, in the order of their first pods."""
        forecasts = question.forecasts if question.mode == "reschedule" else ()
        resizes = resizes_of(question.cluster, sites.mobility, forecasts, sites.ties.restricted)
        movers = movers_of(question.cluster, sites.mobility, question.mode, resizes, sites.ties.restricted)
        whole = cls._of(replace(question, apart=frozenset()), sites, resizes, movers)
        first = cls._of(question, sites, resizes, movers) if question.apart else whole
        ties = with_redundancy(question, sites, first.members)
        if ties is sites.ties:
            return whole
        found = cls._of(question, replace(sites, ties=ties), resizes, movers)
        return found if len(found.members) == len(whole.members) else replace(found, undivided=whole)

    @classmethod
    def _of(cls, question: Question, sites: Sites, resizes: tuple[Resize, ...], movers: tuple[Mover, ...]) -> Draft:
        stated = {id(mover.requests): mover.requests for mover in movers}  # most pods share theirs with others
        resources = resources_of(stated.values())
        kinds, found = _grouped(question, sites, movers, {one: vector(stated[one], resources) for one in stated})
        pods = Counter(id(mover.requests) for mover in movers)
        most = {name: sum(pods[one] * stated[one].get(name, 0) for one in stated) for name in resources}
        every = (*sites.nodes, *sites.offers)
        could = np.array([sites.admission.vector(row) for row, _ in kinds], dtype=bool).reshape(len(kinds), len(every))
        on_demand = np.array([need.on_demand for _, need in kinds], dtype=bool)
        could[on_demand] &= np.array([not site.spot for site in every], dtype=bool)
        return cls(
            question=question,
            sites=sites,
            resizes=resizes,
            resources=resources,
            members=tuple(tuple(movers) for movers in found.values()),
            requests=frozen([alike.requests for alike in found], (len(found), len(resources))),
            kinds=frozen([alike.kind for alike in found], (len(found),)),
            marks=tuple(alike.marks for alike in found),
            disruption_costs=frozen([alike.disruption_cost for alike in found], (len(found),)),
            admits=_admitted(could, [need for _, need in kinds], sites),
            could=could,
            node_room=_rooms(sites.nodes, resources, most),
            offer_room=_rooms(sites.offers, resources, most),
        )

    def with_groups(self, groups: Sequence[MoveGroup]) -> Draft:
        """Return the draft with each of these groups as one pod, in classes after all others."""
        index = {mover.pod.key: (c, mover) for c, members in enumerate(self.members) for mover in members}
        grouped = {key for group in groups for key in group.pods}
        kinds: dict[tuple[tuple[int, ...], TopologyDemand], int] = {}
        found: dict[tuple[object, ...], list[Mover]] = {}
        classes: list[tuple[Ints, int, RuleTags, int]] = []
        for group in groups:
            pods = [index[key] for key in group.pods]
            mine = [c for c, _ in pods]
            rows = tuple(sorted(set(self.kinds[mine].tolist())))
            kind = kinds.setdefault((rows, _need_of(self.sites.ties, group)), len(kinds))
            marks = _marks_of([self.marks[c] for c in mine])
            requests, disruption_cost = self.requests[mine].sum(axis=0), int(self.disruption_costs[mine].sum())
            alike = (requests.tobytes(), kind, marks, disruption_cost)
            if alike not in found:
                classes.append((requests, len(self.admits) + kind, marks, disruption_cost))
            found.setdefault(alike, []).append(_as_one([mover for _, mover in pods], disruption_cost))
        could = np.array([self.could[list(rows)].all(axis=0) for rows, _ in kinds], dtype=bool)
        admits = _admitted(could, [need for _, need in kinds], self.sites)
        alone = tuple(tuple(one for one in members if one.pod.key not in grouped) for members in self.members)
        return replace(
            self,
            members=(*alone, *(tuple(movers) for movers in found.values())),
            requests=np.concatenate([self.requests, [one[0] for one in classes]]),
            kinds=np.concatenate([self.kinds, [one[1] for one in classes]]),
            marks=(*self.marks, *(one[2] for one in classes)),
            disruption_costs=np.concatenate([self.disruption_costs, [one[3] for one in classes]]),
            admits=np.concatenate([self.admits, admits]),
            could=np.concatenate([self.could, could]),
        )

    @cached_property
    def offer_fits(self) -> Ints:
        """(O, C): most pods of a class that fit into a new node of each offer, rules aside."""
        fits = np.array([most_that_fit(self.requests, room) for room in self.offer_room], dtype=np.int64)
        return fits.reshape(len(self.offer_room), len(self.requests))

    @cached_property
    def banned(self) -> Mapping[int, Flags]:
        """(C,) per site that rules out classes for the sake of pods that stay there or come with it."""
        found: dict[int, Flags] = {}
        known: dict[object, Flags] = {}
        for index, site in enumerate((*self.sites.nodes, *self.sites.offers)):
            bans = self.sites.ties.bans.get(site.name)
            if bans:
                if bans not in known:
                    mine = [any(ban.rule in getattr(marks, ban.what) for ban in bans) for marks in self.marks]
                    known[bans] = np.array(mine, dtype=bool)
                found[index] = known[bans]
        return found

    def admitted(self, index: int) -> Flags:
        """(C,): classes that a site admits by every rule, room and other newcomers aside."""
        found: Flags = self.admits[self.kinds, index]
        return found & ~self.banned[index] if index in self.banned else found

    @cached_property
    def placeable(self) -> tuple[bool, ...]:
        """Per class, whether a node or an offer that can be had holds at least one of its pods."""
        nodes = len(self.sites.nodes)
        found = np.zeros(len(self.requests), dtype=bool)
        for index, offer in enumerate(self.question.offers):
            if most_of(offer) != 0:
                found |= self.admitted(nodes + index) & (self.offer_fits[index] > 0)
        for c in np.flatnonzero(~found).tolist():
            request = self.requests[c]
            fits = ((request == 0) | (request <= self.node_room)).all(axis=1) & self.admits[self.kinds[c], :nodes]
            found[c] = any(e not in self.banned or not self.banned[e][c] for e in np.flatnonzero(fits).tolist())
        return tuple(found.tolist())

    def hopeless(self) -> frozenset[str]:
        """Workloads whose pods nothing holds at the size that a forecast gives them."""
        resized = frozenset(one.workload for one in self.resizes)
        if not resized:
            return frozenset()
        found = set()
        for members, placeable in zip(self.members, self.placeable, strict=True):
            for mover in () if placeable else members:
                found |= {mover.workload} & resized
        return frozenset(found)

    @cached_property
    def taken(self) -> Ints:
        """(E, R): what movable pods take of each node now."""
        return self._taken_by(mover for movers in self.members for mover in movers)

    @cached_property
    def replaced(self) -> Ints:
        """(E, R): of that, what pods take that are replaced by others of another size."""
        return self._taken_by(mover for movers in self.members for mover in movers if mover.role == "rolled")

    def _taken_by(self, movers: Iterable[Mover]) -> Ints:
        index = {node.name: e for e, node in enumerate(self.question.cluster.nodes)}
        taken = np.zeros_like(self.node_room)
        for mover in movers:
            if mover.pod.node is not None:
                taken[index[mover.pod.node]] += np.array(vector(mover.takes, self.resources), dtype=np.int64)
        return taken


class _Alike(NamedTuple):
    """What pods of one class have in common."""

    requests: tuple[int, ...]
    kind: int
    """Of admission."""
    marks: RuleTags
    rank: int
    disruption_cost: int
    workload: str
    """Of workloads with classes of their own."""


def _grouped(
    question: Question, sites: Sites, movers: Sequence[Mover], vectors: Mapping[int, tuple[int, ...]]
) -> tuple[dict[tuple[int, TopologyDemand], int], dict[_Alike, list[Mover]]]:
    """Return the number of each kind of admission, and the classes in the order of their first pods.

    `vectors` are the requests in the order of the resources, by the identity of what a pod states.
    """
    ranked = _ranks(movers)
    kinds: dict[tuple[int, TopologyDemand], int] = {}
    found: dict[_Alike, list[Mover]] = {}
    ties, admission = sites.ties, sites.admission
    for mover in movers:
        key = mover.pod.key
        alike = _Alike(
            requests=vectors[id(mover.requests)],
            kind=kinds.setdefault((admission.row(mover.pod), ties.needs.get(key, NO_DEMAND)), len(kinds)),
            marks=ties.marks.get(key, UNTAGGED),
            rank=mover.pod.priority if ranked else 0,
            disruption_cost=mover.disruption_cost,
            workload=mover.workload if mover.workload in question.apart else "",
        )
        found.setdefault(alike, []).append(mover)
    return kinds, found


def _need_of(ties: ReducedRules, group: MoveGroup) -> TopologyDemand:
    """Return where all of a group's pods may be at once, their company on their node aside."""
    needs = [ties.needs.get(key, NO_DEMAND) for key in group.pods]
    pins = {pin for need in needs for pin in need.pins}
    pools = [need.pools for need in needs if need.pools is not None]
    common = frozenset.intersection(*pools) if pools else None
    return TopologyDemand(tuple(sorted(pins, key=lambda pin: (pin[0], pin[1] or ""))), group.nodes, common)


def _marks_of(marks: Sequence[RuleTags]) -> RuleTags:
    """Every part of them in a rule. They leave their node only when it is deleted, for each other's sake."""
    return RuleTags(
        keeps_away=frozenset[int]().union(*(one.keeps_away for one in marks)),
        kept_away=frozenset[int]().union(*(one.kept_away for one in marks)),
        counted=frozenset[int]().union(*(one.counted for one in marks)),
        affinity_target=True,
    )


def _as_one(movers: Sequence[Mover], disruption_cost: int) -> Mover:
    """Return the first of the movers with the others in its train."""
    requests, takes = (total(one) for one in ([mover.requests for mover in movers], [mover.takes for mover in movers]))
    return replace(
        movers[0],
        requests=requests,
        takes=takes,
        disruption_cost=disruption_cost,
        others=tuple(one.pod for one in movers[1:]),
    )


def _ranks(movers: Sequence[Mover]) -> bool:
    """Return whether pending pods compete by priority: then no class mixes priorities."""
    return len({mover.pod.priority for mover in movers if mover.pod.node is None}) > 1


def _admitted(could: Flags, needs: Sequence[TopologyDemand], sites: Sites) -> Flags:
    """(K, S): `could`, with the demands of rules between pods and without closed offers."""
    every = (*sites.nodes, *sites.offers)
    open_ = np.array([site.name not in sites.ties.closed for site in every], dtype=bool)
    found: Flags = could & open_
    pinned: dict[object, Flags] = {}
    index = sites.admission.index
    for row, need in enumerate(needs):
        for pin in need.pins:
            if pin not in pinned:
                pinned[pin] = index.labeled(*pin)
            found[row] &= pinned[pin]
        if need.nodes is not None:
            live = len(sites.nodes)
            found[row] &= [e < live and site.name in need.nodes for e, site in enumerate(every)]
        if need.pools is not None:
            if need.pools not in pinned:
                pinned[need.pools] = open_by_pools(every, need.pools)
            found[row] &= pinned[need.pools]
    return found


def _rooms(sites: Sequence[Site], resources: tuple[str, ...], most: Mapping[str, int]) -> Ints:
    rooms = [room_vector(site.room, resources, most) for site in sites]
    return frozen(rooms, (len(sites), len(resources)))
