"""What the loop makes of effects that fail: once more, after a pause, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest
from tests.rescheduler.harness import WEB, World
from tests.rescheduler.memory_effects import MemoryWriter
from tests.rescheduler.plans_in_memory import booted_plan, fragmented_plan, two_rolls_plan
from tests.support.builders import NOW
from tests.support.manual_clock import ManualClock

from kinema_core.events import ExecutionAborted, Plan, Step, StepSucceeded
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.effects import Effects
from kinema_rescheduler.errors import PermanentError, TransientError
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.providers.base import Provider


class Flaky(MemoryWriter):
    """Cannot be reached, or refuses, so many times for one kind of step, of one workload if it is named."""

    def __init__(
        self, world: World, kind: str, error: TransientError | PermanentError, times: int, *, of: str = ""
    ) -> None:
        super().__init__(world.memory, after=world.look)
        self.kind, self.error, self.times, self.of = kind, error, times, of

    async def perform(self, order: Order) -> Made:
        """Fail first."""
        if order.step.kind == self.kind and self.of in order.step.id and self.times > 0:
            self.times -= 1
            raise self.error
        return await super().perform(order)


class Refusing:
    """A writer that refuses once."""

    def __init__(self, error: TransientError) -> None:
        self.errors = [error]

    async def perform(self, order: Order) -> Made:
        """Refuse first."""
        if self.errors:
            raise self.errors.pop()
        return Made()

    async def check_deletable(self, order: Order) -> bool:
        """It never is."""
        return False


def flaky_world(kind: str, error: TransientError | PermanentError, times: int, **limits: float) -> World:
    """A world with a writer that fails, and the plan that needs a booted node."""
    world = World(*booted_plan(), limits=Limits(max_closed_nodes="100%", **limits))  # type: ignore[arg-type]  # the numbers that a test sets
    world.writer = Flaky(world, kind, error, times)
    world._service = world._new_service()
    return world


@pytest.mark.parametrize("error", [TransientError("unavailable", "no route"), PermanentError("denied", "forbidden")])
async def test_unreachable_cluster_is_asked_again_without_a_new_attempt(error: TransientError | PermanentError) -> None:
    """A time-out is no refusal, nor is what an API server says that has yet to read its roles: it is asked again."""
    world = flaky_world("taint", error, 7)
    await world.completes()
    assert [intent.attempt for intent in world.intents()] == [1] * len(world.intents())


@pytest.mark.parametrize("asked", [None, 20.0])
async def test_steps_that_were_refused_together_do_not_come_back_together(asked: float | None) -> None:
    """Each pauses as its own id says, not less than the server asks for: 32 moves would ask again in one second."""
    pauses = set()
    for step in ("taint/n1", "taint/n2", "taint/n3"):
        clock = ManualClock(NOW)
        writer = Refusing(TransientError("throttled", "too many requests", retry_after=asked))
        effects = Effects(writer=writer, provider=cast("Provider", None), clock=clock, report=lambda _: None)
        order = Order(step=Step(id=step, kind="taint", target=step), plan="p", iteration="i")
        await effects.perform(order, NOW + timedelta(hours=1), {})
        pauses.add(clock.now() - NOW)
    assert len(pauses) == 3
    assert min(pauses) >= timedelta(seconds=asked or 0)


async def test_conflict_is_tried_again_with_a_pause() -> None:
    """A conflict fails the attempt; the next one comes after a pause and counts."""
    world = flaky_world("taint", TransientError("conflict", "written by others"), 1)
    await world.completes()
    assert max(intent.attempt for intent in world.intents()) == 2


@pytest.mark.parametrize("error", [PermanentError("changed", "3 replicas"), TransientError("not-ready", "1 of 2")])
async def test_a_surge_that_did_not_begin_is_a_new_move(error: TransientError | PermanentError) -> None:
    """Its numbers are those of the moment; the workload is not left alone."""
    world = flaky_world("surge-up", error, 1)
    await world.completes("kinema-1")
    assert [intent.step.id for intent in world.intents("surge-up")] == [f"surge-up/{WEB}/{n}" for n in (1, 2)]


@pytest.mark.parametrize("kind", ["surge-up", "surge-down"])
async def test_missing_right_ends_the_plan_without_a_storm(kind: str) -> None:
    """A refused right is not tried again and again: the plan is given up after seconds."""
    world = flaky_world(kind, PermanentError("denied", "forbidden"), 100)
    await world.aborts("denied", "n1", "n2")
    assert sum(intent.step.kind == kind for intent in world.intents()) == 1


@pytest.mark.parametrize(
    ("kind", "reason", "planned", "of"),
    [("surge-up", "refused", fragmented_plan, "/cart/"), ("roll", "held", two_rolls_plan, "")],
)
async def test_a_workload_that_may_not_be_written_is_left_alone(
    kind: str, reason: str, planned: Callable[[], tuple[Cluster, Plan]], of: str
) -> None:
    """What an admission rule or its owner forbids of one workload stops no other: the plan goes on without it."""
    world = World(*planned())
    world.writer = Flaky(world, kind, PermanentError(reason, "not this one"), 1, of=of)
    world._service = world._new_service()
    end = await world.completes()
    skipped = [name for name, why in world.verdicts().items() if why == reason]
    assert len(skipped) == end.figures["workloads_skipped"] == 1
    done = {event.body.step for event in world.log() if isinstance(event.body, StepSucceeded)}
    made = {step for step in done if step.startswith(kind)}
    assert made
    assert not any(skipped[0].removeprefix("skip/") in step for step in made)


async def test_steering_that_fails_is_done_without() -> None:
    """Steering fails open: the move goes on without it."""
    world = flaky_world("prefer-nodes", PermanentError("denied", "forbidden"), 100)
    await world.completes()


async def test_what_cannot_be_taken_back_is_named() -> None:
    """What could not be taken back is listed by name, and the execution does not count as finished."""
    world = flaky_world("clear-preferred-nodes", PermanentError("denied", "forbidden"), 100)
    end = await world.run()
    assert isinstance(end, ExecutionAborted), world.told()
    assert end.reason == "leftovers"
    assert [line.partition("/")[0] for line in end.leftovers] == ["clear-preferred-nodes"]
    assert end.leftovers[0].endswith(": denied forbidden")
