"""Telling people what was decided or came of it: one line in the service's own log, and whoever else wants to hear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from kinema_core.events import Event, ExecutionAborted, Plan, Step, StepDone, StepFailed, StepIntended
from kinema_core.model.cluster import Cluster

_LOG = structlog.get_logger()


@dataclass(frozen=True)
class Background:
    """What people want to read of beside an event: names, and what was before."""

    plan: Plan | None = None
    """The plan that is carried out."""
    cluster: Cluster | None = None
    """The state on which the step was begun."""


Tell: TypeAlias = Callable[[Event, Step | None, Background], None]
"""Tells people of an event of ours, and of the step whose outcome it is."""


def nobody(event: Event, step: Step | None, background: Background) -> None:
    """Tell nobody."""


def log_event(event: Event) -> None:
    """Tell of an event of an execution."""
    body = event.body
    about: dict[str, str | int] = {"event_id": event.id, "kind": event.type, "state": event.state}
    match body:
        case StepIntended():
            about |= {"step": body.step.id, "attempt": body.attempt}
        case StepDone():
            about |= {"step": body.step, "outcome": body.outcome}
        case StepFailed():
            about |= {"step": body.step, "reason": body.reason, "detail": body.detail}
        case ExecutionAborted():
            about |= {"reason": body.reason, "detail": body.detail}
        case _:
            pass
    _LOG.info("execution", **about)
