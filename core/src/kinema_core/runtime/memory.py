"""Memory of a stage about the LOG: rebuilt at start, kept up to date before every event.

A stage recalls the LOG as it is stored, but its own answers right after what they answer. An answer is stored some time
after the event that it answers, and others may come in between. Live, a stage knows its answer as soon as it has given
it; a restart and a replay must remember in that same order. So must a process beside another one of the same service:
the broker hands each event to one of them, and before it hands the next one over, the answer to the last is stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import structlog

from kinema_core.events import Event
from kinema_core.runtime.bus import Bus, Damaged, Stored, StreamResetError
from kinema_core.runtime.follow import SMALL_BYTES, Anchor
from kinema_core.runtime.topology import CONSUMES, PUBLISHES, kind_in, kinds_of

_LOG = structlog.get_logger()


def is_answer_of(event: Event, service: str) -> bool:
    """Return whether a service gave this event as an answer to another."""
    return bool(event.cause) and event.id.startswith(f"{event.cause}/{service}/")


def in_order(events: Iterable[Event], service: str) -> Iterator[Event]:
    """Yield a recorded LOG in the order in which the service's stage recalled it."""
    others: list[Event] = []
    answers: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if is_answer_of(event, service):
            answers[event.cause].append(event)
        else:
            others.append(event)
    for event in others:
        yield event
        yield from answers.get(event.id, ())


@dataclass(frozen=True)
class _Given:
    """An answer of this service in the LOG."""

    sequence: int
    event: Event | None


class Memory:
    """Feeds a stage's `recall` and knows which answers it has given already."""

    def __init__(self, service: str, bus: Bus, recall: Callable[[Event], None], kinds: tuple[str, ...]) -> None:
        """`kinds` are those that the stage wants to see: others, large plans above all, are not decoded for nothing."""
        self._service = service
        self._kinds = kinds
        self._bus = bus
        self._recall = recall
        self._given: dict[str, list[_Given]] = {}
        """Answers by the id of their cause, until the cause is settled."""
        self._delivered = frozenset(kinds_of(CONSUMES.get(service, ())))
        self._searched = 0
        """Sequence up to which answers were looked for."""
        self._answers_recalled: set[str] = set()
        """Ids of the answers recalled since the last event that is no answer."""
        self.recalled = 0
        """Sequence of the last event that was recalled."""
        self._anchor = Anchor()

    async def rebuild(self, position: int) -> None:
        """Recall everything up to a sequence, and find all answers given; may be repeated after an error."""
        self._given.clear()
        self._searched = 0
        await self.find_answers()
        await self.catch_up(position)

    async def find_answers(self) -> None:
        """Find the answers of this service that were stored since the last search, by any of its processes."""
        published = kinds_of(PUBLISHES.get(self._service, ()))
        async for item in self._bus.read("LOG", start=self._searched + 1, kinds=published):
            self._searched = item.sequence
            if isinstance(item, Stored) and is_answer_of(item.event, self._service):
                # Larger ones are read again when their turn comes.
                kept = item.event if item.size <= SMALL_BYTES else None
                known = self._given.setdefault(item.event.cause, [])
                if all(given.sequence != item.sequence for given in known):
                    known.append(_Given(item.sequence, kept))

    async def catch_up(self, end: int) -> None:
        """Recall everything up to a sequence that was not recalled yet."""
        if end <= self.recalled:
            return
        if not await self._anchor.holds(self._bus, if_gone=True):
            raise StreamResetError(f"LOG is not the stream it was at sequence {self._anchor.sequence}: starting over")
        searched = False
        async for item in self._bus.read("LOG", start=self.recalled + 1, end=end, kinds=self._kinds):
            if not searched and kind_in(item.subject) in self._delivered:
                # Not delivered to this process: another one has answered it.
                await self.find_answers()
                searched = True
            answers = await self.answers_to(item.event.id) if isinstance(item, Stored) else []
            self.recall(item)
            for given in answers:
                self.recall_answer(given)
            if isinstance(item, Stored):
                self.forget(item.event.id)

    def recall(self, item: Stored | Damaged) -> None:
        """Have the stage recall an event, once, unless it is an answer of its own."""
        if item.sequence <= self.recalled:
            return
        self.recalled = item.sequence
        self._anchor.note(item)
        if isinstance(item, Damaged):
            _LOG.warning("damaged event not recalled", seq=item.sequence, reason=item.reason, detail=item.detail)
        elif not is_answer_of(item.event, self._service):
            self._answers_recalled.clear()
            self._call(item.event)

    def recall_answer(self, event: Event) -> None:
        """Have the stage recall an answer of its own, once."""
        if event.id not in self._answers_recalled:
            self._answers_recalled.add(event.id)
            self._call(event)

    async def answers_to(self, cause: str) -> list[Event]:
        """Answers that were given to an event before, as they are stored."""
        found: list[Event] = []
        for given in self._given.get(cause, []):
            event = given.event or await self._stored(given.sequence)
            if event is not None:
                found.append(event)
        return found

    def note(self, sequence: int, event: Event) -> None:
        """Note an answer just given: it counts as given if its event is delivered again."""
        self._given.setdefault(event.cause, []).append(_Given(sequence, event))

    def forget(self, cause: str) -> None:
        """Forget the answers to an event that is settled."""
        self._given.pop(cause, None)

    async def _stored(self, sequence: int) -> Event | None:
        async for item in self._bus.read("LOG", start=sequence, end=sequence):
            return item.event if isinstance(item, Stored) else None
        return None

    def _call(self, event: Event) -> None:
        try:
            self._recall(event)
        except Exception:  # noqa: BLE001 - whatever it is: said aloud, and what comes after goes on
            _LOG.exception("event could not be recalled", event_id=event.id, kind=event.type)
