"""`kinema replay`: repeat the decisions of a recording and compare them."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kinema_cli.inputs import InputError, UsageError, fail, policy_named
from kinema_cli.output import (
    Format,
    cell,
    counted,
    print_error,
    print_value,
    print_warning,
    show,
    table,
)
from kinema_cli.replay.engine import Checked, Difference, Skipped, before_first_snapshot
from kinema_cli.replay.recording import Recording, RecordingError, read
from kinema_cli.replay.stages import RecordedSettingsError

if TYPE_CHECKING:
    from kinema_cli.replay.engine import StageReplay
    from kinema_cli.replay.stages import RescheduleReplay

STAGES: Final = ("predictor", "optimizer", "decider", "rescheduler")
MAX_FIELDS_SHOWN: Final = 40
MAX_VALUE_SHOWN: Final = 200
"""Characters of one value in a difference: an entry that is missing altogether may be long."""


@dataclass
class Tally:
    """Result of a replay."""

    decided: dict[str, int] = field(default_factory=dict)
    equal: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Recorded events that could not be decided again, by stage and reason."""

    def add(self, checked: Checked | Skipped) -> None:
        """Count one decision."""
        if isinstance(checked, Skipped):
            self.skipped[checked.stage, checked.reason] += 1
            return
        self.decided[checked.stage] = self.decided.get(checked.stage, 0) + 1
        if checked.difference is None:
            self.equal[checked.stage] = self.equal.get(checked.stage, 0) + 1
        else:
            self.differences.append(checked.difference)

    def first(self) -> Difference | None:
        """Return the difference that comes first in the log."""
        return min(self.differences, key=lambda item: (item.sequence, STAGES.index(item.stage)), default=None)


def run_replay(  # noqa: PLR0913 - all are named
    *,
    file: Path,
    stage: str | None,
    start: int,
    end: int | None,
    speed: float,
    strict: bool,
    show_diff: bool,
    policy: str = "",
    settings: Path | None = None,
    output: Format = Format.TABLE,
) -> int:
    """Replay a recording, by another policy or other settings where some are given.

    Returns:
        The exit code: 0 equal, 1 different or unreadable, 2 wrong arguments, 3 nothing was decided again.
    """
    # Sums on one thread are the same in every run; must be set before numpy is imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    wrong = _wrong_argument(stage, start, end, speed)
    if wrong:
        print_error(wrong)
        return 2
    try:
        changed = _changes(policy, settings)
        names = _stages(stage, changed)
        recording = _replayable(file)
        began = time.perf_counter()
        tally = asyncio.run(replay_all(recording, names, start, end, speed, changed))
    except (InputError, UsageError) as error:
        return fail(error)
    except (RecordingError, RecordedSettingsError) as error:
        print_error(str(error) if isinstance(error, RecordingError) else f"{file}: {error}")
        return 1
    for (name, reason), count in tally.skipped.items():
        print_warning(f"{counted(count, 'event')} of the {name} not decided again: {reason}")
    if not tally.decided:
        last = recording.log[-1].sequence if recording.log else 0
        by = f" of the {stage}" if stage else ""
        until = last if end is None else end
        lost = sum(tally.skipped.values())
        found = f"{counted(lost, 'event')}{by}" if lost else f"no decision{by}"
        ends = "and none can be decided again" if lost else f"the log ends at {last}"
        print_error(f"{file}: {found} between {start} and {until}{',' if lost else ';'} {ends}")
        return 3
    if output is not Format.TABLE:
        print_value(_as_value(tally, recording), output)
    else:
        _print_tally(tally, recording, time.perf_counter() - began)
        first = tally.first()
        if first is not None and (show_diff or strict or changed):
            _print_difference(first)
    return 1 if tally.differences and (strict or show_diff) else 0


def _changes(policy: str, settings: Path | None) -> dict[str, dict[str, Any]]:
    """Return the settings by service that take the place of those recorded.

    Raises:
        UsageError: there is no such policy.
        InputError: the file cannot be used.
    """
    from kinema_cli.local.settings import layered, read_service_settings

    found = {} if settings is None else read_service_settings(settings, _PROVIDER)
    if policy:
        found = layered(found, {"optimizer": {"policy": {"name": policy_named(policy)}}})
    return found


_PROVIDER: Final = {"rescheduler": {"provider": {"kind": "sim", "url": "http://127.0.0.1:1"}}}
"""A provider, which a replay does not use and without which the rescheduler's settings are not whole."""


def _stages(stage: str | None, changed: Mapping[str, object]) -> tuple[str, ...]:
    """Return the stages to replay: with other settings only those that have some."""
    if stage is not None:
        return (stage,)
    return tuple(name for name in STAGES if name in changed) if changed else STAGES


def _replayable(file: Path) -> Recording:
    """Return a recording with a state to decide on; raises RecordingError without one."""
    recording = read(file)
    lost = before_first_snapshot(recording)
    if lost is None and recording.log:
        message = f"{file}: contains no full state of the cluster; no decision can be repeated"
        raise RecordingError(message)
    if lost:
        print_warning(f"{file}: state events before the first full state are skipped: {lost}")
    return recording


def _wrong_argument(stage: str | None, start: int, end: int | None, speed: float) -> str:
    """Return what is wrong with the arguments; empty when nothing is."""
    if stage is not None and stage not in STAGES:
        return f"--stage {stage!r} is none of {', '.join(STAGES)}"
    if start < 0:
        return f"--from {start} is negative: sequences begin at 1"
    if end is not None and end < start:
        return f"--to {end} lies before --from {start}"
    if not (math.isfinite(speed) and speed >= 0):
        return f"--speed {speed} is not a pace; use 0 for as fast as possible, 1 for as recorded"
    return ""


async def replay_all(
    recording: Recording,
    names: tuple[str, ...],
    start: int = 1,
    end: int | None = None,
    speed: float = 0.0,
    changed: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
) -> Tally:
    """Repeat all decisions of the named stages; `changed` are settings by service in place of those recorded."""
    tally = Tally()
    if not recording.log:
        return tally
    pace = _Pace(recording, speed)
    for name in names:
        async for checked in _checks(name, recording, changed.get(name, {})).run(start, end):
            await pace.reach(checked.sequence)
            tally.add(checked)
    return tally


class _Pace:
    """Waits until a recorded event is due, when a pace was asked for."""

    def __init__(self, recording: Recording, speed: float) -> None:
        self._times = {item.sequence: item.event.time for item in recording.log}
        self._origin = min(self._times.values())
        self._speed = speed
        self._began = time.perf_counter()

    async def reach(self, sequence: int) -> None:
        if self._speed > 0:
            due = (self._times[sequence] - self._origin).total_seconds() / self._speed
            await asyncio.sleep(max(0.0, due - (time.perf_counter() - self._began)))


def _checks(name: str, recording: Recording, changed: Mapping[str, object]) -> RescheduleReplay | StageReplay:
    if name == "rescheduler":
        from kinema_cli.replay.stages import RescheduleReplay

        return RescheduleReplay(recording, changed)
    from kinema_cli.replay.engine import StageReplay
    from kinema_cli.replay.stages import maker

    return StageReplay(maker(name, changed), name, recording, changed=bool(changed))


def _print_tally(tally: Tally, recording: Recording, seconds: float) -> None:
    rows = []
    for name in STAGES:
        if name in tally.decided:
            decided, equal = tally.decided[name], tally.equal.get(name, 0)
            rows.append((name, str(decided), str(equal), str(decided - equal)))
    columns = ("stage", "decisions", "byte-equal", "different")
    span = recording.seconds
    ratio = f", {span / seconds:,.0f} times faster" if seconds > 0 else ""
    events = f"{counted(len(recording.log), 'log event')}, {counted(len(recording.state), 'state event')}"
    show(
        table(f"Replay of cluster {recording.cluster}", columns, rows, numbers=columns[1:]),
        cell(f"recorded: {span:,.0f}s of cluster time, {events}; replayed in {seconds:.1f}s{ratio}"),
    )


def _print_difference(first: Difference) -> None:
    words = {"changed": "is decided differently now", "missing": "is not decided again", "extra": "was never recorded"}
    lines = [
        f"first difference: {first.stage}, {first.type} at log sequence {first.sequence} {words[first.kind]}",
        f"  id {first.event_id}",
    ]
    for item in first.fields[:MAX_FIELDS_SHOWN]:
        where = f"{item.path} ({item.pod})" if item.pod else item.path
        lines.append(f"  {where}: {_shown(item.then)} → {_shown(item.now)}")
    if len(first.fields) > MAX_FIELDS_SHOWN:
        lines.append(f"  … and {len(first.fields) - MAX_FIELDS_SHOWN} more fields")
    show(*map(cell, lines))


def _as_value(tally: Tally, recording: Recording) -> dict[str, object]:
    first = tally.first()
    stages = {
        name: {"decisions": count, "byte_equal": tally.equal.get(name, 0)} for name, count in tally.decided.items()
    }
    return {
        "cluster": recording.cluster,
        "stages": stages,
        "different": len(tally.differences),
        "first_difference": None if first is None else _difference_value(first),
    }


def _difference_value(first: Difference) -> dict[str, object]:
    fields = [{"path": one.path, "pod": one.pod, "then": one.then, "now": one.now} for one in first.fields]
    return {"id": first.event_id, "sequence": first.sequence, "kind": first.kind, "fields": fields}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_SHOWN else f"{text[:MAX_VALUE_SHOWN]}…"
