"""Redundancy of the pods of an outcome, which counts them by class: `arranged` chooses their seats, `torn` tests it.

The reduced rules keep workloads on two nodes and in their zones as far as classes can state that
(`problem.rules.redundancy`). Which pod of a class takes which seat costs nothing, and decides the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from kinema_core.model.catalog import UNKNOWN, machine_of
from kinema_core.model.mobility import listed_by_key
from kinema_core.model.redundancy import Redundancy, live_zone, redundancy_of, shortfalls
from kinema_optimizer.planning.plan import Outcome, booted_offers, new_names, nothing, without_moves
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.problem.rules.redundancy import is_kept

_ROUNDS: Final = 6
"""Times that moves are taken out: where nodes stay for them, other pods stay too."""


def arranged(problem: Compiled, outcome: Outcome) -> Outcome:
    """Return the outcome with pods of a class in each other's seats where that keeps workloads redundant."""
    if not is_kept(problem.question):
        return outcome
    seats = Seats.of(problem, outcome)
    broken = seats.broken()
    if not broken:
        return outcome
    by_class, class_of = _moving_by_class(problem, outcome)
    targets = dict(outcome.targets)
    for workload in broken:
        for key in sorted(targets.keys() & set(_pods(problem, workload))):
            if not seats.keeps(workload, {}):
                _swap(seats, targets, key, by_class.get(class_of.get(key, -1), ()))
    return replace(outcome, targets=targets)


def torn(problem: Compiled, outcome: Outcome) -> tuple[str, ...]:
    """Return the workloads that lose their redundancy though they are to keep it, by key."""
    return tuple(Seats.of(problem, outcome).broken()) if is_kept(problem.question) else ()


def pods_torn(problem: Compiled, outcome: Outcome, workloads: Iterable[str]) -> frozenset[str]:
    """Return the pods of these workloads that the outcome places, by key."""
    return frozenset(key for workload in workloads for key in _pods(problem, workload) if key in outcome.targets)


def redundant(problem: Compiled, outcome: Outcome) -> Outcome:
    """Return the outcome without the moves of workloads that would lose their redundancy by them."""
    for _ in range(_ROUNDS):
        broken = torn(problem, outcome)
        if not broken:
            return outcome
        outcome = without_moves(problem, outcome, pods_torn(problem, outcome, broken))
    return nothing(problem) if torn(problem, outcome) else outcome


def _pods(problem: Compiled, workload: str) -> Iterator[str]:
    return (pod.key for pod in problem.question.cluster.pods_by_workload[workload])


@dataclass
class Seats:
    """Where every pod is after an outcome, and what workloads need; changes as pods change places."""

    problem: Compiled
    places: dict[str, str]
    """Pod key → node."""
    zones: Mapping[str, str]
    needs: dict[str, Redundancy | None] = field(default_factory=dict)
    """Of workloads that were looked at."""

    @classmethod
    def of(cls, problem: Compiled, outcome: Outcome) -> Seats:
        """Return the seats of an outcome."""
        cluster = problem.question.cluster
        places = {key: pod.node for key, pod in listed_by_key(cluster).items() if pod.node is not None}
        zones = {node.name: machine_of(node)[1] for node in cluster.nodes}
        zones |= {
            name: offer.zone for name, offer in zip(new_names(cluster), booted_offers(problem, outcome), strict=False)
        }
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

    @cached_property
    def _zone_now(self) -> Callable[[str], str]:
        return live_zone(self.problem.question.cluster)

    def keeps(self, workload: str | None, moved: Mapping[str, str]) -> bool:
        """Return whether a workload has its redundancy once these pods have moved."""
        if workload is None:
            return True
        if workload not in self.needs:
            self.needs[workload] = redundancy_of(self.problem.question.cluster, workload, self._zone_now)
        needed = self.needs[workload]
        own = {key: to for key, to in moved.items() if self.workload_of(key) == workload}
        return needed is None or needed.met(self._nodes_with(workload, own), self.zone_of)

    def _nodes_with(self, workload: str, own: Mapping[str, str]) -> list[str]:
        keys = [key for key in _pods(self.problem, workload) if key in self.places]
        return [own.get(key, self.places[key]) for key in keys]

    def helps(self, workload: str, key: str, to: str) -> bool:
        """Return whether a pod on another node adds a node or a zone to its workload and takes none away."""
        before, after = self._nodes_with(workload, {}), self._nodes_with(workload, {key: to})
        one, other = ({self.zone_of(name) for name in nodes} for nodes in (before, after))
        more = (len(set(after)) - len(set(before)), len(other) - len(one))
        return min(more) >= 0 and max(more) > 0


def _moving_by_class(problem: Compiled, outcome: Outcome) -> tuple[dict[int, list[str]], dict[str, int]]:
    """Return the pods that move one by one, by class, and the class of each."""
    grouped = {key for group in problem.sites.ties.groups for key in group.pods}
    found: dict[int, list[str]] = {}
    for c, members in enumerate(problem.draft.members):
        keys = [one.pod.key for one in members if one.role == "stays" and one.pod.key in outcome.targets]
        found[c] = [key for key in keys if key not in grouped]
    return found, {key: c for c, keys in found.items() for key in keys}


def _swap(seats: Seats, targets: dict[str, str], key: str, others: list[str] | tuple[()]) -> None:
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


def _home(seats: Seats, key: str) -> str | None:
    return seats.problem.question.cluster.pods_by_key[key].node
