"""Events in one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kinema_cli.output import could_be_saved, counted, hourly
from kinema_cli.report.data import EventRow
from kinema_cli.status.plans import completed_phase
from kinema_cli.status.reasons import in_words
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
    PolicyEvaluated,
    ServiceStarted,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
    kind_of_type,
)

_REFUSALS = (IterationSkipped, NoPlanFound, PlanRejected, PlanApprovalRequested, StepFailed, ExecutionAborted)


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
    if isinstance(body, ServiceStarted):
        return body.service
    service = _PROTOCOL[type(body)][0] if type(body) in _PROTOCOL else "observer"
    return f"operator ({getattr(body, 'by', '')})" if service == "operator" else service


def in_a_line(body: AnyBody) -> str:
    """Return the event in one line."""
    return _PROTOCOL[type(body)][1](body) if type(body) in _PROTOCOL else ""


def step_in_a_line(step: Step) -> str:
    """Return what a step does."""
    if step.kind == "evict" and step.replicas_from:  # the replicas stay what they are: pods are counted there
        return f"evict {len(step.pods)} of the {counted(step.replicas_from, 'pod')} of {step.target}"
    parts: list[str] = [step.kind, *([step.target] if step.target else [])]
    if step.replicas_from != step.replicas_to:
        parts.append(f"{step.replicas_from} → {step.replicas_to} replicas")
    if step.offer:
        parts.append(f"as {step.offer}")
    if step.pods:
        parts.append(f"for {counted(len(step.pods), 'pod')}")
    return " ".join(parts)


def figures_in_a_line(figures: Figures) -> str:
    """Return every figure in words with its unit, by name; restarts beside moves are those in place."""
    in_place = {"restarts": "restarts in place"} if "moves" in figures else {}
    return ", ".join(_figure(in_place.get(name, name), value) for name, value in sorted(figures.items()))


def _figure(name: str, value: float | str) -> str:
    """Return a figure; the end of its name is its unit."""
    amount = f"{value:.4g}" if isinstance(value, float) else str(value)
    end = next((end for end in _UNITS if name.endswith(end)), "")
    before, after = _UNITS[end] if end and not isinstance(value, str) else ("", "")
    what = name.removesuffix(end) if before or after else name
    return f"{_WORDS.get(what, what).replace('_', ' ')} {before}{amount}{after}"


_UNITS: Final = {
    "_usd_per_hour": ("$", "/h"),
    "_usd": ("$", ""),
    "_watts": ("", " W"),
    "_watt_hours": ("", " Wh"),
    "_seconds": ("", " s"),
    "_mib": ("", " MiB"),
}
"""Ends of names → what stands before and after the amount."""
_WORDS: Final = {"cost_new": "new cost"}


def _with_figures(text: str, figures: Figures) -> str:
    return f"{text} ({figures_in_a_line(figures)})" if figures else text


def _forecast(body: ForecastMade) -> str:
    refused = Counter(item.reason for item in body.refused)
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(refused.items()))
    none = f", none for {len(body.refused)} ({reasons})" if refused else ""
    return f"new requests for {len(body.forecasts)} workloads{none}"


def _reason(body: IterationSkipped | NoPlanFound) -> str:
    return _with_figures(in_words(body.reason), body.figures)


def _command(body: ExecutionPaused | AbortRequested) -> str:
    return body.reason or "no reason given"


def _plan(body: Plan) -> str:
    cost = body.cost
    amount = f"{cost.before:.1f} → {cost.after:.1f} W"
    if cost.unit != "W":
        amount = f"{hourly(cost.before)} → {hourly(cost.after)}"
    left = could_be_saved(cost.after, cost.lower_bound, cost.unit)
    return f"{body.status}: {amount}, {counted(body.moves, 'move')}; {left}"


def _policy(body: PolicyEvaluated) -> str:
    steps = ", ".join(
        f"{step.action} {' '.join((*step.removed, *step.emptied, *step.bought))}".rstrip() for step in body.steps
    )
    does = "would do" if body.shadow else "does"
    return body.reason or f"{body.policy} {does}: {steps or 'nothing'}"


def _verdict(body: PlanRejected | PlanApprovalRequested) -> str:
    text = _with_figures(f"{body.rule}: {body.reason}", body.figures)
    return f"{text}. What would change it: {body.would_change}" if body.would_change else text


def _failure(body: StepFailed) -> str:
    text = _with_figures(f"{body.step}: {body.reason}: {body.detail}", body.figures)
    return f"{text}; {'will be repeated' if body.retry else 'not repeated'}"


def _abort(body: ExecutionAborted) -> str:
    left = f"; left behind: {', '.join(body.leftovers)}" if body.leftovers else ""
    return _with_figures(f"{body.reason}: {body.detail}", body.figures) + left


_PROTOCOL: Final[Mapping[type, tuple[str, Callable[[Any], str]]]] = {
    ServiceStarted: ("", lambda _: "started with new settings"),
    IterationStarted: (
        "observer",
        lambda body: f"{body.mode} at state {body.version}: {_with_figures(in_words(body.reason), body.figures)}",
    ),
    IterationSkipped: ("observer", _reason),
    NodeDeletionRequested: ("observer", lambda body: f"{body.node} runs no evictable pod"),
    ForecastMade: ("predictor", _forecast),
    Plan: ("optimizer", _plan),
    NoPlanFound: ("optimizer", _reason),
    PolicyEvaluated: ("optimizer", _policy),
    PlanAccepted: ("decider", lambda body: _with_figures(f"decided on state {body.version}", body.figures)),
    PlanRejected: ("decider", _verdict),
    PlanApprovalRequested: ("decider", _verdict),
    CatalogPublished: ("rescheduler", lambda body: f"{len(body.offers)} offers from {body.source}"),
    StepStarted: (
        "rescheduler",
        lambda body: step_in_a_line(body.step) + (f", attempt {body.attempt}" if body.attempt > 1 else ""),
    ),
    StepSucceeded: ("rescheduler", lambda body: _with_figures(f"{body.step} {body.outcome}", body.figures)),
    StepFailed: ("rescheduler", _failure),
    ExecutionCompleted: ("rescheduler", lambda body: _with_figures(f"plan {completed_phase(body)[0]}", body.figures)),
    ExecutionAborted: ("rescheduler", _abort),
    ExecutionPaused: ("operator", _command),
    ExecutionResumed: ("operator", lambda _: ""),
    PlanApproved: ("operator", lambda body: body.plan),
    AbortRequested: ("operator", _command),
}
"""Type of an event → the service that publishes it, and the event in one line."""
