"""Quotas that no plan can reach: which those are, and that they cost neither bound nor plan anything."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from tests.optimizer.planned import planned
from tests.optimizer.planning.test_plans import forecast
from tests.support.builders import NOW, budget, cluster, daemon_set, deployed, node, offer, pod, quota
from tests.support.planning import unguarded

from kinema_core.events import ClusterObject, FrozenMap, Offer, Quota
from kinema_core.model.cluster import Cluster
from kinema_core.model.resource_quotas import SETS
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.headroom import placeholders, with_placeholders
from kinema_optimizer.request.quotas import with_namespace_quotas, within_quotas, without_idle_quotas
from kinema_optimizer.solvers.stopping import WorkStop

CORES = 4000
PRICE = offer("m4").micro_usd_per_hour


def limited(left: int, *, price: int = PRICE, takes: int = CORES) -> Offer:
    """An m4 under one quota."""
    quotas = (Quota(name="vCPUs", takes=takes, left=left),)
    return msgspec.structs.replace(offer("m4"), micro_usd_per_hour=price, quotas=quotas)


def names(offers: Sequence[Offer]) -> list[list[str]]:
    """The quotas of each offer."""
    return [[one.name for one in each.quotas] for each in offers]


@pytest.mark.parametrize(("left", "kept"), [(20 * CORES, []), (20 * CORES - 1, ["vCPUs"]), (0, ["vCPUs"])])
def test_twice_the_money_of_the_cluster_must_not_reach_a_quota(left: int, kept: list[str]) -> None:
    """Live nodes for ten m4: twice as much buys twenty, and no plan comes to more."""
    assert names(without_idle_quotas([limited(left)], live=10 * PRICE, places=0)) == [kept]


@pytest.mark.parametrize(("places", "kept"), [(5, []), (6, ["vCPUs"])])
def test_pods_that_need_a_place_may_each_cost_the_dearest_machine(places: int, kept: list[str]) -> None:
    """Five of them at twice an m4 bring the twenty that the quota has left."""
    offers = [limited(20 * CORES), msgspec.structs.replace(offer("m8"), micro_usd_per_hour=2 * PRICE)]
    assert names(without_idle_quotas(offers, live=0, places=places)) == [kept, []]


def test_a_quota_that_one_offer_may_reach_stays_on_all() -> None:
    """For the money a cheaper machine takes more of it."""
    cheap = limited(20 * CORES, price=PRICE // 2)
    dear = limited(20 * CORES)
    assert names(without_idle_quotas([cheap, dear], live=10 * PRICE, places=0)) == [["vCPUs"], ["vCPUs"]]
    assert names(without_idle_quotas([dear], live=10 * PRICE, places=0)) == [[]]


def test_what_costs_nothing_reaches_any_quota() -> None:
    """Of machines that are committed to already, money limits no number."""
    assert names(without_idle_quotas([limited(10**9, price=0)], live=PRICE, places=0)) == [["vCPUs"]]


def test_overlapping_quotas_far_from_binding_change_neither_plan_nor_bound() -> None:
    """Four of them on every offer: the plan is the one without any, to the last pod, and so is what is proven."""
    state = cluster(
        [node(f"n{i}") for i in range(6)],
        *[deployed(f"w{i}", [f"n{i}", f"n{(i + 1) % 6}"], cpu=300 + 70 * i, memory=300 + 90 * i) for i in range(6)],
    )
    free = tuple(offer(machine, zone=zone) for machine in ("m2", "m4", "m8") for zone in "ab")

    def ruled(one: Offer, left: int) -> Offer:
        cores = one.capacity["cpu"]
        shared = (("vCPUs", cores), ("vCPUs of the family", cores), (f"machines in {one.zone}", 1), ("machines", 1))
        return msgspec.structs.replace(
            one, quotas=tuple(Quota(name=name, takes=t, left=left * t) for name, t in shared)
        )

    settings = unguarded(move_price_usd=0.0)
    plain = planned(state, free, settings=settings)
    far = planned(state, tuple(ruled(one, 1000) for one in free), settings=settings)
    assert plain.cost.after < plain.cost.before
    assert (far.nodes, far.placements, far.cost) == (plain.nodes, plain.placements, plain.cost)
    none = planned(state, tuple(ruled(one, 0) for one in free), settings=settings)
    assert all(one.action != "boot" for one in none.nodes)


# --- quotas of namespaces


def agents(*more: ClusterObject, left: int) -> Cluster:
    """Two nodes with two pods and a daemon's pod each, in a namespace whose quota has so many places left."""
    daemon = daemon_set("agent", replicas=2, namespace="shop", current=2, ready=2)
    pods = [pod(f"agent-{name}", node=name, owner=daemon) for name in ("n1", "n2")]
    web = deployed("web", ["n1", "n1", "n2", "n2"], cpu=900)
    return cluster(node("n1"), node("n2"), daemon, pods, web, quota("q", hard={"pods": 6 + left}), *more)


@pytest.mark.parametrize(("left", "machines"), [(0, 0), (1, 0), (2, 1), (3, 2)])
def test_new_nodes_leave_a_place_for_one_surge(left: int, machines: int) -> None:
    """The pods of daemons would take the last places of the quota, and no pod could move."""
    [found] = with_namespace_quotas([offer("m4")], agents(left=left))
    assert [(one.name, one.takes, one.left) for one in found.quotas] == [
        ("ResourceQuota shop/q: pods", 1, machines),
    ]


def test_new_nodes_are_not_counted_for_pods_that_wait() -> None:
    """They are admitted, and need a node, whatever becomes of daemons."""
    waiting = agents(pod("waits", cpu=3900), left=0)
    assert with_namespace_quotas([offer("m4")], waiting)[0].quotas == ()


def test_new_nodes_are_counted_beside_headroom() -> None:
    """Its placeholders are pending, but no pod was admitted that would need a node."""
    kept = with_placeholders(agents(left=0), placeholders("room-", FrozenMap(cpu=100), 1))
    assert [one.left for one in with_namespace_quotas([offer("m4")], kept)[0].quotas] == [0]


def test_new_requests_stay_within_a_quota() -> None:
    """All pods of a workload and a new one beside; the next workload gets what is left. Those that fall stay."""
    state = cluster(
        node("n1"),
        deployed("a", ["n1", "n1"]),
        deployed("b", ["n1", "n1"]),
        deployed("c", ["n1"]),
        quota("q", hard={"requests.cpu": 900}),
    )
    asked = (
        forecast("a", cpu=100, after=200),
        forecast("b", cpu=100, after=150),
        forecast("c", cpu=100, after=50),
    )
    assert [one.workload for one in within_quotas(asked, state)] == ["Deployment/shop/a", "Deployment/shop/c"]


def test_new_requests_that_need_a_rollout_need_a_replica_set() -> None:
    """Under a quota for ReplicaSets the first workload gets the last one; pods that are resized in place need none."""
    sets = quota("sets", hard={SETS: 5}, used={SETS: 4})
    state = cluster(node("n1"), *(deployed(name, ["n1"]) for name in "abc"), sets)
    asked = [forecast(name, cpu=100, after=50) for name in "abc"]
    kept = within_quotas(asked, state, resizable={"Deployment/shop/c"})
    assert [one.workload for one in kept] == ["Deployment/shop/a", "Deployment/shop/c"]


def test_new_requests_that_get_no_replica_set_take_no_room_of_others() -> None:
    """Without a set the first workload keeps its requests: what it asked for is left to the one resized in place."""
    both = quota("both", hard={SETS: 4, "requests.cpu": 500}, used={SETS: 4, "requests.cpu": 200})
    state = cluster(node("n1"), *(deployed(name, ["n1"]) for name in "ab"), both)
    asked = [forecast(name, cpu=100, after=200) for name in "ab"]
    kept = within_quotas(asked, state, resizable={"Deployment/shop/b"})
    assert [one.workload for one in kept] == ["Deployment/shop/b"]


@pytest.mark.parametrize("allowed", [False, True])
def test_a_plan_under_a_used_up_quota_moves_what_it_may(*, allowed: bool) -> None:
    """Pods that a budget lets be away are evicted, and a node is saved; without it they stay, and the quota costs."""
    lets = [budget("web", max_unavailable="1")] if allowed else []
    state = cluster(
        node("n1"), node("n2"), deployed("web", ["n1", "n2"]), quota("q", hard={"pods": 2}, used={"pods": 2}), *lets
    )
    made = plan_for(state, (offer("m4"),), now=NOW, settings=unguarded(), stop=WorkStop(40))
    assert {one.strategy for one in made.placements} == ({"evict", "stay"} if allowed else {"stay"})
    assert [one.code for one in made.held] == ([] if allowed else ["quota", "quota"])
    costs = {one.constraint for one in made.constraint_costs}
    assert ({"ResourceQuota *", "ResourceQuota shop/q"} <= costs) is not allowed
