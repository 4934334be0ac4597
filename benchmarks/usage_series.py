"""Series of usage: generated ones of many kinds, and files of measured ones.

Generated kinds are those that operators see: daily and weekly load, load that wanders, idle services with bursts, batch
jobs, rollouts that shift the level, leaks with restarts, caches that fill. Each kind is drawn with its own parameters,
by a seeded generator.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from kinema_predictor.forecasting.task import Array

_DAY: Final = 86_400
Draw = Callable[[np.random.Generator, int, int], Array]


@dataclass(frozen=True)
class Series:
    """Measured or generated usage, one value per step."""

    name: str
    step_seconds: float
    values: Array


def _noise(rng: np.random.Generator, steps: int, keeps: float) -> Array:
    """Return noise of variance 1, of which each step keeps a share of the one before."""
    fresh = rng.normal(size=steps) * np.sqrt(1 - keeps**2)
    found = np.empty(steps)
    last = rng.normal()
    for at in range(steps):
        last = keeps * last + fresh[at]
        found[at] = last
    return found


def _daily(rng: np.random.Generator, steps: int, day: int) -> Array:
    hour: Array = (np.arange(steps) % day) / day
    peak, width = rng.uniform(0, 1), rng.uniform(0.08, 0.25)
    away = np.minimum(np.abs(hour - peak), 1 - np.abs(hour - peak))
    shape = np.exp(-0.5 * (away / width) ** 2)
    found: Array = 1 + rng.uniform(1, 6) * shape + rng.uniform(0.05, 0.3) * _noise(rng, steps, 0.8)
    return found


def _weekly(rng: np.random.Generator, steps: int, day: int) -> Array:
    weekend = (np.arange(steps) // day + rng.integers(7)) % 7 >= 5
    return _daily(rng, steps, day) * np.where(weekend, rng.uniform(0.3, 0.8), 1.0)


def _wandering(rng: np.random.Generator, steps: int, day: int) -> Array:
    return np.exp(0.4 * _noise(rng, steps, 1 - rng.uniform(1, 8) / day) + 0.1 * _noise(rng, steps, 0.3))


def _bursts(rng: np.random.Generator, steps: int, day: int) -> Array:
    busy = rng.random(steps) < rng.uniform(0.005, 0.08)
    found: Array = 0.2 + 0.05 * np.abs(_noise(rng, steps, 0.5)) + busy * rng.gamma(2.0, rng.uniform(0.5, 2), steps)
    return found


def _jobs(rng: np.random.Generator, steps: int, day: int) -> Array:
    every = max(2, int(day / rng.integers(1, 9)))
    busy = (np.arange(steps) + rng.integers(every)) % every < every * rng.uniform(0.1, 0.4)
    return 0.1 + busy * (2 + 0.2 * _noise(rng, steps, 0.6)) + 0.03 * np.abs(_noise(rng, steps, 0.2))


def _rollouts(rng: np.random.Generator, steps: int, day: int) -> Array:
    base = _daily(rng, steps, day) if rng.random() < 0.5 else 2 + 0.2 * _noise(rng, steps, 0.7)
    for at in rng.integers(0, steps, rng.integers(1, 4)):
        base[at:] *= rng.uniform(0.5, 1.8)
    return base


def _leak(rng: np.random.Generator, steps: int, day: int) -> Array:
    every = rng.integers(day // 2, 6 * day)
    return 1 + rng.uniform(0.5, 3) * ((np.arange(steps) + rng.integers(every)) % every) / every


def _cache(rng: np.random.Generator, steps: int, day: int) -> Array:
    fill = 1 - np.exp(-np.arange(steps) / rng.uniform(0.05, 1) / day)
    return 1 + rng.uniform(0.2, 3) * fill + 0.02 * _noise(rng, steps, 0.9)


def _steady(rng: np.random.Generator, steps: int, day: int) -> Array:
    return 2 + rng.uniform(0.005, 0.2) * _noise(rng, steps, rng.uniform(0, 0.95))


CPU_KINDS: Final[Mapping[str, Draw]] = {
    "daily": _daily,
    "weekly": _weekly,
    "wandering": _wandering,
    "bursts": _bursts,
    "jobs": _jobs,
    "rollouts": _rollouts,
    "steady": _steady,
}
MEMORY_KINDS: Final[Mapping[str, Draw]] = {
    "leak": _leak,
    "cache": _cache,
    "steady": _steady,
    "rollouts": _rollouts,
    "wandering": _wandering,
}


def generated(kinds: Mapping[str, Draw], *, each: int, step_seconds: float, steps: int, seed: int) -> list[Series]:
    """Return `each` series of every kind."""
    found = []
    for number, (kind, draw) in enumerate(kinds.items()):
        for index in range(each):
            rng = np.random.default_rng([seed, number, index])
            values = np.maximum(draw(rng, steps, round(_DAY / step_seconds)), 0.0) * rng.uniform(10, 2000)
            found.append(Series(f"{kind}-{index}", step_seconds, values))
    return found


def cpu_files(folder: Path) -> list[Series]:
    """Read files of columns `timestamp` (`2014-02-14 14:30:00`) and `value`, one series each."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as lines:
            rows = [(_seconds(row["timestamp"]), float(row["value"])) for row in csv.DictReader(lines)]
        found.append(_regular(path.stem, rows, 300.0))
    return found


def memory_file(path: Path) -> list[Series]:
    """Read a file of columns `container`, `timestamp` (seconds) and `memory_utilization`."""
    rows: dict[str, list[tuple[float, float]]] = {}
    with path.open(newline="") as lines:
        for row in csv.DictReader(lines):
            rows.setdefault(row["container"], []).append((float(row["timestamp"]), float(row["memory_utilization"])))
    return [_regular(name, rows[name], 60.0) for name in sorted(rows)]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _regular(name: str, rows: list[tuple[float, float]], step_seconds: float) -> Series:
    """Return the largest sample of each step; a step without one repeats the step before."""
    rows = sorted(rows)
    first = rows[0][0]
    values = np.full(int((rows[-1][0] - first) // step_seconds) + 1, np.nan)
    for when, value in rows:
        at = int((when - first) // step_seconds)
        values[at] = value if np.isnan(values[at]) else max(value, values[at])
    for gap in np.flatnonzero(np.isnan(values)):
        values[gap] = values[gap - 1]
    return Series(name, step_seconds, values)
