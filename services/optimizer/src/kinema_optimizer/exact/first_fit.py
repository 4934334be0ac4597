"""First solutions of the aggregated model, where branch and bound starts: `starts` by first fit, `rounded` from an LP.

The relaxation knows which machines to mix, which first fit does not; it only cuts pods and machines into parts. So
`rounded` opens as many whole machines of each kind as the relaxation uses, gives each its part of every class in turn,
rounded so that the parts add up, and lets first fit finish the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.problem.arrays import Flags, Ints, by_share, pour, stock_left
from kinema_optimizer.problem.dense import DenseInstance
from kinema_optimizer.problem.instance import Solution, cost, moves

PASSES = 3
"""Rounds over all nodes that `drain` makes at most; later rounds hardly ever find anything."""


@dataclass
class _Draft:
    """A solution in the making: what is kept, what each node takes, and the room left."""

    problem: DenseInstance
    keep: Flags
    taken: Ints
    spare: Ints
    boots: list[tuple[int, Ints]]

    def settle(self, left: Ints) -> Ints:
        """Put pods on kept nodes and on machines already booted; return what found no room."""
        left = left.copy()
        order = _order(self.problem, left)
        for c in order:
            limit = np.where(self.keep, self.problem.node_limit[:, c] - self.taken[:, c], 0)
            put = pour(self.problem.requests[c], self.spare, int(left[c]), np.maximum(limit, 0))
            self.taken[:, c] += put
            self.spare = self.spare - put[:, None] * self.problem.requests[c]
            left[c] -= put.sum()
        for index, (machine, counts) in enumerate(self.boots):
            spare = self.problem.machine_room[machine] - counts @ self.problem.requests
            more = _fill(self.problem, machine, left, room=spare, already=counts)
            self.boots[index] = (machine, counts + more)
            left = left - more
        return left

    def buy(self, left: Ints) -> tuple[Ints, int]:
        """Add machines for the pods left, the best filled for its price first; return what none holds, and the price.

        At every step one machine for all the rest is also weighed, and the cheapest end is taken.
        """
        problem, value = self.problem, worths(self.problem)
        used = np.bincount([machine for machine, _ in self.boots], minlength=len(problem.machines))
        bought: list[tuple[int, Ints]] = []
        spent = 0
        best: tuple[int, list[tuple[int, Ints]]] = (0, [])
        while left.any():
            stock = stock_left(problem.machine_count, problem.pools, used)
            fills = {m: _fill(problem, m, left) for m in np.flatnonzero(stock > 0).tolist()}
            fills = {m: counts for m, counts in fills.items() if counts.any()}
            if not fills:
                break
            price = {m: int(problem.machine_price[m]) for m in fills}
            whole = min(((price[m], m) for m, counts in fills.items() if (counts == left).all()), default=None)
            if whole is not None and (not best[1] or spent + whole[0] < best[0]):
                best = spent + whole[0], [*bought, (whole[1], left.copy())]
            rated = [(-float(counts @ value) / max(1, price[m]), price[m], m) for m, counts in fills.items()]
            machine = min(rated)[2]
            counts = fills[machine]
            times = min(int(stock[machine]), int((left[counts > 0] // counts[counts > 0]).min()))
            bought += [(machine, counts.copy()) for _ in range(times)]
            used[machine] += times
            spent += times * price[machine]
            left = left - times * counts
        if best[1] and (left.any() or best[0] < spent):
            spent, bought = best
            left = np.zeros_like(left)
        self.boots += bought
        return left, spent

    def solution(self, left: Ints) -> Solution | None:
        """Return the finished solution, or None when more than pending pods have no place."""
        if (left > self.problem.pending).any():
            return None
        taken = np.where(self.keep[:, None], self.taken, 0)
        return self.problem.solution(self.keep, taken, self.boots, left)


def starts(problem: DenseInstance) -> tuple[Solution, ...]:
    """Return solutions to start from, best first: keep all nodes; keep all, then drain one by one; keep none.

    Best: fewest pods unplaced, then least cost, then fewest moves. Empty when running pods found no place by first
    fit, which takes pods that are replaced by larger ones and machines that are limited.
    """
    kept, left = _pack(problem, np.ones(len(problem.nodes), dtype=bool))
    emptied, rest = _pack(problem, problem.node_fixed)
    found = [kept.solution(left), _drain(kept).solution(left), emptied.solution(rest)]
    sound = [one for one in found if one is not None]
    return tuple(sorted(sound, key=lambda one: (int(one.unplaced.sum()), cost(problem, one), moves(problem, one))))


def _pack(problem: DenseInstance, keep: Flags, boots: Sequence[tuple[int, Ints]] = ()) -> tuple[_Draft, Ints]:
    """Place all pods on kept nodes (E,), on these machines as they are filled, and on more; return what has no room."""
    taken = np.zeros(problem.node_limit.shape, dtype=np.int64)
    draft = _Draft(problem, keep.copy(), taken, problem.node_room, list(boots))
    left = draft.settle(np.asarray(problem.needed(keep) - sum(counts for _, counts in boots), dtype=np.int64))
    return draft, draft.buy(left)[0]


def _drain(draft: _Draft) -> _Draft:
    """Delete a node whenever its pods fit on others, or on new machines that cost less than it."""
    problem = draft.problem
    for _ in range(PASSES):
        worth = (problem.node_stays + draft.taken) @ worths(problem) / np.maximum(problem.node_price, 1)
        victims = [e for e in range(len(problem.nodes)) if draft.keep[e] and not problem.node_fixed[e]]
        before = len(victims)
        for e in sorted(victims, key=lambda e: (float(worth[e]), e)):
            draft = _without(draft, e) or draft
        if int((draft.keep & ~problem.node_fixed).sum()) == before:
            break
    return draft


def _without(draft: _Draft, e: int) -> _Draft | None:
    problem = draft.problem
    trial = _Draft(problem, draft.keep.copy(), draft.taken.copy(), draft.spare, list(draft.boots))
    trial.keep[e] = False
    trial.taken[e] = 0
    left = trial.settle(problem.needed(trial.keep) - problem.needed(draft.keep) + draft.taken[e])
    left, price = trial.buy(left)
    return None if left.any() or price >= problem.node_price[e] else trial


def worths(problem: DenseInstance) -> Ints:
    """Return what a pod of each class (C,) costs on the machine that is cheapest for it, micro-USD per hour."""
    if not problem.machines:
        return np.asarray(problem.requests.max(axis=1, initial=0), dtype=np.int64)
    room = np.maximum(problem.machine_room, 1)
    share = (problem.requests[:, None, :] / room[None, :, :]).max(axis=2, initial=0.0)
    share = np.where(problem.machine_limit.T > 0, share, np.inf)
    price = (share * np.maximum(problem.machine_price, 1)).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(price), np.ceil(price), 0).astype(np.int64)


def _order(problem: DenseInstance, left: Ints) -> list[int]:
    rooms = np.concatenate([problem.machine_room, problem.node_room])
    order = by_share(problem.requests, rooms.max(axis=0, initial=1))
    return [c for c in order if left[c] > 0]


def _fill(
    problem: DenseInstance, machine: int, left: Ints, *, room: Ints | None = None, already: Ints | None = None
) -> Ints:
    """Return the pods (C,) that one machine takes of those left, largest share first."""
    whole = problem.machine_room[machine]
    space = (whole if room is None else room).tolist()
    limits = (problem.machine_limit[machine] - (0 if already is None else already)).tolist()
    counts = np.zeros_like(left)
    for c in by_share(problem.requests, whole):
        put = min(int(left[c]), limits[c])
        for need, free in zip(problem.requests[c].tolist(), space, strict=True):
            if need > 0:
                put = min(put, free // need)
        if put > 0:
            counts[c] = put
            space = [free - put * need for need, free in zip(problem.requests[c].tolist(), space, strict=True)]
    return counts


Shares = NDArray[np.float64]
ROUNDING = 1e-6
"""What the relaxation's values may be off."""


def rounded(problem: DenseInstance, *, machines: Shares, pods: Shares) -> Solution | None:
    """Return a solution near the relaxation's `machines` (M,) and `pods` (M, C); None when first fit cannot end it."""
    every = np.ones(len(problem.nodes), dtype=bool)
    left = problem.needed(every)
    boots: list[tuple[int, Ints]] = []
    for machine, used in enumerate(machines.tolist()):
        for k in range(int(used + ROUNDING)):
            parts = np.floor((k + 1) * pods[machine] / used + ROUNDING) - np.floor(k * pods[machine] / used + ROUNDING)
            counts = _fill(problem, machine, np.minimum(parts.astype(np.int64), left))
            boots.append((machine, counts))
            left = left - counts
    draft, left = _pack(problem, every, boots)
    return draft.solution(left)
