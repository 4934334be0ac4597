"""Events in one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from kinema_cli.output import counted, hourly, percent
from kinema_cli.report.data import EventRow
from kinema_cli.status.plans import completed_phase
from kinema_core.events import (
    AbortRequested,
    AnyBody,
    CatalogPublished,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    Figures,
    ForecastMade,
    IterationSkipped,
    IterationStarted,
    NodeDeletionRequested,
    NoPlanFound,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanApproved,
    PlanRejected,
    ServiceStarted,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
    kind_of_type,
)

_REFUSALS = (IterationSkipped, NoPlanFound, PlanRejected, PlanApprovalRequested, StepFailed, ExecutionAborted)
_PUBLISHED: Final[Mapping[str, tuple[type, ...]]] = {
    "predictor": (ForecastMade,),
    "optimizer": (Plan, NoPlanFound),
    "decider": (PlanAccepted, PlanRejected, PlanApprovalRequested),
    "rescheduler": (CatalogPublished, StepStarted, StepSucceeded, StepFailed, ExecutionCompleted, ExecutionAborted),
}


def rows(log: Sequence[Event], start: datetime) -> tuple[EventRow, ...]:
    """Return a line for every event of the log by time, then by place in the log; times count from `start`."""
    every = sorted(enumerate(log, start=1), key=lambda item: (item[1].time, item[0]))
    return tuple(
        EventRow(
            number=number,
            at=(event.time - start).total_seconds(),
            service=service_of(event.body),
            event=kind_of_type(event.type),
            text=in_a_line(event.body),
            refusal=isinstance(event.body, _REFUSALS),
        )
        for number, event in every
    )


def service_of(body: AnyBody) -> str:
    """Return the service that publishes such an event."""
    match body:
        case ServiceStarted(service=service):
            return service
        case ExecutionPaused(by=by) | ExecutionResumed(by=by) | PlanApproved(by=by) | AbortRequested(by=by):
            return f"operator ({by})"
        case _:
            return next((name for name, kinds in _PUBLISHED.items() if isinstance(body, kinds)), "observer")


def in_a_line(body: AnyBody) -> str:
    """Return the event in one line."""
    match body:
        case IterationStarted(mode=mode, version=version, reason=reason, figures=figures):
            return f"{mode} at state {version}: {_with_figures(reason, figures)}"
        case IterationSkipped(reason=reason, figures=figures):
            return _with_figures(reason, figures)
        case NodeDeletionRequested(node=node):
            return f"{node} runs no evictable pod"
        case ExecutionPaused(reason=reason) | AbortRequested(reason=reason):
            return reason or "no reason given"
        case PlanApproved(plan=plan):
            return plan
        case _:
            return _plan_in_a_line(body)


def _plan_in_a_line(body: AnyBody) -> str:
    match body:
        case ForecastMade():
            return _forecast(body)
        case Plan(cost=cost):
            gap = "unknown" if cost.gap is None else percent(cost.gap, 1)
            amount = f"{cost.before:.1f} → {cost.after:.1f} W"
            if cost.unit != "W":
                amount = f"{hourly(cost.before)} → {hourly(cost.after)}"
            return f"{body.status}: {amount}, {counted(body.moves, 'move')}, gap {gap}"
        case NoPlanFound(reason=reason, figures=figures):
            return _with_figures(reason, figures)
        case PlanAccepted(version=version, figures=figures):
            return _with_figures(f"decided on state {version}", figures)
        case PlanRejected() | PlanApprovalRequested():
            text = _with_figures(f"{body.rule}: {body.reason}", body.figures)
            return f"{text}. What would change it: {body.would_change}" if body.would_change else text
        case _:
            return _rest_in_a_line(body)


def _rest_in_a_line(body: AnyBody) -> str:
    match body:
        case StepStarted(step=step, attempt=attempt):
            return f"{step_in_a_line(step)}{'' if attempt == 1 else f', attempt {attempt}'}"
        case StepSucceeded(step=step_id, outcome=outcome, figures=figures):
            return _with_figures(f"{step_id} {outcome}", figures)
        case StepFailed():
            text = _with_figures(f"{body.step}: {body.reason}: {body.detail}", body.figures)
            return f"{text}; {'will be repeated' if body.retry else 'not repeated'}"
        case ExecutionCompleted(figures=figures):
            return _with_figures(f"plan {completed_phase(body)[0]}", figures)
        case ExecutionAborted():
            left = f"; left behind: {', '.join(body.leftovers)}" if body.leftovers else ""
            return _with_figures(f"{body.reason}: {body.detail}", body.figures) + left
        case _:
            return _setting_in_a_line(body)


def _setting_in_a_line(body: AnyBody) -> str:
    match body:
        case ServiceStarted():
            return "started with new settings"
        case CatalogPublished(source=source, offers=offers):
            return f"{len(offers)} offers from {source}"
        case _:
            return ""


def step_in_a_line(step: Step) -> str:
    """Return what a step does."""
    if step.kind == "evict" and step.replicas_from:  # the replicas stay what they are: pods are counted there
        return f"evict {len(step.pods)} of the {counted(step.replicas_from, 'pod')} of {step.target}"
    parts = [step.kind, step.target]
    if step.replicas_from != step.replicas_to:
        parts.append(f"{step.replicas_from} → {step.replicas_to} replicas")
    if step.offer:
        parts.append(f"as {step.offer}")
    if step.pods:
        parts.append(f"for {counted(len(step.pods), 'pod')}")
    return " ".join(parts)


def figures_in_a_line(figures: Figures) -> str:
    """Return `name value` of every figure, by name; restarts beside moves are those in place."""
    in_place = {"restarts": "restarts in place"} if "moves" in figures else {}
    return ", ".join(
        f"{in_place.get(name, name).replace('_', ' ')} {f'{value:.4g}' if isinstance(value, float) else value}"
        for name, value in sorted(figures.items())
    )


def _with_figures(said: str, figures: Figures) -> str:
    return f"{said} ({figures_in_a_line(figures)})" if figures else said


def _forecast(body: ForecastMade) -> str:
    refused = Counter(item.reason for item in body.refused)
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(refused.items()))
    none = f", none for {len(body.refused)} ({reasons})" if refused else ""
    return f"new requests for {len(body.forecasts)} workloads{none}"
