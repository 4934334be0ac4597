"""The replay: every recorded answer of a stage is decided again under the recorded circumstances.

A stage sees the same LOG events in the same order as then. For each answer that was recorded, the time, the version
of the cluster state and the place where a solve stopped are taken from the recording; everything else is computed.

A recording of a pipeline that has run for long begins in the middle, as streams drop their oldest events first. What
was decided on events from before cannot be decided again, and is no difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from kinema_cli.replay.recording import Recorded, Recording
from kinema_core.events import (
    ClusterDelta,
    ClusterSnapshot,
    Event,
    EventsRestated,
    ServiceStarted,
    encode,
    kind_of_type,
)
from kinema_core.model.cluster import StateGapError
from kinema_core.runtime.envelope import answer
from kinema_core.runtime.memory import in_order, is_answer_of
from kinema_core.runtime.stage import AtVersion, Moment, NoState, Past, Stage
from kinema_core.runtime.topology import CONSUMES, kinds_of

S = TypeVar("S")
NO_CAUSE: Final = "the cause lies before the first event of the log"
NO_STATE: Final = "the cluster state of that time cannot be folded from the recording"
NO_PAST: Final = "the result differs, but settings, catalog or usage from before the recording are missing"
STATE_KINDS: Final = ("cluster-snapshot", "cluster-delta")


@dataclass(frozen=True)
class FieldDifference:
    """One field of an event that differs; `then` and `now` are None where the field is missing."""

    path: str
    then: object
    now: object
    pod: str = ""
    """The pod that the entry of a list is about."""


@dataclass(frozen=True)
class Difference:
    """An event that is not what it was: changed, missing now, or new."""

    stage: str
    sequence: int
    """Place in LOG of the recorded event; of one that is new that of the last answer beside it, else of its cause."""
    event_id: str
    type: str
    kind: str
    """`changed`, `missing` (recorded, but not decided again) or `extra` (decided now, never recorded)."""
    fields: tuple[FieldDifference, ...] = ()


_WHY: Final = ("type", "body.rule", "body.reason")
"""Fields that come first: a plan has thousands of others."""


def field_differences(then: Event, now: Event) -> tuple[FieldDifference, ...]:
    """Return every leaf in which two events differ: what says why first, then in the order of their fields.

    Where the type is another, of the other fields only those of the new event are named.
    """
    found = sorted(_walk("", msgspec.to_builtins(then), msgspec.to_builtins(now)), key=lambda one: one.path not in _WHY)
    if then.type == now.type:
        return tuple(found)
    return tuple(one for one in found if one.path in _WHY or one.now is not None)


def _walk(path: str, then: object, now: object, pod: str = "") -> Iterator[FieldDifference]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in [*then, *(key for key in now if key not in then)]:
            yield from _walk(f"{path}.{key}" if path else str(key), then.get(key), now.get(key), pod)
    elif isinstance(then, list | tuple) and isinstance(now, list | tuple):
        for index in range(max(len(then), len(now))):
            old = then[index] if index < len(then) else None
            new = now[index] if index < len(now) else None
            yield from _walk(f"{path}[{index}]", old, new, _pod_of(old) or _pod_of(new) or pod)
    elif then != now or type(then) is not type(now):
        yield FieldDifference(path=path, then=then, now=now, pod=pod)


def _pod_of(entry: object) -> str:
    return str(entry.get("pod", "")) if isinstance(entry, dict) else ""


@dataclass(frozen=True)
class Skipped:
    """A recorded event that cannot be decided again from what the recording holds."""

    stage: str
    sequence: int
    reason: str


class Causes:
    """Which causes of recorded answers are missing although the recording should hold them."""

    def __init__(self, recording: Recording) -> None:
        self._ids = {item.event.id for item in recording.log}
        restated = any(isinstance(item.event.body, EventsRestated) for item in recording.log)
        self.whole: Final = not recording.log or (recording.log[0].sequence == 1 and not restated)

    def known(self, cause: str) -> bool:
        """Return whether the recording holds the event."""
        return cause in self._ids

    def before(self, cause: str) -> bool:
        """Return whether a missing event may lie before the recording.

        It may not when the log begins at its beginning, or when the event is itself an answer to a recorded one.
        """
        if self.whole or cause in self._ids:
            return False
        # An id is `<cause>/<service>/<n>`, and n may hold slashes: any recorded id in front of it came first.
        return not any(cause[:end] in self._ids for end, sign in enumerate(cause) if sign == "/")


class StateLine(Generic[S]):
    """A state over recorded STATE events, to be had at rising versions; unknown after a gap until a snapshot."""

    def __init__(self, initial: S, fold: Callable[[S, Event], S], events: Sequence[Recorded]) -> None:
        """`fold` raises StateGapError for a delta that does not follow."""
        self._initial = initial
        self._fold = fold
        self._events = [item.event for item in events]
        self._restart()

    def _restart(self) -> None:
        self._next = 0
        self._version = 0
        self._known = True
        self._state = self._initial

    def at(self, version: int) -> S | None:
        """Return the state just after `version` was folded; None when the recording does not lead there."""
        if version < self._version or (version == self._version and not self._known):
            self._restart()
        while self._version < version and self._next < len(self._events):
            event = self._events[self._next]
            self._next += 1
            self._step(event)
        return self._state if self._known and self._version == version else None

    def _step(self, event: Event) -> None:
        body = event.body
        if isinstance(body, ClusterDelta) and not self._known:
            return
        try:
            self._state = self._fold(self._state, event)
        except StateGapError:
            self._known = False
            return
        if isinstance(body, ClusterSnapshot):
            self._version, self._known = body.version, True
        elif isinstance(body, ClusterDelta):
            self._version = max(self._version, body.version)


def history_is_whole(events: Sequence[Recorded]) -> bool:
    """Return whether STATE begins with the first version, so that no usage from before is missing."""
    first = events[0].event.body if events else None
    return isinstance(first, ClusterSnapshot) and first.version == 1


class PastLine:
    """Recorded usage, folded until rising times."""

    def __init__(self, past: Past[Any] | None, events: Sequence[Recorded]) -> None:
        self._past = past
        kinds = () if past is None else past.kinds
        self._events = [item.event for item in events if kind_of_type(item.event.type) in kinds]
        self._restart()

    def _restart(self) -> None:
        self._next = 0
        self._folded = None if self._past is None else self._past.initial
        self._until: datetime | None = None

    def at(self, event: Event) -> object:
        """Return what the stage had folded when it handled an event of LOG."""
        past = self._past
        until = None if past is None else past.until(event)
        if past is None or until is None:
            return None if past is None else past.initial
        if self._until is not None and until < self._until:
            self._restart()
        self._until = until
        while self._next < len(self._events) and past.end(self._events[self._next]) <= until:
            self._folded = past.fold(self._folded, self._events[self._next])
            self._next += 1
        return self._folded


def usage_is_whole(events: Sequence[Recorded]) -> bool:
    """Return whether no usage from before the recording is missing."""
    return not events or events[0].sequence == 1


def before_first_snapshot(recording: Recording) -> int | None:
    """Return how many STATE events come before the first full state; None when there is no full state at all."""
    for place, item in enumerate(recording.state):
        if isinstance(item.event.body, ClusterSnapshot):
            return place
    return None


@dataclass(frozen=True)
class Checked:
    """One recorded event that was decided again; `difference` is None when it is byte-equal."""

    stage: str
    sequence: int
    type: str
    difference: Difference | None


def _track(stage: Stage[S], events: Sequence[Recorded]) -> StateLine[S]:
    """Return the stage's state over the recorded STATE events."""
    kinds = (*STATE_KINDS, *stage.folds)
    return StateLine(stage.initial(), stage.fold, [item for item in events if kind_of_type(item.event.type) in kinds])


def _recalled(stage: Stage[Any], events: Sequence[Event]) -> Sequence[Event]:
    for event in events:
        stage.recall(event)
    return events


class StageReplay:
    """Replays one stage."""

    def __init__(
        self, make: Callable[[str | None], Stage[Any]], name: str, recording: Recording, *, changed: bool = False
    ) -> None:
        """`make` builds the stage from the JSON of its settings, or from the defaults.

        `changed`: it decides by other settings than then. So it remembers what it answers now, not what it answered
        then, and its solves end by its settings.
        """
        self._make = make
        self._changed = changed
        self.name = name
        self._recording = recording
        self._answers: Mapping[str, list[Recorded]] = self._recorded_answers()
        self._starts = [
            (item.sequence, item.event.body.settings)
            for item in recording.log
            if isinstance(item.event.body, ServiceStarted) and item.event.body.service == name
        ]
        last = [item.sequence for items in self._answers.values() for item in items]
        self._last_answer = max(last, default=0)
        self._causes = Causes(recording)

    def _recorded_answers(self) -> Mapping[str, list[Recorded]]:
        found: dict[str, list[Recorded]] = defaultdict(list)
        for item in self._recording.log:
            if is_answer_of(item.event, self.name):
                found[item.event.cause].append(item)
        return found

    async def run(self, start: int = 1, end: int | None = None) -> AsyncIterator[Checked | Skipped]:
        """Repeat the decisions on LOG events from `start` to `end`."""
        for found in self._causeless(start, end):
            yield found
        stage = self._make(None)
        track = _track(stage, self._recording.state)
        past = PastLine(stage.past, self._recording.usage)
        whole = self._causes.whole and self._has_history(stage)
        running = 0
        places = {item.event.id: item for item in self._recording.log}
        delivered = kinds_of(CONSUMES[self.name])
        replaced = {one.event.id for items in self._answers.values() for one in items} if self._changed else set()
        seen: list[Event] = []
        for event in in_order((item.event for item in self._recording.log), self.name):
            item = places[event.id]
            if end is not None and item.sequence > end and not is_answer_of(event, self.name):
                return
            decides = kind_of_type(event.type) in delivered and item.sequence >= start
            started = self._started_before(self._answered_at(item) if decides else item.sequence + 1)
            if started is not None and running < started[0]:
                running, settings = started
                stage = self._make(settings)
                track = _track(stage, self._recording.state)
                past = PastLine(stage.past, self._recording.usage)
                whole = self._has_history(stage)
                for earlier in seen:
                    stage.recall(earlier)
            if event.id in replaced:
                continue  # what it answers now stands in for it
            seen.append(event)
            stage.recall(event)
            if decides:
                made, checks = await self._decide(stage, track, past, item)
                for checked in checks:
                    yield checked if whole else doubted(checked)
                seen += _recalled(stage, made if self._changed else ())

    def _answered_at(self, item: Recorded) -> int:
        """Return where the first answer to an event lies in LOG; without one, where the event lies."""
        answers = self._answers.get(item.event.id)
        return answers[0].sequence if answers else item.sequence

    def _started_before(self, sequence: int) -> tuple[int, str] | None:
        """Return place and settings of the service's newest start before a place in LOG.

        A service that started late answers events that were there before it.
        """
        return next((one for one in reversed(self._starts) if one[0] < sequence), None)

    def _has_history(self, stage: Stage[Any]) -> bool:
        states = not stage.folds or history_is_whole(self._recording.state)
        return states and (stage.past is None or usage_is_whole(self._recording.usage))

    def _causeless(self, start: int, end: int | None) -> Iterator[Checked | Skipped]:
        """Return recorded answers to events that the recording does not contain."""
        for cause, items in self._answers.items():
            inside = [item for item in items if start <= item.sequence and (end is None or item.sequence <= end)]
            if self._causes.before(cause):
                yield from (Skipped(self.name, item.sequence, NO_CAUSE) for item in inside)
            elif not self._causes.known(cause):
                yield from compare(self.name, 0, inside, [])

    async def _decide(
        self, stage: Stage[Any], track: StateLine[Any], past: PastLine, item: Recorded
    ) -> tuple[Sequence[Event], Sequence[Checked | Skipped]]:
        recorded = self._answers.get(item.event.id, [])
        if not recorded and item.sequence > self._last_answer:
            return [], []  # the recording ended before the stage could answer
        first = recorded[0].event if recorded else item.event
        wanted = stage.wants(item.event)
        version = first.state
        if isinstance(wanted, AtVersion):
            version = wanted.version
        state = None if isinstance(wanted, NoState) else track.at(version)
        if state is None and not isinstance(wanted, NoState):
            return [], [Skipped(self.name, one.sequence, NO_STATE) for one in recorded]
        then = recorded[0].event.body if recorded and not self._changed else None
        moment = Moment(now=first.time, past=past.at(item.event), recorded=then)
        bodies = await stage.handle(item.event, state, moment)
        made = [
            answer(body, cause=item.event, service=self.name, n=n, now=moment.now, state=first.state)
            for n, body in enumerate(bodies)
        ]
        return made, compare(self.name, item.sequence, recorded, made)


def doubted(checked: Checked | Skipped) -> Checked | Skipped:
    """Return the check with a doubt: a difference may be caused by what is missing from before the recording."""
    if isinstance(checked, Skipped) or checked.difference is None:
        return checked
    return Skipped(checked.stage, checked.sequence, NO_PAST)


def compare(stage: str, cause: int, then: Sequence[Recorded], now: Sequence[Event]) -> list[Checked]:
    """Pair recorded and new events by id and compare their bytes."""
    new = {event.id: event for event in now}
    checks: list[Checked] = []
    for item in then:
        again = new.pop(item.event.id, None)
        difference = None
        if again is None:
            difference = _difference(stage, item.sequence, item.event, "missing")
        elif encode(again) != encode(item.event):
            difference = Difference(
                stage=stage,
                sequence=item.sequence,
                event_id=item.event.id,
                type=item.event.type,
                kind="changed",
                fields=field_differences(item.event, again),
            )
        checks.append(Checked(stage=stage, sequence=item.sequence, type=item.event.type, difference=difference))
    last = max((item.sequence for item in then), default=cause)
    checks += [
        Checked(stage=stage, sequence=last, type=event.type, difference=_difference(stage, last, event, "extra"))
        for event in new.values()
    ]
    return checks


def _difference(stage: str, sequence: int, event: Event, kind: str) -> Difference:
    return Difference(stage=stage, sequence=sequence, event_id=event.id, type=event.type, kind=kind)
