"""Compiled inner loops of the search: prices of a knapsack's relaxation, and a beam search for its best filling.

Both work on one node: which pods of which classes fill it best at given prices per pod. They are called some ten
thousand times in a solve, a few microseconds to a millisecond each. numba compiles them once per machine and keeps the
result beside this file, or in `NUMBA_CACHE_DIR` where that is set.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kinema_optimizer.logic.problem import Ints

_TOLERANCE = 1e-9


@njit(cache=True, nogil=True)
def multipliers(values, weights, bounds, most):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, C901, PLR0912, PLR0915 - compiled: numba infers types, and a simplex is one loop
    """(R,): dual prices of max values·x, weights x <= 1 per resource, 0 <= x <= most; by the bounded primal simplex.

    Args:
        values: (n,) worth of one pod.
        weights: (n, R) share of the room that one pod takes.
        bounds: (R,) shares of the room that there are, usually 1.
        most: (n,) most pods of the class.
    """
    n, rows = weights.shape
    inverse = np.eye(rows)
    basis = np.empty(rows, np.int64)
    for r in range(rows):
        basis[r] = n + r
    level = bounds.copy()
    upper = np.zeros(n, np.bool_)
    basic = np.zeros(n, np.bool_)
    duals = np.zeros(rows)
    for _ in range(50 * (rows + 4)):
        for r in range(rows):
            duals[r] = 0.0
            for i in range(rows):
                if basis[i] < n:
                    duals[r] += values[basis[i]] * inverse[i, r]
        best, enter = _TOLERANCE, -1
        for j in range(n):
            if basic[j] or most[j] <= 0:
                continue
            reduced = values[j]
            size = 1e-12
            for r in range(rows):
                reduced -= duals[r] * weights[j, r]
                size += weights[j, r]
            gain = (-reduced if upper[j] else reduced) * (1.0 if upper[j] else min(most[j], 1.0 / size))
            if gain > best:
                best, enter = gain, j
        for r in range(rows):
            if duals[r] < -_TOLERANCE and -duals[r] > best:
                best, enter = -duals[r], n + r
        if enter < 0:
            break
        direction = np.zeros(rows)
        sign = 1.0
        for i in range(rows):
            if enter >= n:
                direction[i] = inverse[i, enter - n]
            else:
                for r in range(rows):
                    direction[i] += inverse[i, r] * weights[enter, r]
        if enter < n and upper[enter]:
            sign = -1.0
        step = most[enter] if enter < n else np.inf
        leave = -1
        to_upper = False
        for i in range(rows):
            change = sign * direction[i]
            if change > _TOLERANCE:
                ratio = level[i] / change
                if ratio < step:
                    step, leave, to_upper = ratio, i, False
            elif change < -_TOLERANCE and basis[i] < n:
                ratio = (level[i] - most[basis[i]]) / change
                if ratio < step:
                    step, leave, to_upper = ratio, i, True
        if step == np.inf:
            break
        for i in range(rows):
            level[i] -= sign * step * direction[i]
        if leave < 0:
            upper[enter] = not upper[enter]
            continue
        gone = basis[leave]
        if gone < n:
            basic[gone] = False
            upper[gone] = to_upper
        start = most[enter] if enter < n and upper[enter] else 0.0
        basis[leave] = enter
        if enter < n:
            basic[enter] = True
            upper[enter] = False
        level[leave] = start + sign * step
        pivot = direction[leave]
        for r in range(rows):
            inverse[leave, r] /= pivot
        for i in range(rows):
            if i != leave and direction[i] != 0.0:
                for r in range(rows):
                    inverse[i, r] -= direction[i] * inverse[leave, r]
    return np.maximum(duals, 0.0)


@njit(cache=True, nogil=True)
def fill(values, requests, room, most, width):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, C901, PLR0912, PLR0915 - compiled: numba infers types, one loop over arrays is what makes it fast
    """((n,) pods, their worth, (R,) prices of all the room): a nearly best filling of one node, by a beam.

    Classes are taken in the order of their worth per priced share of the room; of the partial fillings the `width` of
    greatest worth plus priced room left are kept. The last state is compared exactly.

    Args:
        values: (n,) worth of one pod; classes without any are left out.
        requests: (n, R) in integers.
        room: (R,) what the node has.
        most: (n,) most pods of the class.
        width: states kept after each class.
    """
    n, rows = requests.shape
    weights = np.zeros((n, rows))
    limit = np.zeros(n)
    for j in range(n):
        fits = most[j]
        for r in range(rows):
            if requests[j, r] > 0:
                fits = min(fits, max(room[r], 0) // requests[j, r])
                weights[j, r] = requests[j, r] / max(room[r], 1)
        limit[j] = fits if values[j] > 0 else 0
    prices = multipliers(values, weights, np.ones(rows), limit)
    ratio = np.empty(n)
    for j in range(n):
        spent = 1e-12
        for r in range(rows):
            spent += prices[r] * weights[j, r]
        ratio[j] = -values[j] / spent if limit[j] > 0 else 1.0
    order = np.argsort(ratio, kind="mergesort")
    levels = 0
    for j in range(n):
        levels += limit[j] > 0
    branches = 4
    left = np.empty((width, rows), np.int64)
    worth = np.zeros(width)
    left[0] = room
    alive = 1
    parents = np.empty((levels, width), np.int32)
    taken = np.empty((levels, width), np.int64)
    child_left = np.empty((width * branches, rows), np.int64)
    child_worth = np.empty(width * branches)
    child_rank = np.empty(width * branches)
    child_parent = np.empty(width * branches, np.int32)
    child_taken = np.empty(width * branches, np.int64)
    for step in range(levels):
        j = order[step]
        made = 0
        for s in range(alive):
            fits = np.int64(limit[j])
            for r in range(rows):
                if requests[j, r] > 0:
                    fits = min(fits, left[s, r] // requests[j, r])
            for b in range(branches):
                count = fits - b if b < branches - 1 else 0
                if count < 0 or (b == branches - 1 and fits < branches - 1):
                    continue
                rank = worth[s] + values[j] * count
                child_worth[made] = rank
                for r in range(rows):
                    rest = left[s, r] - requests[j, r] * count
                    child_left[made, r] = rest
                    rank += prices[r] * rest / max(room[r], 1)
                child_rank[made] = rank
                child_parent[made] = s
                child_taken[made] = count
                made += 1
        cut = -np.inf
        if made > width:
            cut = np.partition(child_rank[:made], made - width)[made - width]
        kept = 0
        for strict in range(2):
            for i in range(made):
                above = child_rank[i] > cut if strict == 0 else child_rank[i] == cut
                if above and kept < width:
                    parents[step, kept] = child_parent[i]
                    taken[step, kept] = child_taken[i]
                    worth[kept] = child_worth[i]
                    for r in range(rows):
                        left[kept, r] = child_left[i, r]
                    kept += 1
        alive = kept
    counts = np.zeros(n, np.int64)
    best = 0
    for s in range(alive):
        if worth[s] > worth[best]:
            best = s
    total = worth[best] if levels else 0.0
    state = best
    for back in range(levels):
        step = levels - 1 - back
        counts[order[step]] = taken[step, state]
        state = parents[step, state]
    return counts, total, prices


@njit(cache=True, nogil=True)
def worth_at_most(values, weights, prices, most):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - compiled: numba infers types
    """What no filling of a node can be worth more than, by any prices (R,) of its room; arguments as above."""
    n, rows = weights.shape
    total = 0.0
    for r in range(rows):
        total += prices[r]
    for j in range(n):
        rest = values[j]
        for r in range(rows):
            rest -= prices[r] * weights[j, r]
        if rest > 0:
            total += rest * most[j]
    return total


@njit(cache=True, nogil=True)
def deal(requests, counts, most, left, content):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, C901, PLR0912 - compiled: numba infers types
    """Deal pods to nodes of one kind so that all get the same mix; largest classes first, as the caller orders them.

    Args:
        requests: (n, R).
        counts: (n,) pods; what finds no room is left in it.
        most: (n,) most pods of the class on one node.
        left: (B, R) room of the nodes, lowered.
        content: (B, n) pods on the nodes, raised.
    """
    nodes, rows = left.shape
    for c in range(len(counts)):
        each = min(counts[c] // nodes, most[c])
        if each > 0:
            for b in range(nodes):
                fits = each
                for r in range(rows):
                    if requests[c, r] > 0:
                        fits = min(fits, left[b, r] // requests[c, r])
                if fits > 0:
                    content[b, c] += fits
                    counts[c] -= fits
                    for r in range(rows):
                        left[b, r] -= fits * requests[c, r]
        while counts[c] > 0:
            best, where = -1.0, -1
            for b in range(nodes):
                if content[b, c] >= most[c]:
                    continue
                score = 0.0
                for r in range(rows):
                    if requests[c, r] > left[b, r]:
                        score = -1.0
                        break
                    # Leftover room in the direction of the request: fills what is emptiest where the pod needs most.
                    score += float(requests[c, r]) * float(left[b, r]) / (1.0 + float(left[0, r]) ** 2)
                if score > best:
                    best, where = score, b
            if where < 0:
                break
            content[where, c] += 1
            counts[c] -= 1
            for r in range(rows):
                left[where, r] -= requests[c, r]


@njit(cache=True, nogil=True)
def best_fit(requests, counts, most, row, left, content):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, C901 - compiled: numba infers types
    """Put pods where least room is left afterwards; classes in the order given. What finds no room stays in `counts`.

    Args:
        requests: (n, R).
        counts: (n,) pods to place, lowered.
        most: (A, n) most pods of the class on one node, per kind of node.
        row: (B,) kind of each node.
        left: (B, R) room of the nodes, lowered.
        content: (B, n) pods on the nodes, raised.
    """
    nodes, rows = left.shape
    size = np.ones(rows)
    for b in range(nodes):
        for r in range(rows):
            size[r] = max(size[r], left[b, r])
    for c in range(len(counts)):
        while counts[c] > 0:
            least, where = np.inf, -1
            for b in range(nodes):
                if content[b, c] >= most[row[b], c]:
                    continue
                rest = 0.0
                for r in range(rows):
                    if requests[c, r] > left[b, r]:
                        rest = np.inf
                        break
                    rest += (left[b, r] - requests[c, r]) / size[r]
                if rest < least:
                    least, where = rest, b
            if where < 0:
                break
            content[where, c] += 1
            counts[c] -= 1
            for r in range(rows):
                left[where, r] -= requests[c, r]


def warm(resources: int) -> None:
    """Compile or load everything for this number of resources, outside of any measured time."""
    asked: Ints = np.ones((2, resources), dtype=np.int64)
    room, few = np.full(resources, 3, dtype=np.int64), np.ones(2, dtype=np.int64)
    _, _, prices = fill(np.ones(2), asked, room, few, 4)
    multipliers(np.ones(2), asked / 3.0, np.ones(resources), np.ones(2))
    worth_at_most(np.ones(2), asked / 3.0, prices, few)
    worth_at_most(np.ones(2), asked / 3.0, prices, np.ones(2))
    nodes, content = np.repeat(room[None], 2, axis=0), np.zeros((2, 2), dtype=np.int32)
    deal(asked, few.copy(), few, nodes, content)
    best_fit(asked, few.copy(), few[None].copy(), np.zeros(2, dtype=np.int64), nodes, content)
