"""Readings of usage as events: steps of what workloads used, and a checkpoint of every row of them."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from kinema_core.events import UsageCompacted, UsageResampled, UsageSampled
from kinema_core.model.cluster import Cluster
from kinema_core.model.usage import BLOCK_STEPS, compacted, end_of, step_start
from kinema_core.runtime.bus import Bus, BusUnavailableError, Stored
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.envelope import origin
from kinema_kubernetes.errors import KubernetesError
from kinema_observer.errors import ObserverError
from kinema_observer.logic.usage import Collected, Usage, UsageStep, sample
from kinema_observer.service import Observer
from kinema_observer.settings import Settings

_WAITING: Final = 600
"""Steps that wait for a broker that is away; of more, the oldest are lost."""
_KINDS: Final = ("usage-resampled", "usage-compacted")


class UsageSource(Protocol):
    """Source of usage: readings of the metrics API, or Prometheus."""

    async def collect(self, cluster: Cluster, since: datetime | None, now: datetime) -> Collected:
        """Return the steps after `since` (None: none is known) that have ended.

        Raises:
            KubernetesError, ObserverError: there is nothing now.
        """


class Meter(Protocol):
    """Source of readings of what pods use now: the metrics API, or a simulated cluster in the same process."""

    async def read(self) -> Usage | None:
        """Return a reading, None when there is none yet; raises KubernetesError."""


class MeteredUsage:
    """Steps of a meter's readings. A step that has begun when the process ends is lost."""

    def __init__(self, meter: Meter, step_seconds: float) -> None:
        self._meter = meter
        self._length = timedelta(seconds=step_seconds)
        self._step: UsageStep | None = None
        self._newest: datetime | None = None
        """When the newest reading was taken."""

    async def collect(self, cluster: Cluster, since: datetime | None, now: datetime) -> Collected:
        """See `UsageSource`. What was before the process began is unknown to a meter."""
        usage = await self._meter.read()
        # The same reading comes back until the metrics server has scraped again.
        if usage is None or (self._newest is not None and usage.sampled <= self._newest):
            return Collected()
        self._newest = usage.sampled
        closed = None
        if self._step is not None and usage.sampled >= self._step.end:
            closed, self._step = self._step.closed("metrics.k8s.io"), None
        reading = None
        if self._step is None:
            self._step, reading = UsageStep.around(usage.sampled, self._length), sample(usage, cluster)
        self._step.add(usage, cluster)
        return Collected((closed,) if closed is not None else (), reading)


class UsageSampler:
    """Publishes what workloads used.

    What it remembers is a fold over what it published: a process that takes over goes on with the row of steps that has
    begun.
    """

    def __init__(self, *, bus: Bus, source: UsageSource, clock: Clock, observer: Observer, settings: Settings) -> None:
        self._bus = bus
        self._source = source
        self._clock = clock
        self._observer = observer
        self._settings = settings
        self._reading: UsageSampled | None = None
        """The newest one that is not published."""
        self._waiting: deque[UsageResampled] = deque(maxlen=_WAITING)
        self._row: list[UsageResampled] | None = None
        """Published steps without a checkpoint; None: the stream was not read yet."""
        self._began = False
        """Whether the stream was ever read: before that it is unknown which steps are missing."""
        self._problem: str | None = None
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            await self.sample()
            await self._clock.sleep(self._settings.usage_seconds)

    async def sample(self) -> None:
        """Publish the steps that have ended. Without usage the rest goes on: requests then stay."""
        try:
            while await self._collect():
                pass
            self._says(None)
        except BusUnavailableError as error:
            # Another process may have published in the meantime.
            self._row = None
            self._says(str(error))
        except (KubernetesError, ObserverError) as error:
            self._says(str(error))

    async def _collect(self) -> bool:
        """Publish what the source has; return whether it has more of the past."""
        cluster = self._observer.cluster
        if cluster is None:
            # Another process observes; when this one takes over, it reads what that one has published.
            self._row = None
            return False
        if not self._began:
            self._row = await self._restored()
            self._began = True
        since = end_of(self._waiting[-1]) if self._waiting else self._observer.usage_until
        found = await self._source.collect(cluster, since, self._clock.now())
        self._waiting.extend(found.steps)
        self._reading = found.reading or self._reading
        await self._publish_all(is_whole_row=found.has_more)
        return found.has_more

    async def _publish_all(self, *, is_whole_row: bool) -> None:
        if self._row is None:
            self._row = await self._restored()
        if is_whole_row and self._waiting and not self._row:
            # Of a row that has passed the checkpoint says everything.
            await self._publish_row(list(self._waiting))
            self._waiting.clear()
        while self._waiting:
            await self._publish(self._waiting[0], self._row)
            self._waiting.popleft()
        if self._reading is not None:
            await self._send(self._reading, f"usage-{self._reading.sampled.isoformat()}")
            self._reading = None

    async def _restored(self) -> list[UsageResampled]:
        """Return the steps in the stream that no checkpoint holds."""
        last = await self._bus.last("USAGE", "usage-compacted")
        row: list[UsageResampled] = []
        start = last.sequence + 1 if last is not None else 1
        body = last.event.body if isinstance(last, Stored) else None
        until = end_of(body) if isinstance(body, UsageCompacted) else None
        async for item in self._bus.read("USAGE", start=start, kinds=_KINDS):
            if isinstance(item, Stored) and isinstance(item.event.body, UsageResampled):
                row.append(item.event.body)
                until = end_of(item.event.body)
        self._observer.usage_until = until
        return row

    async def _publish(self, step: UsageResampled, row: list[UsageResampled]) -> None:
        """Publish a step, and before it the checkpoint of the row before, if it begins another."""
        until = self._observer.usage_until
        if until is not None and end_of(step) <= until:
            return  # published before, by a process that was here first
        if row and (_row_of(row[0]) != _row_of(step) or row[0].step_seconds != step.step_seconds):
            await self._publish_row(row)
            row.clear()
        await self._send(step, f"usage-step-{step.start.isoformat()}-{step.step_seconds:g}")
        row.append(step)
        self._observer.usage_until = end_of(step)

    async def _publish_row(self, row: list[UsageResampled]) -> None:
        block = compacted(row, start=_row_of(row[0]))
        await self._send(block, f"usage-row-{block.start.isoformat()}-{block.step_seconds:g}")
        self._observer.usage_until = end_of(block)

    async def _send(self, body: UsageResampled | UsageCompacted | UsageSampled, name: str) -> None:
        cluster = self._observer.cluster
        event = origin(
            body,
            id_=f"{self._settings.runtime.cluster}/observer/{name}",
            cluster=self._settings.runtime.cluster,
            iteration="",
            now=self._clock.now(),
            state=cluster.version if cluster is not None and isinstance(body, UsageSampled) else 0,
        )
        await self._bus.publish(event)

    def _says(self, problem: str | None) -> None:
        """Log when sampling begins to work, and when it ceases to."""
        if problem is not None and problem != self._problem:
            self._log.warning("usage cannot be sampled", problem=problem)
        elif problem is None and self._problem is not None:
            self._log.info("usage is sampled again")
        self._problem = problem


def _row_of(step: UsageResampled) -> datetime:
    return step_start(step.start, step.step_seconds, BLOCK_STEPS)
