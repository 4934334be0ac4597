"""The fold of LOG: the journal, what is in force in it, and the newest intent."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import structlog

from kinema_core.events import EventsRestated, StepStarted, kind_of_type
from kinema_core.runtime.bus import Bus, Stored, StreamResetError
from kinema_core.runtime.loop import LogFollower
from kinema_core.runtime.restated import InForce
from kinema_core.runtime.topology import kind_in
from kinema_rescheduler.journal.execution import FOLLOWED, Journal, fold

_INTENT: Final = kind_of_type(StepStarted.TYPE)

_LOG = structlog.get_logger()


class LogReader:
    """A fold of LOG, brought up to date on request."""

    def __init__(self, bus: Bus) -> None:
        """Begin with an empty journal."""
        self._log = LogFollower(bus)
        self.journal = Journal()
        self.in_force = InForce()
        self.last_intent = 0
        """Sequence of the last intent in LOG: a process that does not know it may not add another."""

    @property
    def position(self) -> int:
        """Sequence up to which LOG is folded."""
        return self._log.position

    def restatement(self, now: datetime) -> EventsRestated | None:
        """Return what to publish before LOG drops an event that is in force; None where none is in danger."""
        return self.in_force.restatement(self._log.extent, now)

    async def read(self) -> bool:
        """Fold what is new; return False where LOG was replaced and the journal begins again. Raises BusError."""
        try:
            await self._fold()
        except StreamResetError:
            self.journal, self.in_force, self.last_intent = Journal(), InForce(), 0
            await self._fold()
            return False
        return True

    async def _fold(self) -> None:
        async for item in self._log.read():
            if kind_in(item.subject) == _INTENT:  # one that cannot be read counts too: the next one comes after it
                self.last_intent = item.sequence
            if not isinstance(item, Stored):
                _LOG.warning("damaged event skipped", seq=item.sequence, reason=item.reason, detail=item.detail)
                continue
            self.in_force.note(item)
            if item.event.body.TYPE.rpartition(".")[0] in FOLLOWED:
                self.journal = fold(self.journal, item.event)
