"""Hours of the week in a time zone, as settings give them."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

Day: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: Final[tuple[Day, ...]] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hours of the week. They run past midnight if `end` is not later than `start`."""

    days: tuple[Day, ...] = DAYS
    """Days on which the hours begin."""
    start: time = time(0)
    """Local time of the first moment, as `08:00:00`."""
    end: time = time(0)
    """Local time of the first moment after the hours; not later than `start`: it is on the next day."""
    time_zone: str = "UTC"
    """An IANA name such as `Europe/Berlin`."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        if self.start.tzinfo is not None or self.end.tzinfo is not None:
            raise ValueError("start and end are local times of time_zone: leave out the offset")
        try:
            ZoneInfo(self.time_zone)
        except (KeyError, OSError, ValueError) as error:  # unknown, unreadable, malformed
            message = f"time_zone {self.time_zone!r} is not known: use an IANA name such as Europe/Berlin"
            raise ValueError(message) from error

    def contains(self, now: datetime) -> bool:
        """Return whether a moment is within the hours."""
        local = now.astimezone(ZoneInfo(self.time_zone))
        today, yesterday = DAYS[local.weekday()], DAYS[(local - timedelta(days=1)).weekday()]
        at = local.time()
        if self.start < self.end:
            return today in self.days and self.start <= at < self.end
        return (today in self.days and at >= self.start) or (yesterday in self.days and at < self.end)
