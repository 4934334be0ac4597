"""The runtime of the services that act by themselves, the observer and the rescheduler (stages answer events: `serve`).

One process of a service acts at a time, under a lease on the broker. It follows LOG and STATE, notices when a stream
was replaced by another one, and knows how old the cluster state is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Generic, TypeVar

import structlog

from kinema_core.events import Event, ObserverHeartbeat, kind_of_type
from kinema_core.runtime.bus import (
    Bus,
    BusError,
    BusUnavailableError,
    Damaged,
    Extent,
    Lease,
    LeaseLostError,
    Stored,
    StreamResetError,
)
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.follow import Anchor, Follower, StateLostError
from kinema_core.runtime.health import Health
from kinema_core.runtime.metric_table import counter, gauge
from kinema_core.runtime.serve import retry_until_available

S = TypeVar("S")

_HEARTBEAT: Final = kind_of_type(ObserverHeartbeat.TYPE)

_LOG = structlog.get_logger()


class LoopMetrics:
    """Metrics of a service that acts by itself: the same names in each."""

    def __init__(self, health: Health, service: str, cluster: str) -> None:
        """Register the metrics on the registry of `health`."""
        registry, values = health.registry, {"service": service, "cluster": cluster}
        self.leader = gauge(registry, "kinema_leader").labels(**values)
        self.state_age = gauge(registry, "kinema_state_age_seconds").labels(**values)
        self.blind_kinds = gauge(registry, "kinema_blind_kinds").labels(**values)
        self._steps = counter(registry, "kinema_steps_total")
        self._requests = counter(registry, "kinema_api_requests_total")
        self._values = values

    def step_ended(self, kind: str, outcome: str) -> None:
        """Count an attempt at a step: `done`, `adopted`, `void` or `failed`."""
        self._steps.labels(**self._values, kind=kind, outcome=outcome).inc()

    def answered(self, verb: str, code: int) -> None:
        """Count an answer of the API server to a request; 0 where none came."""
        self._requests.labels(**self._values, verb=verb, code=str(code)).inc()


@dataclass
class Tenure:
    """The time for which this process holds the lease."""

    lease: Lease
    lost: bool = False
    """Set before the work under the lease is canceled because the lease was lost."""


async def lead(
    bus: Bus,
    name: str,
    *,
    seconds: float,
    act: Callable[[Tenure], Awaitable[None]],
    health: Health,
    metrics: LoopMetrics,
    stand_by: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Act whenever this process holds the lease `name`, forever.

    The process counts as started as soon as the broker answers, also where another process leads. `act` is canceled
    when the lease is lost. When this call is canceled, `act` may finish under the lease, which is renewed until then
    and released after it.

    Args:
        bus: the broker.
        name: the lease.
        seconds: real time to live of the lease.
        act: the work under the lease; a LeaseLostError that it raises ends its turn.
        health: reports that the process has started.
        metrics: shows whether this process leads.
        stand_by: called again and again while another process leads, so that this one can take over at once.
    """
    while True:
        lease = await retry_until_available(lambda: bus.acquire(name, seconds))
        health.started()
        if lease is not None:
            _LOG.info("lease acquired", lease=name, revision=lease.revision)
            await _act(Tenure(lease), seconds, act, metrics)
        elif stand_by is not None:
            await retry_until_available(stand_by)
        await asyncio.sleep(seconds / 3)


async def _act(tenure: Tenure, seconds: float, act: Callable[[Tenure], Awaitable[None]], metrics: LoopMetrics) -> None:
    metrics.leader.set(1)
    acting = asyncio.ensure_future(act(tenure))
    renewing = asyncio.create_task(_renew(tenure, seconds, acting))
    try:
        try:
            await asyncio.wait([acting])
        except asyncio.CancelledError:  # this call was canceled, not the work
            acting.cancel()
            await asyncio.wait([acting])
            raise
        error = None if acting.cancelled() else acting.exception()
        if error is not None and not isinstance(error, LeaseLostError):
            raise error
        _LOG.warning("lease lost", reason=str(error or "not renewed in time"))
    finally:
        metrics.leader.set(0)
        renewing.cancel()
        with suppress(BusError):
            await tenure.lease.release()


async def _renew(tenure: Tenure, seconds: float, acting: asyncio.Future[None]) -> None:
    """Renew the lease until another process has it or its time has run out; then cancel the work under it."""
    lease = tenure.lease
    while (left := lease.left()) > 0:
        await asyncio.sleep(min(left, seconds / 4))
        try:
            async with asyncio.timeout(max(0.0, lease.left())):
                await lease.renew()
        except (LeaseLostError, TimeoutError):
            break
        except BusUnavailableError as error:
            _LOG.warning("lease not renewed", error=str(error), left=round(lease.left(), 1))
    tenure.lost = True
    acting.cancel()


class LogFollower:
    """Reads LOG from its beginning, each event once."""

    def __init__(self, bus: Bus, kinds: tuple[str, ...] = ()) -> None:
        """Read events of these `kinds` only; without any, all."""
        self._bus = bus
        self._kinds = kinds
        self.position = 0
        """Sequence up to which everything was read."""
        self.extent = Extent(first=1, last=0, filled=0.0)
        """What LOG held at the last call of `read`."""
        self._anchor = Anchor()

    async def read(self) -> AsyncIterator[Stored | Damaged]:
        """Iterate over what is new.

        Raises:
            StreamResetError: LOG is not the stream that was read so far. What was folded of it does not hold, and the
                next call reads from the beginning. BusError.
        """
        self.extent = await self._bus.extent("LOG")
        head = self.extent.last
        if head == self.position:
            return
        # Where retention has removed the anchor, LOG counts as replaced and is folded as after a restart.
        if head < self.position or not await self._anchor.holds(self._bus, if_gone=False):
            detail = f"LOG, which was read up to {self.position} and ends at {head}, was replaced: it is read again"
            self.position, self._anchor = 0, Anchor()
            _LOG.warning("LOG was replaced", detail=detail)
            raise StreamResetError(detail)
        async for item in self._bus.read("LOG", start=self.position + 1, kinds=self._kinds):
            self.position = item.sequence
            self._anchor.note(item)
            yield item
        self.position = max(self.position, head)


@dataclass(frozen=True)
class _Observed(Generic[S]):
    """The state, and what is known of its observer."""

    state: S
    blind: tuple[str, ...] = ()
    time: datetime | None = None
    """Time of the newest observation of this cluster."""


@dataclass
class _Age:
    """Age of the newest observation, on the clock of this process."""

    of: tuple[int, datetime | None] | None = None
    since: datetime | None = field(default=None)


class StateReader(Generic[S]):
    """Reader of the newest cluster state that also reports whether that state is known, complete and recent.

    The age counts from the last delta, snapshot or heartbeat of this cluster's observer: other events on the stream,
    usage or those of other clusters, say nothing about what the observer sees.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        *,
        initial: S,
        fold: Callable[[S, Event], S],
        max_age_seconds: float,
        health: Health,
        metrics: LoopMetrics,
    ) -> None:
        """Fold with `fold`, from `initial` on; report problems to `health` as part `state`."""
        self._bus = bus
        self._clock = clock
        self._max_age = max_age_seconds
        self._health = health
        self._metrics = metrics

        def folded(seen: _Observed[S], event: Event) -> _Observed[S]:
            if isinstance(event.body, ObserverHeartbeat):
                return replace(seen, blind=event.body.blind, time=event.time)
            return replace(seen, state=fold(seen.state, event), time=event.time)

        self._follower: Follower[_Observed[S]] = Follower(
            bus, _Observed(initial), folded, (_HEARTBEAT,), from_beginning=False
        )
        self._known: tuple[_Observed[S], int] | None = None
        self._head = -1
        self._age = _Age()

    async def read(self) -> tuple[S, int] | None:
        """Return the newest state and its version; None while it is unknown, incomplete or old. Raises BusError."""
        head = await self._bus.head("STATE")
        if self._known is None or self._head != head:
            try:
                self._known = await self._follower.latest()
            except StateLostError as error:
                self._known = None
                self._health.report("state", str(error))
                return None
            self._head = head
        seen, version = self._known
        problem = self._problem(seen, version)
        self._health.report("state", problem)
        return (seen.state, version) if problem is None else None

    def _problem(self, seen: _Observed[S], version: int) -> str | None:
        now, newest = self._clock.now(), (version, seen.time)
        if newest != self._age.of:
            # A process that has just started did not see the observation arrive: it takes the observer's word.
            self._age = _Age(newest, now if self._age.of is not None else seen.time)
        age = (now - self._age.since).total_seconds() if self._age.since is not None else 0.0
        self._metrics.state_age.set(max(0.0, age))
        self._metrics.blind_kinds.set(len(seen.blind))
        if age > self._max_age:
            return f"the cluster state is {age:.0f} s old, more than {self._max_age:.0f}: is the observer running?"
        if seen.blind:
            return f"the observer cannot see {', '.join(seen.blind)}"
        return None
