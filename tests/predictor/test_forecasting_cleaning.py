"""Cleaning: what cannot be is a gap, gaps are filled from before, and broken metrics are noticed."""

from __future__ import annotations

import numpy as np
import pytest

from kinema_predictor.forecasting.cleaning import breaks, clean
from kinema_predictor.forecasting.task import Task

NAN = float("nan")
TASK = Task(horizon=48, step_seconds=1800.0, quantile=0.95)


@pytest.mark.parametrize("wrong", [NAN, float("inf"), float("-inf"), -1.0, 1e18, 8001.0])
def test_what_cannot_be_is_a_gap(wrong: float) -> None:
    """Not a number, infinite, negative, or above twice the largest node: the value before stands in its place."""
    found = clean(np.array([[100.0, wrong, 300.0]]), capacity=4000.0)
    assert found.values.tolist() == [[100.0, 100.0, 300.0]]
    assert found.coverage[0] == pytest.approx(2 / 3)
    assert found.dropped[0] == (0 if np.isnan(wrong) else 1)


def test_twice_the_largest_node_is_believed() -> None:
    """Usage above a node's allocatable happens between two readings: up to twice of it is kept."""
    assert clean(np.array([[8000.0]]), capacity=4000.0).values[0, 0] == 8000.0


def test_age_counts_from_the_first_sample_and_silence_from_the_last() -> None:
    """What lies before the first sample is no gap; what has come since the last one is."""
    found = clean(np.array([[NAN, NAN, 5.0, 6.0, NAN], [NAN] * 5]), capacity=10.0)
    assert found.age.tolist() == [3, 0]
    assert found.silent.tolist() == [1, 5]
    assert found.coverage.tolist() == [pytest.approx(2 / 3), 0.0]
    assert found.values[0].tolist() == [0.0, 0.0, 5.0, 6.0, 6.0]


def test_nothing_later_fills_a_gap() -> None:
    """A gap is filled from before, so that a back-test at its place knows nothing of what came."""
    values = clean(np.array([[1.0, NAN, NAN, 9.0]]), capacity=10.0).values
    assert values[0].tolist() == [1.0, 1.0, 1.0, 9.0]


@pytest.mark.parametrize(("now", "times"), [(1000.0, 10.0), (4000.0, 40.0), (1.0, 100.0), (100.0, 1.0), (150.0, 1.5)])
def test_another_order_of_magnitude_is_a_break(now: float, times: float) -> None:
    """Forty times, or a hundredth, of anything of the day before says so; half as much again says 1.5."""
    series = np.full((1, 96), 100.0)
    series[0, -2:] = now
    assert breaks(series, TASK)[0] == pytest.approx(times)


def test_a_new_level_is_believed_after_a_day() -> None:
    """When the jump lies more than a day back, nothing is broken any more."""
    series = np.full((1, 150), 100.0)
    series[0, -60:] = 5000.0
    assert breaks(series, TASK)[0] == 1.0


def test_a_job_that_rests_is_not_broken() -> None:
    """Where the day before had both work and rest, rest is nothing new."""
    series = np.zeros((1, 96))
    series[0, 20:40] = 900.0
    assert breaks(series, TASK)[0] == 1.0
