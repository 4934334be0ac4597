"""The rescheduler's loop: read the streams, decide, write down what is intended, do it, write down what came of it.

All memory is a fold of the streams. Whoever takes over, after a crash or a lost lease, reads the log, finds intents
without an outcome, and makes their effects again: an effect that was made is found made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol, get_args

import structlog

from kinema_core.events import (
    CatalogPublished,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    Offer,
    StepFailed,
    StepKind,
    StepStarted,
    StepSucceeded,
)
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.bus import Bus, BusError, BusUnavailableError, ConflictError, Lease, LeaseLostError
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.health import Health
from kinema_core.runtime.serve import patiently
from kinema_rescheduler.effects import Effects
from kinema_rescheduler.errors import ATTACHED, EffectError, PassingError
from kinema_rescheduler.journal.decisions import NAME, decided, event_of, outcome_name
from kinema_rescheduler.journal.execution import Execution, Progress
from kinema_rescheduler.journal.reading import Reading
from kinema_rescheduler.kubernetes.cluster import ClusterWriter, Order
from kinema_rescheduler.kubernetes.recorder import Background, Tell, log_event, nobody
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.providers.base import Provider
from kinema_rescheduler.providers.catalog import catalog_event
from kinema_rescheduler.settings import Settings

STEP_KINDS: Final = tuple(kind for kind in get_args(StepKind) if kind != "unknown")
FAULT_POINTS: Final = tuple(
    f"rescheduler.{kind}.{place}"
    for kind in (*STEP_KINDS, "finished", "aborted")
    for place in (("before", "intended", "effected", "done") if kind in STEP_KINDS else ("before", "done"))
)
"""Where a test may kill us: before an intent, after it, after its effect, after its outcome; around an end."""

register(*FAULT_POINTS)

_ENDLESS: Final = frozenset({"budget", "not-ready"})
"""Reasons that cost no attempt: the decisions know their own deadlines for them."""
_IDLE: Final = timedelta(seconds=1)
"""Cluster time after which we decide again though nothing was read: deadlines pass."""

_LOG = structlog.get_logger()


class Claim(Protocol):
    """The right of this Kinema to act on the cluster; held while a process leads."""

    async def keep(self, report: Callable[[str | None], None]) -> None:
        """Hold it for ever, or try to; `report` is told what is wrong, and None when nothing."""

    async def release(self) -> None:
        """Give it up at once; raises EffectError where that cannot be said."""


class _Undisputed:
    """Nobody else acts here."""

    async def keep(self, report: Callable[[str | None], None]) -> None:
        """There is nothing to hold."""

    async def release(self) -> None:
        """There is nothing to give up."""


@dataclass(frozen=True)
class Ties:
    """What else hears of the rescheduler's work."""

    fence: Fence = field(default_factory=Fence)
    """Learns which lease is held."""
    claim: Claim = field(default_factory=_Undisputed)
    """Kept while a lease is held, so that no other Kinema acts on the cluster."""
    tell: Tell = nobody
    """Is told each event of ours."""
    fault: Callable[[str], None] = faultpoint
    """Is told the name of each fault point that is passed."""


class Rescheduler:
    """Carries out accepted plans while it holds the lease, one plan at a time."""

    def __init__(
        self,
        *,
        settings: Settings,
        bus: Bus,
        clock: Clock,
        health: Health,
        writer: ClusterWriter,
        provider: Provider,
        ties: Ties | None = None,
    ) -> None:
        """`writer` and `provider` ask the fence of the `ties`, if any."""
        ties = ties if ties is not None else Ties()
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._health = health
        self._provider = provider
        self._fault = ties.fault
        self._fence = ties.fence
        self._claim = ties.claim
        self._tell = ties.tell
        self._reading = Reading(bus, clock, health, max_state_age_seconds=settings.max_state_age_seconds)
        self._effects = Effects(
            writer=writer, provider=provider, clock=clock, report=lambda problem: health.report("effects", problem)
        )
        self._tasks: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        """Running effects by plan, step and attempt."""
        self._writing = asyncio.Lock()
        """Outcomes wait while a decision is read, made and written: it was made on all that lies before it."""
        self._decided_on: tuple[int, int, datetime] | None = None
        """Log position, state version and time of the last decision."""
        self._catalog_due: datetime | None = None

    async def run(self) -> None:
        """Wait for the lease, act under it, for ever; on cancellation let running effects end and give it up."""
        self._health.started()
        while True:
            lease = await patiently(lambda: self._bus.acquire(NAME, self._settings.lease_seconds))
            if lease is None:
                await asyncio.sleep(self._settings.lease_seconds / 3)
                continue
            _LOG.info("lease taken", revision=lease.revision)
            self._fence.hold(lease)
            await self._lead(lease)

    async def _lead(self, lease: Lease) -> None:
        """Act until the lease is lost."""
        renewing = asyncio.create_task(self._renew(lease))
        claiming = asyncio.create_task(self._claim.keep(lambda problem: self._health.report("claim", problem)))
        try:
            while not renewing.done() and lease.left() > 0:
                if claiming.done():
                    claiming.result()  # a bug in it is ours to die of: without a claim nothing would be written again
                try:
                    await self.tick(lease)
                except BusUnavailableError as error:
                    _LOG.warning("broker unreachable", error=str(error))
                except LeaseLostError as error:
                    _LOG.warning("lease lost", reason=str(error))
                    return
                await self._pause()
            _LOG.warning("lease lost", reason="not renewed in time")
        except asyncio.CancelledError:
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=self._settings.grace_seconds)
            raise
        finally:
            renewing.cancel()
            claiming.cancel()
            await self._drop_tasks()
            with suppress(BusError):
                await lease.release()
            if self._reading.journal.active is None:  # else nobody but us shall come between two steps of a plan
                with suppress(EffectError):
                    await self._claim.release()

    async def _renew(self, lease: Lease) -> None:
        """Renew until somebody else has it or its time has run out; then no effect that it covered goes on."""
        try:
            while (left := lease.left()) > 0:
                await asyncio.sleep(min(left, self._settings.lease_seconds / 4))
                try:
                    async with asyncio.timeout(max(0.0, lease.left())):
                        await lease.renew()
                except (LeaseLostError, TimeoutError):
                    return
                except BusUnavailableError as error:
                    _LOG.warning("lease not renewed", error=str(error), left=round(lease.left(), 1))
        finally:
            # Here and not in the loop: that waits while an outcome cannot be written down.
            for task in self._tasks.values():
                task.cancel()

    async def _pause(self) -> None:
        if self._tasks:
            await asyncio.wait(
                self._tasks.values(), timeout=self._settings.tick_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        else:
            await asyncio.sleep(self._settings.tick_seconds)

    async def _drop_tasks(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    # --- one turn

    async def tick(self, lease: Lease) -> None:
        """Read what is new, decide, publish, and start the effects that were intended.

        Raises:
            LeaseLostError: somebody with a higher lease revision has acted. BusUnavailableError.
        """
        self._reap()
        async with self._writing:
            await self._reading.read()
            self._check_fencing(lease)
            known = await self._reading.state()
            if known is None:
                return
            cluster, version = known
            await self._keep_catalog(cluster)
            if not self._worth_deciding(version):
                return
            events = decided(
                self._reading.journal,
                cluster,
                now=self._clock.now(),
                limits=self._settings.limits,
                fencing=lease.revision,
            )
            await self._publish(events, lease, cluster)
            await self._reading.read()
        self._check_fencing(lease)
        self._start(lease, known)

    def _check_fencing(self, lease: Lease) -> None:
        if self._reading.journal.fencing > lease.revision:
            raise LeaseLostError(f"revision {self._reading.journal.fencing} has acted after our {lease.revision}")

    def _reap(self) -> None:
        """Forget ended effects; a bug in one of them is ours to die of."""
        for key, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[key]
                if not task.cancelled():
                    task.result()

    def _worth_deciding(self, version: int) -> bool:
        """Whether anything was read since the last decision, or time has passed."""
        now, last = self._clock.now(), self._decided_on
        if last is not None and last[:2] == (self._reading.position, version) and now - last[2] < _IDLE:
            return False
        self._decided_on = (self._reading.position, version, now)
        return True

    async def _publish(self, events: tuple[Event, ...], lease: Lease, cluster: Cluster) -> None:
        """Write decisions down. Intents only while nobody else has written one since we last read."""
        active = self._reading.journal.active
        background = Background(active.plan if active is not None else None, cluster)
        for event in events:
            if lease.left() <= 0:
                raise LeaseLostError("its time has run out")
            self._fault(f"rescheduler.{_kind(event)}.before")
            try:
                if isinstance(event.body, StepStarted):
                    self._reading.last_intent = await self._bus.publish(event, expected_last=self._reading.last_intent)
                else:
                    await self._bus.publish(event)
            except ConflictError:
                _LOG.warning("somebody else has written an intent", event_id=event.id)
                return
            log_event(event)
            self._tell(event, None, background)
            if isinstance(event.body, ExecutionCompleted | ExecutionAborted):
                self._fault(f"rescheduler.{_kind(event)}.done")

    async def _keep_catalog(self, cluster: Cluster) -> None:
        """Publish what the provider sells, at start and whenever it has changed."""
        now = self._clock.now()
        if self._catalog_due is not None and now < self._catalog_due:
            return
        try:
            catalog = await self._provider.catalog()
        except EffectError as error:
            self._health.report("provider", str(error))
            return
        self._health.report("provider", None)
        self._catalog_due = now + timedelta(seconds=self._settings.catalog_seconds)
        name = self._settings.runtime.cluster
        event = catalog_event(catalog, cluster, before=self._reading.journal.catalog, cluster_name=name, now=now)
        if event is not None:
            await self._bus.publish(event)

    # --- effects

    def _start(self, lease: Lease, known: tuple[Cluster, int]) -> None:
        """Start the effect of every intent that has no outcome and is not being made."""
        execution = self._reading.journal.active
        if execution is None:
            return
        for progress in execution.open_steps:
            key = (execution.plan_id, progress.step.id, progress.attempt)
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._effect(lease, execution, progress, known))

    async def _effect(self, lease: Lease, execution: Execution, progress: Progress, known: tuple[Cluster, int]) -> None:
        """Make one effect and tell what came of it."""
        kind, (cluster, version) = progress.step.kind, known
        self._fault(f"rescheduler.{kind}.intended")
        if lease.left() <= 0:
            return  # whoever holds the lease by then makes it
        body = await self._make(lease, execution, progress)
        if isinstance(body, StepFailed) and lease.left() <= 0:
            return  # not ours to judge: somebody else may be making it by now
        self._fault(f"rescheduler.{kind}.effected")
        event = event_of(
            body,
            cause=execution.cause,
            name=outcome_name(progress.step.id, progress.attempt, body),
            now=self._clock.now(),
            state=version,
        )
        async with self._writing:
            await patiently(lambda: self._bus.publish(event))
        log_event(event)
        self._tell(event, progress.step, Background(execution.plan, cluster))
        self._fault(f"rescheduler.{kind}.done")

    async def _make(self, lease: Lease, execution: Execution, progress: Progress) -> StepSucceeded | StepFailed:
        step, attempt = progress.step, progress.attempt
        order = Order(step=step, plan=execution.plan_id, iteration=execution.cause.iteration, attempt=attempt)
        try:
            made = await self._effects.perform(order, progress.deadline, self._offers())
        except EffectError as error:
            again = isinstance(error, PassingError)
            return StepFailed(
                plan=execution.plan_id,
                step=step.id,
                fencing=lease.revision,
                reason=error.reason,
                detail=error.detail,
                retry=again and not self._spent(progress, error.reason),
            )
        return StepSucceeded(
            plan=execution.plan_id,
            step=step.id,
            fencing=lease.revision,
            outcome=made.outcome,
            figures=made.figures,
        )

    def _spent(self, progress: Progress, reason: str) -> bool:
        """Whether a step that has failed for a reason that may pass was tried for long enough."""
        limits = self._settings.limits
        if reason == ATTACHED:  # a driver takes its time, and each look costs nothing
            return self._clock.now() - progress.first > timedelta(seconds=limits.delete_seconds)
        return reason not in _ENDLESS and progress.attempt >= limits.attempts

    def _offers(self) -> dict[str, Offer]:
        catalog = self._reading.journal.catalog
        known = catalog.body.offers if catalog is not None and isinstance(catalog.body, CatalogPublished) else ()
        return {offer.name: offer for offer in known}


def _kind(event: Event) -> str:
    """Name of a decision in fault points: the kind of its step, or how the execution ends."""
    match event.body:
        case StepStarted() as intent:
            return intent.step.kind
        case ExecutionCompleted():
            return "finished"
        case ExecutionAborted():
            return "aborted"
        case _:
            return "verdict"
