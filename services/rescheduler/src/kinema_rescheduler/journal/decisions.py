"""Decisions as events: the same live and in a replay.

A decision depends on the log before it, the state version and the time that it carries, and the limits: a replay
makes it again from these. Outcomes of effects are no decisions; a replay takes them as they were.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    StepFailed,
    StepStarted,
    StepSucceeded,
    kind_of_type,
)
from kinema_core.model.cluster import Cluster
from kinema_core.model.foreign import beside_its_autoscaler
from kinema_core.runtime.envelope import answer
from kinema_rescheduler.journal.execution import FOLLOWED, Journal, fold
from kinema_rescheduler.moves.decision import Blocked
from kinema_rescheduler.names import is_verdict
from kinema_rescheduler.plan.context import Decision, Wait
from kinema_rescheduler.plan.decide import blocked, current, decide
from kinema_rescheduler.plan.limits import Limits

NAME: Final = "rescheduler"


def event_of(body: Decision | StepSucceeded, *, cause: Event, name: str, now: datetime, state: int) -> Event:
    """Return an event of the execution that `cause` began."""
    return answer(body, cause=cause, service=NAME, n=name, now=now, state=state)


def decided(
    journal: Journal, cluster: Cluster, *, now: datetime, limits: Limits, fencing: int, wait: Wait | None = None
) -> tuple[Event, ...]:
    """Return what to publish next, decided on a journal and a state at a time; `wait` as in `decide`."""
    execution = current(journal, cluster)
    if execution is None:
        return ()
    bodies = decide(journal, _as_sold(journal, cluster), now, limits=limits, fencing=fencing, wait=wait)
    return tuple(
        event_of(body, cause=execution.cause, name=_name(body), now=now, state=cluster.version) for body in bodies
    )


def held_up(journal: Journal, cluster: Cluster, *, now: datetime) -> tuple[Blocked, ...]:
    """Moves that cannot begin for now, and why, by the same journal and state."""
    return blocked(journal, _as_sold(journal, cluster), now)


def _as_sold(journal: Journal, cluster: Cluster) -> Cluster:
    """Return the state as it is seen beside the catalog: which of the nodes' marks are another autoscaler's."""
    catalog = journal.catalog.body if journal.catalog is not None else None
    return beside_its_autoscaler(cluster, delegated=isinstance(catalog, CatalogPublished) and catalog.delegated)


def _name(body: Decision) -> str:
    match body:
        case StepStarted():
            return f"{body.step.id}-{body.attempt}-intended"
        case StepFailed():
            return f"{body.step}-decided"
        case ExecutionCompleted():
            return "finished"
        case ExecutionAborted():
            return "aborted"


def outcome_name(step_id: str, attempt: int, body: StepSucceeded | StepFailed) -> str:
    """Tail of the id of an outcome: one for each attempt."""
    return f"{step_id}-{attempt}-{'done' if isinstance(body, StepSucceeded) else 'failed'}"


def is_decision(body: AnyBody) -> bool:
    """Return whether an event is a decision, not the outcome of an effect."""
    if isinstance(body, StepFailed):
        return is_verdict(body.step)
    return isinstance(body, StepStarted | ExecutionCompleted | ExecutionAborted)


@dataclass
class DecisionReplay:
    """Makes recorded decisions again: feed it the log in order, and ask at the first event of each decision.

    Events of others that were stored shortly before a decision may not have been read by it. A decision that does
    not come out the same with them is made without those that came after the rescheduler's own last event.
    """

    limits: Limits
    _journal: Journal = field(default_factory=Journal)
    _before: Journal = field(default_factory=Journal)
    """The journal up to the rescheduler's own last event."""

    def recall(self, event: Event) -> None:
        """Take note of a log event; to be called for every one, decisions included."""
        if kind_of_type(event.type) not in FOLLOWED:
            return
        self._journal = fold(self._journal, event)
        if event.id.startswith(f"{event.cause}/{NAME}/"):
            self._before = self._journal

    def again(self, first: Event, cluster: Cluster) -> tuple[Event, ...]:
        """Everything that was decided together with `first`, before it is recalled.

        Args:
            first: the first recorded event of a decision: those behind it share its `time` and `state`.
            cluster: the state folded up to `first.state`.
        """
        fencing = getattr(first.body, "fencing", 0)
        found: tuple[Event, ...] = ()
        for journal in (self._journal, self._before):
            found = decided(journal, cluster, now=first.time, limits=self.limits, fencing=fencing)
            if any(event.id == first.id for event in found):
                return found
        return found
