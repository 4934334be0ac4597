"""Limit on the pods that one plan may move or restart, as a share of all: one rule for optimizer and decider."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

LEAST: Final = 10
"""Pods that any plan may move: a small cluster could not empty a node with a quarter of its pods."""


def most_moves(pods: int, fraction: float) -> int | None:
    """Return how many of so many pods one plan may move or restart; None: all. A fraction of 0 allows none."""
    if fraction >= 1:
        return None
    return max(LEAST, int(Fraction(str(fraction)) * pods)) if fraction > 0 else 0
