"""No plan brings a workload together that is on several nodes, nor into fewer zones, unless that is switched off."""

from __future__ import annotations

import random

import pytest
from tests.optimizer.planned import planned
from tests.support.builders import NOW, cluster, deployed, node, offer
from tests.support.planning import unguarded
from tests.support.plans import plan_for

from kinema_core.events import ClusterObject, Offer, Plan
from kinema_core.model.checker.check import check_drifted, check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions
from kinema_core.model.redundancy import redundancy_loss

KEPT = unguarded(redundancy=True)
OPTIONS = MobilityOptions(redundancy=True)


def m4(zone: str = "a") -> Offer:
    """Four cores."""
    return offer("m4", zone=zone, cpu=4000, memory=16 * 1024, price=170_000)


def m2(zone: str = "a") -> Offer:
    """Two cores, for more than half of the price."""
    return offer("m2", zone=zone, cpu=2000, memory=8 * 1024, price=90_000)


def nodes_of(plan: Plan, workload: str) -> set[str]:
    """Where the pods of a Deployment are after the plan."""
    return {one.to for one in plan.placements if one.pod.startswith(f"shop/{workload}-")}


def test_two_replicas_stay_on_two_nodes_and_the_plan_states_the_price() -> None:
    """One node would hold both; the exact model keeps two small ones, and says what that costs."""
    state = cluster(node("n1"), node("n2"), *deployed("web", ["n1", "n2"], cpu=500))
    loose = planned(state, (m2(), m4()), settings=unguarded())
    assert (len(nodes_of(loose, "web")), loose.cost.after) == (1, 0.09)
    assert len(redundancy_loss(loose, state)) == 1
    kept = planned(state, (m2(), m4()), settings=KEPT)
    assert (len(nodes_of(kept, "web")), kept.cost.after) == (2, 0.18)


def test_one_replica_and_what_is_on_one_node_may_come_together() -> None:
    """Redundancy that a workload does not have is none that a plan could take."""
    state = cluster(node("n1"), node("n2"), *deployed("web", ["n1"], cpu=500), *deployed("pair", ["n2", "n2"], cpu=500))
    plan = planned(state, (m2(), m4()), settings=KEPT)
    assert plan.cost.after == 0.09


def test_zones_are_kept() -> None:
    """Three replicas in three zones stay in three; two nodes in a single one would be cheaper."""
    names = {"a1": "a", "b1": "b", "c1": "c"}
    nodes = [node(name, zone=zone) for name, zone in names.items()]
    state = cluster(*nodes, *deployed("web", list(names), cpu=500))
    plan = planned(state, tuple(one(zone) for one in (m2, m4) for zone in "abc"), settings=KEPT)
    zones = {one.name: one.zone for one in plan.nodes}
    assert {zones[name] for name in nodes_of(plan, "web")} == {"a", "b", "c"}
    assert plan.cost.after == 0.27


def test_checker_refuses_lost_redundancy() -> None:
    """On the state of the plan as on a later one, and only where the operator keeps it."""
    state = cluster(node("n1"), node("n2"), *deployed("web", ["n1", "n2"], cpu=500))
    plan = plan_for(state, (m4(),), to={"shop/web-1": "n1"}, delete=["n2"])
    for options, codes in ((OPTIONS, {"redundancy-lost"}), (MobilityOptions(), set())):
        assert {one.code for one in check_plan(plan, state, (m4(),), NOW, options)} == codes
        assert {one.code for one in check_drifted(plan, state, (m4(),), NOW, options)} == codes


def crowd(seed: int, *, workloads: int, zones: str = "ab") -> Cluster:
    """Workloads of two to four small replicas on random nodes, which are a third full."""
    rng = random.Random(seed)
    names = [f"n{index:02d}" for index in range(workloads // 2)]
    objects: list[ClusterObject] = [node(name, zone=rng.choice(zones)) for name in names]
    for index in range(workloads):
        size = rng.choice([150, 300, 400])
        places: list[str | None] = [rng.choice(names) for _ in range(rng.randint(2, 4))]
        objects += deployed(f"w{index:03d}", places, cpu=size, memory=size)
    return cluster(*objects)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_keeps_it_for_every_workload(seed: int) -> None:
    """Too large for the exact model: the checker accepts the plan, which saves nearly as much as one without."""
    state, on_sale = crowd(seed, workloads=24), tuple(m4(zone) for zone in "ab")
    kept = planned(state, on_sale, settings=KEPT, work=2)
    assert check_plan(kept, state, on_sale, NOW, OPTIONS, ordered=True) == ()
    loose = planned(state, on_sale, settings=unguarded(), work=2)
    assert kept.cost.after < kept.cost.before
    assert kept.cost.after <= 1.25 * loose.cost.after


def test_a_plan_of_the_search_states_what_redundancy_costs() -> None:
    """Two large workloads of two replicas: each node that is kept for them alone is the price of redundancy."""
    state = cluster(
        *(node(name) for name in ("n1", "n2")),
        *deployed("web", ["n1", "n2"], cpu=100),
        *(item for n in range(45) for item in deployed(f"one{n:02d}", ["n1" if n % 2 else "n2"], cpu=10, memory=16)),
    )
    plan = planned(state, (m4(),), settings=KEPT, work=2)
    assert plan.cost.after == plan.cost.before == 0.34
    assert {one.constraint: one.usd_per_hour for one in plan.constraint_costs} == {"redundancy": 0.17}
    loose = planned(state, (m4(),), settings=unguarded(), work=2)
    assert loose.cost.after == 0.17
