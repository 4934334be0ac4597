"""Pods that are to request less: no reason to pay more, and every answer is held against the exact model's."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.optimizer.falling import filled_cluster, lowered
from tests.support.builders import NOW

from kinema_core.events import Offer, WorkloadForecast
from kinema_core.model.catalog import node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import mobility
from kinema_optimizer.adapters.bound import lower_bound
from kinema_optimizer.adapters.exact import solve_exact
from kinema_optimizer.adapters.stops import WorkStop
from kinema_optimizer.logic.compiled import Question, compiled
from kinema_optimizer.logic.tiny_cluster import tiny_problem_of


def least_in_the_end(state: Cluster, on_sale: tuple[Offer, ...], forecasts: tuple[WorkloadForecast, ...]) -> int | None:
    """Micro-USD per hour of the cheapest state with the new requests, however it is reached; None: not proven."""
    question = Question(state, on_sale, NOW, "reschedule", forecasts)
    tiny = tiny_problem_of(question, mobility(state, NOW), node_prices(state, on_sale))
    found = None if tiny is None else solve_exact(tiny, WorkStop(20_000), least_moves=False)
    return found.least if found is not None and found.proven else None


@settings(max_examples=60, deadline=None)
@example(seed=0)
@given(seed=st.integers(0, 10**6))
def test_the_bound_counts_on_the_room_of_old_copies(seed: int) -> None:
    """Whoever comes in a later wave may have it: no state with the new requests costs less than the bound says."""
    state, on_sale = filled_cluster(seed)
    forecasts = lowered(state, seed)
    bound = lower_bound(compiled(Question(state, on_sale, NOW, "reschedule", forecasts)).relaxed).value
    least = least_in_the_end(state, on_sale, forecasts)
    assert least is None or bound <= least
    assert bound <= sum(node_prices(state, on_sale).values())
