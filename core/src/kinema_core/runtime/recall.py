"""In which order a stage recalls the LOG: as it is stored, but its own answers right after what they answer.

An answer is stored some time after the event that it answers, and others may come in between. Live, a stage knows its
answer as soon as it has given it; a restart and a replay must remember in that same order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from kinema_core.events import Event


def is_answer_of(event: Event, service: str) -> bool:
    """Return whether a service gave this event as an answer to another."""
    return bool(event.cause) and event.id.startswith(f"{event.cause}/{service}/")


def in_order(events: Iterable[Event], service: str) -> Iterator[Event]:
    """A recorded LOG in the order in which the service's stage recalled it."""
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
