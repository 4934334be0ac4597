"""The rescheduler's loop: read the streams, decide, write down what is intended, do it, write down what came of it.

All memory is a fold of the streams. Whoever takes over, after a crash or a lost lease, reads the log, finds intents
without an outcome, and makes their effects again: an effect that was made is found made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, get_args

import structlog

from kinema_core.events import (
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ExecutionAborted,
    ExecutionFinished,
    Offer,
    StepDone,
    StepFailed,
    StepIntended,
    StepKind,
)
from kinema_core.model.cluster import Cluster, evolve
from kinema_core.runtime.bus import Bus, BusError, BusUnavailableError, ConflictError, Lease, LeaseLostError, Stored
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.follow import Follower, StateLostError
from kinema_core.runtime.health import Health
from kinema_core.runtime.serve import patiently
from kinema_rescheduler.adapters.cluster import ClusterWriter, Order
from kinema_rescheduler.adapters.provider import Provider
from kinema_rescheduler.catalog import catalog_event
from kinema_rescheduler.decisions import NAME, decided, event_of, outcome_name
from kinema_rescheduler.effects import Effects
from kinema_rescheduler.errors import EffectError, PassingError
from kinema_rescheduler.logic.execution import FOLLOWED, Execution, Journal, Progress, fold
from kinema_rescheduler.settings import Settings

FAULT_POINTS: Final = tuple(
    f"rescheduler.{kind}.{place}"
    for kind in (*get_args(StepKind), "finished", "aborted")
    for place in (("before", "intended", "effected", "done") if kind in get_args(StepKind) else ("before", "done"))
)
"""Where a test may kill us: before an intent, after it, after its effect, after its outcome; around an end."""

register(*FAULT_POINTS)

_ENDLESS: Final = frozenset({"budget", "not-ready"})
"""Reasons that cost no attempt: the decisions know their own deadlines for them."""
_IDLE: Final = timedelta(seconds=1)
"""Cluster time after which we decide again though nothing was read: deadlines pass."""

_LOG = structlog.get_logger()


_STATE_KINDS: Final = ("cluster-snapshot", "cluster-delta", "usage-sampled")


def fold_state(cluster: Cluster, event: Event) -> Cluster:
    """Fold one state event."""
    return evolve(cluster, event.body) if isinstance(event.body, ClusterSnapshot | ClusterDelta) else cluster


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
        fault: Callable[[str], None] = faultpoint,
    ) -> None:
        """`fault` is told the name of each fault point that is passed."""
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._health = health
        self._provider = provider
        self._fault = fault
        self._effects = Effects(
            writer=writer, provider=provider, clock=clock, report=lambda problem: health.report("effects", problem)
        )
        self._follower: Follower[Cluster] = Follower(bus, Cluster(), fold_state)
        self._known: tuple[Cluster, int] | None = None
        """The newest state and its version, as of `_state_head`."""
        self._state_head = -1
        self._observed: datetime | None = None
        """When the state stream last grew, as far as this process knows."""
        self._journal = Journal()
        self._position = 0
        self._last_intent = 0
        """Sequence of the last intent in the log: whoever does not know it may not add another."""
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
            await self._lead(lease)

    async def _lead(self, lease: Lease) -> None:
        """Act until the lease is lost."""
        renewing = asyncio.create_task(self._renew(lease))
        try:
            while not renewing.done() and lease.left() > 0:
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
            await self._drop_tasks()
            with suppress(BusError):
                await lease.release()

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
            await self._read()
            self._check_fencing(lease)
            known = await self._state()
            if known is None:
                return
            cluster, version = known
            await self._keep_catalog(cluster)
            if not self._worth_deciding(version):
                return
            events = decided(
                self._journal,
                cluster,
                now=self._clock.now(),
                limits=self._settings.limits,
                fencing=lease.revision,
            )
            await self._publish(events, lease)
            await self._read()
        self._check_fencing(lease)
        self._start(lease, version)

    def _check_fencing(self, lease: Lease) -> None:
        if self._journal.fencing > lease.revision:
            raise LeaseLostError(f"revision {self._journal.fencing} has acted after our {lease.revision}")

    def _reap(self) -> None:
        """Forget ended effects; a bug in one of them is ours to die of."""
        for key, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[key]
                if not task.cancelled():
                    task.result()

    async def _read(self) -> None:
        """Fold what the log has beyond what we know."""
        if await self._bus.head("LOG") <= self._position:
            return
        async for item in self._bus.read("LOG", start=self._position + 1):
            self._position = item.sequence
            if not isinstance(item, Stored):
                _LOG.warning("damaged event skipped", seq=item.sequence, reason=item.reason, detail=item.detail)
                continue
            if isinstance(item.event.body, StepIntended):
                self._last_intent = item.sequence
            if item.event.body.TYPE.rpartition(".")[0] in FOLLOWED:
                self._journal = fold(self._journal, item.event)

    async def _state(self) -> tuple[Cluster, int] | None:
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
        limit = self._settings.max_state_age_seconds
        age = (self._clock.now() - self._observed).total_seconds() if self._observed is not None else 0.0
        return (
            f"nothing was observed for {age:.0f} s, more than {limit:.0f}: is the observer alive?"
            if age > limit
            else None
        )

    async def _newest_observation(self) -> datetime | None:
        """Time of the newest state event: a process that has just started has seen none come."""
        found = [await self._bus.last("STATE", kind) for kind in _STATE_KINDS]
        return max((item.event.time for item in found if isinstance(item, Stored)), default=None)

    def _worth_deciding(self, version: int) -> bool:
        """Whether anything was read since the last decision, or time has passed."""
        now, last = self._clock.now(), self._decided_on
        if last is not None and last[:2] == (self._position, version) and now - last[2] < _IDLE:
            return False
        self._decided_on = (self._position, version, now)
        return True

    async def _publish(self, events: tuple[Event, ...], lease: Lease) -> None:
        """Write decisions down. Intents only while nobody else has written one since we last read."""
        for event in events:
            if lease.left() <= 0:
                raise LeaseLostError("its time has run out")
            self._fault(f"rescheduler.{_kind(event)}.before")
            try:
                if isinstance(event.body, StepIntended):
                    self._last_intent = await self._bus.publish(event, expected_last=self._last_intent)
                else:
                    await self._bus.publish(event)
            except ConflictError:
                _LOG.warning("somebody else has written an intent", event_id=event.id)
                return
            _tell(event)
            if isinstance(event.body, ExecutionFinished | ExecutionAborted):
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
        event = catalog_event(catalog, cluster, before=self._journal.catalog, cluster_name=name, now=now)
        if event is not None:
            await self._bus.publish(event)

    # --- effects

    def _start(self, lease: Lease, version: int) -> None:
        """Start the effect of every intent that has no outcome and is not being made."""
        execution = self._journal.active
        if execution is None:
            return
        for progress in execution.open_steps:
            key = (execution.plan_id, progress.step.id, progress.attempt)
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._effect(lease, execution, progress, version))

    async def _effect(self, lease: Lease, execution: Execution, progress: Progress, version: int) -> None:
        """Make one effect and tell what came of it."""
        kind = progress.step.kind
        self._fault(f"rescheduler.{kind}.intended")
        if lease.left() <= 0:
            return  # whoever holds the lease by then makes it
        body = await self._make(lease, execution, progress)
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
        _tell(event)
        self._fault(f"rescheduler.{kind}.done")

    async def _make(self, lease: Lease, execution: Execution, progress: Progress) -> StepDone | StepFailed:
        step, attempt = progress.step, progress.attempt
        order = Order(step=step, plan=execution.plan_id, iteration=execution.cause.iteration, attempt=attempt)
        try:
            made = await self._effects.perform(order, progress.deadline, self._offers())
        except EffectError as error:
            again = isinstance(error, PassingError)
            limited = error.reason not in _ENDLESS and attempt >= self._settings.limits.attempts
            return StepFailed(
                plan=execution.plan_id,
                step=step.id,
                fencing=lease.revision,
                reason=error.reason,
                detail=error.detail,
                retry=again and not limited,
            )
        return StepDone(
            plan=execution.plan_id,
            step=step.id,
            fencing=lease.revision,
            outcome=made.outcome,
            figures=made.figures,
        )

    def _offers(self) -> dict[str, Offer]:
        catalog = self._journal.catalog
        known = catalog.body.offers if catalog is not None and isinstance(catalog.body, CatalogPublished) else ()
        return {offer.name: offer for offer in known}


def _kind(event: Event) -> str:
    """Name of a decision in fault points: the kind of its step, or how the execution ends."""
    match event.body:
        case StepIntended() as intent:
            return intent.step.kind
        case ExecutionFinished():
            return "finished"
        case ExecutionAborted():
            return "aborted"
        case _:
            return "verdict"


def _tell(event: Event) -> None:
    """One line for what was decided or came of it."""
    body = event.body
    about: dict[str, str | int] = {"event_id": event.id, "kind": event.type, "state": event.state}
    match body:
        case StepIntended():
            about |= {"step": body.step.id, "attempt": body.attempt}
        case StepDone():
            about |= {"step": body.step, "outcome": body.outcome}
        case StepFailed():
            about |= {"step": body.step, "reason": body.reason, "detail": body.detail}
        case ExecutionAborted():
            about |= {"reason": body.reason, "detail": body.detail}
        case _:
            pass
    _LOG.info("execution", **about)
