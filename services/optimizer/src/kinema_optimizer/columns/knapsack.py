"""Compiled knapsacks: prices of a knapsack's relaxation, and a beam search for its best filling.

Both work on one node: which pods of which classes fill it best at given prices per pod. They are called some hundred
thousand times in a solve, a few microseconds to a millisecond each.
"""

from __future__ import annotations

import numpy as np

from kinema_optimizer.columns.compiled import kernel

_TOLERANCE = 1e-9
_BRANCHES = 5
"""Counts of a class that a partial filling goes on with: the most that fit, those just below, and none."""
_MIXER = np.int64(0x9E3779B97F4A7C1)
"""Odd, with bits set at random: spreads the keys of states over a table."""


@kernel
def knapsack_duals(values, weights, bounds, most):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - compiled: numba infers types
    """(R,): dual prices of max values·x, weights x <= 1 per resource, 0 <= x <= most; by the bounded primal simplex.

    Args:
        values: (n,) worth of one pod.
        weights: (n, R) share of the room that one pod takes.
        bounds: (R,) shares of the room that there are, usually 1.
        most: (n,) most pods of the class.
    """
    n, rows = weights.shape
    inverse, basis, level = np.eye(rows), np.arange(n, n + rows), bounds.copy()
    upper, basic = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    duals, direction = np.zeros(rows), np.zeros(rows)
    for _ in range(50 * (rows + 4)):
        _price_rows(values, inverse, basis, duals)
        enter = _entering(values, weights, most, duals, upper, basic)
        if enter < 0:
            break
        for i in range(rows):
            direction[i] = inverse[i, enter - n] if enter >= n else 0.0
            for r in range(rows if enter < n else 0):
                direction[i] += inverse[i, r] * weights[enter, r]
        sign = -1.0 if enter < n and upper[enter] else 1.0
        step, leave, to_upper = _leaving(level, most, basis, direction, sign, most[enter] if enter < n else np.inf)
        if step == np.inf:
            break
        for i in range(rows):
            level[i] -= sign * step * direction[i]
        if leave < 0:
            upper[enter] = not upper[enter]
            continue
        gone = basis[leave]
        if gone < n:
            basic[gone], upper[gone] = False, to_upper
        level[leave] = (most[enter] if enter < n and upper[enter] else 0.0) + sign * step
        basis[leave] = enter
        if enter < n:
            basic[enter], upper[enter] = True, False
        _pivot(inverse, leave, direction)
    return np.maximum(duals, 0.0)


@kernel
def _price_rows(values, inverse, basis, duals):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """Set the duals (R,) of a basis; slacks of the rows, from n on, are worth nothing."""
    rows = len(basis)
    for r in range(rows):
        duals[r] = 0.0
        for i in range(rows):
            if basis[i] < len(values):
                duals[r] += values[basis[i]] * inverse[i, r]


@kernel
def _entering(values, weights, most, duals, upper, basic):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """The variable that may gain most by entering the basis, a slack from n on; -1 where none gains."""
    n, rows = weights.shape
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
    return enter


@kernel
def _leaving(level, most, basis, direction, sign, step):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """(how far one may go, at most `step`, the row that ends it or -1, whether its variable ends at its most)."""
    leave, to_upper = -1, False
    for i in range(len(basis)):
        change = sign * direction[i]
        if change > _TOLERANCE:
            ratio = level[i] / change
            if ratio < step:
                step, leave, to_upper = ratio, i, False
        elif change < -_TOLERANCE and basis[i] < len(most):
            ratio = (level[i] - most[basis[i]]) / change
            if ratio < step:
                step, leave, to_upper = ratio, i, True
    return step, leave, to_upper


@kernel
def _pivot(inverse, leave, direction):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """Bring the inverse of the basis up to date where row `leave` has a new variable of this direction (R,)."""
    rows = len(direction)
    for r in range(rows):
        inverse[leave, r] /= direction[leave]
    for i in range(rows):
        if i != leave and direction[i] != 0.0:
            for r in range(rows):
                inverse[i, r] -= direction[i] * inverse[leave, r]


@kernel
def knapsack_dual_bound(values, weights, prices, most):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - compiled: numba infers types
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


@kernel
def knapsack_beam(values, requests, room, most, width, floor):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, C901, PLR0912, PLR0915 - compiled: numba infers types, one loop over arrays is what makes it fast
    """((n,) pods, their worth, (R,) prices of all the room): a nearly best filling of one node, by a beam.

    Classes are taken in the order of their worth per priced share of the room. A partial filling is dropped when even
    the relaxation of what may follow is worth no more than `floor` or than the best filling so far: where the beam
    was never full, the filling is the best there is. Of partial fillings that leave the same priced room the one of
    greatest worth is kept: where one resource alone is priced this is dynamic programming. Of the others the `width`
    of greatest worth plus priced room left are kept. Nothing, of worth 0, where no filling is worth more than `floor`.

    Args:
        values: (n,) worth of one pod; classes without any are left out.
        requests: (n, R) in integers.
        room: (R,) what the node has.
        most: (n,) most pods of the class.
        width: states kept after each class.
        floor: what a filling has to be worth more than, 0 or above.
    """
    n, rows = requests.shape
    weights = np.zeros((n, rows))
    limit = np.zeros(n)
    for j in range(n):
        fits = most[j] if values[j] > 0 else 0
        for r in range(rows):
            if requests[j, r] > 0:
                fits = min(fits, max(room[r], 0) // requests[j, r])
                weights[j, r] = requests[j, r] / max(room[r], 1)
        limit[j] = fits
    prices = knapsack_duals(values, weights, np.ones(rows), limit)
    ceiling = prices.sum()
    excess = np.empty(n)
    ratio = np.ones(n)
    for j in range(n):
        spent = 0.0
        for r in range(rows):
            spent += prices[r] * weights[j, r]
        excess[j] = values[j] - spent
        ceiling += max(excess[j], 0.0) * limit[j]
        ratio[j] = -values[j] / (spent + 1e-12)
    counts = np.zeros(n, np.int64)
    levels = 0
    for j in range(n):
        if excess[j] < 0 and -excess[j] * limit[j] > ceiling - floor:  # more of it would cost more than there is
            limit[j] = np.floor(max(ceiling - floor, 0.0) / -excess[j])
        if limit[j] <= 0:
            ratio[j] = 1.0
        levels += limit[j] > 0
    if ceiling <= floor or levels == 0:
        return counts, 0.0, prices
    order = np.argsort(ratio, kind="mergesort")
    follows = np.zeros(levels + 1)
    for step in range(levels - 1, -1, -1):
        follows[step] = follows[step + 1] + max(excess[order[step]], 0.0) * limit[order[step]]
    left = np.empty((width, rows), np.int64)
    worth = np.zeros(width)
    left[0] = room
    alive = 1
    parents = np.empty((levels, width), np.int32)
    taken = np.empty((levels, width), np.int64)
    children = width * _BRANCHES
    child_left = np.empty((children, rows), np.int64)
    child_worth = np.empty(children)
    child_rank = np.empty(children)
    child_parent = np.empty(children, np.int32)
    child_taken = np.empty(children, np.int64)
    slots = 1
    while slots < 2 * children:
        slots *= 2
    filled_at = np.full(slots, -1, np.int32)
    slot_child = np.empty(slots, np.int32)
    slot_key = np.empty(slots, np.int64)
    best, best_step, best_state = floor, -1, -1
    for step in range(levels):
        j = order[step]
        made = 0
        for s in range(alive):
            fits = np.int64(limit[j])
            for r in range(rows):
                if requests[j, r] > 0:
                    fits = min(fits, left[s, r] // requests[j, r])
            for b in range(_BRANCHES):
                count = fits - b if b < _BRANCHES - 1 else 0
                if count < 0 or (b == _BRANCHES - 1 and fits < _BRANCHES - 1):
                    continue
                value = worth[s] + values[j] * count
                rank = value
                key = np.int64(0)
                for r in range(rows):
                    rest = left[s, r] - requests[j, r] * count
                    rank += prices[r] * rest / max(room[r], 1)
                    if prices[r] > 0:
                        key = key * _MIXER + rest
                if rank + follows[step + 1] <= best:
                    continue
                slot = (key * _MIXER >> 20) & (slots - 1)
                while filled_at[slot] == step and slot_key[slot] != key:
                    slot = (slot + 1) & (slots - 1)
                child = made
                if filled_at[slot] == step:
                    child = slot_child[slot]
                    if child_worth[child] >= value:
                        continue
                else:
                    filled_at[slot], slot_key[slot], slot_child[slot] = step, key, made
                    made += 1
                for r in range(rows):
                    child_left[child, r] = left[s, r] - requests[j, r] * count
                child_worth[child] = value
                child_rank[child] = rank
                child_parent[child] = s
                child_taken[child] = count
        cut = -np.inf
        if made > width:
            cut = np.partition(child_rank[:made], made - width)[made - width]
        alive = 0
        for strict in range(2):
            for i in range(made):
                above = child_rank[i] > cut if strict == 0 else child_rank[i] == cut
                if above and alive < width:
                    parents[step, alive] = child_parent[i]
                    taken[step, alive] = child_taken[i]
                    worth[alive] = child_worth[i]
                    if child_worth[i] > best:
                        best, best_step, best_state = child_worth[i], step, alive
                    for r in range(rows):
                        left[alive, r] = child_left[i, r]
                    alive += 1
    if best_step < 0:
        return counts, 0.0, prices
    state = best_state
    for step in range(best_step, -1, -1):
        counts[order[step]] = taken[step, state]
        state = parents[step, state]
    return counts, best, prices
