"""Decision on the next steps of an execution: a pure function of the journal, the cluster state and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from kinema_core.events import (
    CatalogPublished,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    Figures,
    FrozenMap,
    NodeDeletionRequested,
    Offer,
    StepFailed,
)
from kinema_core.model.catalog_file import MICRO
from kinema_core.model.cluster import Cluster
from kinema_core.model.missing import missing_objects
from kinema_core.model.mobility import is_resident
from kinema_core.model.quarantine import quarantine_of
from kinema_rescheduler.journal.execution import Execution, Journal, Verdict, of_request, plan_of_steps
from kinema_rescheduler.moves.decision import Blocked
from kinema_rescheduler.moves.order import MoveOrder
from kinema_rescheduler.moves.scheduling import advance
from kinema_rescheduler.moves.waiting import kept_waiting
from kinema_rescheduler.names import DISRUPTED, REPLAN, ROLL_STUCK, keep_id, taint_id, untaint_id
from kinema_rescheduler.plan.context import Decision, ExecutionContext, Wait
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.plan.phases import (
    Phase,
    await_booted,
    await_ready,
    boot,
    clean,
    close,
    delete,
    finish_marks,
    free_again,
    leftovers,
    may_pass,
    needs_taints,
    never_closed,
    off_limits,
    release,
    rent,
    retire,
    without_boots,
)
from kinema_rescheduler.plan.rollback import give_back, reason_to_abort, reason_to_fail, roll_back, take_rolls_back

_UNKNOWN_PLAN: Final = ("unknown-plan", "its proposal is not in the log")


def current(journal: Journal, cluster: Cluster) -> Execution | None:
    """Return the execution to go on with: the active one, else a requested deletion that is still right.

    No decider judges a requested deletion. So none begins during a pause, and only of a node that an accepted plan has
    closed: anyone who may label nodes could ask for others.
    """
    if journal.active is not None:
        return journal.active
    for name in sorted(journal.requests if not journal.paused else ()):
        event = journal.requests[name]
        if name in journal.closed and _still_right(event, cluster, journal.closed[name]):
            return of_request(event)
    return None


def _still_right(event: Event, cluster: Cluster, closed: str) -> bool:
    """Return whether the node is the one meant and closed, is still labeled so, and runs no pod that would be lost."""
    request = event.body
    assert isinstance(request, NodeDeletionRequested)
    node = cluster.node(request.node)
    if node is None or {node.uid} != {request.uid, closed} or DISRUPTED not in node.labels:
        return False
    if node.name in quarantine_of(cluster).nodes:
        return False
    return all(is_resident(cluster, pod) for pod in cluster.pods_by_node.get(node.name, ()))


def decide(
    journal: Journal, cluster: Cluster, now: datetime, *, limits: Limits, fencing: int, wait: Wait | None = None
) -> tuple[Decision, ...]:
    """Return the next intents and verdicts of the current execution, or its end; nothing while it can only wait.

    Without a state an execution that has begun is aborted, and what the journal names is reverted: marks must not stay
    for as long as the observer is away. The same holds for an execution whose proposal cannot be read.

    Args:
        journal: fold of the log.
        cluster: fold of the state, of which the version is recorded with the answer; version 0 where it is not known.
        now: cluster time; recorded with the answer.
        limits: what the operator set.
        fencing: lease revision of the process that decides, stamped on everything.
        wait: notes for how long the answer stays the same while nothing else changes than the time.
    """
    execution = current(journal, cluster)
    if execution is None:
        return ()
    if execution.plan is None and not execution.steps:
        return (_aborted(execution, fencing, *_UNKNOWN_PLAN),)
    ctx = ExecutionContext(
        execution=execution,
        plan=execution.plan or plan_of_steps(execution),
        cluster=cluster,
        now=now,
        limits=limits,
        fencing=fencing,
        offers=_sold(journal.catalog),
        wait=wait or Wait(),
    )
    stale = _stale(ctx) if not execution.steps else None
    if stale is not None:
        return (stale,)
    return _next(ctx)


def _next(ctx: ExecutionContext) -> tuple[Decision, ...]:
    """Return what is next of an execution that may begin: forward, only its moves under way, or back."""
    cause, able = reason_to_abort(ctx), _able(ctx)
    if cause is not None and (reason_to_fail(ctx) is not None or not able):
        return _back(ctx, cause)
    if not able:
        return _unable(ctx)
    phase = _wind_down(ctx) if ctx.stopping else _forward(ctx)
    if phase.bodies or not phase.over:
        return phase.bodies
    if cause is not None:
        return _back(ctx, cause)
    return () if may_pass(ctx) and not free_again(ctx) else (_end(ctx),)


def _able(ctx: ExecutionContext) -> bool:
    """Return whether moves can go on: there is a plan and a state, and an abort does not wait for a doubtful one."""
    doubtful = ctx.execution.abort is not None and missing_objects(ctx.cluster, ctx.limits.missing_share) is not None
    return ctx.execution.plan is not None and not ctx.blind and not doubtful


def _unable(ctx: ExecutionContext) -> tuple[Decision, ...]:
    """Abort an execution that cannot go on; one that has only booted nodes waits for a state."""
    if ctx.execution.plan is None:
        return ctx.give_up(*_UNKNOWN_PLAN)
    marked = any(progress.step.kind != "boot" for progress in ctx.execution.steps.values())
    return ctx.give_up("state-unknown", "the cluster could not be observed") if marked else ()


def _back(ctx: ExecutionContext, cause: Verdict) -> tuple[Decision, ...]:
    """Roll back; without a state only what the journal names, and the end waits for a state a little longer."""
    if missing_objects(ctx.cluster, ctx.limits.missing_share) is not None:
        ctx = replace(ctx, cluster=Cluster())  # nodes that it lacks may be there, and closed
    phase = roll_back(ctx)
    waits = ctx.blind and not ctx.passed(ctx.last_event, ctx.limits.observed_seconds)
    if phase.bodies or not phase.over or waits:
        return phase.bodies
    return (_aborted(ctx.execution, ctx.fencing, cause.reason, cause.detail, leftovers(ctx), _figures(ctx)),)


def _sold(catalog: Event | None) -> tuple[Offer, ...]:
    """Return what Kinema itself would buy for pods that wait."""
    body = catalog.body if catalog is not None else None
    return body.offers if isinstance(body, CatalogPublished) and not body.delegated else ()


def blocked(journal: Journal, cluster: Cluster, now: datetime) -> tuple[Blocked, ...]:
    """Moves of the current execution that cannot begin, and why: for people who ask what it waits for."""
    execution = current(journal, cluster)
    if execution is None or execution.plan is None or cluster.version == 0:
        return ()
    # Whatever the operator set: a move that is about to be left out is blocked still.
    limits = Limits(blocked_seconds=10.0**9)
    ctx = ExecutionContext(execution=execution, plan=execution.plan, cluster=cluster, now=now, limits=limits, fencing=0)
    if reason_to_abort(ctx) is not None or not needs_taints(ctx):
        return ()
    return advance(ctx).blocked


def _stale(ctx: ExecutionContext) -> ExecutionAborted | None:
    """Abort a plan whose execution did not begin in time: it was made for another cluster state."""
    cause = ctx.execution.cause.time
    if not ctx.passed(cause, ctx.limits.start_seconds):
        return None
    return _aborted(ctx.execution, ctx.fencing, "stale", f"accepted at {cause.isoformat()} and never begun")


def _forward(ctx: ExecutionContext) -> Phase:
    """Go on with the plan, unless the state contradicts itself or a booted node is unfit; without moves only boot."""
    whole, ready = _whole_state(ctx), await_ready(ctx)
    if not whole.over:
        return whole
    if ready.bodies:
        return ready
    if not needs_taints(ctx):
        booting = boot(ctx, MoveOrder(ctx, ()))
        return _last(ctx) if booting.over and ready.over else Phase(booting.bodies)
    verdicts = off_limits(ctx) or without_boots(ctx) or kept_waiting(ctx)
    return Phase(verdicts) if verdicts else _side_by_side(ctx, ready)


def _wind_down(ctx: ExecutionContext) -> Phase:
    """End the moves under way and delete the nodes that they empty; open all others, and begin nothing.

    What has been saved stays saved. After an operator's abort the rest is the rollback's; else what is left is planned
    again, and that plan may use what was booted.
    """
    whole, kept = _whole_state(ctx), off_limits(ctx)
    if not whole.over or kept:
        return Phase(kept) if whole.over else whole
    moves = advance(ctx)
    verdicts = _first_of_each([body for body in moves.bodies if isinstance(body, StepFailed)])
    if verdicts:
        return Phase(verdicts)
    phases = (
        Phase(moves.bodies, moves.over),
        finish_marks(ctx),
        delete(ctx, moves.leaving),
        release(ctx),
        take_rolls_back(ctx),
        await_booted(ctx) if ctx.execution.abort is None else Phase(over=True),
    )
    bodies = tuple(body for phase in phases for body in phase.bodies)
    if bodies or not all(phase.over for phase in phases):
        return Phase(bodies)
    return Phase(over=True) if ctx.execution.abort is not None else _last(ctx)


def _side_by_side(ctx: ExecutionContext, ready: Phase) -> Phase:
    """Boot and close some nodes while others are emptied and deleted; verdicts come alone: they change all the rest."""
    moves = advance(ctx)
    rented = rent(ctx, moves.order.wave) if ready.over or ctx.units else Phase(over=not ctx.route.temporary)
    verdicts = _first_of_each([body for body in (*moves.bodies, *rented.bodies) if isinstance(body, StepFailed)])
    if verdicts:
        return Phase(verdicts)
    phases = (
        boot(ctx, moves.order),
        Phase(moves.bodies, moves.over),
        rented,
        close(ctx, moves),
        release(ctx),
        delete(ctx, moves.leaving),
        retire(ctx, moves.order.wave),
    )
    bodies = tuple(body for phase in phases for body in phase.bodies)
    if bodies or not (ready.over and all(phase.over for phase in phases)):
        return Phase(bodies)
    kept = never_closed(ctx)
    return Phase(kept) if kept else _last(ctx)


def _last(ctx: ExecutionContext) -> Phase:
    """Give back the booted nodes that are no use, then take back every mark."""
    unfit = give_back(ctx, sorted(ctx.unfit))
    return unfit if unfit.bodies or not unfit.over else clean(ctx)


def _whole_state(ctx: ExecutionContext) -> Phase:
    """Begin no step on a state that contradicts itself: a node that seems empty may be in use."""
    return Phase(over=missing_objects(ctx.cluster, ctx.limits.missing_share) is None)


def _first_of_each(verdicts: Sequence[StepFailed]) -> tuple[StepFailed, ...]:
    """Each verdict once: several moves may give the plan up at the same moment, and one word of it is stored."""
    first: dict[str, StepFailed] = {}
    for verdict in verdicts:
        first.setdefault(verdict.step, verdict)
    return tuple(first.values())


def _end(ctx: ExecutionContext) -> ExecutionCompleted | ExecutionAborted:
    left = leftovers(ctx)
    if left:
        detail = "the plan was executed, but not all of Kinema's changes could be reverted"
        return _aborted(ctx.execution, ctx.fencing, "leftovers", detail, left, _figures(ctx))
    replan = next(_reasons_to_replan(ctx), "")
    return ExecutionCompleted(plan=ctx.execution.plan_id, fencing=ctx.fencing, figures=_figures(ctx), replan=replan)


def _reasons_to_replan(ctx: ExecutionContext) -> Iterator[str]:
    """Yield why what this execution has left may come out better at once."""
    verdicts = ctx.execution.verdicts
    if REPLAN in verdicts:
        yield verdicts[REPLAN].reason
    yield from ctx.refused.values()
    kept = any(keep_id(one.node) in verdicts for one in ctx.closings)
    if kept and any(verdict.reason == ROLL_STUCK for verdict in verdicts.values()):
        yield ROLL_STUCK
    if any(ctx.cluster.node(name) is not None for name in ctx.route.temporary):
        yield "temporary-kept"
    if free_again(ctx):
        yield "free-again"
    if _is_dearer(ctx):
        yield "dearer"


def _is_dearer(ctx: ExecutionContext) -> bool:
    """Return whether the nodes that were booted cost more than those that are gone, and the plan was to save."""
    return -_saved(ctx) > max(0, round((ctx.plan.cost.after - ctx.plan.cost.before) * MICRO))


def _saved(ctx: ExecutionContext) -> int:
    """Return what the nodes that are gone cost less those that were booted and are there, in micro-USD per hour."""
    prices = {node.name: round(node.usd_per_hour * MICRO) for node in (*ctx.plan.nodes, *ctx.plan.temporary)}
    more = sum(prices[name] for name in ctx.booted if ctx.cluster.node(name) is not None)
    less = sum(prices[one.node] for one in ctx.closings if ctx.cluster.node(one.node) is None)
    return less - more


def _aborted(
    execution: Execution,
    fencing: int,
    reason: str,
    detail: str,
    left: tuple[str, ...] = (),
    figures: Figures | None = None,
) -> ExecutionAborted:
    return ExecutionAborted(
        plan=execution.plan_id,
        fencing=fencing,
        reason=reason,
        detail=detail,
        leftovers=left,
        figures=figures if figures is not None else FrozenMap(),
    )


def _figures(ctx: ExecutionContext) -> Figures:
    """Return what was done, counted from the journal; misses from where the pods are."""
    steps = ctx.execution.steps.values()
    done = [progress.step for progress in steps if progress.state == "done"]
    surged = sum(step.replicas_from - step.replicas_to for step in done if step.kind == "surge-down")
    started = next((progress.intended for progress in steps), ctx.now)
    return FrozenMap(
        {
            "booted": sum(1 for step in done if step.kind == "boot"),
            "deleted": sum(1 for step in done if step.kind == "delete"),
            "moves_surge": surged,
            "moves_evict": sum(1 for step in done if step.kind == "evict"),
            "moves_rolling": sum(step.replicas_from for step in done if step.kind == "roll"),
            "placement_misses": _misses(ctx),
            "workloads_skipped": len(ctx.skips),
            "nodes_kept": sum(
                1 for name in ctx.deletes if not ctx.done(f"delete/{name}") and ctx.cluster.node(name) is not None
            ),
            "nodes_closed_most": _closed_most(ctx),
            "seconds": round((ctx.now - started).total_seconds(), 3),
            **({} if ctx.blind else {"saved_usd_per_hour": round(_saved(ctx) / MICRO, 6)}),
        }
    )


def _closed_most(ctx: ExecutionContext) -> int:
    """Return the most nodes that were closed at a time and not yet being deleted; temporary ones aside."""
    changes: list[tuple[datetime, int, int]] = []
    for one in ctx.closings:
        taint, opened = ctx.progress(taint_id(one.node)), ctx.progress(untaint_id(one.node))
        if taint is None or taint.state != "done" or taint.ended is None:
            continue
        deleted = ctx.progress(f"delete/{one.node}")
        ends = [deleted.first] if deleted is not None else []
        ends += [opened.ended] if opened is not None and opened.state == "done" and opened.ended is not None else []
        changes += [(taint.ended, 1, 1), (min(ends, default=ctx.now), 0, -1)]
    closed = most = 0
    for _, _, change in sorted(changes):
        closed += change
        most = max(most, closed)
    return most


def _misses(ctx: ExecutionContext) -> int:
    """Pods of moved workloads that the plan wants on a node and that are not there; without a state not counted.

    Pods whose move never began, as after an abort, are none: they are where they were.
    """
    if ctx.blind:
        return 0
    moved = ctx.units.keys()
    wanted: dict[tuple[str, str], int] = {}
    begins = Counter[str]()
    here: dict[tuple[str, str], int] = {}
    owners = {pod.key.rpartition("-")[0]: ctx.cluster.workload_key_of(pod) for pod in ctx.alive.values()}
    # A roll leaves no pod of the set that the plan knew: its Deployment's name begins their names.
    rolled = {key.partition("/")[2]: key for key in moved if ctx.unit("roll", key, 1) is not None}
    for place in ctx.plan.placements:
        set_name = place.pod.rpartition("-")[0]
        workload = owners.get(set_name) or rolled.get(set_name) or rolled.get(set_name.rpartition("-")[0])
        if workload in moved:
            wanted[workload, place.to] = wanted.get((workload, place.to), 0) + 1
            begins[workload] += place.strategy == "rolling" or place.source not in {None, place.to}
    for pod in ctx.alive.values():
        workload = ctx.cluster.workload_key_of(pod)
        if workload in moved and pod.node is not None:
            here[workload, pod.node] = here.get((workload, pod.node), 0) + 1
    missing = Counter[str]()
    for (workload, node), count in wanted.items():
        missing[workload] += max(0, count - here.get((workload, node), 0))
    return (missing - (begins - _moved(ctx))).total()


def _moved(ctx: ExecutionContext) -> Counter[str]:
    """Return how many pods of each workload were moved."""
    found = Counter[str]()
    for progress in ctx.execution.steps.values():
        step = progress.step
        if progress.state == "done" and step.kind in {"surge-down", "evict", "roll"}:
            pods = {"surge-down": step.replicas_from - step.replicas_to, "roll": step.replicas_to}
            found[step.target] += pods.get(step.kind, 1)
    return found
