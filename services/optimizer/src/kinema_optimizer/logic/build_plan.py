"""From a solution in counts to a plan that names every pod and node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from kinema_core.events import (
    Cost,
    FrozenMap,
    Held,
    Placement,
    Plan,
    PlanNode,
    QuarantinedObject,
    Solve,
    Strategy,
    Unplaced,
)
from kinema_core.model.catalog import machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import listed
from kinema_optimizer.logic.compiled import Compiled
from kinema_optimizer.logic.movers import Mover
from kinema_optimizer.logic.problem import Solution, rolled_out

MICRO = 1_000_000


@dataclass(frozen=True)
class Findings:
    """What the solver found besides the solution."""

    lower_bound: int
    """Micro-USD per hour."""
    proven: bool
    solve: Solve
    objective: str


def build_plan(compiled: Compiled, solution: Solution, findings: Findings) -> Plan:
    """The plan: pods stay where they are unless their node goes, and are chosen and spread by name."""
    boots = _boots(compiled, solution)
    targets, lost = _targets(compiled, solution, [node.name for node in boots])
    targets |= _late_seats(compiled, solution, (*lost, *compiled.homeless))
    placements = _placements(compiled, targets, _updates(compiled, solution))
    nodes = (*_live_nodes(compiled, solution), *boots)
    after = sum(round(node.usd_per_hour * MICRO) for node in nodes if node.action != "delete")
    moves = sum(item.source is not None and item.source != item.to for item in placements)
    restarts = sum(item.strategy == "rolling" and item.source == item.to for item in placements)
    changed = bool(boots or moves or restarts or not all(solution.keep))
    return Plan(
        status="nothing-better" if not changed else "optimal" if findings.proven else "feasible",
        cost=_cost(sum(compiled.sites.prices.values()), after, min(findings.lower_bound, after)),
        nodes=nodes,
        placements=placements,
        unplaced=_unplaced(
            compiled, [mover for _, mover in (*lost, *compiled.homeless) if mover.pod.key not in targets]
        ),
        quarantined=_quarantined(compiled),
        held=_held(compiled),
        moves=moves,
        restarts=restarts,
        solve=findings.solve,
        mode=compiled.question.mode,
        objective=findings.objective,
        base_version=compiled.question.cluster.version,
        resizes=compiled.resizes,
        figures=_figures(compiled),
    )


def _cost(before: int, after: int, bound: int) -> Cost:
    gap = (after - bound) / bound if bound else None if after else 0.0
    return Cost(
        before=round(before / MICRO, 6),
        after=round(after / MICRO, 6),
        lower_bound=round(bound / MICRO, 6),
        gap=None if gap is None else round(gap, 6),
    )


def _figures(compiled: Compiled) -> FrozenMap[float]:
    problem = compiled.problem
    return FrozenMap(
        {
            "classes": float(len(compiled.classes)),
            "existing_nodes": float(len(problem.nodes)),
            "machines": float(len(problem.machines)),
            "virtual_nodes": float(problem.machine_count.sum()),
        }
    )


def _live_nodes(compiled: Compiled, solution: Solution) -> tuple[PlanNode, ...]:
    on_sale: dict[tuple[str, str, str], str] = {}
    for offer in compiled.question.offers:  # of offers of one name, #2 and so on come later
        on_sale.setdefault((offer.machine_type, offer.zone, offer.capacity_type), offer.name)
    return tuple(
        PlanNode(
            name=node.name,
            machine_type=machine[0],
            zone=machine[1],
            capacity_type=machine[2],
            offer=on_sale.get(machine, ""),
            usd_per_hour=round(compiled.sites.prices[node.name] / MICRO, 6),
            action="keep" if keep else "delete",
        )
        for node, keep in zip(compiled.question.cluster.nodes, solution.keep, strict=True)
        for machine in (machine_of(node),)
    )


def _boots(compiled: Compiled, solution: Solution) -> tuple[PlanNode, ...]:
    """New nodes in the order of the solution's boots; of offers that are alike, the zone with fewest nodes is next."""
    cluster = compiled.question.cluster
    in_zone = Counter(machine_of(node)[1] for node, keep in zip(cluster.nodes, solution.keep, strict=True) if keep)
    names = _new_names(cluster)
    found = []
    for boot in solution.boots:
        offer = min(compiled.offers[boot.machine], key=lambda one: (in_zone[one.zone], one.name))
        in_zone[offer.zone] += 1
        found.append(
            PlanNode(
                name=next(names),
                machine_type=offer.machine_type,
                zone=offer.zone,
                capacity_type=offer.capacity_type,
                offer=offer.name,
                usd_per_hour=round(offer.micro_usd_per_hour / MICRO, 6),
                action="boot",
            )
        )
    return tuple(found)


def _new_names(cluster: Cluster) -> Iterator[str]:
    """Names for new nodes that say on which state they were planned, and that no live node has."""
    return (name for n in count(1) if cluster.node(name := f"kinema-{cluster.version}-{n}") is None)


def _targets(
    compiled: Compiled, solution: Solution, boots: Sequence[str]
) -> tuple[dict[str, str], tuple[tuple[int, Mover], ...]]:
    """Pod key → new node, for pods that get one, and the pending pods that get none, with their class.

    Replaced pods come back to their own node where it takes any; then pending, replaced and displaced pods, each by
    name, take the free seats node by node in turn, so that the replicas of a workload are spread.
    """
    nodes = compiled.problem.nodes
    keep = dict(zip(nodes, solution.keep, strict=True))
    updates = _updates(compiled, solution)
    targets: dict[str, str] = {}
    lost: list[tuple[int, Mover]] = []
    for c, members in enumerate(compiled.classes):
        seats = {name: row[c] for name, row in zip(nodes, solution.newcomers, strict=True) if row[c]}
        replaced = [*members.rolled, *(mover for mover in members.updated if mover.workload in updates)]
        for mover in replaced:
            if seats.get(mover.pod.node or "", 0):
                seats[mover.pod.node or ""] -= 1
                targets[mover.pod.key] = mover.pod.node or ""
        seats |= {name: boot.counts[c] for name, boot in zip(boots, solution.boots, strict=True) if boot.counts[c]}
        placed = len(members.pending) - solution.unplaced[c]
        lost += [(c, mover) for mover in members.pending[placed:]]
        waiting = [*members.pending[:placed]]
        waiting += [mover for mover in replaced if mover.pod.key not in targets]
        waiting += [mover for mover in members.stays if not keep[mover.pod.node or ""]]
        targets |= {mover.pod.key: name for mover, name in zip(waiting, _in_turn(seats), strict=True)}
    return targets, tuple(lost)


def _late_seats(compiled: Compiled, solution: Solution, waiting: Sequence[tuple[int, Mover]]) -> Mapping[str, str]:
    """Pod key → node, for pods that fit once replaced pods have left their old nodes, and wait until then."""
    problem, sites = compiled.problem, compiled.sites
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


def _in_turn(seats: Mapping[str, int]) -> Iterator[str]:
    """Every seat once, going round the nodes."""
    left = {name: n for name, n in seats.items() if n}
    while left:
        yield from left
        left = {name: n - 1 for name, n in left.items() if n > 1}


def _placements(compiled: Compiled, targets: Mapping[str, str], updates: frozenset[str]) -> tuple[Placement, ...]:
    """Every listed pod that has a node afterwards, by key."""
    cluster, facts = compiled.question.cluster, compiled.sites.mobility
    resized = {one.workload: one.requests_after for one in compiled.resizes}
    found = []
    for pod in listed(cluster):
        to = targets.get(pod.key, pod.node)
        if to is None:
            continue
        workload = cluster.controller_of(pod)
        key = "" if workload is None else workload.key
        changed = resized.get(key)
        strategy: Strategy = "stay"
        if pod.node is None:
            strategy = "schedule"
        elif key in resized or key in updates:
            strategy = "rolling"
        elif to != pod.node:
            strategy = facts.strategy[pod.key]
        requests = pod.requests if changed is None else FrozenMap({**pod.requests, **changed})
        found.append(Placement(pod=pod.key, uid=pod.uid, source=pod.node, to=to, strategy=strategy, requests=requests))
    return tuple(found)


def _updates(compiled: Compiled, solution: Solution) -> frozenset[str]:
    """Workloads that are moved by a rolling update, which replaces their every pod."""
    rolls = rolled_out(compiled.problem, np.array(solution.keep, dtype=bool))
    return frozenset(key for key, roll in zip(compiled.updates, rolls, strict=True) if roll)


def _unplaced(compiled: Compiled, lost: Sequence[Mover]) -> tuple[Unplaced, ...]:
    """Pending pods without a place, by key: rules that are not modelled, nothing that holds them, or sold out."""
    sites = compiled.sites
    found = [
        Unplaced(pod=pod.key, uid=pod.uid, code=held.code, reason=held.reason)
        for pod in listed(compiled.question.cluster)
        if pod.node is None and (held := sites.mobility.held.get(pod.key)) is not None
    ]
    for mover in lost:
        code, reason = sites.admission.refusal(mover.pod, mover.requests, sites.offers)
        found.append(Unplaced(pod=mover.pod.key, uid=mover.pod.uid, code=code, reason=reason))
    return tuple(sorted(found, key=lambda one: one.pod))


def _held(compiled: Compiled) -> tuple[Held, ...]:
    """Bound pods that may not move, by key."""
    facts = compiled.sites.mobility
    return tuple(
        facts.held[pod.key]
        for pod in listed(compiled.question.cluster)
        if pod.node is not None and pod.key in facts.held
    )


def _quarantined(compiled: Compiled) -> tuple[QuarantinedObject, ...]:
    return tuple(
        QuarantinedObject(object=item.object, path=item.path, reason=item.reason)
        for item in compiled.question.cluster.quarantined
    )
