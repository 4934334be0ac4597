"""View of the log that the observer keeps: a fold over LOG events of iterations and their stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from kinema_core.events import (
    OPERATOR,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ForecastMade,
    IterationSkipped,
    IterationStarted,
    Mode,
    NodeDeletionRequested,
    NoPlanFound,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    ReplicasAhead,
    StepFailed,
    StepStarted,
    StepSucceeded,
    is_unfinished,
    kind_of_type,
    saved_nothing,
)
from kinema_core.model.boot_times import BootTimes
from kinema_observer.logic.settings import LoopSettings

Phase: TypeAlias = Literal["planning", "held", "executing"]

BODIES: Final = (
    IterationStarted,
    IterationSkipped,
    NodeDeletionRequested,
    ForecastMade,
    NoPlanFound,
    PlanRejected,
    PlanApprovalRequested,
    PlanAccepted,
    StepStarted,
    StepSucceeded,
    StepFailed,
    ExecutionCompleted,
    ExecutionAborted,
)
KINDS: Final = tuple(kind_of_type(body.TYPE) for body in BODIES)
"""Kinds of LOG events that matter here."""

_FORGET: Final = timedelta(days=2)
"""Iterations and requests older than this are dropped: their end is not known any more."""
_KEPT_ENDS: Final = 64
"""Ended autoscale iterations remembered; each matters for a minute or so."""
_NODE_OPERATIONS: Final = ("boot", "delete")
AHEAD: Final = "ahead"
"""Reason of an iteration for replicas that are expected."""
_UNTIMELY: Final = ("drift", "executing")
"""Rules of the decider that say nothing against a plan but that something else had come first."""


@dataclass(frozen=True)
class Iteration:
    """One iteration that has not ended: since when it is in its phase, and its node operations in flight."""

    id: str
    mode: Mode
    version: int
    pods: frozenset[str]
    phase: Phase
    since: datetime
    operations: frozenset[str] = frozenset()

    def deadline(self, settings: LoopSettings) -> datetime:
        """Return the time after which the iteration counts as abandoned if no further event comes."""
        seconds = {
            "planning": settings.iteration_deadline_seconds,
            "held": settings.approval_seconds,
            "executing": settings.execution_deadline_seconds,
        }[self.phase]
        return self.since + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Ended:
    """An autoscale iteration that ended, and the pods it covered."""

    at: datetime
    pods: frozenset[str]
    untimely: bool = False
    """Whether its plan was refused only because the cluster had changed, or was being changed."""


@dataclass(frozen=True)
class Unfinished:
    """A plan whose execution ended before its end."""

    plan: str
    reason: str
    at: datetime
    idle: int
    """Executions in a row, up to this one, that were to be continued, saved nothing and left no fewer moves."""
    moves: int
    """Fewest moves of a plan since something was saved: one with fewer is nearer to its end."""
    due: bool = True
    """Whether no iteration has begun for its rest."""


@dataclass(frozen=True)
class LogView:
    """The log up to `sequence`, as far as the observer needs it."""

    sequence: int = 0
    iterations: Mapping[str, Iteration] = field(default_factory=lambda: MappingProxyType({}))
    """Iterations that have not ended, by id."""
    rescheduled: datetime | None = None
    """When a reschedule iteration last ended."""
    autoscaled: tuple[Ended, ...] = ()
    skipped: tuple[str, datetime] | None = None
    """Reason and time of the last refusal since the last start."""
    requested: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    """When the deletion of a node, by its uid, was last asked for."""
    unfinished: Unfinished | None = None
    """The plan that was executed last, where its rest is to be planned again."""
    started: tuple[int, int] = (0, 0)
    """The last version that an iteration began on, and how many did."""
    boot_times: BootTimes = field(default_factory=BootTimes)
    ahead: ReplicasAhead | None = None
    """Replicas that the newest forecast expects."""
    moves: int = 0
    """Of the plan that was accepted last."""
    prepared: datetime | None = None
    """When an iteration last began for replicas that are expected."""

    def running(self, now: datetime, settings: LoopSettings) -> tuple[Iteration, ...]:
        """Return the iterations that have neither ended nor passed their deadline, oldest first."""
        alive = (item for item in self.iterations.values() if now < item.deadline(settings))
        return tuple(sorted(alive, key=lambda item: (item.since, item.id)))


def fold(view: LogView, sequence: int, event: Event) -> LogView:
    """Take one LOG event into the view; pure."""
    boot_times = view.boot_times.after(event)
    view = replace(view, sequence=max(view.sequence, sequence), boot_times=boot_times)
    match event.body:
        case IterationStarted() as body:
            view = _start(view, event, body)
        case IterationSkipped(reason=reason):
            view = replace(view, skipped=(reason, event.time))
        case NodeDeletionRequested(uid=uid):
            recent = {key: time for key, time in view.requested.items() if event.time - time < _FORGET}
            view = replace(view, requested=MappingProxyType({**recent, uid: event.time}))
        case ExecutionCompleted() | ExecutionAborted():
            view = replace(_end(view, event), unfinished=_unfinished(view, event.body, event.time))
        case ForecastMade(ahead=ahead):
            view = replace(view, ahead=ahead)
        case NoPlanFound() | PlanRejected():
            view = _end(view, event)
        case PlanApprovalRequested():
            view = _enter(view, event, "held")
        case PlanAccepted():
            view = replace(_enter(view, event, "executing"), moves=_moves(event.body))
        case StepStarted() | StepSucceeded() | StepFailed():
            view = _step(view, event)
        case _:
            pass
    return view


def _unfinished(view: LogView, end: ExecutionCompleted | ExecutionAborted, at: datetime) -> Unfinished | None:
    """Return the plan that has just ended if its rest is to be planned again."""
    if not is_unfinished(end):
        return None
    reason = end.replan if isinstance(end, ExecutionCompleted) else end.reason
    before, moves = view.unfinished, view.moves
    if not saved_nothing(end):
        return Unfinished(end.plan, reason, at, 0, moves)
    nearer = before is None or moves < before.moves
    idle = 1 if before is None or nearer else before.idle + 1
    return Unfinished(end.plan, reason, at, idle, moves if before is None else min(moves, before.moves))


def _moves(accepted: PlanAccepted) -> int:
    found = accepted.figures.get("moves", 0)
    return found if isinstance(found, int) else 0


def _start(view: LogView, event: Event, body: IterationStarted) -> LogView:
    version, count = view.started
    alive = {key: item for key, item in view.iterations.items() if event.time - item.since < _FORGET}
    alive[event.iteration] = Iteration(
        id=event.iteration,
        mode=body.mode,
        version=body.version,
        pods=frozenset(body.pods),
        phase="planning",
        since=event.time,
    )
    rest = view.unfinished
    return replace(
        view,
        iterations=MappingProxyType(alive),
        unfinished=replace(rest, due=rest.due and body.mode != "reschedule") if rest is not None else None,
        skipped=None,
        prepared=event.time if body.reason == AHEAD else view.prepared,
        started=(body.version, count + 1 if body.version == version else 1),
    )


def _end(view: LogView, event: Event) -> LogView:
    ended = view.iterations.get(event.iteration)
    if ended is None:
        return view
    left = {key: item for key, item in view.iterations.items() if key != ended.id}
    view = replace(view, iterations=MappingProxyType(left))
    if ended.mode == "reschedule":
        return replace(view, rescheduled=event.time)
    untimely = isinstance(event.body, PlanRejected) and event.body.rule in _UNTIMELY
    return replace(view, autoscaled=(*view.autoscaled, Ended(event.time, ended.pods, untimely))[-_KEPT_ENDS:])


def _enter(view: LogView, event: Event, phase: Phase) -> LogView:
    """Take the phase; a plan that an operator proposes begins its iteration by it."""
    found = view.iterations.get(event.iteration)
    if found is None:
        begun = Iteration(event.iteration, "reschedule", event.state, frozenset(), phase, event.time)
        return _with(view, begun) if OPERATOR in event.iteration else view
    return _with(view, replace(found, phase=phase, since=event.time))


def _step(view: LogView, event: Event) -> LogView:
    """Node operations begin with their intent and end with their outcome; one that will be tried again goes on."""
    found = view.iterations.get(event.iteration)
    if found is None:
        return view
    match event.body:
        case StepStarted(step=step) if step.kind in _NODE_OPERATIONS:
            operations = found.operations | {step.id}
        case StepSucceeded(step=done):
            operations = found.operations - {done}
        case StepFailed(step=failed, retry=False):
            operations = found.operations - {failed}
        case _:
            return view
    return _with(view, replace(found, operations=operations))


def _with(view: LogView, item: Iteration) -> LogView:
    return replace(view, iterations=MappingProxyType({**view.iterations, item.id: item}))
