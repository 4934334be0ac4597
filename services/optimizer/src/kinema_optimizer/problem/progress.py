"""Progress reports of a running solve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from kinema_core.events import Stop
from kinema_optimizer.problem.instance import Solution
from kinema_optimizer.problem.solution import NamedSolution

Given: TypeAlias = Solution | NamedSolution
"""An answer as each solver gives it: in counts, or by name."""


@dataclass(frozen=True)
class Progress:
    """The best plan so far, and what no plan can cost less than."""

    phase: str
    cost: int
    """Of the incumbent, in millionths of the objective's unit: micro-USD per hour, or microwatts."""
    bound: int
    """In the same unit; 0 while nothing is known."""
    moves: int
    """Pods that the incumbent moves."""
    answer: Callable[[], Given] | None = field(default=None, compare=False, repr=False)
    """Makes the incumbent itself, to be kept in case the solve comes to no end; None: it is no better than before."""
    stops: tuple[Stop, ...] = field(default=(), compare=False, repr=False)
    """Of the phases that had ended by then."""
    unplaced: int = 0
    """Pending pods that the incumbent leaves without a place."""

    @property
    def gap(self) -> float | None:
        """How much dearer than the bound the incumbent is, as a share; None while there is no bound."""
        return (self.cost - self.bound) / self.bound if self.bound > 0 else None


Report: TypeAlias = Callable[[Progress], None]
"""Called whenever incumbent or bound improve; what it does is no part of any decision."""


def report_nothing(_: Progress) -> None:
    """Ignore progress."""


@dataclass(frozen=True, eq=False)
class IncumbentReport:
    """The best answer that a solve has reported, and how far it was then."""

    number: int
    """Which of the solve's reports it was, from 1: the same again when the solve is repeated."""
    answer: Given
    bound: int
    stops: tuple[Stop, ...]


def incumbent_report(number: int, news: Progress) -> IncumbentReport | None:
    """Return the incumbent of a report; None where it has only figures."""
    return None if news.answer is None else IncumbentReport(number, news.answer(), news.bound, news.stops)
