"""All compiled loops of the search.

numba compiles them once per machine and keeps the result beside their files, or in `NUMBA_CACHE_DIR` where that is set.
"""

from __future__ import annotations

import numpy as np

from kinema_optimizer.columns.knapsack import multipliers, worth_at_most
from kinema_optimizer.columns.knapsack_exact import best_filling
from kinema_optimizer.columns.pricing import Job, filling, priced
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.search.dealing import best_fit, deal
from kinema_optimizer.search.ruin_recreate import recreate


def warm(resources: int) -> None:
    """Compile or load everything for this number of resources, outside of any measured time."""
    asked: Ints = np.ones((2, resources), dtype=np.int64)
    room, few = np.full(resources, 3, dtype=np.int64), np.ones(2, dtype=np.int64)
    prices = multipliers(np.ones(2), asked / 3.0, np.ones(resources), np.ones(2))
    worth_at_most(np.ones(2), asked / 3.0, prices, few)
    worth_at_most(np.ones(2), asked / 3.0, prices, np.ones(2))
    nodes, content = np.repeat(room[None], 2, axis=0), np.zeros((2, 2), dtype=np.int32)
    deal(asked, few.copy(), few, nodes, content)
    best_fit(asked, few.copy(), few[None].copy(), np.zeros(2, dtype=np.int64), nodes, content)
    none, pair = np.zeros((1, 2), dtype=np.int64), few[None].copy()
    given, rooms = (asked, np.ones(2), np.zeros(2), np.ones(1)), (room[None].copy(), pair, none, none, few[:1])
    job = Job(*given, *rooms, 0, none[0], none[0, :0])
    best_filling(few, asked, room, few, floor=0)
    shadow = np.full((1, resources), np.nan)
    filling(job, np.ones(2), 0, few, few, 4, 0.0, shadow[0])
    priced(job, np.ones(2), np.zeros(1), shadow, few, few[:1] - 1, 4, 1)
    recreate(job, none[0, :1], pair, 1, np.zeros(1, dtype=np.uint64))
