"""All compiled loops of the search.

numba compiles them once per machine, in a minute; `columns.compiled` says where to. An installation runs
`python -m kinema_optimizer.search.kernels` to have them compiled. Where that was not done, another process does it
while plans are made without them.
"""

from __future__ import annotations

import atexit
import subprocess
import sys

import numpy as np

from kinema_optimizer.columns.compiled import install_compiled, is_compiled, note_compiled
from kinema_optimizer.columns.knapsack import knapsack_dual_bound, knapsack_duals
from kinema_optimizer.columns.knapsack_exact import exact_knapsack
from kinema_optimizer.columns.pricing import SubproblemArrays, price_bin, price_bins
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.search.dealing import best_fit, distribute_evenly
from kinema_optimizer.search.ruin_recreate import recreate

_COMPILING: list[subprocess.Popen[bytes]] = []
"""The process that compiles, if one was started."""


def warm(resources: int) -> None:
    """Compile or load all of them; they are then the same for any number of resources."""
    asked: Ints = np.ones((2, resources), dtype=np.int64)
    room, few = np.full(resources, 3, dtype=np.int64), np.ones(2, dtype=np.int64)
    prices = knapsack_duals(np.ones(2), asked / 3.0, np.ones(resources), np.ones(2))
    knapsack_dual_bound(np.ones(2), asked / 3.0, prices, few)
    knapsack_dual_bound(np.ones(2), asked / 3.0, prices, np.ones(2))
    nodes, content = np.repeat(room[None], 2, axis=0), np.zeros((2, 2), dtype=np.int32)
    distribute_evenly(asked, few.copy(), few, nodes, content)
    best_fit(asked, few.copy(), few[None].copy(), np.zeros(2, dtype=np.int64), nodes, content)
    none, pair = np.zeros((1, 2), dtype=np.int64), few[None].copy()
    given, rooms = (asked, np.ones(2), np.zeros(2), np.ones(1)), (room[None].copy(), pair, none, none, few[:1])
    job = SubproblemArrays(*given, *rooms, 0, none[0], none[0, :0])
    exact_knapsack(few, asked, room, few, floor=0)
    shadow = np.full((1, resources), np.nan)
    price_bin(job, np.ones(2), 0, few, few, 4, 0.0, shadow[0])
    price_bins(job, np.ones(2), np.zeros(1), shadow, few, few[:1] - 1, 4, 1)
    recreate(job, none[0, :1], pair, 1, np.zeros(1, dtype=np.uint64))
    note_compiled()


def ready() -> bool:
    """Return whether all are compiled; where they are not, see to it that a process compiles them.

    It ends with this process at the latest. What it has compiled by then is kept.
    """
    if is_compiled():
        return True
    if not _COMPILING:
        command = ["nice", sys.executable, "-m", __name__]
        _COMPILING.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))  # noqa: S603 - our own module
        atexit.register(_COMPILING[0].kill)
    return False


if __name__ == "__main__":
    warm(3)
    install_compiled()
