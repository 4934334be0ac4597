"""Rolling updates: which are not begun, and what becomes of one that is aborted or that its owner stops."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.rescheduler.harness import WEB, World
from tests.rescheduler.memory_cluster import Pace
from tests.rescheduler.moves.test_surges_left import context, ended
from tests.rescheduler.plan.test_crashes import at_pass, check_once
from tests.rescheduler.plans_in_memory import crowded_plan, fragmented_plan, rolling_plan, two_rolls_plan
from tests.support.builders import NOW, amounts, cluster, deployed, node, offers, pod, selector
from tests.support.plans import plan_for

from kinema_core.events import (
    FrozenMap,
    PlacementRules,
    Spread,
    StepFailed,
    StepSucceeded,
    is_unfinished,
)
from kinema_core.model.cluster import all_objects, from_objects
from kinema_rescheduler.moves.roll import unrolled
from kinema_rescheduler.names import ROLLED
from kinema_rescheduler.plan.limits import Limits


@pytest.mark.parametrize("full", [True, False])
async def test_new_requests_wait_until_every_zone_has_room(*, full: bool) -> None:
    """Asked on the state of the moment: the plan's new requests may be fine where its update would not get through."""
    rules = PlacementRules(
        spread=(
            Spread(
                topology_key="topology.kubernetes.io/zone",
                max_skew=1,
                when_unsatisfiable="DoNotSchedule",
                selector=selector(app="web"),
            ),
        )
    )
    before = cluster(
        [
            node(f"n{n}", zone=zone, cpu=cpu, price="0.1")
            for n, (zone, cpu) in enumerate(zip("abc", (4000, 4000, 1000), strict=True), 1)
        ],
        deployed("web", ["n1", "n2"], cpu=500, rules=rules),
        deployed("full", ["n3"], cpu=900 if full else 100),
    )
    plan = plan_for(before, offers(), resizes={WEB: {"cpu": 300}})
    world = World(before, plan, limits=Limits(blocked_seconds=30))
    await world.completes()
    assert ("roll" in world.intended_kinds()) is not full
    assert world.verdicts() == ({f"skip/{WEB}": "no-room"} if full else {})


_PLACES = ("before", "intended", "effected", "done")
_UNDOING = [f"rescheduler.{kind}.{place}" for kind in ("untaint", "revert", "finalize-rollout") for place in _PLACES]


def steps_made(world: World, kind: str) -> dict[str, datetime]:
    """When steps of a kind were made, by target."""
    intended = {intent.step.id: intent.step for intent in world.intents()}
    done = [(event.time, event.body.step) for event in world.log() if isinstance(event.body, StepSucceeded)]
    return {intended[step].target: time for time, step in done if intended[step].kind == kind}


def new_pods(world: World) -> int:
    """How many pods of our template have a place."""
    return sum(pod.node is not None for key, pod in world.memory.pods.items() if key.startswith("shop/web-r1"))


def half_way(world: World) -> bool:
    """All new pods are there, and two of three old ones are gone."""
    return new_pods(world) == 3 and "shop/web-1" not in world.memory.pods


async def test_an_abort_opens_the_nodes_before_it_waits_for_pods() -> None:
    """Given up in the middle of a roll: its pods come back, and strangers come, to where our taint kept them off."""
    world = World(*crowded_plan())
    strangers = {one.key: one for one in (pod(f"stranger-{n}", cpu=600, created=NOW) for n in range(2))}
    world.once(lambda: half_way(world), lambda: world.memory.pods.update(strangers))
    await world.aborted_when(lambda: half_way(world))
    end = await world.aborts("operator")
    assert end.figures["deleted"] == 0
    opened = steps_made(world, "untaint")
    assert opened.keys() == {"n2"}
    assert max(opened.values()) < steps_made(world, "revert")[WEB]
    assert world.clock.now() - opened["n2"] < timedelta(seconds=world.limits.pods_ready_seconds / 2)
    assert [world.memory.pods[key].node for key in strangers] == ["n1", "n2"]
    assert sum(pod.ready for pod in world.memory.pods.values()) == 5


@pytest.mark.parametrize("point", _UNDOING)
async def test_killed_while_a_roll_is_taken_back(point: str) -> None:
    """Killed anywhere on the way back of a roll: the same end, and nothing is done twice."""
    world = World(*crowded_plan())
    world.crash_at = at_pass(point)
    await world.aborted_when(lambda: half_way(world))
    end = await world.aborts("operator")
    assert world.crashes == 1
    assert end.leftovers == ()
    assert {pod.node for pod in world.memory.pods.values()} == {"n1", "n2"}
    check_once(world)


async def test_a_node_stays_closed_while_its_deletion_is_under_way() -> None:
    """Given up while nodes are being deleted: those go, closed to the last, and only the others are opened."""
    before, plan = fragmented_plan()
    world = World(before, plan, pace=Pace(node_delete=1500), limits=Limits(delete_seconds=3000))
    await world.aborted_when(lambda: any(kind == "delete" for kind, _ in world.provider.orders))
    end = await world.aborts("operator")
    gone = {node.name for node in before.nodes} - world.memory.nodes.keys()
    assert gone
    assert end.figures["deleted"] == len(gone)
    assert not gone & steps_made(world, "untaint").keys()


def paused(world: World) -> None:
    """As `kubectl rollout pause`."""
    world.alter(WEB, paused=True, generation=world.memory.workloads[WEB].generation + 1)


def undone(world: World) -> None:
    """As `kubectl rollout undo`: template and annotations from before the roll are there again."""
    web = world.memory.workloads[WEB]
    world.memory.revisions[WEB] -= 1
    kept = FrozenMap({key: value for key, value in web.annotations.items() if key != ROLLED})
    world.alter(WEB, annotations=kept, template_requests=amounts(500, 128), generation=web.generation + 1)


@pytest.mark.parametrize(("struck", "reason"), [(paused, "it was paused"), (undone, "undone")])
async def test_an_owners_word_ends_our_roll_and_not_the_plan(struck: Callable[[World], None], reason: str) -> None:
    """Paused or undone, the workload is left alone at once, with the reason; all else goes on."""
    world = World(*two_rolls_plan())
    world.once(lambda: new_pods(world) == 1, lambda: struck(world))
    end = await world.completes("n1", "n2")
    assert float(end.figures["seconds"]) < 120
    told = {event.body.step: event.body for event in world.log() if isinstance(event.body, StepFailed)}
    assert told[f"skip/{WEB}"].reason == "changed"
    assert reason in told[f"skip/{WEB}"].detail
    web = world.memory.workloads[WEB]
    assert web.template_requests["cpu"] == 500
    assert web.paused == (struck is paused)


async def test_a_roll_that_gets_no_further_stops_no_other() -> None:
    """It is taken back and its node kept; the other roll empties its node, and the rest is planned again."""
    world = World(*two_rolls_plan(), limits=Limits(pods_ready_seconds=100))
    world.memory.never_ready_workloads.add(WEB)
    end = await world.completes("n1", "n2")
    assert world.verdicts() == {f"skip/{WEB}": "roll-stuck", "keep/n2": "not-empty"}
    assert end.replan == "roll-stuck"
    assert world.memory.workloads[WEB].template_requests["cpu"] == 500
    assert [pod.requests["cpu"] for pod in world.memory.pods.values() if pod.name.startswith("api")] == [300]


async def test_a_roll_without_a_node_for_its_pods_opens_the_closed_nodes() -> None:
    """Its old pods need room on the way back: no node is deleted any more, and the next plan leaves the workload."""
    world = World(*two_rolls_plan(), limits=Limits(pods_ready_seconds=100))
    world.once(lambda: new_pods(world) == 1, lambda: world.memory.unplaceable.add(WEB))
    end = await world.aborts("pod-waits")
    assert is_unfinished(end)
    assert world.verdicts()[f"skip/{WEB}"] == "roll-stuck"
    assert "n2" in world.memory.nodes


@pytest.mark.parametrize("seconds", [0, 5])
async def test_an_abort_waits_for_no_paused_deployment(seconds: int) -> None:
    """Paused so many seconds after its roll was given up: the end comes at once, with the template of before."""
    world = World(*crowded_plan())
    await world.aborted_when(lambda: half_way(world))
    world.memory.never_ready_workloads.add(WEB)
    for _ in range(seconds):
        await world.second()
    paused(world)
    given_up = world.clock.now()
    end = await world.aborts("operator")
    assert end.leftovers == ()
    assert world.clock.now() - given_up < timedelta(seconds=30)
    web = world.memory.workloads[WEB]
    assert (web.paused, web.template_requests["cpu"]) == (True, 500)


async def test_a_paused_deployment_is_left_alone_at_once() -> None:
    """Paused before its turn: nothing of it is touched, and nothing waits for it."""
    world = World(*crowded_plan())
    paused(world)
    end = await world.completes()
    assert float(end.figures["seconds"]) < 60
    told = {event.body.step: event.body for event in world.log() if isinstance(event.body, StepFailed)}
    assert (told[f"skip/{WEB}"].reason, "paused" in told[f"skip/{WEB}"].detail) == ("held", True)
    assert world.memory.revisions[WEB] == 0


@pytest.mark.parametrize(
    ("generation", "ready", "finished", "expected"),
    [
        (5, True, False, (False, True)),
        (4, True, False, (False, False)),
        (4, False, False, (False, True)),
        (5, True, True, (True, False)),
    ],
)
def test_the_strategy_comes_back_with_the_template(
    generation: int, ready: bool, finished: bool, expected: tuple[bool, bool]
) -> None:
    """Once, when the controller has replaced the pods, or when pods that are not Ready have had their time."""
    on, _ = rolling_plan()
    web: dict[str, Any] = {"generation": generation, "observed_generation": generation}
    changed = {WEB: web, "shop/web-0": {"ready": ready}}
    objects = [replace(item, **changed[item.key]) if item.key in changed else item for item in all_objects(on)]
    back = ended("revert", 1, figures=FrozenMap(generation=5))
    finish = [ended("finalize-rollout", 1)] if finished else []
    ctx = context(from_objects(objects, 2), ended("roll", 1), *finish, passed=timedelta(seconds=601))
    found = unrolled(ctx, WEB, back)
    assert (found.over, bool(found.bodies)) == expected


@pytest.mark.parametrize("priority", [0, 1000])
async def test_a_rolling_update_asks_for_no_pod_that_would_preempt_another(priority: int) -> None:
    """Its owner lets four pods more run, and the open node has room for two.

    The third of a high priority would take the place of `low`, where one of the same priority waits.
    """
    before = cluster(
        node("n1", cpu=2500),
        node("n2"),
        deployed("web", ["n2", "n1", "n1", "n1"], cpu=500, max_surge="100%", priority=priority),
        deployed("low", ["n1"], cpu=300),
    )
    to = {one.key: "n1" for one in before.pods}
    plan = plan_for(before, offers(), to=to, delete=["n2"], resizes={WEB: {"cpu": 300}})
    world = World(before, plan)
    await world.completes("n1", seconds=400)
    [intent] = world.intents("roll")
    assert intent.step.replicas_to - intent.step.replicas_from == (2 if priority else 0)


async def test_a_bound_of_a_rolling_update_does_not_grow_with_the_replicas() -> None:
    """An owner who scales at that moment would raise a share of them, and with it the pods that preempt others."""
    before = cluster(
        node("n1"),
        node("n2"),
        deployed("web", ["n1", "n2"], cpu=500, max_surge="50%", priority=1000),
        deployed("low", ["n1"], cpu=300),
    )
    to = {one.key: "n1" for one in before.pods}
    world = World(before, plan_for(before, offers(), to=to, delete=["n2"], resizes={WEB: {"cpu": 300}}))
    await world.completes("n1", seconds=400)
    [intent] = world.intents("roll")
    assert intent.step.replicas_to - intent.step.replicas_from == 1
