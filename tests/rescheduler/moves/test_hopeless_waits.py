"""Room that nobody will free is not waited for: no other plan is carried out meanwhile."""

from __future__ import annotations

from msgspec.structs import replace
from tests.rescheduler.harness import World
from tests.rescheduler.moves.test_room import homes, tight
from tests.rescheduler.plans_in_memory import swap_plan
from tests.support.builders import NOW, cluster, deployed, node, offers, pod, selector
from tests.support.plans import plan_for

from kinema_core.events import PlacementRules, PodTerm, StepFailed
from kinema_rescheduler.plan.limits import Limits

LIMITS = Limits()
WAY = "kinema-1-way-1"


def seconds(world: World) -> float:
    """Cluster time since the beginning."""
    return (world.clock.now() - NOW).total_seconds()


async def test_a_roll_that_would_stop_half_way_is_left_out_soon() -> None:
    """Its pods keep apart, and the only node without one is full: nothing goes on that would change that."""
    apart = PodTerm(topology_key="kubernetes.io/hostname", selector=selector(app="cart"))
    before = cluster(
        [node(f"n{n}", cpu=1000) for n in range(1, 5)],
        deployed("cart", ["n1", "n2", "n3"], cpu=500, rules=PlacementRules(anti_affinity=(apart,))),
        deployed("full", ["n4"], cpu=900),
    )
    world = World(before, plan_for(before, offers(), resizes={"Deployment/shop/cart": {"cpu": 300}}))
    await world.completes()
    assert world.verdicts() == {"skip/Deployment/shop/cart": "no-room"}
    assert seconds(world) < LIMITS.observed_seconds + 30
    assert "roll" not in world.intended_kinds()


async def test_what_was_kept_for_one_is_the_next_ones() -> None:
    """Strangers sit where both shall go: the larger pod stays, and the other one gets what was promised to that."""
    before = cluster(
        [node("old-a"), node("old-b"), node("to-a", cpu=1500), node("to-b", cpu=500)],
        deployed("a", ["old-a"], cpu=1000),
        deployed("b", ["old-b"], cpu=500),
    )
    plan = plan_for(before, offers(), to={"shop/a-0": "to-a", "shop/b-0": "to-b"}, delete=["old-a", "old-b"])
    world = World(before, plan)
    world.memory.pods["shop/one"] = pod("one", node="to-a", cpu=600, created=NOW)
    world.memory.pods["shop/two"] = pod("two", node="to-b", cpu=500, created=NOW)
    await world.completes()
    assert homes(world) == {"a": "old-a", "b": "to-a"}
    assert world.verdicts() == {"skip/Deployment/shop/a": "no-room", "keep/old-a": "not-empty"}
    assert seconds(world) < LIMITS.blocked_seconds


async def test_those_that_are_left_follow_each_other_at_once() -> None:
    """Where giving one up helps nobody, the next does not wait as long again."""
    world = World(*tight())
    for name in ("to-a", "to-b", "to-c", "to-z"):
        world.alter(name, unschedulable=True)
    await world.completes()
    skipped = [event.time for event in world.log() if isinstance(event.body, StepFailed) and "skip/" in event.body.step]
    assert len(skipped) == 3
    assert (max(skipped) - min(skipped)).total_seconds() < LIMITS.observed_seconds


async def test_a_pod_that_ends_is_waited_for() -> None:
    """It has the room that is missed, and takes longer to end than anything would be waited for otherwise."""
    world = World(*tight())
    world.alter("to-z", unschedulable=True)
    world.memory.pods["shop/old"] = pod("old", node="to-a", cpu=500, created=NOW, terminating=True)

    def ended() -> None:
        if seconds(world) > 3 * LIMITS.observed_seconds:
            world.memory.pods.pop("shop/old", None)

    world.on_second = ended
    await world.completes()
    assert homes(world) == {"a": "to-a", "b": "to-b", "c": "to-c"}
    assert world.verdicts() == {}


async def test_a_node_that_comes_back_is_waited_for() -> None:
    """A planned node that is not Ready for some minutes may come back, and then takes its pods."""
    world = World(*tight())
    world.alter("to-z", unschedulable=True)

    def back() -> None:
        late = seconds(world) > 3 * LIMITS.observed_seconds
        world.alter("to-a", ready=late)

    world.on_second = back
    await world.completes()
    assert homes(world) == {"a": "to-a", "b": "to-b", "c": "to-c"}


async def test_a_temporary_node_that_somebody_closes_is_not_waited_for_without_end() -> None:
    """Its pods stay where they are once it was waited for in vain, long before the plan's own deadline."""
    world = World(*swap_plan(), limits=Limits(blocked_seconds=30))

    def close() -> None:
        item = world.memory.nodes.get(WAY)
        if item is not None:
            world.memory.nodes[WAY] = replace(item, unschedulable=True)

    world.on_second = close
    await world.completes()
    assert world.verdicts()["skip/Deployment/shop/a"] == "no-room"
    assert homes(world) == {"a": "n1", "b": "n2"}
    assert seconds(world) < LIMITS.blocked_seconds
