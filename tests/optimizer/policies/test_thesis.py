"""The thesis as a policy: the literal optimum with an assignment, and a roll of every workload that moves."""

from __future__ import annotations

from tests.support.builders import NOW, cluster, deployed, fragmented, full, node, offers, stateful

from kinema_core.events import Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.planning.planner import reference_for
from kinema_optimizer.policies.policy import Tick
from kinema_optimizer.policies.thesis import Thesis, rolling
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import WorkStop

WORK = 100_000


def planned(state: Cluster) -> Plan:
    """The plan of the literal model, without a clock."""
    return Thesis().tick(Tick(state, offers(), NOW, stop=WorkStop(WORK))).proposal.plan


def test_the_plan_costs_what_the_literal_model_proves() -> None:
    """Its assignment is real: the checker accepts it, and it costs the optimum."""
    state = fragmented()
    plan = planned(state)
    least = reference_for(state, offers(), now=NOW, settings=PlanningSettings(), stop=WorkStop(WORK)).cost
    assert round(plan.cost.after * 10**6) == least
    assert plan.cost.after < plan.cost.before
    assert not check_plan(plan, rolling(state), offers(), NOW)


def test_every_pod_of_a_workload_that_moves_restarts() -> None:
    """Only rolling updates: pods that stay on their node are replaced there."""
    names = ["n1", "n2", "n3"]
    state = cluster([node(name) for name in names], deployed("web", names, cpu=1000, memory=512))
    plan = planned(state)
    web = [one for one in plan.placements if one.pod.startswith("shop/web")]
    assert {one.strategy for one in web} == {"rolling"}
    assert plan.moves + plan.restarts == len(web)


def test_a_cluster_at_its_optimum_stays_as_it_is() -> None:
    """The model would as well replace its node by its like; that saves nothing."""
    state = cluster(node("n1"), deployed("web", ["n1"] * 3, cpu=1200, memory=512))
    assert planned(state).status == "nothing-better"


def test_pending_pods_get_nodes_and_nothing_moves() -> None:
    """An autoscale iteration only adds."""
    plan = planned(full())
    assert plan.moves == 0
    assert all(one.action != "delete" for one in plan.nodes)
    assert any(one.action == "boot" for one in plan.nodes)
    assert not plan.unplaced


def test_a_stateful_set_is_not_rolled() -> None:
    """The thesis knows stateless workloads only; what cannot be rolled keeps its own way to move."""
    plan = planned(cluster(node("n1"), node("n2"), stateful("db", ["n1", "n2"], cpu=500, memory=512)))
    assert {one.strategy for one in plan.placements} <= {"evict", "stay"}
