"""The search: packings obey every rule, wishes are kept, and neither chance nor the number of workers decides."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from benchmarks.assemble import PodClass, assemble
from benchmarks.machine_types import MachineType
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.instances import boutique, random_cluster
from tests.optimizer.rule_instances import rule_instance
from tests.support.builders import NOW

from kinema_core.events import Solve
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import Instance, cost, flaws, moves
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import Incumbent, cost_of
from kinema_optimizer.search import search as search_module
from kinema_optimizer.search.search import Affordable, SearchOptions, SearchResult, search, start_as_is, too_slow
from kinema_optimizer.solvers.stopping import Ends, RecordedStop, StopReason, WorkStop


@cache
def boutique_problem(replicas: int = 60, nodes: int = 70) -> Compiled:
    """Online Boutique many times over, spread thinly."""
    cluster, offers = boutique(replicas, seed=3, nodes=nodes)
    return compiled(Question(cluster, offers, NOW, "reschedule"))


def found_for(problem: Compiled, wish: SearchOptions, rounds: int = 6) -> SearchResult:
    """A short search."""
    return search(problem.packing, problem.relaxed, wish, WorkStop(rounds))


def same(one: SearchResult, other: SearchResult) -> bool:
    """Whether two packings are equal in every count."""
    pairs = (
        (one.packing.keep, other.packing.keep),
        (one.packing.boots, other.packing.boots),
        (one.packing.booted.classes, other.packing.booted.classes),
        (one.packing.booted.counts, other.packing.booted.counts),
        (one.packing.changes.classes, other.packing.changes.classes),
        (one.packing.changes.counts, other.packing.changes.counts),
        (one.packing.unplaced, other.packing.unplaced),
    )
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), pods=st.sampled_from([8, 30]))
def test_packings_obey_every_rule_and_the_bound(seed: int, pods: int) -> None:
    """Whatever the rules: no flaw, and no packing that places everybody is cheaper than the certified bound."""
    instance = rule_instance(seed, pods=pods)
    problem = compiled(Question(instance.cluster, instance.offers, NOW, "reschedule"))
    found = found_for(problem, SearchOptions(workers=1), rounds=3)
    assert flaws(problem.packing, found.packing) == ()
    assert not found.packing.unplaced.any() or (found.packing.unplaced <= problem.packing.pending).all()
    if not found.packing.unplaced.any():
        assert found.bound.value <= cost(problem.packing, found.packing)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), most=st.integers(0, 12))
def test_no_more_pods_move_than_allowed(seed: int, most: int) -> None:
    """A cap on moves holds, whatever could be saved with more."""
    cluster, offers = random_cluster(seed, pods=14)
    problem = compiled(Question(cluster, offers, NOW, "reschedule"))
    found = found_for(problem, SearchOptions(max_moves=most, workers=1), rounds=3)
    assert flaws(problem.packing, found.packing) == ()
    assert moves(problem.packing, found.packing) <= most


@pytest.mark.slow
@pytest.mark.parametrize("wish", [SearchOptions(), SearchOptions(max_moves=200), SearchOptions(move_price=300)])
def test_the_same_seed_gives_the_same_packing_whatever_the_workers(wish: SearchOptions) -> None:
    """Workers decide how fast a round is, never what comes out of it."""
    problem = boutique_problem()
    one = found_for(problem, SearchOptions(wish.move_price, wish.max_moves, workers=1))
    many = found_for(problem, SearchOptions(wish.move_price, wish.max_moves, workers=3))
    assert same(one, many)
    assert one.stops == many.stops


@pytest.mark.slow
def test_a_search_ends_where_a_recorded_one_ended() -> None:
    """A replay has no clock: it stops every phase at the recorded round, and finds the same."""
    problem = boutique_problem()
    first = found_for(problem, SearchOptions(), rounds=4)
    solve = Solve(seconds=1.0, first_feasible_seconds=0.1, method="search", seed=0, stops=first.stops)
    again = search(problem.packing, problem.relaxed, SearchOptions(), RecordedStop(solve))
    assert same(first, again)


@pytest.mark.slow
@pytest.mark.parametrize("wish", [SearchOptions(), SearchOptions(max_moves=200), SearchOptions(move_price=300)])
def test_every_phase_that_begins_is_recorded(wish: SearchOptions) -> None:
    """Two searches of one plan share one record: a phase without a stop would take that of the other search."""
    begun: list[str] = []

    class Counting(WorkStop):
        def begin(self, phase: str) -> None:
            begun.append(phase)
            super().begin(phase)

        def beside(self, phase: str) -> Ends:
            begun.append(phase)
            return super().beside(phase)

    problem = boutique_problem(20, 24)
    found = search(problem.packing, problem.relaxed, wish, Counting(3))
    assert Counter(one.phase for one in found.stops) == Counter(begun)


def test_a_search_without_time_gives_the_plan_that_is_made_anew() -> None:
    """The half empty cluster as it is would be no answer; wishes are kept all the same, and a replay finds the same."""
    problem = boutique_problem()
    before = int(problem.packing.node_price.sum())
    found = found_for(problem, SearchOptions(), rounds=0)
    assert [(stop.phase, stop.reason) for stop in found.stops] == [("start", "work-limit")]
    assert flaws(problem.packing, found.packing) == ()
    assert found.bound.value <= found.least == found.cost < 0.6 * before
    for wish in (SearchOptions(max_moves=0), SearchOptions(move_price=10**9)):
        assert found_for(problem, wish, rounds=0).moves == 0
    solve = Solve(seconds=1.0, first_feasible_seconds=0.1, method="search", seed=0, stops=found.stops)
    assert same(found, search(problem.packing, problem.relaxed, SearchOptions(), RecordedStop(solve)))


class EndsAfter(WorkStop):
    """Ends everything after so many callbacks in all, as a clock does, but for phases beside the search."""

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`."""
        self._iterations -= 1
        return super().ends(0)

    def beside(self, phase: str) -> Ends:
        """See `StopRule`."""
        return WorkStop(6).ends


@pytest.mark.slow
def test_a_search_with_more_time_passes_the_same_states() -> None:
    """What a search comes to does not get worse where it ends later, once its first plans are made."""
    problem = boutique_problem()
    found = [
        search(problem.packing, problem.relaxed, SearchOptions(knee=True, workers=1), EndsAfter(callbacks))
        for callbacks in (30, 40, 60, 80)
    ]
    counts = [Counter(one.phase for one in made.stops if one.reason == "optimal") for made in found]
    assert all(one["starts"] == 1 for one in counts), "the first plans are made"
    price = found[0].move_price
    assert price is not None
    assert all(one.move_price == price for one in found)
    worth = [one.cost + price * one.moves for one in found]
    assert worth == sorted(worth, reverse=True)
    assert worth[-1] < worth[0]


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "each", "chosen"), [(210, 20, False), (190, 20, True), (210, 4, True)])
def test_no_choice_among_columns_for_many_nodes_of_dozens_of_classes(classes: int, each: int, *, chosen: bool) -> None:
    """Beyond the classes and the nodes of a neighborhood for columns, all time is for tries."""
    pods = [PodClass((100 + 5 * i, 2**28 + i * 2**22), each) for i in range(classes)]
    problem = assemble(("cpu", "memory"), pods, [MachineType("large", 1_000_000, (32_000, 2**37))])
    found = search(problem, problem, SearchOptions(workers=1), WorkStop(1))
    assert flaws(problem, found.packing) == ()
    assert ({"columns", "dive"} <= {one.phase for one in found.stops}) is chosen
    assert "proof" in {one.phase for one in found.stops}, "the bound is sharpened all the same"


@pytest.mark.slow
def test_a_dear_move_is_not_made() -> None:
    """At a price that no saving pays for, everything stays; at none, the plan is cheaper."""
    problem = boutique_problem()
    packing: Instance = problem.packing
    dear = found_for(problem, SearchOptions(move_price=10**9))
    free = found_for(problem, SearchOptions(move_price=0))
    assert dear.moves == 0
    assert dear.packing.keep[np.diff(packing.stays.start) > 0].all()
    assert free.cost < dear.cost


@pytest.mark.slow
def test_a_running_cluster_comes_close_to_its_bound() -> None:
    """3,000 pods on 280 half empty nodes: within two percent of what no plan can beat."""
    problem = boutique_problem(250, 280)
    found = found_for(problem, SearchOptions(), rounds=6)
    assert found.cost <= found.bound.value * 1.02
    assert found.cost < int(problem.packing.node_price.sum()) * 0.6


def test_the_first_plan_buys_no_large_machine_for_what_a_small_one_holds() -> None:
    """The relaxation buys fractions of the machine that is cheapest per core; a small fraction is left to others."""
    machines = [MachineType("large", 60_000_000, (64_000, 2**38)), MachineType("small", 16_000_000, (16_000, 2**36))]
    problem = assemble(("cpu", "memory"), [PodClass((1000, 2**30), 75)], machines)
    first = start_as_is(problem)
    assert sorted(machines[one.machine].name for one in first.boots) == ["large", "small"]


def test_nothing_is_given_for_fewer_moves_above_what_is_enough() -> None:
    """A state may cost what is enough, else no more than the last one: not the least cost and a thousandth."""
    problem = boutique_problem(20, 24).packing
    whole = start_as_is(problem)

    def without(*nodes: int) -> Incumbent:
        state = whole.copy()
        state.keep[list(nodes)] = False
        return state

    costs = [cost_of(problem, state) for state in (whole, without(0), without(0, 1), without(0, 1, 2))]
    assert costs == sorted(costs, reverse=True)
    affordable = Affordable(problem, costs[1], costs[2])
    assert [affordable(without(*range(n))) for n in (0, 1, 3, 2, 1)] == [False, True, True, True, False]
    assert affordable.paid == costs[2]


@pytest.mark.parametrize(
    ("now", "turn", "late"),
    [(400, 1, False), (380, 2, False), (381, 2, True), (200, 8, True), (100, 8, False), (399, 1, False)],
)
def test_a_phase_that_comes_too_slowly_to_what_is_known_ends(now: int, turn: int, *, late: bool) -> None:
    """From 400 to 320 in eight rounds: 20 are gained in two of them, but one round is no pace."""
    goal = 320 if turn < 8 else 100
    assert too_slow(400, now, goal, turn=turn, rounds=8) is late


@pytest.mark.slow
def test_nodes_retained_are_dropped_where_they_come_too_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their phase ends after that round, and the others have the time; a replay ends there, too."""
    problem = boutique_problem(20, 24)
    monkeypatch.setattr(search_module, "too_slow", lambda *_, turn, **__: turn == 2)
    found = found_for(problem, SearchOptions(), rounds=5)
    ends = {one.phase: (one.iteration, one.reason) for one in found.stops}
    assert (ends["near"], ends["last"]) == ((2, "optimal"), (5, "work-limit"))
    solve = Solve(seconds=1.0, first_feasible_seconds=0.1, method="search", seed=0, stops=found.stops)
    assert same(found, search(problem.packing, problem.relaxed, SearchOptions(), RecordedStop(solve)))
