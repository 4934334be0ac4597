"""One line in the service's own log for what was decided or came of it."""

from __future__ import annotations

import structlog

from kinema_core.events import Event, ExecutionAborted, StepDone, StepFailed, StepIntended

_LOG = structlog.get_logger()


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
