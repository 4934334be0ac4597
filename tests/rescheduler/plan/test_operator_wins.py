"""What others change while a plan is carried out counts more than the plan."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import WEB, World
from tests.rescheduler.plans_in_memory import booted_plan, budgeted_plan, fragmented_plan, small_plan
from tests.support.builders import NOW, pod, taint

from kinema_core.events import Autoscaler, FrozenMap, StepFailed
from kinema_core.model.cluster import all_objects, from_objects
from kinema_rescheduler.names import DISRUPTED
from kinema_rescheduler.plan.limits import Limits


def autoscaled(limits: Limits | None = None, scaled_object: str = "") -> World:
    """A world with an HPA on web, perhaps one that KEDA made."""
    before, plan = small_plan()
    scaler = Autoscaler(
        name="web",
        namespace="shop",
        uid="hpa",
        target_kind="Deployment",
        target_name="web",
        scaled_object=scaled_object,
    )
    return World(from_objects([*all_objects(before), scaler]), plan, limits=limits)


def surging(world: World) -> Callable[[], bool]:
    """The surplus of web was asked for."""
    return lambda: world.memory.workloads[WEB].replicas == 5


async def test_autoscaler_takes_the_surplus_back_while_new_pods_start() -> None:
    """An HPA that scales back too early removes the new pods; the move is tried again and succeeds."""
    world = autoscaled()
    world.once(surging(world), lambda: world.memory.set_replicas(WEB, 3))
    await world.completes("n1")


async def test_autoscaler_takes_the_surplus_back_when_new_pods_are_ready() -> None:
    """An HPA that scales back late removes exactly the victims: the move is done, and not done again."""
    world = autoscaled()
    world.once(lambda: world.memory.workloads[WEB].ready == 5, lambda: world.memory.set_replicas(WEB, 3))
    await world.completes("n1")
    assert len(world.intents("surge-up")) == 1


@pytest.mark.parametrize(("scaled_object", "rounds"), [("", 2), ("queue", 1)], ids=["own", "of-keda"])
async def test_autoscaler_that_always_takes_back_leaves_the_workload_alone(scaled_object: str, rounds: int) -> None:
    """After so many moves without effect the workload stays, its node with it, and nothing of Kinema's.

    KEDA sets the limits that Kinema would raise: what it reverted once is not tried again.
    """
    world = autoscaled(Limits(rounds=2), scaled_object)

    def take_back() -> None:
        if surging(world)():
            world.memory.set_replicas(WEB, 3)

    world.on_second = take_back
    await world.completes("n1", "n2")
    assert world.verdicts() == {f"skip/{WEB}": "taken-back", "keep/n2": "not-empty"}
    assert len(world.intents("surge-up")) == rounds


async def test_a_workload_whose_new_pods_crash_when_the_surplus_goes_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its ReplicaSet removes the pods that are not Ready instead of the marked ones: these are not moved once more."""
    before, plan = small_plan()
    world, old = World(before, plan), {one.uid for one in before.pods}
    scale = world.memory.set_replicas

    def crash_and_scale(key: str, replicas: int) -> None:
        for name, one in world.memory.pods.items():
            world.memory.pods[name] = replace(one, ready=one.uid in old)
        scale(key, replicas)

    monkeypatch.setattr(world.memory, "set_replicas", crash_and_scale)
    await world.completes("n1", "n2")
    assert world.verdicts() == {f"skip/{WEB}": "taken-back", "keep/n2": "not-empty"}
    assert len(world.intents("surge-down")) == 1
    assert {one.uid for one in world.memory.pods.values()} == old


async def test_pods_that_an_autoscaler_kept_when_the_surplus_was_to_go_move_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It wanted as many pods before one was removed: no crash, and no reason to leave the workload alone."""
    world = autoscaled()
    scale, kept = world.memory.set_replicas, list[int]()

    def scale_back(key: str, replicas: int) -> None:
        if replicas == 3 and not kept:
            kept.append(replicas)
            scale(key, 6)
        else:
            scale(key, replicas)

    monkeypatch.setattr(world.memory, "set_replicas", scale_back)
    await world.completes("n1")
    assert kept


async def test_a_controller_that_removes_the_surplus_late_is_no_sign_of_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a minute and a half no pod goes. The plan ends and is planned again; its workload may move in that."""
    world = World(*small_plan())
    scale, work, late = world.memory.set_replicas, world.memory._deployment, list[int]()

    def scale_without_effect(key: str, replicas: int) -> None:
        if replicas < world.memory.workloads[key].replicas and not late:
            late.append(replicas)
            monkeypatch.setattr(world.memory, "_deployment", lambda workload: None)
            world.memory.after(90, lambda: monkeypatch.setattr(world.memory, "_deployment", work))
        scale(key, replicas)

    monkeypatch.setattr(world.memory, "set_replicas", scale_without_effect)
    await world.completes("n1", "n2")
    assert late
    assert world.verdicts() == {"replan": "not-ready", "keep/n2": "not-empty"}


async def test_autoscaler_that_wants_more_is_obeyed() -> None:
    """An HPA that scales up in the middle of a surge keeps its replicas; the move goes on from there."""
    world = autoscaled()
    world.once(surging(world), lambda: world.memory.set_replicas(WEB, 6))
    await world.completes("n1")
    assert world.memory.workloads[WEB].replicas == 6


@pytest.mark.parametrize(("changed", "replicas"), [("replicas", 4), ("template", 3)])
async def test_operator_who_changes_a_workload_in_the_middle_voids_its_move(changed: str, replicas: int) -> None:
    """A foreign number of replicas stays, as does its workload; a foreign template gets its replicas back."""
    world = World(*small_plan())

    def change() -> None:
        if changed == "replicas":
            world.memory.set_replicas(WEB, replicas)
        else:
            world.alter(WEB, generation=world.memory.workloads[WEB].generation + 1)

    world.once(surging(world), change)
    await world.completes("n1", "n2")
    assert world.memory.workloads[WEB].replicas == replicas
    assert world.verdicts()[f"skip/{WEB}"] == "changed"


@pytest.mark.parametrize("marked", [False, True])
async def test_do_not_move_set_in_the_middle_is_obeyed(marked: bool) -> None:
    """A pod annotated do-not-move before its turn stays with its node and all on it; the others go on."""
    world = World(*fragmented_plan())
    world.once(
        lambda: "kinema-1" in world.memory.nodes and (not marked or world.disrupted("n1")),
        lambda: world.alter("shop/cart-0", annotations=FrozenMap({"kinema.io/do-not-move": "true"})),
    )
    end = await world.completes("kinema-1", "n1")
    assert world.memory.pods["shop/cart-0"].uid == "uid-pod-shop-cart-0"
    assert end.figures["nodes_kept"] == 1


async def test_mark_taken_off_keeps_the_node() -> None:
    """A node from which somebody takes the label `kinema.io/disrupted` is kept."""
    world = World(*fragmented_plan(), limits=Limits(observed_seconds=1))

    def unlabel() -> None:
        labels = world.memory.nodes["n6"].labels
        world.alter("n6", labels=FrozenMap({key: value for key, value in labels.items() if key != DISRUPTED}))

    world.once(lambda: world.disrupted("n6"), unlabel)
    await world.completes("kinema-1", "n6")
    assert world.verdicts() == {"keep/n6": "off-limits"}


async def test_foreign_deletion_mark_keeps_us_away_from_the_node() -> None:
    """A node that another autoscaler is about to delete is left to it."""
    world = World(*fragmented_plan())
    mark = taint("ToBeDeletedByClusterAutoscaler:NoSchedule")
    world.once(
        lambda: world.disrupted("n6"), lambda: world.alter("n6", taints=(*world.memory.nodes["n6"].taints, mark))
    )
    await world.completes()
    assert world.verdicts()["keep/n6"] == "off-limits"
    assert ("delete", "n6") not in world.provider.orders


async def test_node_deleted_by_somebody_else_is_done_with() -> None:
    """A node that vanishes in the middle needs no step any more; the rest goes on."""
    world = World(*fragmented_plan())
    world.floors.clear()  # its pods are killed by whoever deleted the node
    world.once(lambda: world.disrupted("n6"), lambda: world.memory.vanish("n6"))
    await world.completes("kinema-1")


async def test_workload_deleted_in_the_middle_is_done_with() -> None:
    """A workload that vanishes in the middle of its surge holds nothing up."""
    world = World(*small_plan())

    def remove() -> None:
        for key in [key for key in world.memory.workloads if "web" in key]:
            del world.memory.workloads[key]
        world.memory.pods.clear()

    world.once(surging(world), remove)
    await world.run()
    assert [key for key in world.marks_left() if not key.startswith("steering")] == []


async def test_budget_that_never_frees_keeps_the_pod_and_its_node() -> None:
    """An eviction that a budget refuses until its deadline is given up; the pauses between tries grow to a minute."""
    world = World(*budgeted_plan())
    await world.completes()
    assert world.verdicts() == {"skip/StatefulSet/shop/db": "budget", "keep/n2": "not-empty"}
    times = [e.time for e in world.log() if isinstance(e.body, StepFailed) and e.body.reason == "budget"]
    gaps = [round((b - a).total_seconds()) for a, b in pairwise(times)]
    assert gaps[0] < gaps[1] < gaps[2]
    assert max(gaps[:-1]) <= 62
    assert {intent.step.id for intent in world.intents("evict")} == {"evict/StatefulSet/shop/db/1"}
    assert world.memory.pods["shop/db-1"].uid == "uid-pod-shop-db-1"


async def test_budget_that_is_deleted_lets_the_same_eviction_through() -> None:
    """The refused eviction is asked again; no new move begins."""
    world = World(*budgeted_plan())
    world.once(lambda: len(world.intents("evict")) == 2, world.memory.others.clear)
    await world.completes("n1")
    assert [intent.step.id for intent in world.intents("evict")] == ["evict/StatefulSet/shop/db/1"] * 3


async def test_stranger_on_a_node_to_be_deleted_keeps_it() -> None:
    """A bare pod that lands on a marked node in the middle keeps the node; everything else goes on."""
    world = World(*fragmented_plan())
    stranger = pod("stranger", node="n6", created=NOW)
    world.once(lambda: world.disrupted("n6"), lambda: world.memory.pods.update({stranger.key: stranger}))
    await world.completes("kinema-1", "n6")
    assert stranger.key in world.memory.pods


async def test_no_room_means_no_move() -> None:
    """When somebody fills the target, nothing moves: capacity comes before disruption."""
    world = World(*small_plan(), limits=Limits(blocked_seconds=30))
    world.memory.pods["shop/big"] = pod("big", node="n1", cpu=3400, memory=100, created=NOW)
    await world.completes()
    assert world.verdicts() == {"replan": "misplaced"}
    assert world.intents("surge-up") == []


async def test_unhealthy_workload_is_left_alone() -> None:
    """A workload that is not whole before its move is not touched; its node stays, and the rest is planned again."""
    world = World(*booted_plan())
    world.alter("shop/web-0", ready=False)
    world.floors.clear()
    await world.completes()
    assert world.verdicts()["replan"] == "not-ready"
    assert {"n1", "n2"} <= set(world.memory.nodes)
