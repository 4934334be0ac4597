"""The objective by time of the week: least cost always, at certain hours with a ceiling on every node's utilisation.

Source: the thesis, chapter 5.1 (a CPU threshold by day, cost alone by night).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time, timedelta
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

Day: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: Final[tuple[Day, ...]] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Window(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hours of the week with an objective of their own."""

    days: tuple[Day, ...] = DAYS
    """Days on which the window begins."""
    start: time = time(0)
    """Local time of the window's first moment, as `08:00:00`."""
    end: time = time(0)
    """Local time of the first moment after it; not later than `start`: it is on the next day."""
    time_zone: str = "UTC"
    """An IANA name such as `Europe/Berlin`."""
    max_utilisation_percent: int = 100
    """Ceiling on every node's CPU and memory, requests over allocatable: nothing new is placed above it."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        if not 1 <= self.max_utilisation_percent <= 100:
            message = f"max_utilisation_percent is {self.max_utilisation_percent}: use 1 to 100"
            raise ValueError(message)
        if self.start.tzinfo is not None or self.end.tzinfo is not None:
            message = "start and end are local times of time_zone: leave out the offset"
            raise ValueError(message)
        try:
            ZoneInfo(self.time_zone)
        except (
            KeyError,
            OSError,
            ValueError,
        ) as error:  # unknown, unreadable, malformed
            message = f"time_zone {self.time_zone!r} is not known: use an IANA name such as Europe/Berlin"
            raise ValueError(message) from error


class Objective(msgspec.Struct, frozen=True):
    """What is optimised at a moment: the least cost, under a ceiling."""

    percent: int = 100

    @property
    def text(self) -> str:
        """As plans name it."""
        return "cost" if self.percent == 100 else f"cost, utilisation at most {self.percent} %"


def objective_at(windows: Sequence[Window], now: datetime) -> Objective:
    """The objective of the first window that contains `now`; without one, cost alone."""
    for window in windows:
        if _contains(window, now):
            return Objective(window.max_utilisation_percent)
    return Objective()


def _contains(window: Window, now: datetime) -> bool:
    local = now.astimezone(ZoneInfo(window.time_zone))
    today, yesterday = DAYS[local.weekday()], DAYS[(local - timedelta(days=1)).weekday()]
    at = local.time()
    if window.start < window.end:
        return today in window.days and window.start <= at < window.end
    return (today in window.days and at >= window.start) or (yesterday in window.days and at < window.end)
