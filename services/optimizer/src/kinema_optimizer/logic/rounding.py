"""From the relaxation's shares to whole machines and pods.

The relaxation knows which machines to mix, which first fit does not; it only cuts pods and machines into parts. So as
many whole machines of each kind are opened as it uses, each gets its part of every class in turn, rounded so that the
parts add up, and first fit finishes the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.logic.greedy import finished
from kinema_optimizer.logic.problem import Ints, Problem, Solution, by_share, needed

Shares = NDArray[np.float64]
ROUNDING = 1e-6
"""What the relaxation's values may be off."""


def rounded(problem: Problem, *, machines: Shares, pods: Shares) -> Solution | None:
    """A solution near the relaxation's `machines` (M,) and `pods` (M, C) on them; None when first fit cannot end it."""
    left = needed(problem, np.ones(len(problem.nodes), dtype=bool))
    boots: list[tuple[int, Ints]] = []
    for machine, used in enumerate(machines.tolist()):
        count = int(used + ROUNDING)
        order = by_share(problem.requests, problem.machine_room[machine])
        for k in range(count):
            parts = np.floor((k + 1) * pods[machine] / used + ROUNDING) - np.floor(k * pods[machine] / used + ROUNDING)
            counts = _fitting(problem, machine, np.minimum(parts.astype(np.int64), left), order)
            boots.append((machine, counts))
            left = left - counts
    return finished(problem, boots, left)


def _fitting(problem: Problem, machine: int, wanted: Ints, order: list[int]) -> Ints:
    """As much of what is wanted as one machine holds, pods with the largest share first."""
    room = problem.machine_room[machine].copy()
    counts = np.zeros_like(wanted)
    for c in order:
        request = problem.requests[c]
        needs = request > 0
        fits = int((np.maximum(room[needs], 0) // request[needs]).min(initial=np.iinfo(np.int64).max))
        counts[c] = min(int(wanted[c]), fits, int(problem.machine_limit[machine, c]))
        room = room - counts[c] * request
    return counts
