"""The loop that makes a stage a service.

Rebuilds what the stage remembers from the LOG, then handles one delivered event after the other: recall, fold the
state that it wants, handle, publish, acknowledge. Killed at any point, it goes on where it was, and what it had
published already is not published again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from hashlib import sha256
from typing import Final, Generic, TypeVar

import structlog

from kinema_core.events import DeadLetter, Event, encode, kind_of_type, untoken
from kinema_core.runtime.bus import Bus, BusError, BusUnavailableError, Damaged, Delivery, Stored, StreamResetError
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.follow import Follower, StateLostError
from kinema_core.runtime.health import Health
from kinema_core.runtime.memory import Memory
from kinema_core.runtime.past import PastFollower
from kinema_core.runtime.stage import AtVersion, Latest, Moment, NoState, Stage
from kinema_core.runtime.topology import kind_in

S = TypeVar("S")
R = TypeVar("R")

MAX_ATTEMPTS: Final = 5
"""After so many failures an event is dropped, with a copy in DLQ."""
_BEAT_SECONDS: Final = 3.0
"""A third of the time after which the broker delivers again."""
_LAPSE_SECONDS: Final = 8.0
"""After so long without a sign from this process, another one may have the delivery."""
_DATA_BYTES: Final = 64 * 1024
_RECENT: Final = 256
_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)

register("serve-before-handle", "serve-after-handle", "serve-between-answers", "serve-before-ack", "serve-after-ack")

_LOG = structlog.get_logger()


async def serve(stage: Stage[S], bus: Bus, clock: Clock, health: Health, *, stale_seconds: float | None = None) -> None:
    """Run a stage until canceled, or until the bus is closed. Any number of processes may run the same stage.

    Args:
        stage: what answers.
        bus: the broker.
        clock: the cluster's time.
        health: gets metrics and problems.
        stale_seconds: an event that is older when it is delivered is dropped at once, with a copy in DLQ.

    Raises:
        BusDeniedError, BusSetupError: a person must act. An unreachable broker is waited for.
        StreamResetError: what the stage remembers does not hold any more; a new process begins with what there is.
    """
    await _Loop(stage, bus, clock, health, stale_seconds).run()


async def retry_until_available(call: Callable[[], Awaitable[R]]) -> R:
    """Return the result of a call to the bus, tried again for as long as the broker cannot be reached."""
    tries = 0
    while True:
        try:
            return await call()
        except BusUnavailableError as error:
            pause = _PAUSES[min(tries, len(_PAUSES) - 1)]
            if tries % 10 == 0:
                _LOG.warning("broker unreachable", error=str(error), tries=tries)
            tries += 1
            await asyncio.sleep(pause)


class _Loop(Generic[S]):
    def __init__(self, stage: Stage[S], bus: Bus, clock: Clock, health: Health, stale_seconds: float | None) -> None:
        self._stage = stage
        self._bus = bus
        self._clock = clock
        self._health = health
        self._follower: Follower[S] = Follower(bus, stage.initial(), stage.fold, stage.folds)
        self._past = PastFollower(bus, stage.past) if stage.past is not None else None
        self._memory = Memory(stage.name, bus, stage.recall, stage.consumes)
        self._stale_seconds = stale_seconds
        self._beat = Beat()
        self._settled = 0
        """Sequence of the last delivery that was settled by this process."""
        self._recent: dict[int, str] = {}
        """Ids of the last deliveries settled, by sequence."""

    async def run(self) -> None:
        name = self._stage.name
        position = await retry_until_available(lambda: self._bus.position(name))
        await retry_until_available(lambda: self._memory.rebuild(position))
        self._settled = position
        self._health.started()
        _LOG.info("started", position=position, recalled=self._memory.recalled)
        deliveries = self._bus.deliveries(name)
        async with AsyncExitStack() as stack:
            if isinstance(deliveries, AsyncGenerator):
                stack.push_async_callback(deliveries.aclose)
            async for delivery in deliveries:
                await self._deal_with(delivery)

    async def _deal_with(self, delivery: Delivery) -> None:
        """Settle one delivery in one way or another; on cancellation it is given back at once."""
        self._beat = Beat()
        beating = asyncio.create_task(self._beat.keep(delivery))
        try:
            await self._settle(delivery)
        except asyncio.CancelledError:
            with suppress(BusError, TimeoutError):
                async with asyncio.timeout(1):
                    await delivery.nak(0)
            raise
        finally:
            beating.cancel()

    async def _settle(self, delivery: Delivery) -> None:
        item = delivery.item
        if item.sequence <= self._settled:
            # Handled before, and the broker has missed the acknowledgement; or the stream was created again.
            if item.id != self._recent.get(item.sequence):
                raise StreamResetError(f"LOG goes back to sequence {item.sequence}: starting over")
            await _confirm(delivery.ack)
            return
        begun = time.monotonic()
        if isinstance(item, Damaged):
            await self._give_up(delivery, item.reason, item.detail)
            outcome = "dead-letter"
        else:
            await retry_until_available(lambda: self._memory.catch_up(item.sequence - 1))
            self._memory.recall(item)
            about: dict[str, str | int] = {"event": item.event.id, "iteration": item.event.iteration}
            about["attempt"] = delivery.attempt
            name = f"{self._stage.name} {kind_in(item.subject)}"
            with self._health.spans.of(name, item.event.traceparent, about) as span:
                outcome = span["outcome"] = await self._attempt(delivery, item, begun)
        self._health.metrics.handled(kind_in(item.subject), outcome, time.monotonic() - begun)
        if outcome != "failed":
            self._settled = item.sequence
            self._recent[item.sequence] = item.id
            if len(self._recent) > _RECENT:
                del self._recent[min(self._recent)]
            if isinstance(item, Stored):
                self._memory.forget(item.event.id)

    async def _attempt(self, delivery: Delivery, item: Stored, begun: float) -> str:
        """Handle the event once and settle its delivery; gives the outcome."""
        event = item.event
        self._health.metrics.pending.set(delivery.pending)
        log = _LOG.bind(event_id=event.id, kind=kind_of_type(event.type), seq=item.sequence, attempt=delivery.attempt)
        if delivery.attempt > MAX_ATTEMPTS:
            await self._give_up(delivery, "handler-died", f"the process died {delivery.attempt - 1} times handling it")
            log.error("dropped", reason="handler-died")
            return "dead-letter"
        age = (self._clock.now() - event.time).total_seconds()
        if self._stale_seconds is not None and age > self._stale_seconds:
            await self._give_up(delivery, "stale", f"{age:.0f} s old, more than {self._stale_seconds:.0f}")
            log.warning("dropped", reason="stale", age=round(age, 3))
            return "dead-letter"
        try:
            if delivery.attempt > 1:  # another process may have answered it and ended
                await retry_until_available(self._memory.find_answers)
            answers = await self._handle(event)
        except BusError:
            raise
        except Exception as error:  # noqa: BLE001 - a stage that fails on one event must not stop the others
            return await self._failed(delivery, error, log)
        await _confirm(delivery.ack)
        faultpoint("serve-after-ack")
        lag = (self._clock.now() - event.time).total_seconds()
        self._health.metrics.lag.set(lag)
        log.info(
            "handled",
            iteration=event.iteration,
            trace_id=event.traceparent.split("-")[1] if event.traceparent.count("-") == 3 else "",
            answers=[kind_of_type(given.type) for given in answers],
            state=answers[0].state if answers else 0,
            seconds=round(time.monotonic() - begun, 4),
            lag=round(lag, 3),
        )
        return "answered" if answers else "nothing"

    async def _failed(self, delivery: Delivery, error: Exception, log: structlog.typing.FilteringBoundLogger) -> str:
        reason = "state-lost" if isinstance(error, StateLostError) else "handler-failed"
        # The text of a lost state says it all; a bug needs its traceback.
        trace = None if isinstance(error, StateLostError) else error
        if delivery.attempt < MAX_ATTEMPTS:
            log.warning("failed", reason=reason, error=str(error), exc_info=trace)
            await _confirm(lambda: delivery.nak(_PAUSES[min(delivery.attempt, len(_PAUSES)) - 1]))
            return "failed"
        log.error("dropped", reason=reason, error=str(error), exc_info=trace)
        await self._give_up(delivery, reason, f"{type(error).__name__}: {error}")
        return "dead-letter"

    async def _handle(self, event: Event) -> list[Event]:
        """Let the stage answer and publish what it says; gives all answers, those published before included."""
        before = await retry_until_available(lambda: self._memory.answers_to(event.id))
        now = before[0].time if before else self._clock.now()
        state, version = await self._state_for(event, before)
        faultpoint("serve-before-handle")
        moment = Moment(now=now, past=await self._past_for(event), recorded=before[0].body if before else None)
        bodies = await self._stage.handle(event, state, moment)
        faultpoint("serve-after-handle")
        answers: list[Event] = []
        for n, body in enumerate(bodies):
            given = answer(body, cause=event, service=self._stage.name, n=n, now=now, state=version)
            answers.append(await self._publish(given, before))
            faultpoint("serve-between-answers")
        faultpoint("serve-before-ack")
        return answers

    async def _publish(self, given: Event, before: list[Event]) -> Event:
        """Publish an answer unless it was published before, and recall it; gives the one that is stored."""
        if self._beat.lapsed():
            before = await self._answers_of_all(given.cause)
        stored = _named(given.id, before)
        if stored is None:
            sequence = await retry_until_available(lambda: self._bus.publish(given))
            self._health.metrics.published(given.body)
            if self._beat.lapsed():  # while the broker was away, another process may have answered under this id
                stored = _named(given.id, await self._answers_of_all(given.cause))
            else:
                self._memory.note(sequence, given)
        self._memory.recall_answer(stored or given)
        return stored or given

    async def _answers_of_all(self, cause: str) -> list[Event]:
        """Return the answers to an event that any process of this service has stored by now."""
        await retry_until_available(self._memory.find_answers)
        return await retry_until_available(lambda: self._memory.answers_to(cause))

    async def _state_for(self, event: Event, before: list[Event]) -> tuple[S | None, int]:
        want = self._stage.wants(event)
        match want:
            case NoState():
                return None, 0
            case AtVersion(version):
                return await retry_until_available(lambda: self._follower.at(version)), version
            case Latest():
                if before:
                    return await retry_until_available(lambda: self._follower.at(before[0].state)), before[0].state
                return await retry_until_available(self._follower.latest)

    async def _past_for(self, event: Event) -> object:
        past, follower = self._stage.past, self._past
        if past is None or follower is None:
            return None
        until = past.until(event)
        return past.initial if until is None else await retry_until_available(lambda: follower.until(until))

    async def _give_up(self, delivery: Delivery, reason: str, detail: str) -> None:
        """Copy the event to DLQ and have it never delivered again."""
        letter = dead_letter(self._stage.name, delivery.item, reason=reason, detail=detail, now=self._clock.now())
        await retry_until_available(lambda: self._bus.publish(letter))
        self._health.metrics.dead_letter(reason)
        await _confirm(delivery.term)


def _named(name: str, events: list[Event]) -> Event | None:
    """Return the event with this id, None without one."""
    return next((event for event in events if event.id == name), None)


def dead_letter(service: str, item: Stored | Damaged, *, reason: str, detail: str, now: datetime) -> Event:
    """Return the event that records that a service dropped a message, with its first 64 KiB."""
    data = encode(item.event) if isinstance(item, Stored) else item.data
    body = DeadLetter(
        service=service,
        stream=item.stream,
        sequence=item.sequence,
        subject=item.subject,
        reason=reason,
        detail=detail,
        data=data[:_DATA_BYTES],
    )
    if isinstance(item, Stored):
        return answer(body, cause=item.event, service=service, n="dead", now=now, state=0)
    # A stream that begins again counts from 1: the bytes distinguish one dead letter from the other.
    id_ = f"{item.stream}/{item.sequence}/{sha256(data).hexdigest()[:16]}/{service}/dead"
    return origin(body, id_=id_, cluster=untoken(item.subject.split(".")[2]), iteration="", now=now)


class Beat:
    """Signs to the broker that a delivery is being handled, and whether they came in time."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._late = False

    def lapsed(self) -> bool:
        """Return whether signs were missing for so long that the delivery may have been made to another process."""
        self._late = self._late or time.monotonic() - self._last > _LAPSE_SECONDS
        return self._late

    async def keep(self, delivery: Delivery) -> None:
        """Give signs until canceled."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            try:
                await delivery.in_progress()
            except BusUnavailableError:
                continue  # said again at the next beat; too late means that the event is delivered once more
            self.lapsed()
            self._last = time.monotonic()


async def _confirm(settle: Callable[[], Awaitable[None]]) -> None:
    """Settle a delivery, once: if the broker misses it, it delivers again, and that is recognized."""
    try:
        await settle()
    except BusUnavailableError as error:
        _LOG.warning("delivery not settled", error=str(error))
