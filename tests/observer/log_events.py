"""LOG events of an iteration's life, as the other services publish them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kinema_core.events import (
    AnyBody,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    FrozenMap,
    IterationStarted,
    Mode,
    NoPlanFound,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    Step,
    StepFailed,
    StepKind,
    StepStarted,
    StepSucceeded,
)
from kinema_core.runtime.envelope import origin
from kinema_observer.logic.logview import LogView, fold

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
Timed = tuple[float, str, AnyBody]
"""Seconds after START, iteration, body."""


def at(seconds: float) -> datetime:
    """The time so many seconds after START."""
    return START + timedelta(seconds=seconds)


def event(number: int, timed: Timed) -> Event:
    """The event with its envelope."""
    seconds, iteration, body = timed
    return origin(body, id_=f"e{number}", cluster="c1", iteration=iteration, now=at(seconds))


def view(*timed: Timed) -> LogView:
    """The folded log of these events."""
    folded = LogView()
    for number, item in enumerate(timed, start=1):
        folded = fold(folded, number, event(number, item))
    return folded


def started(mode: Mode, version: int = 1, *pods: str) -> IterationStarted:
    """An iteration begins."""
    return IterationStarted(mode=mode, version=version, reason="stable", pods=pods)


def none(mode: Mode = "reschedule") -> NoPlanFound:
    """The optimizer has nothing to propose."""
    return NoPlanFound(mode=mode, version=1, reason="nothing-better")


def accepted(moves: int = 0) -> PlanAccepted:
    """The plan shall be carried out."""
    return PlanAccepted(plan="p1", version=1, figures=FrozenMap({"moves": moves}))


def refused(rule: str = "drift") -> PlanRejected:
    """The plan shall not be carried out."""
    return PlanRejected(plan="p1", version=1, rule=rule, reason="too much", would_change="less of it")


def held() -> PlanApprovalRequested:
    """The plan waits for an operator."""
    return PlanApprovalRequested(plan="p1", version=1, rule="approval", reason="asked for", would_change="an approval")


def intended(kind: StepKind, step: str = "s1") -> StepStarted:
    """A step is about to be tried."""
    return StepStarted(plan="p1", step=Step(id=step, kind=kind, target="n9"), fencing=1, deadline=at(600))


def done(step: str = "s1") -> StepSucceeded:
    """A step was made."""
    return StepSucceeded(plan="p1", step=step, fencing=1, outcome="done")


def failed(step: str = "s1", *, retry: bool) -> StepFailed:
    """A step was not made."""
    return StepFailed(plan="p1", step=step, fencing=1, reason="stock-out", detail="none left", retry=retry)


def finished() -> ExecutionCompleted:
    """The plan is carried out."""
    return ExecutionCompleted(plan="p1", fencing=1)


def aborted() -> ExecutionAborted:
    """The plan was given up."""
    return ExecutionAborted(plan="p1", fencing=1, reason="operator", detail="")


def ended(
    deleted: int, replan: str = "misplaced", plan: str = "p1", *, saved: float | None = None
) -> ExecutionCompleted:
    """The plan has ended before its end; what it saved, USD per hour, may be unknown."""
    figures = {"deleted": deleted, **({} if saved is None else {"saved_usd_per_hour": saved})}
    return ExecutionCompleted(plan=plan, fencing=1, figures=FrozenMap(figures), replan=replan)
