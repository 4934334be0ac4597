"""Offers that share one limit over several zones: no plan buys more of them than the provider sells."""

from __future__ import annotations

import numpy as np
import pytest
from tests.optimizer.planned import planned
from tests.support.builders import NOW, cluster, deployed, node, offer
from tests.support.planning import unguarded

from kinema_core.events import FrozenMap, Offer, PlacementRules
from kinema_core.model.cluster import Cluster
from kinema_optimizer.bounds.assignment_lp import AssignmentSolution
from kinema_optimizer.problem.arrays import Pool
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.instance import flaws
from kinema_optimizer.problem.node_types import NodeTypes
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import Incumbent, solution_of
from kinema_optimizer.search import search as search_module
from kinema_optimizer.search.first_plan import construct_nodes
from kinema_optimizer.search.search import SearchOptions, search, start_as_is
from kinema_optimizer.solvers.stopping import WorkStop


def pooled(
    limit: int, *, pending: tuple[int, int], running: int = 0, dear: bool = True
) -> tuple[Cluster, tuple[Offer, ...]]:
    """Pods pinned to zone a or b, each of which fills a node of a pool; and a dear machine without a limit."""
    pins = [PlacementRules(node_selector=FrozenMap({"topology.kubernetes.io/zone": zone})) for zone in ("a", "b")]
    pods = [
        deployed(f"pending-{zone}", [None] * count, cpu=3500 + 50 * index, rules=pin)
        for index, (zone, count, pin) in enumerate(zip("ab", pending, pins, strict=True))
    ]
    names = [f"n{index}" for index in range(running)]
    nodes = [node(name, cpu=8000, memory=32 * 1024, machine="m8", zone="ab"[i % 2]) for i, name in enumerate(names)]
    pods += [deployed(f"running-{i}", [name], cpu=3000, rules=pins[i % 2]) for i, name in enumerate(names)]
    on_sale = tuple(offer("m4", zone=zone, pool="m4", available=limit, price=170_001) for zone in ("a", "b"))
    others = tuple(offer("m8", zone=zone, cpu=8000, memory=32 * 1024, price=900_007) for zone in "ab" if dear)
    return cluster(*nodes, *pods), on_sale + others


@pytest.mark.slow
@pytest.mark.parametrize("pending", [(7, 8), (10, 0), (3, 9), (12, 12)])
def test_a_first_plan_buys_no_more_than_a_pool_has(pending: tuple[int, int]) -> None:
    """A pool's limit holds over all of its zones, also while several equal nodes are bought at once."""
    state, on_sale = pooled(10, pending=pending, dear=False)
    problem = compiled(Question(state, on_sale, NOW, "reschedule")).packing
    assert flaws(problem, solution_of(problem, start_as_is(problem))) == ()
    assert flaws(problem, search(problem, problem, SearchOptions(workers=1), WorkStop(3)).packing) == ()


def test_rounding_up_stays_within_a_pool() -> None:
    """Six types of a pool of five, each used to 5/6 of a node, open five nodes together."""
    types = 6
    requests, demand = np.array([[6]]), np.array([types])
    market = NodeTypes(
        price=np.full(types, 100),
        room=np.full((types, 1), 6),
        available=np.full(types, 5),
        fixed=np.zeros(types, dtype=bool),
        fits=np.ones((types, 1), dtype=np.int64),
        pools=(Pool(tuple(range(types)), (1,) * types, 5),),
    )
    relaxation = AssignmentSolution(
        pod_price=np.array([100.0]),
        room_price=np.full((types, 1), 100.0),
        nodes=np.full(types, 5 / 6),
        used=np.arange(types),
        shares=np.ones((types, 1)),
        cover_price=np.zeros(0),
    )
    boots, rest = construct_nodes(requests, demand, market, relaxation, {})
    assert len(boots) == 5
    assert rest.tolist() == [1]


@pytest.mark.parametrize("running", [0, 6])
@pytest.mark.parametrize("pending", [(9, 9), (17, 16)])
def test_a_plan_is_made_where_a_pool_is_nearly_used_up(pending: tuple[int, int], running: int) -> None:
    """Prices of six decimals, priced moves, a pool over two zones: the checker finds nothing to refuse."""
    state, on_sale = pooled(20, pending=pending, running=running)
    plan = planned(state, on_sale, settings=unguarded(move_price_usd=0.0), work=4)
    assert not plan.unplaced


def test_a_search_that_breaks_a_rule_answers_with_the_cluster_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of the search is verified, wherever it came from."""
    state, on_sale = pooled(20, pending=(5, 5), running=6)
    problem = compiled(Question(state, on_sale, NOW, "reschedule")).packing
    monkeypatch.setattr(
        search_module, "construct_fresh", lambda *_: Incumbent(problem.node_fixed, unplaced=0 * problem.pending)
    )
    found = search(problem, problem, SearchOptions(workers=1), WorkStop(0))
    assert flaws(problem, found.packing) == ()
    assert found.packing.keep.all()
    assert found.cost == found.least >= found.bound.value
