"""Past that a recording holds, and gaps in it: streams drop their oldest events first.

A recording of a pipeline that has run for long begins in the middle. What was decided on events from before cannot be
decided again, and is no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kinema_cli.replay.recording import Recorded, Recording
from kinema_core.events import ClusterDelta, ClusterSnapshot, Event
from kinema_core.model.cluster import StateGapError

S = TypeVar("S")

NO_CAUSE: Final = "what they answer lies before the first event of the log"
NO_STATE: Final = "the cluster state that they saw cannot be folded from the recording"
NO_PAST: Final = "they came out otherwise, but settings, catalog or usage from before the recording are missing"


@dataclass(frozen=True)
class Skipped:
    """A recorded event that cannot be decided again from what the recording holds."""

    stage: str
    sequence: int
    reason: str


class Causes:
    """Which causes of recorded answers are missing although the recording should hold them."""

    def __init__(self, recording: Recording) -> None:
        self._ids = {item.event.id for item in recording.log}
        self.whole: Final = not recording.log or recording.log[0].sequence == 1

    def known(self, cause: str) -> bool:
        """Return whether the recording holds the event."""
        return cause in self._ids

    def before(self, cause: str) -> bool:
        """Return whether a missing event may lie before the recording.

        It may not when the log begins at its beginning, or when the event is itself an answer to a recorded one.
        """
        if self.whole or cause in self._ids:
            return False
        # An id is `<cause>/<service>/<n>`, and n may hold slashes: any recorded id in front of it came first.
        return not any(cause[:end] in self._ids for end, sign in enumerate(cause) if sign == "/")


class StateLine(Generic[S]):
    """A state over recorded STATE events, to be had at rising versions; unknown after a gap until a snapshot."""

    def __init__(self, initial: S, fold: Callable[[S, Event], S], events: Sequence[Recorded]) -> None:
        """`fold` raises StateGapError for a delta that does not follow."""
        self._initial = initial
        self._fold = fold
        self._events = [item.event for item in events]
        self._restart()

    def _restart(self) -> None:
        self._next = 0
        self._version = 0
        self._known = True
        self._state = self._initial

    def at(self, version: int) -> S | None:
        """Return the state just after `version` was folded; None when the recording does not lead there."""
        if version < self._version or (version == self._version and not self._known):
            self._restart()
        while self._version < version and self._next < len(self._events):
            event = self._events[self._next]
            self._next += 1
            self._step(event)
        return self._state if self._known and self._version == version else None

    def _step(self, event: Event) -> None:
        body = event.body
        if isinstance(body, ClusterDelta) and not self._known:
            return
        try:
            self._state = self._fold(self._state, event)
        except StateGapError:
            self._known = False
            return
        if isinstance(body, ClusterSnapshot):
            self._version, self._known = body.version, True
        elif isinstance(body, ClusterDelta):
            self._version = max(self._version, body.version)


def history_is_whole(events: Sequence[Recorded]) -> bool:
    """Return whether STATE begins with the first version, so that no usage from before is missing."""
    first = events[0].event.body if events else None
    return isinstance(first, ClusterSnapshot) and first.version == 1


def before_first_snapshot(recording: Recording) -> int | None:
    """Return how many STATE events come before the first full state; None when there is no full state at all."""
    for place, item in enumerate(recording.state):
        if isinstance(item.event.body, ClusterSnapshot):
            return place
    return None
