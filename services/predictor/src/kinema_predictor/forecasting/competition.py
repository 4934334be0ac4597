"""The choice between models: rolling-origin back-test, calibration, and a band for what is to come.

Every model forecasts from the same origins in the past. What came after an origin is compared with the forecast that
was possible at it, so the newest origin lies a whole horizon before now. Errors of newer folds count for more: their
weight halves with every horizon, or every three days where the horizon is a day, as two days of a weekend must not
decide on Monday. A weight is a stride: of an older fold fewer steps are taken.

Calibration is split conformal prediction (Vovk et al. 2005; Romano et al. 2019 for models of quantiles): the quantile
of the errors is added to the path. The loss of a model in a fold is the pinball loss of the path so corrected, at the
quantile that is provisioned; its loss in the back-test is the geometric mean over the folds (Davydenko, Fildes 2013).
What no model saw coming is most of the loss of all of them in its fold: in an arithmetic mean it hides how they differ
in every other one.

The forecast is the mean of the models that the best one does not beat by a margin. A model that took part before leaves
later than a new one enters, so that noise changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinema_predictor.forecasting.models import MODELS, Model
from kinema_predictor.forecasting.task import Array, Task

FOLDS: Final = 8
"""At most; the distance between two origins is half a horizon."""
LEAST_FOLDS: Final = 3
HALF_LIFE_DAYS: Final = 3.0
"""Of the weight of a fold, where the horizon is a day; else its half-life is the horizon."""
ENTER: Final = 0.20
"""A model takes part when its loss is at most this share above the best one's,"""
LEAVE: Final = 0.30
"""and takes part no longer when it is this share above it."""
ALIKE: Final = 0.1
"""Losses in a fold that are less than this share of the best model's mean loss apart are hardly a difference."""
SPREAD: Final = 64
"""Quantiles by which errors are described."""
DRIFT: Final = 0.20
"""Share of the allowed excess that calibration leaves unused: the days to come differ from those of the folds."""


@dataclass(frozen=True)
class Outcome:
    """Result of a competition of m models on n series."""

    models: tuple[str, ...]
    """By name, those that had enough history."""
    losses: Array
    """(n, m) geometric mean over the folds of the pinball loss, in the unit of the series."""
    offsets: Array
    """(n, m) what calibration adds to a path."""
    chosen: NDArray[np.bool_]
    """(n, m) models whose mean is the forecast."""
    above: Array
    """(n,) share of the back-test's steps above the forecast: how well it is calibrated."""
    spread: Array
    """(n, k) evenly spread quantiles of the truth less the forecast."""
    folds: int


def fitted(task: Task, steps: int) -> Task:
    """Return the task with a horizon for which so much history has folds: at most a quarter of it."""
    return Task(max(1, min(task.horizon, steps // 4)), task.step_seconds, task.quantile)


def origins_of(task: Task, steps: int, days: float = 0.0) -> tuple[int, ...]:
    """Return the origins of the folds, newest first, none of them with less history than `days` or a horizon."""
    least = max(days * task.per_day, task.horizon, 2)
    shift = max(1, task.horizon // 2)
    return tuple(origin for origin in range(steps - task.horizon, 0, -shift)[:FOLDS] if origin >= least)


def entrants(task: Task, steps: int, models: Sequence[Model] = MODELS) -> tuple[Model, ...]:
    """Return the models that can be judged on so much history."""
    return tuple(model for model in models if len(origins_of(task, steps, model.days)) >= LEAST_FOLDS)


def compete(
    series: Array, task: Task, before: Sequence[frozenset[str]] = (), models: Sequence[Model] = MODELS
) -> Outcome:
    """Judge the models on series (n, t) without gaps, of which `fitted` gave the task.

    Args:
        series: the past, oldest first.
        task: as `fitted` returns it.
        before: for each series the models chosen the last time; empty where there was none.
        models: the candidates.

    Raises:
        ValueError: the series are too short for any model.
    """
    able = entrants(task, series.shape[1], models)
    if not able:
        raise ValueError(f"{series.shape[1]} steps are too few for a back-test of {task.horizon} steps")
    origins = origins_of(task, series.shape[1], max(model.days for model in able))
    strides = _strides(task, len(origins))
    truth = _sampled([series[:, origin : origin + task.horizon] for origin in origins], strides)
    losses, offsets, forecasts = [], [], []
    for model in able:
        path = _sampled(model.paths(series, origins, task), strides)
        offset = _offset(truth - path, task.quantile, as_is=model.is_quantile)
        forecast = path + offset[:, None]
        losses.append(pinball(truth - forecast, task.quantile))
        offsets.append(offset)
        forecasts.append(forecast)
    loss = typical_loss(np.stack(losses, axis=1), [-(-task.horizon // stride) for stride in strides], truth)
    chosen = _choice(loss, [model.name for model in able], before)
    total = np.zeros_like(truth)
    for index, forecast in enumerate(forecasts):
        total += np.where(chosen[:, index, None], forecast, 0.0)
    errors = truth - total / chosen.sum(axis=1)[:, None]
    return Outcome(
        models=tuple(model.name for model in able),
        losses=loss,
        offsets=np.stack(offsets, axis=1),
        chosen=chosen,
        above=(errors > 0).mean(axis=1),
        spread=_spread(errors),
        folds=len(origins),
    )


def _spread(errors: Array) -> Array:
    """Return (n, k) the quantiles of each row at the middles of k equal shares."""
    ranked = np.sort(errors, axis=1)
    places = ((np.arange(SPREAD) + 0.5) / SPREAD * errors.shape[1]).astype(np.intp)
    return ranked[:, places]


def level_for(upper: Array, spread: Array, quantile: float, *, unused: float = DRIFT) -> Array:
    """Return (n,) the constant level that at most 1 − quantile of all steps ahead is expected to exceed.

    Args:
        upper: (n, horizon) the forecast.
        spread: (n, k) of the same competition: what may come is the forecast of a step plus any of these.
        quantile: the share of steps to be covered.
        unused: share of the allowed excess that is left unused.
    """
    thinned = upper[:, :: max(1, upper.shape[1] // 96)]
    possible = (thinned[:, :, None] + spread[:, None, :]).reshape(len(upper), -1)
    return np.maximum(upper_quantile(possible, quantile + unused * (1 - quantile)), 0.0)


def _strides(task: Task, folds: int) -> list[int]:
    """Return for each fold, newest first, of how many steps one counts: it doubles with every half-life back."""
    half_life = 1.0 if task.horizon < task.per_day else max(1.0, HALF_LIFE_DAYS * task.per_day / task.horizon)
    return [max(1, min(task.horizon, round(2 ** (index / 2 / half_life)))) for index in range(folds)]


def _sampled(folds: Sequence[Array], strides: Sequence[int]) -> Array:
    """Return of each fold every k-th step, by its stride k, side by side."""
    return np.concatenate([fold[:, ::stride] for fold, stride in zip(folds, strides, strict=True)], axis=1)


def pinball(errors: Array, quantile: float) -> Array:
    """Return the loss of errors (truth minus forecast) of a forecast of that quantile (Koenker, Bassett 1978)."""
    return np.maximum(quantile * errors, (quantile - 1) * errors)


def _offset(errors: Array, quantile: float, *, as_is: bool) -> Array:
    """Return (n,) what to add to the paths."""
    offset = upper_quantile(errors, quantile + DRIFT * (1 - quantile))
    if as_is:
        # A model of the quantile has seen more than the folds: correcting it has to pay by the margin.
        loss = pinball(errors - offset[:, None], quantile).mean(axis=1)
        offset = np.where(pinball(errors, quantile).mean(axis=1) <= (1 + ENTER) * loss, 0.0, offset)
    return offset


def typical_loss(losses: Array, sizes: Sequence[int], truth: Array) -> Array:
    """Return (n, m) the geometric mean over folds of the mean loss in each; a fold weighs by its steps.

    Args:
        losses: (n, m, k) of every step, fold after fold.
        sizes: steps of each fold.
        truth: (n, k), of which a millionth is no loss.
    """
    counts = np.array(sizes, dtype=np.float64)
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    by_fold = np.add.reduceat(losses, begins, axis=2) / counts
    best = losses.mean(axis=2).min(axis=1)
    floor = np.maximum(ALIKE * best, np.maximum(1e-6 * truth.mean(axis=1), 1e-12))[:, None, None]
    found: Array = np.exp((np.log(by_fold + floor) * (counts / counts.sum())).sum(axis=2)) / (1 + ALIKE)
    return found


def upper_quantile(rows: Array, quantile: float) -> Array:
    """Return (n,) the smallest value of each row that at least this share of it does not exceed."""
    count = rows.shape[1]
    place = min(count - 1, max(0, int(np.ceil(quantile * count - 1e-9)) - 1))
    return np.partition(rows, place, axis=1)[:, place]


def _choice(losses: Array, names: Sequence[str], before: Sequence[frozenset[str]]) -> NDArray[np.bool_]:
    """Return (n, m) the models that the best one does not beat by the margin."""
    best = losses.min(axis=1, keepdims=True)
    limit = np.full_like(losses, 1 + ENTER)
    for row, chosen in enumerate(before):
        if chosen:
            limit[row] = [1 + (LEAVE if name in chosen else ENTER) for name in names]
    found: NDArray[np.bool_] = losses <= best * limit
    return found


def band(
    series: Array, task: Task, offsets: Array, chosen: NDArray[np.bool_], models: Sequence[Model]
) -> tuple[Array, Array]:
    """Return the forecast from now on: (n, horizon) the middle of the models chosen, and (n, horizon) the upper edge.

    Args:
        series: (n, t) the past without gaps.
        task: horizon and quantile.
        offsets: (n, m) from a competition, now or some time ago.
        chosen: (n, m) from the same.
        models: the m models, in the order of the columns.
    """
    shape = (len(series), task.horizon)
    middle, upper = np.zeros(shape), np.zeros(shape)
    for index, model in enumerate(models):
        taken = chosen[:, index]
        if taken.any():
            # Where most rows need it, the forecast of all of them is quicker than a copy of those.
            rows = slice(None) if taken.mean() > 0.5 else np.flatnonzero(taken)
            path = model.paths(series[rows], (series.shape[1],), task)[0]
            edge = path + offsets[rows, index, None]
            middle[rows] += np.where(taken[rows, None], path, 0.0)
            upper[rows] += np.where(taken[rows, None], np.maximum(edge, 0.0, out=edge), 0.0)
    count = np.maximum(chosen.sum(axis=1), 1)[:, None]
    return middle / count, upper / count
