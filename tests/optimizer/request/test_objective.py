"""The objective by time of the week."""

from __future__ import annotations

from datetime import UTC, datetime, time

import msgspec
import pytest

from kinema_optimizer.request.objective import Objective, Window, objective_at

OFFICE = Window(
    days=("mon", "tue", "wed", "thu", "fri"),
    start=time(8),
    end=time(20),
    time_zone="Europe/Berlin",
    max_utilization_percent=60,
)


@pytest.mark.parametrize(
    ("now", "percent"),
    [
        (datetime(2026, 3, 2, 6, 59, 59, tzinfo=UTC), 100),  # Monday 07:59:59 in Berlin
        (datetime(2026, 3, 2, 7, 0, tzinfo=UTC), 60),
        (datetime(2026, 3, 2, 18, 59, 59, tzinfo=UTC), 60),
        (datetime(2026, 3, 2, 19, 0, tzinfo=UTC), 100),
        (datetime(2026, 3, 7, 12, 0, tzinfo=UTC), 100),  # Saturday
        (datetime(2026, 7, 6, 6, 0, tzinfo=UTC), 60),  # summer time: 08:00 in Berlin
    ],
)
def test_a_window_holds_from_its_start_to_before_its_end_in_local_time(now: datetime, percent: int) -> None:
    """By day the ceiling holds, at night and at weekends cost alone counts."""
    assert objective_at([OFFICE], now).percent == percent


def test_a_window_over_midnight_belongs_to_the_day_it_begins_on() -> None:
    """Friday 22:00 to 06:00 holds on Saturday at 05:59, not on Friday at 05:59."""
    window = Window(days=("fri",), start=time(22), end=time(6), max_utilization_percent=50)
    assert objective_at([window], datetime(2026, 3, 7, 5, 59, tzinfo=UTC)).percent == 50
    assert objective_at([window], datetime(2026, 3, 6, 5, 59, tzinfo=UTC)).percent == 100
    assert objective_at([window], datetime(2026, 3, 6, 22, 0, tzinfo=UTC)).percent == 50


def test_the_first_window_that_contains_the_moment_counts() -> None:
    """Special hours stand before general ones; equal start and end mean the whole day."""
    always = Window(max_utilization_percent=80)
    assert objective_at([OFFICE, always], datetime(2026, 3, 2, 12, tzinfo=UTC)).percent == 60
    assert objective_at([OFFICE, always], datetime(2026, 3, 1, 12, tzinfo=UTC)).percent == 80
    assert objective_at([], datetime(2026, 3, 1, 12, tzinfo=UTC)) == Objective()


def test_objectives_are_named() -> None:
    """Plans say what was optimized."""
    assert Objective().text == "cost"
    assert Objective(60).text == "cost, utilization at most 60%"


@pytest.mark.parametrize(
    ("field", "value"),
    [("time_zone", "Mars/Base"), ("max_utilization_percent", 0), ("days", ["monday"]), ("start", "25:00:00")],
)
def test_windows_that_make_no_sense_are_refused_by_name(field: str, value: object) -> None:
    """The error names the field."""
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: value}, Window)
