"""Stage of the pipeline: the same object runs live (`serve`) and in a replay.

A stage folds STATE events into a state of its own, remembers what it needs of LOG events, and answers some of them.
All it may use for an answer is handed over: the event, the folded state at a known version, the usage until a known
time, and the time. That is why a replay with the same four gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kinema_core.events import AnyBody, Event

S = TypeVar("S")
H = TypeVar("H")


@dataclass(frozen=True)
class AtVersion:
    """The state folded up to and including this version, and not further."""

    version: int


@dataclass(frozen=True)
class Latest:
    """The newest state there is when the event is handled; the answer records which."""


@dataclass(frozen=True)
class NoState:
    """No state is needed."""


Want: TypeAlias = AtVersion | Latest | NoState


@dataclass(frozen=True)
class Past(Generic[H]):
    """What a stage folds of USAGE."""

    kinds: tuple[str, ...]
    initial: H
    fold: Callable[[H, Event], H]
    """Pure; a checkpoint that comes after its steps changes nothing that a forecast can see."""
    end: Callable[[Event], datetime]
    """Return until when an event of USAGE reaches."""
    until: Callable[[Event], datetime | None]
    """Return up to which time an event of LOG lets the stage look; None: nothing."""


@dataclass(frozen=True)
class Moment:
    """Circumstances under which an event is handled."""

    now: datetime
    recorded: AnyBody | None = None
    """In a replay the recorded answer, from which a solver takes its stop; None live."""
    past: Any = None
    """What the stage folded of USAGE, where it has a `Past`."""


class Stage(Protocol[S]):
    """A service that answers events with events."""

    @property
    def name(self) -> str:
        """The service's name: part of the ids of its events, and of its durable consumer."""

    @property
    def consumes(self) -> tuple[str, ...]:
        """Kinds of LOG events that it wants to see."""

    @property
    def folds(self) -> tuple[str, ...]:
        """Kinds of STATE events that it folds besides snapshots and deltas."""

    @property
    def past(self) -> Past[Any] | None:
        """What it folds of USAGE; None: nothing."""

    def initial(self) -> S:
        """Return the state before any event."""

    def fold(self, state: S, event: Event) -> S:
        """Fold one STATE event; pure."""

    def recall(self, event: Event) -> None:
        """Take note of a LOG event without answering it: at start for the past, and before each `handle`."""

    def wants(self, event: Event) -> Want:
        """Return which state `handle` needs for this event."""

    async def handle(self, event: Event, state: S | None, moment: Moment) -> Sequence[AnyBody]:
        """Answer an event; at most one answer wherever possible, so that a crash cannot fall between two."""
