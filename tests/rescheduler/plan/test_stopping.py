"""A plan that is stopped ends after the moves under way, and what it has saved stays saved."""

from __future__ import annotations

import pytest
from tests.rescheduler.harness import World
from tests.rescheduler.memory_cluster import Pace
from tests.rescheduler.plan.test_closing import wide_plan
from tests.support.builders import NOW, cluster, deployed, node, offers, pod
from tests.support.plans import plan_for

from kinema_core.events import ExecutionAborted, ExecutionCompleted, is_unfinished
from kinema_rescheduler.plan.limits import Limits


@pytest.mark.parametrize("second", range(5, 120, 11))
async def test_an_abort_at_any_time_keeps_the_saving_and_leaves_nothing(second: int) -> None:
    """No move is taken back: nodes that were emptied go, all others are open, and no pod was disturbed without need."""
    before, plan = wide_plan()
    world = World(before, plan, limits=Limits(max_closed_nodes=3))
    left: list[int] = []

    def note() -> None:
        left.append(len(world.memory.nodes))

    world.on_second = note
    await world.aborted_when(lambda: len(left) >= second)
    end = await world.run()
    assert isinstance(end, ExecutionAborted)
    assert end.reason == "operator"
    assert world.problems == []
    assert world.marks_left() == []
    assert world.intents("revert") == []
    moved = [one for one in world.intents("surge-down") for _ in one.step.pods]
    assert 20 - len(world.memory.nodes) == len(moved)  # each moved pod was alone on its node
    assert world.end() is end


async def test_moves_under_way_end_and_none_begins_after_an_abort() -> None:
    """A surge that has its new pods takes the old ones away; the plan does not wait for anything else."""
    world = World(*wide_plan(), limits=Limits(max_closed_nodes=3))
    await world.aborted_when(lambda: bool(world.intents("surge-up")))
    end = await world.run()
    assert isinstance(end, ExecutionAborted)
    assert len(world.intents("surge-up")) == len(world.intents("surge-down"))
    assert len(world.memory.nodes) < 20


async def test_pods_that_landed_elsewhere_end_the_plan_at_once_where_nothing_else_has_room() -> None:
    """The end names the reason, no mark is left, and what was moved by then stays moved."""
    before, plan = wide_plan()
    world = World(before, plan, limits=Limits(max_closed_nodes=1))

    def fill() -> None:
        for n in range(8):
            guest = pod(f"guest-{n}", node=f"n{n:02}", cpu=3300, memory=100, created=NOW)
            world.memory.pods[guest.key] = guest

    world.once(lambda: len(world.memory.nodes) == 17, fill)
    end = await world.completes()
    assert end.replan == "misplaced"
    assert is_unfinished(end)
    assert len(world.memory.nodes) in {16, 17}
    assert isinstance(end, ExecutionCompleted)


async def test_a_plan_that_is_made_again_ends_when_its_new_nodes_are_ready() -> None:
    """The plan for the rest would buy others in their place, and delete them."""
    pods = (deployed("big", ["n1"], cpu=1900), deployed("web", ["n2"], cpu=2500))
    before = cluster(node("n1"), node("n2"), node("n3"), *pods)
    to, boot = {"shop/big-0": "n3", "shop/web-0": "kinema-1"}, {"kinema-1": "m4/a/on-demand"}
    plan = plan_for(before, offers(), to=to, boot=boot, delete=["n1", "n2"])
    world = World(before, plan, pace=Pace(node_ready=60.0))

    def fill() -> None:
        guest = pod("guest", node="n3", cpu=3900, memory=100, created=NOW)
        world.memory.pods[guest.key] = guest

    world.once(lambda: "kinema-1" in world.memory.nodes, fill)
    end = await world.completes("kinema-1", "n1", "n2", "n3")
    assert end.replan == "no-room"
    assert world.memory.nodes["kinema-1"].ready
