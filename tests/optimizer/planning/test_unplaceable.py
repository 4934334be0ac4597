"""Plans evict nobody under a budget that waits for pods which nothing can hold."""

from __future__ import annotations

from typing import Any

from tests.support.builders import NOW, budget, cluster, node, offer, pod, stateful_set
from tests.support.planning import unguarded

from kinema_core.events import PlacementRules, Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.explain.explain import explain_pod
from kinema_optimizer.planning.constraint_prices import constraint_relaxations
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.planning.task import with_unplaceable
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.question import Question

ON_SALE = (offer("m4", price=170_000),)


def state(**third: Any) -> Cluster:
    """Two Ready pods on two nodes, of which one is enough, and a third as `third` says; one may be away."""
    top = stateful_set("db", replicas=3)
    mine: dict[str, Any] = {"owner": top, "labels": {"app": "db"}}
    two = [pod(f"db-{i}", node=f"n{i}", **mine) for i in (0, 1)]
    return cluster(node("n0"), node("n1"), top, two, pod("db-2", **mine, **third), budget("db", max_unavailable="1"))


def planned(on: Cluster) -> Plan:
    """The plan for it."""
    return plan_for(on, ON_SALE, now=NOW, settings=unguarded())


def test_nobody_is_evicted_while_a_peer_has_no_place() -> None:
    """The budget would refuse for ever: the node stays, with the reason, and an explanation says the same."""
    on = state(cpu=9000)
    found = planned(on)
    assert (found.moves, found.cost.after, [one.pod for one in found.unplaced]) == (0, found.cost.before, ["shop/db-2"])
    assert {one.pod: one.code for one in found.held} == {"shop/db-0": "pdb-unhealthy", "shop/db-1": "pdb-unhealthy"}
    assert check_plan(found, on, ON_SALE, NOW, ordered=True) == ()
    given = with_unplaceable(Question(on, ON_SALE, NOW, "reschedule"))
    told = explain_pod(compiled(given), on.pods_by_key["shop/db-0"])
    assert (told.verdict, told.code, told.reason) == ("held", "pdb-unhealthy", found.held[0].reason)


def test_a_peer_that_is_held_back_counts_likewise() -> None:
    """A gate that nobody has opened yet keeps it pending, too."""
    gated = state(rules=PlacementRules(gated=True))
    assert {one.code for one in planned(gated).held} == {"pdb-unhealthy"}


def test_a_peer_that_the_plan_places_is_healthy_by_then() -> None:
    """The eviction waits until it is Ready."""
    found = planned(state())
    assert (found.unplaced, found.held, found.cost.after) == ((), (), found.cost.before / 2)


def test_the_price_of_such_a_budget_is_told() -> None:
    """Without it the second node could go."""
    given = with_unplaceable(Question(state(cpu=9000), ON_SALE, NOW, "reschedule"))
    assert [one.name for one in constraint_relaxations(given)] == ["pdb *", "pdb shop/db"]
    assert {one.constraint: one.usd_per_hour for one in planned(state(cpu=9000)).constraint_costs} == {
        "pdb *": 0.17,
        "pdb shop/db": 0.17,
    }


def test_an_autoscale_question_that_moves_nobody_asks_nothing() -> None:
    """There pods wait as a rule, and none of them is compiled twice for it."""
    given = with_unplaceable(Question(state(cpu=9000), ON_SALE, NOW, "autoscale"))
    assert given.options.waiting == frozenset()
