"""Which nodes the next steps of the search look at: mostly those that cost more than their pods are worth."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.adapters.neighbourhood import Guide, Step
from kinema_optimizer.logic.packing import UNLIMITED
from kinema_optimizer.logic.problem import Ints
from kinema_optimizer.logic.state import NOTHING, Filling, State

_SPREAD: Final = (0.02, 0.06, 0.2, 1.0)
"""How far down the ranks of waste the steps of a round look, as parts of all nodes."""


def picks(guide: Guide, state: State, *, seed: tuple[int, ...], steps: int, nodes: int, classes: int) -> list[Step]:
    """Disjoint steps over the state's nodes.

    Each node comes with a chance that falls with its rank by waste, price less worth of its pods; the same seed gives
    the same steps. A step has so many `nodes` at most, and no further one joins it
    once it has so many `classes` of pods.
    """
    draw = np.random.default_rng(seed)
    kept, gone = np.flatnonzero(state.keep), np.flatnonzero(~state.keep)
    total = len(kept) + len(state.boots)
    rank = np.empty(total)
    rank[np.argsort(-_waste(guide, state), kind="stable")] = np.arange(total)
    extra = draw.permutation(gone)
    allowance = _allowance(guide, state, steps)
    free = np.ones(total, dtype=bool)
    found = []
    for i in range(steps):
        scale = max(4.0 * nodes, _SPREAD[i % len(_SPREAD)] * total)
        # Gumbel noise: drawing without replacement with odds that fall exponentially with the rank.
        keys = np.where(free, draw.gumbel(size=total) - rank / scale, -np.inf)
        first = np.argsort(-keys, kind="stable")[: min(nodes, int(free.sum()))]
        mine = _joining(guide, state, kept, first, classes)
        free[mine] = False
        live = kept[mine[mine < len(kept)]].tolist()
        if len(mine):
            boots = tuple(state.boots[b] for b in (mine[mine >= len(kept)] - len(kept)).tolist())
            changes = tuple(state.changes.get(e, NOTHING) for e in live)
            back = extra[i::steps]
            if guide.move_price.any():
                back = back[np.argsort(-_at_home(guide, (*changes, *boots))[back], kind="stable")]
            found.append(
                Step(
                    kept=tuple(live),
                    changes=changes,
                    deleted=tuple(sorted(back[: max(4, len(mine) // 3)].tolist())),
                    boots=boots,
                    allowance=allowance,
                )
            )
    return found


def _at_home(guide: Guide, fillings: tuple[Filling, ...]) -> NDArray[np.float64]:
    """(E,): share of a node's pods that the newcomers of a step could be again."""
    problem = guide.problem
    new = np.zeros(len(problem.pending), dtype=np.int64)
    for one in fillings:
        new[one.classes] += np.maximum(one.counts, 0)
    stays = problem.stays
    back = np.bincount(
        stays.node_of, weights=np.minimum(stays.counts, new[stays.classes]), minlength=len(problem.nodes)
    )
    pods = np.bincount(stays.node_of, weights=stays.counts, minlength=len(problem.nodes))
    return back / np.maximum(pods, 1)


def _joining(guide: Guide, state: State, kept: Ints, order: Ints, most: int) -> Ints:
    """The first nodes of `order` that together have no more classes than a step can handle; ascending."""
    problem = guide.problem
    classes: set[int] = set()
    chosen = []
    for node in order.tolist():
        if node < len(kept):
            e = int(kept[node])
            classes.update(problem.stays.classes[problem.stays.start[e] : problem.stays.start[e + 1]].tolist())
            classes.update(state.changes.get(e, NOTHING).classes.tolist())
        else:
            classes.update(state.boots[node - len(kept)].classes.tolist())
        chosen.append(node)
        if len(chosen) >= 4 and len(classes) >= most:
            break
    return np.sort(np.array(chosen, dtype=np.int64))


def _waste(guide: Guide, state: State) -> NDArray[np.float64]:
    """(kept + boots,): price of each node less what its pods are worth."""
    problem = guide.problem
    staying = np.bincount(
        problem.stays.node_of,
        weights=problem.stays.counts * guide.pod_price[problem.stays.classes],
        minlength=len(problem.nodes),
    )
    new = np.zeros(len(problem.nodes))
    for e, one in state.changes.items():
        new[e] = one.counts @ guide.pod_price[one.classes]
    kept = np.flatnonzero(state.keep)
    live = problem.node_price[kept] - staying[kept] - new[kept]
    booted = [
        float(problem.machine_price[one.machine]) - float(one.counts @ guide.pod_price[one.classes])
        for one in state.boots
    ]
    return np.concatenate([live, np.array(booted)])


def _allowance(guide: Guide, state: State, steps: int) -> dict[int, int]:
    """How many more of each limited machine a step may boot, so that all steps together stay within the limits."""
    problem = guide.problem
    used = np.bincount([one.machine for one in state.boots], minlength=len(problem.machines))
    left = {
        m: int(problem.machine_available[m] - used[m]) // steps
        for m in np.flatnonzero(problem.machine_available < UNLIMITED).tolist()
    }
    for members, limit in problem.pools:
        share = (limit - int(used[list(members)].sum())) // (steps * len(members))
        for m in members:
            left[m] = min(left.get(m, share), share)
    return left
