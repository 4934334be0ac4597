"""Following what workloads used: folds the USAGE stream up to a time, no further.

The stream keeps some days step by step and checkpoints for a month, so that folding from its beginning is short, and
what retention has removed is in a checkpoint.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.stage import Past

H = TypeVar("H")

_KEPT: Final = 4
"""Points to go back to: an event that is delivered again may name an earlier time."""
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class _Point(Generic[H]):
    """A place in the stream with what was folded up to it."""

    folded: H
    sequence: int = 0
    id: str = ""
    end: datetime = _BEGINNING


class PastFollower(Generic[H]):
    """Folds USAGE on demand."""

    def __init__(self, bus: Bus, past: Past[H]) -> None:
        self._bus = bus
        self._past = past
        self._points: deque[_Point[H]] = deque(maxlen=_KEPT)

    async def until(self, end: datetime) -> H:
        """Return what the steps that end at or before a time fold to. Damaged events are gaps.

        Raises:
            BusError.
        """
        fit = [point for point in self._points if point.end <= end]
        point = max(fit, key=lambda one: one.sequence, default=_Point(self._past.initial))
        if not await self._holds(point):
            self._points.clear()
            point = _Point(self._past.initial)
        async for item in self._bus.read("USAGE", start=point.sequence + 1, kinds=self._past.kinds):
            if not isinstance(item, Stored):
                continue
            reached = self._past.end(item.event)
            if reached > end:
                break
            folded = self._past.fold(point.folded, item.event)
            point = _Point(folded, item.sequence, item.id, max(point.end, reached))
        self._points.append(point)
        return point.folded

    async def _holds(self, point: _Point[Any]) -> bool:
        """Return whether the stream is the one that was followed so far; what retention has removed counts as there."""
        if not point.sequence:
            return True
        found = [item.id async for item in self._bus.read("USAGE", start=point.sequence, end=point.sequence)]
        return found == [point.id] if found else await self._bus.head("USAGE") >= point.sequence
