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

    @classmethod
    def of(cls, problem: DenseInstance, keep: Flags) -> _Draft:
        taken = np.zeros(problem.node_limit.shape, dtype=np.int64)
        return cls(problem, keep.copy(), taken, problem.node_room.copy(), [])

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

    def solution(self, left: Ints) -> Solution | None:
        """The finished solution, or None when more than pending pods have no place."""
        if (left > self.problem.pending).any():
            return None
        taken = np.where(self.keep[:, None], self.taken, 0)
        return self.problem.solution(self.keep, taken, self.boots, left)


def starts(problem: DenseInstance) -> tuple[Solution, ...]:
    """Return solutions to start from, best first: keep all nodes; keep all, then drain one by one; keep none.

    Best: fewest pods unplaced, then least cost, then fewest moves. Empty when running pods found no place by first
    fit, which takes pods that are replaced by larger ones and machines that are limited.
    """
    everything = np.ones(len(problem.nodes), dtype=bool)
    found = [_place(problem, everything), _drain(problem, everything), _place(problem, problem.node_fixed)]
    sound = [one for one in found if one is not None]
    return tuple(sorted(sound, key=lambda one: (int(one.unplaced.sum()), cost(problem, one), moves(problem, one))))


def finished(problem: DenseInstance, boots: Sequence[tuple[int, Ints]], left: Ints) -> Solution | None:
    """Keep every node, take these machines as they are filled, and place the pods left by first fit."""
    draft = _Draft.of(problem, np.ones(len(problem.nodes), dtype=bool))
    draft.boots = list(boots)
    left = draft.settle(left)
    bought, left = buy(problem, left, used=[machine for machine, _ in boots])
    draft.boots += bought
    return draft.solution(left)


def _place(problem: DenseInstance, keep: Flags) -> Solution | None:
    draft = _Draft.of(problem, keep)
    left = draft.settle(problem.needed(keep))
    bought, left = buy(problem, left, used=())
    draft.boots += bought
    return draft.solution(left)


def _drain(problem: DenseInstance, keep: Flags) -> Solution | None:
    """Delete a node whenever its pods fit on others, or on new machines that cost less than it."""
    draft = _Draft.of(problem, keep)
    left = draft.settle(problem.needed(keep))
    bought, left = buy(problem, left, used=())
    draft.boots += bought
    for _ in range(PASSES):
        worth = (problem.node_stays + draft.taken) @ worths(problem) / np.maximum(problem.node_price, 1)
        victims = [e for e in range(len(problem.nodes)) if draft.keep[e] and not problem.node_fixed[e]]
        before = len(victims)
        for e in sorted(victims, key=lambda e: (float(worth[e]), e)):
            draft = _without(draft, e) or draft
        if int((draft.keep & ~problem.node_fixed).sum()) == before:
            break
    return draft.solution(left)


def _without(draft: _Draft, e: int) -> _Draft | None:
    problem = draft.problem
    trial = _Draft(problem, draft.keep.copy(), draft.taken.copy(), draft.spare, list(draft.boots))
    trial.keep[e] = False
    trial.taken[e] = 0
    left = trial.settle(problem.needed(trial.keep) - problem.needed(draft.keep) + draft.taken[e])
    bought, left = buy(problem, left, used=[machine for machine, _ in trial.boots])
    price = sum(int(problem.machine_price[machine]) for machine, _ in bought)
    if left.any() or price >= problem.node_price[e]:
        return None
    trial.boots += bought
    return trial


def buy(problem: DenseInstance, left: Ints, *, used: Sequence[int]) -> tuple[list[tuple[int, Ints]], Ints]:
    """Machines for the pods left, the best filled for its price first; `used` are machines bought before.

    At every step one machine for all the rest is also weighed, and the cheapest end is taken. Returns what was bought
    and what no machine can hold.
    """
    used_up = np.bincount(list(used), minlength=len(problem.machines))
    value = worths(problem)
    bought: list[tuple[int, Ints]] = []
    spent = 0
    best: tuple[int, list[tuple[int, Ints]]] | None = None
    left = left.copy()
    while left.any():
        stock = stock_left(problem.machine_count, problem.pools, used_up)
        fills = {m: _fill(problem, m, left) for m in np.flatnonzero(stock > 0).tolist()}
        fills = {m: counts for m, counts in fills.items() if counts.any()}
        if not fills:
            break
        whole = [(int(problem.machine_price[m]), m) for m, counts in fills.items() if (counts == left).all()]
        if whole and (best is None or spent + min(whole)[0] < best[0]):
            best = (spent + min(whole)[0], [*bought, (min(whole)[1], left.copy())])
        rated = {m: -float(counts @ value) / max(1, int(problem.machine_price[m])) for m, counts in fills.items()}
        machine = min(rated, key=lambda m: (rated[m], int(problem.machine_price[m]), m))
        counts = fills[machine]
        used_classes = counts > 0
        times = min(int(stock[machine]), int((left[used_classes] // counts[used_classes]).min()))
        bought += [(machine, counts.copy()) for _ in range(times)]
        used_up[machine] += times
        spent += times * int(problem.machine_price[machine])
        left = left - times * counts
    if best is not None and (left.any() or best[0] < spent):
        return best[1], np.zeros_like(left)
    return bought, left


def worths(problem: DenseInstance) -> Ints:
    """(C,): what a pod of a class costs on the machine that is cheapest for it, micro-USD per hour."""
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
    """(C,): what one machine takes of the pods left, largest share first."""
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
    """A solution near the relaxation's `machines` (M,) and `pods` (M, C) on them; None when first fit cannot end it."""
    left = problem.needed(np.ones(len(problem.nodes), dtype=bool))
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


def _fitting(problem: DenseInstance, machine: int, wanted: Ints, order: list[int]) -> Ints:
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
