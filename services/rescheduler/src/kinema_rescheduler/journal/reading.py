"""The fold of LOG: the journal, and the newest intent."""

from __future__ import annotations

import structlog

from kinema_core.events import StepStarted
from kinema_core.runtime.bus import Bus, Stored, StreamResetError
from kinema_core.runtime.loop import LogFollower
from kinema_rescheduler.journal.execution import FOLLOWED, Journal, fold

_LOG = structlog.get_logger()


class LogReader:
    """A fold of LOG, brought up to date on request."""

    def __init__(self, bus: Bus) -> None:
        """Begin with an empty journal."""
        self._log = LogFollower(bus)
        self.journal = Journal()
        self.last_intent = 0
        """Sequence of the last intent in LOG: a process that does not know it may not add another."""

    @property
    def position(self) -> int:
        """Sequence up to which LOG is folded."""
        return self._log.position

    async def read(self) -> bool:
        """Fold what is new; return False where LOG was replaced and the journal begins again. Raises BusError."""
        try:
            await self._fold()
        except StreamResetError:
            self.journal, self.last_intent = Journal(), 0
            await self._fold()
            return False
        return True

    async def _fold(self) -> None:
        async for item in self._log.read():
            if not isinstance(item, Stored):
                _LOG.warning("damaged event skipped", seq=item.sequence, reason=item.reason, detail=item.detail)
                continue
            if isinstance(item.event.body, StepStarted):
                self.last_intent = item.sequence
            if item.event.body.TYPE.rpartition(".")[0] in FOLLOWED:
                self.journal = fold(self.journal, item.event)
