"""What a solver decided, in terms of nodes and pods: the same for every solver.

Which pod of a class goes where is settled here by name: replaced pods come back to their own node where it takes any;
then pending, replaced and displaced pods, each by name, take the free seats node by node in turn, so that the replicas
of a workload are spread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from kinema_core.events import Offer
from kinema_core.model.cluster import Cluster
from kinema_optimizer.logic.compiled import Compiled
from kinema_optimizer.logic.movers import Mover
from kinema_optimizer.logic.packing import Packing
from kinema_optimizer.logic.problem import Solution, rolled_out


@dataclass(frozen=True)
class Outcome:
    """Which nodes stay, which are booted, and who goes where."""

    keep: tuple[bool, ...]
    """Per live node."""
    boots: tuple[tuple[Offer, ...], ...]
    """Per new node the offers that are alike; named as `new_names` says."""
    targets: Mapping[str, str]
    """Pod key → node, for pods that get one anew; all others stay where they are."""
    lost: tuple[Mover, ...] = ()
    """Pending pods that get none."""
    updates: frozenset[str] = frozenset()
    """Workloads moved by a rolling update, which replaces their every pod."""


def new_names(cluster: Cluster) -> Iterator[str]:
    """Names for new nodes that say on which state they were planned, and that no live node has."""
    return (name for n in count(1) if cluster.node(name := f"kinema-{cluster.version}-{n}") is None)


def nothing(compiled: Compiled) -> Outcome:
    """Everything stays as it is; pending pods wait on."""
    waiting = [mover for one in compiled.classes for mover in one.pending]
    waiting += [mover for _, mover in compiled.homeless]
    return Outcome(keep=(True,) * len(compiled.question.cluster.nodes), boots=(), targets={}, lost=tuple(waiting))


def without_moves(compiled: Compiled, outcome: Outcome, stuck: Collection[str]) -> Outcome:
    """The outcome without the moves of these pods: they stay, and so do their nodes with all that is on them.

    For outcomes in which pods on kept nodes stay: what stays now takes no room that anybody else was promised.
    """
    cluster = compiled.question.cluster
    names = {pod.node for key in stuck if (pod := cluster.pod(key)) is not None and pod.node is not None}
    targets = {
        key: to
        for key, to in outcome.targets.items()
        if (pod := cluster.pod(key)) is None or (pod.node not in names if pod.node is not None else key not in stuck)
    }
    booted = dict(zip(islice(new_names(cluster), len(outcome.boots)), outcome.boots, strict=True))
    used = [name for name in booted if name in set(targets.values())]
    renamed = dict(zip(used, new_names(cluster), strict=False))
    waiting = [mover for one in compiled.classes for mover in one.pending if mover.pod.key in stuck]
    return Outcome(
        keep=tuple(keep or node.name in names for node, keep in zip(cluster.nodes, outcome.keep, strict=True)),
        boots=tuple(booted[name] for name in used),
        targets={key: renamed.get(to, to) for key, to in targets.items()},
        lost=(*outcome.lost, *waiting),
        updates=outcome.updates,
    )


def of_solution(compiled: Compiled, solution: Solution) -> Outcome:
    """The outcome of a dense problem's solution."""
    nodes = compiled.problem.nodes
    boots = tuple(compiled.offers[boot.machine] for boot in solution.boots)
    names = list(islice(new_names(compiled.question.cluster), len(boots)))
    rolls = rolled_out(compiled.problem, np.array(solution.keep, dtype=bool))
    updates = frozenset(key for key, roll in zip(compiled.updates, rolls, strict=True) if roll)
    seats: list[dict[str, int]] = [{} for _ in compiled.classes]
    rows = [*zip(nodes, solution.newcomers, strict=True)]
    rows += [(name, boot.counts) for name, boot in zip(names, solution.boots, strict=True)]
    for name, row in rows:
        for c, pods in enumerate(row):
            if pods:
                seats[c][name] = pods
    targets, lost = _seated(compiled, seats, solution.keep, solution.unplaced, updates)
    targets |= _late_seats(compiled, solution, lost)
    gone = tuple(mover for _, mover in lost if mover.pod.key not in targets)
    return Outcome(solution.keep, boots, targets, gone, updates)


def of_packing(compiled: Compiled, packing: Packing) -> Outcome:
    """The outcome of a packing."""
    cluster = compiled.question.cluster
    boots = tuple(compiled.offers[machine] for machine in packing.boots.tolist())
    seats: list[dict[str, int]] = [{} for _ in compiled.classes]
    live = [node.name for node in cluster.nodes]
    for names, taken in ((live, packing.newcomers), (list(islice(new_names(cluster), len(boots))), packing.booted)):
        entries = zip(taken.node_of.tolist(), taken.classes.tolist(), taken.counts.tolist(), strict=True)
        for node, c, pods in entries:
            seats[c][names[node]] = pods
    keep = tuple(bool(one) for one in packing.keep)
    targets, lost = _seated(compiled, seats, keep, tuple(packing.unplaced.tolist()), frozenset())
    return Outcome(keep, boots, targets, tuple(mover for _, mover in lost))


def _seated(
    compiled: Compiled,
    seats: Sequence[dict[str, int]],
    keep: Sequence[bool],
    unplaced: Sequence[int],
    updates: frozenset[str],
) -> tuple[dict[str, str], tuple[tuple[int, Mover], ...]]:
    """Pod key → new node, for pods that get one, and the pending pods that get none, with their class."""
    kept = {node.name: stays for node, stays in zip(compiled.question.cluster.nodes, keep, strict=True)}
    targets: dict[str, str] = {}
    lost: list[tuple[int, Mover]] = list(compiled.homeless)
    for c, members in enumerate(compiled.classes):
        free = seats[c]
        replaced = [*members.rolled, *(mover for mover in members.updated if mover.workload in updates)]
        for mover in replaced:
            if free.get(mover.pod.node or "", 0):
                free[mover.pod.node or ""] -= 1
                targets[mover.pod.key] = mover.pod.node or ""
        placed = len(members.pending) - unplaced[c]
        lost += [(c, mover) for mover in members.pending[placed:]]
        waiting = [*members.pending[:placed]]
        waiting += [mover for mover in replaced if mover.pod.key not in targets]
        waiting += [mover for mover in members.stays if not kept[mover.pod.node or ""]]
        targets |= {mover.pod.key: name for mover, name in zip(waiting, in_turn(free), strict=True)}
    return targets, tuple(lost)


def in_turn(seats: Mapping[str, int]) -> Iterator[str]:
    """Every seat once, going round the nodes."""
    left = {name: n for name, n in seats.items() if n}
    while left:
        yield from left
        left = {name: n - 1 for name, n in left.items() if n > 1}


def _late_seats(compiled: Compiled, solution: Solution, waiting: Sequence[tuple[int, Mover]]) -> Mapping[str, str]:
    """Pod key → node, for pods that fit once replaced pods have left their old nodes, and wait until then."""
    problem, sites = compiled.problem, compiled.sites
    if not waiting:
        return {}
    rolls = rolled_out(problem, np.array(solution.keep, dtype=bool))
    staying = problem.node_stays + problem.rollouts[~rolls].sum(axis=0)
    newcomers = np.array(solution.newcomers, dtype=np.int64).reshape(staying.shape)
    rooms = problem.node_room + compiled.taken - (staying + newcomers) @ problem.requests
    found: dict[str, str] = {}
    for c, mover in waiting if problem.rolled.any() or rolls.any() else ():
        request = problem.requests[c]
        for e, site in enumerate(sites.nodes):
            fits = bool(((request == 0) | (request <= rooms[e])).all())
            if solution.keep[e] and fits and sites.admission.forbids(mover.pod, site) is None:
                rooms[e] = rooms[e] - request
                found[mover.pod.key] = site.name
                break
    return found
