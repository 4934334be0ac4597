"""Publishing with an exact outcome.

The acknowledgement is never the last word. A lost reply, a conflict or "duplicate" is settled by reading the subject
back from the leader and looking for the event; that also finds an event whose message id the broker has forgotten.
An event counts as stored on its own subject only: message ids hold for a whole stream and can be guessed, rights hold
by subject. With `expected_last` its bytes must be the same, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from kinema_core.events import Event, subject_of
from kinema_core.runtime.bus import BusError, BusSetupError, BusUnavailableError, ConflictError
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.framing import HEADER_ID, HEADER_MESSAGE_ID, Framed, frame, header_id
from kinema_core.runtime.nats_connection import Ack, AmbiguousError, Connection, NoResponderError
from kinema_core.runtime.nats_reader import Raw, Reader
from kinema_core.runtime.topology import STREAMS, chunk_subject, stream_of

T = TypeVar("T")

TRIES: Final = 4
RACES: Final = 50
"""Each lost race was won by another writer: with few writers there are few."""
_PAUSE_SECONDS: Final = 0.25
EXPECTED_LAST: Final = "Nats-Expected-Last-Subject-Sequence"

register("publish-before", "publish-after-chunks", "publish-after")


class _RaceError(BusUnavailableError):
    """Others published on the subject between the look at it and the try."""


@dataclass
class _Message:
    """A message on its way, and how it will be recognized when read back."""

    stream: str
    subject: str
    headers: Mapping[str, str]
    payload: bytes
    id: str
    """The event's id as it stands in headers."""
    first: int
    """The subject's last sequence before the first try: the event can only be stored after it."""
    expected: int
    fixed: bool
    """Whether the caller asked for `expected`; else it follows what others publish."""

    def is_stored_as(self, raw: Raw) -> bool:
        """Return whether a message in the stream is this event.

        Raises:
            ConflictError: it has the event's id and other content, and the caller compares.
        """
        if raw.subject != self.subject or raw.headers.get(HEADER_ID) != self.id:
            return False
        if self.fixed and raw.data != self.payload:
            raise ConflictError(f"{self.subject}: message {raw.sequence} has the id {self.id} and other content")
        return True


class Publisher:
    """Publishes the events of one cluster.

    Every try is a compare-and-set on its subject. A broker of several servers that lost its majority keeps what it was
    sent, forgets the message id in time, and stores it when the majority is back: a retry without the comparison would
    then be stored beside it.
    """

    def __init__(self, connection: Connection, reader: Reader) -> None:
        self._connection = connection
        self._reader = reader

    async def publish(self, event: Event, expected_last: int | None) -> int:
        """Store an event once and return its sequence; see `Bus.publish`."""
        framed = frame(event)
        subject = subject_of(event)
        stream = STREAMS[stream_of(event.body.FAMILY)]
        before = await self._reader.last(stream, subject)
        last = before.sequence if before is not None else 0
        message = _Message(
            stream=stream,
            subject=subject,
            headers=framed.headers,
            payload=framed.payload,
            id=header_id(event),
            first=last if expected_last is None else min(last, expected_last),
            expected=last if expected_last is None else expected_last,
            fixed=expected_last is not None,
        )
        if before is not None and message.is_stored_as(before):
            return before.sequence
        if message.expected != last:
            return await self._lost(message)
        faultpoint("publish-before")
        await self._store_chunks(event, framed)
        faultpoint("publish-after-chunks")
        sequence = await self._store(message)
        faultpoint("publish-after")
        return sequence

    async def _lost(self, message: _Message) -> int:
        """Raise ConflictError, as another event came first, unless this one is among those that came."""
        found = await self._find(message)
        if found is not None:
            return found.sequence
        raise ConflictError(
            f"{message.subject}: the last sequence is not {message.expected}: another client published first"
        )

    async def _store_chunks(self, event: Event, framed: Framed) -> None:
        """Chunks are stored without a comparison: one that is there twice does no harm."""
        subject = chunk_subject(event.cluster, event.body.FAMILY, framed.digest)
        for chunk in framed.chunks:
            await self._again(partial(self._try, subject, chunk.headers, chunk.payload))

    async def _store(self, message: _Message) -> int:
        """Store the event's own message, whatever comes in between."""
        attempt = races = 0
        while True:
            try:
                headers = {**message.headers, EXPECTED_LAST: str(message.expected)}
                ack = await self._try(message.subject, headers, message.payload)
                if not ack.duplicate:
                    return ack.seq
                problem: BusError = BusUnavailableError(f"{message.subject}: taken for a duplicate, but not found")
                found = await self._duplicate_of(message, ack.seq)
                # Another message has this one's message id: the comparison with the last sequence suffices without it.
                message.headers = {k: v for k, v in message.headers.items() if k != HEADER_MESSAGE_ID}
            except (AmbiguousError, NoResponderError, ConflictError) as error:
                problem = await self._explain(error, message.stream)
                found = await self._again(partial(self._find, message))
            if found is not None:
                return found.sequence
            if isinstance(problem, ConflictError):
                problem = await self._after_conflict(message, problem)
                races += isinstance(problem, _RaceError)
                if isinstance(problem, _RaceError) and races <= RACES:
                    continue
            attempt += 1
            if isinstance(problem, ConflictError | BusSetupError) or attempt == TRIES:
                raise problem
            await self._pause(attempt)

    async def _after_conflict(self, message: _Message, problem: ConflictError) -> BusError:
        """Return what a conflict means when the event is not stored: others were quicker, or it is still on its way."""
        last = await self._reader.last(message.stream, message.subject)
        now = last.sequence if last is not None else 0
        if now == message.expected:
            return BusUnavailableError(f"{message.subject}: a publish is still on its way ({problem})")
        if message.fixed:
            return problem
        message.expected = now
        return _RaceError(f"{message.subject}: others keep publishing")

    async def _try(self, subject: str, headers: Mapping[str, str], payload: bytes) -> Ack:
        return await self._connection.store(subject, payload, f"publishing on {subject}", headers)

    async def _duplicate_of(self, message: _Message, sequence: int) -> Raw | None:
        found = await self._reader.from_leader(message.stream, {"seq": sequence})
        return found if found is not None and message.is_stored_as(found) else None

    async def _find(self, message: _Message) -> Raw | None:
        """Return the event if it was stored on its subject since the first try, read from the leader."""
        following = message.first + 1
        while True:
            query: dict[str, str | int] = {"seq": following, "next_by_subj": message.subject}
            raw = await self._reader.from_leader(message.stream, query)
            if raw is None or message.is_stored_as(raw):
                return raw
            following = raw.sequence + 1

    async def _again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call, tried again a few times for the connection or the leader to come back."""
        for attempt in range(1, TRIES):
            try:
                return await call()
            except BusUnavailableError:
                await self._pause(attempt)
        return await call()

    async def _explain(self, error: BusError, stream: str) -> BusError:
        """Distinguish a missing stream from one without a leader where no server answered."""
        if not isinstance(error, NoResponderError):
            return error
        try:
            await self._reader.extent(stream)
        except BusSetupError as setup:
            return setup
        except BusUnavailableError:
            pass  # no leader just now, which is what the first error says already
        return error

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
