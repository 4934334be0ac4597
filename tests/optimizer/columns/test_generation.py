"""Column generation: what comes out of a dive is whole, and of no place more than there is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from kinema_optimizer.columns.generation import Bin, Column, ColumnGeneration, Subproblem
from kinema_optimizer.problem.instance import UNLIMITED
from kinema_optimizer.solvers.stopping import StopReason

GROUPS, SIZE = 3, 20


def half_used() -> tuple[Subproblem, list[Column]]:
    """Groups of twenty pods for two nodes of ten each, and columns that cover them only when each is used by half.

    There are dearer nodes for what is left over.
    """
    n = GROUPS * SIZE
    nobody = np.zeros(n, dtype=np.int64)
    bins: list[Bin] = []
    columns: list[Column] = []
    for group in range(GROUPS):
        mine = np.arange(n) // SIZE == group
        for step in (10, 5):  # the first and the last ten; every other five
            place = Bin(1e6, np.array([10]), mine.astype(np.int64), nobody, nobody, 1, {})
            parity = np.arange(n) % SIZE // step % 2
            columns += [Column(len(bins), (mine & (parity == side)).astype(np.int64)) for side in (0, 1)]
            bins.append(place)
    ones = np.ones(n, dtype=np.int64)
    bins.append(Bin(3e6, np.array([10]), ones, nobody, nobody, UNLIMITED, {}))
    subproblem = Subproblem(ones[:, None], ones, np.zeros(n), tuple(bins), (), np.full(n, 1e5))
    return subproblem, columns


def test_two_columns_of_one_node_are_not_fixed_together() -> None:
    """Each of a node's two columns is used by half: one of them is fixed, and the rest of the pods go elsewhere."""
    subproblem, columns = half_used()
    generation = ColumnGeneration(subproblem)
    generation.add(columns)
    chosen, *_ = generation.dive()
    assert chosen is not None
    used = Counter(one.bin for one in chosen)
    assert all(used[place] <= one.limit for place, one in enumerate(subproblem.bins))
    assert (sum(one.counts for one in chosen) >= subproblem.demand).all()


def test_a_dive_whose_time_is_up_ends_with_the_columns_there_are() -> None:
    """Told to hurry it generates nothing more, and still covers every pod."""
    subproblem, columns = half_used()
    generation = ColumnGeneration(subproblem)
    generation.add(columns)
    generation.add([Column(len(subproblem.bins) - 1, one) for one in np.eye(len(subproblem.demand), dtype=np.int64)])
    known: list[int] = []

    def ends(_: int) -> StopReason:
        known.append(len(generation.columns))
        return "time-limit"

    chosen, _, reason = generation.dive(ends)
    assert chosen is not None
    assert (sum(one.counts for one in chosen) >= subproblem.demand).all()
    assert reason == "time-limit"
    assert known == [len(generation.columns)]


@pytest.mark.parametrize("times", [0.0, 0.01, 1.0, 3.0])
def test_wrong_guesses_of_what_pods_are_worth_change_no_optimum(times: float) -> None:
    """Leaving a pod out costs what was guessed at first; in the end all are covered at the same least cost."""
    subproblem, columns = half_used()
    generation = ColumnGeneration(replace(subproblem, guess=times * subproblem.guess), width=400)
    generation.add(columns)
    generation.improve(100)
    covering = ColumnGeneration(subproblem, width=400)
    covering.add(columns)
    covering.improve(100)
    assert generation.prices() @ subproblem.demand == pytest.approx(covering.prices() @ subproblem.demand)
    chosen, *_ = generation.dive()
    assert chosen is not None
    assert (sum(one.counts for one in chosen) >= subproblem.demand).all()


def test_a_beam_that_widens_ends_where_a_wide_one_does() -> None:
    """Narrow fillings come first, and those that only a wide beam finds at the end."""
    random = np.random.default_rng(0)
    n = 30
    requests = random.integers(50, 900, size=(n, 3))
    no_pods, demand = np.zeros(n, dtype=np.int64), random.integers(1, 40, size=n)
    rooms = [np.array([2000, 3000, 1500]), np.array([4000, 2500, 3500])]
    bins = tuple(
        Bin(
            float(room.sum()), room, np.minimum((room // requests).min(axis=1), demand), no_pods, no_pods, UNLIMITED, {}
        )
        for room in rooms
    )
    subproblem = Subproblem(requests, demand, np.zeros(n), bins, (), requests.sum(axis=1) * 1.1)
    paid = []
    for width in (4, 1024):
        generation = ColumnGeneration(subproblem, width=width)
        generation.improve(1000, widest=1024)
        assert generation.width == 1024
        paid.append(generation.prices() @ demand)
    assert paid[0] == pytest.approx(paid[1], rel=1e-3)
