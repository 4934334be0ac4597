"""Autoscale plans that may move running pods where that is cheaper than a new node."""

from __future__ import annotations

from typing import Any

from tests.optimizer.planned import planned
from tests.optimizer.rule_instances import rule_instance
from tests.support.builders import NOW, cluster, deployed, node, offer, offers
from tests.support.planning import unguarded

from kinema_core.events import Offer, Plan
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions


def scaled(state: Cluster, on_sale: tuple[Offer, ...], **more: Any) -> Plan:
    """The autoscale plan, checked for what it may do."""
    return planned(state, on_sale, settings=unguarded(**more), mode="autoscale", work=1000)


def split(pods: int = 1) -> Cluster:
    """Two nodes, each with one core free and small pods; a pod of two cores waits."""
    small = [name for name in ("n1", "n2") for _ in range(3 * pods)]
    return cluster(
        node("n1"), node("n2"), deployed("web", small, cpu=1000 // pods, memory=64), deployed("big", [None], cpu=2000)
    )


def test_a_move_is_cheaper_than_a_node() -> None:
    """One small pod goes to the other node's free room, and the big one takes its place: nothing is bought."""
    found = scaled(split(), offers(), autoscale_moves=True)
    assert (found.moves, found.unplaced, found.cost.after) == (1, (), found.cost.before)
    assert all(one.action == "keep" for one in found.nodes)
    assert (found.status, found.cost.lower_bound) == ("optimal", found.cost.before)


def test_without_leave_nobody_moves() -> None:
    """A node is bought, by default; the checker refuses an autoscale plan that moves without leave."""
    found = scaled(split(), offers())
    assert (found.moves, [one.machine_type for one in found.nodes if one.action == "boot"]) == (0, ["m2"])
    moving = scaled(split(), offers(), autoscale_moves=True)
    assert {one.code for one in check_plan(moving, split(), offers(), NOW)} == {"autoscale-moves"}
    assert check_plan(moving, split(), offers(), NOW, MobilityOptions(autoscale_moves=True)) == ()


def test_moves_at_their_price_must_be_cheaper() -> None:
    """A move that costs more than the cheapest machine that would do is not made; a cap on moves holds."""
    assert scaled(split(), offers(), autoscale_moves=True, move_price_usd=0.084).moves == 1
    assert scaled(split(), offers(), autoscale_moves=True, move_price_usd=0.086).moves == 0
    assert scaled(split(), offers(), autoscale_moves=True, max_moves=0).moves == 0


def test_moves_place_what_no_machine_can_be_had_for() -> None:
    """Sold out, the pod would wait; in a larger cluster too, where few of the pods are looked at."""
    for pods in (1, 20):
        found = scaled(split(pods), (offer(available=0),), autoscale_moves=True)
        assert (found.unplaced, found.moves) == ((), pods)


def test_it_is_never_worse_than_adding() -> None:
    """On instances with every rule: as few pods left out, at no more cost, and no node goes."""
    moved = 0
    for seed in range(50, 62):
        instance = rule_instance(seed)
        adds, moves = (scaled(instance.cluster, instance.offers, autoscale_moves=may) for may in (False, True))
        assert len(moves.unplaced) <= len(adds.unplaced), seed
        if len(moves.unplaced) == len(adds.unplaced):
            assert moves.cost.after <= adds.cost.after, seed
        assert all(one.action != "delete" for one in moves.nodes), seed
        moved += moves.moves
    assert moved > 0
