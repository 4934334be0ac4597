"""The bus within one process: for tests, simulations and replays.

Promises what `bus.py` promises, like the one over the network: one contract suite runs on both.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final

from kinema_core.events import Event, EventsRestated, encode, kind_of_type, subject_of
from kinema_core.runtime.bus import (
    STREAM_OF_FAMILY,
    BusSetupError,
    BusUnavailableError,
    ConflictError,
    Damaged,
    Delivery,
    Extent,
    Lease,
    LeaseLostError,
    Stored,
    StreamName,
)
from kinema_core.runtime.framing import FramingError, check_subject, unframe
from kinema_core.runtime.restated import carried, with_restated
from kinema_core.runtime.topology import CONSUMES, STREAMS, kind_in, kinds_of, type_in, types_of

DEDUP_SECONDS: Final = 120.0
"""As the layout of a broker has it."""
DEFAULT_CONSUMERS: Mapping[str, tuple[str, ...]] = {name: kinds_of(bodies) for name, bodies in CONSUMES.items()}


@dataclass
class _Log:
    """One stream: its items in order, and where the ids and subjects are in it."""

    items: list[Stored | Damaged] = field(default_factory=list)
    sequences: dict[tuple[str, str], int] = field(default_factory=dict)
    """By subject and id of an event."""
    remembered: dict[tuple[str, str], float] = field(default_factory=dict)
    """Monotonic times until which message ids are remembered, of published events."""
    lasts: dict[str, int] = field(default_factory=dict)
    bound: int | None = None
    """Size above which the oldest items are dropped, as bytes of JSON."""
    bytes: int = 0
    head: int = 0
    """Sequence of the newest item that was stored."""

    @property
    def first(self) -> int:
        return self.items[0].sequence if self.items else self.head + 1

    def add(self, item: Stored | Damaged) -> None:
        if item.sequence <= self.head:
            message = f"sequence {item.sequence} comes after {self.head}: preload events in their order"
            raise ValueError(message)
        self.items.append(item)
        self.head = item.sequence
        self.bytes += _size(item)
        self.lasts[item.subject] = item.sequence
        if isinstance(item, Stored):
            self.sequences[item.subject, item.event.id] = item.sequence
        while self.bound is not None and self.bytes > self.bound:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self.items.pop(0)
        self.bytes -= _size(oldest)
        if self.lasts[oldest.subject] == oldest.sequence:
            del self.lasts[oldest.subject]
        if isinstance(oldest, Stored):
            self.sequences.pop((oldest.subject, oldest.id), None)

    def since(self, start: int) -> int:
        """Return the index of the first item with that sequence or a later one."""
        return bisect_left(self.items, start, key=attrgetter("sequence"))


def _is_wanted(item: Stored | Damaged, *, start: int, end: int, types: frozenset[str]) -> bool:
    return start <= item.sequence <= end and (not types or type_in(item.subject) in types)


def _size(item: Stored | Damaged) -> int:
    return item.size if isinstance(item, Stored) else len(item.data)


@dataclass
class _Consumer:
    """A durable consumer: what it has settled, and what is out for handling until when."""

    types: frozenset[str]
    settled: int = 0
    out: int = 0
    attempt: int = 0
    due: float = 0.0
    """Monotonic time at which the item that is out is delivered again."""


class MemoryDelivery:
    """One item handed to a durable consumer."""

    def __init__(self, bus: MemoryBus, consumer: _Consumer, item: Stored | Damaged) -> None:
        self._bus = bus
        self._consumer = consumer
        self._item = item
        self._attempt = consumer.attempt

    @property
    def item(self) -> Stored | Damaged:
        """Delivered item."""
        return self._item

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        return self._attempt

    @property
    def pending(self) -> int:
        """How many more items the consumer has yet to be handed."""
        return self._bus.waiting(self._consumer, self._item.sequence)

    async def ack(self) -> None:
        """Settle it: never deliver it again. Also counts when it was delivered again since."""
        self._bus.check_open()
        if self._consumer.out == self._item.sequence:
            self._consumer.out = self._consumer.attempt = 0
        self._consumer.settled = max(self._consumer.settled, self._item.sequence)
        self._bus.pulse()

    async def nak(self, delay: float) -> None:
        """Return it: deliver it again after `delay` real seconds."""
        self._extend(delay)

    async def term(self) -> None:
        """Never deliver it again, though it was not handled."""
        await self.ack()

    async def in_progress(self) -> None:
        """Extend it: do not redeliver it yet."""
        self._extend(self._bus.ack_wait)

    def _extend(self, seconds: float) -> None:
        self._bus.check_open()
        if self._consumer.out == self._item.sequence:
            self._consumer.due = self._bus.monotonic() + seconds
            self._bus.pulse()


@dataclass
class _Held:
    revision: int
    until: float


class MemoryLease:
    """A lease held on a memory bus."""

    def __init__(self, bus: MemoryBus, name: str, held: _Held, ttl: float) -> None:
        self._bus = bus
        self._name = name
        self._held = held
        self._ttl = ttl
        self._renewed = bus.monotonic()

    @property
    def revision(self) -> int:
        """Fencing token of this holder."""
        return self._held.revision

    def left(self) -> float:
        """Real seconds for which acting under it is still safe."""
        return self._ttl * 2 / 3 - (self._bus.monotonic() - self._renewed)

    async def renew(self) -> None:
        """Extend it; raises LeaseLostError when it expired or another process holds it."""
        self._bus.check_open()
        self._bus.renew(self._name, self._held, self._ttl)
        self._renewed = self._bus.monotonic()

    async def release(self) -> None:
        """Give it up at once."""
        self._bus.release(self._name, self._held)
        self._renewed = float("-inf")


class MemoryBus:
    """All streams, consumers and leases in memory.

    Args:
        consumers: kinds that each durable consumer gets; None: those of the services.
        ack_wait: real seconds after which an unsettled delivery is made again.
        dedup_seconds: how long message ids are remembered.
        log_bytes: size above which LOG drops its oldest events; None: it keeps all.
        monotonic: the clock of leases, redeliveries and message ids.
    """

    def __init__(
        self,
        *,
        consumers: Mapping[str, tuple[str, ...]] | None = None,
        ack_wait: float = 10.0,
        dedup_seconds: float = DEDUP_SECONDS,
        log_bytes: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        chosen = DEFAULT_CONSUMERS if consumers is None else consumers
        self._logs: dict[StreamName, _Log] = {name: _Log() for name in STREAMS}
        self._logs["LOG"].bound = log_bytes
        self._consumers = {name: _Consumer(types_of(kinds)) for name, kinds in chosen.items()}
        self._leases: dict[str, _Held] = {}
        self._revision = 0
        self._changed = asyncio.Event()
        self._open = True
        self._reachable = True
        self.ack_wait = ack_wait
        self.dedup_seconds = dedup_seconds
        self.monotonic = monotonic

    # --- what the protocol promises

    async def publish(self, event: Event, *, expected_last: int | None = None) -> int:
        """Store an event and return its sequence; storing the same id again returns the first one's sequence."""
        self.check_open()
        log = self._logs[STREAM_OF_FAMILY[event.body.FAMILY]]
        size = len(encode(event))
        subject = subject_of(event)
        last = log.lasts.get(subject, 0)
        known = log.sequences.get((subject, event.id))
        if known is not None and self._recognizes(log, event, known, expected_last):
            return known
        if expected_last is not None and last != expected_last:
            message = f"{subject}: last sequence is {last}, expected {expected_last}"
            raise ConflictError(message)
        log.remembered[subject, event.id] = self.monotonic() + self.dedup_seconds
        return self._store(STREAM_OF_FAMILY[event.body.FAMILY], log.head + 1, event, size)

    def _recognizes(self, log: _Log, event: Event, known: int, expected_last: int | None) -> bool:
        """Return whether the event with this id, stored at `known`, is found as a broker would find it."""
        subject = subject_of(event)
        last = log.lasts[subject]
        if known != last:
            if expected_last in {None, last}:
                if log.remembered.get((subject, event.id), 0.0) <= self.monotonic():
                    return False
            elif known <= expected_last:
                return False
        stored = log.items[log.since(known)]
        if expected_last is not None and isinstance(stored, Stored) and stored.event != event:
            message = f"{subject}: message {known} has the id {event.id} and other content"
            raise ConflictError(message)
        return True

    async def read(
        self, stream: StreamName, *, start: int = 1, end: int | None = None, kinds: tuple[str, ...] = ()
    ) -> AsyncIterator[Stored | Damaged]:
        """See `Bus`."""
        self.check_open()
        self.check_open()
        log = self._logs[stream]
        restated = self._restated() if start < log.first and stream == "LOG" else ()
        wanted = partial(_is_wanted, start=start, end=log.head if end is None else end, types=types_of(kinds))
        async for item in with_restated(filter(wanted, restated), self._items(log.items[log.since(start) :])):
            if wanted(item):
                yield item

    async def _items(self, items: Iterable[Stored | Damaged]) -> AsyncIterator[Stored | Damaged]:
        for item in items:
            self.check_open()
            yield item

    def _restated(self) -> tuple[Stored, ...]:
        return carried(self._last("LOG", kind_of_type(EventsRestated.TYPE)))

    async def head(self, stream: StreamName) -> int:
        """The stream's last sequence, 0 when it is empty."""
        self.check_open()
        return self._logs[stream].head

    async def extent(self, stream: StreamName) -> Extent:
        """See `Bus`."""
        self.check_open()
        log = self._logs[stream]
        return Extent(first=log.first, last=log.head, filled=log.bytes / log.bound if log.bound else 0.0)

    async def last(self, stream: StreamName, kind: str) -> Stored | Damaged | None:
        """The newest event of a kind."""
        self.check_open()
        found = self._last(stream, kind)
        if found is not None or stream != "LOG":
            return found
        return next((item for item in reversed(self._restated()) if kind_in(item.subject) == kind), None)

    def _last(self, stream: StreamName, kind: str) -> Stored | Damaged | None:
        types = types_of((kind,))
        return next((item for item in reversed(self._logs[stream].items) if type_in(item.subject) in types), None)

    async def deliveries(self, durable: str) -> AsyncIterator[Delivery]:
        """Yield deliveries of a durable consumer on LOG until the bus is closed."""
        consumer = self._consumer(durable)
        while self._open:
            item = self._due(consumer)
            if item is not None:
                yield MemoryDelivery(self, consumer, item)
                continue
            wait = consumer.due - self.monotonic() if consumer.out else None
            changed = self._changed
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes together with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await changed.wait()

    def waiting(self, consumer: _Consumer, after: int) -> int:
        """Count the items after a sequence that a consumer is to be handed."""
        return sum(
            item.sequence > after and type_in(item.subject) in consumer.types for item in self._logs["LOG"].items
        )

    async def position(self, durable: str) -> int:
        """Sequence up to which the durable consumer has settled everything."""
        self.check_open()
        return self._consumer(durable).settled

    async def acquire(self, name: str, ttl: float) -> Lease | None:
        """Take the lease `name` for `ttl` real seconds, or None while another process holds it."""
        self.check_open()
        held = self._leases.get(name)
        if held is not None and held.until > self.monotonic():
            return None
        self._revision += 1
        held = self._leases[name] = _Held(revision=self._revision, until=self.monotonic() + ttl)
        return MemoryLease(self, name, held, ttl)

    async def identity(self) -> str:
        """A name of these streams that no others in this process have."""
        return f"memory/{id(self)}"

    def connected(self) -> bool:
        """Return whether the bus is open and was not cut off."""
        return self._open and self._reachable

    async def close(self) -> None:
        """Stop deliveries."""
        self._open = False
        self.pulse()

    # --- for simulations, replays and tests

    def preload(self, stream: StreamName, events: Iterable[tuple[int, Event]]) -> None:
        """Put recorded events at their recorded sequences, in rising order."""
        for sequence, event in events:
            self._store(stream, sequence, event, len(encode(event)))

    def inject(self, stream: StreamName, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> int:
        """Store a message as any client might have sent it, sound or not; return its sequence."""
        log = self._logs[stream]
        sequence = log.head + 1
        try:
            event, size = unframe(headers or {}, data)
            check_subject(event, subject)
        except FramingError as error:
            log.add(Damaged(stream, sequence, subject, error.reason, error.detail, data))
        else:
            log.add(Stored(stream, sequence, subject, event, size))
        self.pulse()
        return sequence

    def damage(self, stream: StreamName, sequence: int, reason: str = "bad-digest", detail: str = "damaged") -> None:
        """Turn a stored event into a damaged one."""
        log = self._logs[stream]
        index = log.since(sequence)
        old = log.items[index]
        data = encode(old.event) if isinstance(old, Stored) else old.data
        log.items[index] = Damaged(stream, sequence, old.subject, reason, detail, data)

    def wipe(self, stream: StreamName) -> None:
        """Lose a stream and begin it again at sequence 1."""
        self._logs[stream] = _Log(bound=self._logs[stream].bound)
        if stream == "LOG":
            for consumer in self._consumers.values():
                consumer.settled = consumer.out = consumer.attempt = 0

    def cut(self, *, reachable: bool = False) -> None:
        """Make every call fail as if the broker could not be reached, or end that."""
        self._reachable = reachable
        self.pulse()

    def events(self, stream: StreamName) -> tuple[Event, ...]:
        """All sound events of a stream."""
        return tuple(item.event for item in self._logs[stream].items if isinstance(item, Stored))

    # --- for deliveries and leases

    def check_open(self) -> None:
        """Refuse to work when closed or cut off."""
        if not self._open:
            message = "the bus is closed"
            raise BusUnavailableError(message)
        if not self._reachable:
            message = "the bus cannot be reached"
            raise BusUnavailableError(message)

    def pulse(self) -> None:
        """Wake all tasks that wait for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def renew(self, name: str, held: _Held, ttl: float) -> None:
        """Extend a lease that is still held."""
        if self._leases.get(name) is not held or held.until <= self.monotonic():
            message = f"lease {name!r} of revision {held.revision} has expired or was taken over"
            raise LeaseLostError(message)
        held.until = self.monotonic() + ttl

    def release(self, name: str, held: _Held) -> None:
        """Release a lease, unless another process has it by now."""
        if self._leases.get(name) is held:
            del self._leases[name]

    def _store(self, stream: StreamName, sequence: int, event: Event, size: int) -> int:
        self._logs[stream].add(Stored(stream, sequence, subject_of(event), event, size))
        self.pulse()
        return sequence

    def _consumer(self, durable: str) -> _Consumer:
        self.check_open()
        consumer = self._consumers.get(durable)
        if consumer is None:
            message = f"consumer {durable!r} does not exist on LOG: create it first"
            raise BusSetupError(message)
        return consumer

    def _due(self, consumer: _Consumer) -> Stored | Damaged | None:
        """The item to deliver now, if any; notes that it is out."""
        if not self._reachable or (consumer.out and self.monotonic() < consumer.due):
            return None
        log = self._logs["LOG"]
        for item in log.items[log.since(consumer.out or consumer.settled + 1) :]:
            if type_in(item.subject) in consumer.types:
                consumer.attempt = consumer.attempt + 1 if consumer.out == item.sequence else 1
                consumer.out = item.sequence
                consumer.due = self.monotonic() + self.ack_wait
                return item
        return None
