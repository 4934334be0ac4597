"""Quotas that no plan can reach: which those are, and that they cost neither bound nor plan anything."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from tests.optimizer.planned import planned
from tests.support.builders import cluster, deployed, node, offer
from tests.support.planning import unguarded

from kinema_core.events import Offer, Quota
from kinema_optimizer.request.quotas import without_idle_quotas

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
