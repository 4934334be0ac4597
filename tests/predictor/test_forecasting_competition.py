"""The back-test and the choice: origins, calibration, margin, hysteresis, and bands that hold."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from kinema_predictor.forecasting.competition import (
    ENTER,
    LEAVE,
    band,
    compete,
    entrants,
    fitted,
    origins_of,
    pinball,
    typical_loss,
    upper_quantile,
)
from kinema_predictor.forecasting.models import MODELS
from kinema_predictor.forecasting.task import Array, Task

DAY = 48
TASK = Task(horizon=DAY, step_seconds=1800.0, quantile=0.95)


def seasonal(rows: int, days: int, seed: int = 1) -> Array:
    """Return series with a daily wave and noise."""
    rng = np.random.default_rng(seed)
    steps = np.arange(days * DAY)
    return 200 + 100 * np.sin(steps / DAY * 2 * np.pi) + rng.normal(0, 5, (rows, len(steps)))


def test_the_newest_origin_lies_a_horizon_back() -> None:
    """What followed an origin is known a horizon later: none is nearer to now, and folds overlap by half."""
    assert origins_of(TASK, 7 * DAY) == tuple(DAY * 6 - DAY // 2 * index for index in range(8))
    assert min(origins_of(TASK, 7 * DAY, days=2.0)) >= 2 * DAY


def test_a_seasonal_model_needs_three_folds_after_two_days() -> None:
    """With three and a half days no seasonal model competes; with four days all but the weekly one do."""
    names = {model.name for model in entrants(TASK, int(3.5 * DAY))}
    assert "histogram" in names
    assert "holt-winters" not in names
    assert len(entrants(TASK, 4 * DAY)) == len(MODELS) - 1
    assert len(entrants(TASK, 16 * DAY)) == len(MODELS)


def test_a_short_history_has_a_short_horizon() -> None:
    """A day of data is judged six hours ahead, as a forecast for a day has no folds in it."""
    assert fitted(TASK, DAY).horizon == DAY // 4
    assert compete(seasonal(1, 1), fitted(TASK, DAY)).folds >= 3


def test_too_little_history_is_an_error() -> None:
    """Three steps cannot be judged on, and the error says how many there were."""
    with pytest.raises(ValueError, match="3 steps are too few"):
        compete(np.ones((1, 3)), TASK)


def test_pinball_charges_the_side_of_the_quantile() -> None:
    """At the 95th percentile a unit too little costs 19 times a unit too much."""
    assert pinball(np.array([1.0, -1.0]), 0.95).tolist() == pytest.approx([0.95, 0.05])


def test_the_upper_quantile_is_a_value_that_the_share_does_not_exceed() -> None:
    """Of 1 to 20 the 95th percentile is 19: one in twenty lies above."""
    assert upper_quantile(np.arange(1.0, 21.0)[None], 0.95)[0] == 19.0


def test_a_seasonal_series_is_won_by_seasonal_models() -> None:
    """No level or histogram takes part where a day repeats, and the band is far below the day's peak at night."""
    series = seasonal(3, 7)
    outcome = compete(series, TASK)
    names = set(np.array(outcome.models)[outcome.chosen.any(axis=0)])
    assert names <= {"seasonal-naive", "seasonal-median", "harmonic", "holt-winters"}
    _, upper = band(series, TASK, outcome.offsets, outcome.chosen, entrants(TASK, series.shape[1]))
    assert upper.min() < 130
    assert upper.max() > 290


def test_the_best_model_always_takes_part() -> None:
    """Whatever the series, the model with the least loss is among those chosen."""
    series = np.random.default_rng(2).gamma(1.5, 40.0, (20, 7 * DAY))
    outcome = compete(series, TASK)
    assert outcome.chosen[np.arange(20), outcome.losses.argmin(axis=1)].all()


def test_a_model_enters_below_one_margin_and_leaves_above_another() -> None:
    """One that took part stays up to 30% behind the best; one that did not comes in within 20%."""
    series = np.random.default_rng(6).gamma(1.5, 40.0, (40, 7 * DAY))
    outcome = compete(series, TASK)
    behind = outcome.losses / outcome.losses.min(axis=1, keepdims=True)
    assert np.array_equal(outcome.chosen, behind <= 1 + ENTER)
    between = (behind > 1 + ENTER) & (behind <= 1 + LEAVE)
    assert between.any()
    everyone = compete(series, TASK, [frozenset(outcome.models)] * 40)
    assert np.array_equal(everyone.chosen, behind <= 1 + LEAVE)


def test_the_band_covers_its_share_of_the_next_day() -> None:
    """On 60 stationary series between 3% and 7% of the steps of the day to come lie above the 95% band."""
    rng = np.random.default_rng(7)
    whole = 200 + 100 * np.sin(np.arange(8 * DAY) / DAY * 2 * np.pi) + rng.normal(0, 20, (60, 8 * DAY))
    past, truth = whole[:, : 7 * DAY], whole[:, 7 * DAY :]
    outcome = compete(past, TASK)
    _, upper = band(past, TASK, outcome.offsets, outcome.chosen, entrants(TASK, past.shape[1]))
    assert 0.03 <= (truth > upper).mean() <= 0.07


def test_a_level_shift_is_forgotten_by_the_band() -> None:
    """Three days after usage has doubled, no trace of the error of that day is left in the band."""
    series = np.concatenate([np.full((1, 4 * DAY), 100.0), np.full((1, 5 * DAY), 200.0)], axis=1)
    outcome = compete(series, TASK)
    _, upper = band(series, TASK, outcome.offsets, outcome.chosen, entrants(TASK, series.shape[1]))
    assert upper.max() < 230


def _bytes(threads: str) -> bytes:
    code = (
        "import numpy as np;from kinema_predictor.forecasting.competition import band, compete;"
        "from kinema_predictor.forecasting.models import MODELS;from kinema_predictor.forecasting.task import Task;"
        "from kinema_predictor.threads import one_thread;import sys;"
        "series=np.random.default_rng(8).gamma(2.0,50.0,(400,2016));task=Task(288,300.0,0.95);limits=one_thread();"
        "limits.__enter__();found=compete(series,task);able=[m for m in MODELS if m.name in found.models];"
        "upper=band(series,task,found.offsets,found.chosen,able)[1];"
        "sys.stdout.buffer.write(upper.tobytes()+found.losses.tobytes())"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout


@pytest.mark.slow
def test_one_thread_and_eight_give_the_same_bytes() -> None:
    """Threads are fixed in the process: an environment that asks for eight changes no bit."""
    assert _bytes("1") == _bytes("8")


def test_a_surprise_to_all_models_does_not_hide_how_they_differ() -> None:
    """Losses of 1, 1, 10 and of 2, 2, 10 are 17% apart in the mean, within the margin; typical losses are 43% apart.

    The floor is a tenth of the better mean: (2.4² × 10.4) / (1.4² × 10.4), to the power 1/3.
    """
    first, second = (np.repeat([low, low, 10.0], 2) for low in (1.0, 2.0))
    losses = np.stack([first, second])[None]
    found = typical_loss(losses, [2, 2, 2], truth=np.full((1, 6), 50.0))[0]
    assert found[1] / found[0] == pytest.approx((2.4 / 1.4) ** (2 / 3))
    assert found[1] / found[0] > 1 + LEAVE


def test_a_loss_that_is_the_same_in_all_folds_is_the_typical_one() -> None:
    """Folds weigh by their steps, and one without any loss does not make a model perfect."""
    same = np.full((1, 1, 6), 3.0)
    assert typical_loss(same, [4, 2], truth=np.ones((1, 6)))[0, 0] == pytest.approx(3.0)
    losses = np.array([[[0.0] * 6, [0.0, 0.0, 0.0, 0.0, 5.0, 5.0]]])
    perfect, other = typical_loss(losses, [4, 2], truth=np.ones((1, 6)))[0]
    assert other > 100 * perfect
