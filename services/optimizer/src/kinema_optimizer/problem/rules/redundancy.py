"""Redundancy as a reduced rule between pods: `with_redundancy` states it in pins, marks and caps of classes.

No workload whose pods are on several nodes ends on one, nor in fewer zones than now (`kinema_core.model.redundancy`).
This is a spread with two domains at least, and the reduction is the same as for other spreads:

- One pod for each zone of a workload is pinned to it, unless a pod there cannot leave its zone anyway. Where that would
  divide the classes of more than a hundred workloads that share them, it does not.
- Where zones do not matter, a node takes all pods of a class but one for each workload that has to be apart
  (`caps_by_redundancy`). Which pod of a class takes which seat is free, so that such a class is not divided: however
  its pods are distributed within that cap, there are seats by which each of these workloads is on two nodes, unless
  pods that stay are in the way.
- Pods of which no class has two get an anti-affinity between two of them.

A class that many workloads share is left whole, as each of them alone would be a class for the columns. Zones, and
pods that stay, are then a matter of luck, which is good where there are many pods. A search that had none asks again
with the workload among those of `Question.apart`, which have classes of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from kinema_core.events import Pod
from kinema_core.model.catalog import UNKNOWN, ZONE, zone_in
from kinema_core.model.redundancy import Redundancy, live_zone, redundancy_of, zones_of
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED
from kinema_optimizer.problem.pods import Mover
from kinema_optimizer.problem.question import Question, Sites
from kinema_optimizer.problem.rules.reduced import (
    NO_DEMAND,
    UNTAGGED,
    NodeExclusion,
    ReducedRules,
    RuleTags,
    TopologyDemand,
)
from kinema_optimizer.problem.rules.spot_share import open_by_pools

_DIVIDED: Final = 100
"""Workloads whose classes are divided at once for the sake of zones."""


def is_kept(question: Question) -> bool:
    """Return whether plans for a question keep redundancy."""
    return question.options.redundancy and question.mode == "reschedule"


def with_redundancy(question: Question, sites: Sites, classes: Sequence[Sequence[Mover]]) -> ReducedRules:
    """Return the reduced rules with what redundancy adds to them; `classes` are those without it."""
    if not is_kept(question):
        return sites.ties
    cluster, zone_of = question.cluster, live_zone(question.cluster)
    workloads = {one.workload for members in classes for one in members if one.pod.node is not None and one.workload}
    needs = {key: need for key in sorted(workloads) if (need := redundancy_of(cluster, key, zone_of)) is not None}
    made = _Reduction(question, sites, classes)
    in_zones = sum(need.zones > 1 and not made.is_alone(key) for key, need in needs.items())
    for key, need in needs.items():
        made.add(key, need, divided=in_zones <= _DIVIDED)
    return made.rules()


@dataclass
class _Reduction:
    """Pins, marks and caps found so far."""

    question: Question
    sites: Sites
    classes: Sequence[Sequence[Mover]]
    _class_of: dict[str, int] = field(init=False)
    _own: tuple[bool, ...] = field(init=False)
    """Per class, whether its pods are all of one workload."""
    _pins: dict[str, TopologyDemand] = field(default_factory=dict)
    _marks: dict[str, RuleTags] = field(default_factory=dict)
    _bans: dict[str, frozenset[NodeExclusion]] = field(default_factory=dict)
    _capped: set[str] = field(default_factory=set)
    _shared: set[str] = field(default_factory=set)
    _zones: dict[tuple[int, TopologyDemand], frozenset[str]] = field(default_factory=dict)
    _site_zones: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Index the classes."""
        self._class_of = {one.pod.key: c for c, members in enumerate(self.classes) for one in members}
        self._own = tuple(len({one.workload for one in members}) == 1 for members in self.classes)
        self._site_zones = [zone_in(site.labels) for site in (*self.sites.nodes, *self.sites.offers)]

    def rules(self) -> ReducedRules:
        """Return the rules with all that was added."""
        ties = self.sites.ties
        return replace(
            ties,
            needs=MappingProxyType({**ties.needs, **self._pins}),
            marks=MappingProxyType({**ties.marks, **self._marks}),
            bans=MappingProxyType({**ties.bans, **self._bans}),
            apart=frozenset(self._capped),
            shared=frozenset(self._shared),
        )

    def is_alone(self, workload: str) -> bool:
        """Return whether the pods of a workload share their classes with no others."""
        pods = self.question.cluster.pods_by_workload[workload]
        return all(self._own[self._class_of[pod.key]] for pod in pods if pod.key in self._class_of)

    def add(self, workload: str, need: Redundancy, *, divided: bool) -> None:
        """Add the rule of one workload; `divided`: its classes may be, for the sake of zones."""
        cluster, ties = self.question.cluster, self.sites.ties
        pods = [pod for pod in cluster.pods_by_workload[workload] if pod.node is not None and not pod.terminating]
        movable = {pod.key for pod in pods if pod.key in self._class_of and pod.key not in ties.restricted}
        moving = [pod for pod in pods if pod.key in movable]
        staying = [pod for pod in pods if pod.key not in movable]
        if not moving:
            return
        own = workload in self.question.apart or self.is_alone(workload)
        if need.zones > 1:
            if self._pin_zones(staying, moving, pin=own or divided):
                return
            self._shared.add(workload)
        if len({pod.node for pod in staying}) > 1:
            return
        sizes = Counter(self._class_of[pod.key] for pod in moving)
        if max(sizes.values()) < 2:
            self._keep_apart(moving, staying)
        elif not any(self._excludes_itself(pod) for pod in moving if sizes[self._class_of[pod.key]] > 1):
            self._capped.add(workload)
            self._shared |= set() if own else {workload}

    def _pin_zones(self, staying: Sequence[Pod], moving: Sequence[Pod], *, pin: bool) -> bool:
        """Return whether a pod stays in every zone; one is pinned for each in which none does, where that is wanted."""
        zone_of = live_zone(self.question.cluster)
        covered = set(zones_of((pod.node or "" for pod in staying), zone_of))
        free: dict[str, Pod] = {}
        for pod in moving:
            zone = zone_of(pod.node or "")
            if zone == UNKNOWN:
                continue
            if self._zones_open(pod) == {zone}:
                covered.add(zone)
            free.setdefault(zone, pod)
        for zone in sorted(free.keys() - covered) if pin else ():
            pod = free[zone]
            need = self.sites.ties.needs.get(pod.key, NO_DEMAND)
            pins = {*need.pins, (self._zone_label(pod), zone)}
            self._pins[pod.key] = need._replace(pins=tuple(sorted(pins, key=lambda one: (one[0], one[1] or ""))))
        return pin or free.keys() <= covered

    def _zone_label(self, pod: Pod) -> str:
        node = self.question.cluster.node(pod.node or "")
        return next(key for key in ZONE if node is not None and key in node.labels)

    def _zones_open(self, pod: Pod) -> frozenset[str]:
        """Return the zones in which the pod can be, by rules about nodes and by those between pods."""
        admission, need = self.sites.admission, self.sites.ties.needs.get(pod.key, NO_DEMAND)
        row = admission.row(pod)
        if (row, need) not in self._zones:
            open_ = admission.vector(row).copy()
            for one in need.pins:
                open_ &= admission.index.labeled(*one)
            if need.pools is not None:
                open_ &= open_by_pools((*self.sites.nodes, *self.sites.offers), need.pools)
            self._zones[row, need] = frozenset(self._site_zones[site] for site in np.flatnonzero(open_).tolist())
        return self._zones[row, need]

    def _excludes_itself(self, pod: Pod) -> bool:
        marks = self.sites.ties.marks.get(pod.key, UNTAGGED)
        return bool(marks.keeps_away & marks.kept_away)

    def _keep_apart(self, moving: Sequence[Pod], staying: Sequence[Pod]) -> None:
        """Keep two pods on different nodes apart; one of them may be one that stays."""
        first = moving[0]
        other = next((pod for pod in (*staying, *moving[1:]) if pod.node != first.node), None)
        if other is None:  # all that move share a node: one of them must not come to that of the pod that stays
            return
        rule = -1 - len(self._marks)  # the reduction of the pods' own rules counts from 0
        self._mark(first, rule)
        if other.key in self._class_of and other.key not in self.sites.ties.restricted:
            self._mark(other, rule)
        else:
            known = self._bans.get(other.node or "", self.sites.ties.bans.get(other.node or "", frozenset()))
            self._bans[other.node or ""] = known | {NodeExclusion("keeps_away", rule)}

    def _mark(self, pod: Pod, rule: int) -> None:
        marks = self._marks.get(pod.key, self.sites.ties.marks.get(pod.key, UNTAGGED))
        self._marks[pod.key] = marks._replace(keeps_away=marks.keeps_away | {rule}, kept_away=marks.kept_away | {rule})


def caps_by_redundancy(members: Sequence[Sequence[Mover]], apart: frozenset[str]) -> Ints:
    """(C,): most pods of each class on one node, so that every workload of `apart` can be on two nodes.

    Each of these workloads is counted in the class that most of its pods are of.
    """
    sizes: dict[str, dict[int, int]] = {}
    for c, movers in enumerate(members):
        for one in movers:
            if one.workload in apart and one.role != "pending":
                mine = sizes.setdefault(one.workload, {})
                mine[c] = mine.get(c, 0) + 1
    workloads = Counter(c for mine in sizes.values() if mine[c := max(mine, key=mine.__getitem__)] > 1)
    found = np.full(len(members), UNLIMITED, dtype=np.int64)
    for c, times in workloads.items():
        found[c] = max(1, sum(one.role != "pending" for one in members[c]) - times)
    return found


def caps_in_every_plan(question: Question, members: Sequence[Sequence[Mover]]) -> Ints:
    """(C,): what no plan that keeps redundancy exceeds where a node holds no more of the class now.

    A node with all pods of a class but fewer than there are workloads that are wholly of this class has one of these
    with all its pods.
    """
    found = np.full(len(members), UNLIMITED, dtype=np.int64)
    if not is_kept(question):
        return found
    cluster, zone_of = question.cluster, live_zone(question.cluster)
    for c, movers in enumerate(members):
        sizes = Counter(one.workload for one in movers if one.workload and one.pod.node is not None)
        whole = [
            key
            for key, size in sizes.items()
            if size > 1
            and size == sum(pod.node is not None for pod in cluster.pods_by_workload[key])
            and redundancy_of(cluster, key, zone_of) is not None
        ]
        if whole:
            found[c] = max(1, len(movers) - len(whole))
    return found
