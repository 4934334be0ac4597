"""Redundancy in a plan of any method: `redundant` mends an outcome that brings a workload together.

The search and the aggregated model count pods by class; of which workload a pod is they do not know, as that would
multiply the classes. Which pod of a class takes which seat costs nothing, so that pods of one class change seats first.
Else a pod that moves anyway goes to room that another node has left. Else a node stays that was to go, the cheapest.
The exact model has the rule itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from kinema_core.model.catalog import UNKNOWN, machine_of
from kinema_core.model.checker.free_places import FreePlaces
from kinema_core.model.checker.view import Site, view_of
from kinema_core.model.mobility import listed_by_key
from kinema_core.model.redundancy import Redundancy, live_zone, redundancy_of, shortfalls
from kinema_optimizer.planning.plan import Outcome, build_plan, keeping, new_names, nothing, without_moves
from kinema_optimizer.problem.compile import Compiled

_ROUNDS: Final = 6
"""Times that nodes are kept: each time all that stays there may bring others together."""


def redundant(problem: Compiled, outcome: Outcome) -> Outcome:
    """Return the outcome in which every workload keeps its redundancy; itself where none loses it, or may."""
    if not problem.question.options.redundancy or problem.question.mode == "autoscale":
        return outcome
    for _ in range(_ROUNDS):
        seats = _Seats.of(problem, outcome)
        if not seats.broken():
            return outcome
        outcome = _with_kept_nodes(problem, _rearranged(problem, outcome, seats), seats)
    lost = {key for workload in _Seats.of(problem, outcome).broken() for key in _pods(problem, workload)}
    outcome = without_moves(problem, outcome, lost & outcome.targets.keys())
    return nothing(problem) if _Seats.of(problem, outcome).broken() else outcome


def _pods(problem: Compiled, workload: str) -> Iterator[str]:
    return (pod.key for pod in problem.question.cluster.pods_by_workload[workload])


@dataclass
class _Seats:
    """Where every pod is after an outcome, and what workloads need; changes as pods change places."""

    problem: Compiled
    places: dict[str, str]
    """Pod key → node."""
    zones: Mapping[str, str]
    needs: dict[str, Redundancy | None] = field(default_factory=dict)
    """Of workloads that were looked at."""

    @classmethod
    def of(cls, problem: Compiled, outcome: Outcome) -> _Seats:
        """Return the seats of an outcome."""
        cluster = problem.question.cluster
        places = {key: pod.node for key, pod in listed_by_key(cluster).items() if pod.node is not None}
        zones = {node.name: machine_of(node)[1] for node in cluster.nodes}
        booted = zip(islice(new_names(cluster), len(outcome.boots)), outcome.boots, strict=True)
        zones |= {name: alike[0].zone for name, alike in booted}
        return cls(problem, {**places, **outcome.targets}, zones)

    def zone_of(self, name: str) -> str:
        """Return the zone of a live or new node."""
        return self.zones.get(name, UNKNOWN)

    def broken(self) -> list[str]:
        """Return the workloads that lose their redundancy, by key."""
        return [one.workload for one in shortfalls(self.problem.question.cluster, self.places, self.zone_of)]

    def workload_of(self, key: str) -> str | None:
        """Return the workload of a pod."""
        cluster = self.problem.question.cluster
        return cluster.controller_key_of(cluster.pods_by_key[key])

    def nodes_of(self, workload: str, moved: Mapping[str, str] | None = None) -> list[str]:
        """Return the node of each pod of a workload, with some of them moved."""
        places = self.places if moved is None else {**self.places, **moved}
        return [places[key] for key in _pods(self.problem, workload) if key in places]

    def keeps(self, workload: str | None, moved: Mapping[str, str]) -> bool:
        """Return whether a workload has its redundancy once these pods have moved."""
        if workload is None:
            return True
        if workload not in self.needs:
            cluster = self.problem.question.cluster
            self.needs[workload] = redundancy_of(cluster, workload, live_zone(cluster))
        needed = self.needs[workload]
        own = {key: to for key, to in moved.items() if self.workload_of(key) == workload}
        return needed is None or needed.met(self._nodes_with(workload, own), self.zone_of)

    def _nodes_with(self, workload: str, own: Mapping[str, str]) -> list[str]:
        keys = [key for key in _pods(self.problem, workload) if key in self.places]
        return [own.get(key, self.places[key]) for key in keys]

    def helps(self, workload: str, key: str, to: str) -> bool:
        """Return whether a pod on another node adds a node or a zone to its workload and takes none away."""
        before = self.nodes_of(workload)
        after = self._nodes_with(workload, {key: to})
        one, other = ({self.zone_of(name) for name in nodes} for nodes in (before, after))
        more = (len(set(after)) - len(set(before)), len(other) - len(one))
        return min(more) >= 0 and max(more) > 0


def _rearranged(problem: Compiled, outcome: Outcome, seats: _Seats) -> Outcome:
    """Return the outcome with pods that move anyway on other nodes, as far as that helps."""
    by_class, class_of = _moving_by_class(problem, outcome)
    targets = dict(outcome.targets)
    rest = []
    for workload in seats.broken():
        for key in sorted(targets.keys() & set(_pods(problem, workload))):
            if not seats.keeps(workload, {}):
                _swap(seats, targets, key, by_class.get(class_of.get(key, -1), ()))
        if not seats.keeps(workload, {}):
            rest.append(workload)
    outcome = replace(outcome, targets=targets)
    return _with_free_room(problem, outcome, seats, rest) if rest else outcome


def _moving_by_class(problem: Compiled, outcome: Outcome) -> tuple[dict[int, list[str]], dict[str, int]]:
    """Return the pods that move one by one, by class, and the class of each."""
    grouped = {key for group in problem.sites.ties.groups for key in group.pods}
    found: dict[int, list[str]] = {}
    for c, members in enumerate(problem.draft.members):
        keys = [one.pod.key for one in members if one.role == "stays" and one.pod.key in outcome.targets]
        found[c] = [key for key in keys if key not in grouped]
    return found, {key: c for c, keys in found.items() for key in keys}


def _swap(seats: _Seats, targets: dict[str, str], key: str, others: list[str] | tuple[()]) -> None:
    """Exchange the pod's seat for that of another one of its class, where that helps and breaks nothing."""
    workload, mine = seats.workload_of(key), targets[key]
    for other in others:
        to = targets[other]
        if to == mine or workload is None or not seats.helps(workload, key, to):
            continue
        moved = {key: to, other: mine}
        second = seats.workload_of(other)
        if second == workload or not seats.keeps(second, moved):
            continue
        if _home(seats, key) == to or _home(seats, other) == mine:
            continue
        targets |= moved
        seats.places |= moved
        return


def _home(seats: _Seats, key: str) -> str | None:
    return seats.problem.question.cluster.pods_by_key[key].node


def _with_free_room(problem: Compiled, outcome: Outcome, seats: _Seats, workloads: list[str]) -> Outcome:
    """Return the outcome with moving pods of these workloads on nodes that have room left."""
    asked, targets = problem.question, dict(outcome.targets)
    view = view_of(build_plan(problem, outcome), asked.cluster, asked.offers, now=asked.now, options=asked.options)
    free = FreePlaces(view)
    for workload in workloads:
        for key in sorted(targets.keys() & set(_pods(problem, workload))):
            if seats.keeps(workload, {}):
                break
            pod = asked.cluster.pods_by_key[key]
            if workload in outcome.updates or workload in view.resized:
                continue
            was = targets[key]
            if asked.cluster.node(was) is None and sum(to == was for to in targets.values()) == 1:
                continue  # nothing would be left on a node that is booted
            free.give_up(pod, was)
            place = free.find_free(pod, _helping(seats, workload, key))
            if place is None:
                place = free.find_free(pod, _named(was))
            if place is None:  # rules let it back on no node: nothing was taken from the others
                return replace(outcome, targets=targets)
            free.take(pod, place)
            targets[key] = seats.places[key] = place.site.name
    return replace(outcome, targets=targets)


def _helping(seats: _Seats, workload: str, key: str) -> Callable[[Site], bool]:
    """Return whether a pod on a node would help its workload."""
    return lambda site: seats.helps(workload, key, site.name)


def _named(name: str) -> Callable[[Site], bool]:
    return lambda site: site.name == name


def _with_kept_nodes(problem: Compiled, outcome: Outcome, seats: _Seats) -> Outcome:
    """Return the outcome with nodes kept for the workloads that still lose their redundancy.

    Of the nodes that their pods are to leave, one after the other stays that serves most workloads for its price.
    """
    cluster, prices = problem.question.cluster, problem.sites.prices
    kept = {node.name for node, keep in zip(cluster.nodes, outcome.keep, strict=True) if keep}
    names: set[str] = set()
    broken = seats.broken()
    while broken:
        wanted: Counter[str] = Counter()
        for workload in broken:
            homes = {key: _home(seats, key) for key in _pods(problem, workload) if key in outcome.targets}
            wanted.update({home for key, home in homes.items() if home and seats.helps(workload, key, home)})
        if not wanted:
            break
        # Pods come to a node that stays in any case: where its own stayed, these would have to stay, and so on.
        best = min(wanted, key=lambda name: (name in kept, prices[name] / wanted[name], name))
        names.add(best)
        seats.places |= {key: best for key in outcome.targets if _home(seats, key) == best}
        broken = [workload for workload in broken if not seats.keeps(workload, {})]
    return keeping(problem, outcome, names) if names else outcome
