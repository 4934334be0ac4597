"""The arithmetic of placement problems: virtual nodes, first fit, and the integer re-check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, cluster, deployed, node, offers, tiny

from kinema_optimizer.exact.first_fit import starts
from kinema_optimizer.problem.arrays import first_fit_count, most_that_fit, pour, virtual_nodes
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.dense import DenseInstance
from kinema_optimizer.problem.instance import Solution, cost, flaws, moves
from kinema_optimizer.problem.question import Question


def problem() -> DenseInstance:
    """Two m4 nodes with three small pods of one Deployment; m2, m4 and m8 on sale, four of each."""
    on_sale = tuple(msgspec.structs.replace(one, available=4) for one in offers())
    return compiled(Question(tiny(), on_sale, NOW, "reschedule")).problem


def test_virtual_nodes_are_the_largest_quotient_over_all_resources() -> None:
    """Algorithm 6: 9 cores and 12 GiB on machines of 4 cores and 16 GiB take three, as CPU asks for 2.25."""
    assert virtual_nodes(np.array([9000, 12]), np.array([4000, 16])) == 3
    assert virtual_nodes(np.array([1000, 33]), np.array([4000, 16])) == 3
    assert virtual_nodes(np.array([8000, 16]), np.array([4000, 16])) == 2
    assert virtual_nodes(np.array([0, 0]), np.array([4000, 16])) == 0


def test_a_resource_that_a_machine_lacks_has_no_count() -> None:
    """Nothing is divided by 0."""
    with pytest.raises(ValueError, match="cannot hold"):
        virtual_nodes(np.array([1000, 1]), np.array([4000, 0]))


def test_whole_pods_can_need_more_machines_than_their_sum() -> None:
    """Three pods of 1200m need three machines of 2000m, though 3600m fill only two."""
    requests, room = np.array([[1200]]), np.array([2000])
    assert virtual_nodes(np.array([3600]), room) == 2
    assert first_fit_count(requests, np.array([3]), room) == 3


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    counts=st.lists(st.integers(0, 8), min_size=5, max_size=5),
)
def test_first_fit_holds_everything_and_is_never_below_the_quotient(sizes: list[int], counts: list[int]) -> None:
    """First fit needs at least algorithm 6's count, and fewer than twice it."""
    requests = np.array([[size] for size in sizes])
    wanted = np.array(counts[: len(sizes)])
    room = np.array([60])
    found = first_fit_count(requests, wanted, room)
    least = virtual_nodes(wanted @ requests, room)
    assert least <= found <= max(1, 2 * least)
    assert (found == 0) == (wanted.sum() == 0)


def test_pouring_fills_rooms_in_their_order() -> None:
    """Five pods of 3 into rooms of 7, 2 and 20, at most one in the last: 2, 0 and 1."""
    rooms = np.array([[7], [2], [20]])
    assert pour(np.array([3]), rooms, 5).tolist() == [2, 0, 3]
    assert pour(np.array([3]), rooms, 5, np.array([9, 9, 1])).tolist() == [2, 0, 1]


def test_an_overfull_room_holds_nobody_who_asks_for_what_is_lacking() -> None:
    """Negative room is room for none."""
    assert most_that_fit(np.array([[1, 0], [0, 1]]), np.array([-5, 3])).tolist() == [0, 3]


def test_a_sound_solution_has_no_flaws() -> None:
    """Moving all three pods to one new m2 obeys every constraint."""
    assert flaws(problem(), _all_to_m2()) == ()
    assert cost(problem(), _all_to_m2()) == 85_000
    assert moves(problem(), _all_to_m2()) == 3


def _all_to_m2(
    *, newcomers: Sequence[int] = (0, 0), boots: Sequence[tuple[int, int]] = ((0, 3),), unplaced: int = 0
) -> Solution:
    """The solution that deletes both nodes, with `boots`: machines and their pods."""
    taken = [(machine, np.array([count])) for machine, count in boots]
    deleted = np.zeros(2, dtype=bool)
    return problem().solution(deleted, np.array(newcomers).reshape(2, 1), taken, np.array([unplaced]))


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ({"boots": [(0, 2)]}, "lost or placed twice"),
        ({"boots": [(0, 5)]}, "overfull"),
        ({"boots": [], "unplaced": 3}, "running pod"),
        ({"newcomers": [1, 0], "boots": [(0, 2)]}, "deleted node"),
        ({"boots": [(0, 4), (0, -1)]}, "negative"),
        ({"boots": [*[(2, 0)] * 5, (0, 3)]}, "more machines"),
    ],
)
def test_every_broken_constraint_is_found(change: dict[str, Any], flaw: str) -> None:
    """The integer re-check names what a wrong solution breaks."""
    assert any(flaw in text for text in flaws(problem(), _all_to_m2(**change)))


def test_a_node_takes_no_pods_that_it_does_not_admit() -> None:
    """A class that no site admits has a place only where it is."""
    closed = replace(problem(), admits=np.zeros_like(problem().admits))
    assert flaws(closed, _all_to_m2()) == ("a node takes pods that it does not admit",)


def test_the_starting_solutions_are_sound() -> None:
    """Keeping everything is always among them."""
    found = starts(problem())
    assert all(flaws(problem(), one) == () for one in found)
    assert any(all(one.keep) for one in found)


def test_costs_are_multiples_of_the_price_unit() -> None:
    """The bound may be rounded up to the next of them."""
    assert problem().price_unit == 85_000


def test_a_rolling_update_replaces_the_whole_workload() -> None:
    """When one node of a workload that moves by rolling update goes, all its pods count as replaced."""
    state = cluster(
        node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500, annotations={"kinema.io/strategy": "rolling"})
    )
    found = compiled(Question(state, offers(), NOW, "reschedule")).problem

    def gone(newcomers: int) -> Solution:
        return found.solution(np.array([True, False]), np.array([[newcomers], [0]]), [], np.array([0]))

    assert flaws(found, gone(2)) == ()
    assert moves(found, gone(2)) == 1
    assert flaws(found, gone(1)) == ("pods are lost or placed twice",)
    assert "a rolling update replaces a part of its workload" in flaws(found, replace(gone(2), updates=frozenset()))
