"""The certificate and the compiled loops: any prices give a true bound, and no filling is better than its bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.instances import boutique, random_cluster
from tests.support.builders import NOW, cluster, deployed, node, offer

from kinema_optimizer.bounds.certificate import SCALE, Certificate, check_certificate, lower_bound, make_certificate
from kinema_optimizer.columns.knapsack import knapsack_beam, knapsack_dual_bound, knapsack_duals
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.instance import cost
from kinema_optimizer.problem.node_types import node_types
from kinema_optimizer.problem.question import Question
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.solvers.lp import INFINITY, Floats, LinearProgram
from kinema_optimizer.solvers.stopping import WorkStop


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), limited=st.booleans(), quotas=st.booleans(), data=st.data())
def test_no_certificate_claims_more_than_a_packing_costs(
    seed: int, limited: bool, quotas: bool, data: st.DataObject
) -> None:
    """Prices out of the air are either no certificate or a bound below every packing that places everybody."""
    cluster, offers = random_cluster(seed, pods=12, limited=limited, quotas=quotas)
    problem = compiled(Question(cluster, offers, NOW, "reschedule"))
    found = search(problem.packing, problem.relaxed, SearchOptions(workers=1), WorkStop(2))
    if found.packing.unplaced.any():
        return
    kinds = node_types(problem.relaxed)
    demand = np.where((kinds.fits > 0).any(axis=0), problem.relaxed.total, 0)
    draw = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    pod_price = draw.uniform(0, 60_000, len(demand))
    room_price = draw.uniform(0, 200_000, kinds.room.shape)
    proof = make_certificate(pod_price, room_price, kinds, shrink=draw.uniform(0.01, 1.0))
    claimed = check_certificate(proof, problem.relaxed.requests, demand, kinds)
    assert claimed is None or claimed <= cost(problem.packing, found.packing)


def test_prices_above_what_a_node_costs_are_no_certificate() -> None:
    """A node on sale without limit that holds more worth than it costs proves nothing."""
    cluster, offers = boutique(3, nodes=4)
    problem = compiled(Question(cluster, offers, NOW, "reschedule")).relaxed
    kinds = node_types(problem)
    free = tuple((0,) * len(problem.resources) for _ in kinds.price)
    dear = Certificate((10**9 * SCALE,) * len(problem.pending), free)
    assert check_certificate(dear, problem.requests, problem.total, kinds) is None


@pytest.mark.slow
def test_the_bound_is_near_the_optimum_of_a_large_cluster() -> None:
    """3,600 pods: the search gets within two percent, so the bound is at least as near to the optimum."""
    cluster, offers = boutique(300, nodes=300)
    problem = compiled(Question(cluster, offers, NOW, "reschedule"))
    bound = lower_bound(problem.relaxed)
    found = search(problem.packing, problem.relaxed, SearchOptions(workers=1), WorkStop(6))
    assert bound.value <= found.bound.value
    assert bound.value <= found.cost <= bound.value * 1.02


def test_a_node_that_takes_no_new_pods_holds_its_own_alone() -> None:
    """Each of two closed nodes has room for the other's pod, which has no way there."""
    closed = [node(name, cpu=4_000, price="0.1", unschedulable=True) for name in ("n1", "n2")]
    pods = deployed("large", ["n1"], cpu=1_000), deployed("small", ["n2"], cpu=900)
    assert lower_bound(compiled(Question(cluster(*closed, *pods), (), NOW, "reschedule")).relaxed).value == 200_000


def test_a_node_holds_whole_pods_of_a_class() -> None:
    """Nodes have room for a pod and a half; shares of room would do with two thirds of them."""
    live = [node(f"n{i}", cpu=3_000, price="0.3") for i in range(10)]
    state = cluster(*live, deployed("web", [one.name for one in live], cpu=2_000))
    on_sale = offer("plain", cpu=3_000, memory=16 * 1024, price=300_000)
    assert lower_bound(compiled(Question(state, (on_sale,), NOW, "reschedule")).relaxed).value == 3_000_000


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.integers(1, 25), width=st.sampled_from([1, 8, 64]))
def test_a_filling_fits_and_is_no_better_than_its_relaxation(seed: int, classes: int, width: int) -> None:
    """Room and limits hold; the worth is that of the pods; the multipliers are those of the linear relaxation."""
    draw = np.random.default_rng(seed)
    requests = draw.integers(1, 400, (classes, 3))
    room, most = draw.integers(100, 3000, 3), draw.integers(0, 20, classes)
    values = draw.uniform(1, 100, classes)
    counts, worth, prices = knapsack_beam(values, requests, room, most, width, 0.0)
    assert (counts @ requests <= room).all()
    assert (counts <= most).all()
    assert (counts >= 0).all()
    assert worth == pytest.approx(float(counts @ values))
    weights = requests / room
    fits = np.minimum(most, (room // requests).min(axis=1))
    bound = knapsack_dual_bound(values, weights, prices, fits)
    assert worth <= bound * (1 + 1e-9)
    assert bound == pytest.approx(_relaxed(values, weights, fits), rel=1e-6, abs=1e-6)


def _relaxed(values: Floats, weights: Floats, most: Ints) -> float:
    """The linear relaxation's optimum by another solver."""
    rows = weights.shape[1]
    lp = LinearProgram(np.full(rows, -INFINITY), np.ones(rows), unit=float(values.max()))
    start = np.arange(len(values), dtype=np.int32) * rows
    index = np.tile(np.arange(rows, dtype=np.int32), len(values))
    lp.add(-values, most.astype(float), (start, index, weights.ravel()))
    return -lp.solve().objective


def test_multipliers_of_an_empty_node_are_zero() -> None:
    """Nothing to put anywhere: room is worth nothing."""
    nothing = knapsack_duals(np.zeros(0), np.zeros((0, 2)), np.ones(2), np.zeros(0))
    assert nothing.tolist() == [0.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.integers(1, 8))
def test_with_one_resource_a_filling_is_the_best_there_is(seed: int, classes: int) -> None:
    """Shares of GPUs: found by dynamic programming, nothing is missed; and nothing is found that the floor bars."""
    draw = np.random.default_rng(seed)
    requests = draw.integers(5, 40, (classes, 1))
    room, most = np.array([80]), draw.integers(0, 4, classes)
    values = draw.uniform(1, 100, classes)
    best = np.zeros(81)
    for c in range(classes):
        for _ in range(most[c]):
            size = int(requests[c, 0])
            best[size:] = np.maximum(best[size:], best[:-size] + values[c])
    _, worth, _ = knapsack_beam(values, requests, room, most, 1000, 0.0)
    assert worth == pytest.approx(best[-1])
    barred, nothing, _ = knapsack_beam(values, requests, room, most, 1000, best[-1] + 1e-6)
    assert (nothing, barred.any()) == (0.0, False)
