"""The bus between the services: what it promises, for any implementation.

Two streams hold all events: `STATE` (family state) and `LOG` (families plan, exec, control: one total order, so that a
replay sees what every service saw). `DLQ` keeps what could not be handled. Positions are stream sequences, from 1.

* Publishing an event again stores nothing and succeeds, by its id: as long as it is the newest of its subject, or the
  broker remembers message ids (`Layout.dedup_seconds`). An ambiguous publish (time-out, lost reply) is settled by
  reading the stream back, never by trusting the acknowledgement.
* An event lies on its own subject (`subject_of`), or it is `Damaged`: the broker grants rights by subject.
* LOG drops its oldest events above its size. Those that are in force are stated again before (`restated.py`); reading
  LOG gives each of them at its sequence, as if it was never dropped.
* Deliveries of a durable consumer are at least once and in order, one at a time.
* Reading (`read`, `head`, `last`) needs no consumer, changes nothing and sees everything acknowledged before the call.
* Bodies above 32 KiB are compressed; above 512 KiB they are cut into chunks with a manifest last. Readers get whole
  events only; a missing chunk or a wrong digest is a `Damaged` item, never a silent gap.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from kinema_core.events import Event

StreamName: TypeAlias = Literal["STATE", "LOG", "DLQ", "USAGE"]
STREAM_OF_FAMILY: dict[str, StreamName] = {
    "state": "STATE",
    "usage": "USAGE",
    "plan": "LOG",
    "exec": "LOG",
    "control": "LOG",
    "dlq": "DLQ",
}


class BusError(Exception):
    """Root of the bus's errors.

    BusError
    ├── BusUnavailableError   the broker cannot be reached or does not answer: try again later
    ├── BusDeniedError        wrong credentials, or a right is missing: a person must act
    ├── BusSetupError         a stream or consumer is missing, or refuses what is published: a person must act
    ├── StreamResetError      the stream is not the one read so far: begin again
    ├── ConflictError         compare-and-set lost: another client wrote first
    └── LeaseLostError        the lease is lost: stop acting at once
    """


class BusUnavailableError(BusError):
    """The broker cannot be reached or does not answer."""


class BusDeniedError(BusError):
    """The broker refuses these credentials, or this user lacks a right."""


class BusSetupError(BusError):
    """A stream, bucket or consumer does not exist, or cannot store what services publish."""


class StreamResetError(BusError):
    """The stream was lost or created again: what was remembered of it does not hold any more."""


class ConflictError(BusError):
    """The subject's last sequence is not the expected one."""


class LeaseLostError(BusError):
    """The lease has expired or another process holds it."""


@dataclass(frozen=True)
class Extent:
    """What a stream holds of all that was stored in it."""

    first: int
    """Sequence of the oldest message; one more than the last where there is none."""
    last: int
    """Sequence of the newest message, also of one that was dropped; 0 before any."""
    filled: float
    """Share of its size that is used; 0 where it has no bound."""
    max_age_seconds: float | None = None
    """Age at which it drops messages; None where it drops none by age."""


@dataclass(frozen=True)
class Stored:
    """An event with its place in the stream."""

    stream: StreamName
    sequence: int
    subject: str
    event: Event
    size: int
    """Bytes of the event as JSON, uncompressed."""

    @property
    def id(self) -> str:
        """The event's id."""
        return self.event.id


@dataclass(frozen=True)
class Damaged:
    """A message that is no whole event: its place, a reason code, details, and its bytes as stored."""

    stream: StreamName
    sequence: int
    subject: str
    reason: str
    """`bad-json`, `bad-envelope`, `unknown-type`, `bad-body`, `bad-digest`, `missing-chunk`, `bad-encoding` or
    `wrong-subject`."""
    detail: str
    data: bytes

    @property
    def id(self) -> str:
        """Nothing: the event cannot be read."""
        return ""


class Delivery(Protocol):
    """One message handed to a durable consumer, to be settled exactly once."""

    @property
    def item(self) -> Stored | Damaged:
        """Return what was delivered."""

    @property
    def attempt(self) -> int:
        """1 for the first delivery."""

    @property
    def pending(self) -> int:
        """Return how many more messages the consumer has yet to be handed."""

    async def ack(self) -> None:
        """Settle it: never deliver it again."""

    async def nak(self, delay: float) -> None:
        """Return it: deliver it again after `delay` real seconds."""

    async def term(self) -> None:
        """Never deliver it again, though it was not handled."""

    async def in_progress(self) -> None:
        """Extend it: do not redeliver it yet."""


class Lease(Protocol):
    """A lease that this process holds. `revision` is the fencing token: it grows with each holder, for ever."""

    @property
    def revision(self) -> int:
        """Fencing token of this holder."""

    def left(self) -> float:
        """Real seconds for which acting under it is still safe (2/3 of its time to live since the last renewal)."""

    async def renew(self) -> None:
        """Extend it; raises LeaseLostError when another process holds it."""

    async def release(self) -> None:
        """Release it at once."""


class Bus(Protocol):
    """A connection to the streams of one cluster's pipeline."""

    async def publish(self, event: Event, *, expected_last: int | None = None) -> int:
        """Store an event and return its sequence; storing the same id again returns the first one's sequence.

        With `expected_last`, store only if the last sequence of the event's own subject is that one (0: none yet).

        Raises:
            ConflictError: with `expected_last`, another event came first, or has the same id and other content.
            BusUnavailableError, BusDeniedError, BusSetupError.
        """

    def read(
        self, stream: StreamName, *, start: int = 1, end: int | None = None, kinds: tuple[str, ...] = ()
    ) -> AsyncIterator[Stored | Damaged]:
        """Everything stored from sequence `start` on to `end`, else to the present head, in order; then end.

        `kinds` restricts to these kinds of events (`cluster-delta`, …). Chunk messages are not seen by the caller.
        """

    async def head(self, stream: StreamName) -> int:
        """Return the stream's last sequence, 0 when it is empty."""

    async def extent(self, stream: StreamName) -> Extent:
        """Return which messages the stream holds, and how full it is."""

    async def last(self, stream: StreamName, kind: str) -> Stored | Damaged | None:
        """Return the newest event of a kind."""

    def deliveries(self, durable: str) -> AsyncIterator[Delivery]:
        """Yield deliveries of a durable consumer on LOG until the bus is closed.

        Raises:
            BusSetupError: the consumer does not exist. BusDeniedError.
        """

    async def position(self, durable: str) -> int:
        """Sequence up to which the durable consumer has settled everything."""

    async def acquire(self, name: str, ttl: float) -> Lease | None:
        """Take the lease `name` for `ttl` real seconds, or None while another process holds it."""

    async def identity(self) -> str:
        """Return a name of these streams that no others have, the same as long as they exist."""

    def connected(self) -> bool:
        """Return whether the broker can be reached just now."""

    async def close(self) -> None:
        """Stop deliveries and disconnect."""
