"""Plans whose moves wait for each other are carried out in their order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.sequencing.test_random_swaps import shuffled, wrong
from tests.model.sequencing.test_random_swaps import world as random_cluster
from tests.rescheduler.harness import World
from tests.rescheduler.plan.test_crashes import check_killed_at_every_pass
from tests.rescheduler.plans_in_memory import (
    booted_plan,
    chain_plan,
    detour_plan,
    fragmented_plan,
    late_swap_plan,
    rolling_plan,
    small_plan,
    swap_plan,
    two_targets,
)
from tests.support.builders import NOW, deployed, offers
from tests.support.builders import pod as lone_pod

from kinema_core.events import Plan, StepStarted, StepSucceeded
from kinema_core.model.cluster import Cluster
from kinema_core.model.sequencing.waves import Transition, order_transition, with_steps
from kinema_rescheduler.names import steering_key
from kinema_rescheduler.plan.limits import Limits

PLANS = [swap_plan, detour_plan, chain_plan]
WAY = "kinema-1-way-1"


class Watched(World):
    """A world in which no node may ever be overfull."""

    def look(self) -> None:
        """What must hold at every moment."""
        super().look()
        for item in self.memory.nodes.values():
            if min(self.memory.room(item).values()) < 0:
                self.problems.append(f"{item.name} is overfull")


def places(world: World) -> dict[str, list[str]]:
    """Nodes of each workload's living pods."""
    found: dict[str, list[str]] = {}
    for pod in world.memory.pods.values():
        if not pod.terminating:
            found.setdefault(pod.name[0], []).append(pod.node or "")
    return {name: sorted(nodes) for name, nodes in sorted(found.items())}


def as_planned(world: World) -> bool:
    """Return whether all of them lie where the plan says."""
    assert world.plan is not None
    found: dict[str, list[str]] = {}
    for place in world.plan.placements:
        found.setdefault(place.pod.removeprefix("shop/")[0], []).append(place.to)
    return places(world) == {name: sorted(nodes) for name, nodes in found.items()}


def surges(world: World) -> list[tuple[str, tuple[str, ...]]]:
    """Who was moved where, in order."""
    steps = [intent.step for intent in world.intents()]
    return [(step.target[-1], step.nodes) for step in steps if step.kind in {"surge-up", "evict"}]


async def test_a_swap_on_full_nodes_goes_over_a_temporary_node() -> None:
    """One pod waits on a node that is booted for it and deleted after it; no node is ever overfull, no pod missing."""
    world = Watched(*swap_plan())
    end = await world.completes("n1", "n2")
    assert as_planned(world)
    assert surges(world) == [("a", ("kinema-1-way-1",)), ("b", ("n1",)), ("a", ("n2",))]
    assert {key: end.figures[key] for key in ("booted", "deleted", "placement_misses")} == {
        "booted": 1,
        "deleted": 1,
        "placement_misses": 0,
    }


async def test_a_stop_on_a_node_that_stays() -> None:
    """A stateful set's pod is evicted twice, to the stop and on; the node of the stop stays."""
    world = Watched(*detour_plan())
    await world.completes("n1", "n2", "n3")
    assert as_planned(world)


async def test_a_pod_that_comes_up_at_its_stop_again_and_again_is_left_there() -> None:
    """After so many moves onward that changed nothing its workload is left alone; it is another pod each time."""
    world = Watched(*detour_plan(taken=100), limits=Limits(rounds=2))
    target = "StatefulSet/shop/a"
    steering = steering_key(target, world.memory.workloads[target].uid)

    def back_to_the_stop() -> None:
        if steering in world.memory.steering:
            world.memory.steering[steering] = ("n3",)

    world.on_second = back_to_the_stop
    await world.completes("n1", "n2", "n3")
    assert world.verdicts() == {f"skip/{target}": "taken-back"}
    assert [name for name, _ in surges(world) if name == "a"] == ["a"] * 3


async def test_a_chain_moves_from_its_end() -> None:
    """Each pod moves when the one whose room it takes has left."""
    world = Watched(*chain_plan())
    await world.completes("n2", "n3", "new")
    assert [name for name, _ in surges(world)] == ["c", "b", "a"]
    assert as_planned(world)


@pytest.mark.slow
@pytest.mark.parametrize("make", PLANS)
async def test_killed_at_every_pass_a_plan_in_waves_ends_the_same(make: Callable[[], tuple[Cluster, Plan]]) -> None:
    """Every single pass of every point of a whole execution, one after the other: same places, nothing left."""
    await check_killed_at_every_pass(*make(), as_planned, Watched)


async def test_a_sold_out_temporary_node_leaves_the_cluster_as_it_was() -> None:
    """The plan is given up before anything moved."""
    world = Watched(*swap_plan())
    world.provider.refusals["m2/a/on-demand"] = "stock-out"
    await world.aborts("stock-out")
    assert surges(world) == []


async def test_given_up_half_way_a_temporary_node_keeps_its_pod() -> None:
    """The pod that waits there runs on: the next plan finds a place for it. Nothing else of ours is left."""
    world = Watched(*swap_plan())
    await world.aborted_when(lambda: any(pod.node == WAY and pod.ready for pod in world.memory.pods.values()))
    end = await world.aborts("operator", WAY, "n1", "n2")
    assert end.leftovers == ()
    assert WAY in places(world)["a"]


async def test_a_temporary_node_that_cannot_be_emptied_is_planned_again() -> None:
    """Another pod took the place that the waiting pod was to have: it stays, and with it a node that costs money."""
    world = Watched(*swap_plan(), limits=Limits(blocked_seconds=30))

    def take() -> None:
        free = not any(pod.node == "n2" and pod.name.startswith("b-0") for pod in world.memory.pods.values())
        if free and "shop/thief" not in world.memory.pods:
            world.memory.pods["shop/thief"] = lone_pod("thief", node="n2", cpu=1900, created=NOW)

    world.on_second = take
    end = await world.completes(WAY, "n1", "n2")
    assert end.replan == "no-room"
    assert float(end.figures["saved_usd_per_hour"]) < 0
    assert (world.clock.now() - NOW).total_seconds() < 120


async def test_a_stranger_on_a_temporary_node_moves_off_it() -> None:
    """A pod that kube-scheduler put there in the meantime is moved like from any node that goes."""
    world = Watched(*swap_plan(deployed("late", [], cpu=90)))
    seen: list[str] = []

    def scale() -> None:
        seen.extend(pod.node or "" for pod in world.memory.pods.values() if pod.name.startswith("late"))
        ready = world.memory.nodes.get(WAY)
        if ready is not None and ready.ready and not world.memory.workloads["Deployment/shop/late"].replicas:
            world.memory.set_replicas("Deployment/shop/late", 1)

    world.on_second = scale
    world.floors.pop("Deployment/shop/late")
    await world.completes("n1", "n2")
    assert WAY in seen
    assert places(world)["l"] == ["n1"]


async def test_a_temporary_node_for_a_later_wave_is_booted_when_its_wave_comes() -> None:
    """What is paid for by the hour is not booted before somebody needs it."""
    before, plan = late_swap_plan()
    assert min(item.wave for item in plan.steps if item.node == WAY) == 1
    world = Watched(before, plan)
    await world.completes()
    bodies = [event.body for event in world.log()]
    booted = next(n for n, body in enumerate(bodies) if isinstance(body, StepSucceeded) and body.step == "boot/new")
    rented = next(n for n, body in enumerate(bodies) if isinstance(body, StepStarted) and body.step.id == f"boot/{WAY}")
    assert booted < rented
    assert as_planned(world)


async def test_a_temporary_node_that_never_gets_ready_ends_the_plan() -> None:
    """The node is taken away again, and whoever has moved stays where it is."""
    world = Watched(*late_swap_plan())
    world.memory.never_ready_nodes.add(WAY)
    end = await world.aborts("node-never-ready", "n1", "n2", "new", seconds=4000)
    assert end.leftovers == ()


@pytest.mark.parametrize("make", [fragmented_plan, small_plan, booted_plan, rolling_plan, two_targets])
async def test_plans_whose_order_does_not_matter_are_carried_out_in_theirs(
    make: Callable[[], tuple[Cluster, Plan]],
) -> None:
    """Their steps change nothing about the end."""
    before, plan = make()
    ends = []
    for found in (plan, with_steps(plan, order_transition(plan, before, offers(), now=NOW))):
        world = World(before, found)
        await world.completes()
        ends.append((places(world), sorted(world.memory.nodes)))
    assert ends[0] == ends[1]


def random_plan(rng: random.Random) -> tuple[Cluster, Plan, Transition]:
    """A valid plan that moves pods one by one, and its order."""
    while True:
        before = random_cluster(rng, ruled=False)
        plan = shuffled(rng, before)
        unsteered = any(item.strategy in {"schedule", "rolling"} for item in plan.placements)
        if plan.moves and not unsteered and not wrong(plan, before):
            return before, plan, order_transition(plan, before, offers(), now=NOW)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_can_be_ordered_is_carried_out(seed: int) -> None:
    """Every pod ends on its planned node, temporary nodes are gone, and no node was overfull on the way."""
    before, plan, transition = random_plan(random.Random(seed))
    hypothesis.event(f"temporary {len(transition.temporary)}, waves {transition.waves}")

    async def carry_out() -> None:
        running = Watched(before, with_steps(plan, transition))
        for item in plan.placements:
            workload = before.controller_of(before.pods_by_key[item.pod])
            if item.strategy == "evict" and workload is not None:
                running.floors[workload.key] = workload.replicas - 1
        await running.completes(*(item.name for item in plan.nodes if item.action != "delete"), seconds=4000)
        wanted = sorted((item.pod.rpartition("-")[0], item.to) for item in plan.placements)
        living = [pod for pod in running.memory.pods.values() if not pod.terminating and pod.namespace == "shop"]
        assert sorted((_owner(pod.key), pod.node or "") for pod in living) == wanted, running.told()

    asyncio.run(carry_out())


def _owner(key: str) -> str:
    """The workload in a pod's name: `shop/w1` of `shop/w1-0` and of a replacement's longer name."""
    return key.partition("-")[0]
