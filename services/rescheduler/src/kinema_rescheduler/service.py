"""The rescheduler's loop: read the streams, decide, write down what is intended, do it, write down what came of it.

All memory is a fold of the streams. Whoever takes over, after a crash or a lost lease, reads the log, finds intents
without an outcome, and makes their effects again: an effect that was made is found made.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol, get_args

import structlog

from kinema_core.events import (
    EMPTY,
    CatalogPublished,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    FrozenMap,
    Offer,
    StepFailed,
    StepKind,
    StepStarted,
    StepSucceeded,
)
from kinema_core.model.catalog import node_prices, unpriced_nodes
from kinema_core.model.catalog_file import MICRO
from kinema_core.model.cluster import Cluster, fold
from kinema_core.runtime.bus import Bus, BusDeniedError, BusUnavailableError, ConflictError, Lease, LeaseLostError
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.health import Health
from kinema_core.runtime.loop import LoopMetrics, StateReader, Tenure, lead
from kinema_core.runtime.metric_table import gauge
from kinema_core.runtime.serve import retry_until_available
from kinema_kubernetes.claim import ClusterClaim
from kinema_kubernetes.errors import KubernetesError
from kinema_rescheduler.effects import Effects
from kinema_rescheduler.errors import ATTACHED, EffectError, TransientError
from kinema_rescheduler.journal.decisions import NAME, decided, event_of, outcome_name
from kinema_rescheduler.journal.execution import Execution, Progress
from kinema_rescheduler.journal.reading import LogReader
from kinema_rescheduler.kubernetes.cluster import ClusterWriter, Order
from kinema_rescheduler.kubernetes.events import Background, Report, log_event, report_nothing
from kinema_rescheduler.kubernetes.janitor import Janitor, Tidied, marked_objects
from kinema_rescheduler.kubernetes.landing import LandingKeeper
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.moves.landing import landing_steps
from kinema_rescheduler.plan.context import Wait
from kinema_rescheduler.plan.decide import current
from kinema_rescheduler.providers.base import Catalog, Provider
from kinema_rescheduler.providers.catalog import catalog_event
from kinema_rescheduler.settings import Settings

STEP_KINDS: Final = tuple(kind for kind in get_args(StepKind) if kind != "unknown")
FAULT_POINTS: Final = tuple(
    f"rescheduler.{kind}.{place}"
    for kind in (*STEP_KINDS, "finished", "aborted")
    for place in (("before", "intended", "effected", "done") if kind in STEP_KINDS else ("before", "done"))
)
"""Where a test may kill the process: before an intent, after it, after its effect, after its outcome; around an end."""

register(*FAULT_POINTS)

_ENDLESS: Final = frozenset({"budget", "not-ready"})
"""Reasons that cost no attempt: the decisions know their own deadlines for them."""
_LANDING_SECONDS: Final = 0.3
"""Real seconds between two looks at new pods on their way: kube-scheduler tries one again after a second."""
_IDLE: Final = timedelta(seconds=1)
"""Cluster time after which Kinema decides again though nothing was read: deadlines pass."""

_WAIT: Final = timedelta(seconds=60)
"""Longest cluster time for which a decision to wait is not made again while nothing is read."""
_UNTIDY: Final = timedelta(seconds=30)
"""Cluster time between two looks for marks of plans that are not executed."""
_CATALOG_AGAIN: Final = timedelta(seconds=10)
"""Cluster time after which a catalog that cannot be used is read again, where that comes before its usual time."""

_LOG = structlog.get_logger()


class StateSource(Protocol):
    """Reader of the newest cluster state."""

    async def read(self) -> tuple[Cluster, int] | None:
        """Return the state and its version; None while it is unknown, incomplete or old. Raises BusError."""


@dataclass(frozen=True)
class Dependencies:
    """Parts that the rescheduler's work concerns besides cluster and provider."""

    fence: Fence = field(default_factory=Fence)
    """Learns which lease is held."""
    claim: ClusterClaim | None = None
    """Kept while a lease is held, so that no other Kinema acts on the cluster; None where none does."""
    landing: LandingKeeper | None = None
    """Leads new pods to their planned nodes while a lease is held; None: they only prefer them."""
    janitor: Janitor | None = None
    """Removes the marks of plans that are not in the log; None: they stay."""
    state: StateSource | None = None
    """Reader of the cluster state; None: the stream STATE is followed."""
    report: Report = report_nothing
    """Receives each event that this service publishes."""
    fault: Callable[[str], None] = faultpoint
    """Receives the name of each fault point that is passed."""


class Rescheduler:
    """Executor of accepted plans, one plan at a time, while it holds the lease."""

    def __init__(
        self,
        *,
        settings: Settings,
        bus: Bus,
        clock: Clock,
        health: Health,
        writer: ClusterWriter,
        provider: Provider,
        dependencies: Dependencies | None = None,
    ) -> None:
        """`writer` and `provider` ask the fence of the `dependencies`."""
        dependencies = dependencies or Dependencies()
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._health = health
        self._provider = provider
        self._fault = dependencies.fault
        self._fence = dependencies.fence
        self._claim = dependencies.claim
        self._landing = dependencies.landing
        self._janitor = dependencies.janitor
        self._tidy_due: datetime | None = None
        """When marks are looked for next; None: as soon as the state shows one."""
        self._resume_due = False
        """Whether Deployments that a predecessor has paused are yet to be resumed."""
        self._report = dependencies.report
        self.metrics = LoopMetrics(health, NAME, settings.runtime.cluster)
        self._cost = gauge(health.registry, "kinema_cluster_cost_usd_per_hour").labels(
            service=NAME, cluster=settings.runtime.cluster
        )
        self._shown: tuple[Cluster, Event | None] | None = None
        """State and catalog of which the cost is shown."""
        self._reading = LogReader(bus)
        self._state: StateSource = dependencies.state or StateReader(
            bus,
            clock,
            initial=Cluster(),
            fold=fold,
            max_age_seconds=settings.max_state_age_seconds,
            health=health,
            metrics=self.metrics,
        )
        self._effects = Effects(
            writer=writer, provider=provider, clock=clock, report=lambda problem: health.report("effects", problem)
        )
        self._tasks: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        """Running effects by plan, step and attempt."""
        self._writing = asyncio.Lock()
        """Outcomes wait while a decision is read, made and written: it was made on all that lies before it."""
        self._decided_on: tuple[int, int, datetime] | None = None
        """Log position, state version and time of the last decision."""
        self._waits: tuple[int, Cluster, datetime, timedelta | None] | None = None
        """Log position, state and time of a decision to wait, and for how long it holds."""
        self._blind_since: datetime | None = None
        """Time since which the state is not known."""
        self._catalog_due: datetime | None = None
        self._catalog_reading: asyncio.Task[Catalog] | None = None

    async def run(self) -> None:
        """Execute plans whenever this process holds the lease, forever; when canceled, let running effects end."""
        await lead(
            self._bus,
            NAME,
            seconds=self._settings.lease_seconds,
            act=self._act,
            health=self._health,
            metrics=self.metrics,
            stand_by=self._reading.read,
        )

    async def _act(self, tenure: Tenure) -> None:
        """Act until the lease is lost; then no effect that it covered goes on."""
        lease = tenure.lease
        self._fence.hold(lease)
        self._tidy_due, self._resume_due = self._clock.now(), True
        claim, claiming = self._claim, asyncio.create_task(self._keep_claim())
        landing = asyncio.create_task(self._keep_landings())
        try:
            while lease.left() > 0:
                if claiming.done():
                    claiming.result()  # without the claim nothing is written: end with its error
                if landing.done():
                    landing.result()  # a bug in it
                try:
                    await self.tick(lease)
                except BusUnavailableError as error:
                    _LOG.warning("broker unreachable", error=str(error))
                await self._pause()
        except asyncio.CancelledError:
            if self._tasks and not tenure.lost:
                await asyncio.wait(self._tasks.values(), timeout=self._settings.grace_seconds)
            raise
        finally:
            claiming.cancel()
            landing.cancel()
            await self._drop_tasks()
            if (
                claim is not None and self._reading.journal.active is None
            ):  # no other Kinema may come between two steps of a plan
                with suppress(KubernetesError):
                    await claim.release()

    async def _keep_claim(self) -> None:
        if self._claim is not None:
            await self._claim.keep(lambda problem: self._health.report("claim", problem))

    async def _keep_landings(self) -> None:
        """Lead the new pods of moves under way; whatever fails is tried again: without it they only prefer nodes."""
        keeper, problem = self._landing, ""
        if keeper is None:
            return
        keeper.forget()
        while True:
            active, limits = self._reading.journal.active, self._settings.limits
            try:
                await keeper.keep(landing_steps(active, self._clock.now(), limits))
                problem = ""
            except EffectError as error:
                if problem != str(error):
                    problem = str(error)
                    _LOG.warning("new pods are not led to their nodes", error=problem)
            await asyncio.sleep(_LANDING_SECONDS)

    async def _pause(self) -> None:
        if self._tasks:
            await asyncio.wait(
                self._tasks.values(), timeout=self._settings.tick_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        else:
            await asyncio.sleep(self._settings.tick_seconds)

    async def _drop_tasks(self) -> None:
        if self._catalog_reading is not None:
            self._catalog_reading.cancel()
            self._catalog_reading = None
        tasks = list(self._tasks.values())
        self._tasks.clear()  # first: the end of the lease may cancel this wait
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- one turn

    async def tick(self, lease: Lease) -> None:
        """Read what is new, decide, publish, and start the effects that were intended.

        Raises:
            LeaseLostError: a process with a higher lease revision has acted. BusUnavailableError.
        """
        self._reap()
        async with self._writing:
            if not await self._reading.read():
                await self._drop_tasks()  # their plans are not in the log
                self._waits = None
            self._check_fencing(lease)
            await self._restate()
            await self._resume()
            known = await self._state.read() or self._unobserved()
            if known is None:
                return
            cluster, version = known
            if version:
                self._blind_since = None
                await self._keep_catalog(cluster)
                await self._tidy(cluster)
            if not self._worth_deciding(version):
                return
            self._show_cost(cluster)
            events = () if self._still_waits(cluster) else self._decide(cluster, lease)
            if events:
                await self._publish(events, lease, cluster)
                await self._reading.read()
        self._check_fencing(lease)
        self._start(lease, known)

    async def _restate(self) -> None:
        """Publish again what is in force and what LOG would drop soon."""
        now, name = self._clock.now(), self._settings.runtime.cluster
        body = self._reading.restatement(now)
        if body is None:
            return
        event = origin(
            body, id_=f"{name}/rescheduler/restated-{self._reading.position}", cluster=name, iteration="", now=now
        )
        try:
            sequence = await self._bus.publish(event)
        except BusDeniedError as error:  # rights of an earlier version
            self._health.report("restatement", f"{error}: renew the rights on the broker (kinema nats-rights)")
            return
        self._health.report("restatement", None)
        _LOG.info("events in force restated", events=len(body.events), seq=sequence)
        await self._reading.read()

    def _show_cost(self, cluster: Cluster) -> None:
        """Show what the nodes cost now; nothing while one has no price, or before the catalog is known."""
        catalog, shown = self._reading.journal.catalog, self._shown
        if shown is not None and shown[0] is cluster and shown[1] is catalog:
            return
        self._shown = cluster, catalog
        cost = math.nan
        if catalog is not None and isinstance(catalog.body, CatalogPublished) and cluster.version:
            offers = catalog.body.offers
            if not unpriced_nodes(cluster, offers):
                cost = sum(node_prices(cluster, offers).values()) / MICRO
        self._cost.set(cost)

    def _unobserved(self) -> tuple[Cluster, int] | None:
        """Return an empty state, on which marks are reverted, once the state was unknown for long or an end is due."""
        now, active = self._clock.now(), self._reading.journal.active
        self._blind_since = self._blind_since or now
        if active is None:
            return None
        waited = now - self._blind_since >= timedelta(seconds=self._settings.limits.blind_seconds)
        return (Cluster(), 0) if waited or active.ending else None

    def _check_fencing(self, lease: Lease) -> None:
        if self._reading.journal.fencing > lease.revision:
            newer = self._reading.journal.fencing
            raise LeaseLostError(f"lease revision {newer} has acted after revision {lease.revision}")

    def _reap(self) -> None:
        """Forget ended effects; a bug in one of them ends this service."""
        for key, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[key]
                if not task.cancelled():
                    task.result()

    def _worth_deciding(self, version: int) -> bool:
        """Return whether anything was read since the last decision, or time has passed."""
        now, last = self._clock.now(), self._decided_on
        if last is not None and last[:2] == (self._reading.position, version) and now - last[2] < _IDLE:
            return False
        self._decided_on = (self._reading.position, version, now)
        return True

    def _decide(self, cluster: Cluster, lease: Lease) -> tuple[Event, ...]:
        """Return what to publish next; where that is nothing, note for how long."""
        now, wait = self._clock.now(), Wait()
        events = decided(
            self._reading.journal,
            cluster,
            now=now,
            limits=self._settings.limits,
            fencing=lease.revision,
            wait=wait,
        )
        self._waits = None if events else (self._reading.position, cluster, now, wait.left)
        return events

    def _still_waits(self, cluster: Cluster) -> bool:
        """Return whether the last decision was to wait, nothing was read since, and no time of it is over."""
        if self._waits is None:
            return False
        position, known, since, left = self._waits
        if position != self._reading.position or known is not cluster:
            return False
        return self._clock.now() - since < (_WAIT if left is None else min(left, _WAIT))

    async def _publish(self, events: tuple[Event, ...], lease: Lease, cluster: Cluster) -> None:
        """Publish decisions; intents only while no other process has published one since the last read."""
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
                _LOG.warning("another process has published an intent", event_id=event.id)
                return
            log_event(event)
            self._health.metrics.published(event.body)
            self._report(event, None, background)
            if isinstance(event.body, ExecutionCompleted | ExecutionAborted):
                self._fault(f"rescheduler.{_kind(event)}.done")

    async def _keep_catalog(self, cluster: Cluster) -> None:
        """Publish what the provider sells, at start and whenever it has changed.

        The provider may take minutes. Neither decisions nor outcomes wait for it.
        """
        now, reading = self._clock.now(), self._catalog_reading
        if reading is None:
            if self._catalog_due is None or now >= self._catalog_due:
                self._catalog_reading = asyncio.create_task(self._provider.catalog())
            return
        if not reading.done():
            return
        self._catalog_reading = None
        usual = timedelta(seconds=self._settings.catalog_seconds)
        try:
            catalog = reading.result()
        except EffectError as error:
            if "provider" not in self._health.problems():
                _LOG.warning("no catalog from the provider", problem=str(error))
            self._health.report("provider", str(error))
            self._catalog_due = now + min(usual, _CATALOG_AGAIN)
            return
        self._health.report("provider", None)
        self._catalog_due = now + usual
        name = self._settings.runtime.cluster
        event = catalog_event(catalog, cluster, before=self._reading.journal.catalog, cluster_name=name, now=now)
        if event is not None:
            await self._bus.publish(event)

    async def _resume(self) -> None:
        """Resume what a predecessor has paused before anything else, with a state or without, and whatever plan is on.

        While effects are under way, a pause may belong to one of them.
        """
        if self._janitor is None or not self._resume_due or self._tasks:
            return
        try:
            self._fence.check()
            self._show_tidied(await self._janitor.resume())
        except EffectError:  # an open step does it too, and so does the removal of marks
            return
        self._resume_due = False

    def _show_tidied(self, done: Tidied) -> None:
        if done.removed:
            _LOG.warning("marks of a plan that is not executed removed", objects=done.removed)
        self._health.report("marks", "; ".join(done.left) or None)

    async def _tidy(self, cluster: Cluster) -> None:
        """Remove marks of plans that have ended or were never in this log: at first, and while the state shows some.

        No decision is made until it is done: a plan that begins finds no mark but its own.
        """
        janitor, now, journal = self._janitor, self._clock.now(), self._reading.journal
        if janitor is None or current(journal, cluster) is not None:
            return
        if self._tidy_due is None and marked_objects(cluster):  # the state may be a little behind
            self._tidy_due = now + _UNTIDY
        if self._tidy_due is None or now < self._tidy_due:
            return
        try:
            self._fence.check()
        except EffectError:  # who holds the claim is reported beside it
            return
        self._tidy_due = now + _UNTIDY
        try:
            done = await janitor.tidy()
        except EffectError as error:
            self._health.report("marks", str(error))
            return
        self._show_tidied(done)
        if not done.left:
            self._tidy_due = None

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
        """Make one effect and publish what came of it."""
        kind, (cluster, version) = progress.step.kind, known
        self._fault(f"rescheduler.{kind}.intended")
        if lease.left() <= 0:
            return  # the next holder of the lease makes it
        about: dict[str, str | int] = {"plan": execution.plan_id, "step": progress.step.id}
        about["attempt"] = progress.attempt
        with self._health.spans.of(f"rescheduler {kind}", execution.cause.traceparent, about) as span:
            body = await self._make(lease, execution, progress)
            span["outcome"] = body.outcome if isinstance(body, StepSucceeded) else body.reason
        if isinstance(body, StepFailed) and lease.left() <= 0:
            return  # another process may be making it by now
        self._fault(f"rescheduler.{kind}.effected")
        event = event_of(
            body,
            cause=execution.cause,
            name=outcome_name(progress.step.id, progress.attempt, body),
            now=self._clock.now(),
            state=version,
        )
        async with self._writing:
            await retry_until_available(lambda: self._bus.publish(event))
        self.metrics.step_ended(kind, body.outcome if isinstance(body, StepSucceeded) else "failed")
        log_event(event)
        self._report(event, progress.step, Background(execution.plan, cluster))
        self._fault(f"rescheduler.{kind}.done")

    async def _make(self, lease: Lease, execution: Execution, progress: Progress) -> StepSucceeded | StepFailed:
        step, attempt = progress.step, progress.attempt
        order = Order(step=step, plan=execution.plan_id, iteration=execution.cause.iteration, attempt=attempt)
        try:
            made = await self._effects.perform(order, progress.deadline, self._offers())
        except EffectError as error:
            again = isinstance(error, TransientError)
            return StepFailed(
                plan=execution.plan_id,
                step=step.id,
                fencing=lease.revision,
                reason=error.reason,
                detail=error.detail,
                retry=again and not self._spent(progress, error.reason),
                figures=FrozenMap({"offer": step.offer}) if step.offer else EMPTY,
            )
        return StepSucceeded(
            plan=execution.plan_id,
            step=step.id,
            fencing=lease.revision,
            outcome=made.outcome,
            figures=made.figures,
        )

    def _spent(self, progress: Progress, reason: str) -> bool:
        """Return whether a step that has failed for a reason that may pass was tried for long enough."""
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
