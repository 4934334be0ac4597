"""Progress of a solve on standard error: one live line on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.live import Live
from rich.text import Text

from kinema_cli.output import cell, console, counted, hourly, percent, print_note
from kinema_optimizer.problem.solution import Progress, Report

SECONDS: Final = 1.0
"""Between two lines where no terminal shows them."""
_MICRO: Final = 1_000_000


@contextmanager
def solve_progress(
    begin: str, *, limit: str, unit: str, clock: Callable[[], float] = time.monotonic
) -> Iterator[Report]:
    """Print what begins, and yield the function that reports progress.

    Args:
        begin: what is solved.
        limit: when it ends, as `30s`.
        unit: of costs, `USD/h` or `W`.
        clock: seconds.
    """
    screen, line = console(stderr=True), _Line(limit, unit, clock)
    print_note(begin)
    if screen.is_terminal:
        with Live(line, console=screen, transient=True, refresh_per_second=4):
            yield line.update
    else:
        yield line.print


class _Line:
    """The newest progress; as a renderable it fits one line of any width."""

    def __init__(self, limit: str, unit: str, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._unit = unit
        self._clock = clock
        self._began = self._next = clock()
        self._newest: Progress | None = None

    def update(self, progress: Progress) -> None:
        """Take the newest progress."""
        self._newest = progress

    def print(self, progress: Progress) -> None:
        """Print it at most once per `SECONDS`; the first at once."""
        self.update(progress)
        if self._clock() >= self._next:
            self._next = self._clock() + SECONDS
            print_note(self._text())

    def _text(self) -> str:
        begin = f"Solving  {self._clock() - self._began:.0f}s/{self._limit}"
        return begin if self._newest is None else f"{begin}  {progress_line(self._newest, self._unit)}"

    def __rich__(self) -> Text:
        text = cell(self._text())
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


def progress_line(progress: Progress, unit: str) -> str:
    """Return incumbent, bound, gap and moves in a line."""

    def amount(micro: int) -> str:
        return f"{micro / _MICRO:,.1f} W" if unit == "W" else hourly(micro / _MICRO)

    bound = (
        "no bound yet" if progress.gap is None else f"bound {amount(progress.bound)}  gap {percent(progress.gap, 1)}"
    )
    return f"{amount(progress.cost)}  {bound}  {counted(progress.moves, 'move')}"
