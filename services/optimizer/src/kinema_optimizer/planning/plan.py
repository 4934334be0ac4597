"""Conversion of a solver's decision to a plan: its counts as names of nodes and pods (`Outcome`), then `build_plan`.

Which pod of a class goes where is settled here by name, the same for every solver: replaced pods come back to their own
node where it takes any; then pending, replaced and displaced pods and those that leave kept nodes, each by name, take
the free seats node by node in turn, so that the replicas of a workload are spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Final

import msgspec
import numpy as np

from kinema_core.events import (
    Cost,
    FrozenMap,
    Held,
    Offer,
    Placement,
    PlacementRules,
    Plan,
    PlanNode,
    Pod,
    QuarantinedObject,
    Solve,
    Strategy,
    Unplaced,
)
from kinema_core.model.catalog import machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.commitments import covered_nodes
from kinema_core.model.disruption_cost import ORDINARY, disruption_cost
from kinema_core.model.pod_rules import listed_by_key
from kinema_core.model.resizing import changed_pods, disrupted, restarted
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.problem.instance import Solution
from kinema_optimizer.problem.pods import Mover
from kinema_optimizer.problem.solution import Given, Incumbent, NamedSolution, filling
from kinema_optimizer.request.objective import MICRO, SLACK


@dataclass(frozen=True)
class Outcome:
    """Named decision: nodes to keep, nodes to boot, and where pods go."""

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
    return Outcome(keep=(True,) * nodes, boots=(), targets={}, lost=pending_movers(compiled))


def pending_movers(compiled: Compiled) -> tuple[Mover, ...]:
    """Return the pods that run nowhere; also those that find room only once old copies have gone."""
    homeless = (mover for _, mover in compiled.homeless)
    return (*(mover for one in compiled.classes for mover in one.pending), *homeless)


def without_moves(compiled: Compiled, outcome: Outcome, stuck: Collection[str]) -> Outcome:
    """Return the outcome without the moves of these pods: they stay, and so do their nodes with all that is on them.

    No pod comes to these nodes then either: pods that were to leave them might have made the room. A pod that was to
    come stays as well, and its node, and so on.
    """
    cluster = compiled.question.cluster
    names, stays = _left_alone(cluster, outcome, stuck)
    idle = {key for key in outcome.updates if all(pod.key in stays for pod in _replaced(cluster, key))}
    targets = {key: to for key, to in outcome.targets.items() if key not in stays}
    booted = dict(zip(islice(new_names(cluster), len(outcome.boots)), outcome.boots, strict=True))
    used = [name for name in booted if name in set(targets.values())]
    renamed = dict(zip(used, new_names(cluster), strict=False))
    out = {mover.pod.key for mover in outcome.lost}
    waiting = [mover for mover in pending_movers(compiled) if mover.pod.key in stays - out]
    return Outcome(
        keep=tuple(keep or node.name in names for node, keep in zip(cluster.nodes, outcome.keep, strict=True)),
        boots=tuple(booted[name] for name in used),
        targets={key: renamed.get(to, to) for key, to in targets.items()},
        lost=(*outcome.lost, *waiting),
        updates=outcome.updates - idle,
    )


def _replaced(cluster: Cluster, workload: str) -> Iterator[Pod]:
    """Return the pods that a rolling update of the workload replaces."""
    return (pod for pod in cluster.pods_by_workload[workload] if pod.node is not None and not pod.terminating)


def keeping(compiled: Compiled, outcome: Outcome, names: Collection[str]) -> Outcome:
    """Return the outcome with these live nodes kept, and all pods on them left where they are."""
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
        # A node that no pod was to leave has room for all that come.
        more = [key for key in ways.get(name, ()) if name in leaving and key not in stays]
        stays.update(more)
        fresh += [where[key] for key in more]
    return frozenset(names), frozenset(stays)


def node_cost(problem: Compiled, outcome: Outcome) -> int:
    """Return micro-USD per hour of the nodes that are kept or booted."""
    nodes, prices = problem.question.cluster.nodes, problem.sites.prices
    kept = sum(prices[node.name] for node, keep in zip(nodes, outcome.keep, strict=True) if keep)
    return kept + sum(alike[0].micro_usd_per_hour for alike in outcome.boots)


def outcome_of(compiled: Compiled, given: Given) -> Outcome:
    """Return the outcome of what any solver found."""
    return of_names(compiled, given) if isinstance(given, NamedSolution) else of_packing(compiled, given)


def outcome_from(compiled: Compiled, plan: Plan) -> Outcome:
    """Return the outcome of a plan of this problem, as `build_plan` takes it."""
    cluster, offers = compiled.question.cluster, {offer.name: offer for offer in compiled.question.offers}
    boots = [node for node in plan.nodes if node.action == "boot"]
    names = {node.name: name for node, name in zip(boots, new_names(cluster), strict=False)}
    deleted = {node.name for node in plan.nodes if node.action == "delete"}
    resized = {one.workload for one in plan.resizes}
    placed = {one.pod for one in plan.placements}
    rolling = [cluster.pods_by_key[one.pod] for one in plan.placements if one.strategy == "rolling"]
    return Outcome(
        keep=tuple(node.name not in deleted for node in cluster.nodes),
        boots=tuple((offers[node.offer],) for node in boots),
        targets={one.pod: names.get(one.to, one.to) for one in plan.placements if one.strategy != "stay"},
        lost=tuple(mover for mover in pending_movers(compiled) if mover.pod.key not in placed),
        updates=frozenset(key for pod in rolling if (key := cluster.controller_key_of(pod)) is not None) - resized,
    )


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


def names_of(compiled: Compiled, outcome: Outcome) -> NamedSolution:
    """Return the outcome as a solution by name: `of_names` gives it back."""
    cluster = compiled.question.cluster
    return NamedSolution(
        assignment={**outcome.targets, **{mover.pod.key: None for mover in outcome.lost}},
        boots={
            name: tuple(offer.name for offer in alike)
            for name, alike in zip(new_names(cluster), outcome.boots, strict=False)
        },
        deleted=tuple(node.name for node, keep in zip(cluster.nodes, outcome.keep, strict=True) if not keep),
        updates=outcome.updates,
        alike=tuple((key,) for key in outcome.targets),
    )


def of_packing(compiled: Compiled, packing: Solution) -> Outcome:
    """Return the outcome of a packing."""
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


def incumbent_of(compiled: Compiled, outcome: Outcome) -> Incumbent | None:
    """Return the outcome as a state of `compiled.packing`, to be searched on; None where it is none.

    Where pods that go together do not, or a node that keeps all its pods loses some, it is no state of that problem.
    """
    made, instance = compiled.grouped, compiled.packing
    cluster = compiled.question.cluster
    index = {node.name: e for e, node in enumerate(cluster.nodes)}
    machine = {offer.name: m for m, alike in enumerate(made.offers) for offer in alike}
    booted = list(islice(new_names(cluster), len(outcome.boots)))
    machines = [machine.get(alike[0].name) for alike in outcome.boots]
    changes: dict[str, Counter[int]] = {}
    unplaced = np.zeros(len(made.classes), dtype=np.int64)
    keep = np.array(outcome.keep, dtype=bool) | instance.node_fixed
    for c, members in enumerate(made.classes):
        for mover in (*members.pending, *members.rolled, *members.stays):
            source, to = mover.pod.node, outcome.targets.get(mover.pod.key)
            if any(outcome.targets.get(other.key) != to for other in mover.others):
                return None
            if to is None and mover.role != "stays":
                unplaced[c] += 1
            elif to is not None:
                changes.setdefault(to, Counter())[c] += 1
                if mover.role == "stays" and source is not None and keep[index[source]]:
                    changes.setdefault(source, Counter())[c] -= 1
    boots = [filling(m, changes.get(name, {})) for name, m in zip(booted, machines, strict=True) if m is not None]
    live = {index[name]: filling(-1, some) for name, some in changes.items() if name in index}
    if None in machines or len(live) + sum(name in changes for name in booted) < len(changes):
        return None
    return Incumbent(keep, {e: one for e, one in live.items() if one.classes.size}, boots, unplaced)


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


_UNSOLVED: Final = Solve(seconds=0.0, first_feasible_seconds=None, method="", seed=0)


def build_plan(compiled: Compiled, outcome: Outcome) -> Plan:
    """Return the plan: pods without a target stay where they are. `with_bound` adds what is known about it."""
    boots = _boots(compiled, outcome)
    placements = _placements(compiled, outcome)
    nodes = (*_live_nodes(compiled, outcome), *boots)
    after = sum(round(node.usd_per_hour * MICRO) for node in nodes if node.action != "delete")
    plan = Plan(
        status="feasible",
        cost=_cost(sum(compiled.sites.prices.values()), after, 0),
        nodes=nodes,
        placements=placements,
        unplaced=_unplaced(compiled, outcome.lost),
        quarantined=_quarantined(compiled),
        held=_held(compiled),
        moves=sum(item.source is not None and item.source != item.to for item in placements),
        restarts=0,
        solve=_UNSOLVED,
        mode=compiled.question.mode,
        base_version=compiled.question.cluster.version,
        resizes=compiled.resizes,
    )
    asked = compiled.question
    return msgspec.structs.replace(
        plan,
        restarts=restarted(plan, asked.cluster, asked.options),
        figures=_figures(compiled, disrupted(plan, asked.cluster, asked.options)),
    )


def with_bound(plan: Plan, *, lower_bound: int, optimal: bool, objective: str) -> Plan:
    """Return the plan with its bound (micro-USD per hour), its gap and what it was made for."""
    after = round(plan.cost.after * MICRO)
    changed = bool(changed_pods(plan) or any(node.action != "keep" for node in plan.nodes))
    bound = min(lower_bound, after)
    best = after <= bound or (optimal and (after - bound) * SLACK <= bound)
    return msgspec.structs.replace(
        plan,
        status="nothing-better" if not changed else "optimal" if best else "feasible",
        cost=_cost(round(plan.cost.before * MICRO), after, bound),
        objective=objective,
    )


def _cost(before: int, after: int, bound: int) -> Cost:
    gap = (after - bound) / bound if bound else None if after else 0.0
    return Cost(
        before=round(before / MICRO, 6),
        after=round(after / MICRO, 6),
        lower_bound=round(bound / MICRO, 6),
        gap=None if gap is None else round(gap, 6),
    )


def _figures(compiled: Compiled, replaced: Sequence[Placement]) -> FrozenMap[float]:
    asked, cluster = compiled.question, compiled.question.cluster
    cost = sum(disruption_cost(cluster, cluster.pods_by_key[one.pod]) for one in replaced)
    return FrozenMap(
        {
            "restart_risk": cost / ORDINARY,
            "classes": float(len(compiled.classes)),
            "existing_nodes": float(len(compiled.question.cluster.nodes)),
            "machines": float(len(compiled.offers)),
            "kept_in_place_by_rules_between_pods": float(len(compiled.restricted)),
            "kept_in_place_without_an_order": 0.0 if asked.still else float(len(asked.unmoved)),
            **({"bound_without_moves": 1.0} if asked.still else {}),
        }
    )


def _live_nodes(compiled: Compiled, outcome: Outcome) -> tuple[PlanNode, ...]:
    on_sale: dict[tuple[str, str, str], str] = {}
    for offer in compiled.question.offers:  # of offers of one name, #2 and so on come later
        on_sale.setdefault((offer.machine_type, offer.zone, offer.capacity_type), offer.name)
    covered = covered_nodes(compiled.question.cluster, compiled.question.offers)
    return tuple(
        PlanNode(
            name=node.name,
            machine_type=machine[0],
            zone=machine[1],
            capacity_type=machine[2],
            offer=on_sale.get(machine, ""),
            usd_per_hour=round(compiled.sites.prices[node.name] / MICRO, 6),
            action="keep" if keep else "delete",
            committed=node.name in covered,
        )
        for node, keep in zip(compiled.question.cluster.nodes, outcome.keep, strict=True)
        for machine in (machine_of(node),)
    )


def booted_offers(compiled: Compiled, outcome: Outcome) -> tuple[Offer, ...]:
    """Return the offer of each new node; of offers that are alike, the zone with fewest nodes is next."""
    cluster = compiled.question.cluster
    in_zone = Counter(machine_of(node)[1] for node, keep in zip(cluster.nodes, outcome.keep, strict=True) if keep)
    found = []
    for alike in outcome.boots:
        found.append(min(alike, key=lambda one: (in_zone[one.zone], one.name)))
        in_zone[found[-1].zone] += 1
    return tuple(found)


def _boots(compiled: Compiled, outcome: Outcome) -> tuple[PlanNode, ...]:
    """New nodes in the order of the outcome."""
    names, offers = new_names(compiled.question.cluster), booted_offers(compiled, outcome)
    return tuple(new_node(name, offer) for name, offer in zip(names, offers, strict=False))


def new_node(name: str, offer: Offer) -> PlanNode:
    """Return a node that is to be booted."""
    return PlanNode(
        name=name,
        machine_type=offer.machine_type,
        zone=offer.zone,
        capacity_type=offer.capacity_type,
        offer=offer.name,
        usd_per_hour=round(offer.micro_usd_per_hour / MICRO, 6),
        action="boot",
        committed=offer.committed is not None,
    )


def _placements(compiled: Compiled, outcome: Outcome) -> tuple[Placement, ...]:
    """Every listed pod that has a node afterwards, by key."""
    cluster, facts = compiled.question.cluster, compiled.sites.mobility
    targets, updates = outcome.targets, outcome.updates
    resized = {one.workload: one.requests_after for one in compiled.resizes}
    replaced = updates | resized.keys()
    found = []
    for key, pod in listed_by_key(cluster).items():
        source = pod.node
        to = targets.get(key, source)
        if to is None:
            continue
        workload = cluster.controller_key_of(pod) if replaced else None
        requests = pod.requests
        strategy: Strategy = "stay"
        if source is None:
            strategy = "schedule"
        elif workload in replaced:
            strategy = "rolling"
        elif to != source:
            strategy = facts.strategy[key]
        if workload in resized:
            requests = FrozenMap({**requests, **resized[workload]})
        found.append(Placement(pod=key, uid=pod.uid, source=source, to=to, strategy=strategy, requests=requests))
    return tuple(found)


def _unplaced(compiled: Compiled, lost: Sequence[Mover]) -> tuple[Unplaced, ...]:
    """Pending pods without a place, by key: rules that are not modeled, nothing that holds them, or sold out."""
    held, pods = compiled.sites.mobility.held, listed_by_key(compiled.question.cluster)
    found = [
        Unplaced(pod=key, uid=pod.uid, code=held[key].code, reason=held[key].reason)
        for key, pod in pods.items()
        if pod.node is None and key in held
    ]
    class_of = {mover.pod.key: c for c, one in enumerate(compiled.draft.members if lost else ()) for mover in one}
    refusals: dict[tuple[int, PlacementRules], tuple[str, str]] = {}
    for mover in lost:
        alike = class_of[mover.pod.key], mover.pod.rules
        if alike not in refusals:
            refusals[alike] = compiled.refusal(alike[0], mover)
        code, reason = refusals[alike]
        found.append(Unplaced(pod=mover.pod.key, uid=mover.pod.uid, code=code, reason=reason))
    return tuple(sorted(found, key=lambda one: one.pod))


def _held(compiled: Compiled) -> tuple[Held, ...]:
    """Bound pods that may not move, by key; whether there is an order for a move depends on the plan."""
    held, pods = compiled.sites.mobility.held, listed_by_key(compiled.question.cluster)
    keys = sorted(held.keys() - compiled.question.unmoved)
    return tuple(held[key] for key in keys if key in pods and pods[key].node is not None)


def _quarantined(compiled: Compiled) -> tuple[QuarantinedObject, ...]:
    return tuple(
        QuarantinedObject(object=item.object, path=item.path, reason=item.reason)
        for item in compiled.question.cluster.quarantined
    )
