"""Telling people what was decided or came of it: one line in the service's own log, and whoever else wants to hear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import structlog

from kinema_core.events import Event, ExecutionAborted, Placement, Plan, Step, StepDone, StepFailed, StepIntended
from kinema_core.model.cluster import Cluster

_LOG = structlog.get_logger()


@dataclass(frozen=True)
class Background:
    """What people want to read of beside an event: names, and what was before."""

    plan: Plan | None = None
    """The plan that is carried out."""
    cluster: Cluster | None = None
    """The state on which the step was begun."""

    @cached_property
    def waiting(self) -> Mapping[str, tuple[Placement, ...]]:
        """Pending pods by the node that the plan puts them on, by key."""
        pods = self.cluster.pods_by_uid if self.cluster is not None else {}
        found: dict[str, list[Placement]] = {}
        for place in self.plan.placements if self.plan is not None else ():
            if place.source is None and place.uid in pods and pods[place.uid].node is None:
                found.setdefault(place.to, []).append(place)
        return {node: tuple(sorted(places, key=lambda place: place.pod)) for node, places in found.items()}


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
