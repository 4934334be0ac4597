"""Limits on how much of a workload spot capacity holds: against trying everything, and too large for that."""

from __future__ import annotations

import random

import pytest
from tests.optimizer.exact.brute_rules import TooLargeError, best_plan
from tests.optimizer.planned import planned
from tests.support.builders import NOW, cluster, deployed, node, offer
from tests.support.planning import unguarded
from tests.support.plans import plan_for

from kinema_core.events import ClusterObject, Offer
from kinema_core.model.checker.check import check_drifted, check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions
from kinema_core.model.spot_share import SpotLimits, SpotShare, spot_limits_of
from kinema_optimizer.bounds.certificate import lower_bound
from kinema_optimizer.bounds.pattern_lp import pattern_bound
from kinema_optimizer.exact.build import exact_instance
from kinema_optimizer.exact.solve import solve_exact
from kinema_optimizer.problem.compile import compiled, sites_of
from kinema_optimizer.problem.question import Question
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import WorkStop

SIZES = {"s1": (1000, 4096, 40_000), "s2": (2000, 8192, 85_000), "s4": (4000, 16_384, 150_000)}
"""Machine types: millicores, MiB, micro-USD per hour on demand."""
PLENTY = 20_000


def sold(machine: str, zone: str = "a", *, spot: bool = True) -> Offer:
    """A machine; spot capacity costs two fifths."""
    cpu, memory, price = SIZES[machine]
    return offer(machine, zone=zone, spot=spot, cpu=cpu, memory=memory, price=price * 2 // 5 if spot else price)


def live(name: str, machine: str = "s4", zone: str = "a", *, spot: bool = False) -> ClusterObject:
    """A node of one of the machine types."""
    cpu, memory, price = SIZES[machine]
    cost = price * 2 // 5 if spot else price
    return node(name, cpu=cpu, memory=memory, machine=machine, zone=zone, spot=spot, price=str(cost / 10**6))


def settings(share: float | None = None, per_pool: float | None = None) -> PlanningSettings:
    """Everybody may be on spot capacity, within these shares."""
    return unguarded(allow_spot=True, spot=SpotShare(max_share=share, max_share_per_pool=per_pool))


def instance(seed: int) -> tuple[Cluster, tuple[Offer, ...], PlanningSettings]:
    """A tiny cluster with spot capacity among its nodes and on sale, and shares."""
    rng = random.Random(seed)
    names = [f"n{index}" for index in range(rng.randint(1, 4))]
    objects = [live(name, rng.choice(["s2", "s4"]), rng.choice("ab"), spot=rng.random() < 0.4) for name in names]
    left, index = rng.randint(3, 7), 0
    while left > 0:
        replicas = min(left, rng.choice([1, 2, 3, 4]))
        places = [None if rng.random() < 0.25 else rng.choice(names) for _ in range(replicas)]
        said = {"kinema.io/spot-max-share": rng.choice(["0.5", "1"])} if rng.random() < 0.25 else {}
        said |= {"kinema.io/spot-max-share-per-pool": "0.34"} if rng.random() < 0.15 else {}
        objects += deployed(f"w{index}", places, cpu=rng.choice([150, 300]), memory=300, annotations=said)
        left, index = left - replicas, index + 1
    offers = {
        (machine, zone, spot): sold(machine, zone, spot=spot)
        for machine, zone, spot in [(rng.choice("124"), rng.choice("ab"), rng.random() < 0.7) for _ in range(4)]
        for machine in [f"s{machine}"]
    }
    return (
        cluster(*objects),
        tuple(offers.values()),
        settings(rng.choice([None, 0.5, 0.67]), rng.choice([None, 0.34, 0.5])),
    )


@pytest.mark.slow
def test_the_bound_of_the_search_is_below_what_brute_force_finds() -> None:
    """Where it knows of the share it is higher than without, and no plan costs less than it."""
    compared = known = 0
    for seed in range(600):
        state, on_sale, wish = instance(seed)
        problem = compiled(Question(state, on_sale, NOW, "reschedule", options=wish.mobility))
        if not any(need.on_demand for need in problem.sites.ties.needs.values()):
            continue
        try:
            best = best_plan(state, on_sale, options=wish.mobility)
        except TooLargeError:
            continue
        assert best is not None
        rough = lower_bound(problem.relaxed)
        bound = pattern_bound(problem.relaxed, rough, (), lambda n: "work-limit" if n > 20 else None)[0].value
        assert sum(best.lost) > 0 or max(rough.value, bound) <= best.cost, seed
        free = compiled(Question(state, on_sale, NOW, "reschedule", options=MobilityOptions(allow_spot=True)))
        known += rough.value > lower_bound(free.relaxed).value
        compared += 1
    assert compared >= 80
    assert known >= 60


@pytest.mark.slow
def test_plans_equal_brute_force() -> None:
    """The exact model finds what trying everything finds; plans are accepted, and nearly always as cheap."""
    compared = equal = bound_by_it = 0
    for seed in range(400):
        state, on_sale, wish = instance(seed)
        options = wish.mobility
        try:
            best = best_plan(state, on_sale, options=options)
            free = best_plan(state, on_sale, options=MobilityOptions(allow_spot=True))
        except TooLargeError:
            continue
        assert best is not None
        question = Question(state, on_sale, NOW, "reschedule", options=options)
        problem = exact_instance(question, sites_of(question))
        assert problem is not None
        found = solve_exact(problem, WorkStop(PLENTY), least_moves=True)
        assert found is not None, seed
        assert found.proven, seed
        lost = sum(to is None for to in found.solution.assignment.values())
        assert (lost, found.least) == (sum(best.lost), best.cost), seed
        plan = planned(state, on_sale, settings=wish, work=PLENTY)
        assert (len(plan.unplaced), round(plan.cost.after * 10**6)) >= (sum(best.lost), best.cost), seed
        assert round(plan.cost.lower_bound * 10**6) <= best.cost, seed
        equal += round(plan.cost.after * 10**6) <= best.cost + best.cost // 1000
        bound_by_it += free is not None and free[:2] != best[:2]
        compared += 1
    assert compared >= 390
    assert equal >= 0.98 * compared
    assert bound_by_it >= 0.4 * compared


def limits(
    state: Cluster, workload: str = "web", *, spot_share: float | None = None, spot_pool_share: float | None = None
) -> SpotLimits | None:
    """The limits of a Deployment."""
    return spot_limits_of(
        state, f"Deployment/shop/{workload}", MobilityOptions(spot_share=spot_share, spot_pool_share=spot_pool_share)
    )


def test_shares_are_rounded_down_to_pods() -> None:
    """Pending replicas count too; a share that is no whole pod in a pool lets none on spot capacity at all."""
    state = cluster(live("n1"), *deployed("web", ["n1", "n1", None]), *deployed("one", ["n1"]))
    assert limits(state) is None
    assert limits(state, spot_share=1.0) is None
    assert limits(state, spot_share=0.67) == SpotLimits(total=2, pool=3)
    assert limits(state, spot_share=0.66) == SpotLimits(total=1, pool=3)
    assert limits(state, spot_pool_share=0.34) == SpotLimits(total=3, pool=1)
    assert limits(state, spot_pool_share=0.33) == SpotLimits(total=0, pool=0)
    assert limits(state, "one", spot_share=0.99) == SpotLimits(total=0, pool=1)


@pytest.mark.parametrize(("said", "total"), [("0.5", 2), (" 1 ", None), ("0", 0), ("50%", 0), ("nan", 0), ("2", 0)])
def test_an_annotation_comes_before_the_setting(said: str, total: int | None) -> None:
    """What cannot be read lets none on spot capacity: it was written for a reason."""
    state = cluster(live("n1"), *deployed("web", ["n1"] * 4, annotations={"kinema.io/spot-max-share": said}))
    found = limits(state, spot_share=0.25)
    assert (found and found.total) == total


def test_the_only_replica_stays_on_demand() -> None:
    """With any share below 1; at 1 it follows the price."""
    state, on_sale = cluster(live("n1"), *deployed("web", ["n1"], cpu=300)), (sold("s1"), sold("s1", spot=False))
    assert planned(state, on_sale, settings=settings(0.9)).cost.after == 0.04
    assert planned(state, on_sale, settings=settings(1.0)).cost.after == 0.016


def test_replicas_are_spread_over_spot_pools_and_the_plan_states_the_price() -> None:
    """Four replicas fit on one spot machine; with half of them in a pool, they are on two in different zones."""
    state = cluster(live("n1"), *deployed("web", ["n1"] * 4, cpu=400))
    on_sale = (sold("s2", "a"), sold("s2", "b"), sold("s2", "a", spot=False))
    assert planned(state, on_sale, settings=settings()).cost.after == 0.034
    plan = planned(state, on_sale, settings=settings(per_pool=0.5), stop=WorkStop(PLENTY))
    assert sorted(one.zone for one in plan.nodes if one.action == "boot") == ["a", "b"]
    assert plan.cost.after == 0.068
    assert {one.constraint: one.usd_per_hour for one in plan.constraint_costs} == {"spot shares": 0.034}


def test_the_checker_refuses_what_exceeds_a_share() -> None:
    """On the plan's state as on a later one; no more than are there already is no excess."""
    state = cluster(live("n1"), live("n2", spot=True), *deployed("web", ["n1", "n2", "n2"], cpu=100))
    on_sale = (sold("s4"), sold("s4", spot=False))
    plan = plan_for(state, on_sale, to={"shop/web-0": "n2"}, delete=["n1"])
    for share, codes in ((0.7, {"spot-share"}), (0.4, {"spot-share"}), (0.0, {"spot-share", "spot-not-allowed"})):
        options = settings(share).mobility
        assert {one.code for one in check_plan(plan, state, on_sale, NOW, options)} == codes
        assert {one.code for one in check_drifted(plan, state, on_sale, NOW, options)} == codes
    pools = settings(per_pool=0.7).mobility
    found = [one for one in check_plan(plan, state, on_sale, NOW, pools) if one.code == "spot-share"]
    assert [one.detail for one in found] == ["3 of its pods would be in the spot pool s4 of a, at most 2 may be"]
    stays = plan_for(state, on_sale, to={}, delete=[])
    assert check_drifted(stays, state, on_sale, NOW, settings(0.4).mobility) == ()


def crowd(seed: int) -> Cluster:
    """Too large for the exact model: workloads of one to six small replicas, a fifth of the nodes spot capacity."""
    rng = random.Random(seed)
    names = [f"n{index:02d}" for index in range(14)]
    objects: list[ClusterObject] = [live(name, zone=rng.choice("ab"), spot=rng.random() < 0.2) for name in names]
    for index in range(24):
        places: list[str | None] = [rng.choice([*names, None]) for _ in range(rng.randint(1, 6))]
        objects += deployed(f"w{index:02d}", places, cpu=rng.choice([150, 300, 400]), memory=300)
    return cluster(*objects)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("share", "per_pool"), [(0.5, None), (None, 0.5), (0.7, 0.34)])
def test_the_search_keeps_them_for_every_workload(seed: int, share: float | None, per_pool: float | None) -> None:
    """The checker accepts the plan, nobody waits, and it uses spot capacity: it is cheaper than without any."""
    state = crowd(seed)
    on_sale = tuple(sold(size, zone, spot=spot) for size in ("s2", "s4") for zone in "ab" for spot in (True, False))
    plan = planned(state, on_sale, settings=settings(share, per_pool), work=4)
    assert plan.unplaced == ()
    none = planned(state, on_sale, settings=settings(0.0), work=4)
    assert plan.cost.after < none.cost.after
    again = planned(state, on_sale, settings=settings(), work=4)
    assert again.cost.after <= plan.cost.after
    assert (plan.cost.lower_bound > again.cost.lower_bound) or share is None
