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
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.question import Question
from kinema_optimizer.solvers.stopping import WorkStop

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
    plan = planned(state, (m4(),), settings=KEPT, stop=WorkStop(20))
    assert plan.cost.after == plan.cost.before == 0.34
    assert {one.constraint: one.usd_per_hour for one in plan.constraint_costs} == {"redundancy": 0.17}
    loose = planned(state, (m4(),), settings=unguarded(), work=2)
    assert loose.cost.after == 0.17


def reduced(state: Cluster, *on_sale: Offer, apart: frozenset[str] = frozenset()) -> Compiled:
    """The problem of the search with redundancy."""
    return compiled(Question(state, on_sale, NOW, "reschedule", options=OPTIONS, apart=apart))


def test_a_node_takes_all_pods_of_a_class_but_one_for_each_workload_that_has_to_be_apart() -> None:
    """Three workloads of three alike pods share a class: six of nine may be together, and any six may not be."""
    names = ["n1", "n2", "n3"]
    state = cluster(*(node(name) for name in names), *(one for w in "abc" for one in deployed(w, names, cpu=100)))
    made = reduced(state, m4())
    assert (len(made.packing.cap), made.packing.cap.tolist()) == (1, [6])
    assert made.relaxed.cap.tolist() == [6]
    divided = reduced(state, m4(), apart=frozenset({"Deployment/shop/b"}))
    assert sorted(divided.packing.cap.tolist()) == [2, 4]
    assert divided.relaxed.cap.tolist() == [6]


def test_one_pod_for_each_zone_is_pinned_and_the_others_are_free() -> None:
    """Of four replicas in two zones two may go anywhere; the bound does not know of the pins."""
    zones = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
    state = cluster(*(node(name, zone=zone) for name, zone in zones.items()), *deployed("web", list(zones), cpu=100))
    made = reduced(state, m4("a"), m4("b"))
    pins = sorted(need.pins for need in made.sites.ties.needs.values())
    assert pins == [(("topology.kubernetes.io/zone", zone),) for zone in "ab"]
    assert sorted(len(members) for members in made.draft.members) == [1, 1, 2]
    assert len(made.relaxed.cap) == 1


def test_pods_of_different_size_keep_apart_in_pairs() -> None:
    """No class has two of the workload: an anti-affinity holds two of its pods apart, whatever a third one does."""
    sizes = {"n1": 100, "n2": 200, "n3": 300}
    small, middle, large = (deployed("web", list(sizes), cpu=cpu) for cpu in sizes.values())
    pods = (small[2], middle[3], large[4])
    made = reduced(cluster(*(node(name) for name in sizes), *small[:2], *pods), m4())
    assert len(made.packing.conflicts) == 1
