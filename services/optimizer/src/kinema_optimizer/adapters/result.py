"""What a solve of the placement problem comes to."""

from __future__ import annotations

from dataclasses import dataclass

from kinema_core.events import Stop
from kinema_optimizer.logic.problem import Solution


@dataclass(frozen=True)
class Result:
    """A solution, what no solution can cost less than, and how both were found.

    `lower_bound` (micro-USD per hour) is HiGHS' dual bound made safe: lowered by a tolerance, then raised to the next
    multiple of the price unit, as every cost is one. It rests on floating-point arithmetic inside HiGHS and is no
    exact certificate. `solution` is checked in integers.
    """

    solution: Solution
    least: int
    """Least cost found; the solution may cost 1/1000 more where that saves moves."""
    lower_bound: int
    stops: tuple[Stop, ...]
    method: str

    @property
    def proven(self) -> bool:
        """No plan costs less than the least cost found."""
        return self.lower_bound >= self.least
