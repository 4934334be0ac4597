"""What a solve tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from kinema_core.events import Stop
from kinema_optimizer.aggregated.problem import DenseSolution
from kinema_optimizer.problem.instance import Solution

Given: TypeAlias = Solution | DenseSolution
"""An answer as the solvers for large and for small problems give it."""


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
    """Makes the incumbent itself, for whoever keeps it in case the solve comes to no end."""
    stops: tuple[Stop, ...] = field(default=(), compare=False, repr=False)
    """Of the phases that had ended by then."""

    @property
    def gap(self) -> float | None:
        """How much dearer than the bound the incumbent is, as a share; None while there is no bound."""
        return (self.cost - self.bound) / self.bound if self.bound > 0 else None


Report: TypeAlias = Callable[[Progress], None]
"""Called whenever incumbent or bound improve; what it does is no part of any decision."""


@dataclass(frozen=True, eq=False)
class IncumbentReport:
    """The best answer that a solve had told of, and how far it was then."""

    number: int
    """Which of the solve's reports it was, from 1: the same again when the solve is repeated."""
    answer: Given
    bound: int
    stops: tuple[Stop, ...]


def incumbent_report(number: int, news: Progress) -> IncumbentReport | None:
    """The incumbent that a report tells of, None where it brings only figures."""
    return None if news.answer is None else IncumbentReport(number, news.answer(), news.bound, news.stops)
