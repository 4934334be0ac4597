"""Ruin and recreate: the quick way to improve a neighborhood, and the end of the other one. Compiled.

Some nodes are emptied, the others filled again from their own pods and from those that lost their node, and what is
left over goes to new nodes. One try takes a millisecond where column generation takes a second, which pays where hardly
two pods are alike and a master program has a row for each of them. All of it is compiled (`recreate`) and releases the
interpreter's lock while it runs.

Of nodes that cost the same, those are better whose waste is concentrated: crumbs of room on a hundred nodes save
nothing, and the same room on one node makes it a smaller machine. Where moves have a price, none is spent on that.
"""

from __future__ import annotations

import numpy as np

from kinema_optimizer.columns.compiled import kernel
from kinema_optimizer.columns.generation import Column, Subproblem, arrays_of
from kinema_optimizer.columns.pricing import price_bin
from kinema_optimizer.problem.instance import UNLIMITED

_WIDTH = 24
_NOISE = 0.03
"""Relative disturbance of the prices of pods, so that no two tries fill alike."""
_RUIN_SHARE = 0.3
"""Most nodes that a try empties, as a share."""
_SAMPLED_CLASSES = 80
"""Classes of the pool that a node is offered."""
_OFFERED = 8
"""Machines that a try looks at for what is left over."""
LEAST_SAVING = 0.5
"""Micro-USD per hour by which nodes have to be cheaper."""
LEAST_CONCENTRATION = 100.0
"""Micro-USD per hour by which the waste of nodes that cost the same has to be more concentrated."""
_BACK_SHARE = 0.2
"""Share of tries that begin with a node that was to be deleted, where moves have a price: its pods come back to it."""
_HEAT = 0.1
"""By how much of a node's mean price the first try may be dearer than what it starts from; the last not at all.

A node is saved in several replacements of which the first only make room on it.
"""


@kernel
def _random(state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """The next number in [0, 1) of Vigna's SplitMix64; `state` is one unsigned number."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@kernel
def _shuffle(items, most, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """Bring a random choice of so many items, in random order, to the front."""
    for i in range(min(most, len(items) - 1)):
        j = i + int(_random(state) * (len(items) - i))
        items[i], items[j] = items[j], items[i]


@kernel
def _refill(arrays, values, place, held, pool, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """(n,) what a place holds of its pods and of a sample of the pool; the same as now where nothing is better."""
    free = np.flatnonzero((pool > 0) & ((arrays.most[place] > 0) | (arrays.own[place] > 0)) & (held == 0))
    _shuffle(free, _SAMPLED_CLASSES, state)
    fresh = np.concatenate((np.flatnonzero(held), free[:_SAMPLED_CLASSES]))
    if len(fresh) == 0:
        return held.copy()
    same = np.minimum(held, arrays.own[place])
    floor = max((same * values + (held - same) * (values - arrays.move_price)).sum(), 0.0)
    unknown = np.full(arrays.room.shape[1], np.nan)
    found, worth = price_bin(arrays, values, place, held + pool, fresh, _WIDTH, floor, unknown)
    return found if worth > floor else held.copy()


@kernel
def _cheapest(arrays, place, counts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """The cheapest machine without limit that holds what is on a new node, or its own."""
    best = place
    if place < arrays.existing or counts.sum() == 0:
        return best
    load = np.zeros(arrays.room.shape[1], np.int64)
    for c in np.flatnonzero(counts):
        load += arrays.requests[c] * counts[c]
    for p in range(arrays.existing, len(arrays.price)):
        cheaper = arrays.price[p] < arrays.price[best] and arrays.limit[p] >= UNLIMITED
        if cheaper and (load <= arrays.room[p]).all() and (counts <= arrays.most[p]).all():
            best = p
    return best


@kernel
def _ruin(arrays, places, counts, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """(nodes,) whether a node is emptied: some at random, those first that cost more than their pods are worth."""
    nodes = len(places)
    keys = np.empty(nodes)
    for i in range(nodes):
        price = arrays.price[places[i]]
        worth = (arrays.guess * (counts[i] + arrays.base[places[i]])).sum()
        keys[i] = -np.log(-np.log(_random(state) + 1e-300) + 1e-300) + 20.0 * (price - worth) / max(price, 1.0)
        if price <= 0:  # stays in any case
            keys[i] = -np.inf
    order = np.argsort(-keys)
    gone = np.zeros(nodes, np.bool_)
    for i in order[: 1 + int(max(1.0, _RUIN_SHARE * nodes) * _random(state) ** 2)]:
        gone[i] = keys[i] > -np.inf
    return gone


@kernel
def _disturb_prices(arrays, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """(n,) what pods are worth, disturbed."""
    values = np.empty(len(arrays.guess))
    for c in range(len(values)):  # the sum of three uniform numbers is nearly normal
        noise = 2.0 * (_random(state) + _random(state) + _random(state) - 1.5)
        values[c] = arrays.guess[c] * (1.0 + _NOISE * noise)
    return values


@kernel
def _market(arrays, places):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """Places for what is left over: machines, and where moves have a price existing nodes that are to be deleted."""
    free = np.ones(len(arrays.price), np.bool_)
    free[: arrays.existing] = arrays.move_price.any()
    for place in places:
        free[place] = place >= arrays.existing
    return np.flatnonzero(free)


@kernel
def _bring_back(arrays, places, counts, market, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """(a node that was to be deleted or -1, (n,) its pods that are elsewhere): they are taken from `counts`."""
    back = np.zeros(counts.shape[1], np.int64)
    deleted = market[market < arrays.existing]
    if len(deleted) == 0 or _random(state) >= _BACK_SHARE:
        return -1, back
    place = deleted[int(_random(state) * len(deleted))]
    if arrays.base[place].any():  # more of its pods come back with it than these: `_rest` sees to such nodes
        return -1, back
    for c in np.flatnonzero(arrays.own[place]):
        for i in range(len(places)):
            taken = min(arrays.own[place, c] - back[c], counts[i, c] - arrays.own[places[i], c])
            if taken > 0:
                counts[i, c] -= taken
                back[c] += taken
    return (place if back.any() else -1), back


@kernel
def _place_rest(arrays, values, made, held, used, size, pool, market, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0913, PLR0917 - compiled: numba infers types, and takes no keywords
    """How many nodes there are once the pool is on nodes, best worth per cost first; -1 where it finds no place."""
    no_pods = np.zeros(len(pool), np.int64)
    while pool.any():
        _shuffle(market, len(market), state)
        paid, looked, best, price_bin = 0.0, 0, -1, no_pods
        for place in market:
            if (
                used[place] >= arrays.limit[place]
                or (looked >= _OFFERED and best >= 0)
                or (arrays.base[place] > pool).any()
            ):
                continue
            looked += 1
            kept = _refill(arrays, values, place, no_pods, pool - arrays.base[place], state)
            worth = (values * (kept + arrays.base[place])).sum()
            worth -= (arrays.move_price * np.maximum(kept - arrays.own[place], 0)).sum()
            cheap = _cheapest(arrays, place, kept)  # a last node is as good as the cheapest machine that holds it
            if worth / max(1.0, arrays.price[cheap]) > paid:
                paid, best, price_bin = worth / max(1.0, arrays.price[cheap]), cheap, kept
        if best < 0 or size >= len(made):
            return -1
        used[best] += 1
        made[size], held[size] = best, price_bin
        pool -= price_bin + arrays.base[best]
        size += 1
    return size


@kernel
def _attempt(arrays, places, counts, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """Empty nodes, refill the others, take new ones for the rest; return (all pods have a place, places, counts)."""
    nodes, n = counts.shape
    values, market, counts = _disturb_prices(arrays, state), _market(arrays, places), counts.copy()
    again, back = _bring_back(arrays, places, counts, market, state)
    gone = _ruin(arrays, places, counts, state)
    pool = np.zeros(n, np.int64)
    for i in np.flatnonzero(gone):
        pool += counts[i] + arrays.base[places[i]]
    made = np.empty(2 * nodes + 8, np.int64)
    held = np.zeros((2 * nodes + 8, n), np.int64)
    used = np.zeros(len(arrays.price), np.int64)
    size = 0
    stay = np.flatnonzero(~gone)
    _shuffle(stay, len(stay), state)
    for k in range(len(stay) + (again >= 0)):
        place, own = (places[stay[k]], counts[stay[k]]) if k < len(stay) else (again, back)
        kept = own
        if pool.any():
            kept = _refill(arrays, values, place, own, pool, state)
            pool += own - kept
        if arrays.base[place].any() or kept.any() or arrays.price[place] == 0:
            made[size], held[size] = place, kept
            used[place] += 1
            size += 1
    size = _place_rest(arrays, values, made, held, used, size, pool, market, state)
    for k in range(size):
        made[k] = _cheapest(arrays, made[k], held[k])
    return size >= 0, made[: max(size, 0)], held[: max(size, 0)]


@kernel
def _cost(arrays, places, counts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """Price of the nodes and of the moves to them."""
    total = 0.0
    for i in range(len(places)):
        newcomers = np.maximum(counts[i] - arrays.own[places[i]], 0)
        total += arrays.price[places[i]] + (newcomers * arrays.move_price).sum()
    return total


@kernel
def _concentration(arrays, places, counts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """Sum over the nodes of what they cost more than their pods are worth, each weighted by its share of the price.

    0 where moves have a price: they are not made for it.
    """
    total = 0.0
    if arrays.move_price.any():
        return total
    for i in range(len(places)):
        price = arrays.price[places[i]]
        waste = price - (arrays.guess * (counts[i] + arrays.base[places[i]])).sum()
        if price > 0 and waste > 0:
            total += waste * waste / price
    return total


@kernel
def recreate(arrays, places, counts, tries, seed):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - compiled: numba infers types
    """(what is saved, places, counts): nodes that cost less for the same pods, as far as so many tries find some.

    Else nodes that cost the same, their waste more concentrated.

    Args:
        arrays: the task.
        places: (nodes,) place of each node now.
        counts: (nodes, n) pods on it besides its base.
        tries: how many.
        seed: (1,) unsigned, changed.
    """
    before = cost = least = _cost(arrays, places, counts)
    best_places, best_counts, concentration = places, counts, _concentration(arrays, places, counts)
    for turn in range(tries):
        done, others, held = _attempt(arrays, places, counts, seed)
        if done:
            after = _cost(arrays, others, held)
            if after <= cost + _HEAT * before / len(places) * (1.0 - (turn + 1.0) / tries):
                places, counts, cost = others.copy(), held.copy(), after
                if cost > least + LEAST_SAVING:
                    continue
                concentrated = _concentration(arrays, places, counts)
                if cost < least - LEAST_SAVING or concentrated > concentration + LEAST_CONCENTRATION:
                    least, best_places, best_counts, concentration = cost, places, counts, concentrated
    return before - least, best_places, best_counts


def ruin_and_recreate(
    subproblem: Subproblem, nodes: list[Column], *, tries: int, seed: tuple[int, ...]
) -> list[Column]:
    """Return nodes that are better than these for the same pods, where so many tries find some."""
    if not nodes or not len(subproblem.demand):
        return nodes
    places = np.array([one.bin for one in nodes], dtype=np.int64)
    counts = np.stack([one.counts for one in nodes])
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    _, places, counts = recreate(arrays_of(subproblem), places, counts, tries, start)
    return [Column(place, row) for place, row in zip(places.tolist(), counts, strict=True)]
