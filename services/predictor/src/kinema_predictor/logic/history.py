"""History of what workloads used, on a grid of time, in bounded memory.

A row of steps is what one event states: a single step, or a checkpoint, which takes the place of the steps that it
covers. Values stay in the codes of the events, two bytes each, until a forecast asks for some workloads of some span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinema_core.events import UsageCompacted, UsageResampled
from kinema_core.model.usage import QUANTITIES, UNITS, Quantity, amount_of, codes_of
from kinema_predictor.forecasting.task import Array

_AMOUNTS: Final = np.array([amount_of(code) for code in range(1 << 16)], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Row:
    """Usage of some workloads in consecutive steps, of which the first is the `start`-th since 1970."""

    start: int
    steps: int
    workloads: tuple[str, ...]
    codes: NDArray[np.uint16]
    """(3, workloads, steps): pods, CPU and memory."""

    @property
    def end(self) -> int:
        """Return the step after the last one."""
        return self.start + self.steps


@dataclass(frozen=True, eq=False)
class History:
    """Rows in order of time, none over another."""

    step_seconds: float = 0.0
    rows: tuple[Row, ...] = ()

    @property
    def step(self) -> timedelta:
        """Return the length of a step."""
        return timedelta(seconds=self.step_seconds)

    @property
    def end(self) -> datetime | None:
        """Return when the newest step ended; None where there is none."""
        return datetime.fromtimestamp(self.rows[-1].end * self.step_seconds, UTC) if self.rows else None

    @property
    def steps(self) -> int:
        """Return the steps from the first known one to the last."""
        return self.rows[-1].end - self.rows[0].start if self.rows else 0

    def matrix(self, workloads: Sequence[str], quantity: Quantity, steps: int) -> Array:
        """Return (n, steps) usage in the newest steps, in pods, millicores or bytes; NaN where there is no sample."""
        found = np.full((len(workloads), steps), np.nan)
        if not self.rows:
            return found
        plane, first = QUANTITIES.index(quantity), self.rows[-1].end - steps
        places: dict[int, tuple[NDArray[np.intp], NDArray[np.intp]]] = {}
        for row in self.rows:
            if row.end <= first:
                continue
            if id(row.workloads) not in places:
                places[id(row.workloads)] = _places(workloads, row.workloads)
            mine, theirs = places[id(row.workloads)]
            begin = max(row.start, first)
            codes = row.codes[:, theirs, begin - row.start :]
            amounts = _AMOUNTS[codes[plane]] * UNITS[quantity]
            amounts[codes[0] == 0] = np.nan
            found[mine, begin - first : row.end - first] = amounts
        return found


def _places(wanted: Sequence[str], there: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where the wanted ones that are there are among the wanted, and there."""
    index: Mapping[str, int] = {key: place for place, key in enumerate(there)}
    pairs = [(place, index[key]) for place, key in enumerate(wanted) if key in index]
    mine, theirs = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(mine, dtype=np.intp), np.array(theirs, dtype=np.intp)


def remember(history: History, body: UsageResampled | UsageCompacted, *, keep: timedelta) -> History:
    """Add a step or a checkpoint; what is older than `keep` is forgotten. A table that is no table changes nothing."""
    try:
        row = _row(body)
    except ValueError:
        return history
    if history.step_seconds != body.step_seconds:
        # Another grid: nothing of the old one can be set beside it.
        return History(body.step_seconds, (row,))
    before = tuple(one for one in history.rows if one.end <= row.start)
    after = tuple(one for one in history.rows if one.start >= row.end)
    covered = [one for one in history.rows if one.start < row.end and one.end > row.start]
    if any(one.start < row.start or one.end > row.end for one in covered) or any(
        one.steps >= row.steps for one in covered
    ):
        return history  # known already, as the same step or as part of a checkpoint
    if before and before[-1].workloads == row.workloads:
        row = Row(row.start, row.steps, before[-1].workloads, row.codes)
    rows = (*before, row, *after)
    oldest = rows[-1].end - round(keep.total_seconds() / body.step_seconds)
    return History(body.step_seconds, tuple(one for one in rows if one.end > oldest))


def _row(body: UsageResampled | UsageCompacted) -> Row:
    steps = body.steps if isinstance(body, UsageCompacted) else 1
    codes = np.frombuffer(codes_of(body), dtype="<u2").reshape(len(QUANTITIES), len(body.workloads), steps)
    return Row(round(body.start.timestamp() / body.step_seconds), steps, body.workloads, codes)
