"""Cleaning of series before anything is learned from them.

A value that cannot be is a gap: not a number, infinite, negative, or above twice what the largest node has. A gap is
filled with the value before it, as nothing later may be known at any time of a series; how much was filled is returned,
since a forecast from few data must lower nothing. A series that suddenly is of another order of magnitude is a broken
metric until that lies a day back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinema_predictor.forecasting.task import Array, Task

OUTLIER: Final = 2.0
"""Times the capacity of the largest node above which a sample is wrong."""
BREAK: Final = 10.0
"""A level so many times above or below anything of the day before is a broken metric, or a workload of another kind."""


@dataclass(frozen=True)
class Clean:
    """Series fit for forecasting."""

    values: Array
    """(n, t) without gaps; 0 before the first sample of a row."""
    coverage: Array
    """(n,) share of the steps since the first sample that have one."""
    age: NDArray[np.int64]
    """(n,) steps since the first sample; 0: none at all."""
    silent: NDArray[np.int64]
    """(n,) steps since the last sample."""
    dropped: NDArray[np.int64]
    """(n,) samples that cannot be."""


def clean(raw: Array, capacity: float) -> Clean:
    """Clean series (n, t) with NaN for gaps; `capacity` is that of the largest node, infinite where it is unknown."""
    good = np.isfinite(raw) & (raw >= 0) & (raw <= OUTLIER * capacity)
    steps = raw.shape[1]
    places = np.arange(steps)
    last = np.maximum.accumulate(np.where(good, places, -1), axis=1)
    values = np.where(last >= 0, np.take_along_axis(raw, np.maximum(last, 0), axis=1), 0.0)
    any_ = good.any(axis=1)
    age = np.where(any_, steps - good.argmax(axis=1), 0)
    coverage = good.sum(axis=1) / np.maximum(age, 1)
    silent = np.where(any_, steps - 1 - last[:, -1], steps)
    return Clean(values, coverage, age, silent, (~good & ~np.isnan(raw)).sum(axis=1))


def breaks(values: Array, task: Task) -> Array:
    """Return (n,) how many times a step of the last day is above all before it, or all from it on below; else 1.

    Before means at most two days and at least half a day. One step above is enough, as a single one decides on memory;
    what falls counts as long as it stays low. A history that came down to a hundredth of its own largest value has no
    least one to fall under, such as that of a job which rests.
    """
    recent = values[:, -2 * task.per_day :]
    begin = max(task.per_day // 2, recent.shape[1] - task.per_day)
    if begin < 1 or begin >= recent.shape[1]:
        return np.ones(len(values))
    most = np.maximum.accumulate(recent, axis=1)[:, begin - 1 : -1]
    least = np.minimum.accumulate(recent, axis=1)[:, begin - 1 : -1]
    now = recent[:, begin:]
    later = np.maximum.accumulate(now[:, ::-1], axis=1)[:, ::-1]
    tiny = np.maximum(most * 1e-6, 1e-9)
    up = np.where(most > 0, now / np.maximum(most, tiny), 1.0)
    down = np.where((most > 0) & (least > most / 100), least / np.maximum(later, tiny), 1.0)
    found: Array = np.maximum(np.maximum(up, down).max(axis=1), 1.0)
    return found
