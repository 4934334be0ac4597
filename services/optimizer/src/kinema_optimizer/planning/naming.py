"""Names for a solver's decision: its counts as nodes and pods, the same for every solver.

Which pod of a class goes where is settled here by name: replaced pods come back to their own node where it takes any;
then pending, replaced and displaced pods and those that leave kept nodes, each by name, take the free seats node by
node in turn, so that the replicas of a workload are spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

from kinema_core.events import Offer, Pod
from kinema_core.model.cluster import Cluster
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.problem.instance import Solution
from kinema_optimizer.problem.pods import Mover
from kinema_optimizer.problem.progress import Given
from kinema_optimizer.problem.solution import NamedSolution


@dataclass(frozen=True)
class Outcome:
    """Which nodes stay, which are booted, and who goes where."""

    keep: tuple[bool, ...]
    """Per live node."""
    boots: tuple[tuple[Offer, ...], ...]
    """Per new node the offers that are alike; named as `new_names` says."""
    targets: Mapping[str, str]
    """Pod key → node, for pods that get a new one; all others stay where they are."""
    lost: tuple[Mover, ...] = ()
    """Pending pods that get none."""
    updates: frozenset[str] = frozenset()
    """Workloads moved by a rolling update, which replaces their every pod."""


def new_names(cluster: Cluster) -> Iterator[str]:
    """Names for new nodes that say on which state they were planned, and that no live node has."""
    return (name for n in count(1) if cluster.node(name := f"kinema-{cluster.version}-{n}") is None)


def nothing(compiled: Compiled) -> Outcome:
    """Everything stays as it is; pending pods wait on."""
    nodes = len(compiled.question.cluster.nodes)
    return Outcome(keep=(True,) * nodes, boots=(), targets={}, lost=_pending(compiled))


def _pending(compiled: Compiled) -> tuple[Mover, ...]:
    """Who runs nowhere; also who finds room only once old copies have gone."""
    homeless = (mover for _, mover in compiled.homeless)
    return (*(mover for one in compiled.classes for mover in one.pending), *homeless)


def without_moves(compiled: Compiled, outcome: Outcome, stuck: Collection[str]) -> Outcome:
    """The outcome without the moves of these pods: they stay, and so do their nodes with all that is on them.

    No pod comes to these nodes then either: pods that were to leave them might have made the room. Whoever was to come
    stays as well, and its node, and so on.
    """
    cluster = compiled.question.cluster
    names, stays = _left_alone(cluster, outcome, stuck)
    idle = {key for key in outcome.updates if all(pod.key in stays for pod in _replaced(cluster, key))}
    targets = {key: to for key, to in outcome.targets.items() if key not in stays}
    booted = dict(zip(islice(new_names(cluster), len(outcome.boots)), outcome.boots, strict=True))
    used = [name for name in booted if name in set(targets.values())]
    renamed = dict(zip(used, new_names(cluster), strict=False))
    out = {mover.pod.key for mover in outcome.lost}
    waiting = [mover for mover in _pending(compiled) if mover.pod.key in stays - out]
    return Outcome(
        keep=tuple(keep or node.name in names for node, keep in zip(cluster.nodes, outcome.keep, strict=True)),
        boots=tuple(booted[name] for name in used),
        targets={key: renamed.get(to, to) for key, to in targets.items()},
        lost=(*outcome.lost, *waiting),
        updates=outcome.updates - idle,
    )


def _replaced(cluster: Cluster, workload: str) -> Iterator[Pod]:
    """The pods that a rolling update of the workload replaces."""
    return (pod for pod in cluster.pods_by_workload[workload] if pod.node is not None and not pod.terminating)


def keeping(compiled: Compiled, outcome: Outcome, names: Collection[str]) -> Outcome:
    """The outcome with these live nodes kept, and everybody on them left where they are."""
    cluster = compiled.question.cluster
    keep = tuple(one or node.name in names for node, one in zip(cluster.nodes, outcome.keep, strict=True))
    back = {key for key in outcome.targets if (pod := cluster.pod(key)) is not None and pod.node in names}
    return without_moves(compiled, replace(outcome, keep=keep), back)


def _left_alone(
    cluster: Cluster, outcome: Outcome, stuck: Collection[str]
) -> tuple[frozenset[str | None], frozenset[str]]:
    """Return the nodes that no pod leaves when these pods stay, and the pods that are not to move after all, by key."""
    where = {key: pod.node if (pod := cluster.pod(key)) is not None else None for key in outcome.targets}
    ways: dict[str | None, list[str]] = {}
    for key, to in outcome.targets.items():
        ways.setdefault(where[key], []).append(key)
        ways.setdefault(to, []).append(key)
    leaving = {where[key] for key, to in outcome.targets.items() if to != where[key]}
    stays, names = set(stuck), set[str | None]()
    fresh = [where[key] for key in stuck if key in where]
    while fresh:
        name = fresh.pop()
        if name is None or name in names:
            continue
        names.add(name)
        # A node that nobody was to leave has room for all who come.
        more = [key for key in ways.get(name, ()) if name in leaving and key not in stays]
        stays.update(more)
        fresh += [where[key] for key in more]
    return frozenset(names), frozenset(stays)


def outcome_of(compiled: Compiled, given: Given) -> Outcome:
    """Return the outcome of what any solver found."""
    return of_names(compiled, given) if isinstance(given, NamedSolution) else of_packing(compiled, given)


def of_names(compiled: Compiled, found: NamedSolution) -> Outcome:
    """Return the outcome of a solution by name; pods that are alike take their seats node by node in turn."""
    cluster = compiled.question.cluster
    names = dict(zip(found.boots, new_names(cluster), strict=False))
    offers = {offer.name: offer for offer in compiled.question.offers}
    now = {pod.key: pod.node for pod in cluster.pods}
    targets: dict[str, str] = {}
    for alike in found.alike:
        moving = [key for key in alike if found.assignment[key] not in {None, now[key]}]
        seats = Counter(names.get(node, node) for key in moving if (node := found.assignment[key]) is not None)
        targets |= dict(zip(moving, in_turn(seats), strict=True))
    movers = {mover.pod.key: mover for one in compiled.draft.members for mover in one}
    deleted = set(found.deleted)
    return Outcome(
        keep=tuple(node.name not in deleted for node in cluster.nodes),
        boots=tuple(tuple(offers[name] for name in alike) for alike in found.boots.values()),
        targets=targets,
        lost=tuple(movers[key] for key, node in sorted(found.assignment.items()) if node is None),
        updates=found.updates,
    )


def of_packing(compiled: Compiled, packing: Solution) -> Outcome:
    """The outcome of a packing."""
    compiled = compiled.grouped if packing.updates is None else compiled
    updates = frozenset(compiled.updates[u] for u in packing.updates or ())
    cluster = compiled.question.cluster
    boots = tuple(compiled.offers[machine] for machine in packing.boots.tolist())
    seats: list[dict[str, int]] = [{} for _ in compiled.classes]
    live = [node.name for node in cluster.nodes]
    given_up: dict[tuple[int, str], int] = {}
    for names, taken in ((live, packing.changes), (list(islice(new_names(cluster), len(boots))), packing.booted)):
        entries = zip(taken.node_of.tolist(), taken.classes.tolist(), taken.counts.tolist(), strict=True)
        for node, c, pods in entries:
            if pods > 0:
                seats[c][names[node]] = pods
            else:
                given_up[c, names[node]] = -pods
    keep = tuple(bool(one) for one in packing.keep)
    leavers = _leavers(compiled, given_up)
    targets, lost = _seated(compiled, seats, keep, tuple(packing.unplaced.tolist()), updates, leavers)
    trains = (mover for one in compiled.classes for mover in one.stays if mover.others and mover.pod.key in targets)
    targets |= {other.key: targets[mover.pod.key] for mover in trains for other in mover.others}
    return Outcome(keep, boots, targets, lost, updates)


def _leavers(compiled: Compiled, given_up: Mapping[tuple[int, str], int]) -> frozenset[str]:
    """Keys of the pods that leave kept nodes: the last by name of each class on a node."""
    here: dict[tuple[int, str], list[str]] = {}
    for c in sorted({c for c, _ in given_up}):
        for mover in compiled.classes[c].stays:
            here.setdefault((c, mover.pod.node or ""), []).append(mover.pod.key)
    return frozenset(key for where, pods in given_up.items() for key in here[where][-pods:])


def _seated(
    compiled: Compiled,
    seats: Sequence[dict[str, int]],
    keep: Sequence[bool],
    unplaced: Sequence[int],
    updates: frozenset[str],
    leavers: frozenset[str] = frozenset(),
) -> tuple[dict[str, str], tuple[Mover, ...]]:
    """Return pod key → new node, for pods that get one, and the pending pods that get none.

    `leavers`: keys of pods on kept nodes that leave them.
    """
    kept = {node.name: stays for node, stays in zip(compiled.question.cluster.nodes, keep, strict=True)}
    targets: dict[str, str] = {}
    lost = [mover for _, mover in compiled.homeless]
    for c, members in enumerate(compiled.classes):
        free = seats[c]
        replaced = [*members.rolled, *(mover for mover in members.updated if mover.workload in updates)]
        for mover in replaced:
            if free.get(mover.pod.node or "", 0):
                free[mover.pod.node or ""] -= 1
                targets[mover.pod.key] = mover.pod.node or ""
        placed = len(members.pending) - unplaced[c]
        lost += members.pending[placed:]
        waiting = [*members.pending[:placed]]
        waiting += [mover for mover in replaced if mover.pod.key not in targets]
        waiting += [mover for mover in members.stays if not kept[mover.pod.node or ""] or mover.pod.key in leavers]
        targets |= {mover.pod.key: name for mover, name in zip(waiting, in_turn(free), strict=True)}
    return targets, tuple(lost)


def in_turn(seats: Mapping[str, int]) -> Iterator[str]:
    """Every seat once, going round the nodes."""
    left = {name: n for name, n in seats.items() if n}
    while left:
        yield from left
        left = {name: n - 1 for name, n in left.items() if n > 1}
