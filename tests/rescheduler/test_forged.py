"""A forged `plan-accepted`, published with the password of each user of the broker: no plan is executed for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from nats.aio.client import Client
from tests.rescheduler.harness import CLUSTER, World
from tests.rescheduler.plans_in_memory import small_plan
from tests.support.nats_broker import PASSWORDS, Broker, running

from kinema_core.events import PREFIX, Event, PlanAccepted, encode, subject_of
from kinema_core.runtime.bus import Stored
from kinema_core.runtime.envelope import answer
from kinema_core.runtime.framing import HEADER_ID, HEADER_MESSAGE_ID
from kinema_core.runtime.rights import ADMIN, USERS, publish_rights
from kinema_core.runtime.setup import Layout
from kinema_core.runtime.topology import inbox_prefix

IN_LOG = tuple(f"{PREFIX}.{CLUSTER}.{family}." for family in ("plan", "exec", "control"))
FORGERS = sorted({*USERS} - {ADMIN, "decider"})


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker whose users have exactly their rights."""
    async with running(tmp_path / "nats", cluster=CLUSTER, layout=Layout(clusters=(CLUSTER,))) as found:
        yield found


async def forge(broker: Broker, user: str, event: Event) -> int:
    """Publish an event on its own subject and wherever in LOG a user may publish; return how often."""
    own = [right for right in publish_rights(user, (CLUSTER,)) if right.startswith(IN_LOG)]
    client = Client()
    inbox = inbox_prefix(user).encode()
    await client.connect(broker.server.url, user=user, password=PASSWORDS[user], inbox_prefix=inbox)
    for number, subject in enumerate([subject_of(event), *own]):
        headers = {HEADER_ID: f"forged-{number}", HEADER_MESSAGE_ID: f"forged-{user}-{number}"}
        await client.publish(subject.replace("*", "forged"), encode(event), headers=headers)
    await client.flush()
    await client.close()
    return len(own)


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
    body = PlanAccepted(plan=proposal.id, version=plan.base_version)
    accepted = answer(body, cause=proposal, service="decider", n=0, now=world.clock.now(), state=1)
    head = await world.bus.head("LOG")
    forged = await forge(broker, user, accepted)
    for _ in range(3):
        await world.second()
    assert await world.bus.head("LOG") == head + forged > head
    assert world._service._reading.journal.active is None
    assert await steps(world) == []
    await world.bus.publish(accepted)
    for _ in range(3):
        await world.second()
    assert await steps(world) != []
    await world.stop()
