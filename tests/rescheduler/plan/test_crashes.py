"""Killed anywhere, an execution comes to the same end, and no effect is made twice."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rescheduler.harness import World
from tests.rescheduler.plans_in_memory import booted_plan, fragmented_plan, rolling_plan, small_plan

from kinema_core.events import ExecutionAborted, Plan, Step
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.plan import phases
from kinema_rescheduler.plan.context import ExecutionContext
from kinema_rescheduler.service import FAULT_POINTS

_KINDS = ("boot", "taint", "prefer-nodes", "surge-up", "surge-down", "evict", "delete", "clear-preferred-nodes")
_PLACES = ("before", "intended", "effected", "done")
_POINTS = [f"rescheduler.{kind}.{place}" for kind in _KINDS for place in _PLACES]
_ENDS = ["rescheduler.finished.before", "rescheduler.finished.done"]
_ROLLS = [f"rescheduler.{kind}.{place}" for kind in ("roll", "finalize-rollout") for place in _PLACES]
_RESIZES = [f"rescheduler.resize.{place}" for place in _PLACES]
"""Walked in tests/rescheduler/moves/test_resizes.py."""
_UNDOING = [f"rescheduler.{kind}.{place}" for kind in ("revert", "delete", "untaint") for place in _PLACES]


def at_pass(name: str, nth: int = 1) -> Callable[[str], bool]:
    """Crash at the nth pass of a point, once."""
    passes = 0

    def crash(point: str) -> bool:
        nonlocal passes
        passes += point == name
        return point == name and passes == nth

    return crash


def check_once(world: World) -> None:
    """No effect twice, no dip, nothing left behind, one outcome for each attempt."""
    assert world.problems == []
    assert [step for step, count in world.writer.made.items() if count > 1] == []
    assert [order for order, count in world.provider.orders.items() if count > 1] == []
    assert world.marks_left() == []
    ids = [event.id for event in world.log()]
    assert len(ids) == len(set(ids))


def test_every_step_kind_has_its_fault_points() -> None:
    """The points walked here are all those that the service has."""
    steps = {name for name in FAULT_POINTS if name.split(".")[1] not in {"finished", "aborted"}}
    assert steps == {*_POINTS, *_ROLLS, *_RESIZES, *_UNDOING}


@pytest.mark.slow
@pytest.mark.parametrize("point", [*_POINTS, *_ENDS])
async def test_killed_at_a_point_the_execution_ends_the_same(point: str) -> None:
    """Killed at the first pass of each point: same nodes, same places, no effect twice."""
    world = World(*fragmented_plan())
    world.crash_at = at_pass(point)
    await world.completes("kinema-1")
    assert world.crashes == (point != "rescheduler.finished.done") or point in world.passed
    assert {pod.node for pod in world.memory.pods.values()} == {"kinema-1"}
    check_once(world)


@pytest.mark.parametrize("point", _ROLLS)
async def test_killed_in_a_rolling_update(point: str) -> None:
    """Killed around a template patch: it is patched once, and the strategy is given back."""
    world = World(*rolling_plan())
    world.crash_at = at_pass(point)
    await world.completes()
    assert world.crashes == 1
    assert world.memory.revisions["Deployment/shop/web"] == 1
    check_once(world)


@pytest.mark.slow
@pytest.mark.parametrize("point", _UNDOING)
async def test_killed_while_rolling_back(point: str) -> None:
    """Killed while a plan is taken back: it is taken back all the same, once."""
    world = World(*booted_plan())
    world.memory.never_ready_workloads.add("Deployment/shop/web")
    world.crash_at = at_pass(point)
    end = await world.run()
    assert isinstance(end, ExecutionAborted), world.told()
    assert world.crashes == 1
    assert end.leftovers == ()
    assert sorted(world.memory.nodes) == ["n1", "n2"]
    check_once(world)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=160), min_size=1, max_size=6, unique=True))
async def test_killed_again_and_again(passes: list[int]) -> None:
    """Killed at any passes of any points, also while recovering: same end, no effect twice."""
    world = World(*fragmented_plan())
    count = itertools.count(1)
    world.crash_at = lambda _: next(count) in passes
    await world.completes("kinema-1")
    check_once(world)


async def check_killed_at_every_pass(
    before: Cluster, plan: Plan, holds: Callable[[World], bool], make: type[World] = World
) -> None:
    """Carry the plan out once for each pass of each point, killed there: the same holds after each of them."""
    calm = make(before, plan)
    await calm.completes()
    for nth in range(1, len(calm.passed) + 1):
        world = make(before, plan)
        passes = itertools.count(1)
        world.crash_at = lambda _, passes=passes, nth=nth: next(passes) == nth  # type: ignore[misc]
        await world.completes()
        assert holds(world), (nth, world.told())
        check_once(world)


async def test_small_plan_survives_a_kill_at_every_pass() -> None:
    """Every single pass of every point of a whole execution, one after the other."""
    await check_killed_at_every_pass(*small_plan(), holds=lambda world: sorted(world.memory.nodes) == ["n1"])


async def test_steering_that_the_version_before_takes_back_ends_before_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had one step for each workload; those under way are made again, and slower than the step of this version."""
    ours = phases._clear_steps

    def theirs(ctx: ExecutionContext) -> list[Step]:
        steered = [one.step for one in ctx.execution.steps.values() if one.step.kind == "prefer-nodes"]
        return [
            Step(id=f"clear-preferred-nodes/{one.target}/{one.uid}", kind="clear-preferred-nodes", target=one.target)
            for one in {one.uid: one for one in steered}.values()
        ]

    world = World(*fragmented_plan())
    monkeypatch.setattr(phases, "_clear_steps", theirs)
    crash, perform = at_pass("rescheduler.clear-preferred-nodes.intended"), world.writer.perform

    def upgraded(point: str) -> bool:
        if crash(point):
            monkeypatch.setattr(phases, "_clear_steps", ours)
            return True
        return False

    async def slowly(order: Order) -> Made:
        for _ in range(5000 if order.step.id.startswith("clear-preferred-nodes/Deployment/") else 0):
            await asyncio.sleep(0)
        return await perform(order)

    world.crash_at = upgraded
    monkeypatch.setattr(world.writer, "perform", slowly)
    await world.completes("kinema-1")
    assert world.crashes == 1
    assert len(world.outcomes()) == len(world.intents())
    check_once(world)
