"""A clock in the hands of a test."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta


class ManualClock:
    """A clock that stands still until it is set."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        """The time it was last set to."""
        return self._now

    def set(self, now: datetime) -> None:
        """Jump to `now`."""
        self._now = now

    async def sleep(self, seconds: float) -> None:
        """Jump ahead by `seconds`, letting others run once."""
        self._now += timedelta(seconds=seconds)
        await asyncio.sleep(0)
