"""Baselines: what neighboring tools would do, on examples worked out by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from benchmarks.starts import boutique_after_peak, constraint_rich, deployments_after_peak
from tests.support.builders import (
    NOW,
    budget,
    cluster,
    deployed,
    fragmented,
    full,
    node,
    offer,
    offers,
    pod,
    selector,
    tiny,
)

from kinema_core.events import Offer, PlacementRules, Plan, PodTerm, Spread
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.policies import karpenter
from kinema_optimizer.policies.cluster_autoscaler import OPTIMIZE_UTILIZATION, ClusterAutoscaler, balanced, estimate
from kinema_optimizer.policies.first_fit import FirstFit, by_size, place_in_order
from kinema_optimizer.policies.karpenter import Karpenter
from kinema_optimizer.policies.proposal import Repacking
from kinema_optimizer.policies.world import World

GIB = 1024
POLICIES: tuple[Repacking, ...] = (
    ClusterAutoscaler(),
    ClusterAutoscaler(name="balanced", balance=True, expander="price"),
    OPTIMIZE_UTILIZATION,
    Karpenter(),
    Karpenter(binds="planned"),
    FirstFit(),
)
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def m8(price: int = 340_000) -> Offer:
    """Eight cores on sale."""
    return offer("m8", cpu=8000, memory=32 * GIB, price=price)


def apart(name: str, key: str = HOST) -> PlacementRules:
    """No two pods of the app in one domain."""
    return PlacementRules(anti_affinity=(PodTerm(topology_key=key, selector=selector(app=name)),))


def booted(plan: Plan) -> Counter[str]:
    """New nodes by machine type and zone."""
    return Counter(f"{one.machine_type}/{one.zone}" for one in plan.nodes if one.action == "boot")


def remaining(plan: Plan) -> list[str]:
    """Live nodes that stay."""
    return [one.name for one in plan.nodes if one.action == "keep"]


# --- Cluster Autoscaler


def test_new_nodes_go_to_the_smallest_group() -> None:
    """Four nodes for groups of 1, 3 and 6 make them 4, 4 and 6; a group's most is never passed."""
    assert balanced((1, 3, 6), (None, None, None), 4) == (3, 1, 0)
    assert balanced((1, 3, 6), (2, None, None), 4) == (1, 3, 0)
    assert balanced((1, 3), (2, 3), 4) == (1, 0)


def _three_zones(*, balance: bool) -> Plan:
    sizes = {"a": 1, "b": 3, "c": 6}
    nodes = [node(f"{zone}{i}", zone=zone) for zone, size in sizes.items() for i in range(size)]
    state = cluster(
        nodes,
        deployed("old", [one.name for one in nodes], cpu=4000, memory=GIB),
        deployed("new", [None] * 4, cpu=4000, memory=GIB),
    )
    sold = tuple(offer(zone=zone) for zone in "abc")
    return ClusterAutoscaler(balance=balance).propose(state, sold, NOW).plan


def test_scale_up_balances_similar_groups_when_told_to() -> None:
    """With balancing the new nodes even out the zones; without, one group wins and gets all."""
    assert booted(_three_zones(balance=True)) == {"m4/a": 3, "m4/b": 1}
    assert booted(_three_zones(balance=False)) == {"m4/a": 4}


def test_the_estimate_fills_any_node_first_and_then_the_last_one() -> None:
    """First-fit decreasing: 3 pods of 3 cores and 3 of 1 core need three nodes of 4 cores."""
    state = cluster(
        node("n1"),
        deployed("old", ["n1"], cpu=4000),
        deployed("big", [None] * 3, cpu=3000),
        deployed("small", [None] * 3, cpu=1000),
    )
    world = World(state, (offer(),), NOW)
    found = estimate(world, 0, world.waiting())
    assert (found.nodes, len(found.pods)) == (3, 6)
    assert len(world.sites) == 1
    assert not world.bought.total()


def test_the_estimate_gives_pods_that_keep_apart_a_node_each() -> None:
    """Pods with anti-affinity among themselves each count a node, however small they are."""
    state = cluster(node("n1"), deployed("old", ["n1"], cpu=4000), deployed("web", [None] * 3, rules=apart("web")))
    world = World(state, (offer(),), NOW)
    assert estimate(world, 0, world.waiting()).nodes == 3


def test_least_waste_takes_the_offer_that_fits() -> None:
    """Three pods of 4 cores and 16 GiB get the machine that they fill; the fewest nodes are two larger ones."""
    state = cluster(
        node("n1"), deployed("old", ["n1"], cpu=4000), deployed("new", [None] * 3, cpu=4000, memory=16 * GIB)
    )
    sold = (m8(), offer())
    assert booted(ClusterAutoscaler().propose(state, sold, NOW).plan) == {"m4/a": 3}
    assert booted(ClusterAutoscaler(expander="least-nodes").propose(state, sold, NOW).plan) == {"m8/a": 2}


def test_what_is_sold_out_is_not_bought() -> None:
    """Of an offer with one machine left one is bought, and the other pod stays pending."""
    state = cluster(node("n1"), deployed("old", ["n1"], cpu=4000), deployed("new", [None] * 2, cpu=4000))
    plan = ClusterAutoscaler().propose(state, (offer(available=1),), NOW).plan
    assert booted(plan) == {"m4/a": 1}
    assert len(plan.unplaced) == 1


def test_bought_nodes_are_those_that_the_plan_boots() -> None:
    """With their offers, as who executes the steps without the plan needs them."""
    state = cluster(node("n1"), deployed("old", ["n1"], cpu=4000), deployed("new", [None] * 2, cpu=4000))
    found = ClusterAutoscaler().propose(state, (offer(),), NOW)
    assert len(found.bought) == 2
    assert found.bought == {one.name: one.offer for one in found.plan.nodes if one.action == "boot"}


@pytest.mark.parametrize(("cpu", "left"), [(1000, 1), (1010, 2)])
def test_a_node_goes_up_to_half_of_its_use(cpu: int, left: int) -> None:
    """Nodes with up to 50 % of CPU and memory requested are drained when their pods fit elsewhere."""
    state = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n1", "n2", "n2"], cpu=cpu, memory=512))
    if left == 2:
        assert len(remaining(OPTIMIZE_UTILIZATION.propose(state, offers(), NOW).plan)) == 2
    assert len(remaining(ClusterAutoscaler().propose(state, offers(), NOW).plan)) == left


def test_the_packing_profile_drains_fuller_nodes() -> None:
    """At 60 % only the optimize-utilization model drains."""
    on = ["n1", "n2", "n3"]
    state = cluster([node(name) for name in on], deployed("web", [*on, *on], cpu=1200, memory=512))
    assert len(remaining(ClusterAutoscaler().propose(state, offers(), NOW).plan)) == 3
    assert len(remaining(OPTIMIZE_UTILIZATION.propose(state, offers(), NOW).plan)) == 2


def test_a_budget_without_room_blocks_a_drain() -> None:
    """A node is not drained while the budget of one of its pods allows no disruption."""
    objects = (node("n1"), node("n2"), deployed("web", ["n1", "n1", "n2"], cpu=500))
    for policy in (ClusterAutoscaler(), Karpenter()):
        free = policy.propose(cluster(*objects, budget("web", max_unavailable="1")), offers(), NOW).plan
        tight = policy.propose(cluster(*objects, budget("web", max_unavailable="1", allowed=0)), offers(), NOW).plan
        assert free.status == "feasible"
        assert tight.status == "nothing-better"


def test_a_system_pod_without_a_budget_blocks_a_drain() -> None:
    """The Cluster Autoscaler leaves nodes with pods of kube-system alone, Karpenter does not."""
    state = cluster(node("n1"), node("n2"), deployed("dns", ["n1", "n2"], cpu=500, namespace="kube-system"))
    assert ClusterAutoscaler().propose(state, offers(), NOW).plan.status == "nothing-better"
    assert Karpenter().propose(state, offers(), NOW).plan.status == "feasible"


def test_the_cluster_autoscaler_never_buys_a_cheaper_node() -> None:
    """Where a cheaper machine would hold everything, it keeps the dear one; Karpenter replaces it."""
    state = cluster(node("n1", cpu=8000, memory=32 * GIB, machine="m8"), deployed("web", ["n1", "n1"], cpu=800))
    sold = (m8(), offer())
    assert ClusterAutoscaler().propose(state, sold, NOW).plan.status == "nothing-better"
    assert booted(Karpenter().propose(state, sold, NOW).plan) == {"m4/a": 1}


# --- first-fit decreasing


def test_first_fit_decreasing_places_the_worked_example() -> None:
    """Source: the thesis on usable resources, figures 3.1 and 3.2: after n1 and n2 go, n3 has D, E, B, n4 F, A, C."""
    green = PlacementRules(node_selector=selector(color="green").labels)
    names = ("n1", "n2", "n3")
    pods = {"a": ("n1", 3000, 4), "b": ("n2", 2000, 1), "c": ("n2", 200, 1), "d": ("n3", 1500, 4), "f": ("n4", 500, 2)}
    state = cluster(
        [node(name, memory=8 * GIB) for name in names],
        node("n4", memory=8 * GIB, labels={"color": "green"}),
        *(
            pod(name, node=on, cpu=cpu, memory=memory * GIB, rules=green if name == "f" else PlacementRules())
            for name, (on, cpu, memory) in pods.items()
        ),
        pod("e", node="n3", cpu=500, memory=2560),
    )
    world = World(state, (offer("m4", memory=8 * GIB),), NOW)
    moving = ["shop/a", "shop/b", "shop/c"]
    for key in moving:
        world.unplace(key)
    allowed = world.alive.copy()
    allowed[:2] = False
    ordered = [key for _, keys in by_size(world, moving, world.template_room[0]) for key in keys]
    left, _ = place_in_order(world, ordered, allowed)
    assert ordered == moving
    assert not left
    assert sorted(world.sites[2].pods) == ["shop/b", "shop/d", "shop/e"]
    assert sorted(world.sites[3].pods) == ["shop/a", "shop/c", "shop/f"]
    used = (world.total - world.free)[:, :2].tolist()
    assert used[2] == [4000, 7680 * 2**20]
    assert used[3] == [3700, 7168 * 2**20]


def test_first_fit_packs_anew_onto_the_cheapest_machines() -> None:
    """Two half-empty large nodes become one of the size that holds all; a packing that costs more is not proposed."""
    names = ["n1", "n2"]
    nodes = [node(name, cpu=8000, memory=32 * GIB, machine="m8") for name in names]
    state = cluster(nodes, deployed("web", names, cpu=2000, memory=GIB))
    assert booted(FirstFit().propose(state, offers(), NOW).plan) == {"m2/a": 2}
    dear = (m8(), offer("m2", cpu=2000, memory=8 * GIB, price=999_000))
    assert not booted(FirstFit().propose(cluster(nodes[:1], deployed("web", ["n1"] * 4, cpu=2000)), dear, NOW).plan)


# --- Karpenter


@pytest.mark.parametrize(("price", "replaced"), [(339_999, True), (340_000, False)])
def test_karpenter_replaces_only_by_something_strictly_cheaper(*, price: int, replaced: bool) -> None:
    """A machine of the same price is no reason to move anybody."""
    state = cluster(node("n1", cpu=8000, memory=32 * GIB, machine="m8"), deployed("web", ["n1", "n1"], cpu=1500))
    plan = Karpenter().propose(state, (m8(), offer(price=price)), NOW).plan
    assert (booted(plan) == {"m4/a": 1}) is replaced
    assert (plan.status == "feasible") is replaced


def test_karpenter_deletes_all_empty_nodes_at_once() -> None:
    """Emptiness is one command for every empty node."""
    names = ["n1", "n2", "n3", "n4"]
    state = cluster([node(name) for name in names], deployed("web", ["n1", "n1"], cpu=2000))
    found = Karpenter().propose(state, (offer(),), NOW)
    assert [(step.action, step.removed) for step in found.steps] == [("delete-empty", ("n2", "n3", "n4"))]


def test_karpenter_removes_several_nodes_for_one_cheaper() -> None:
    """Three nodes whose pods fit on none of each other become one, in a single command."""
    names = ["n1", "n2", "n3"]
    nodes = [node(name, cpu=8000, memory=32 * GIB, machine="m8") for name in names]
    state = cluster(nodes, deployed("web", names, cpu=5000, memory=GIB))
    sold = (m8(), offer("m16", cpu=16000, memory=64 * GIB, price=600_000))
    found = Karpenter().propose(state, sold, NOW)
    assert [step.action for step in found.steps] == ["consolidate-several"]
    assert booted(found.plan) == {"m16/a": 1}
    assert found.plan.moves == found.evictions == 3


def test_karpenter_replaces_several_by_a_type_of_theirs_only_when_that_is_cheaper() -> None:
    """Keeping the node of that type would do as well: two m8 are not replaced by a new m8."""
    nodes = [node(name, cpu=8000, memory=32 * GIB, machine="m8") for name in ("n1", "n2")]
    state = cluster(nodes, deployed("web", ["n1", "n2"], cpu=3500, memory=GIB))
    found = Karpenter().propose(state, (m8(),), NOW)
    assert not booted(found.plan)
    assert len(remaining(found.plan)) == 1


def test_karpenter_chooses_the_type_when_the_claim_is_full() -> None:
    """Pods share one claim as long as some type holds them all; the cheapest that does is bought."""
    state = cluster(node("n1"), deployed("old", ["n1"], cpu=4000), deployed("web", [None] * 3, cpu=2000, memory=GIB))
    assert booted(Karpenter().propose(state, offers(), NOW).plan) == {"m8/a": 1}
    assert booted(Karpenter().propose(state, offers()[:2], NOW).plan) == {"m2/a": 1, "m4/a": 1}


def test_karpenter_gives_pods_that_keep_apart_a_claim_each() -> None:
    """Anti-affinity by host name opens a claim per pod; by zone it settles each claim in a zone of its own."""
    for key, zones in ((HOST, {"m4/a": 3}), (ZONE, {"m4/b": 1, "m4/c": 1, "m4/d": 1})):
        state = cluster(
            node("n1"),
            deployed("web", ["n1"], cpu=4000, rules=apart("web", key)),
            deployed("api", [None] * 3, cpu=100, rules=apart("web", key), labels={"app": "web"}),
        )
        sold = tuple(offer(zone=zone) for zone in "abcd")
        plan = Karpenter(binds="planned").propose(state, sold, NOW).plan
        assert booted(plan) == zones
        assert not check_plan(plan, state, sold, NOW)


def test_no_node_is_passed_over_that_could_go() -> None:
    """The count that spares probes leaves out the full nodes, whose probes fail, and not the one that is replaced."""
    state = cluster(
        node("n1"),
        node("n2"),
        node("n3", cpu=7000, memory=32 * GIB, machine="m8"),
        deployed("full", ["n1", "n2"], cpu=4000, memory=GIB),
        deployed("web", ["n3", "n3"], cpu=1900, memory=GIB),
    )
    world = World(state, offers(), NOW)
    nodes = karpenter.candidates(world)
    assert sorted(nodes) == [0, 1, 2]
    assert list(karpenter.hopeful(world, nodes)) == [2]
    assert [index for index in nodes if karpenter.probe(world, (index,), "test")] == [2]


# --- all of them


def _states() -> dict[str, tuple[Cluster, tuple[Offer, ...]]]:
    even = Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="even"))
    near = PodTerm(topology_key=ZONE, selector=selector(app="even"))
    zones = [node(f"{zone}{i}", zone=zone) for zone in "abc" for i in range(2)]
    ruled = cluster(
        zones,
        deployed("even", ["a0", "b0", "c0"], cpu=200, rules=PlacementRules(spread=(even,))),
        deployed("near", ["a1", "b1", None], cpu=200, rules=PlacementRules(affinity=(near,))),
        deployed("far", ["a0", "b0", "c1"], cpu=300, rules=apart("far")),
    )
    sold = tuple(offer(zone=zone) for zone in "abc")
    boutique, peak = boutique_after_peak(3), deployments_after_peak(40, constrained=True)
    rich = constraint_rich(600)
    return {
        "tiny": (tiny(), offers()),
        "fragmented": (fragmented(), offers()),
        "full": (full(), offers()),
        "ruled": (ruled, sold),
        "boutique": (boutique.cluster, boutique.offers),
        "peak": (peak.cluster, peak.offers),
        "rich": (rich.cluster, rich.offers),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", list(_states()))
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.name}-{getattr(policy, 'binds', '')}")
def test_every_proposal_is_a_valid_plan(policy: Repacking, name: str) -> None:
    """Whatever a policy proposes passes the checker, is never dearer without a reason, and comes out the same twice."""
    state, sold = _states()[name]
    found = policy.propose(state, sold, NOW)
    assert check_plan(found.plan, state, sold, NOW) == ()
    assert found == policy.propose(state, sold, NOW)
    assert found.evictions >= found.plan.moves
    if not any(one.node is None for one in state.pods):
        assert found.plan.cost.after <= found.plan.cost.before


def test_a_trial_leaves_nothing_behind() -> None:
    """After going back to a mark, room, places, purchases and counts between pods are as they were."""
    start = constraint_rich(600)
    world = World(start.cluster, start.offers, NOW)
    before = (world.free.copy(), dict(world.where), len(world.sites), world.waiting())
    fitting = [world.fits(kind).copy() for kind in range(len(world.kinds))]
    mark = world.mark()
    index = world.buy(0, "trial")
    for key in list(world.sites[0].pods)[:5]:
        world.place(key, index)
    for key in list(world.sites[1].pods):
        world.unplace(key)
    world.remove(1)
    assert (world.fits(0).tolist()) != fitting[0].tolist()
    world.back_to(mark)
    assert (world.free == before[0]).all()
    assert (dict(world.where), len(world.sites), world.waiting()) == before[1:]
    assert all((world.fits(kind) == was).all() for kind, was in enumerate(fitting))
    assert not world.bought.total()


def test_a_pod_that_others_need_does_not_leave_them() -> None:
    """No policy empties a zone of a pod that another's required affinity counts on there."""
    near = PlacementRules(affinity=(PodTerm(topology_key=ZONE, selector=selector(app="hub")),))
    pinned = {"karpenter.sh/do-not-disrupt": "true"}
    state = cluster(
        [node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b")],
        deployed("hub", ["a1", "b1"], cpu=500),
        deployed("spoke", ["a2"], cpu=3800, rules=near, pod_annotations=pinned),
        deployed("fill", ["a2"], cpu=200, pod_annotations=pinned),
    )
    sold = (offer(zone="a"), offer(zone="b"))
    for policy in POLICIES:
        found = policy.propose(state, sold, NOW)
        assert check_plan(found.plan, state, sold, NOW) == (), policy.name


def test_a_running_pod_is_never_left_without_a_node() -> None:
    """Where the only cheaper machine is sold out, nothing changes."""
    state = cluster(node("n1", cpu=8000, memory=32 * GIB, machine="m8"), deployed("web", ["n1", "n1"], cpu=1500))
    sold = (m8(), offer(available=0))
    for policy in POLICIES:
        assert policy.propose(state, sold, NOW).plan.status == "nothing-better"
