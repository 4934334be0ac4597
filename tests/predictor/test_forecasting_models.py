"""Models of usage: what each of them says of series that are known by heart, and that none looks ahead."""

from __future__ import annotations

import numpy as np
import pytest

from kinema_predictor.forecasting.models import MODELS, Model, decayed_quantiles, mean_ahead
from kinema_predictor.forecasting.task import Array, Task

DAY = 48
TASK = Task(horizon=DAY, step_seconds=1800.0, quantile=0.95)
BY_NAME = {model.name: model for model in MODELS}


def ahead(name: str, series: Array, task: Task = TASK) -> Array:
    """Return the model's path from the end of the series."""
    return BY_NAME[name].paths(series, (series.shape[1],), task)[0]


def wave(days: int) -> Array:
    """Return one series with a daily wave around 100."""
    return 100 + 40 * np.sin(np.arange(days * DAY) / DAY * 2 * np.pi)[None]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_constant_is_its_own_forecast(model: Model) -> None:
    """Every model forecasts usage that never changes as it is."""
    series = np.full((2, 3 * DAY), 250.0)
    assert model.paths(series, (3 * DAY,), TASK)[0] == pytest.approx(np.full((2, DAY), 250.0), rel=1e-3)


def test_a_week_is_repeated() -> None:
    """What the weekly model forecasts for a Monday is the Monday before, whatever the weekend was."""
    series = np.concatenate([np.full(DAY, 10.0 * day) for day in range(1, 15)])[None]
    assert ahead("weekly", series)[0].tolist() == [80.0] * DAY


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_no_model_sees_what_lies_behind_an_origin(model: Model) -> None:
    """Whatever comes after an origin, the forecast at it stays the same."""
    rng = np.random.default_rng(3)
    series = rng.gamma(2.0, 50.0, (3, 5 * DAY))
    other = series.copy()
    other[:, 3 * DAY :] = 1e6
    origins = (4 * DAY, 3 * DAY)
    then, now = (model.paths(one, origins, TASK)[1] for one in (series, other))
    assert np.array_equal(then, now)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_row_is_forecast_alike_in_any_batch(model: Model) -> None:
    """A series has the same forecast alone and among others, to twelve digits: a batch may be cut anywhere."""
    series = np.random.default_rng(4).gamma(2.0, 50.0, (7, 4 * DAY))
    whole = model.paths(series, (4 * DAY,), TASK)[0]
    alone = model.paths(series[5:6], (4 * DAY,), TASK)[0]
    assert whole[5] == pytest.approx(alone[0], rel=1e-12)


@pytest.mark.parametrize("name", ["seasonal-naive", "seasonal-median", "harmonic", "holt-winters"])
def test_a_season_is_continued(name: str) -> None:
    """A daily wave goes on as a wave, within a twentieth of its height."""
    assert ahead(name, wave(6)) == pytest.approx(wave(1), abs=4.0)


def test_the_line_of_the_thesis_is_extrapolated_to_the_middle_of_its_horizon() -> None:
    """Usage that rises by 10 a step of five minutes is forecast as its mean over the next 15 minutes: 2 steps on."""
    series = np.arange(0.0, 120.0, 10.0)[None]
    task = Task(horizon=4, step_seconds=300.0, quantile=0.95)
    assert ahead("thesis", series, task)[0].tolist() == pytest.approx([130.0] * 4)
    seconds = np.array([-40.0, -30.0, -20.0, -10.0])
    assert mean_ahead(seconds, np.array([[60.0], [70.0], [80.0], [90.0]]), 60.0)[0] == pytest.approx(130.0)


def test_the_histogram_halves_what_is_a_day_older() -> None:
    """One day at 10 and the next at 20 weigh one to two: 20 is the median, and the 30th percentile is 10."""
    series = np.concatenate([np.full(DAY, 10.0), np.full(DAY, 20.0)])[None]
    assert decayed_quantiles(series, (2 * DAY,), TASK, 0.30)[0][0] == 10.0
    assert decayed_quantiles(series, (2 * DAY,), TASK, 0.35)[0][0] == 20.0


@pytest.mark.parametrize("kind", ["alike", "rising", "falling", "of few values"])
@pytest.mark.parametrize("quantile", [0.5, 0.95, 0.999])
def test_the_histogram_is_the_weighted_quantile_of_all_values(kind: str, quantile: float) -> None:
    """At each origin it is the smallest value that so much of the weight does not exceed, wherever large values lie."""
    drawn = np.random.default_rng(6).gamma(2.0, 50.0, (4, 8 * DAY))
    series = {
        "alike": drawn,
        "rising": np.sort(drawn, axis=1),
        "falling": np.sort(drawn, axis=1)[:, ::-1],
        "of few values": np.round(drawn / 50) * 50,
    }[kind]
    origins = (8 * DAY, 7 * DAY, 5 * DAY)
    for origin, found in zip(origins, decayed_quantiles(series, origins, TASK, quantile), strict=True):
        weights = np.exp2(np.arange(origin) / DAY)
        for row, value in zip(series[:, :origin], found, strict=True):
            reached = [one for one in row if weights[row <= one].sum() >= quantile * weights.sum()]
            assert value == min(reached)


@pytest.mark.parametrize("days", [2, 3, 6, 7])
def test_the_day_in_the_middle_is_the_median_at_each_time_of_day(days: int) -> None:
    """Every time of day is forecast by its median over the known days, or the mean of the two in the middle."""
    series = np.random.default_rng(7).gamma(2.0, 50.0, (3, days * DAY))
    assert np.array_equal(ahead("seasonal-median", series), np.median(series.reshape(3, days, DAY), axis=1))


def test_what_lies_far_off_reverts_to_the_middle() -> None:
    """Noise that keeps little of itself is forecast near its level first, near its median a day later."""
    rng = np.random.default_rng(5)
    noise: Array = np.zeros(20 * DAY)
    for at in range(1, len(noise)):
        noise[at] = 0.8 * noise[at - 1] + rng.normal()
    series = 100 + noise[None]
    series[0, -3:] = 120.0
    path = ahead("reverting", series)[0]
    assert path[0] > 108
    assert abs(path[-1] - 100) < 2
