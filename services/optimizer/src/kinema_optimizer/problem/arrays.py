"""Arrays of integers and of truth values, and first fit on them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


def frozen(values: object, shape: tuple[int, ...]) -> Ints:
    """Return an int64 array of this shape that cannot be written to."""
    array: Ints = np.array(values, dtype=np.int64).reshape(shape)
    array.flags.writeable = False
    return array


class Pool(NamedTuple):
    """Machines that share a limit."""

    members: tuple[int, ...]
    takes: tuple[int, ...]
    """How much one machine of each member counts, above 0: its processors, or 1 where machines are counted."""
    limit: int

    @property
    def weights(self) -> dict[int, int]:
        """What one machine of each member counts, by member."""
        return dict(zip(self.members, self.takes, strict=True))


Pools: TypeAlias = tuple[Pool, ...]
"""Limits that machines share; a machine may be in several."""


def stock_left(available: Ints, pools: Pools, used: Ints) -> Ints:
    """(M,): how many more of each machine can be had beside those `used` (M,); below 0 where too many are."""
    left = available - used
    for members, takes, limit in pools:
        rows, each = list(members), np.array(takes, dtype=np.int64)
        left[rows] = np.minimum(left[rows], (limit - used[rows] @ each) // each)
    return left


def most_that_fit(requests: Ints, room: Ints) -> Ints:
    """(C,): how many pods of each class fit into `room` (R,) alone; a class that requests nothing fits for ever."""
    ratio = np.where(requests > 0, np.maximum(room, 0) // np.maximum(requests, 1), np.iinfo(np.int64).max)
    return np.asarray(ratio.min(axis=1, initial=np.iinfo(np.int64).max), dtype=np.int64)


def virtual_nodes(requested: Ints, room: Ints) -> int:
    """Return how many machines with `room` (R,) it takes to hold `requested` (R,) in total (algorithm 6).

    Raises:
        ValueError: something is requested of which the machine has nothing.
    """
    if ((room <= 0) & (requested > 0)).any():
        message = "a machine without a resource cannot hold pods that request it"
        raise ValueError(message)
    counts = -(-requested // np.maximum(room, 1))
    return max(0, int(counts.max(initial=0)))


def first_fit_count(requests: Ints, counts: Ints, room: Ints) -> int:
    """Machines with `room` that first-fit decreasing needs for `counts` (C,) pods, all of which fit singly.

    Algorithm 6 divides sums, and where whole pods leave gaps its count can be too small to hold them. No optimal plan
    needs more machines of one kind than this: whatever it puts on them, the best packing of that takes no more.
    """
    rooms = np.empty((0, room.size), dtype=np.int64)
    for c in by_share(requests, room):
        left = int(counts[c])
        put = pour(requests[c], rooms, left)
        rooms = rooms - put[:, None] * requests[c]
        left -= int(put.sum())
        per_bin = min(left, int(most_that_fit(requests[c : c + 1], room)[0]))
        if per_bin:
            bins = -(-left // per_bin)
            fresh = np.full(bins, per_bin)
            fresh[-1] = left - per_bin * (bins - 1)
            rooms = np.concatenate([rooms, room - fresh[:, None] * requests[c]])
    return len(rooms)


def by_share(requests: Ints, room: Ints) -> list[int]:
    """Classes by the largest share of `room` (R,) that one pod takes, largest first."""
    share = (requests / np.maximum(room, 1)).max(axis=1, initial=0.0)
    return sorted(range(len(requests)), key=lambda c: (-float(share[c]), c))


def pour(request: Ints, rooms: Ints, left: int, limit: Ints | None = None) -> Ints:
    """(B,): first fit of `left` pods of one class into `rooms` (B, R), at most `limit` (B,) of them in each."""
    fits = np.where(request > 0, np.maximum(rooms, 0) // np.maximum(request, 1), left).min(axis=1, initial=left)
    if limit is not None:
        fits = np.minimum(fits, limit)
    before = np.cumsum(fits) - fits
    return np.asarray(np.clip(left - before, 0, fits), dtype=np.int64)
