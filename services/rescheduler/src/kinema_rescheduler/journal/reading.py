"""What the streams say: the log as a journal, and the newest state while it is known and fresh."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import structlog

from kinema_core.events import ClusterDelta, ClusterSnapshot, Event, StepStarted
from kinema_core.model.cluster import Cluster, evolve
from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.follow import Follower, StateLostError
from kinema_core.runtime.health import Health
from kinema_rescheduler.journal.execution import FOLLOWED, Journal, fold

_STATE_KINDS: Final = ("cluster-snapshot", "cluster-delta", "usage-sampled")

_LOG = structlog.get_logger()


def fold_state(cluster: Cluster, event: Event) -> Cluster:
    """Fold one state event."""
    return evolve(cluster, event.body) if isinstance(event.body, ClusterSnapshot | ClusterDelta) else cluster


class Reading:
    """A fold of both streams, brought up to date when asked."""

    def __init__(self, bus: Bus, clock: Clock, health: Health, *, max_state_age_seconds: float) -> None:
        self._bus = bus
        self._clock = clock
        self._health = health
        self._max_age = max_state_age_seconds
        self._follower: Follower[Cluster] = Follower(bus, Cluster(), fold_state)
        self._known: tuple[Cluster, int] | None = None
        """The newest state and its version, as of `_state_head`."""
        self._state_head = -1
        self._observed: datetime | None = None
        """When the state stream last grew, as far as this process knows."""
        self.journal = Journal()
        self.position = 0
        self.last_intent = 0
        """Sequence of the last intent in the log: whoever does not know it may not add another."""

    async def read(self) -> None:
        """Fold what the log has beyond what we know."""
        if await self._bus.head("LOG") <= self.position:
            return
        async for item in self._bus.read("LOG", start=self.position + 1):
            self.position = item.sequence
            if not isinstance(item, Stored):
                _LOG.warning("damaged event skipped", seq=item.sequence, reason=item.reason, detail=item.detail)
                continue
            if isinstance(item.event.body, StepStarted):
                self.last_intent = item.sequence
            if item.event.body.TYPE.rpartition(".")[0] in FOLLOWED:
                self.journal = fold(self.journal, item.event)

    async def state(self) -> tuple[Cluster, int] | None:
        """The newest state; None while it is unknown or old: then nothing is decided."""
        head = await self._bus.head("STATE")
        if self._known is None or self._state_head != head:
            try:
                self._known = await self._follower.latest()
            except StateLostError as error:
                self._known = None
                self._health.report("state", str(error))
                return None
            self._observed = self._clock.now() if self._state_head >= 0 else await self._newest_observation()
            self._state_head = head
        problem = self._too_old()
        self._health.report("state", problem)
        return self._known if problem is None else None

    def _too_old(self) -> str | None:
        """An observer that has died says nothing, and the cluster goes on without us seeing it."""
        age = (self._clock.now() - self._observed).total_seconds() if self._observed is not None else 0.0
        return (
            f"nothing was observed for {age:.0f} s, more than {self._max_age:.0f}: is the observer alive?"
            if age > self._max_age
            else None
        )

    async def _newest_observation(self) -> datetime | None:
        """Time of the newest state event: a process that has just started has seen none come."""
        found = [await self._bus.last("STATE", kind) for kind in _STATE_KINDS]
        return max((item.event.time for item in found if isinstance(item, Stored)), default=None)
