"""What an execution does without a state or without its proposal: it reverts what the journal names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.rescheduler.harness import World
from tests.rescheduler.journal.test_decisions import check
from tests.rescheduler.plans_in_memory import booted_plan, fragmented_plan, rolling_plan, small_plan

from kinema_core.events import AbortRequested, ExecutionAborted, Node, Plan, Pod
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_rescheduler.journal.reading import LogReader

NEVER_READY = "Deployment/shop/web"


async def half_way(world: World) -> None:
    """Execute until nodes are closed and pods are on their way; they never get Ready."""
    world.memory.never_ready_workloads.add(NEVER_READY)
    await world.accept()
    for _ in range(120):
        await world.second()
        if world.intents("surge-up") or world.intents("roll"):
            break
    for _ in range(3):
        await world.second()
    assert world.marks_left()


def lose_observer(world: World) -> None:
    """No delta and no heartbeat comes from now on."""

    async def nothing() -> None:
        return

    world.observe = nothing  # type: ignore[method-assign]  # the observer has died


@pytest.mark.parametrize("make", [small_plan, booted_plan, rolling_plan, fragmented_plan])
@pytest.mark.parametrize("asked", [True, False])
async def test_marks_are_reverted_without_a_state(make: Callable[[], tuple[Cluster, Plan]], asked: bool) -> None:
    """Nodes open and surges end though the observer is gone, at an operator's word or after `blind_seconds`."""
    world = World(*make())
    replicas = world.memory.workloads[NEVER_READY].replicas
    await half_way(world)
    lose_observer(world)
    for _ in range(70):
        await world.second()
    if asked:
        await world.publish(AbortRequested(by="me"), "abort-1")
    end = await world.run(600)
    assert isinstance(end, ExecutionAborted)
    assert end.reason == ("operator" if asked else "state-unknown")
    assert world.marks_left() == []
    assert world.memory.workloads[NEVER_READY].replicas == replicas
    booted = {f"boot/{name}" for name in world.memory.nodes if name.startswith("kinema-")}
    assert {left.partition(":")[0] for left in end.leftovers} == booted
    assert world.problems == []
    assert not world.intents("delete")


async def test_decisions_without_a_state_are_made_again() -> None:
    """A decision that was made without a state carries version 0, and comes out the same in a replay."""
    world = World(*small_plan())
    await half_way(world)
    lose_observer(world)
    await world.run(600)
    assert {event.state for event in world.log()} >= {0}
    assert check(world) >= 5


async def test_observer_that_comes_back_in_time_changes_nothing() -> None:
    """A plan waits for a state that is unknown for less than `blind_seconds`."""
    world = World(*small_plan())
    await world.accept()
    for _ in range(5):
        await world.second()
    back = world.observe
    lose_observer(world)
    for _ in range(150):  # 60 s until the state counts as old
        await world.second()
    assert world.verdicts() == {}
    world.observe = back  # type: ignore[method-assign]
    await world.completes("n1")


async def test_execution_without_its_proposal_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the proposal of a plan that has begun cannot be read, marks and booted nodes go by the journal alone."""
    world = World(*booted_plan())
    await half_way(world)
    fold = LogReader._fold

    async def unreadable(reader: LogReader) -> None:
        await fold(reader)
        active = reader.journal.active
        if active is not None:
            object.__setattr__(active, "plan", None)

    monkeypatch.setattr(LogReader, "_fold", unreadable)
    end = await world.aborts("unknown-plan", "n1", "n2")
    assert end.leftovers == ()


@pytest.mark.parametrize("lost", ["pods", "nodes"])
async def test_no_step_begins_on_a_state_that_lacks_what_others_count(lost: str) -> None:
    """A state that suddenly lacks pods or nodes holds the plan; an abort opens the nodes that the state lacks, too."""
    world = World(*fragmented_plan())
    await half_way(world)
    steps, view = len(world.intents()), world.view

    def emptied(version: int) -> Cluster:
        kind = Pod if lost == "pods" else Node
        return from_objects([one for one in all_objects(view(version)) if not isinstance(one, kind)], version=version)

    world.view = emptied  # type: ignore[method-assign]  # the API server's list is not whole
    for _ in range(60):
        await world.second()
    assert len(world.intents()) == steps
    assert not world.intents("delete")
    await world.publish(AbortRequested(by="me"), "abort-1")
    await world.run(600)
    assert world.marks_left() == []
    assert not world.intents("delete")
