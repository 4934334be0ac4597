"""The pipeline's current state by the streams, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Final, TypeVar

import msgspec

from kinema_cli.output import could_be_saved, counted
from kinema_cli.status.execution import (
    QUIET_SECONDS,
    ExecutionStatus,
    blocked_on,
    execution_of,
    pending_pods,
    steps_of,
)
from kinema_cli.status.plan_ids import short_id
from kinema_cli.status.plans import (
    DECIDED_KINDS,
    IN_PART,
    PENDING,
    completed_phase,
    cost_reached,
    format_cost,
    phase_of,
    usd_after,
    usd_before,
)
from kinema_cli.status.reasons import in_words
from kinema_core.events import (
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    Figures,
    ForecastMade,
    IterationSkipped,
    IterationStarted,
    NoPlanFound,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
)
from kinema_core.events.frozen import EMPTY
from kinema_core.model.cluster import Cluster
from kinema_core.model.cluster import fold as fold_cluster
from kinema_core.runtime.bus import Bus, Damaged, Stored, StreamName
from kinema_core.runtime.follow import Follower, StateLostError
from kinema_rescheduler.journal.decisions import held_up
from kinema_rescheduler.journal.execution import Journal, fold

T = TypeVar("T")


class StateStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The newest observed state."""

    version: int
    observed: datetime
    age_seconds: float


class IterationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The newest iteration and its stage."""

    id: str
    mode: str
    started: datetime
    version: int
    reason: str
    stage: str
    """`forecasting`, `optimizing`, `deciding`, `awaiting-approval`, `executing` or `over`."""
    outcome: str = ""
    """Why it has ended, or what it waits for."""


class PlanStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The newest plan and its phase."""

    id: str
    short_id: str
    proposed: datetime
    status: str
    usd_per_hour_before: float
    usd_per_hour_after: float
    lower_bound: float
    cost_after: float
    """In the unit of the bound."""
    unit: str = "USD/h"
    """Of the bound; `W` where energy is minimized."""
    gap: float | None
    moves: int
    phase: str
    """As in `PlanState`."""
    rule: str = ""
    reason: str = ""
    would_change: str = ""
    outlived: str = ""
    """What has happened since a rejection so that its cause is gone; empty while that holds, or may hold."""
    figures: Figures = EMPTY


class PauseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Pause of the pipeline by the operator."""

    paused: bool
    by: str = ""
    reason: str = ""
    since: datetime | None = None


class SkipStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Why no iteration began at the observer's last check."""

    at: datetime
    reason: str
    figures: Figures = EMPTY


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole status; parts that are not known are None."""

    cluster: str
    now: datetime
    pause: PauseStatus
    state: StateStatus | None = None
    iteration: IterationStatus | None = None
    skipped: SkipStatus | None = None
    plan: PlanStatus | None = None
    execution: ExecutionStatus | None = None
    damaged: tuple[str, ...] = ()
    """Kinds whose newest message is damaged."""

    @property
    def empty(self) -> bool:
        """True if no service has published an event yet."""
        return self.state is None and self.iteration is None and self.skipped is None


_LOG_KINDS: Final = (
    "iteration-started",
    "iteration-skipped",
    "forecast-made",
    "plan-proposed",
    "no-plan-found",
    "plan-accepted",
    "plan-rejected",
    "plan-approval-requested",
    "execution-completed",
    "execution-aborted",
    "abort-requested",
    "execution-paused",
    "execution-resumed",
)
_STAGES: Final[Mapping[type, str]] = {
    ForecastMade: "optimizing",
    Plan: "deciding",
    PlanApprovalRequested: "awaiting-approval",
    PlanAccepted: "executing",
    NoPlanFound: "over",
    PlanRejected: "over",
    ExecutionCompleted: "over",
    ExecutionAborted: "over",
}
"""Stage of an iteration after such an event."""
_STAGE_KINDS: Final = (
    "forecast-made",
    "plan-proposed",
    "no-plan-found",
    *DECIDED_KINDS,
)

_RUNS: Final = frozenset({"forecasting", "optimizing", "deciding", "executing"})
"""Stages in which an iteration continues by itself."""
_STATE_KINDS: Final = ("cluster-delta", "cluster-snapshot")
_STEP_KINDS: Final = ("step-started", "step-succeeded", "step-failed", "execution-completed", "execution-aborted")


async def read_status(bus: Bus, *, cluster: str, now: datetime) -> Status:
    """Return the status by the newest event of each kind and the steps of the newest execution."""
    newest: dict[str, Stored] = {}
    damaged: list[str] = []
    streams: dict[StreamName, tuple[str, ...]] = {"LOG": _LOG_KINDS, "STATE": _STATE_KINDS}
    for stream, kinds in streams.items():
        for kind in kinds:
            item = await bus.last(stream, kind)
            if isinstance(item, Damaged):
                damaged.append(kind)
            elif item is not None:
                newest[kind] = item
    steps, cycle = list[Event](), list[Stored]()
    started = newest.get("iteration-started")
    if started is not None:
        found = bus.read("LOG", start=started.sequence, kinds=_STAGE_KINDS)
        cycle = [item async for item in found if isinstance(item, Stored)]
    accepted = newest.get("plan-accepted")
    if accepted is not None:
        found = bus.read("LOG", start=accepted.sequence, kinds=_STEP_KINDS)
        steps = [item.event async for item in found if isinstance(item, Stored)]
    status = status_of(newest, steps, cycle, cluster=cluster, now=now, damaged=tuple(damaged))
    running = status.execution
    if running is None or running.phase != "Running":
        return status
    quiet = (now - running.last_progress_time).total_seconds() >= QUIET_SECONDS
    if running.running and not quiet:
        return status
    looked = await _looked_into(bus, running, newest, steps, now=now)
    return msgspec.structs.replace(
        status, execution=looked if quiet else msgspec.structs.replace(looked, pending_pods=())
    )


async def _looked_into(
    bus: Bus, running: ExecutionStatus, newest: Mapping[str, Stored], steps: list[Event], *, now: datetime
) -> ExecutionStatus:
    """Return the execution with what it waits for, and the pods that wait for its end, by the newest state."""
    try:
        state, _ = await Follower(bus, Cluster(), fold_cluster).latest()
    except StateLostError as error:
        return msgspec.structs.replace(running, blocked_on=(f"a state of the cluster: {error}",))
    catalog = await bus.last("LOG", "catalog-published")
    before = [catalog, newest.get("plan-proposed"), newest.get("plan-accepted")]
    log = [*(item.event for item in before if isinstance(item, Stored)), *steps]
    plan = next((event.body for event in log if event.id == running.plan and isinstance(event.body, Plan)), None)
    blocked, mine = held_up(reduce(fold, log, Journal()), state, now=now), steps_of(running.plan, steps)
    return msgspec.structs.replace(
        running, blocked_on=blocked_on(mine, plan, state, blocked), pending_pods=pending_pods(mine, plan, state)
    )


def status_of(
    newest: Mapping[str, Stored],
    steps: list[Event],
    cycle: Sequence[Stored],
    *,
    cluster: str,
    now: datetime,
    damaged: tuple[str, ...] = (),
) -> Status:
    """Return the status.

    Args:
        newest: the newest event of each kind.
        steps: those since a plan was last accepted.
        cycle: what shows stages since an iteration last began. The newest of a kind may be about a plan from a file.
        cluster: its name.
        now: the cluster's time.
        damaged: kinds whose newest message is damaged.
    """
    execution, pause = execution_of(newest, steps), _pause(newest)
    outlived = _outlived(newest, execution, pause, now)
    mine = _events_of(newest, cycle)
    iteration = _iteration(newest, mine, steps, outlived)
    return Status(
        cluster=cluster,
        now=now,
        pause=pause,
        state=_state(newest, now),
        iteration=iteration,
        skipped=_skipped(newest, mine, iteration, execution),
        plan=_plan(newest, outlived),
        execution=execution,
        damaged=damaged,
    )


def _of(newest: Mapping[str, Stored], kind: str, body: type[T]) -> tuple[Stored, T] | None:
    item = newest.get(kind)
    return (item, item.event.body) if item is not None and isinstance(item.event.body, body) else None


def _latest(newest: Mapping[str, Stored], *kinds: str) -> Stored | None:
    """Return the newest event of these kinds."""
    return max((newest[kind] for kind in kinds if kind in newest), key=lambda item: item.sequence, default=None)


def _pause(newest: Mapping[str, Stored]) -> PauseStatus:
    last = _latest(newest, "execution-paused", "execution-resumed")
    match last.event.body if last is not None else None:
        case ExecutionPaused(by=by, reason=reason) if last is not None:
            return PauseStatus(paused=True, by=by, reason=reason, since=last.event.time)
        case ExecutionResumed(by=by) if last is not None:
            return PauseStatus(paused=False, by=by, since=last.event.time)
        case _:
            return PauseStatus(paused=False)


def _state(newest: Mapping[str, Stored], now: datetime) -> StateStatus | None:
    last = _latest(newest, *_STATE_KINDS)
    if last is None or not isinstance(last.event.body, ClusterSnapshot | ClusterDelta):
        return None
    observed = last.event.time
    return StateStatus(
        version=last.event.body.version, observed=observed, age_seconds=max(0.0, (now - observed).total_seconds())
    )


def _outlived(
    newest: Mapping[str, Stored], execution: ExecutionStatus | None, pause: PauseStatus, now: datetime
) -> str:
    """Return why the newest rejection would not be made again; empty where its cause remains, or is not known to pass.

    No plan follows only because its cause is gone, so that it may remain the newest decision for long.
    """
    found = _of(newest, "plan-rejected", PlanRejected)
    if found is None:
        return ""
    item, body = found
    match body.rule:
        case "executing" if execution is not None:
            running = execution.phase == "Running" and execution.plan == body.figures.get("executing")
            return "" if running else "it has ended since"
        case "paused" if not pause.paused:
            return "resumed since"
        case "cooldown":
            rest = float(body.figures.get("cooldown_seconds", 0)) - float(body.figures.get("passed_seconds", 0))
            return "" if (now - item.event.time).total_seconds() < rest else "the rest is over since"
        case _:
            return ""


def _iteration(
    newest: Mapping[str, Stored], mine: Sequence[Stored], steps: list[Event], outlived: str
) -> IterationStatus | None:
    found = _of(newest, "iteration-started", IterationStarted)
    if found is None:
        return None
    started, body = found
    last = max(mine, key=lambda item: item.sequence)
    stage, outcome = _stage(last.event, body.mode)
    if isinstance(last.event.body, ExecutionCompleted):
        cost = _cost(newest, steps, last.event.body) if outcome.startswith(f"plan {IN_PART}") else ""
        outcome += f"; {cost}" if cost else ""
    elif isinstance(last.event.body, PlanRejected) and outlived:
        outcome += f"; {outlived}"
    return IterationStatus(
        id=started.event.iteration,
        mode=body.mode,
        started=started.event.time,
        version=body.version,
        reason=body.reason,
        stage=stage,
        outcome=outcome,
    )


def _cost(newest: Mapping[str, Stored], steps: list[Event], end: ExecutionCompleted) -> str:
    """Return what the cluster costs after the newest plan, completed in part; empty where it is not known."""
    plan = newest.get("plan-proposed")
    if plan is None or plan.event.id != end.plan or not isinstance(plan.event.body, Plan):
        return ""
    return format_cost(plan.event.body, cost_reached(plan.event.body, steps_of(end.plan, steps).done, end))


def _events_of(newest: Mapping[str, Stored], cycle: Sequence[Stored]) -> list[Stored]:
    """Return the events that show the stage of the newest iteration: its start at least; none where none began."""
    started = newest.get("iteration-started")
    if started is None:
        return []
    return [started, *(item for item in cycle if item.event.iteration == started.event.iteration)]


def _stage(last: Event, mode: str) -> tuple[str, str]:
    stage = _STAGES.get(type(last.body), "optimizing" if mode == "autoscale" else "forecasting")
    match last.body:
        case ExecutionCompleted():
            phase, left = completed_phase(last.body)
            return stage, f"plan {phase}" + (f": {left}" if left else "")
        case NoPlanFound(reason="nothing-holds-pending", figures=figures):
            pods = int(figures.get("pods_unplaced", 0))
            fit = f"{counted(pods, 'pending pod')} {'fits' if pods == 1 else 'fit'} no node and no machine on sale"
            return stage, f"{fit}; see `kinema explain pod/NAME`"
        case NoPlanFound(reason=reason, figures=figures):
            return stage, f"{in_words(reason)}{_unproven(figures)}"
        case PlanRejected(reason=reason) | PlanApprovalRequested(reason=reason):
            return stage, reason
        case ExecutionAborted(reason=reason, detail=detail):
            return stage, f"{reason}: {detail}"
        case _:
            return stage, ""


def _unproven(figures: Figures) -> str:
    """Return what a cheaper plan might save that was not found in time; empty where there is none, or none is known."""
    cost, bound = (float(figures.get(f"{name}_usd_per_hour", 0)) for name in ("cost", "lower_bound"))
    return f"; {could_be_saved(cost, bound)}" if cost > bound else ""


def _skipped(
    newest: Mapping[str, Stored],
    mine: Sequence[Stored],
    iteration: IterationStatus | None,
    execution: ExecutionStatus | None,
) -> SkipStatus | None:
    """Return why no iteration began, unless one did since, or the running one has made progress since.

    A running iteration is no reason, as it is shown itself.
    """
    found = _of(newest, "iteration-skipped", IterationSkipped)
    if found is None:
        return None
    item, body = found
    started = newest.get("iteration-started")
    if iteration is not None and started is not None:
        news = max(one.sequence for one in mine)
        stepped = (
            execution is not None and execution.phase == "Running" and execution.last_progress_time >= item.event.time
        )
        runs = iteration.stage in _RUNS
        if started.sequence > item.sequence or (runs and (news > item.sequence or stepped)):
            return None
        if body.reason == "iteration-running":
            return None
    return SkipStatus(at=item.event.time, reason=body.reason, figures=body.figures)


def _plan(newest: Mapping[str, Stored], outlived: str) -> PlanStatus | None:
    found = _of(newest, "plan-proposed", Plan)
    if found is None:
        return None
    item, plan = found
    decided = [newest[kind] for kind in DECIDED_KINDS if kind in newest]
    mine = [other for other in decided if getattr(other.event.body, "plan", None) == item.event.id]
    last = max(mine, key=lambda other: other.sequence, default=None)
    verdict = last.event.body if last is not None else None
    proposal = PlanStatus(
        id=item.event.id,
        short_id=short_id(item.event.id),
        proposed=item.event.time,
        status=plan.status,
        usd_per_hour_before=usd_before(plan),
        usd_per_hour_after=usd_after(plan),
        lower_bound=plan.cost.lower_bound,
        cost_after=plan.cost.after,
        unit=plan.cost.unit,
        gap=plan.cost.gap,
        moves=plan.moves,
        phase=PENDING,
    )
    if verdict is None:
        return proposal
    phase, why = phase_of(verdict)
    if not isinstance(verdict, PlanRejected | PlanApprovalRequested):
        figures = verdict.figures if isinstance(verdict, PlanAccepted) else EMPTY  # the end's are the execution's
        return msgspec.structs.replace(proposal, phase=phase, reason=why, figures=figures)
    return msgspec.structs.replace(
        proposal,
        phase=phase,
        rule=verdict.rule,
        reason=verdict.reason,
        would_change=verdict.would_change,
        outlived=outlived if isinstance(verdict, PlanRejected) else "",
        figures=verdict.figures,
    )
