"""Check of a plan's steps, replayed wave by wave in integers: each state on the way fits and keeps floors and rules.

`check_waves` is the entry point. Within a wave any order is possible: a node has to hold all pods that are there when
the wave begins and all that come in it. `overdrawn` counts what disruption budgets allow, independently of the
optimizer; `steps_rules` checks the rules between pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from kinema_core.events import DisruptionBudget, HostPort, Pod
from kinema_core.model.budgets import allowance, budgets_by_pod, expected
from kinema_core.model.checker.itinerary import Itinerary, Leg, read
from kinema_core.model.checker.steps_rules import check_wave_rules
from kinema_core.model.checker.view import PlanView, Violation
from kinema_core.model.daemons import unlisted
from kinema_core.model.match import ports_clash
from kinema_core.model.resources import shift
from kinema_core.model.strategy import strategy_of
from kinema_core.model.volumes import with_attachments


def overdrawn(view: PlanView, budget: DisruptionBudget, lost: Collection[str]) -> str | None:
    """Return why a budget does not bear that these workloads lose a pod at once; None when it does."""
    replicas, healthy = expected(view.cluster, budget), view.healthy[budget.key]
    allowed = allowance(budget, replicas)
    spare = healthy - (replicas - allowed)
    if allowed and spare < 1:
        return f"a pod is evicted though {healthy} of {replicas} are healthy, and {replicas - allowed} have to be"
    most = max(1, min(allowed, spare))
    return f"{', '.join(sorted(lost))} lose a pod at once, it bears {most}" if len(lost) > most else None


def awaits_healthy(view: PlanView, pod: Pod | None) -> bool:
    """Return whether an eviction of the pod breaks a budget, with its pods as they are and as the plan leaves them."""
    if pod is None or pod.node is None or strategy_of(view.cluster, pod) != "evict":
        return False
    budgets = budgets_by_pod(view.cluster).get(pod.key, ())
    return any(overdrawn(view, budget, ()) is not None for budget in budgets)


def check_waves(view: PlanView, *, required: bool = False) -> Iterator[Violation]:
    """Everything that is wrong with the order of a plan; `required`: a plan that moves pods has to have one."""
    if not view.plan.steps:
        if view.plan.temporary:
            yield Violation("step-missing", view.plan.temporary[0].name, "no step boots a temporary node")
        if required and any(seat.pod.node is not None for seat in view.arriving):
            yield Violation("steps-missing", "steps", "a plan that moves pods says in which order")
        return
    itinerary, found = read(view)
    yield from found
    yield from _lifetimes(view, itinerary)
    yield from _room(view, itinerary)
    yield from _floors(view, itinerary)
    yield from _ports(view, itinerary)
    yield from _volumes(view, itinerary)
    yield from check_wave_rules(view, itinerary)


def _lifetimes(view: PlanView, itinerary: Itinerary) -> Iterator[Violation]:
    """Check that no pod comes to a node that is not there yet or any more, and none is deleted with a pod on it."""
    there = Counter(pod.node for pod in view.pods.values() if pod.node is not None)
    last_use: dict[str, int] = {}
    for wave in itinerary.waves:
        for leg in itinerary.legs[wave]:
            born = itinerary.booted.get(leg.to, -1)
            if born >= wave:
                yield Violation("node-not-booted", leg.key, f"wave {wave}: node {leg.to} is booted in wave {born}")
            there[leg.to] += 1
            last_use[leg.to] = wave
            if leg.source is not None:
                there[leg.source] -= 1
                last_use[leg.source] = wave
    for name, wave in itinerary.deleted.items():
        if there[name]:
            yield Violation("delete-early", name, f"wave {wave}: {there[name]} pods never leave it")
        used = max(last_use.get(name, -1), itinerary.booted.get(name, -1))
        if used >= wave:
            yield Violation("delete-early", name, f"wave {wave}: it is in use in wave {used}")
    for node in view.plan.temporary:
        if node.name not in last_use:
            yield Violation("boot-empty", node.name, "a temporary node is booted and takes no pod")


def _room(view: PlanView, itinerary: Itinerary) -> Iterator[Violation]:
    """Check that each node holds its pods at each moment. One that is overdrawn must only not get more of the same."""
    concerned = {leg.to for legs in itinerary.legs.values() for leg in legs}
    rooms = {name: dict(site.room) for name, site in itinerary.sites.items() if name in concerned}
    for pod in view.pods.values():
        if pod.node in concerned:
            shift(rooms[pod.node], with_attachments(view.cluster, pod, pod.requests), -1)
    for wave in itinerary.waves:
        coming: dict[str, list[Leg]] = {}
        for leg in itinerary.legs[wave]:
            shift(rooms[leg.to], leg.takes, -1)
            coming.setdefault(leg.to, []).append(leg)
        for name in sorted(coming):
            for resource, free in sorted(rooms[name].items()):
                if free < 0 and any(leg.takes.get(resource, 0) > 0 for leg in coming[name]):
                    detail = f"wave {wave}: {resource}: {-free} more than there is room for"
                    yield Violation("wave-overfull", name, detail)
        for leg in itinerary.legs[wave]:
            if leg.source in concerned:
                shift(rooms[leg.source], leg.leaves, 1)


def _floors(view: PlanView, itinerary: Itinerary) -> Iterator[Violation]:
    """Disruption budgets bear the workloads that lose a pod at the same time; a workload is rolled in one wave."""
    rolled: dict[str, int] = {}
    budgets = budgets_by_pod(view.cluster)
    for wave in itinerary.waves:
        away: dict[str, set[str]] = {}
        for leg in itinerary.legs[wave]:
            if leg.rolled and rolled.setdefault(leg.workload, wave) != wave:
                yield Violation("wave-floor", leg.key, f"wave {wave}: {leg.workload} is rolled in an earlier wave")
            for budget in budgets.get(leg.key, ()) if leg.evicted else ():
                away.setdefault(budget.key, set()).add(leg.workload)
        for budget in (one for one in view.cluster.budgets if one.key in away):
            over = overdrawn(view, budget, away[budget.key])
            if over is not None:
                yield Violation("wave-floor", budget.key, f"wave {wave}: {over}")


def _ports(view: PlanView, itinerary: Itinerary) -> Iterator[Violation]:
    """Check that a host port is free when a new copy comes that wants it."""
    if not any(leg.pod.rules.host_ports for legs in itinerary.legs.values() for leg in legs):
        return
    taken: dict[str, dict[str, tuple[HostPort, ...]]] = {}
    for pod in view.pods.values():
        if pod.rules.host_ports and pod.node is not None:
            taken.setdefault(pod.node, {})[pod.key] = pod.rules.host_ports
    for wave in itinerary.waves:
        legs = [leg for leg in itinerary.legs[wave] if leg.pod.rules.host_ports]
        for leg in (leg for leg in legs if not leg.rolled):
            here = {
                **taken.get(leg.to, {}),
                **{other.key: other.pod.rules.host_ports for other in legs if other.to == leg.to},
            }
            here |= {pod.key: pod.rules.host_ports for pod in unlisted(view.cluster, leg.to)}
            for key in sorted(here):
                port = None if key == leg.key else ports_clash(leg.pod.rules.host_ports, here[key])
                if port is not None:
                    detail = f"wave {wave}: host port {port.port}/{port.protocol} on {leg.to} is taken by {key}"
                    yield Violation("wave-host-port", leg.key, detail)
        for leg in legs:
            taken.get(leg.source or "", {}).pop(leg.key, None)
        for leg in legs:
            taken.setdefault(leg.to, {})[leg.key] = leg.pod.rules.host_ports


def _volumes(view: PlanView, itinerary: Itinerary) -> Iterator[Violation]:
    """Check that a volume is detached from one node before it is wanted on another one, and goes to no stop.

    One that is in use on several nodes now can be used on several nodes.
    """
    claiming = {claim for legs in itinerary.legs.values() for leg in legs for claim in _claims(leg)}
    if not claiming:
        return
    where = {pod.key: pod.node for pod in view.pods.values() if pod.node is not None}
    users: dict[str, set[str]] = {}
    for pod in view.pods.values():
        for name in pod.rules.claims:
            users.setdefault(f"{pod.namespace}/{name}", set()).add(pod.key)
    alone = {claim for claim in claiming if len({where[key] for key in users[claim] if key in where}) < 2}
    last = {seat.key: seat.to for seat in view.arriving}
    for wave in itinerary.waves:
        coming = {leg.key: leg.to for leg in itinerary.legs[wave]}
        for leg in (leg for leg in itinerary.legs[wave] if not leg.rolled):
            if leg.pod.rules.claims and leg.to != last[leg.key]:
                yield Violation("wave-volume", leg.key, f"wave {wave}: a pod with volumes makes no stop")
            for claim in _claims(leg):
                held = {where[key] for key in users[claim] if key in where and not (key == leg.key and leg.evicted)}
                held |= {coming[key] for key in users[claim] if key in coming}
                if claim in alone and held - {leg.to}:
                    detail = f"wave {wave}: claim {claim} is in use on {', '.join(sorted(held - {leg.to}))}"
                    yield Violation("wave-volume", leg.key, detail)
        where |= coming


def _claims(leg: Leg) -> list[str]:
    return [f"{leg.pod.namespace}/{name}" for name in leg.pod.rules.claims]
