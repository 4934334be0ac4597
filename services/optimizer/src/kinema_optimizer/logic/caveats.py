"""What may keep a node though its pods find a place elsewhere: the zone that it serves, moves without an order."""

from __future__ import annotations

import numpy as np

from kinema_core.events import Node
from kinema_core.model.catalog import machine_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.daemons import is_resident
from kinema_core.model.transition import order_transition
from kinema_optimizer.logic.alternative import Alternative
from kinema_optimizer.logic.build_plan import build_plan
from kinema_optimizer.logic.compiled import Compiled
from kinema_optimizer.logic.outcome import Outcome, of_packing
from kinema_optimizer.logic.packing import Packing, PackingProblem, content


def leaned_on_by(given: Compiled, node: Node) -> str:
    """Which node that is not Ready makes plans keep this one for their zone; see `absent`, whose rule this tells."""
    cluster, facts, prices = given.question.cluster, given.sites.mobility, given.sites.prices
    zone = machine_of(node)[1]
    here = [one for one in cluster.nodes if machine_of(one)[1] == zone]
    serving = [one for one in here if one.ready and not one.unschedulable]
    absent = [one.name for one in here if not one.ready and _holds_pods(cluster, one)]
    if not absent or node not in serving or any(facts.deletable[one.name] is not None for one in serving):
        return ""
    if min(serving, key=lambda one: (prices[one.name], one.name)) != node:
        return ""
    only = "this is the only one" if len(serving) == 1 else "this is the cheapest"
    return (
        f"node {absent[0]} of zone {zone} is not Ready and has pods: as long as it stays, so does a node of that zone "
        f"that takes pods, and {only}"
    )


def _holds_pods(cluster: Cluster, node: Node) -> bool:
    here = cluster.pods_by_node.get(node.name, ())
    return any(not pod.terminating and not is_resident(cluster, pod) for pod in here)


def as_outcome(given: Compiled, problem: PackingProblem, node: int, found: Alternative) -> Outcome:
    """What became of a deleted node's pods, by name."""
    packing = Packing(
        keep=np.arange(len(problem.nodes)) != node,
        changes=content([dict(found.onto.get(e, {})) for e in range(len(problem.nodes))]),
        boots=np.array([machine for machine, _ in found.boots], dtype=np.int64),
        booted=content([dict(taken) for _, taken in found.boots]),
        unplaced=problem.pending,
    )
    return of_packing(given, packing)


def without_order(given: Compiled, outcome: Outcome) -> str:
    """Which pods no order of moves brings to the place that was found for them; empty where there is an order."""
    question, plan = given.question, build_plan(given, outcome)
    stuck = order_transition(plan, question.cluster, question.offers, now=question.now, options=question.options).stuck
    if not stuck:
        return ""
    places = {one.pod: one.to for one in plan.placements}
    more = f" and {len(stuck) - 1} more of its pods" if len(stuck) > 1 else ""
    return (
        f"no order of moves was found that brings {stuck[0]} to {places[stuck[0]]}{more}: rules, room, ports or "
        "volumes of old pods are in the way, and plans keep the node unless they find another place"
    )
