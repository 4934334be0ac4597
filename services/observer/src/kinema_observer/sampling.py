"""Readings of the metrics API as events."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import structlog

from kinema_core.runtime.bus import Bus, BusUnavailableError
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.envelope import origin
from kinema_kubernetes.errors import KubernetesError
from kinema_observer.logic.usage import Usage, sample
from kinema_observer.service import Observer
from kinema_observer.settings import Settings


class UsageSource(Protocol):
    """Source of pod usage: the metrics API, or a simulated cluster in the same process."""

    async def read(self) -> Usage | None:
        """One reading, None when there is none yet; raises KubernetesError."""


class UsageSampler:
    """Publishes readings of the metrics API."""

    def __init__(self, *, bus: Bus, source: UsageSource, clock: Clock, observer: Observer, settings: Settings) -> None:
        self._bus = bus
        self._source = source
        self._clock = clock
        self._observer = observer
        self._settings = settings
        self._last: datetime | None = None
        self._problem: str | None = None
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            await self.sample()
            await self._clock.sleep(self._settings.usage_seconds)

    async def sample(self) -> None:
        """Read and publish once. Without metrics the rest goes on: workloads then keep their requests."""
        try:
            usage = await self._source.read()
            # The same reading comes back until the metrics server has scraped again.
            if usage is not None and usage.sampled != self._last:
                await self._publish(usage)
            self._says(None)
        except (KubernetesError, BusUnavailableError) as error:
            self._says(str(error))

    async def _publish(self, usage: Usage) -> None:
        cluster = self._observer.cluster
        if cluster is None:
            return
        name = self._settings.runtime.cluster
        event = origin(
            sample(usage, cluster),
            id_=f"{name}/observer/usage-{usage.sampled.isoformat()}",
            cluster=name,
            iteration="",
            now=self._clock.now(),
            state=cluster.version,
        )
        await self._bus.publish(event)
        self._last = usage.sampled

    def _says(self, problem: str | None) -> None:
        """Log when sampling begins to work, and when it ceases to."""
        if problem is not None and problem != self._problem:
            self._log.warning("usage cannot be sampled", problem=problem)
        elif problem is None and self._problem is not None:
            self._log.info("usage is sampled again")
        self._problem = problem
