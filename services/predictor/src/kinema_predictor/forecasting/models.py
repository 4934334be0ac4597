"""Models of future usage behind one interface: pasts of many series in, paths over the horizon out.

A model is asked for the forecasts at several origins of the same series at once; the forecast at an origin uses what
lies before it and nothing else. Parameters are constants of a model: its name and its offset say all that led to a
forecast.

Sources: `thesis` is algorithm 5 of the Kinema thesis. `histogram` has the half-life of the VerticalPodAutoscaler's
recommender. `holt-winters` is additive exponential smoothing without a trend (Winters 1960). `reverting` extrapolates
by the autocorrelation of the series, as a regression of its value in h steps on its value now does.

The largest of the last day is none of them: it is no quantile, and one spike stays for a day in every mean it takes
part in (`benchmarks.forecast` measures it). Requests of memory have it as their floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from kinema_predictor.forecasting.task import Array, Task

LEARNING_SECONDS: Final = 900
"""Of the thesis: the span of the line, and the span ahead of which its mean is taken."""
HARMONICS: Final = 5
"""Daily waves that `harmonic` fits: the shortest takes 4.8 hours."""
RIDGE: Final = 1e-3
"""Penalty, as a share of the mean diagonal of the normal equations."""
HALF_LIFE_DAYS: Final = 1.0
"""Of the histogram's weights."""
ALPHA: Final = 0.02
"""Share of an error by which Holt-Winters corrects its level."""
GAMMA: Final = 0.3
"""Share of an error by which it corrects the time of day."""

Paths: TypeAlias = Callable[[Array, Sequence[int], Task], list[Array]]


@dataclass(frozen=True)
class Model:
    """One way to forecast."""

    name: str
    paths: Paths
    """(n, t) series without gaps, origins, task → for each origin (n, horizon). Origins fall or rise as given."""
    days: float = 0.0
    """Least history before an origin, in days: a season has to be seen twice."""
    is_quantile: bool = False
    """Whether the path is the wanted quantile already, and not the middle of what may come."""


def _at_each(path: Callable[[Array, Task], Array]) -> Paths:
    """Return the paths of a model that looks at each past by itself."""

    def paths(series: Array, origins: Sequence[int], task: Task) -> list[Array]:
        return [path(series[:, :origin], task) for origin in origins]

    return paths


def _flat(level: Array, task: Task) -> Array:
    return np.broadcast_to(level[:, None], (len(level), task.horizon))


def mean_ahead(seconds: Array, usage: Array, horizon: float) -> Array:
    """Return the mean over the next `horizon` seconds of the line fitted through the samples (least squares).

    Args:
        seconds: (t,) when samples were taken, before now, so 0 or less.
        usage: (t, k) the samples of k quantities.
        horizon: seconds ahead.

    Returns:
        (k,): the means. The mean of a line over a span is its value in the middle of it.
    """
    away, average = seconds - seconds.mean(), usage.mean(axis=0)
    spread = (away**2).sum()
    slope = (away[:, None] * (usage - average)).sum(axis=0) / spread if spread else np.zeros_like(average)
    ahead: Array = average + slope * (horizon / 2 - seconds.mean())
    return ahead


def _thesis(past: Array, task: Task) -> Array:
    count = min(past.shape[1], max(2, round(LEARNING_SECONDS / task.step_seconds)))
    # A sample stands for the step that ends with it: the newest lies half a step before now.
    seconds = task.step_seconds * (np.arange(-count, 0, dtype=np.float64) + 0.5)
    return _flat(np.maximum(mean_ahead(seconds, past[:, -count:].T, LEARNING_SECONDS), 0.0), task)


def _histogram(series: Array, origins: Sequence[int], task: Task) -> list[Array]:
    return [_flat(level, task) for level in decayed_quantiles(series, origins, task, task.quantile)]


def decayed_quantiles(series: Array, origins: Sequence[int], task: Task, quantile: float) -> list[Array]:
    """Return for each origin (n,) the quantile of the past with weights that halve every day."""
    # The quantile of a series that stays alike is among so many of its largest values; of the others all are ranked.
    return _decayed(series, origins, task, quantile, math.ceil(4 * (1 - quantile) * series.shape[1]) + 16)


def _decayed(series: Array, origins: Sequence[int], task: Task, quantile: float, count: int) -> list[Array]:
    """Return the same, found among the `count` largest values of each series where these weigh enough."""
    steps = series.shape[1]
    order = np.argpartition(series, -count, axis=1)[:, -count:] if count < steps else np.argsort(series, axis=1)
    ranked = np.take_along_axis(series, order, axis=1)
    # Equal values may come in any order: the quantile is the same.
    falling = np.argsort(-ranked, axis=1)
    order, ranked = np.take_along_axis(order, falling, axis=1), np.take_along_axis(ranked, falling, axis=1)
    # Relative weights are the same at every origin: what lies behind it gets none.
    weights = np.exp2(np.arange(1 - steps, 1) / (task.per_day * HALF_LIFE_DAYS))
    found, short = [], np.zeros(len(series), dtype=np.bool_)
    for origin in origins:
        seen = np.where(np.arange(steps) < origin, weights, 0.0)
        above = np.cumsum(seen[order], axis=1) > (1 - quantile) * seen.sum()
        found.append(np.take_along_axis(ranked, above.argmax(axis=1)[:, None], axis=1)[:, 0])
        short |= ~above[:, -1]
    if count < steps and short.any():
        # As of a series that falls: its largest values are old and weigh little.
        for level, whole in zip(found, _decayed(series[short], origins, task, quantile, steps), strict=True):
            level[short] = whole
    return found


def _level(past: Array, task: Task) -> Array:
    count = min(past.shape[1], max(2, round(3 * LEARNING_SECONDS / task.step_seconds)))
    age = np.arange(count - 1, -1, -1) * task.step_seconds
    weights = np.exp2(-age / (LEARNING_SECONDS / 3))
    return _flat((past[:, -count:] * weights).sum(axis=1) / weights.sum(), task)


def _reverting(past: Array, task: Task) -> Array:
    middle = _median(past)
    now = _level(past, task)[:, 0] - middle
    away = past - middle[:, None]
    spread = _mean_product(away, away)
    longest = min(task.horizon, past.shape[1] // 2)
    lags = sorted({min(2**power, longest) for power in range(longest.bit_length() + 1)})
    kept = np.stack([_mean_product(away[:, lag:], away[:, :-lag]) for lag in lags], axis=1)
    kept = np.clip(kept / np.where(spread > 0, spread, 1.0)[:, None], 0.0, 1.0)
    # What is forgotten stays forgotten: a season is the business of other models.
    kept = np.minimum.accumulate(kept, axis=1)
    ahead = np.arange(1, task.horizon + 1)
    between = np.stack([np.interp(ahead, lags, row) for row in np.eye(len(lags))])
    path: Array = np.maximum(middle[:, None] + now[:, None] * _combined(kept, between), 0.0)
    return path


def _median(rows: Array) -> Array:
    """Return (n,) the median of each row; `np.median` partitions for gaps too and takes twice as long."""
    half = rows.shape[1] // 2
    ranked = np.partition(rows, half, axis=1)
    upper = ranked[:, half]
    lower = upper if rows.shape[1] % 2 else ranked[:, :half].max(axis=1)
    found: Array = (lower + upper) / 2
    return found


def _mean_product(one: Array, other: Array) -> Array:
    """Return (n,) the mean over each row of the product, in one pass and without BLAS."""
    total: Array = np.einsum("ij,ij->i", one, other) / one.shape[1]
    return total


def _combined(coefficients: Array, rows: Array) -> Array:
    """Return the product of two matrices, summed in one order whatever library or number of threads there is."""
    total: Array = coefficients[:, :1] * rows[:1]
    product = np.empty_like(total)
    for index in range(1, len(rows)):
        total += np.multiply(coefficients[:, index : index + 1], rows[index : index + 1], out=product)
    return total


def _seasonal_naive(past: Array, task: Task) -> Array:
    return _repeated(past[:, -task.per_day :], task)


def _seasonal_median(past: Array, task: Task) -> Array:
    days = min(7, past.shape[1] // task.per_day)
    return _repeated(_median_of_few(np.split(past[:, -days * task.per_day :], days, axis=1)), task)


def _median_of_few(layers: Sequence[Array]) -> Array:
    """Return the median of a few arrays of one shape, place by place; their larger half is sorted, largest first."""
    ranked, spare = [layer.copy() for layer in layers], np.empty_like(layers[0])
    low, high = (len(ranked) - 1) // 2, len(ranked) // 2
    for last in range(len(ranked) - 1, low - 1, -1):
        for at in range(last):
            one, other = ranked[at : at + 2]
            np.minimum(one, other, out=spare)
            np.maximum(one, other, out=other)
            ranked[at], spare = spare, one
    found: Array = (ranked[low] + ranked[high]) / 2
    return found


def _weekly(past: Array, task: Task) -> Array:
    return _repeated(past[:, -7 * task.per_day :], task)


def _repeated(day: Array, task: Task) -> Array:
    path: Array = day[:, np.arange(task.horizon) % day.shape[1]]
    return path


def _waves(steps: Array, task: Task) -> Array:
    """Return (1 + 2 × harmonics, t): a constant, and sine and cosine of each daily wave."""
    angle = 2 * np.pi * np.arange(1, HARMONICS + 1)[:, None] * steps / task.per_day
    return np.concatenate([np.ones((1, len(steps))), np.sin(angle), np.cos(angle)])


def _harmonic(past: Array, task: Task) -> Array:
    steps = np.arange(-past.shape[1], 0, dtype=np.float64)
    design = _waves(steps, task)
    weighted = design * np.exp2(steps / (3 * task.per_day))
    gram = weighted @ design.T
    gram += RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
    fit = past @ np.linalg.solve(gram, weighted).T
    ahead = _waves(np.arange(task.horizon, dtype=np.float64), task)
    return np.maximum(_combined(fit, ahead), 0.0)


def _holt_winters(series: Array, origins: Sequence[int], task: Task) -> list[Array]:
    day = task.per_day
    steps = np.ascontiguousarray(series[:, : max(origins)].T)
    level = steps[:day].mean(axis=0)
    season = steps[:day] - level
    found: dict[int, Array] = {}
    for at in range(day, len(steps) + 1):
        if at in origins:
            slots = (at + np.arange(task.horizon)) % day
            found[at] = np.maximum(level + season[slots], 0.0).T
        if at < len(steps):
            error = steps[at] - level - season[at % day]
            level = level + ALPHA * error
            season[at % day] += GAMMA * error
    return [found[origin] for origin in origins]


MODELS: Final[tuple[Model, ...]] = (
    Model("histogram", _histogram, is_quantile=True),
    Model("thesis", _at_each(_thesis)),
    Model("level", _at_each(_level)),
    Model("reverting", _at_each(_reverting)),
    Model("seasonal-naive", _at_each(_seasonal_naive), days=2.0),
    Model("seasonal-median", _at_each(_seasonal_median), days=2.0),
    Model("weekly", _at_each(_weekly), days=14.0),
    Model("harmonic", _at_each(_harmonic), days=2.0),
    Model("holt-winters", _holt_winters, days=2.0),
)
"""The cheap family."""
