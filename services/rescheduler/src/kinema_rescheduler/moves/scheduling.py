"""Scheduling of moves: workloads side by side, each with one move at a time, only into free room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kinema_core.events import EMPTY, Amounts, FrozenMap, Pod
from kinema_core.model.daemons import room_left
from kinema_core.model.preemption import may_preempt
from kinema_core.model.resources import add, fits, subtract, total
from kinema_core.model.rolling import why_stuck
from kinema_core.model.strategy import no_second_copy
from kinema_core.model.volumes import with_attachments
from kinema_rescheduler.journal.execution import Progress
from kinema_rescheduler.moves.crowding import crowded_out
from kinema_rescheduler.moves.decision import OVER, WAIT, Blocked, MoveDecision, blocked, fail, skip, steering
from kinema_rescheduler.moves.evict import evict
from kinema_rescheduler.moves.order import MoveOrder, MoveUnderWay, PendingMove
from kinema_rescheduler.moves.quotas import coming_daemons
from kinema_rescheduler.moves.roll import (
    begin_roll,
    beyond_limit,
    bound_of,
    resize_in_place,
    resized,
    resizing,
    roll,
    rolled,
    unrolled,
)
from kinema_rescheduler.moves.room import Room
from kinema_rescheduler.moves.surge import restoring, surge, unfinished
from kinema_rescheduler.moves.waiting import hopeless
from kinema_rescheduler.moves.workloads import WorkloadMoves, autoscalers_of, listed_by_workload, movers
from kinema_rescheduler.names import COST_BEFORE, unit_id
from kinema_rescheduler.plan.context import Decision, ExecutionContext

_UNIT_KINDS: Final = ("resize", "roll", "evict", "surge-up", "prefer-nodes")


@dataclass(frozen=True)
class Moves:
    """Next steps of the moves, and whether all of them have ended."""

    bodies: tuple[Decision, ...]
    over: bool
    order: MoveOrder
    """Which moves wait for which."""
    leaving: frozenset[str] = frozenset()
    """Nodes with pods that have yet to move."""
    stalled: bool = False
    """Whether moves are left and none of them can begin before another node is closed."""
    blocked: tuple[Blocked, ...] = ()
    """Moves that cannot begin, and why."""


def advance(ctx: ExecutionContext) -> Moves:
    """Go on with every move, then begin as many as there is room for, of those that wait for no other."""
    taken_back = ctx.execution.abort is not None  # rolling updates are, by the rollback
    items = [item for item in movers(ctx) if not (taken_back and item.strategy == "rolling")]
    decisions = [abandon(ctx, item.key) if ctx.skipped(item.key) else _go_on(ctx, item) for item in items]
    running, idle = _split(ctx, items, decisions)
    if ctx.stopping:
        return _last_moves(ctx, running, decisions)
    room = _open_room(ctx, items, decisions)
    decisions = [one if one.leaves is None or room.take_one(*one.leaves) else OVER for one in decisions]
    running, idle = _split(ctx, items, decisions)
    over = not running and not idle and not ctx.to_close
    pending = _pending(ctx, [*running, *idle])
    order = MoveOrder(ctx, pending, [_unit_under_way(ctx, item) for item in running if not ctx.skipped(item.key)])
    due = [item for one in idle if (item := _due(ctx, order, one)) is not None]
    begun = _begin(ctx, room, running, due, order)
    # Moves of later waves may wait for what those of this wave bring, whose nodes have yet to be closed.
    stalled = not running and all(item.strategy == "rolling" or _is_later(order, item) for item in due)
    decisions += begun if running or (stalled and order.closable) else hopeless(ctx, due, begun)
    decisions.append(_misplaced(ctx, running, idle, pending))
    moved = [item for item in (*running, *idle) if not ctx.skipped(item.key)]
    return Moves(
        bodies=tuple(body for one in decisions for body in one.bodies),
        over=over,
        order=order,
        leaving=frozenset(pod.node for item in moved for pod in item.victims if pod.node is not None),
        stalled=stalled and not any(one.bodies for one in begun),
        blocked=tuple(one.waits for one in decisions if one.waits is not None),
    )


def _split(
    ctx: ExecutionContext, items: list[WorkloadMoves], decisions: list[MoveDecision]
) -> tuple[list[WorkloadMoves], list[WorkloadMoves]]:
    """Return the workloads with a move under way, and those without one that still have to move something."""
    pairs = list(zip(items, decisions, strict=True))
    running = [item for item, decision in pairs if not decision.over]
    over = [item for item, decision in pairs if decision.over]
    return running, [item for item in over if not ctx.skipped(item.key) and _left(ctx, item)]


def _open_room(ctx: ExecutionContext, items: list[WorkloadMoves], decisions: list[MoveDecision]) -> Room:
    """Return the account of this decision: what open nodes have left once the moves under way have got their pods.

    Those that are about to evict take theirs from it, then those that begin.
    """
    running, idle = _split(ctx, items, decisions)
    promised = _promised(ctx, running, _pending(ctx, [*running, *idle]))
    room = Room(ctx.cluster, ctx.open_nodes, reserved=ctx.route.temporary, promised=promised)
    for item, decision in zip(items, decisions, strict=True):
        if not decision.over and decision.leaves is None:
            _reserve(ctx, room, item)
            _reserve_in_quotas(ctx, room, item)
    for daemon in coming_daemons(ctx):
        room.quotas.take(daemon, daemon.requests, 1)
    return room


def _last_moves(ctx: ExecutionContext, running: list[WorkloadMoves], decisions: list[MoveDecision]) -> Moves:
    """Go on with the moves under way and begin none."""
    under_way = {uid for item in running for uid in _under_way(ctx, item)}
    nodes = (pod.node for item in running for pod in item.pods if pod.uid in under_way or item.strategy == "rolling")
    return Moves(
        bodies=tuple(body for one in decisions for body in one.bodies),
        over=not running,
        order=MoveOrder(ctx, ()),
        leaving=frozenset(name for name in nodes if name is not None),
    )


def _wave_of_roll(ctx: ExecutionContext, item: WorkloadMoves) -> int:
    """Return the wave in which a workload is rolled."""
    planned = [legs[-1].wave for pod in item.pods if (legs := ctx.route.legs.get(pod.uid))]
    return max(planned, default=ctx.route.last)


def _wave_of_unit(ctx: ExecutionContext, item: WorkloadMoves) -> int:
    """Return the wave of the move in progress. Its pods may be gone already, or were not known to the plan."""
    if item.strategy == "rolling":
        return _wave_of_roll(ctx, item)
    steer = ctx.unit("prefer-nodes", item.key, ctx.units.get(item.key, 0))
    if steer is None:
        return min(item.waves.values(), default=ctx.route.unplanned)
    known = [ctx.route.legs[uid][0].wave for uid in steer.step.pods if uid in ctx.route.legs]
    onward = [leg.wave for (key, _), leg in ctx.stopovers.items() if key == item.key]
    return min(known or onward, default=ctx.route.unplanned)


def _unit_under_way(ctx: ExecutionContext, item: WorkloadMoves) -> MoveUnderWay:
    """Return the move in progress, with the nodes that its pods leave and come to."""
    steer = ctx.unit("prefer-nodes", item.key, ctx.units.get(item.key, 0))
    pods, nodes = (steer.step.pods, set(steer.step.nodes)) if steer is not None else ((), set[str]())
    for uid in pods:
        nodes |= {leg.to for leg in ctx.route.legs.get(uid, ())[:1]}
        nodes |= {name for name in (ctx.sources.get(uid),) if name is not None}
    return MoveUnderWay(_wave_of_unit(ctx, item), frozenset(nodes))


def _due(ctx: ExecutionContext, order: MoveOrder, item: WorkloadMoves) -> WorkloadMoves | None:
    """Return the workload with those of its pods whose moves may begin; None where that is none."""
    if item.strategy == "rolling":
        return item if _wave_of_roll(ctx, item) <= order.wave else None
    victims = tuple(pod for pod in item.victims if order.may_begin(_move(item, pod)))
    return replace(item, victims=victims) if victims else None


def _is_later(order: MoveOrder, item: WorkloadMoves) -> bool:
    """Return whether all its pods are of waves that have yet to come."""
    return all(item.waves[pod.uid] > order.wave for pod in item.victims)


def _move(item: WorkloadMoves, pod: Pod) -> PendingMove:
    return PendingMove(pod, item.waves[pod.uid], item.targets.get(pod.uid, ""), item.strategy)


def _left(ctx: ExecutionContext, item: WorkloadMoves) -> bool:
    """Return whether a workload still has to move something."""
    if item.strategy == "rolling":
        return ctx.unit("roll", item.key, 1) is None and not resized(ctx, item.key)
    return bool(item.victims)


def _go_on(ctx: ExecutionContext, item: WorkloadMoves) -> MoveDecision:
    """Return the move in progress; over when there is none."""
    number = ctx.units.get(item.key, 0)
    if number == 0:
        return OVER
    if item.strategy == "rolling":
        return resizing(ctx, item) or roll(ctx, item)
    forbidden = _forbidden(ctx, item, number)
    if forbidden is not None:
        return skip(ctx, item, "held", forbidden)
    if ctx.unit("evict", item.key, number) is not None or item.strategy == "evict":
        return evict(ctx, item, number)
    return surge(ctx, item, number)


def _forbidden(ctx: ExecutionContext, item: WorkloadMoves, number: int) -> str | None:
    """Return why a pod of the move in progress must stay, as long as it can still be kept; None if all may leave."""
    steer = ctx.unit("prefer-nodes", item.key, number)
    last = ctx.unit("evict", item.key, number) or ctx.unit("surge-down", item.key, number)
    if steer is None or (last is not None and last.state != "failed"):
        return None
    surges = item.strategy != "evict" and ctx.unit("evict", item.key, number) is None
    moving = [pod for pod in item.pods if pod.uid in steer.step.pods]
    return next(filter(None, (_unwanted(ctx, pod, surges=surges) for pod in moving)), None)


def _unwanted(ctx: ExecutionContext, pod: Pod, *, surges: bool) -> str | None:
    """Return why a pod may not leave by the rules of now; where it `surges`, another copy would run beside it."""
    held = ctx.judge.held(pod.key)
    if held is not None:
        return f"{pod.key} may not move by the rules of now: {held.reason}"
    if surges and no_second_copy(ctx.cluster, pod):
        return f"{pod.key} may not run beside another copy by the rules of now"
    return None


def _begin(
    ctx: ExecutionContext, room: Room, running: list[WorkloadMoves], idle: list[WorkloadMoves], order: MoveOrder
) -> list[MoveDecision]:
    """Begin moves until slots or room are used up.

    First those that make room for later waves, then those from the node that was closed first, so that it is gone soon,
    and larger pods before smaller ones. Rolling updates come last in their wave, when all its nodes are closed: their
    pods go where the scheduler puts them, not where the plan says, and would take the room of those that are steered.
    Those of later waves may wait for the room that a rolling update frees.
    """
    steered = [item for item in idle if item.strategy != "rolling"]
    too_soon = bool(order.closable) or any(item.strategy != "rolling" for item in running)
    idle = steered or ([] if too_soon else idle)
    if not idle:
        return []
    decisions: list[MoveDecision] = []
    slots = ctx.limits.max_parallel_moves - len(running)
    for item in sorted(idle, key=lambda item: _turn(ctx, order, item)):
        if slots <= 0:
            break
        decisions.append(_begin_one(ctx, room, item, later=order.mixed))
        slots -= 1 if decisions[-1].bodies else 0
    return decisions


def _turn(ctx: ExecutionContext, order: MoveOrder, item: WorkloadMoves) -> tuple[bool, int, int, int, str]:
    awaited = any(order.others_wait(_move(item, pod)) for pod in item.victims)
    first = min(map(ctx.turn_of, item.victims), default=0)
    return (not awaited, first, *_size(_requests(item)), item.key)


def _size(requests: Amounts) -> tuple[int, int]:
    """Return what larger pods are sorted by first."""
    return -requests.get("cpu", 0), -requests.get("memory", 0)


def _sample(item: WorkloadMoves) -> Pod | None:
    return next(iter(item.victims or item.pods), None)


def _requests(item: WorkloadMoves) -> Amounts:
    pod = _sample(item)
    return pod.requests if pod is not None else Amounts()


def _pending(ctx: ExecutionContext, items: list[WorkloadMoves]) -> list[PendingMove]:
    """Return the moves that have not ended: of pods on nodes that are not closed yet, and of these workloads."""
    unclosed = {one.node for one in (*ctx.to_close, *ctx.being_closed)}
    moves: list[PendingMove] = []
    for place in ctx.plan.placements if unclosed else ():
        pod = ctx.alive.get(place.uid) if place.source in unclosed and place.strategy != "rolling" else None
        legs = ctx.route.legs.get(place.uid)
        if pod is not None and legs and pod.node == place.source:
            moves.append(PendingMove(pod, legs[0].wave, legs[0].to, place.strategy))
    for item in items:
        if ctx.skipped(item.key):
            continue
        if item.strategy == "rolling":
            wave = _wave_of_roll(ctx, item)
            moves += (PendingMove(pod, wave, "", "rolling") for pod in item.pods)
        else:
            moves += (_move(item, pod) for pod in item.victims)
    return moves


def _coming(
    ctx: ExecutionContext, running: list[WorkloadMoves], pending: list[PendingMove]
) -> dict[str, list[tuple[Pod, Amounts]]]:
    """Return pods whose moves have not begun, and what they will take, by planned node; without rolling updates."""
    coming: dict[str, list[tuple[Pod, Amounts]]] = {}
    begun = {uid for item in running for uid in _under_way(ctx, item)}
    for move in pending:
        if move.to and move.strategy != "rolling" and move.pod.uid not in begun:
            takes = with_attachments(ctx.cluster, move.pod, move.pod.requests)
            coming.setdefault(move.to, []).append((move.pod, takes))
    return coming


def _promised(ctx: ExecutionContext, running: list[WorkloadMoves], pending: list[PendingMove]) -> Mapping[str, Amounts]:
    """Return what pods will take whose moves have not begun, by planned node: who goes elsewhere must not settle there.

    On a full cluster one pod in another's place drives that one elsewhere, and so on until the last has no place.
    """
    return {node: total(takes for _, takes in pods) for node, pods in _coming(ctx, running, pending).items()}


def _misplaced(
    ctx: ExecutionContext, running: list[WorkloadMoves], idle: list[WorkloadMoves], pending: list[PendingMove]
) -> MoveDecision:
    """End the plan where others took room that it needs and no open node has as much: its rest is planned again.

    Pods that landed elsewhere are such others, as are those that came since. So it is where those take the room that a
    plan leaves for pods that may preempt others. Plans with stops are left to their waves: room there comes and goes.
    Pods that have yet to leave a node still count on it here, and make room in time, by rolling updates, too.
    """
    if not ctx.route.straight:
        return OVER
    coming, free = _coming(ctx, running, pending), room_left(ctx.cluster)
    leaving: dict[str, list[Amounts]] = {}
    for pod, takes in (one for pods in coming.values() for one in pods):
        leaving.setdefault(pod.node or "", []).append(takes)
    under_way = {uid for item in running for uid in _under_way(ctx, item)}
    going = [pod for item in running for pod in item.pods if pod.uid in under_way]
    going += [pod for pods in ctx.evictable.values() for pod in pods if pod.terminating]
    for pod in going:
        leaving.setdefault(pod.node or "", []).append(with_attachments(ctx.cluster, pod, pod.requests))
    rolls = [item for item in (*running, *idle) if item.strategy == "rolling" and not ctx.skipped(item.key)]
    away = _rolled_away(ctx, rolls)
    over: list[Pod] = []
    rest: dict[str, Amounts] = {}
    for name in ctx.open_nodes:
        left = add(add(free[name], total(leaving.get(name, ()))), total(away.get(name, ())))
        for pod, takes in sorted(coming.get(name, ()), key=lambda one: (*_size(one[1]), one[0].key)):
            if fits(takes, left):
                left = subtract(left, takes)
            else:
                over.append(pod)
        rest[name] = subtract(left, total(away.get(name, ())))
    promised = {name: total(takes for _, takes in pods) for name, pods in coming.items()}
    room = Room(ctx.cluster, ctx.open_nodes, promised=promised) if over else None
    for pod in over:
        if room is not None and not room.take(pod, pod.requests, "", 1):
            where = next(name for name, pods in coming.items() if any(one is pod for one, _ in pods))
            detail = f"node {where} has no room left for {pod.key}, and no other open node has"
            return MoveDecision(ctx.replan("misplaced", detail))
    return _without_room(ctx, rest, rolls)


def _rolled_away(ctx: ExecutionContext, rolls: list[WorkloadMoves]) -> Mapping[str, list[Amounts]]:
    """Return what the pods take now, by node, that rolling updates have yet to bring elsewhere by the plan."""
    places = {place.uid: place.to for place in ctx.plan.placements} if rolls else {}
    found: dict[str, list[Amounts]] = {}
    for pod in (pod for item in rolls for pod in item.pods):
        if pod.node is not None and places.get(pod.uid, pod.node) != pod.node:
            found.setdefault(pod.node, []).append(with_attachments(ctx.cluster, pod, pod.requests))
    return found


def _without_room(ctx: ExecutionContext, left: Mapping[str, Amounts], rolls: list[WorkloadMoves]) -> MoveDecision:
    """End the plan where what is left after the other moves is too little for rolling updates, or for newcomers."""
    rolled = [(pod, _new_requests(item, pod)) for item in rolls for pod in item.pods if pod.node in ctx.deletes]
    homeless = None if any(item.requests for item in rolls) else _homeless(ctx, left, rolled)
    if homeless is not None:
        detail = f"no open node will have room for {homeless.key} when it is rolled"
        return MoveDecision(ctx.replan("misplaced", detail))
    workload = crowded_out(ctx, left, rolled)
    if workload is not None:
        detail = f"pods that came since leave no room for another of {workload}, which might preempt others"
        return MoveDecision(ctx.replan("crowded", detail))
    return OVER


def _homeless(ctx: ExecutionContext, left: Mapping[str, Amounts], rolled: list[tuple[Pod, Amounts]]) -> Pod | None:
    """Return a pod that a rolling update has yet to bring from a node that goes and that has no room on any other.

    Asked where updates change no requests: they free no room. A node that is yet to boot has its room.
    """
    if any(ctx.awaited.values()):
        return None
    places = {place.uid: place.to for place in ctx.plan.placements}
    room = dict(left)
    for pod, takes in rolled:
        names = [name for name in (places.get(pod.uid, ""), *room) if name in room and fits(takes, room[name])]
        if not names:
            return pod
        room[names[0]] = subtract(room[names[0]], takes)
    return None


def _under_way(ctx: ExecutionContext, item: WorkloadMoves) -> tuple[str, ...]:
    """Uids of the pods that leave with the move in progress."""
    steer = ctx.unit("prefer-nodes", item.key, ctx.units.get(item.key, 0))
    return steer.step.pods if steer is not None else ()


def _reserve(ctx: ExecutionContext, room: Room, item: WorkloadMoves) -> None:
    """Take the room of new pods that a running move asked for and that are bound to no node yet.

    A pod that was evicted a moment ago may be there yet, as far as the state shows.
    """
    pod, number = _sample(item), ctx.units.get(item.key, 0)
    if pod is None:
        return
    steer, up = ctx.unit("prefer-nodes", item.key, number), ctx.unit("surge-up", item.key, number)
    evicted = ctx.unit("evict", item.key, number)
    gone = evicted.step.pods if evicted is not None and evicted.state == "done" else ()
    bound = sum(1 for other in item.pods if other.node is not None and other.uid not in gone)
    if ctx.unit("surge-down", item.key, number) is not None:
        missing = 0  # all have come, or none would leave
    elif up is not None and not up.lost:
        missing = max(0, up.step.replicas_to - bound)
    elif steer is not None and steer.step.pods and up is None and not ctx.done(unit_id("evict", item.key, number)):
        missing = len(steer.step.pods)
    else:
        missing = max(0, item.replicas - bound)
    nodes = steer.step.nodes if steer is not None else ()
    room.take(pod, pod.requests, nodes[0] if nodes else "", missing)


def _new_requests(item: WorkloadMoves, pod: Pod) -> Amounts:
    """Return what a pod requests after its rolling update."""
    return FrozenMap({**pod.requests, **(item.requests or EMPTY)})


def _reserve_in_quotas(ctx: ExecutionContext, room: Room, item: WorkloadMoves) -> None:
    """Take from the quotas what a running move has asked for and has not got yet; an evicted pod's place is its own."""
    pod, number = _sample(item), ctx.units.get(item.key, 0)
    if pod is None or ctx.unit("evict", item.key, number) is not None:
        return
    steer, up = ctx.unit("prefer-nodes", item.key, number), ctx.unit("surge-up", item.key, number)
    if item.strategy == "rolling":
        started = ctx.unit("roll", item.key, 1)
        bound = bound_of(started.step) if started is not None else 0
        missing = item.replicas + (bound or item.at_once) - len(item.pods)
        room.quotas.take(pod, _new_requests(item, pod), max(0, missing))
        asked = int(started.figures.get("generation", 0)) if started is not None else 0
        if item.workload is not None and (not asked or item.workload.observed_generation < asked):
            room.quotas.take_set(pod.namespace)
    elif item.strategy == "surge" and ctx.unit("surge-down", item.key, number) is None:
        if up is not None:
            missing = 0 if up.lost else up.step.replicas_to - len(item.pods)
        else:
            missing = len(steer.step.pods) if steer is not None else 0
        room.quotas.take(pod, pod.requests, max(0, missing))


def _begin_one(ctx: ExecutionContext, room: Room, item: WorkloadMoves, *, later: bool) -> MoveDecision:
    held = _held(item)
    if held is not None:
        return skip(ctx, item, "held", held)
    ineffective = _ineffective(ctx, item)
    if ineffective:
        last = ineffective[-1]
        if len(ineffective) >= _rounds(ctx, item):
            reason = last.result if last.state == "failed" else "taken-back"
            return fail(ctx, item, reason, f"{len(ineffective)} moves had no effect, the last: {last.detail or reason}")
        if last.state == "failed" and not ctx.passed(last.ended, ctx.limits.pause_seconds(len(ineffective))):
            return WAIT
    if not item.healthy:
        return blocked(ctx, item, "not-ready", "not all of its pods are Ready and up to date")
    if item.strategy == "rolling":
        return resize_in_place(ctx, item) or beyond_limit(ctx, item) or _begin_roll(ctx, room, item)
    return _begin_unit(ctx, room, item, later=later)


def _held(item: WorkloadMoves) -> str | None:
    """Return why no pod of the workload may be touched; None if any may."""
    if item.strategy == "stay":
        return "its pods may not move by the rules of now"
    if item.workload is not None and item.workload.paused:
        return "it is paused: its owner wants its pods left as they are"
    return None


def _ineffective(ctx: ExecutionContext, item: WorkloadMoves) -> list[Progress]:
    """Ended moves of the workload whose pods still have to leave, or were followed by others that have to.

    The plan does not know the pod that came up at a stop, nor the one that comes up there again after a move onward:
    more such moves than pods that have left their stops had no effect.
    """
    leaving, known = {pod.uid for pod in item.victims}, ctx.route.legs
    stops = sum(key == item.key for key, _ in ctx.stopovers)
    effective = stops - len(leaving - known.keys())
    found: list[Progress] = []
    for number in range(1, ctx.units.get(item.key, 0) + 1):
        for kind in ("surge-up", "evict"):
            progress = ctx.progress(unit_id(kind, item.key, number))
            if progress is None:
                continue
            effective -= sum(uid not in known for uid in progress.step.pods)
            if leaving.intersection(progress.step.pods) or (effective < 0 and not known.keys() & progress.step.pods):
                found.append(progress)
    return found


def _rounds(ctx: ExecutionContext, item: WorkloadMoves) -> int:
    """Return how many moves may have no effect. Under KEDA the next would go as the last did."""
    scalers = autoscalers_of(ctx.cluster, item.workload) if item.workload is not None else ()
    return 1 if any(scaler.scaled_object for scaler in scalers) else ctx.limits.rounds


def _begin_roll(  # noqa: PLR0911 - one return per reason to wait
    ctx: ExecutionContext, room: Room, item: WorkloadMoves
) -> MoveDecision:
    workload, pod = item.workload, _sample(item)
    if workload is None or workload.type != "Deployment":
        return skip(ctx, item, "held", "only a Deployment can be rolled")
    unwanted = next(filter(None, (_unwanted(ctx, one, surges=True) for one in item.pods)), None)
    if unwanted is not None:
        return skip(ctx, item, "held", unwanted)
    if any(ctx.awaited.get(place.to) for place in ctx.plan.placements if place.uid in {pod.uid for pod in item.pods}):
        return WAIT
    why = _halfway(ctx, room, item)
    if why is not None:
        return blocked(ctx, item, "no-room", f"its rolling update might wait half way: {why}")
    if pod is None:
        return begin_roll(ctx, item, workload, item.at_once)
    requests = _new_requests(item, pod)
    admitted = room.quotas.fits(pod, requests, item.at_once)
    if not admitted:
        return blocked(ctx, item, "quota", room.quotas.why(pod, requests))
    no_set = room.quotas.why_no_set(pod.namespace)
    if no_set is not None:
        return blocked(ctx, item, "quota", no_set)
    # A new pod without room waits for an old one to end; one that may preempt would not wait.
    preempts = may_preempt(ctx.cluster, pod)
    found = room.take(pod, requests, "", admitted if preempts else 1)
    if not found:
        return blocked(ctx, item, "no-room", "no open node has room for one more of its pods")
    surplus = len(found) if preempts else admitted
    room.quotas.take(pod, requests, surplus)
    room.quotas.take_set(pod.namespace)
    return begin_roll(ctx, item, workload, surplus, bounded=preempts)


def _halfway(ctx: ExecutionContext, room: Room, item: WorkloadMoves) -> str | None:
    """Return why a roll might not get through by the rules that the workload's pods have among themselves."""
    if not item.pods:
        return None
    pod, remaining = item.pods[0], [node for node in ctx.cluster.nodes if node.name not in ctx.deletes]
    requests = _new_requests(item, pod)

    def fitting(name: str) -> int:
        return room.copies(pod, requests, name, len(item.pods))

    return why_stuck(ctx.cluster, item.pods, remaining, fitting)


def _begin_unit(ctx: ExecutionContext, room: Room, item: WorkloadMoves, *, later: bool) -> MoveDecision:
    """Begin to move victims of one planned target together, as many as may leave at once and as there is room for.

    While later waves count on what is free, or pods are leaving the planned node, no pod goes elsewhere.
    """
    target = next((item.targets[pod.uid] for pod in item.victims if pod.uid in item.targets), "")
    if ctx.awaited.get(target):
        return WAIT
    if target in ctx.route.temporary and target not in ctx.judge.open_nodes:
        node = ctx.cluster.node(target)
        if node is None or not node.ready:
            return WAIT  # it is being booted
        detail = f"temporary node {target} admits no pods: it is cordoned, unreadable or being deleted"
        return blocked(ctx, item, "no-room", detail)
    group = [pod for pod in item.victims if item.targets.get(pod.uid, "") == target][: item.at_once]
    leaving = any(pod.terminating for pod in ctx.evictable.get(target, ()))
    if item.strategy == "surge":
        admitted = room.quotas.fits(group[0], group[0].requests, len(group))
        if not admitted:
            return blocked(ctx, item, "quota", room.quotas.why(group[0], group[0].requests))
        group = group[:admitted]
    patient = leaving and not ctx.passed(ctx.last_event, ctx.limits.blocked_seconds)
    elsewhere = not target or not (later or patient)
    nodes = room.take(group[0], group[0].requests, target, len(group), elsewhere=elsewhere, leaves=True)
    if not nodes:
        where = "no open node has" if elsewhere else f"node {target} has no"
        return blocked(ctx, item, "no-room", f"{where} room for {group[0].key}")
    if item.strategy == "surge":
        room.quotas.take(group[0], group[0].requests, len(nodes))
    pods = tuple(sorted(pod.uid for pod in group[: len(nodes)]))
    number = ctx.units.get(item.key, 0) + 1
    return steering(ctx, item, number, pods, nodes)


def abandon(ctx: ExecutionContext, key: str) -> MoveDecision:
    """Take back what an unfinished move of this workload left; over once that has ended."""
    number = ctx.units.get(key, 0)
    touched = any(
        (progress := ctx.unit(kind, key, number)) is not None and progress.state == "open" for kind in _UNIT_KINDS
    )
    if touched:
        return WAIT
    if number == 0 or not (unfinished(ctx, key, number) or rolled(ctx, key)):
        return OVER
    return restored(ctx, key)


def restored(ctx: ExecutionContext, key: str) -> MoveDecision:
    """Restore a workload; over once that is done or has failed for good."""
    before = ctx.progress(f"revert/{key}")
    if before is not None and not before.over:
        return MoveDecision(ctx.intend(before.step))
    if before is not None:
        return unrolled(ctx, key, before) if rolled(ctx, key) else OVER
    return MoveDecision(ctx.intend(restoring(ctx, key, listed_by_workload(ctx.cluster).get(key, ()))))


def surges_left(ctx: ExecutionContext) -> tuple[str, ...]:
    """Return workloads with Kinema's deletion cost on a living pod, or with a surge that never ended, sorted.

    Costs as the state shows them: pods that were to leave in the place of others are in no step.
    """
    marked = (pod for pod in ctx.alive.values() if COST_BEFORE in pod.annotations)
    costs = {key for pod in marked if (key := ctx.cluster.workload_key_of(pod)) in ctx.units}
    # Every move and not only the last: one that an autoscaler cut short may have left the autoscaler's limits raised.
    cut = {key for key, last in ctx.units.items() if any(unfinished(ctx, key, n) for n in range(1, last + 1))}
    return tuple(sorted(costs | cut))
