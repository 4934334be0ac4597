"""The replay: every recorded answer of a stage is decided again under the recorded circumstances.

A stage sees the same LOG events in the same order as then. For each answer that was recorded, the time, the version
of the cluster state and the place where a solve stopped are taken from the recording; everything else is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kinema_cli.replay.difference import Difference, field_differences
from kinema_cli.replay.past import NO_CAUSE, NO_PAST, NO_STATE, Causes, Skipped, StateLine, history_is_whole
from kinema_cli.replay.recording import Recorded, Recording
from kinema_core.events import Event, ServiceStarted, encode, kind_of_type
from kinema_core.runtime.envelope import answer
from kinema_core.runtime.recall import in_order, is_answer_of
from kinema_core.runtime.stage import AtVersion, Moment, NoState, Stage
from kinema_core.runtime.topology import CONSUMES, kinds_of

S = TypeVar("S")
STATE_KINDS: Final = ("cluster-snapshot", "cluster-delta")


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


class StageReplay:
    """Replays one stage."""

    def __init__(self, make: Callable[[str | None], Stage[Any]], name: str, recording: Recording) -> None:
        """`make` builds the stage from the JSON of its settings, or from the defaults."""
        self._make = make
        self.name = name
        self._recording = recording
        self._answers: Mapping[str, list[Recorded]] = self._recorded_answers()
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
        whole = self._causes.whole and self._has_history(stage)
        places = {item.event.id: item for item in self._recording.log}
        delivered = kinds_of(CONSUMES[self.name])
        seen: list[Event] = []
        for event in in_order((item.event for item in self._recording.log), self.name):
            item = places[event.id]
            if end is not None and item.sequence > end and not is_answer_of(event, self.name):
                return
            if isinstance(event.body, ServiceStarted) and event.body.service == self.name:
                stage = self._make(event.body.settings)
                track = _track(stage, self._recording.state)
                whole = self._has_history(stage)
                for past in seen:
                    stage.recall(past)
            seen.append(event)
            stage.recall(event)
            if kind_of_type(event.type) in delivered and item.sequence >= start:
                for checked in await self._decide(stage, track, item):
                    yield checked if whole else doubted(checked)

    def _has_history(self, stage: Stage[Any]) -> bool:
        return not stage.folds or history_is_whole(self._recording.state)

    def _causeless(self, start: int, end: int | None) -> Iterator[Checked | Skipped]:
        """Return recorded answers to events that the recording does not contain."""
        for cause, items in self._answers.items():
            inside = [item for item in items if start <= item.sequence and (end is None or item.sequence <= end)]
            if self._causes.before(cause):
                yield from (Skipped(self.name, item.sequence, NO_CAUSE) for item in inside)
            elif not self._causes.known(cause):
                yield from compare(self.name, 0, inside, [])

    async def _decide(self, stage: Stage[Any], track: StateLine[Any], item: Recorded) -> Sequence[Checked | Skipped]:
        recorded = self._answers.get(item.event.id, [])
        if not recorded and item.sequence > self._last_answer:
            return []  # the recording ended before the stage could answer
        first = recorded[0].event if recorded else item.event
        wanted = stage.wants(item.event)
        version = first.state
        if isinstance(wanted, AtVersion):
            version = wanted.version
        state = None if isinstance(wanted, NoState) else track.at(version)
        if state is None and not isinstance(wanted, NoState):
            return [Skipped(self.name, told.sequence, NO_STATE) for told in recorded]
        moment = Moment(now=first.time, recorded=recorded[0].event.body if recorded else None)
        bodies = await stage.handle(item.event, state, moment)
        made = [
            answer(body, cause=item.event, service=self.name, n=n, now=moment.now, state=first.state)
            for n, body in enumerate(bodies)
        ]
        return compare(self.name, item.sequence, recorded, made)


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
    checks += [
        Checked(stage=stage, sequence=cause, type=event.type, difference=_difference(stage, cause, event, "extra"))
        for event in new.values()
    ]
    return checks


def _difference(stage: str, sequence: int, event: Event, kind: str) -> Difference:
    return Difference(stage=stage, sequence=sequence, event_id=event.id, type=event.type, kind=kind)
