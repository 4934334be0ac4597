"""Readings of usage as events: steps of what workloads used, and a checkpoint of every row of them."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from kinema_core.events import UsageCompacted, UsageResampled, UsageSampled
from kinema_core.model.usage import BLOCK_STEPS, compacted, end_of, step_start
from kinema_core.runtime.bus import Bus, BusUnavailableError, Stored
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.envelope import origin
from kinema_kubernetes.errors import KubernetesError
from kinema_observer.logic.usage import Usage, UsageStep, sample
from kinema_observer.service import Observer
from kinema_observer.settings import Settings

_WAITING: Final = 600
"""Steps that wait for a broker that is away; of more, the oldest are lost."""
_KINDS: Final = ("usage-resampled", "usage-compacted")


class UsageSource(Protocol):
    """Source of pod usage: the metrics API, or a simulated cluster in the same process."""

    async def read(self) -> Usage | None:
        """One reading, None when there is none yet; raises KubernetesError."""


class UsageSampler:
    """Publishes what workloads used.

    What it remembers beside the step that has begun is a fold over what it published: a process that takes over goes on
    with the row of steps that has begun.
    """

    def __init__(self, *, bus: Bus, source: UsageSource, clock: Clock, observer: Observer, settings: Settings) -> None:
        self._bus = bus
        self._source = source
        self._clock = clock
        self._observer = observer
        self._settings = settings
        self._step: UsageStep | None = None
        self._newest: datetime | None = None
        """When the newest reading was taken."""
        self._reading: UsageSampled | None = None
        """The first one of a step, until it is published."""
        self._waiting: deque[UsageResampled] = deque(maxlen=_WAITING)
        self._row: list[UsageResampled] | None = None
        """Published steps without a checkpoint; None: the stream was not read yet."""
        self._problem: str | None = None
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            await self.sample()
            await self._clock.sleep(self._settings.usage_seconds)

    async def sample(self) -> None:
        """Read once, and publish the steps that have ended. Without usage the rest goes on: requests then stay."""
        try:
            usage = await self._source.read()
            self._take(usage)
            await self._publish_all()
            self._says(None)
        except BusUnavailableError as error:
            # Another process may have published in the meantime.
            self._row = None
            self._says(str(error))
        except KubernetesError as error:
            self._says(str(error))

    def _take(self, usage: Usage | None) -> None:
        """Add a reading to its step, and close the step before."""
        cluster = self._observer.cluster
        # The same reading comes back until the metrics server has scraped again.
        if usage is None or cluster is None or (self._newest is not None and usage.sampled <= self._newest):
            return
        self._newest = usage.sampled
        if self._step is not None and usage.sampled >= self._step.end:
            closed = self._step.closed("metrics.k8s.io")
            self._waiting.extend([closed] if closed is not None else [])
            self._step = None
        if self._step is None:
            self._step = UsageStep.around(usage.sampled, timedelta(seconds=self._settings.usage_step_seconds))
            self._reading = sample(usage, cluster)
        self._step.add(usage, cluster)

    async def _publish_all(self) -> None:
        if self._observer.cluster is None:
            # Another process observes; when this one takes over, it reads what that one has published.
            self._row = None
            return
        if self._row is None:
            self._row = await self._restored()
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
            block = compacted(row, start=_row_of(row[0]))
            await self._send(block, f"usage-row-{block.start.isoformat()}-{block.step_seconds:g}")
            row.clear()
        await self._send(step, f"usage-step-{step.start.isoformat()}-{step.step_seconds:g}")
        row.append(step)
        self._observer.usage_until = end_of(step)

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
