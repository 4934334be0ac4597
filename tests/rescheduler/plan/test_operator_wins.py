"""What others change while a plan is carried out counts more than the plan."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import World
from tests.rescheduler.plan.test_aborts import verdicts
from tests.rescheduler.plans_in_memory import booted_plan, fragmented_plan, small_plan
from tests.support.builders import NOW, budget, cluster, deployed, node, offers, pod, stateful
from tests.support.plans import plan_for

from kinema_core.events import Autoscaler, ExecutionAborted, ExecutionCompleted, FrozenMap, StepFailed, StepStarted
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_rescheduler.names import DISRUPTED
from kinema_rescheduler.plan.limits import Limits

WEB = "Deployment/shop/web"


def with_autoscaler(before: Cluster) -> Cluster:
    """The cluster with an HPA on web."""
    scaler = Autoscaler(name="web", namespace="shop", uid="hpa", target_kind="Deployment", target_name="web")
    return from_objects([*all_objects(before), scaler])


def once(when: Callable[[], bool], do: Callable[[], None]) -> Callable[[], None]:
    """Do something the first time that something holds."""
    done = False

    def check() -> None:
        nonlocal done
        if not done and when():
            done = True
            do()

    return check


async def test_autoscaler_takes_the_surplus_back_while_new_pods_start() -> None:
    """An HPA that scales back too early removes the new pods; the move is tried again and succeeds."""
    before, plan = small_plan()
    world = World(with_autoscaler(before))
    world.on_second = once(lambda: world.memory.workloads[WEB].replicas == 5, lambda: world.memory.set_replicas(WEB, 3))
    await world.accept(plan)
    await world.completes("n1")


async def test_autoscaler_takes_the_surplus_back_when_new_pods_are_ready() -> None:
    """An HPA that scales back late removes exactly the victims: the move is done, and not done again."""
    before, plan = small_plan()
    world = World(with_autoscaler(before))
    world.on_second = once(lambda: world.memory.workloads[WEB].ready == 5, lambda: world.memory.set_replicas(WEB, 3))
    await world.accept(plan)
    await world.completes("n1")
    ups = [e for e in world.log() if isinstance(e.body, StepStarted) and e.body.step.kind == "surge-up"]
    assert len(ups) == 1


async def test_autoscaler_that_always_takes_back_leaves_the_workload_alone() -> None:
    """After so many moves in vain the workload stays, its node with it, and nothing of ours."""
    before, plan = small_plan()
    world = World(with_autoscaler(before), limits=Limits(rounds=2))

    def take_back() -> None:
        if world.memory.workloads[WEB].replicas == 5:
            world.memory.set_replicas(WEB, 3)

    world.on_second = take_back
    await world.accept(plan)
    await world.completes("n1", "n2")
    assert verdicts(world) == {f"skip/{WEB}": "taken-back", "keep/n2": "not-empty"}


async def test_autoscaler_that_wants_more_is_obeyed() -> None:
    """An HPA that scales up in the middle of a surge keeps its replicas; the move goes on from there."""
    before, plan = small_plan()
    world = World(with_autoscaler(before))
    world.on_second = once(lambda: world.memory.workloads[WEB].replicas == 5, lambda: world.memory.set_replicas(WEB, 6))
    await world.accept(plan)
    await world.completes("n1")
    assert world.memory.workloads[WEB].replicas == 6


async def test_operator_who_scales_in_the_middle_keeps_the_replicas() -> None:
    """Without an HPA a foreign change of replicas voids the move: their number stays, the workload too."""
    world = World(*small_plan())
    world.on_second = once(lambda: world.memory.workloads[WEB].replicas == 5, lambda: world.memory.set_replicas(WEB, 4))
    await world.completes()
    assert world.memory.workloads[WEB].replicas == 4
    assert verdicts(world)[f"skip/{WEB}"] == "changed"
    assert "n2" in world.memory.nodes


async def test_operator_who_changes_the_template_gets_the_replicas_back() -> None:
    """A foreign change of the template in the middle of a surge voids it; the surplus is taken back."""
    world = World(*small_plan())

    def edit() -> None:
        workload = world.memory.workloads[WEB]
        world.memory.workloads[WEB] = replace(workload, generation=workload.generation + 1)

    world.on_second = once(lambda: world.memory.workloads[WEB].replicas == 5, edit)
    await world.completes()
    assert world.memory.workloads[WEB].replicas == 3
    assert verdicts(world)[f"skip/{WEB}"] == "changed"


@pytest.mark.parametrize("marked", [False, True])
async def test_do_not_move_set_in_the_middle_is_obeyed(marked: bool) -> None:
    """A pod annotated do-not-move before its turn stays with its node and all on it; the others go on."""
    before, plan = fragmented_plan()
    world = World(before, plan)

    def annotate() -> None:
        held = world.memory.pods["shop/cart-0"]
        world.memory.pods[held.key] = replace(held, annotations=FrozenMap({"kinema.io/do-not-move": "true"}))

    world.on_second = once(
        lambda: "kinema-1" in world.memory.nodes and (not marked or DISRUPTED in world.memory.nodes["n1"].labels),
        annotate,
    )
    end = await world.completes("kinema-1", "n1")
    assert world.memory.pods["shop/cart-0"].uid == "uid-pod-shop-cart-0"
    assert end.figures["nodes_kept"] == 1


async def test_mark_taken_off_keeps_the_node() -> None:
    """Whoever takes our label `kinema.io/disrupted` off a node keeps it."""
    world = World(*fragmented_plan(), limits=Limits(observed_seconds=1))

    def unlabel() -> None:
        marked = world.memory.nodes["n6"]
        kept = {key: value for key, value in marked.labels.items() if key != DISRUPTED}
        world.memory.nodes["n6"] = replace(marked, labels=FrozenMap(kept))

    world.on_second = once(lambda: DISRUPTED in world.memory.nodes["n6"].labels, unlabel)
    await world.completes("kinema-1", "n6")
    assert verdicts(world) == {"keep/n6": "off-limits"}


async def test_foreign_deletion_mark_keeps_us_away_from_the_node() -> None:
    """A node that another autoscaler is about to delete is left to it."""
    world = World(*fragmented_plan())

    def taint() -> None:
        from tests.support.builders import taint as made  # noqa: PLC0415 - the name is taken here

        marked = world.memory.nodes["n6"]
        world.memory.nodes["n6"] = replace(
            marked, taints=(*marked.taints, made("ToBeDeletedByClusterAutoscaler:NoSchedule"))
        )

    world.on_second = once(lambda: DISRUPTED in world.memory.nodes["n6"].labels, taint)
    await world.completes()
    assert verdicts(world)["keep/n6"] == "off-limits"
    assert ("delete", "n6") not in world.provider.orders


async def test_node_deleted_by_somebody_else_is_done_with() -> None:
    """A node that vanishes in the middle needs no step any more; the rest goes on."""
    world = World(*fragmented_plan())
    world.floors.clear()  # its pods are killed by whoever deleted the node
    world.on_second = once(lambda: DISRUPTED in world.memory.nodes["n6"].labels, lambda: world.memory.vanish("n6"))
    await world.completes("kinema-1")


async def test_workload_deleted_in_the_middle_is_done_with() -> None:
    """A workload that vanishes in the middle of its surge holds nothing up."""
    world = World(*small_plan())

    def remove() -> None:
        for key in [key for key in world.memory.workloads if "web" in key]:
            del world.memory.workloads[key]
        world.memory.pods.clear()

    world.on_second = once(lambda: world.memory.workloads[WEB].replicas == 5, remove)
    end = await world.run()
    assert isinstance(end, ExecutionCompleted | ExecutionAborted), world.told()
    assert [key for key in world.marks_left() if not key.startswith("steering")] == []


async def test_budget_that_never_frees_keeps_the_pod_and_its_node() -> None:
    """An eviction that a budget refuses until its deadline is given up; the pauses between tries grow to a minute."""
    before = cluster(
        node("n1"),
        node("n2"),
        stateful("db", ["n1", "n2"], cpu=500),
        deployed("web", ["n1", "n2"], cpu=100),
        budget("db", min_available="1", allowed=0),
    )
    to = {"shop/db-1": "n1", "shop/web-1": "n1"}
    plan = plan_for(before, offers(), to=to, delete=["n2"])
    world = World(before, plan)
    await world.completes()
    assert verdicts(world) == {"skip/StatefulSet/shop/db": "budget", "keep/n2": "not-empty"}
    times = [
        event.time for event in world.log() if isinstance(event.body, StepFailed) and event.body.reason == "budget"
    ]
    gaps = [round((b - a).total_seconds()) for a, b in pairwise(times)]
    assert gaps[0] < gaps[1] < gaps[2]
    assert max(gaps[:-1]) <= 62
    assert world.memory.pods["shop/db-1"].uid == "uid-pod-shop-db-1"


async def test_stranger_on_a_node_to_be_deleted_keeps_it() -> None:
    """A bare pod that lands on a marked node in the middle keeps the node; everything else goes on."""
    world = World(*fragmented_plan())

    def land() -> None:
        world.memory.pods["shop/stranger"] = pod("stranger", node="n6", created=NOW)

    world.on_second = once(lambda: DISRUPTED in world.memory.nodes["n6"].labels, land)
    await world.completes("kinema-1", "n6")
    assert "shop/stranger" in world.memory.pods


async def test_no_room_means_no_move() -> None:
    """When somebody fills the target, nothing moves: capacity comes before disruption."""
    before, plan = small_plan()
    world = World(before, plan, limits=Limits(blocked_seconds=30))

    def fill() -> None:
        world.memory.pods["shop/big"] = pod("big", node="n1", cpu=3400, memory=100, created=NOW)

    world.on_second = once(lambda: True, fill)
    await world.completes()
    assert verdicts(world)[f"skip/{WEB}"] == "no-room"
    assert not any(isinstance(e.body, StepStarted) and e.body.step.kind == "surge-up" for e in world.log())


async def test_unhealthy_workload_is_left_alone() -> None:
    """A workload that is not whole before its move is not touched; its node stays."""
    before, plan = booted_plan()
    world = World(before, plan, limits=Limits(blocked_seconds=30))
    sick = world.memory.pods["shop/web-0"]
    world.memory.pods[sick.key] = replace(sick, ready=False)
    world.floors.clear()
    await world.completes()
    assert verdicts(world)[f"skip/{WEB}"] == "not-ready"
    assert {"n1", "n2"} <= set(world.memory.nodes)
