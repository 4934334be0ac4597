"""The observer: publishes what the cluster is and decides when an iteration begins."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

import msgspec
import structlog

from kinema_core.events import AnyBody, ClusterObject, IterationSkipped, IterationStarted, NodeDeletionRequested
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.bus import Bus, BusUnavailableError, ConflictError, Stored, StreamResetError
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.health import Health
from kinema_core.runtime.loop import LogFollower, LoopMetrics, Tenure, lead
from kinema_observer.logic.changes import Changes
from kinema_observer.logic.logview import KINDS, LogView, fold
from kinema_observer.logic.loop import Memory, tick
from kinema_observer.metrics import NAME, WorkloadMetrics
from kinema_observer.publishing import StatePublisher
from kinema_observer.settings import Settings

register("observer.iteration.before-publish", "observer.iteration.published")


class ClusterSource(Protocol):
    """Source of the cluster's objects: the Kubernetes API, or a simulated cluster in the same process."""

    def listed(self) -> bool:
        """Return whether everything has been listed since the start."""

    def missing(self) -> tuple[str, ...]:
        """Return what cannot be seen just now, and why; empty when everything can."""

    def drain(self) -> Changes:
        """Return what changed since the last call."""

    def contents(self) -> Iterator[ClusterObject]:
        """Everything as last seen."""


class Observer:
    """One tick: publish what changed, read the log, decide. What it remembers are folds over both streams."""

    def __init__(self, *, bus: Bus, source: ClusterSource, clock: Clock, health: Health, settings: Settings) -> None:
        self._bus = bus
        self._source = source
        self._clock = clock
        self._health = health
        self._settings = settings
        self._name = settings.runtime.cluster
        self._publisher = StatePublisher(
            bus, cluster=self._name, every=settings.snapshot_deltas, seconds=settings.snapshot_seconds
        )
        self._restored = False
        self._followed = False
        self.metrics = LoopMetrics(health, NAME, self._name)
        self._workloads = WorkloadMetrics(health.registry, self._name)
        self.usage_until: datetime | None = None
        """End of the newest step of usage that is in the stream; set by what publishes them."""
        self._log_follower = LogFollower(bus, KINDS)
        self._view = LogView()
        self._memory = Memory()
        self._log = structlog.get_logger()

    @property
    def cluster(self) -> Cluster | None:
        """The state as published."""
        return self._publisher.cluster

    async def run(self) -> None:
        """Observe whenever this process holds the lease, forever: two at once would undo each other's deltas."""
        await lead(
            self._bus,
            NAME,
            seconds=self._settings.lease_seconds,
            act=self._act,
            health=self._health,
            metrics=self.metrics,
        )

    async def _act(self, tenure: Tenure) -> None:
        """Tick until the lease is lost. Another process may have published before: begin from the streams."""
        self._restored = self._followed = False
        while tenure.lease.left() > 0:
            await self.tick()
            await self._clock.sleep(self._settings.tick_seconds)

    async def tick(self) -> None:
        """One tick. A broker that is away, or another writer, means to begin from the streams next time.

        Raises:
            BusDeniedError, BusSetupError: a person must mend something.
        """
        try:
            await self._observe()
            await self._decide()
            self._health.report("streams", None)
        except (BusUnavailableError, ConflictError) as error:
            self._restored = self._followed = False
            if "streams" not in self._health.problems():
                self._log.warning("streams cannot be written", problem=str(error))
            self._health.report("streams", str(error))

    async def _observe(self) -> None:
        """Publish what the source saw. Nothing before all kinds are listed: what is missing would seem deleted."""
        missing = self._source.missing()
        blind = tuple(sorted(item.partition(":")[0] for item in missing))
        self.metrics.blind_kinds.set(len(blind))
        self._health.report("kubernetes", "; ".join(missing) or None)
        if not self._restored:
            await self._publisher.restore()
            self._restored = True
        if not self._source.listed():
            return
        changes = self._source.drain()
        if self._followed:
            await self._publisher.publish_changes(changes, self._clock.now())
        else:
            await self._publisher.publish_contents(self._source.contents, self._clock.now())
            self._followed = True
        await self._publisher.publish_heartbeat(blind, self._clock.now())
        self.metrics.state_age.set(self._publisher.age(self._clock.now()).total_seconds())

    async def _decide(self) -> None:
        await self._follow_log()
        cluster = self._publisher.cluster
        if cluster is None:
            return
        self._workloads.note(cluster, executing=any(one.phase == "executing" for one in self._view.iterations.values()))
        now = self._clock.now()
        decision = tick(
            cluster,
            self._view,
            now=now,
            memory=self._memory,
            settings=self._settings,
            blind=self._source.missing(),
        )
        self._memory = decision.memory
        # The position in the log is part of an id where the same may be published again later.
        for deletion in decision.deletions:
            await self._publish(deletion, f"delete-{deletion.uid}-{self._view.sequence}", now)
        if decision.start is not None:
            faultpoint("observer.iteration.before-publish")
            start, iteration = decision.start, decision.iteration
            if start.mode == "reschedule":
                version = await self._publisher.mark(now)
                start = msgspec.structs.replace(start, version=version, usage=self.usage_until)
                iteration = f"it-{start.version}"
            await self._publish(start, iteration, now, iteration=iteration)
            faultpoint("observer.iteration.published")
        if decision.skip is not None:
            await self._publish(decision.skip, f"skip-{decision.skip.version}-{self._view.sequence}", now)

    async def _follow_log(self) -> None:
        """Fold what is new in LOG. A damaged event is skipped: deadlines end what it would have ended."""
        try:
            await self._fold_log()
        except StreamResetError:
            self._view = LogView()
            await self._fold_log()

    async def _fold_log(self) -> None:
        async for item in self._log_follower.read():
            if isinstance(item, Stored):
                self._view = fold(self._view, item.sequence, item.event)

    async def _publish(
        self,
        body: IterationStarted | IterationSkipped | NodeDeletionRequested,
        name: str,
        now: datetime,
        *,
        iteration: str = "",
    ) -> None:
        event = origin(
            body,
            id_=f"{self._name}/observer/{name}",
            cluster=self._name,
            iteration=iteration,
            now=now,
            state=body.version,
        )
        await self._bus.publish(event)
        self._health.metrics.published(body)
        self._log.info("published", event_type=event.type, id=event.id, reason=_reason(body))


def _reason(body: AnyBody) -> str:
    return body.reason if isinstance(body, (IterationStarted, IterationSkipped)) else ""
