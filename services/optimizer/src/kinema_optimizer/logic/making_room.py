"""Which of the nodes that must stay may give pods up: those where it makes room for a pod that waits.

Others keep what they have: to move pods between nodes none of which can go saves nothing by itself, and a search that
may do so finds less in the same time (a quarter of a percent of the cost where every twelfth node must stay).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kinema_optimizer.logic.draft import Draft
from kinema_optimizer.logic.problem import Flags, Ints

_NODES: Final = 8
"""For each class of pods that wait: those of which the least has to leave."""
_CLASSES: Final = 64
"""Of pods that wait, those that request most; where more kinds wait, new machines are bought anyway."""


def giving(draft: Draft, pending: Ints, able: Flags) -> Flags:
    """(E,): which of the nodes that are `able` (E,) give pods up.

    Args:
        draft: the classes and rooms.
        pending: (C,) how many pods of each class wait.
        able: nodes that must stay and whose pods may be moved one by one.
    """
    found = np.zeros(len(able), dtype=bool)
    waiting = np.flatnonzero(pending)
    if not waiting.size or not able.any():
        return found
    rooms, most = draft.node_room, draft.node_room + draft.taken
    size = (draft.requests[waiting] / np.maximum(rooms.max(axis=0), 1)).max(axis=1)
    for c in waiting[np.argsort(-size, kind="stable")][:_CLASSES].tolist():
        request = draft.requests[c]
        lack = (np.maximum(request - np.maximum(rooms, 0), 0) / np.maximum(request, 1)).max(axis=1)
        could = able & draft.admits[draft.kinds[c], : len(able)] & ((request == 0) | (request <= most)).all(axis=1)
        could &= lack > 0
        found[np.flatnonzero(could)[np.argsort(lack[could], kind="stable")][:_NODES]] = True
    return found
