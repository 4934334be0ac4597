"""Durations of a solve, for its report."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from kinema_core.events import Solve, Stop
from kinema_optimizer.problem.progress import Progress, Report
from kinema_optimizer.solvers.stopping import StopRule


@dataclass
class Watch:
    """Measures a solve; what it measures is no part of any decision."""

    _began: float = 0.0
    _feasible: float = 0.0

    def __post_init__(self) -> None:
        self._began = time.perf_counter()

    def reporting(self, progress: Report | None, stop: StopRule) -> Report:
        """Note when the first plan is there, and pass figures on, with what the stop rule has noted by then.

        An incumbent is passed on only if it is no worse than those before.
        """
        best: tuple[int, int] | None = None

        def report(news: Progress) -> None:
            nonlocal best
            self._feasible = self._feasible or time.perf_counter() - self._began
            found = (news.unplaced, news.cost)
            if best is not None and found > best:
                news = replace(news, answer=None)
            best = found if best is None else min(best, found)
            if progress is not None:
                progress(replace(news, stops=(*stop.notes, *news.stops)))

        return report

    def solve(self, method: str, stops: tuple[Stop, ...], recorded: Solve | None, seed: int) -> Solve:
        """The report on the solve; a replay's has the seconds of the recording."""
        seconds, feasible = round(time.perf_counter() - self._began, 3), round(self._feasible, 3)
        return Solve(
            seconds=seconds if recorded is None else recorded.seconds,
            first_feasible_seconds=feasible if recorded is None else recorded.first_feasible_seconds,
            method=method,
            seed=seed,
            stops=stops,
        )
