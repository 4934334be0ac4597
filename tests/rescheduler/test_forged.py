"""A forged `plan-accepted`, published with the password of each user of the broker: no plan is executed for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.rescheduler.harness import CLUSTER, World
from tests.rescheduler.plans_in_memory import small_plan
from tests.support.forging import FORGERS, acceptance, forge
from tests.support.nats_broker import Broker, running

from kinema_core.events import Event
from kinema_core.runtime.bus import Stored
from kinema_core.runtime.setup import Layout


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker whose users have exactly their rights."""
    async with running(tmp_path / "nats", cluster=CLUSTER, layout=Layout(clusters=(CLUSTER,))) as found:
        yield found


async def steps(world: World) -> list[Event]:
    """Steps that were begun."""
    found = world.bus.read("LOG", kinds=("step-started",))
    return [item.event async for item in found if isinstance(item, Stored)]


@pytest.mark.parametrize("user", FORGERS)
async def test_no_plan_is_executed_that_the_decider_has_not_accepted(user: str, broker: Broker) -> None:
    """On other subjects an acceptance is damaged, on the decider's it is refused; a true one is executed after it."""
    before, plan = small_plan()
    world = World(before, plan, bus=await broker.bus())
    await world.observe()
    world._service._catalog_due = world.clock.now() + timedelta(days=1)
    proposal = await world.publish(plan, "plan-1")
    accepted = acceptance(proposal, world.clock.now())
    head = await world.bus.head("LOG")
    forged = await forge(broker.settings(user), accepted)
    for _ in range(3):
        await world.second()
    assert await world.bus.head("LOG") == head + len(forged) > head
    assert world._service._reading.journal.active is None
    assert await steps(world) == []
    await world.bus.publish(accepted)
    for _ in range(3):
        await world.second()
    assert await steps(world) != []
    await world.stop()
