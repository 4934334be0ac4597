"""Conversion of a named solution to the plan that is published: `build_plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from kinema_core.events import (
    Cost,
    FrozenMap,
    Held,
    Placement,
    PlacementRules,
    Plan,
    PlanNode,
    QuarantinedObject,
    Solve,
    Strategy,
    Unplaced,
)
from kinema_core.model.catalog import machine_of
from kinema_core.model.disruption_cost import ORDINARY, disruption_cost
from kinema_core.model.pod_rules import listed_by_key
from kinema_optimizer.planning.naming import Outcome, new_names
from kinema_optimizer.problem.compile import Compiled
from kinema_optimizer.problem.pods import Mover
from kinema_optimizer.request.objective import MICRO, SLACK

_UNSOLVED: Final = Solve(seconds=0.0, first_feasible_seconds=None, method="", seed=0)


def build_plan(compiled: Compiled, outcome: Outcome) -> Plan:
    """The plan: pods stay where they are unless they have a target. What is known about it is added by `with_bound`."""
    boots = _boots(compiled, outcome)
    placements = _placements(compiled, outcome)
    nodes = (*_live_nodes(compiled, outcome), *boots)
    after = sum(round(node.usd_per_hour * MICRO) for node in nodes if node.action != "delete")
    return Plan(
        status="feasible",
        cost=_cost(sum(compiled.sites.prices.values()), after, 0),
        nodes=nodes,
        placements=placements,
        unplaced=_unplaced(compiled, outcome.lost),
        quarantined=_quarantined(compiled),
        held=_held(compiled),
        moves=sum(item.source is not None and item.source != item.to for item in placements),
        restarts=sum(item.strategy == "rolling" and item.source == item.to for item in placements),
        solve=_UNSOLVED,
        mode=compiled.question.mode,
        base_version=compiled.question.cluster.version,
        resizes=compiled.resizes,
        figures=_figures(compiled, placements),
    )


def with_bound(plan: Plan, *, lower_bound: int, optimal: bool, objective: str) -> Plan:
    """The plan with its bound (micro-USD per hour), its gap and what it was made for."""
    after = round(plan.cost.after * MICRO)
    changed = bool(plan.moves or plan.restarts or any(node.action != "keep" for node in plan.nodes))
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


def _figures(compiled: Compiled, placements: Sequence[Placement]) -> FrozenMap[float]:
    asked, cluster = compiled.question, compiled.question.cluster
    restarted = [one.pod for one in placements if one.source is not None and one.strategy != "stay"]
    cost = sum(disruption_cost(cluster, cluster.pods_by_key[key]) for key in restarted)
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
        for node, keep in zip(compiled.question.cluster.nodes, outcome.keep, strict=True)
        for machine in (machine_of(node),)
    )


def _boots(compiled: Compiled, outcome: Outcome) -> tuple[PlanNode, ...]:
    """New nodes in the order of the outcome; of offers that are alike, the zone with fewest nodes is next."""
    cluster = compiled.question.cluster
    in_zone = Counter(machine_of(node)[1] for node, keep in zip(cluster.nodes, outcome.keep, strict=True) if keep)
    found = []
    for name, alike in zip(new_names(cluster), outcome.boots, strict=False):
        offer = min(alike, key=lambda one: (in_zone[one.zone], one.name))
        in_zone[offer.zone] += 1
        found.append(
            PlanNode(
                name=name,
                machine_type=offer.machine_type,
                zone=offer.zone,
                capacity_type=offer.capacity_type,
                offer=offer.name,
                usd_per_hour=round(offer.micro_usd_per_hour / MICRO, 6),
                action="boot",
            )
        )
    return tuple(found)


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
