"""What a solve tells on standard error."""

from __future__ import annotations

import pytest

from kinema_cli.plan.progress import in_a_line, told
from kinema_optimizer.search.progress import Progress

FIRST = Progress("start", 2_000_000, 0, 0)


def test_line_names_phase_incumbent_bound_gap_and_moves() -> None:
    """Costs are in the objective's unit; without a bound there is no gap."""
    assert in_a_line(FIRST, "USD/h") == "start: 2.0000 USD/h, bound none yet, 0 moves"
    single = Progress("start", 2_000_000, 0, 1)
    assert in_a_line(single, "USD/h") == "start: 2.0000 USD/h, bound none yet, 1 move"
    later = Progress("search", 1_010_000, 1_000_000, 1234)
    assert in_a_line(later, "W") == "search: 1.0100 W, bound 1.0000, gap 1.00%, 1,234 moves"


def test_pipe_gets_the_first_line_at_once_and_then_one_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """Improvements that follow each other within a second do not fill a log."""
    seconds = iter([0.0, 0.0, 0.2, 0.9, 1.1, 1.2, 9.0])
    with told("planning", "USD/h", clock=lambda: next(seconds)) as report:
        for cost in (6, 5, 4, 3, 2, 1):
            report(Progress("search", cost * 1_000_000, 1_000_000, 0))
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split()[1] for line in err.splitlines()[1:]] == ["6.0000", "3.0000", "1.0000"]


def test_bar_of_a_name_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """What is said is printed as it is."""
    with told("planning [red]", "USD/h"):
        pass
    assert "planning [red]" in capsys.readouterr().err
