"""Marks that people and other autoscalers set while a plan is carried out void the steps that touch what they mark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import World
from tests.rescheduler.plan.test_aborts import verdicts
from tests.rescheduler.plan.test_operator_wins import WEB, once
from tests.rescheduler.plans_in_memory import booted_plan, fragmented_plan, small_plan
from tests.support.builders import budget, cluster, deployed, node, offers, stateful, taint
from tests.support.plans import plan_for

from kinema_core.events import ExecutionAborted, FrozenMap, Node, StepStarted
from kinema_core.model.vocabulary import (
    DELETION_CANDIDATE,
    DO_NOT_DISRUPT,
    DO_NOT_MOVE,
    FOREIGN_DELETION_TAINTS,
    PREFER_NO_EVICTION,
    SAFE_TO_EVICT,
    SCALE_DOWN_DISABLED,
)
from kinema_rescheduler.names import DISRUPTED
from kinema_rescheduler.plan.limits import Limits

HOLDING = {DO_NOT_DISRUPT: "true", SAFE_TO_EVICT: "false", PREFER_NO_EVICTION: "true", DO_NOT_MOVE: "true"}


def annotated(item: Node, key: str) -> Node:
    """The node with one annotation more."""
    return replace(item, annotations=FrozenMap({**item.annotations, key: "true"}))


def tainted(item: Node, key: str) -> Node:
    """The node with one taint more."""
    return replace(item, taints=(*item.taints, taint(f"{key}:NoSchedule")))


def intended(world: World, kind: str) -> list[str]:
    """Targets of the steps of a kind."""
    bodies = [event.body for event in world.log()]
    return [body.step.target for body in bodies if isinstance(body, StepStarted) and body.step.kind == kind]


NODE_MARKS: dict[str, Callable[[Node], Node]] = {
    **{key: partial(tainted, key=key) for key in FOREIGN_DELETION_TAINTS},
    SCALE_DOWN_DISABLED: lambda item: annotated(item, SCALE_DOWN_DISABLED),
    DO_NOT_DISRUPT: lambda item: annotated(item, DO_NOT_DISRUPT),
}


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("name", NODE_MARKS)
async def test_a_node_that_is_marked_is_left_alone(name: str, early: bool) -> None:
    """Before or after our own mark, a node that others delete or protect is neither emptied nor deleted by us."""
    before, plan = fragmented_plan()
    world = World(before, plan)
    pods = {pod.uid for pod in before.pods if pod.node == "n6"}

    def mark() -> None:
        world.memory.nodes["n6"] = NODE_MARKS[name](world.memory.nodes["n6"])

    when = (lambda: True) if early else (lambda: DISRUPTED in world.memory.nodes["n6"].labels)
    world.on_second = once(when, mark)
    await world.completes("kinema-1", "n6")
    assert ("delete", "n6") not in world.provider.orders
    assert pods <= {pod.uid for pod in world.memory.pods.values() if pod.node == "n6"}


@pytest.mark.parametrize("before_us", [True, False])
async def test_a_node_that_is_cordoned_meanwhile_is_left_alone(before_us: bool) -> None:
    """A node that somebody cordons while it is emptied keeps its pods; one that was cordoned before goes as planned."""
    before, plan = fragmented_plan()
    world = World(before)

    def cordon() -> None:
        world.memory.nodes["n6"] = replace(world.memory.nodes["n6"], unschedulable=True)

    when = (lambda: True) if before_us else (lambda: DISRUPTED in world.memory.nodes["n6"].labels)
    world.on_second = once(when, cordon)
    await world.accept(plan)
    if before_us:
        await world.completes("kinema-1")
    else:
        await world.completes("kinema-1", "n6")
        assert verdicts(world)["keep/n6"] == "off-limits"
        assert world.memory.nodes["n6"].unschedulable


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cordon", *NODE_MARKS])
async def test_a_booted_node_that_somebody_wants_outlives_an_abort(name: str) -> None:
    """A node that was booted for nothing is not deleted once somebody has cordoned or protected it, or deletes it."""
    world = World(*booted_plan())
    world.memory.never_ready_workloads.add(WEB)

    def mark() -> None:
        item = world.memory.nodes["kinema-1"]
        marked = replace(item, unschedulable=True) if name == "cordon" else NODE_MARKS[name](item)
        world.memory.nodes["kinema-1"] = marked

    world.on_second = once(lambda: world.memory.workloads[WEB].replicas > 2, mark)
    end = await world.run()
    assert isinstance(end, ExecutionAborted), world.told()
    assert sorted(world.memory.nodes) == ["kinema-1", "n1", "n2"]
    assert ("delete", "kinema-1") not in world.provider.orders
    assert world.marks_left() == []


@pytest.mark.parametrize("early", [True, False])
async def test_a_candidate_is_emptied_where_its_autoscaler_deletes_for_us(early: bool) -> None:
    """Cluster Autoscaler marks each node that it would not miss: what we empty for it is not given up for that."""
    world = World(*fragmented_plan())
    world.delegated = True

    def mark() -> None:
        world.memory.nodes["n6"] = tainted(world.memory.nodes["n6"], DELETION_CANDIDATE)

    when = (lambda: True) if early else (lambda: DISRUPTED in world.memory.nodes["n6"].labels)
    world.on_second = once(when, mark)
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

    def mark() -> None:
        pod = world.memory.pods["shop/web-1"]
        world.memory.pods[pod.key] = replace(pod, annotations=FrozenMap({**pod.annotations, key: HOLDING[key]}))

    world.on_second = once(moments[moment], mark)
    await world.completes()
    assert verdicts(world)[f"skip/{WEB}"] == "held"
    assert world.memory.pods["shop/web-1"].uid == "uid-pod-shop-web-1"
    assert world.memory.workloads[WEB].replicas == 3
    assert "n2" in world.memory.nodes


async def test_a_pod_that_is_marked_while_its_eviction_is_refused_stays() -> None:
    """An eviction that waits for a budget is not tried again once its pod is marked."""
    before = cluster(
        node("n1"),
        node("n2"),
        stateful("db", ["n1", "n2"], cpu=500),
        deployed("web", ["n1", "n2"], cpu=100),
        budget("db", min_available="1", allowed=0),
    )
    plan = plan_for(before, offers(), to={"shop/db-1": "n1", "shop/web-1": "n1"}, delete=["n2"])
    world = World(before, plan)

    def mark() -> None:
        pod = world.memory.pods["shop/db-1"]
        world.memory.pods[pod.key] = replace(pod, annotations=FrozenMap({DO_NOT_DISRUPT: "true"}))

    world.on_second = once(lambda: bool(intended(world, "evict")), mark)
    await world.completes()
    assert verdicts(world)["skip/StatefulSet/shop/db"] == "held"
    assert len(intended(world, "evict")) <= 2
    assert world.memory.pods["shop/db-1"].uid == "uid-pod-shop-db-1"


@pytest.mark.parametrize("name", ["cordon", *FOREIGN_DELETION_TAINTS])
async def test_nothing_moves_to_a_node_that_is_closed(name: str) -> None:
    """Once somebody cordons the planned node, or wants it deleted, no move to it begins: pods stay where they are."""
    world = World(*small_plan(), limits=Limits(blocked_seconds=30))

    def close() -> None:
        item = world.memory.nodes["n1"]
        world.memory.nodes["n1"] = replace(item, unschedulable=True) if name == "cordon" else tainted(item, name)

    world.on_second = once(lambda: True, close)
    await world.completes("n1", "n2")
    assert verdicts(world)[f"skip/{WEB}"] == "no-room"
    assert intended(world, "surge-up") == []
    assert world.memory.nodes["n1"].unschedulable == (name == "cordon")


@pytest.mark.parametrize("key", FOREIGN_DELETION_TAINTS)
async def test_nothing_moves_from_a_node_that_others_delete(key: str) -> None:
    """A pod that the plan moves off a node that stays is not moved once another autoscaler empties that node."""
    before = cluster(node("n1"), node("n2"), node("n3"), deployed("web", ["n1", "n2"], cpu=500))
    plan = plan_for(before, offers(), to={"shop/web-1": "n1"}, delete=["n3"])
    world = World(before, plan)
    world.on_second = once(lambda: True, lambda: world.memory.nodes.update(n2=tainted(world.memory.nodes["n2"], key)))
    await world.completes("n1", "n2")
    assert intended(world, "surge-up") == []
    assert world.memory.pods["shop/web-1"].node == "n2"
