"""Time as the services see it.

`SystemClock` is the only place that reads the machine's clock. Its `speed` lets a demo live through an hour in
minutes beside a simulated cluster of the same speed; event times and deadlines then are cluster time. Leases and
back-off towards the broker always count real seconds.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Clock of the cluster: its time, and waiting in it."""

    def now(self) -> datetime:
        """Return the time now, UTC, in whole microseconds; never goes back within a process."""

    async def sleep(self, seconds: float) -> None:
        """Wait that many seconds of this clock."""


class SystemClock:
    """The machine's clock, or one that starts at `epoch` and runs `speed` times as fast.

    The machine's clock is followed, also where it was set after the process had started, or the machine was suspended.
    Time never goes back: while the machine's clock is behind, this one runs at half its speed. Another epoch or speed
    advances by the monotonic clock alone.
    """

    def __init__(self, *, speed: float = 1.0, epoch: datetime | None = None, started: float | None = None) -> None:
        """`started` is the wall time (Unix seconds) at which the cluster's time was `epoch`; both or neither."""
        if speed <= 0:
            raise ValueError(f"clock speed is {speed}: it must be above 0")
        wall = time.time()  # noqa: TID251 - the one place that reads the clock
        origin = datetime.fromtimestamp(wall, UTC)
        if epoch is not None and started is not None:
            origin = epoch + timedelta(seconds=(wall - started) * speed)
        self._follows = epoch is None and speed == 1.0
        self._origin = origin
        self._monotonic = time.monotonic()
        self.speed = speed

    def now(self) -> datetime:
        """Return the time now, UTC."""
        monotonic = time.monotonic()
        passed = timedelta(seconds=(monotonic - self._monotonic) * self.speed)
        if not self._follows:
            return self._origin + passed
        wall = datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251 - the one place that reads the clock
        self._origin, self._monotonic = max(wall, self._origin + passed / 2), monotonic
        return self._origin

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of this clock, `seconds / speed` of the machine's."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)
