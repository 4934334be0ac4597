"""`kinema replay`: decide again on a recording, compare, and say what differs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from kinema_cli.recording import Recording, RecordingError, read
from kinema_cli.replaying.difference import Difference
from kinema_cli.replaying.engine import Checked

STAGES: Final = ("predictor", "optimizer", "decider", "rescheduler")
MAX_FIELDS_SHOWN: Final = 40


@dataclass
class Tally:
    """What a replay found."""

    decided: dict[str, int] = field(default_factory=dict)
    equal: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def add(self, checked: Checked) -> None:
        """Count one decision."""
        self.decided[checked.stage] = self.decided.get(checked.stage, 0) + 1
        if checked.difference is None:
            self.equal[checked.stage] = self.equal.get(checked.stage, 0) + 1
        else:
            self.differences.append(checked.difference)

    def first(self) -> Difference | None:
        """The difference that comes first in the log."""
        return min(self.differences, key=lambda item: (item.sequence, STAGES.index(item.stage)), default=None)


def run_replay(
    *, file: Path, stage: str | None, start: int, end: int | None, speed: float, strict: bool, show_diff: bool
) -> int:
    """Replay a recording; returns the exit code: 0 equal, 1 different or unreadable, 2 wrong arguments."""
    # Fits on one thread are fast and always the same; must be set before scikit-learn is imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    errors = Console(stderr=True)
    if stage is not None and stage not in STAGES:
        errors.print(f"--stage {stage!r} is none of {', '.join(STAGES)}", markup=False)
        return 2
    try:
        recording = read(file)
    except RecordingError as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 1
    if not recording.log:
        errors.print(f"{file}: the log is empty: nothing to decide again", markup=False)
        return 3
    names = (stage,) if stage is not None else STAGES
    began = time.perf_counter()
    tally = asyncio.run(replay_all(recording, names, start, end, speed))
    seconds = time.perf_counter() - began
    _print_tally(tally, recording, seconds)
    first = tally.first()
    if first is not None and (show_diff or strict):
        _print_difference(first)
    return 1 if tally.differences and (strict or show_diff) else 0


async def replay_all(
    recording: Recording, names: tuple[str, ...], start: int = 1, end: int | None = None, speed: float = 0.0
) -> Tally:
    """Decide again on everything that the named stages decided."""
    tally = Tally()
    pace = _Pace(recording, speed)
    for name in names:
        async for checked in _checks(name, recording, start, end):
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


def _checks(name: str, recording: Recording, start: int, end: int | None) -> AsyncIterator[Checked]:
    if name == "rescheduler":
        from kinema_cli.replaying.rescheduler import RescheduleReplay

        return RescheduleReplay(recording).run(start, end)
    from kinema_cli.replaying.engine import StageReplay
    from kinema_cli.replaying.stages import maker

    return StageReplay(maker(name), name, recording).run(start, end)


def _print_tally(tally: Tally, recording: Recording, seconds: float) -> None:
    table = Table(title=f"Replay of cluster {recording.cluster}")
    for heading in ("stage", "decisions", "byte-equal", "different"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for name in STAGES:
        if name in tally.decided:
            decided, equal = tally.decided[name], tally.equal.get(name, 0)
            table.add_row(name, str(decided), str(equal), str(decided - equal))
    console = Console()
    console.print(table)
    span = recording.seconds
    ratio = f"{span / seconds:,.0f} times" if seconds > 0 else "immeasurably"
    console.print(
        f"recorded: {span:,.0f} s of cluster time, {len(recording.log)} log and {len(recording.state)} state events; "
        f"replayed in {seconds:.2f} s: {ratio} faster",
        soft_wrap=True,
    )


def _print_difference(first: Difference) -> None:
    console = Console()
    words = {
        "changed": "is decided differently now",
        "missing": "is not decided again",
        "extra": "was never recorded",
    }
    console.print(
        f"first difference: {first.stage}, {first.type} at log sequence {first.sequence} {words[first.kind]}",
        f"  id {first.event_id}",
        sep="\n",
        markup=False,
        soft_wrap=True,
    )
    for item in first.fields[:MAX_FIELDS_SHOWN]:
        console.print(f"  {item.path}: {item.then!r} → {item.now!r}", markup=False, soft_wrap=True)
    if len(first.fields) > MAX_FIELDS_SHOWN:
        console.print(f"  … and {len(first.fields) - MAX_FIELDS_SHOWN} more fields")
