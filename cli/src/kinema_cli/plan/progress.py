"""What a solve tells while it runs, on standard error: one live line on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console

from kinema_cli.output import counted
from kinema_optimizer.search.progress import Progress, Report

SECONDS: Final = 1.0
"""Between two lines where no terminal shows them."""
_MICRO: Final = 1_000_000


@contextmanager
def told(said: str, unit: str, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """Say what begins, and give what is to be called with the progress.

    Args:
        said: what begins.
        unit: in which costs are counted, as `USD/h`.
        clock: seconds, for the pauses between lines.
    """
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        with console.status(said) as status:
            yield lambda progress: status.update(f"{said}: {in_a_line(progress, unit)}")
        return
    console.print(said, markup=False, soft_wrap=True)
    yield _Lines(console, unit, clock).tell


class _Lines:
    """Prints at most one line per `SECONDS`; the first at once."""

    def __init__(self, console: Console, unit: str, clock: Callable[[], float]) -> None:
        self._console = console
        self._unit = unit
        self._clock = clock
        self._next = clock()

    def tell(self, progress: Progress) -> None:
        """Print it if it is time."""
        now = self._clock()
        if now >= self._next:
            self._next = now + SECONDS
            self._console.print(in_a_line(progress, self._unit), markup=False, soft_wrap=True)


def in_a_line(progress: Progress, unit: str) -> str:
    """Phase, incumbent, bound, gap and moves."""
    bound = "none yet" if progress.gap is None else f"{progress.bound / _MICRO:,.4f}, gap {progress.gap:.2%}"
    return f"{progress.phase}: {progress.cost / _MICRO:,.4f} {unit}, bound {bound}, {counted(progress.moves, 'move')}"
