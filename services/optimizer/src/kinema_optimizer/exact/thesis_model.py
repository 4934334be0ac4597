"""The literal model of the thesis, equations 5.1-5.7: one binary per pod and node, one per node.

It is the reference for the class-aggregated model: slow and plain. Rows are those of the thesis; equation 5.3/5.4 stand
for every resource, and 5.5 (110 pods) is the resource `pods`. Pods on an existing node that is kept stay there, unless
the problem says otherwise (`unbound`). Virtual nodes are alike, so their order is fixed, which the thesis does not do
and which costs no solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kinema_core.events import Stop
from kinema_optimizer.problem.dense import DenseInstance
from kinema_optimizer.solvers.mip import WHOLE, Model, solve
from kinema_optimizer.solvers.stopping import StopRule


@dataclass(frozen=True)
class LiteralResult:
    """Least cost found, and how the solve ended."""

    cost: int | None
    """Micro-USD per hour; None: nothing found, or nothing can hold the pods (then `stop` says `infeasible`)."""
    proven: bool
    """No plan costs less (by equation 5.1 or 5.7, as asked)."""
    stop: Stop
    filled: tuple[Filled, ...] = ()
    """The nodes that are paid for, in the order of the model; a pod that stays where its node is kept is left out."""


@dataclass(frozen=True)
class Filled:
    """A node of the solution and the pods that the model puts there."""

    existing: int | None
    """Index of the existing node; None: a new one."""
    machine: int | None
    """Index of a new one's machine."""
    counts: tuple[int, ...]
    """Pods of each class (C,)."""


@dataclass(frozen=True)
class _Pod:
    kind: int
    home: int | None = None
    """The existing node that it stays on when that is kept."""
    roll: int | None = None
    """The column that says whether its workload is rolled out; until then it stays."""


@dataclass(frozen=True)
class _Place:
    """A node n of the thesis: existing or virtual."""

    used: int | None
    """Column n_i; None: the node must stay."""
    price: int
    size: int
    room: tuple[int, ...]
    limits: tuple[int, ...]
    """Most pods of each class: 0 where it does not admit them; a cordoned node holds no more than it has."""
    existing: int | None
    machine: int | None


def solve_literal(
    problem: DenseInstance, stop: StopRule, *, size_term: bool = False, at_most: int | None = None
) -> LiteralResult:
    """Find the least cost by the literal model; every pod must be placed.

    With `size_term` the objective is equation 5.1, else 5.7, which has no second term and is proven sooner. Least
    costs agree as long as prices differ by more than the second term, 2 micro-USD per node. `at_most` (micro-USD per
    hour) leaves out what costs more than a plan that is known: its cost is found again if there is nothing cheaper.
    """
    model = Model()
    places = _places(problem, model, at_most=at_most)
    pods = _pods(problem, model, places)
    assigned: list[dict[int, int]] = [{} for _ in places]
    for pod_index, pod in enumerate(pods):
        _assign(model, places, assigned, pod_index=pod_index, pod=pod)
    for place, on_it in zip(places, assigned, strict=True):
        _hold(problem, model, place, on_it=on_it, pods=pods)
    for pool in problem.pools:
        each = pool.weights
        shared = [
            (place.used, each[place.machine]) for place in places if place.machine in each and place.used is not None
        ]
        model.row(shared, upper=pool.limit)
    unit = 1 if size_term else problem.price_unit
    objective = {
        place.used: place.price / unit + (place.size / 1000 if size_term else 0.0)
        for place in places
        if place.used is not None
    }
    fixed = sum(place.price for place in places if place.used is None)
    if not model.uppers:
        return LiteralResult(fixed, proven=True, stop=Stop(reason="optimal", phase="literal", iteration=0))
    if at_most is not None:
        paid = [(place.used, place.price / unit) for place in places if place.used is not None]
        model.row(paid, upper=(at_most - fixed) // unit)
    outcome = solve(model, objective, phase="literal", stop=stop, gap=1e-6 if size_term else WHOLE)
    if outcome.values is None:
        return LiteralResult(None, proven=outcome.stop.reason == "infeasible", stop=outcome.stop)
    price = fixed + sum(place.price for place in places if place.used is not None and outcome.values[place.used] > 0.5)
    filled = tuple(
        Filled(place.existing, place.machine, _counts(outcome.values, on_it, pods, len(problem.pending)))
        for place, on_it in zip(places, assigned, strict=True)
        if place.used is None or outcome.values[place.used] > 0.5
    )
    return LiteralResult(price, proven=outcome.stop.reason == "optimal", stop=outcome.stop, filled=filled)


def _counts(values: NDArray[np.float64], on_it: dict[int, int], pods: list[_Pod], classes: int) -> tuple[int, ...]:
    """Return how many pods of each class the solution puts on a node."""
    counts = [0] * classes
    for pod, column in on_it.items():
        counts[pods[pod].kind] += values[column] > 0.5
    return tuple(counts)


def _places(problem: DenseInstance, model: Model, *, at_most: int | None) -> list[_Place]:
    places = []
    for e in range(len(problem.nodes)):
        used = None if problem.node_fixed[e] else model.column(1)
        places.append(
            _Place(
                used,
                int(problem.node_price[e]),
                int(problem.node_size[e]),
                tuple(problem.node_room[e].tolist()),
                tuple(problem.node_limit[e].tolist()),
                existing=e,
                machine=None,
            )
        )
    for m, count in enumerate(problem.machine_count.tolist()):
        price = int(problem.machine_price[m])
        most = count if at_most is None or price == 0 else min(count, at_most // price)
        columns = [model.column(1) for _ in range(most)]
        for earlier, later in pairwise(columns):
            model.row([(later, 1), (earlier, -1)], upper=0)
        places += [
            _Place(
                used,
                price,
                int(problem.machine_size[m]),
                tuple(problem.machine_room[m].tolist()),
                tuple(problem.machine_limit[m].tolist()),
                existing=None,
                machine=m,
            )
            for used in columns
        ]
    return places


def _pods(problem: DenseInstance, model: Model, places: list[_Place]) -> list[_Pod]:
    pods = [_Pod(c) for c, count in enumerate(problem.demand.tolist()) for _ in range(count)]
    for e, row in enumerate(problem.node_stays.tolist()):
        if not problem.node_fixed[e]:
            pods += [_Pod(c, home=e) for c, count in enumerate(row) for _ in range(count)]
    for rollout in problem.node_updates:
        homes = [places[e].used for e in np.flatnonzero(rollout.any(axis=1))]
        keeps = [column for column in homes if column is not None]
        if keeps:
            roll = model.column(1)
            for keep in keeps:
                model.row([(roll, 1), (keep, 1)], lower=1)
            model.row([(roll, 1), *((keep, 1.0) for keep in keeps)], upper=len(keeps))
            pods += [_Pod(c, roll=roll) for c, count in enumerate(rollout.sum(axis=0)) for _ in range(int(count))]
    return pods


def _assign(model: Model, places: list[_Place], assigned: list[dict[int, int]], *, pod_index: int, pod: _Pod) -> None:
    """Put the pod on exactly one node (5.2); on its own exactly when that is kept, or it is not replaced."""
    entries: list[tuple[int, float]] = []
    wanted = 1.0
    if pod.roll is not None:
        entries.append((pod.roll, -1.0))
        wanted = 0.0
    for place, on_it in zip(places, assigned, strict=True):
        if pod.home is not None and place.existing == pod.home:
            assert place.used is not None
            entries.append((place.used, 1.0))
        elif place.limits[pod.kind]:
            on_it[pod_index] = model.column(1)
            entries.append((on_it[pod_index], 1.0))
    model.row(entries, lower=wanted, upper=wanted)


def _hold(problem: DenseInstance, model: Model, place: _Place, *, on_it: dict[int, int], pods: list[_Pod]) -> None:
    """Let what is on the node fit (5.3-5.5), and pay for a node that holds a pod (5.6)."""
    for r, room in enumerate(place.room):
        step = max(1, room)
        entries = [
            (column, int(problem.requests[pods[pod].kind, r]) / step)
            for pod, column in on_it.items()
            if problem.requests[pods[pod].kind, r]
        ]
        if entries:
            model.row(entries, upper=max(0, room) / step)
    for c, limit in enumerate(place.limits):
        alike = [(column, 1.0) for pod, column in on_it.items() if pods[pod].kind == c]
        if len(alike) > limit:
            model.row(alike, upper=limit)
    if place.used is not None and on_it:
        model.row([*((column, 1.0) for column in on_it.values()), (place.used, -float(len(on_it)))], upper=0)
