"""What is in force stays in force when LOG, which drops its oldest events, has dropped it: on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from tests.decider.cases import halved
from tests.rescheduler.harness import CLUSTER, World
from tests.rescheduler.plans_in_memory import small_plan
from tests.support.nats_broker import Broker, running
from tests.support.waiting import eventually

from kinema_cli.replay.command import run_replay
from kinema_cli.replay.recording import record_to
from kinema_core.events import (
    CatalogPublished,
    Event,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    IterationSkipped,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanApproved,
)
from kinema_core.runtime.announce import announce
from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.health import Health
from kinema_core.runtime.serve import serve
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout
from kinema_core.runtime.topology import chunk_subject
from kinema_decider.logic.limits import Limits
from kinema_decider.service import NAME, Decider
from kinema_decider.settings import Settings

LOG_BYTES = 256 * 1024
"""Holds some thirty of the events that push others out."""
FILLER = "x" * 8 * 1024
JUDGED = ("plan-accepted", "plan-rejected", "plan-approval-requested")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with a small LOG."""
    layout = Layout(clusters=(CLUSTER,), ack_wait_seconds=1, log_bytes=LOG_BYTES)
    async with running(tmp_path / "nats", cluster=CLUSTER, layout=layout) as found:
        yield found


async def begin(world: World) -> None:
    """Publish a state and a catalog."""
    await world.observe()
    await world.publish(CatalogPublished(source="test", priced=None, offers=world.offers), "catalog-1")
    world._service._catalog_due = world.clock.now() + timedelta(days=1)  # the provider sells the same


async def turn_over(world: World, sequence: int, number: int = 1) -> None:
    """Publish what nobody needs until LOG does not hold the event at a sequence, nor what was stored soon after it."""
    count = 0
    while (await world.bus.extent("LOG")).first <= sequence + 8:
        for _ in range(8):
            count += 1
            await world.publish(IterationSkipped(version=1, reason=FILLER), f"filler-{number}-{count}")
        await world.second()


async def in_log(bus: Bus, *kinds: str) -> list[Event]:
    """Events of LOG as any reader sees them."""
    return [item.event async for item in bus.read("LOG", kinds=kinds) if isinstance(item, Stored)]


@asynccontextmanager
async def decider(broker: Broker, world: World, approval: str = "automatic") -> AsyncIterator[None]:
    """A process of the decider that has just started."""
    bus = await broker.bus("decider")
    limits = Limits(approval=approval, redundancy=False)  # type: ignore[arg-type]  # one of its two words
    settings = Settings(runtime=RuntimeSettings(cluster=CLUSTER), limits=limits)
    await announce(bus, world.clock, service=NAME, cluster=CLUSTER, settings=settings)
    task = asyncio.create_task(serve(Decider(settings), bus, world.clock, Health(NAME, CLUSTER)))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def judged(bus: Bus, plan: str) -> Event:
    """Return the newest verdict on a plan once there is one."""
    async with asyncio.timeout(20):
        while True:
            found = [event for event in await in_log(bus, *JUDGED) if getattr(event.body, "plan", "") == plan]
            if found:
                return found[-1]
            await asyncio.sleep(0.05)


def replay(file: Path) -> int:
    """Return the exit code of `kinema replay --assert` of the decider's answers."""
    return run_replay(file=file, stage=NAME, start=1, end=None, speed=0.0, strict=True, show_diff=False)


async def test_a_pause_holds_however_old_it_is(broker: Broker) -> None:
    """A decider and a rescheduler that start after LOG has dropped the pause still know it, until it is resumed."""
    before, plan = halved()
    world = World(before, plan, bus=await broker.bus())
    await begin(world)
    await world.publish(ExecutionPaused(by="ann", reason="holiday"), "pause-1")
    paused_at = await world.bus.head("LOG")
    for turn in (1, 2, 3):
        await turn_over(world, paused_at if turn == 1 else await world.bus.head("LOG"), turn)
    await world._restart()
    await world.second()
    assert world._service._reading.journal.paused
    async with decider(broker, world):
        await world.publish(plan, "plan-1")
        verdict = await judged(world.bus, "plan-1")
        assert getattr(verdict.body, "rule", "") == "paused", verdict.body
        assert "holiday" in getattr(verdict.body, "reason", "")
    await world.publish(ExecutionResumed(by="ann"), "resume-1")
    await turn_over(world, await world.bus.head("LOG"), 4)
    assert await in_log(world.bus, "execution-paused") == []
    async with decider(broker, world):
        await world.publish(plan, "plan-2")
        verdict = await judged(world.bus, "plan-2")
        assert isinstance(verdict.body, PlanAccepted), verdict.body
    await world.stop()


async def test_a_flood_by_another_service_drops_no_pause(broker: Broker) -> None:
    """Pieces of large events, which any service may store, push out everything else: what is in force comes back."""
    world = World(*halved(), bus=await broker.bus())
    await begin(world)
    await world.publish(ExecutionPaused(by="ann", reason="holiday"), "pause-1")
    paused_at = await world.bus.head("LOG")
    noisy = (await broker.bus("predictor"))._publisher._connection
    while (await world.bus.extent("LOG")).first <= paused_at + 8:
        for _ in range(8):
            await noisy.store(chunk_subject(CLUSTER, "plan", "0" * 64), FILLER.encode(), "flooding", {})
        await world.second()
    await world._restart()
    await world.second()
    assert world._service._reading.journal.paused
    await world.stop()


async def test_a_plan_waits_for_approval_however_old_it_is(broker: Broker, tmp_path: Path) -> None:
    """A decider that starts after LOG has dropped plan and catalog accepts it, and a replay decides the same bytes."""
    before, plan = halved()
    world = World(before, plan, bus=await broker.bus())
    await begin(world)
    async with decider(broker, world, "required"):
        await world.publish(plan, "plan-1")
        assert isinstance((await judged(world.bus, "plan-1")).body, PlanApprovalRequested)
    asked_at = await world.bus.head("LOG")
    await turn_over(world, asked_at)
    await turn_over(world, await world.bus.head("LOG"), 2)
    async with decider(broker, world, "required"):
        await world.publish(PlanApproved(plan="plan-1", by="ann"), "approve-1")
        await eventually(lambda: world.bus.last("LOG", "plan-accepted"), 20)
    assert [type(event.body) for event in await in_log(world.bus, "plan-proposed")] == [Plan]
    await record_to(world.bus, cluster=CLUSTER, out=tmp_path / "recording.jsonl.zst")
    assert await asyncio.to_thread(replay, tmp_path / "recording.jsonl.zst") == 0
    await world.stop()


async def test_an_execution_goes_on_though_its_beginning_was_dropped(broker: Broker) -> None:
    """A rescheduler that starts after LOG has dropped plan and first steps does the rest, and nothing twice."""
    before, plan = small_plan()
    world = World(before, plan, bus=await broker.bus())
    await world.accept()
    accepted_at = await world.bus.head("LOG")
    for _ in range(200):
        await world.second()
        if await world.bus.last("LOG", "step-succeeded") is not None:
            break
    begun = {event.id for event in await in_log(world.bus, "step-started", "step-succeeded")}
    assert begun
    await turn_over(world, accepted_at)
    assert await in_log(world.bus, "execution-completed") == []
    assert begun < {event.id for event in await in_log(world.bus, "step-started", "step-succeeded")}
    await world._restart()
    end = None
    for _ in range(600):
        await world.second()
        end = await world.bus.last("LOG", "execution-completed")
        if end is not None:
            break
    assert isinstance(end, Stored)
    assert isinstance(end.event.body, ExecutionCompleted)
    assert sorted(world.memory.nodes) == ["n1"]
    assert world.problems == []
    assert world.marks_left() == []
    await world.stop()
