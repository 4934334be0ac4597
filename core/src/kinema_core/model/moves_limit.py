"""Limit on the pods that one plan may move or restart, as a share of all: one rule for optimizer and decider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

LEAST: Final = 10
"""Pods that any plan may move: a small cluster could not empty a node with a quarter of its pods."""


def most_moves(nodes: Iterable[str | None], fraction: float) -> int | None:
    """Return how many pods one plan may move or restart; None: all. A fraction of 0 allows none.

    Where all pods share a node, any plan may move them: no part of them would let the node go.

    Args:
        nodes: the node of each pod, None of one that waits.
        fraction: the share of all pods.
    """
    if fraction >= 1:
        return None
    by_node = Counter(nodes)
    bound = [pods for name, pods in by_node.items() if name is not None]
    alone = bound[0] if len(bound) == 1 else 0
    return max(LEAST, alone, int(Fraction(str(fraction)) * by_node.total())) if fraction > 0 else 0
