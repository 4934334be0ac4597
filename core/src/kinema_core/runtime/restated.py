"""Events of LOG that are in force at any age: which they are, when they are stated again, and how they are read.

LOG drops its oldest events above its size. Before it drops one that is in force, the rescheduler publishes all of them
in one `events-restated`, which carries each with its sequence. A bus that reads LOG puts those that LOG does not hold
any more where they were, so that every fold comes out as if nothing had been dropped, also in a replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

import structlog
import zstandard

from kinema_core.events import (
    AbortRequested,
    AnyBody,
    CatalogPublished,
    Event,
    EventsRestated,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    IterationStarted,
    NodeDeletionRequested,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanApproved,
    PlanRejected,
    RestatedEvent,
    ServiceStarted,
    StepFailed,
    StepStarted,
    StepSucceeded,
    encode,
    subject_of,
)
from kinema_core.runtime.bus import Damaged, Extent, Stored
from kinema_core.runtime.framing import FramingError, unpack

A = TypeVar("A")

_UNDECIDED: Final = 16
"""Plans without a verdict that are followed: as many as the decider remembers."""
_REQUESTS: Final = 256
"""Deletion requests and iterations that are followed; the rescheduler remembers as many requests."""
_FULL_ENOUGH: Final = 0.5
"""Below this share of its size LOG has dropped nothing, and the oldest half is not dropped at once."""

_LOG = structlog.get_logger()


_Kept: TypeAlias = tuple[int, Event]
"""An event and its sequence."""


@dataclass
class InForce:
    """A fold of LOG: the events that decisions may still rest on, however old they are."""

    _single: dict[str, _Kept] = field(default_factory=dict)
    """The newest of what there is one of: the pause, the catalog, the settings of each service."""
    _iterations: dict[str, _Kept] = field(default_factory=dict)
    """Beginnings of iterations."""
    _undecided: dict[str, list[_Kept]] = field(default_factory=dict)
    """Proposed plans without a verdict, each with what an operator was asked and has answered."""
    _requests: dict[str, list[_Kept]] = field(default_factory=dict)
    """Requests to delete a node."""
    _open: dict[str, list[_Kept]] = field(default_factory=dict)
    """What was done of plans, and for requests, that have not ended."""
    _restated: int = 0
    """Sequence of the newest restatement."""
    _restated_at: datetime | None = None
    _copied: frozenset[int] = frozenset()
    """Sequences of the events in it."""

    def note(self, item: Stored) -> None:
        """Take note of the next event of LOG."""
        body, kept = item.event.body, (item.sequence, item.event)
        match body:
            case EventsRestated():
                self._restated, self._restated_at = item.sequence, item.event.time
                self._copied = frozenset(event.sequence for event in body.events)
            case CatalogPublished() | ExecutionPaused():
                self._single[body.TYPE] = kept
            case ServiceStarted():
                self._single[f"{body.TYPE}/{body.service}"] = kept
            case ExecutionResumed():
                self._single.pop(ExecutionPaused.TYPE, None)
            case IterationStarted():
                _add(self._iterations, item.event.iteration, kept, _REQUESTS)
            case Plan():
                _add(self._undecided, item.id, [kept], _UNDECIDED)
            case NodeDeletionRequested():
                _add(self._requests, item.id, [kept], _REQUESTS)
            case AbortRequested():
                for events in self._open.values():
                    events.append(kept)
            case _:
                self._note_plan(body, kept)

    def _note_plan(self, body: AnyBody, kept: _Kept) -> None:
        """Take note of a verdict on a plan, or of a step of its execution."""
        match body:
            case PlanApprovalRequested(plan=plan) | PlanApproved(plan=plan):
                self._undecided.get(plan, []).append(kept)
            case PlanAccepted(plan=plan):
                self._open[plan] = [*self._undecided.pop(plan, ()), kept]
            case StepStarted(plan=plan) | StepSucceeded(plan=plan) | StepFailed(plan=plan):
                if plan in self._requests:
                    self._open[plan] = self._requests.pop(plan)
                self._open.get(plan, []).append(kept)
            case PlanRejected(plan=plan):
                self._undecided.pop(plan, None)
            case ExecutionCompleted(plan=plan) | ExecutionAborted(plan=plan):
                self._open.pop(plan, None)
                self._requests.pop(plan, None)
            case _:
                pass

    def events(self) -> list[_Kept]:
        """Return the events that are in force, in order. Of plans that wait for approval only the newest is."""
        held = [events for events in self._undecided.values() if any(_asks_for_approval(event) for _, event in events)]
        found = dict(self._single.values())
        for events in (*held[-1:], *self._open.values()):
            found.update(events)
        iterations = [self._iterations.get(event.iteration) for event in found.values()]
        found.update(begun for begun in iterations if begun is not None)
        return sorted(found.items())

    def restatement(self, extent: Extent, now: datetime) -> EventsRestated | None:
        """Return what to publish before LOG drops an event in force; None as long as none is among the oldest."""
        if extent.filled < _FULL_ENOUGH and extent.max_age_seconds is None:
            return None
        found = self.events()
        copies = [
            (self._restated, self._restated_at or event.time) if sequence in self._copied else (sequence, event.time)
            for sequence, event in found
        ]
        if not any(_is_old(sequence, time, extent, now) for sequence, time in copies):
            return None
        compressor = zstandard.ZstdCompressor()
        return EventsRestated(
            events=tuple(
                RestatedEvent(sequence=sequence, data=compressor.compress(encode(event))) for sequence, event in found
            )
        )


def _is_old(sequence: int, time: datetime, extent: Extent, now: datetime) -> bool:
    """Return whether an event is in the older half of LOG that is half full, or half as old as any may be."""
    if extent.filled >= _FULL_ENOUGH and 2 * sequence < extent.first + extent.last:
        return True
    return extent.max_age_seconds is not None and now - time > timedelta(seconds=extent.max_age_seconds / 2)


def _asks_for_approval(event: Event) -> bool:
    return isinstance(event.body, PlanApprovalRequested)


def _add(known: dict[str, A], key: str, value: A, most: int) -> None:
    """Put something under a key, and forget the oldest if there are more than `most`."""
    known.pop(key, None)
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]


def carried(item: Stored | Damaged | None) -> tuple[Stored, ...]:
    """Return the events that a restatement carries, as they were stored."""
    if not isinstance(item, Stored) or not isinstance(item.event.body, EventsRestated):
        if item is not None:
            _LOG.error("restated events cannot be read", seq=item.sequence, detail=getattr(item, "detail", ""))
        return ()
    found = []
    for each in item.event.body.events:
        try:
            event, size = unpack("zstd", each.data)
        except FramingError as error:
            _LOG.error("restated event cannot be read", seq=each.sequence, detail=str(error))
            continue
        if event.cluster == item.event.cluster:
            found.append(Stored(item.stream, each.sequence, subject_of(event), event, size))
    return tuple(found)


async def with_restated(
    restated: Iterable[Stored], items: AsyncIterator[Stored | Damaged]
) -> AsyncIterator[Stored | Damaged]:
    """Yield items of LOG, and each restated event that is not among them at its sequence."""
    waiting = deque(restated)
    async for item in items:
        while waiting and waiting[0].sequence < item.sequence:
            yield waiting.popleft()
        if waiting and waiting[0].sequence == item.sequence:
            waiting.popleft()
        yield item
    for left in waiting:
        yield left
