"""The methods of the portfolio: which of them are tried, and what they prove together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.optimizer.rule_instances import GPU, rule_instance
from tests.support.builders import NOW, cluster, deployed, node, offer, pod
from tests.support.planning import unguarded

from kinema_core.events import Offer, Plan
from kinema_core.model.cluster import Cluster, all_objects
from kinema_optimizer.planning.plan import nothing
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.planning.portfolio import SolverResult, joint_bound
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.solvers.stopping import PRICING, WorkStop


def planned(state: Cluster, on_sale: tuple[Offer, ...]) -> Plan:
    """Return the plan after so little work that the exact model alone proves nothing."""
    return plan_for(state, on_sale, now=NOW, settings=unguarded(), stop=WorkStop(3))


def test_a_pod_that_nothing_can_hold_changes_no_other_part_of_the_answer() -> None:
    """With a pending GPU pod and no GPU on sale, cost and methods are those without the pod."""
    instance = rule_instance(29, pods=20, nodes=6)
    on_sale = tuple(one for one in instance.offers if GPU not in one.allocatable)
    plain = [one for one in all_objects(instance.cluster) if one.key != "shop/graphics"]
    without, beside = (planned(cluster(*plain, *more), on_sale) for more in ((), (pod("graphics", extra={GPU: 8}),)))
    assert (beside.cost, beside.moves) == (without.cost, without.moves)
    assert len(beside.unplaced) == len(without.unplaced) + 1
    first, second = ([stop.phase for stop in one.solve.stops if stop.phase != PRICING] for one in (without, beside))
    assert "exact-below" in first
    assert first == second


def answer(problem: Compiled, bound: int, lost: Sequence[str]) -> SolverResult:
    """Return an answer that leaves out these pods and is proven."""
    outcome = nothing(problem)
    left = tuple(mover for mover in outcome.lost if mover.pod.key in lost)
    return SolverResult(replace(outcome, lost=left), bound, optimal=True, method="")


def test_bounds_of_answers_that_leave_out_different_pods_are_not_mixed() -> None:
    """What is proven of plans that place a pod says nothing of the answer that leaves it out and costs less."""
    state = cluster(node("n1"), deployed("small", [None, None], cpu=500), deployed("large", [None], cpu=3000))
    problem = compiled(Question(state, (offer("m4"),), NOW, "reschedule"))
    cheap = answer(problem, 170_000, ["shop/large-0"])
    dear, other = answer(problem, 340_000, []), answer(problem, 180_000, ["shop/large-0", "shop/small-0"])
    assert joint_bound(problem, cheap, [dear, cheap, other]).lower_bound == 180_000
    assert joint_bound(problem, dear, [dear, cheap, other]).lower_bound == 340_000
