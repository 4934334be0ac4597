"""Real time: lets virtual time follow the wall clock."""

import asyncio
import time

from kinema_sim.engine.clock import Loop

TICK_SECONDS = 0.01


class Driver:
    """Advances a loop so that virtual time is `speed` times the wall time since the start.

    Args:
        loop: virtual time.
        speed: virtual seconds per wall second.
    """

    def __init__(self, loop: Loop, speed: float) -> None:
        self.speed = speed
        self._loop = loop
        self._virtual_start = loop.now_ms
        self._wall_start = time.monotonic()

    def start(self) -> None:
        """Let virtual time run from now on."""
        self._virtual_start = self._loop.now_ms
        self._wall_start = time.monotonic()

    def catch_up(self) -> None:
        """Run everything that is due by now."""
        passed = time.monotonic() - self._wall_start
        self._loop.run_until(self._virtual_start + int(passed * 1000 * self.speed))

    async def run(self) -> None:
        """Keep catching up until canceled."""
        while True:
            self.catch_up()
            await asyncio.sleep(TICK_SECONDS)
