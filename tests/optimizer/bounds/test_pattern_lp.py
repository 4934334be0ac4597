"""The sharper bound: fillings are searched for certain, and no plan undercuts what they prove."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from benchmarks.assemble import PodClass, Running, assemble
from benchmarks.machine_types import MachineType
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.instances import random_cluster
from tests.optimizer.problem.random_packings import random_packing
from tests.support.builders import NOW

from kinema_core.events import Solve
from kinema_optimizer.bounds.certificate import SCALE, Bound, check_certificate, lower_bound
from kinema_optimizer.bounds.pattern_lp import pattern_bound, worth_by_knapsack
from kinema_optimizer.columns import knapsack_exact
from kinema_optimizer.columns.knapsack_exact import UNIT, exact_knapsack
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.instance import Instance, cost
from kinema_optimizer.problem.question import Question
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.solvers.stopping import RecordedStop, WorkStop

MACHINES = (
    MachineType("four", 4_000_003, (32_000, 2**37, 4)),
    MachineType("eight", 7_900_001, (64_000, 2**38, 8)),
    MachineType("plain", 1_000_007, (16_000, 2**36, 0)),
)


def of_gpus(threes: int) -> Instance:
    """Pods of three GPUs, of two classes, for nodes of four and eight, and small ones without."""
    others = PodClass((3000, 2**33, 0), 40), PodClass((500, 2**29, 1), 3)
    return assemble(("cpu", "memory", "gpu"), [*of_three(threes), *others], MACHINES)


def of_three(pods: int) -> tuple[PodClass, PodClass]:
    """Pods of three GPUs in two classes: what a node has left by whole pods of one takes half a pod of the other."""
    return PodClass((1000, 2**30, 3), pods // 2), PodClass((1001, 2**30, 3), pods // 2)


def sharp(problem: Instance) -> tuple[Bound, Bound]:
    """The bound by shares of room, and the sharper one."""
    known = lower_bound(problem)
    return known, pattern_bound(problem, known, (), lambda _: None)[0]


def by_hand(prices: Ints, requests: Ints, room: Ints, fits: Ints) -> int:
    """The worth of the best filling, all of them tried."""
    fillings = (np.array(counts) for counts in product(*(range(most + 1) for most in fits.tolist())))
    return max(int(one @ prices) for one in fillings if (one @ requests <= room).all())


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.integers(1, 6), alike=st.booleans())
def test_the_best_filling_is_found_and_nothing_better_than_the_best(seed: int, classes: int, alike: bool) -> None:
    """Against all fillings: found where one is worth more than asked for, else proven that there is none."""
    draw = np.random.default_rng(seed)
    requests = draw.integers(0, 8, (classes, 2)) * (1, 2**30)
    if alike:  # the same requests at other prices, as of classes that other machines admit
        requests[: classes // 2 + 1] = requests[0]
    room, fits = draw.integers(1, 20, 2) * (1, 2**30), draw.integers(0, 4, classes)
    prices = draw.integers(0, 50 * UNIT, classes)
    most = by_hand(prices, requests, room, fits)
    found = exact_knapsack(prices, requests, room, fits, floor=0)
    assert found.sure
    assert found.most == most == int(found.counts @ prices)
    assert (found.counts @ requests <= room).all()
    assert (found.counts <= fits).all()
    none = exact_knapsack(prices, requests, room, fits, floor=most)
    assert none.most == most
    assert not none.counts.any()


def test_a_search_that_was_given_up_claims_no_more_than_the_room_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a single branch the answer is above the truth, and says that it is not sure."""
    monkeypatch.setattr(knapsack_exact, "BRANCHES", 1)
    prices, requests = np.array([30, 31, 17]) * UNIT, np.array([[3], [3], [2]])
    found = exact_knapsack(prices, requests, np.array([7]), np.array([2, 2, 2]), floor=0)
    assert not found.sure
    assert found.most >= by_hand(prices, requests, np.array([7]), np.array([2, 2, 2]))


@pytest.mark.slow
def test_pods_of_three_gpus_are_not_shared_out_by_room() -> None:
    """On nodes of four and eight GPUs one and two fit: the rest of a node is no place for a third of a pod."""
    known, found = sharp(of_gpus(100))
    problem = of_gpus(100)
    best = search(problem, problem, SearchOptions(), WorkStop(20))
    assert known.value < 0.8 * found.value
    assert found.value <= best.cost <= found.value * 1.01
    assert best.bound.value == found.value


def test_the_proof_is_checked_without_what_found_it() -> None:
    """Its prices are a certificate where fillings are searched, not by shares of room; a crumb more, and it is none."""
    classes = [PodClass((1000, 2**30, 3), 40), PodClass((1000, 2**30, 2), 40)]
    problem = assemble(("cpu", "memory", "gpu"), classes, MACHINES[:1])
    _, found = sharp(problem)
    asked = problem.requests, found.demand, found.types
    assert check_certificate(found.proof, *asked, worth_by_knapsack) == pytest.approx(found.value, rel=1e-6)
    assert check_certificate(found.proof, *asked) is None
    dear = replace(found.proof, pod_price=tuple(price + SCALE * 10_000 for price in found.proof.pod_price))
    assert check_certificate(dear, *asked, worth_by_knapsack) is None


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), limited=st.booleans(), quotas=st.booleans(), few=st.booleans())
def test_no_packing_costs_less_than_the_sharper_bound(seed: int, limited: bool, quotas: bool, few: bool) -> None:
    """Random clusters, random packings that place everybody; also where most searches are given up."""
    cluster, offers = random_cluster(seed, pods=14, limited=limited, quotas=quotas)
    problem = compiled(Question(cluster, offers, NOW, "reschedule"))
    with pytest.MonkeyPatch.context() as patch:
        if few:
            patch.setattr(knapsack_exact, "BRANCHES", 20)
        known, found = sharp(problem.relaxed)
    assert found.value >= known.value
    best = search(problem.packing, problem.relaxed, SearchOptions(workers=1), WorkStop(3))
    for packing in (best.packing, *(random_packing(problem.packing, seed + i) for i in range(5))):
        if packing is not None and not packing.unplaced.any():
            assert found.value <= cost(problem.packing, packing)


@pytest.mark.slow
def test_a_replay_ends_the_proof_where_it_ended() -> None:
    """Ended after some rounds by the amount of work, it is ended there again: the same bound."""
    asked = np.random.default_rng(5).integers(5000, 30000, (40, 2)) // (1, 60)
    classes = [PodClass((int(c), int(m) * 2**28, 0), 20) for c, m in asked]
    problem = assemble(("cpu", "memory", "gpu"), classes, MACHINES)
    first = search(problem, problem, SearchOptions(), WorkStop(10))
    solve = Solve(seconds=1.0, first_feasible_seconds=0.1, method="search", seed=0, stops=first.stops)
    again = search(problem, problem, SearchOptions(), RecordedStop(solve))
    assert [(stop.reason, stop.iteration) for stop in first.stops if stop.phase == "proof"] == [("work-limit", 10)]
    assert (again.bound.value, again.stops) == (first.bound.value, first.stops)
    by_room, to_the_end = sharp(problem)
    assert by_room.value < first.bound.value < to_the_end.value


@pytest.mark.slow
def test_a_running_cluster_gets_the_sharper_bound_too() -> None:
    """With a limit on moves no columns are made for all nodes: the proof makes its own."""
    nodes = [Running(MACHINES[1], {i % 2: 1}) for i in range(30)]
    problem = assemble(("cpu", "memory", "gpu"), list(of_three(30)), MACHINES, nodes)
    found = search(problem, problem, SearchOptions(max_moves=20), WorkStop(20))
    assert lower_bound(problem).value < found.bound.value <= found.cost


def test_a_node_that_stays_is_worth_what_is_on_it_at_most() -> None:
    """Its price is paid anyway: to take that for the worth of what it holds would lower the bound."""
    classes = [PodClass((1000, 2**30, 3), 40), PodClass((500, 2**29, 0), 1)]
    problem = assemble(("cpu", "memory", "gpu"), classes, MACHINES)
    nodes = [Running(MACHINES[1], {0: 1}) for _ in range(40)] + [Running(MACHINES[2], {1: 1})]
    staying = assemble(("cpu", "memory", "gpu"), classes, MACHINES, nodes)
    fixed = replace(staying, node_fixed=np.arange(41) == 40)
    _, free = sharp(problem)
    _, found = sharp(fixed)
    assert found.value > free.value + 0.9 * int(staying.node_price[40])
