"""The loop around the decisions: lease, fencing, streams, catalog, stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.rescheduler.harness import CLUSTER, World
from tests.rescheduler.memory_effects import MemoryProvider, MemoryWriter
from tests.rescheduler.plans_in_memory import fragmented_plan, small_plan
from tests.support.builders import NOW, cluster, deployed, node, tiny
from tests.support.plans import bare_plan, plan_node
from tests.support.waiting import eventually, until

from kinema_core.events import (
    AbortRequested,
    AnyBody,
    CatalogPublished,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    NodeDeletionRequested,
    PlanAccepted,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.model.catalog import parse_catalog
from kinema_core.runtime.bus import LeaseLostError
from kinema_core.runtime.envelope import answer
from kinema_core.runtime.health import Health
from kinema_core.runtime.loop import Tenure, _act
from kinema_core.runtime.settings import RuntimeSettings
from kinema_rescheduler.errors import TransientError
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.providers.base import Catalog
from kinema_rescheduler.providers.catalog import read_prices
from kinema_rescheduler.service import Rescheduler
from kinema_rescheduler.settings import Settings, SimSettings
from kinema_sim.memory_bus import MemoryBus

CATALOG = "machine_type,vcpus,memory_gib,usd_per_hour\nm4,4,16,0.17\n"


def service(
    world: World, *, lease_seconds: float = 9.0, catalog_seconds: float = 300.0, health: Health | None = None
) -> Rescheduler:
    """Another rescheduler on the same streams, cluster and cloud."""
    return Rescheduler(
        settings=Settings(
            runtime=RuntimeSettings(cluster=CLUSTER),
            provider=SimSettings(url="http://127.0.0.1:8001"),
            tick_seconds=0.01,
            lease_seconds=lease_seconds,
            catalog_seconds=catalog_seconds,
        ),
        bus=world.bus,
        clock=world.clock,
        health=health or Health("rescheduler", CLUSTER),
        writer=world.writer,
        provider=world.provider,
    )


async def ended(running: asyncio.Task[None]) -> None:
    """Cancel a service, as SIGTERM does, and wait for its end."""
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_standby_does_nothing_until_the_lease_is_free() -> None:
    """While somebody else holds the lease nothing is decided; once it is free the plan begins."""
    world = World(*small_plan())
    await world.accept()
    other = await world.bus.acquire("rescheduler", 60)
    assert other is not None
    running = asyncio.create_task(service(world, lease_seconds=3).run())
    await asyncio.sleep(0.1)
    assert world.intents() == []
    await other.release()
    await until(world.intents)
    await ended(running)
    assert await world.bus.acquire("rescheduler", 60) is not None, "the lease is given up at the end"


async def test_standby_has_read_the_log_before_the_lease_is_free() -> None:
    """Its first act needs no more than what is new, however long the log is."""
    world = World(*small_plan())
    await world.accept()
    assert await world.bus.acquire("rescheduler", 60) is not None
    waiting = service(world, lease_seconds=3)
    running = asyncio.create_task(waiting.run())
    await until(lambda: waiting._reading.journal.active is not None)
    assert waiting._reading.position == await world.bus.head("LOG")
    assert world.intents() == []
    await ended(running)


async def test_lower_revision_never_acts_after_a_higher_one() -> None:
    """A process that reads an event with a higher lease revision than its own stops before its next effect."""
    world = World(*small_plan())
    accepted = await world.accept()
    mine = service(world)
    lease = await world.lease()
    foreign = StepFailed(plan="x", step="boot/x", fencing=lease.revision + 1, reason="r", detail="", retry=False)
    await world.bus.publish(
        answer(foreign, cause=accepted, service="rescheduler", n="x", now=world.clock.now(), state=1)
    )
    with pytest.raises(LeaseLostError):
        await mine.tick(lease)
    assert world.intents() == []


class Waking:
    """The lease of a process that was paused: it believes to hold it still."""

    revision = 1

    def left(self) -> float:
        """As it remembers."""
        return 5.0

    async def renew(self) -> None:
        """Too late."""
        raise LeaseLostError

    async def release(self) -> None:
        """Nothing to give up."""


class OvertakenBus(MemoryBus):
    """Lets somebody else act just before the first intent is stored."""

    overtake: Callable[[], Awaitable[None]] | None = None

    async def publish(self, event: Event, *, expected_last: int | None = None) -> int:
        """Publish, a moment too late."""
        if isinstance(event.body, StepStarted) and self.overtake is not None:
            overtake, self.overtake = self.overtake, None
            await overtake()
        return await super().publish(event, expected_last=expected_last)


async def test_woken_process_makes_no_effect_after_its_successor_acted() -> None:
    """A process that slept through the loss of its lease stops at its first intent, though it decides the same."""
    world = World(*fragmented_plan())
    world.bus = OvertakenBus()
    await world.accept()
    woken, successor = service(world), service(world)
    first = await world.bus.acquire("rescheduler", 60)
    assert first is not None
    await first.release()
    lease = await world.bus.acquire("rescheduler", 60)
    assert lease is not None
    assert lease.revision > Waking.revision

    async def act() -> None:
        await successor.tick(lease)

    world.bus.overtake = act
    with pytest.raises(LeaseLostError):
        await woken.tick(Waking())
    assert woken._tasks == {}
    assert {event.body.fencing for event in world.log() if isinstance(event.body, StepStarted)} == {lease.revision}
    for task in successor._tasks.values():
        task.cancel()


class Expiring:
    """A lease that cannot be renewed."""

    revision = 1

    def __init__(self, seconds: float) -> None:
        self._end = asyncio.get_running_loop().time() + seconds

    def left(self) -> float:
        """Until its end."""
        return self._end - asyncio.get_running_loop().time()

    async def renew(self) -> None:
        """No answer: the broker is away."""
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Nothing to give up."""


@pytest.mark.slow
async def test_effects_stop_with_the_lease_while_the_broker_is_away() -> None:
    """An effect does not outlive the lease, though an outcome that cannot be written keeps the loop waiting."""
    world = World(*small_plan())
    stopped: list[str] = []

    class Halting(MemoryWriter):
        async def perform(self, order: Order) -> Made:
            world.bus.cut()
            if order.step.target == "n1":
                return await super().perform(order)
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(order.step.id)
            raise AssertionError

    world.writer = Halting(world.memory)
    await world.accept()
    mine = service(world)
    tenure = Tenure(Expiring(2))  # two seconds: a busy machine begins late
    await asyncio.wait_for(_act(tenure, 9, mine._act, mine.metrics), timeout=30)
    assert stopped == ["taint/n2"]
    assert mine._tasks == {}


async def test_nothing_is_decided_on_an_unknown_state() -> None:
    """Without a snapshot, or after a gap in the state, no step is intended."""
    world = World(*small_plan())
    await world.accept()
    world.bus.wipe("STATE")
    lease = await world.lease()
    await service(world).tick(lease)
    assert world.intents() == []


async def test_broker_away_stops_action_and_comes_back() -> None:
    """While the broker is away nothing happens; afterwards the plan goes on to its end."""
    world = World(*small_plan())
    await world.accept()
    running = asyncio.create_task(service(world).run())
    await asyncio.sleep(0.05)
    world.bus.cut()
    made = dict(world.writer.made)
    await asyncio.sleep(0.1)
    assert set(world.writer.made) - set(made) <= {("plan-1", i.step.id) for i in world.intents()}
    world.bus.cut(reachable=True)

    async def over() -> bool:
        await world.clock.sleep(0.5)
        world.memory.catch_up()
        await world.observe()
        return world.end() is not None

    await eventually(over, pause=0.01)
    await ended(running)
    assert isinstance(world.end(), ExecutionCompleted), world.told()
    assert world.problems == []


async def test_cancelled_service_tells_the_outcome_of_what_it_was_doing() -> None:
    """On SIGTERM a running effect may end and its outcome is written, then the lease is given up."""

    class Slow(MemoryWriter):
        async def perform(self, order: Order) -> Made:
            await asyncio.sleep(0.15)
            return await super().perform(order)

    world = World(*small_plan())
    world.writer = Slow(world.memory)
    await world.accept()
    running = asyncio.create_task(service(world).run())
    await until(world.intents)
    await ended(running)
    done = {event.body.step for event in world.log() if isinstance(event.body, StepSucceeded)}
    assert {intent.step.id for intent in world.intents()} <= done
    assert await world.bus.acquire("rescheduler", 60) is not None


async def test_catalog_is_published_at_start_and_when_it_changed() -> None:
    """The provider's offers are published once, and again only when they are not the same."""
    world = World(tiny())
    await world.observe()
    world.provider = MemoryProvider(world.memory, parse_catalog(CATALOG))
    lease = await world.lease()
    mine = service(world, catalog_seconds=10)

    def published() -> list[CatalogPublished]:
        return [event.body for event in world.log() if isinstance(event.body, CatalogPublished)]

    async def look() -> None:
        for _ in range(3):
            await mine.tick(lease)
            await asyncio.sleep(0)

    await look()
    await world.clock.sleep(11)
    await look()
    assert len(published()) == 1
    assert published()[0].offers[0].allocatable["cpu"] == 4000, "what live nodes of the type have wins"
    world.provider._rows = parse_catalog(CATALOG.replace("0.17", "0.18"))
    await world.clock.sleep(11)
    await look()
    assert [body.offers[0].micro_usd_per_hour for body in published()] == [170_000, 180_000]


async def test_provider_out_of_reach_is_reported_and_asked_again() -> None:
    """A catalog that cannot be had makes the service not ready and stops nothing else. It is asked for again later."""
    asked: list[datetime] = []

    class Away(MemoryProvider):
        async def catalog(self):  # type: ignore[no-untyped-def]  # noqa: ANN202 - never returns
            asked.append(world.clock.now())
            raise TransientError("unavailable", "no route")

    world = World(tiny())
    await world.observe()
    world.provider = Away(world.memory)
    lease = await world.lease()
    health = Health("rescheduler", CLUSTER)
    mine = service(world, health=health)
    with capture_logs() as lines:
        for _ in range(25):
            await mine.tick(lease)
            await asyncio.sleep(0)
            await world.clock.sleep(1)
    assert "no route" in health.problems()["provider"]
    said = [line["problem"] for line in lines if line["event"] == "no catalog from the provider"]
    assert said == [health.problems()["provider"]], "once, not for each try"
    waits = [(later - one).total_seconds() for one, later in pairwise(asked)]
    assert len(waits) >= 1
    assert all(wait >= 10 for wait in waits), "not at every tick"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (None, "No such file"),
        (CATALOG.replace("0.17", "0"), "a price of 0"),
        (CATALOG.replace("0.17", "-0.17"), "'-0.17'"),
        (CATALOG.replace("0.17", "NaN"), "'NaN'"),
        (CATALOG.replace("usd_per_hour", "eur_per_hour"), "lacks the column 'usd_per_hour'"),
        (CATALOG + "m8,8,32\n", "line 3"),
    ],
)
async def test_prices_of_the_last_good_file_hold(wrong: str | None, reason: str, tmp_path: Path) -> None:
    """A file that is gone, free of charge or in another currency changes no price; the last ones keep their date."""
    path = tmp_path / "prices.csv"
    path.write_text(f"# as of 2026-01-15\n{CATALOG}")

    class FromFile(MemoryProvider):
        async def catalog(self) -> Catalog:
            return await read_prices(str(path))

    world = World(tiny())
    await world.observe()
    world.provider = FromFile(world.memory)
    lease, health = await world.lease(), Health("rescheduler", CLUSTER)
    mine = service(world, catalog_seconds=10, health=health)

    async def look() -> list[CatalogPublished]:
        """All that was published after the file was read again."""
        await world.clock.sleep(11)
        await mine.tick(lease)
        reading = mine._catalog_reading
        assert reading is not None
        await asyncio.wait((reading,))
        await mine.tick(lease)
        return [event.body for event in world.log() if isinstance(event.body, CatalogPublished)]

    (good,) = await look()
    assert (good.source, good.priced, len(good.offers)) == ("prices.csv", datetime(2026, 1, 15, tzinfo=UTC), 1)
    path.unlink()
    if wrong is not None:
        path.write_text(wrong)
    assert await look() == [good]
    assert reason in health.problems()["provider"]
    path.write_text(CATALOG.replace("0.17", "0.18"))
    assert [body.offers[0].micro_usd_per_hour for body in await look()] == [170_000, 180_000]
    assert "provider" not in health.problems()


async def test_slow_provider_keeps_no_outcome_waiting() -> None:
    """A catalog that takes long holds up neither decisions nor outcomes."""
    world = World(*small_plan())

    class Slow(MemoryProvider):
        async def catalog(self) -> Catalog:
            await asyncio.Event().wait()
            raise AssertionError

    world.provider = Slow(world.memory)
    await world.accept()
    lease = await world.lease()
    mine = service(world)
    for _ in range(10):
        await asyncio.wait_for(mine.tick(lease), timeout=30)
        await asyncio.sleep(0)
    assert any(isinstance(event.body, StepSucceeded) for event in world.log())
    await mine._drop_tasks()


async def test_log_that_was_replaced_is_read_from_its_beginning() -> None:
    """A plan that is accepted on a new LOG is executed, though LOG is shorter than what was read before."""
    world = World(*small_plan())
    lease = await world.lease()
    for number in range(20):
        await world.publish(AbortRequested(by="test"), f"noise-{number}")
    await world.observe()
    mine = service(world)
    await mine.tick(lease)
    world.bus.wipe("LOG")
    await world.accept()
    await mine.tick(lease)
    assert world.intents() != []
    await mine._drop_tasks()


async def leftover(world: World, name: str, *, uid: str | None = None) -> None:
    """The observer asks for the deletion of a node that it found."""
    request = NodeDeletionRequested(node=name, uid=uid or f"uid-node-{name}", version=1)
    await world.publish(request, f"deletion-{name}", iteration="")


async def closed_by_a_plan(world: World, name: str) -> None:
    """A plan has closed a node and ended before it could open or delete it."""
    proposal = await world.publish(bare_plan(plan_node(name, "delete")), "old-plan")
    accepted = PlanAccepted(plan=proposal.id, version=1)
    await world.bus.publish(answer(accepted, cause=proposal, service="decider", n=0, now=NOW, state=1))
    step = Step(id=f"taint/{name}", kind="taint", target=name, uid=f"uid-node-{name}")
    bodies: list[AnyBody] = [
        StepStarted(plan="old-plan", step=step, fencing=0, deadline=NOW),
        StepSucceeded(plan="old-plan", step=step.id, fencing=0, outcome="done"),
        ExecutionAborted(plan="old-plan", fencing=0, reason="operator", detail="-", leftovers=(f"node {name}",)),
    ]
    for number, body in enumerate(bodies):
        await world.publish(body, f"old-{number}")


def ended_with(world: World, plan: str) -> bool:
    """Whether the execution of that plan has ended as it should."""
    return any(isinstance(event.body, ExecutionCompleted) and event.body.plan == plan for event in world.log())


async def test_leftover_disrupted_node_is_deleted_on_request() -> None:
    """An empty node that a plan has closed, and then left so, is deleted when the observer asks."""
    before = cluster(node("n1"), node("n2", labels={"kinema.io/disrupted": "old"}), deployed("web", ["n1"]))
    world = World(before)
    await world.observe()
    await closed_by_a_plan(world, "n2")
    await leftover(world, "n2")
    for _ in range(100):
        await world.second()
    await world.stop()
    assert ended_with(world, "deletion-n2")
    assert sorted(world.memory.nodes) == ["n1"]


async def test_no_requested_deletion_begins_during_a_pause() -> None:
    """A pause holds deletions that the observer asks for, too: no decider judges them."""
    world = World(cluster(node("n1"), node("n2", labels={"kinema.io/disrupted": "old"}), deployed("web", ["n1"])))
    await world.observe()
    await closed_by_a_plan(world, "n2")
    await world.publish(ExecutionPaused(by="me"), "pause-1")
    await leftover(world, "n2")
    for _ in range(5):
        await world.second()
    assert [intent for intent in world.intents() if intent.plan == "deletion-n2"] == []
    await world.publish(ExecutionResumed(by="me"), "resume-1")
    for _ in range(100):
        await world.second()
    await world.stop()
    assert ended_with(world, "deletion-n2")


@pytest.mark.parametrize(
    ("labels", "on", "uid", "closed"),
    [
        ({}, "n1", None, True),
        ({"kinema.io/disrupted": "old"}, "n2", None, True),
        ({"kinema.io/disrupted": "old"}, "n1", "uid-other", True),
        ({"kinema.io/disrupted": "old"}, "n1", None, False),
    ],
    ids=["open", "occupied", "other-node", "labeled-by-others"],
)
async def test_request_that_is_not_right_is_ignored(
    labels: dict[str, str], on: str, uid: str | None, closed: bool
) -> None:
    """A node without the label, with a pod on it, with another uid, or that no plan has closed is not deleted."""
    world = World(cluster(node("n1"), node("n2", labels=labels), deployed("web", [on])))
    await world.observe()
    if closed:
        await closed_by_a_plan(world, "n2")
    await leftover(world, "n2", uid=uid)
    for _ in range(5):
        await world.second()
    await world.stop()
    assert [intent for intent in world.intents() if intent.plan == "deletion-n2"] == []


async def test_request_during_a_plan_for_its_own_node_is_ignored() -> None:
    """The active plan deletes its nodes itself: each is deleted once."""
    world = World(*fragmented_plan())
    await world.accept()
    for name in ("n1", "n6"):
        await leftover(world, name)
    await world.completes()
    for _ in range(5):
        await world.second()
    await world.stop()
    assert [count for count in world.provider.orders.values() if count > 1] == []
    assert sum(isinstance(event.body, ExecutionCompleted | ExecutionAborted) for event in world.log()) == 1


def test_settings_refuse_what_cannot_work() -> None:
    """A setting out of range is refused by name."""
    with pytest.raises(ValueError, match="lease_seconds is 1"):
        Settings(
            runtime=RuntimeSettings(cluster="x"), provider=SimSettings(url="http://127.0.0.1:8001"), lease_seconds=1
        )
    with pytest.raises(ValueError, match=r"limits\.attempts is 0"):
        Limits(attempts=0)
    assert replace(Limits(), attempts=1).pause_seconds(1) == 5.0
