"""PROMETHEE II: a ranking of alternatives by several criteria.

Source: Menouer, Cérin, Darmon: Reactive Autoscaling of Kubernetes Nodes (FRAME 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

import numpy as np

_EXACT: Final = 10**6
Aim: TypeAlias = Literal["max", "min"]


@dataclass(frozen=True)
class Criterion:
    """One figure of every alternative, and whether more of it is better; figures are whole numbers."""

    values: tuple[int, ...]
    aim: Aim
    weight: float = 1.0


@dataclass(frozen=True)
class Flow:
    """How much an alternative outranks the others and is outranked, between 0 and the sum of the weights."""

    positive: Fraction
    negative: Fraction

    @property
    def net(self) -> Fraction:
        """The difference, by which alternatives are ranked."""
        return self.positive - self.negative


def flows(criteria: Sequence[Criterion]) -> list[Flow]:
    """Return the flows of every alternative, with the usual preference function: 1 where strictly better, else 0.

    By sorting each criterion, in O(q n log n) (Calders, Van Assche: PROMETHEE is not quadratic). A single alternative
    has no flow.
    """
    count = len(criteria[0].values) if criteria else 0
    better, worse = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for one in criteria:
        weight = round(Fraction(str(one.weight)) * _EXACT)
        values = np.array(one.values, dtype=np.int64) * (1 if one.aim == "max" else -1)
        ordered = np.sort(values)
        better += weight * np.searchsorted(ordered, values, side="left")
        worse += weight * (count - np.searchsorted(ordered, values, side="right"))
    others = max(1, count - 1) * _EXACT
    both = zip(better.tolist(), worse.tolist(), strict=True)
    return [Flow(Fraction(up, others), Fraction(down, others)) for up, down in both]


def ranking(names: Sequence[str], criteria: Sequence[Criterion]) -> list[int]:
    """Return the alternatives by index, the highest net flow first, equal ones by name."""
    found = flows(criteria)
    return sorted(range(len(names)), key=lambda index: (-found[index].net, names[index]))
