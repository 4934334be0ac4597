"""Marks that people and other autoscalers set while a plan is carried out void the steps that touch what they mark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import WEB, World, once
from tests.rescheduler.plans_in_memory import booted_plan, budgeted_plan, fragmented_plan, small_plan
from tests.support.builders import cluster, deployed, node, offers, taint
from tests.support.plans import plan_for

from kinema_core.events import FrozenMap, Node
from kinema_core.model.vocabulary import (
    DELETION_CANDIDATE,
    DO_NOT_DISRUPT,
    DO_NOT_MOVE,
    FOREIGN_DELETION_TAINTS,
    PREFER_NO_EVICTION,
    SAFE_TO_EVICT,
    SCALE_DOWN_DISABLED,
)
from kinema_rescheduler.plan.limits import Limits

HOLDING = {DO_NOT_DISRUPT: "true", SAFE_TO_EVICT: "false", PREFER_NO_EVICTION: "true", DO_NOT_MOVE: "true"}


def annotated(item: Node, key: str) -> Node:
    """The node with one annotation more."""
    return replace(item, annotations=FrozenMap({**item.annotations, key: "true"}))


def tainted(item: Node, key: str) -> Node:
    """The node with one taint more."""
    return replace(item, taints=(*item.taints, taint(f"{key}:NoSchedule")))


NODE_MARKS: dict[str, Callable[[Node], Node]] = {
    **{key: partial(tainted, key=key) for key in FOREIGN_DELETION_TAINTS},
    SCALE_DOWN_DISABLED: partial(annotated, key=SCALE_DOWN_DISABLED),
    DO_NOT_DISRUPT: partial(annotated, key=DO_NOT_DISRUPT),
}
CLOSING: dict[str, Callable[[Node], Node]] = {**NODE_MARKS, "cordon": lambda item: replace(item, unschedulable=True)}


def mark(world: World, node: str, name: str) -> Callable[[], None]:
    """Mark the node."""
    return lambda: world.memory.nodes.update({node: CLOSING[name](world.memory.nodes[node])})


def annotate(world: World, pod: str, key: str) -> Callable[[], None]:
    """Annotate the pod."""
    return lambda: world.alter(pod, annotations=FrozenMap({**world.memory.pods[pod].annotations, key: HOLDING[key]}))


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("name", NODE_MARKS)
async def test_a_node_that_is_marked_is_left_alone(name: str, early: bool) -> None:
    """Before or after Kinema's own mark, a node that others delete or protect is neither emptied nor deleted."""
    before, plan = fragmented_plan()
    world = World(before, plan)
    world.once(lambda: early or world.disrupted("n6"), mark(world, "n6", name))
    await world.completes("kinema-1", "n6")
    assert ("delete", "n6") not in world.provider.orders
    pods = {pod.uid for pod in before.pods if pod.node == "n6"}
    assert pods <= {pod.uid for pod in world.memory.pods.values() if pod.node == "n6"}


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("name", CLOSING)
async def test_a_node_whose_mark_is_gone_at_the_end_is_planned_again(name: str, stays: bool) -> None:
    """Another autoscaler may think better of it: what it kept is asked for at once, and not where the mark is there."""
    world = World(*fragmented_plan())
    before: list[Node] = []

    def second() -> None:
        if not before and world.disrupted("n6"):
            before.append(world.memory.nodes["n6"])
            mark(world, "n6", name)()
        elif before and "keep/n6" in world.verdicts() and not stays:
            world.alter("n6", taints=(), unschedulable=False, annotations=FrozenMap())

    world.on_second = second
    end = await world.completes("kinema-1", "n6")
    assert world.verdicts() == {"keep/n6": "off-limits"}
    assert end.replan == ("" if stays else "free-again")


@pytest.mark.parametrize(("lasts", "replan"), [(10, "free-again"), (1000, "")])
@pytest.mark.parametrize("name", NODE_MARKS)
async def test_the_end_of_a_plan_waits_a_little_for_a_mark_to_go(name: str, lasts: int, replan: str) -> None:
    """A mark that goes within seconds costs no saving; one that stays does not delay the end of the plan any longer."""
    world = World(*small_plan())
    marked: list[datetime] = []

    def second() -> None:
        if not marked and world.disrupted("n2"):
            marked.append(world.clock.now())
            mark(world, "n2", name)()
        elif marked and world.clock.now() - marked[0] > timedelta(seconds=lasts):
            world.alter("n2", taints=(), annotations=FrozenMap())

    world.on_second = second
    end = await world.completes("n1", "n2", seconds=60)
    assert end.replan == replan
    assert float(end.figures["seconds"]) < Limits().no_room_seconds + 15


@pytest.mark.parametrize("before_us", [True, False])
async def test_a_node_that_is_cordoned_meanwhile_is_left_alone(before_us: bool) -> None:
    """A node that somebody cordons while it is emptied keeps its pods; one that was cordoned before goes as planned."""
    world = World(*fragmented_plan())
    world.once(lambda: before_us or world.disrupted("n6"), mark(world, "n6", "cordon"))
    await world.completes("kinema-1", *([] if before_us else ["n6"]))
    if not before_us:
        assert world.verdicts()["keep/n6"] == "off-limits"
        assert world.memory.nodes["n6"].unschedulable


@pytest.mark.slow
@pytest.mark.parametrize("name", CLOSING)
async def test_a_booted_node_that_somebody_wants_outlives_an_abort(name: str) -> None:
    """A node that was booted for nothing is not deleted once somebody has cordoned or protected it, or deletes it."""
    world = World(*booted_plan())
    world.memory.never_ready_workloads.add(WEB)
    world.once(lambda: world.memory.workloads[WEB].replicas > 2, mark(world, "kinema-1", name))
    await world.aborts("pods-never-ready", "kinema-1", "n1", "n2")
    assert ("delete", "kinema-1") not in world.provider.orders


@pytest.mark.parametrize("early", [True, False])
async def test_a_candidate_is_emptied_where_its_autoscaler_deletes_for_us(early: bool) -> None:
    """Cluster Autoscaler marks each node that it would not miss: a node that is emptied for it is emptied further."""
    world = World(*fragmented_plan())
    world.delegated = True
    candidate = taint(f"{DELETION_CANDIDATE}:NoSchedule")
    world.once(
        lambda: early or world.disrupted("n6"),
        lambda: world.alter("n6", taints=(*world.memory.nodes["n6"].taints, candidate)),
    )
    await world.completes("kinema-1")


@pytest.mark.parametrize("key", HOLDING)
@pytest.mark.parametrize("moment", ["steered", "surplus asked for", "surplus Ready"])
async def test_a_pod_that_is_marked_during_its_surge_stays(moment: str, key: str) -> None:
    """Whenever somebody marks a leaving pod, it stays while it is there: the surplus goes, the node is kept."""
    world = World(*small_plan())
    moments: dict[str, Callable[[], bool]] = {
        "steered": lambda: bool(world.memory.steering),
        "surplus asked for": lambda: world.memory.workloads[WEB].replicas == 5,
        "surplus Ready": lambda: world.memory.workloads[WEB].ready == 5,
    }
    world.once(moments[moment], annotate(world, "shop/web-1", key))
    await world.completes("n1", "n2")
    assert world.verdicts()[f"skip/{WEB}"] == "held"
    assert world.memory.pods["shop/web-1"].uid == "uid-pod-shop-web-1"
    assert world.memory.workloads[WEB].replicas == 3


async def test_a_pod_that_is_marked_while_its_eviction_is_refused_stays() -> None:
    """An eviction that waits for a budget is not tried again once its pod is marked."""
    world = World(*budgeted_plan())
    world.once(lambda: bool(world.intents("evict")), annotate(world, "shop/db-1", DO_NOT_DISRUPT))
    await world.completes()
    assert world.verdicts()["skip/StatefulSet/shop/db"] == "held"
    assert len(world.intents("evict")) <= 2
    assert world.memory.pods["shop/db-1"].uid == "uid-pod-shop-db-1"


@pytest.mark.parametrize("name", ["cordon", *FOREIGN_DELETION_TAINTS])
async def test_nothing_moves_to_a_node_that_is_closed(name: str) -> None:
    """Once somebody cordons the planned node, or wants it deleted, no move to it begins: pods stay where they are."""
    world = World(*small_plan(), limits=Limits(blocked_seconds=30))
    world.once(lambda: True, mark(world, "n1", name))
    await world.completes("n1", "n2")
    assert world.verdicts() == {"replan": "no-room", "keep/n2": "not-empty"}
    assert world.intents("surge-up") == []
    assert world.memory.nodes["n1"].unschedulable == (name == "cordon")


@pytest.mark.parametrize("key", FOREIGN_DELETION_TAINTS)
async def test_nothing_moves_from_a_node_that_others_delete(key: str) -> None:
    """A pod that the plan moves off a node that stays is not moved once another autoscaler empties that node."""
    before = cluster(node("n1"), node("n2"), node("n3"), deployed("web", ["n1", "n2"], cpu=500))
    world = World(before, plan_for(before, offers(), to={"shop/web-1": "n1"}, delete=["n3"]))
    world.once(lambda: True, mark(world, "n2", key))
    await world.completes("n1", "n2")
    assert world.intents("surge-up") == []
    assert world.memory.pods["shop/web-1"].node == "n2"


async def test_a_move_that_begins_while_a_mark_may_pass_is_steered_no_longer_than_it_takes() -> None:
    """All was taken back when n3 loses its mark: the pod there moves, and what steers it is taken back once more."""
    name = min(FOREIGN_DELETION_TAINTS)
    before = cluster(
        *map(node, ("n1", "n2", "n3", "n4")),
        *(deployed(f"on-{where}", [where], cpu=100) for where in ("n1", "n3", "n4")),
    )
    world = World(before, plan_for(before, offers(), to={pod.key: "n2" for pod in before.pods}, delete=["n1", "n4"]))
    mark(world, "n3", name)()
    closed = once(lambda: world.disrupted("n4"), mark(world, "n4", name))
    passed = once(lambda: bool(world.intents("clear-preferred-nodes")), lambda: world.alter("n3", taints=()))

    def second() -> None:
        closed()
        passed()

    world.on_second = second
    await world.completes("n2", "n3", "n4")
    assert [one.step.id for one in world.intents("clear-preferred-nodes")] == [
        "clear-preferred-nodes/1",
        "clear-preferred-nodes/2",
    ]
