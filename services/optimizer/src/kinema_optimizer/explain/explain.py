"""Explanation of a node or a pod: why a node stays and what that costs; why a pod is where it is, or nowhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np

from kinema_core.events import Amounts, Held, Node, Pod
from kinema_core.model.catalog import machine_of, unpriced_nodes
from kinema_core.model.commitments import covered_nodes
from kinema_core.model.daemons import is_resident
from kinema_core.model.spot_share import SpotPool
from kinema_optimizer.explain.elsewhere import (
    Alternative,
    Seating,
    as_outcome,
    seating,
    unready_in_zone,
    without,
    without_order,
)
from kinema_optimizer.planning.relaxed_cluster import released
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import Instance, enemies_of
from kinema_optimizer.problem.node_types import newly_fits
from kinema_optimizer.problem.pods import stuck_updates, with_ports
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.rules.reduced import NO_DEMAND
from kinema_optimizer.request.objective import MICRO

HOURS_PER_MONTH: Final = 730
MOST_NAMES: Final = 20
"""Nodes that an explanation names; the rest is counted."""


class Keeper(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that may not move, so that its node stays."""

    pod: str
    code: str
    reason: str


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A node that would take pods."""

    node: str
    pods: int


class Bought(msgspec.Struct, frozen=True, kw_only=True):
    """Machines that would be booted."""

    offer: str
    count: int
    usd_per_hour: float
    """Of each."""


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Places for the pods of a node without it, by first fit: a search may find cheaper ones."""

    pods: int
    usd_per_hour: float
    """Price of the new machines."""
    onto: tuple[Target, ...]
    onto_nodes: int
    """Nodes that take pods, those that are not named included."""
    boots: tuple[Bought, ...]
    homeless: int
    """Pods that neither a node nor a machine on sale can take."""


NodeVerdict: TypeAlias = Literal["own-rule", "held-pods", "no-place", "as-dear", "could-go"]
PodVerdict: TypeAlias = Literal["with-node", "terminating", "held", "movable", "placeable", "not-placed", "no-place"]


class NodeExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node stays, and what its deletion would save.

    `saves_usd_per_hour` is its price less what its pods cost elsewhere, as if every pod that is held could move; None
    where no such place was found, or its price is missing.
    """

    kind: Literal["node"] = "node"
    name: str
    machine_type: str
    zone: str
    capacity_type: str
    usd_per_hour: float | None
    """None where its price is missing; then it stays."""
    committed: bool = False
    """A commitment covers it: it costs what is left to pay."""
    verdict: NodeVerdict
    reason: str
    caveat: str = ""
    """Of a node that could go: what may keep it all the same."""
    rule: str | None
    """The rule of its own by which it may not be deleted."""
    held: tuple[Keeper, ...]
    movable: int
    """Pods on it that may move."""
    elsewhere: Elsewhere
    saves_usd_per_hour: float | None
    saves_usd_per_month: float | None


class PodExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod is where it is, or has no place."""

    kind: Literal["pod"] = "pod"
    name: str
    node: str | None
    requests: Mapping[str, int]
    verdict: PodVerdict
    code: str
    reason: str
    strategy: str | None
    """Strategy by which it would move."""
    rooms: tuple[str, ...]
    """Other nodes that admit it and have room for it now."""
    rooms_in_all: int
    cheapest: Bought | None
    """The cheapest machine on sale that admits and holds it."""
    caveat: str = ""
    """Obstacles beside its own rules."""


# --- nodes


def explain_node(given: Compiled, node: Node) -> NodeExplanation:
    """Why a node of the cluster stays; its pods' place elsewhere is priced as if those that are held were free."""
    facts = given.sites.mobility
    held = _held_on(given, node)
    reason = facts.deletable[node.name]
    own = None if reason is None or any(f"pod {item.pod} " in reason for item in held) else reason
    own = own or given.sites.ties.fixed.get(node.name)
    free = _freed(given, [item.pod for item in held if item.pod in facts.held])
    problem = free.packing
    index = problem.nodes.index(node.name)
    found = without(problem, [index])
    mine = problem.stays.node_of == index
    pods = int(problem.stays.counts[mine] @ problem.pods[problem.stays.classes[mine]])
    priced = not found.homeless and pods == len(_listed_on(given, node))
    price = given.sites.prices[node.name]
    unpriced = node.name in unpriced_nodes(given.question.cluster, given.question.offers)
    ruled = None if own or held else _cheaper(given, node, found)
    saves = price - ruled.price if ruled else price - found.price if priced else None
    saves = None if unpriced else saves
    lost = _without_place(free.grouped, problem, found, node)
    elsewhere = _by_rules(ruled) if ruled else _elsewhere(problem, found, pods)
    verdict, why = _verdict(own, held, elsewhere, pods=pods, lost=lost, saves=saves, price=price)
    machine_type, zone, capacity_type = machine_of(node)
    return NodeExplanation(
        name=node.name,
        machine_type=machine_type,
        zone=zone,
        capacity_type=capacity_type,
        usd_per_hour=None if unpriced else price / MICRO,
        committed=node.name in covered_nodes(given.question.cluster, given.question.offers),
        verdict=verdict,
        reason=why,
        caveat=_caveat(given, node, ruled or found) if verdict == "could-go" else "",
        rule=own,
        held=tuple(Keeper(pod=item.pod, code=item.code, reason=item.reason) for item in held),
        movable=len(_listed_on(given, node)) - len(held),
        elsewhere=elsewhere,
        saves_usd_per_hour=None if saves is None else saves / MICRO,
        saves_usd_per_month=None if saves is None else round(saves * HOURS_PER_MONTH / MICRO, 2),
    )


def _cheaper(given: Compiled, node: Node, found: Alternative) -> Seating | None:
    """Return what the rules themselves leave where that is better than what the reduction of rules does."""
    ruled = seating(given, node) if found.homeless or found.boots else None
    return ruled if ruled and (found.homeless or ruled.price < found.price) else None


def _caveat(given: Compiled, node: Node, found: Seating | Alternative) -> str:
    """Return what still speaks against deleting a node whose pods have other places; empty if nothing does."""
    index = given.packing.nodes.index(node.name)
    outcome = found.outcome if isinstance(found, Seating) else as_outcome(given, given.packing, index, found)
    reasons = (unready_in_zone(given, node), without_order(given, outcome))
    return "; ".join(one for one in reasons if one)


def _listed_on(given: Compiled, node: Node) -> tuple[Pod, ...]:
    cluster = given.question.cluster
    here = cluster.pods_by_node.get(node.name, ())
    return tuple(pod for pod in here if not pod.terminating and not is_resident(cluster, pod))


def _held_on(given: Compiled, node: Node) -> tuple[Held, ...]:
    """Pods that keep the node: by what people and Kubernetes say, and by how moves and rules are modeled."""
    cluster, facts = given.question.cluster, given.sites.mobility
    stuck = stuck_updates(cluster, facts)
    found = []
    for pod in _listed_on(given, node):
        workload = cluster.controller_of(pod)
        held = facts.held.get(pod.key) or given.kept_by_packing.get(pod.key)
        if held is None and workload is not None and workload.key in stuck:
            why = f"the rolling update by which it moves would restart a pod of {workload.key} that may not move"
            held = Held(pod=pod.key, code="rolling-update", reason=why)
        found += [] if held is None else [held]
    return tuple(found)


def _freed(given: Compiled, keys: list[str]) -> Compiled:
    """Return the same with these pods free to move."""
    if not keys:
        return given
    question: Question = given.question
    return compiled(replace(question, cluster=released(question.cluster, keys)))


def _verdict(
    own: str | None, held: tuple[Held, ...], found: Elsewhere, *, pods: int, lost: str, saves: int | None, price: int
) -> tuple[NodeVerdict, str]:
    if own is not None:
        return "own-rule", own
    if held:
        codes = Counter(item.code for item in held)
        named = ", ".join(f"{code}: {codes[code]}" for code in sorted(codes))
        return "held-pods", f"{len(held)} of its pods may not move ({named})"
    if found.homeless:
        return "no-place", lost
    if saves is not None and saves > 0:
        where = f"on new machines for ${found.usd_per_hour:,.2f}/h" if found.boots else "on existing nodes"
        return "could-go", f"its pods find a place elsewhere, {where}" if pods else "no pod needs it"
    said = f"its pods would need new machines for ${found.usd_per_hour:,.2f}/h"
    return "as-dear", f"{said}, and it costs ${price / MICRO:,.2f}/h"


def _without_place(given: Compiled, problem: Instance, found: Alternative, node: Node) -> str:
    """Return how many of the node's pods have no other place, and why one of them has none; empty when all have one."""
    lost = f"{_heads(problem, found.homeless)} of its pods find no place elsewhere, as "
    for c, _ in found.homeless:
        mover = next(one for one in given.draft.members[c] if one.pod.node == node.name)
        if mover.others:
            them = f"{mover.pod.key} and {', '.join(one.key for one in mover.others)}"
            return f"{lost}{them} leave it only together (required affinity), and nothing takes all of them"
        need = given.sites.ties.needs.get(mover.pod.key)
        if need is not None and need != NO_DEMAND:
            where = [f"{key} {value}" for key, value in need.pins]
            where += [] if need.nodes is None else [f"the nodes {', '.join(sorted(need.nodes))}"]
            where += [] if need.pools is None else [_pools(need.pools)]
            return f"{lost}{mover.pod.key}: rules between pods keep it in {' and '.join(where)}"
        why = given.sites.admission.refusal(mover.pod, mover.requests, given.sites.offers)[1]
        return f"{lost}{mover.pod.key}: {why}"
    return ""


def _pools(pools: Iterable[SpotPool]) -> str:
    """Return on which machines a limit on spot capacity lets a pod be, for people."""
    named = [f"{pool.machine_type} of {pool.zone}" for pool in sorted(pools)]
    return f"on-demand nodes{' or the spot pools ' if named else ''}{', '.join(named)}"


def _heads(problem: Instance, counts: Iterable[tuple[int, int]]) -> int:
    """Return how many pods so many of each class are."""
    return sum(int(problem.pods[c]) * n for c, n in counts)


def _elsewhere(problem: Instance, found: Alternative, pods: int) -> Elsewhere:
    taken = [(_heads(problem, found.onto[e].items()), problem.nodes[e]) for e in found.onto]
    most = sorted(taken, key=lambda one: (-one[0], one[1]))
    boots = Counter(machine for machine, _ in found.boots)
    return Elsewhere(
        pods=pods,
        usd_per_hour=found.price / MICRO,
        onto=tuple(Target(node=name, pods=n) for n, name in most[:MOST_NAMES]),
        onto_nodes=len(most),
        boots=tuple(_bought(problem, machine, boots[machine]) for machine in sorted(boots)),
        homeless=_heads(problem, found.homeless),
    )


def _by_rules(found: Seating) -> Elsewhere:
    """Return the same of places that the rules themselves leave."""
    most = sorted(found.onto.items(), key=lambda one: (-one[1], one[0]))
    return Elsewhere(
        pods=len(found.outcome.targets),
        usd_per_hour=found.price / MICRO,
        onto=tuple(Target(node=name, pods=n) for name, n in most[:MOST_NAMES]),
        onto_nodes=len(most),
        boots=tuple(
            Bought(offer=one.name, count=found.boots[one.name], usd_per_hour=one.micro_usd_per_hour / MICRO)
            for one in {alike[0].name: alike[0] for alike in found.outcome.boots}.values()
        ),
        homeless=0,
    )


def _bought(problem: Instance, machine: int, count: int) -> Bought:
    price = int(problem.machine_price[machine])
    return Bought(offer=problem.machines[machine], count=count, usd_per_hour=price / MICRO)


# --- pods


def explain_pod(given: Compiled, pod: Pod) -> PodExplanation:
    """Why a pod of the cluster is where it is, or has no place."""
    requests = with_ports(pod.requests, pod, given.question.cluster)
    c = _class_of(given.grouped, pod)
    rooms, cheapest = ((), None) if c is None else _places(given.packing, c, pod.node)
    verdict, code, reason = _fate(given, pod, requests, placed=bool(rooms or cheapest))
    return PodExplanation(
        name=pod.key,
        node=pod.node,
        requests=dict(sorted(requests.items())),
        verdict=verdict,
        code=code,
        reason=reason,
        strategy=given.sites.mobility.strategy.get(pod.key),
        rooms=rooms[:MOST_NAMES],
        rooms_in_all=len(rooms),
        cheapest=cheapest,
    )


def _fate(given: Compiled, pod: Pod, requests: Amounts, *, placed: bool) -> tuple[PodVerdict, str, str]:
    """Return what may become of a pod, the code of the rule behind it, and the reason."""
    where = f"node {pod.node}"
    if is_resident(given.question.cluster, pod):
        return "with-node", "resident", f"it belongs to {where} (daemon set or static pod) and goes with it"
    if pod.terminating:
        return "terminating", "terminating", f"it is ending, and keeps its room on {where} until it is gone"
    held = given.sites.mobility.held.get(pod.key) or given.kept_by_packing.get(pod.key)
    if held is not None:
        return ("not-placed" if pod.node is None else "held"), held.code, held.reason
    if pod.node is not None:
        group = next((one.pods for one in given.sites.ties.groups if pod.key in one.pods), ())
        company = ", ".join(key for key in group if key != pod.key)
        train = f" together with {company} (required affinity)" if company else ""
        return "movable", "", f"no rule keeps it on its node; whether it moves{train} is decided by a plan"
    if placed:
        return "placeable", "", "it waits, and a node with room or a machine on sale can take it"
    return "no-place", *_refusal(given, pod, requests)


def _refusal(given: Compiled, pod: Pod, requests: Amounts) -> tuple[str, str]:
    """Code and reason why a pending pod has no place."""
    c = _class_of(given, pod)
    mover = None if c is None else next((one for one in given.draft.members[c] if one.pod.key == pod.key), None)
    if c is None or mover is None:
        return given.sites.admission.refusal(pod, requests, given.sites.offers)
    return given.refusal(c, mover)


def _class_of(given: Compiled, pod: Pod) -> int | None:
    """Return the class of a pod that is pending or may move."""
    return next(
        (
            c
            for c, movers in enumerate(given.draft.members)
            if any(pod.key in (mover.pod.key, *(one.key for one in mover.others)) for mover in movers)
        ),
        None,
    )


def _places(problem: Instance, c: int, here: str | None) -> tuple[tuple[str, ...], Bought | None]:
    """Other nodes that take a pod of the class beside those who are there, and the cheapest machine that takes it."""
    request = problem.requests[c]
    nodes = np.arange(len(problem.nodes))
    free = newly_fits(problem, nodes, np.array([c]), enemies_of(problem))[:, 0] > 0
    rooms = tuple(problem.nodes[e] for e in np.flatnonzero(free) if problem.nodes[e] != here)
    fits = ((request == 0) | (request <= problem.machine_room)).all(axis=1)
    sold = np.flatnonzero(fits & problem.admits[problem.machine_row, c] & (problem.machine_available > 0)).tolist()
    cheapest = min(sold, key=lambda m: (int(problem.machine_price[m]), problem.machines[m]), default=None)
    return rooms, None if cheapest is None else _bought(problem, cheapest, 1)
