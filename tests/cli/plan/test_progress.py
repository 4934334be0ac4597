"""Progress of a solve on standard error."""

from __future__ import annotations

import pytest
from rich.console import Console

from kinema_cli.output import cell, print_error, print_hint, print_note, print_warning, show, table
from kinema_cli.plan.progress import _Line, progress_line, solve_progress
from kinema_optimizer.planning.planner import Watch
from kinema_optimizer.problem.solution import NamedSolution, Progress
from kinema_optimizer.solvers.stopping import WorkStop

FIRST = Progress("start", 2_000_000, 0, 0)


def test_line_names_incumbent_bound_gap_and_moves() -> None:
    """Costs are in the objective's unit; without a bound there is no gap."""
    assert progress_line(FIRST, "USD/h") == "$2.00/h  no bound yet  0 moves"
    later = Progress("search", 1_010_000, 1_000_000, 1234)
    assert progress_line(later, "USD/h") == "$1.01/h  bound $1.00/h  gap 1.0%  1,234 moves"
    assert progress_line(later, "W") == "1.0 W  bound 1.0 W  gap 1.0%  1,234 moves"


def test_a_further_solve_that_begins_worse_does_not_take_the_plan_back() -> None:
    """Its incumbent is not the plan's: what was found before is reported on, and cannot be kept twice."""
    told: list[Progress] = []
    report = Watch().reporting(told.append, WorkStop(1))
    answer = NamedSolution({}, {}, (), frozenset(), ())
    plan = Progress("exact", 470_000, 370_000, 20, answer=lambda: answer)
    for news in (plan, Progress("start", 1_550_000, 350_000, 0, answer=lambda: answer)):
        report(news)
    assert [(one.cost, one.bound, one.moves) for one in told] == [(470_000, 370_000, 20)] * 2
    assert [one.answer is None for one in told] == [False, True]


def test_the_line_fits_a_narrow_terminal() -> None:
    """A line that wraps cannot be drawn again in its place."""
    line = _Line("30s", "USD/h", lambda: 0.0)
    line.update(Progress("search", 1_010_000, 1_000_000, 1234))
    (drawn,) = Console(width=40).render_lines(line, pad=False)
    assert "".join(part.text for part in drawn) == "Solving  0s/30s  $1.01/h  bound $1.00/h…"


def test_pipe_gets_the_first_line_at_once_and_then_one_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """Improvements that follow each other within a second do not fill a log."""
    now = [0.0]
    with solve_progress("planning", limit="30s", unit="USD/h", clock=lambda: now[0]) as report:
        for cost, moment in ((6, 0.0), (5, 0.2), (4, 0.9), (3, 1.1), (2, 1.2), (1, 9.0)):
            now[0] = moment
            report(Progress("search", cost * 1_000_000, 1_000_000, 0))
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split()[2] for line in err.splitlines()[1:]] == ["$6.00/h", "$3.00/h", "$1.00/h"]


def test_text_of_users_is_no_markup_and_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    """Names and paths are printed as they are, in every kind of message."""
    given = "plans/:x:/[red]a[/red].csv"
    with solve_progress(given, limit="30s", unit="USD/h"):
        pass
    for print_message in (print_error, print_warning, print_hint, print_note):
        print_message(given)
    show(cell(given), table(given, [given], [[given]]))
    found = capsys.readouterr()
    assert found.err.count(given) == 5
    assert found.out.count(given) == 4
