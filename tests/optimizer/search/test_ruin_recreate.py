"""Ruin and recreate: deleted nodes are kept again where that spares moves, and waste is concentrated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.assemble import PodClass, assemble
from benchmarks.machine_types import MachineType

from kinema_optimizer.columns.generation import Bin, Subproblem, arrays_of
from kinema_optimizer.problem.instance import UNLIMITED, enemies_of
from kinema_optimizer.problem.node_types import node_types
from kinema_optimizer.problem.solution import NodeLoad
from kinema_optimizer.search.neighborhood import (
    ImprovementTask,
    Neighborhood,
    Replacement,
    SearchContext,
    improve,
    is_better,
)
from kinema_optimizer.search.ruin_recreate import recreate

_ROOM = np.array([4_000, 4_096], dtype=np.int64)
_TRIES = 40


def a_place(own: tuple[int, int], *, base: tuple[int, int] = (0, 0), limit: int = 1) -> Bin:
    """A node of price 100 with room for four pods, and with such pods at home."""
    mine = np.array(own, dtype=np.int64)
    return Bin(
        price=100.0,
        room=_ROOM,
        most=np.array([4, 4], dtype=np.int64),
        base=np.array(base, dtype=np.int64),
        own=mine,
        limit=limit,
        enemies={},
    )


def a_task(move_price: float, *places: Bin) -> Subproblem:
    """Two classes of two pods each, a quarter of a node every one; the last place is a machine on sale."""
    return Subproblem(
        requests=np.array([[1_000, 1_024], [1_000, 1_024]], dtype=np.int64),
        demand=np.array([2, 2], dtype=np.int64),
        move_price=np.full(2, move_price),
        bins=(*places, a_place((0, 0), limit=UNLIMITED)),
        pools=(),
        guess=np.full(2, 25.0 + move_price),
        existing=len(places),
    )


def begun_on_a_machine(task: Subproblem) -> tuple[float, list[int], list[list[int]]]:
    """What tries save, and make of it, where all pods are on a machine on sale and every existing node is deleted."""
    where, counts = np.array([len(task.bins) - 1]), task.demand[None].copy()
    saved, places, held = recreate(arrays_of(task), where, counts, _TRIES, np.array([7], dtype=np.uint64))
    return saved, places.tolist(), held.tolist()


def test_pods_come_back_to_a_node_that_was_to_be_deleted() -> None:
    """The same price for the node, and four moves fewer."""
    saved, places, held = begun_on_a_machine(a_task(3.0, a_place((2, 2)), a_place((0, 0))))
    assert (places, held) == ([0], [[2, 2]])
    assert saved == pytest.approx(12.0)


def test_the_node_with_more_of_them_comes_back() -> None:
    """Of two nodes that either could keep, the one where more pods are at home."""
    saved, places, _ = begun_on_a_machine(a_task(3.0, a_place((1, 0)), a_place((1, 2))))
    assert places == [1]
    assert saved == pytest.approx(9.0)


def test_a_deleted_node_is_no_better_than_a_machine_where_moves_are_free() -> None:
    """Nothing is gained by keeping it, and nothing is looked for there."""
    saved, places, _ = begun_on_a_machine(a_task(0.0, a_place((2, 2))))
    assert (saved, places) == (0.0, [1])


def test_a_node_is_kept_with_all_the_pods_that_cannot_leave_it() -> None:
    """They count for its room, and are on no other node besides."""
    saved, places, held = begun_on_a_machine(a_task(3.0, a_place((0, 2), base=(2, 0))))
    assert (places, held) == ([0], [[0, 2]])
    assert saved == pytest.approx(12.0)


def on_two_machines(*pods: int) -> tuple[SearchContext, Neighborhood, tuple[NodeLoad, ...]]:
    """So many pods on each machine of one type, which has room for four and costs a dollar."""
    problem = assemble(
        ("cpu", "memory", "pods"),
        [PodClass((1_000, 2**30, 1), sum(pods))],
        [MachineType("m4", 1_000_000, (4_000, 4 * 2**30, 110))],
    )
    fits = node_types(problem).fits
    context = SearchContext(problem, np.array([250_000.0]), np.zeros(1), (0,), fits, enemies_of(problem))
    boots = tuple(NodeLoad(0, np.zeros(1, dtype=np.int64), np.array([count])) for count in pods)
    return context, Neighborhood((), (), (), boots, {}), boots


def test_of_equal_cost_the_nodes_with_concentrated_waste_are_better() -> None:
    """Five pods as four and one rather than three and two, and not the other way round."""
    context, spread, apart = on_two_machines(3, 2)
    _, filled, together = on_two_machines(4, 1)
    assert is_better(context, spread, Replacement({}, together))
    assert not is_better(context, filled, Replacement({}, apart))
    assert not is_better(context, spread, Replacement({}, apart))
    found = improve(context, ImprovementTask(spread, deep=False, seed=(1,)))
    assert found is not None
    assert sorted(int(one.counts.sum()) for one in found.boots) == [1, 4]
    assert improve(context, ImprovementTask(filled, deep=False, seed=(1,))) is None


def test_where_moves_have_a_price_none_is_made_for_concentrated_waste() -> None:
    """Moves may be limited, and those that save something are to have them."""
    context, spread, _ = on_two_machines(3, 2)
    _, _, together = on_two_machines(4, 1)
    priced = replace(context, move_price=np.ones(1))
    assert not is_better(priced, spread, Replacement({}, together))
    assert improve(priced, ImprovementTask(spread, deep=False, seed=(1,))) is None


def test_nodes_that_cost_less_are_better_however_their_waste_is_spread() -> None:
    """One machine for four pods instead of two, and never two instead of one."""
    context, spread, apart = on_two_machines(3, 1)
    _, alone, one = on_two_machines(4)
    assert is_better(context, spread, Replacement({}, one))
    assert not is_better(context, alone, Replacement({}, apart))
