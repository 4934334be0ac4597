"""Places for pending pods that a solution left out although something could hold them.

The reduction of rules is cautious: it may see no place for a pod where the rules themselves allow one, for instance
beside a pod that is placed in the same plan. So once all others have a seat, each pod that is left is tried by the
rules themselves, one after another: on the nodes that remain, else on the cheapest of new nodes and those that were to
be deleted. A pod that left a node that remains after all may still go to its target: its room may be what the other
pod lacked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from kinema_core.events import Cost, Offer, Placement, Plan, PlanNode, Pod, Unplaced
from kinema_core.model.catalog_file import MICRO
from kinema_core.model.checker.free_places import FreePlace, FreePlaces
from kinema_core.model.checker.view import PlanView, expected_requests, view_of
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions
from kinema_optimizer.planning.plan import new_node


def with_leftovers(
    plan: Plan, cluster: Cluster, offers: Iterable[Offer], *, now: datetime, options: MobilityOptions
) -> Plan:
    """Return the plan with every pod placed that still can be, by priority, then by name; itself where none can.

    A pod without room takes that of pending pods of lower priority, which are then left out unless they find other.
    """
    left = [item.pod for item in plan.unplaced]
    if not left:
        return plan
    view = view_of(plan, cluster, tuple(offers), now=now, options=options)
    waiting = [_resized(view, view.pods[key]) for key in left if key not in view.mobility.held]
    waiting = [pod for pod in waiting if pod.node is None]
    if not waiting:
        return plan
    vacancies = FreePlaces(view)
    waiting.sort(key=_precedence)
    seated = _all_seated(vacancies, waiting)
    found = {pod.key for pod, _ in seated}
    swapped, ousted = _swapped(vacancies, view, [pod for pod in waiting if pod.key not in found])
    seated += swapped
    if ousted:
        seated += _all_seated(vacancies, sorted((_resized(view, pod) for pod in ousted), key=_precedence))
    return _with_seats(plan, seated, ousted) if seated else plan


def _resized(view: PlanView, pod: Pod) -> Pod:
    """Return the pod with the requests that its workload has after the plan."""
    resize = view.resized.get(view.workload_key(pod) or "") if view.resized else None
    return msgspec.structs.replace(pod, requests=expected_requests(pod, resize))


def _precedence(pod: Pod) -> tuple[int, str]:
    return -pod.priority, pod.key


def _all_seated(vacancies: FreePlaces, waiting: Sequence[Pod]) -> list[tuple[Pod, FreePlace]]:
    """Return the pods that find a place, tried until none does: other pods, or a new node, may be what one lacked."""
    seated: list[tuple[Pod, FreePlace]] = []
    while more := _seated(vacancies, waiting):
        seated += more
        taken = {pod.key for pod, _ in more}
        waiting = [pod for pod in waiting if pod.key not in taken]
    return seated


def _swapped(
    vacancies: FreePlaces, view: PlanView, waiting: Sequence[Pod]
) -> tuple[list[tuple[Pod, FreePlace]], list[Pod]]:
    """Return the pods that take the places of less important pending pods, and these."""
    placed: dict[str, list[Pod]] = {}
    for seat in view.seats:
        if seat.pod.node is None:
            placed.setdefault(seat.to, []).append(seat.pod)
    seated: list[tuple[Pod, FreePlace]] = []
    ousted: list[Pod] = []
    hopeless: set[tuple[object, ...]] = set()
    for pod in waiting if placed else ():
        kind = (pod.namespace, pod.labels, pod.rules, pod.requests, pod.annotations, pod.owner, pod.priority)
        found = None if kind in hopeless else vacancies.find_instead(pod, _lesser(placed, pod))
        if found is None:
            hopeless.add(kind)
            continue
        vacancy, gone = found
        for other in gone:
            vacancies.give_up(other, vacancy.site.name)
            placed[vacancy.site.name].remove(other)
        vacancies.take(pod, vacancy)
        seated.append((pod, vacancy))
        ousted += gone
    return seated, ousted


def _lesser(placed: Mapping[str, Sequence[Pod]], pod: Pod) -> Mapping[str, Sequence[Pod]]:
    """Pending pods of lower priority by the node that they were put on, the least important first."""
    return {
        name: sorted((one for one in pods if one.priority < pod.priority), key=lambda one: (one.priority, one.key))
        for name, pods in placed.items()
    }


def _seated(vacancies: FreePlaces, waiting: Sequence[Pod]) -> list[tuple[Pod, FreePlace]]:
    """Return the pods that find a place when each is tried once; equal ones are not after one of them found none."""
    found: list[tuple[Pod, FreePlace]] = []
    hopeless: set[tuple[object, ...]] = set()
    for pod in waiting:
        kind = (pod.namespace, pod.labels, pod.rules, pod.requests, pod.annotations, pod.owner)
        place = None if kind in hopeless else vacancies.find(pod)
        if place is None:
            hopeless.add(kind)
            continue
        vacancies.take(pod, place)
        found.append((pod, place))
    return found


def _with_seats(plan: Plan, seated: Sequence[tuple[Pod, FreePlace]], ousted: Sequence[Pod]) -> Plan:
    fresh = [new_node(found.site.name, offer) for _, found in seated if (offer := found.offer) is not None]
    gone, found = {pod.key for pod in ousted}, {pod.key for pod, _ in seated}
    placements = [item for item in plan.placements if item.pod not in gone]
    placements += [_placement(pod, place.site.name) for pod, place in seated]
    unplaced = [item for item in plan.unplaced if item.pod not in found]
    unplaced += [
        Unplaced(pod=pod.key, uid=pod.uid, code="priority", reason="pods of higher priority take the room that is left")
        for pod in ousted
        if pod.key not in found
    ]
    used = {place.site.name for _, place in seated}
    nodes = [_kept(node) if node.action == "delete" and node.name in used else node for node in plan.nodes]
    more = sum(place.price for _, place in seated)
    return msgspec.structs.replace(
        plan,
        status="feasible",
        cost=_cost(plan.cost, more),
        nodes=(*nodes, *fresh),
        placements=tuple(sorted(placements, key=lambda item: item.pod)),
        unplaced=tuple(sorted(unplaced, key=lambda item: item.pod)),
    )


def _kept(node: PlanNode) -> PlanNode:
    return msgspec.structs.replace(node, action="keep")


def _placement(pod: Pod, to: str) -> Placement:
    return Placement(pod=pod.key, uid=pod.uid, source=None, to=to, strategy="schedule", requests=pod.requests)


def _cost(cost: Cost, more: int) -> Cost:
    after, bound = round(cost.after * MICRO) + more, round(cost.lower_bound * MICRO)
    gap = (after - bound) / bound if bound else None if after else 0.0
    return msgspec.structs.replace(cost, after=round(after / MICRO, 6), gap=None if gap is None else round(gap, 6))
