"""Pods that wait because of a plan: it is given up where its taint keeps them off a node, or they need a new one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import WEB, World
from tests.rescheduler.plans_in_memory import crowded_plan
from tests.support.builders import LONG_AGO, offers, pod

from kinema_core.events import NO_RULES, NodeTerm, PlacementRules, Requirement, StepFailed
from kinema_rescheduler.names import ABORT
from kinema_rescheduler.plan.limits import Limits

STRANGER = "shop/stranger"
NOWHERE = PlacementRules(node_terms=(NodeTerm(expressions=(Requirement(key="gone", operator="Exists"),)),))


def with_a_stranger(world: World, *, cpu: int, old: bool = False, rules: PlacementRules = NO_RULES) -> None:
    """A pod of somebody else comes once the node is closed, while the roll does not get on."""
    world.memory.never_ready_workloads.add(WEB)

    def come() -> None:
        created = LONG_AGO if old else world.clock.now()
        world.memory.pods[STRANGER] = pod("stranger", cpu=cpu, created=created, rules=rules)

    def closed() -> bool:
        return world.disrupted("n2") and world.memory.workloads[WEB].updated == 1

    world.once(closed, come)


async def test_a_plan_is_given_up_for_a_pod_that_it_keeps_waiting() -> None:
    """The pod has room on the node that is to go alone: it waits the limit and little more, and comes up there."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60))
    with_a_stranger(world, cpu=2000)
    end = await world.aborts("pod-waits")
    assert STRANGER in end.detail
    assert "n2" in end.detail
    came = world.memory.pods[STRANGER]
    assert came.node == "n2"
    assert came.created is not None
    assert came.started is not None
    assert timedelta(seconds=60) < came.started - came.created < timedelta(seconds=80)


@pytest.mark.parametrize(
    "stranger",
    [{"cpu": 2000, "old": True}, {"cpu": 3800, "old": True}, {"cpu": 100_000}, {"cpu": 2000, "rules": NOWHERE}],
    ids=["waited before", "needed a node before", "fits nothing on sale", "not admitted"],
)
async def test_a_plan_goes_on_where_it_is_not_the_reason(stranger: dict[str, Any]) -> None:
    """A pod that was there before, that no node on sale holds, or that may go nowhere changes nothing."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60, pods_ready_seconds=300))
    with_a_stranger(world, **stranger)
    await world.aborts("roll-stuck")


async def test_a_plan_is_given_up_for_a_pod_that_needs_a_new_node() -> None:
    """Nothing is bought while a plan is carried out: it makes way for whoever buys."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60))
    with_a_stranger(world, cpu=3800)
    end = await world.aborts("pod-waits")
    assert end.detail.startswith(f"{STRANGER} needs a new node, for example m4/a/on-demand")
    came = world.memory.pods[STRANGER].created
    assert came is not None
    given_up = next(one.time for one in world.log() if isinstance(one.body, StepFailed) and one.body.step == ABORT)
    assert timedelta(seconds=60) < given_up - came < timedelta(seconds=80)


@pytest.mark.parametrize("sold", ["sold out", "spot", "by another autoscaler"])
async def test_a_plan_goes_on_where_nothing_would_be_bought(sold: str) -> None:
    """A machine that is sold out, spot capacity that nobody asked for, or one that is not ours to buy is no reason."""
    before, plan = crowded_plan()
    known: dict[str, dict[str, Any]] = {"sold out": {"available": 0}, "spot": {"capacity_type": "spot"}}
    changes = known.get(sold, {})
    shop = [one if one.name.startswith("m2/") else replace(one, **changes) for one in offers()]
    world = World(before, plan, limits=Limits(unschedulable_seconds=60, pods_ready_seconds=300), sold=shop)
    world.delegated = sold == "by another autoscaler"
    with_a_stranger(world, cpu=3800)
    await world.aborts("roll-stuck")


async def test_a_pod_that_waits_for_something_else_ends_no_plan() -> None:
    """Where an open node has room, too, opening one more would not help."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60, pods_ready_seconds=300))
    with_a_stranger(world, cpu=100)
    place = world.memory._place_for
    world.memory._place_for = lambda pod: None if pod.key == STRANGER else place(pod)  # type: ignore[method-assign]  # a scheduler with a reason of its own
    await world.aborts("roll-stuck")


async def test_pods_of_our_own_moves_have_deadlines_of_their_own() -> None:
    """New pods of a roll that find no room any more wait as long as pods may: nobody takes them for somebody else's."""
    world = World(*crowded_plan(), limits=Limits(unschedulable_seconds=60, pods_ready_seconds=300))

    def fill() -> None:
        world.memory.pods["shop/big"] = pod("big", node="n1", cpu=1500, created=world.clock.now())

    world.once(lambda: world.memory.workloads[WEB].updated == 2, fill)
    await world.aborts("roll-stuck")
