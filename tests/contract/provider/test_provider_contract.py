"""What the rescheduler relies on in a provider of nodes: the same tests for every one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from tests.contract.provider.rooms import BOOTING, ROOMS, ZONE, DelegateRoom, Room, StaticRoom

from kinema_core.events import Offer
from kinema_core.model.catalog import offers_from
from kinema_core.model.commitments import covered_nodes
from kinema_rescheduler.errors import PermanentError, TransientError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.providers.base import Operation, Provider
from kinema_sim.engine.kinds import NODE

every = pytest.mark.parametrize("room", tuple(ROOMS), indirect=True)
booting = pytest.mark.parametrize("room", BOOTING, indirect=True)


async def until(told: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not told():  # noqa: ASYNC110 - nobody tells when it is so
            await asyncio.sleep(0.02)


async def ended(provider: Provider, operation: Operation) -> Operation:
    """The operation once it is over."""
    async with asyncio.timeout(30):
        while operation.state == "running":
            await asyncio.sleep(0.02)
            operation = await provider.operation(operation.id)
    return operation


def is_ready(room: Room, name: str) -> bool:
    """Whether there is a Ready node of that name."""
    node = room.world.cluster().node(name)
    return node is not None and node.ready


async def refused(provider: Provider, offer: Offer) -> str:
    """Why a boot is refused, at once or after a while."""
    try:
        operation = await ended(provider, await provider.boot("kinema-1", offer, "op-1"))
    except PermanentError as error:
        return error.reason if error.detail else "no word"
    assert operation.state == "failed"
    assert operation.message
    return operation.reason


@every
async def test_catalog_has_prices_and_their_date(room: Room, api: FencedClient) -> None:
    """Every offer has a price above 0, and it is told how old prices are."""
    provider = room.provider(api)
    catalog = await provider.catalog()
    assert catalog.priced is not None
    assert catalog.source
    assert min(row.micro_usd_per_hour for row in catalog.rows) > 0
    offer = await room.offer(provider)
    assert offer.micro_usd_per_hour == 90_000
    assert offer.available == 0 or room.__class__ is not DelegateRoom


@pytest.mark.slow
@booting
async def test_a_node_comes_and_goes(room: Room, api: FencedClient) -> None:
    """What was booted registers under the name that the operation tells, gets Ready, is listed, and can be deleted."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    before = await provider.nodes()
    booted = await ended(provider, await provider.boot("kinema-1", offer, "op-1"))
    assert booted.state == "done", booted
    await until(lambda: is_ready(room, booted.node))
    node = room.world.cluster().node(booted.node)
    assert node is not None
    assert {key: node.labels.get(key) for key in offer.labels} == dict(offer.labels)
    assert {key: node.allocatable[key] for key in ("cpu", "memory", "pods")} == {
        key: offer.allocatable[key] for key in ("cpu", "memory", "pods")
    }
    assert set(await provider.nodes()) == {*before, booted.node}
    gone = await ended(provider, await provider.delete(booted.node, "op-2"))
    assert gone.state == "done"
    await until(lambda: room.world.sim.store.get(NODE, "", booted.node) is None)
    assert await provider.nodes() == before
    assert room.paid() == []


@every
async def test_unknown_names_are_not_found(room: Room, api: FencedClient) -> None:
    """An operation that nobody asked for, and a node that is not there, are `not-found`."""
    provider = room.provider(api)
    for asked in (provider.operation("op-unknown"), provider.delete("nobody", "op-1")):
        with pytest.raises(PermanentError) as caught:
            await asked
        assert caught.value.reason == "not-found"


@booting
async def test_stock_out(room: Room, api: FencedClient) -> None:
    """Nothing left is `stock-out`, and nothing is paid for."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    await room.sell_out()
    assert await refused(provider, offer) == "stock-out"
    assert room.paid() == []


@pytest.mark.slow
@booting
async def test_boots_that_succeed_in_part(room: Room, api: FencedClient) -> None:
    """Of three orders for the last machine one is fulfilled and the others are `stock-out`: one machine is paid for."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    await room.leave_one()
    outcomes = await asyncio.gather(*(booted(provider, f"kinema-{number}", offer) for number in (1, 2, 3)))
    assert sorted(outcomes) == ["done", "stock-out", "stock-out"]
    await until(lambda: len(room.paid()) == 1)


@pytest.mark.slow
@booting
async def test_capacity_that_comes_back(room: Room, api: FencedClient) -> None:
    """An order that found nothing leaves nothing behind: once there are machines, the next one of its name buys one."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    await room.sell_out()
    assert await booted(provider, "kinema-1", offer) == "stock-out"
    await room.restock()
    assert room.paid() == []
    assert await booted(provider, "kinema-1", offer, "later") == "done"
    assert len(room.paid()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("room", ["kwok", "gke"], indirect=True)
async def test_the_first_machines_at_another_price(room: Room, api: FencedClient) -> None:
    """With one machine paid for, its offer can be booted once; it costs nothing then, and the next one its price."""
    path = room.directory / "catalog.csv"
    rows = "machine_type,vcpus,memory_gib,usd_per_hour,zone,committed\ne2-standard-4,4,16,0.17," + ZONE + ",1\n"
    provider = room.provider(api)
    path.write_text(rows, encoding="utf-8")
    regular, paid = offers_from((await provider.catalog()).rows, room.world.cluster())
    assert [(one.micro_usd_per_hour, one.committed) for one in (regular, paid)] == [(170_000, None), (0, 1)]
    assert paid.available == 1
    for number, offer in enumerate((paid, regular)):
        assert await booted(provider, f"kinema-{number}", offer) == "done"
        await until(partial(is_ready, room, f"kinema-{number}"))
        cluster = room.world.cluster()
        _, left = offers_from((await provider.catalog()).rows, cluster)
        assert left.available == 0
        covered = covered_nodes(cluster, [left])
        assert len(covered) == 1
        assert set(covered.values()) == {0}


async def booted(provider: Provider, name: str, offer: Offer, order: str = "op") -> str:
    """How a boot ends: `done`, or the reason why not."""
    try:
        operation = await ended(provider, await provider.boot(name, offer, f"{order}-{name}"))
    except PermanentError as error:
        return error.reason
    return "done" if operation.state == "done" else operation.reason


@booting
async def test_quota(room: Room, api: FencedClient) -> None:
    """One too many is `quota`."""
    offer = await room.offer(room.provider(api))
    await room.limit()
    assert await refused(room.provider(api), offer) == "quota"
    assert room.paid() == []


@booting
async def test_permission(room: Room, api: FencedClient) -> None:
    """A missing right is told as such, with the other side's own words."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    await room.deny()
    assert await refused(provider, offer) in {"permission", "denied"}
    assert room.paid() == []


@pytest.mark.parametrize("room", ["delegate"], indirect=True)
async def test_who_boots_nothing_says_so(room: Room, api: FencedClient) -> None:
    """Where the cluster's own autoscaler boots, nothing is on sale and a boot is refused for good."""
    provider = room.provider(api)
    catalog = await provider.catalog()
    assert {row.available for row in catalog.rows} == {0}
    assert catalog.delegated
    assert await refused(provider, await room.offer(provider)) == "permission"


@pytest.mark.parametrize("room", ["delegate"], indirect=True)
async def test_a_deletion_is_over_when_the_autoscaler_has_made_it(room: Room, api: FencedClient) -> None:
    """A node that is left to the autoscaler is being deleted until it is gone, and is not touched."""
    assert isinstance(room, DelegateRoom)
    provider = room.provider(api)
    operation = await provider.delete("tiny-2", "op-1")
    assert operation.state == "running"
    assert (await room.provider(api).operation(operation.id)).state == "running"
    assert room.world.sim.store.get(NODE, "", "tiny-2") is not None
    room.scale_down("tiny-2")
    assert (await ended(provider, operation)).state == "done"


@pytest.mark.parametrize("room", ["delegate"], indirect=True)
async def test_a_question_that_fails_for_now_may_be_asked_again(room: Room, api: FencedClient) -> None:
    """A failure that passes is a TransientError, and says nothing about the node."""
    provider = room.provider(api)
    await room.fault(type="api", method="GET", path="/nodes/tiny-2", status=503, count=2)
    for asked in (provider.delete("tiny-2", "op-1"), provider.operation("delete/tiny-2")):
        with pytest.raises(TransientError):
            await asked
    assert (await provider.delete("tiny-2", "op-1")).state == "running"


@pytest.mark.slow
@booting
async def test_a_name_stands_for_one_machine(room: Room, api: FencedClient) -> None:
    """A name that is another machine already is a `conflict`."""
    provider = room.provider(api)
    small, big = await room.offer(provider), await room.offer(provider, "e2-standard-4")
    await ended(provider, await provider.boot("kinema-1", small, "op-1"))
    with pytest.raises(PermanentError) as caught:
        await provider.boot("kinema-1", big, "op-2")
    assert caught.value.reason == "conflict"
    assert len(room.paid()) == 1


@pytest.mark.slow
@booting
async def test_a_passing_error_may_be_tried_again(room: Room, api: FencedClient) -> None:
    """A failure that passes is a TransientError; the next try buys one machine."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    await room.fail_once()
    with pytest.raises(TransientError):
        await provider.boot("kinema-1", offer, "op-1")
    assert (await ended(provider, await provider.boot("kinema-1", offer, "op-2"))).state == "done"
    assert len(room.paid()) == 1


@pytest.mark.slow
@booting
async def test_a_lost_reply_buys_nothing_twice(room: Room, api: FencedClient) -> None:
    """An order that was carried out, but whose answer was lost, is found by the next try."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    await room.lose_reply()
    with pytest.raises(TransientError):
        await provider.boot("kinema-1", offer, "op-1")
    first = await ended(provider, await provider.boot("kinema-1", offer, "op-1"))
    again = await ended(provider, await provider.boot("kinema-1", offer, "op-2"))
    assert (first.state, first.node) == (again.state, again.node) == ("done", again.node)
    assert len(room.paid()) == 1


@pytest.mark.slow
@booting
@pytest.mark.parametrize("trouble", ["fail_once", "lose_reply"])
async def test_a_deletion_in_trouble_is_made_by_the_next_try(room: Room, api: FencedClient, trouble: str) -> None:
    """A deletion that fails, or whose answer is lost, passes; tried again it ends, or finds nothing left to delete."""
    provider = room.provider(api)
    before = await provider.nodes()
    booted = await ended(provider, await provider.boot("kinema-1", await room.offer(provider), "op-1"))
    await until(lambda: is_ready(room, booted.node))
    await getattr(room, trouble)("DELETE")
    with pytest.raises(TransientError):
        await provider.delete(booted.node, "op-2")
    assert await outcome(provider, booted.node) in {"done", "not-found"}
    await until(lambda: room.world.sim.store.get(NODE, "", booted.node) is None)
    assert await provider.nodes() == before
    assert room.paid() == []


@pytest.mark.slow
@booting
async def test_a_deletion_without_the_right_to_leaves_the_node(room: Room, api: FencedClient) -> None:
    """A missing right is told as such; the machine runs on, and its node with it."""
    provider = room.provider(api)
    booted = await ended(provider, await provider.boot("kinema-1", await room.offer(provider), "op-1"))
    await until(lambda: is_ready(room, booted.node))
    await room.deny("DELETE")
    with pytest.raises(PermanentError) as caught:
        await provider.delete(booted.node, "op-2")
    assert caught.value.reason in {"permission", "denied"}
    assert is_ready(room, booted.node)
    assert room.paid() == [booted.node]


async def outcome(provider: Provider, name: str) -> str:
    """How a deletion ends that was tried before."""
    try:
        return (await ended(provider, await provider.delete(name, "op-3"))).state
    except PermanentError as error:
        return error.reason


@pytest.mark.slow
@booting
async def test_a_half_booted_node_is_found_again(room: Room, api: FencedClient) -> None:
    """A process that takes over asks for the same node and gets the machine that was ordered before it."""
    first = room.provider(api)
    offer = await room.offer(first)
    begun = await first.boot("kinema-1", offer, "op-1")
    after = room.provider(api)
    found = await ended(after, await after.boot("kinema-1", offer, "op-1"))
    assert (found.state, found.node) == ("done", begun.node)
    await until(lambda: is_ready(room, found.node))
    assert len(room.paid()) == 1
    assert (await ended(after, await after.boot("kinema-1", offer, "op-9"))).node == begun.node
    assert len(room.paid()) == 1


@pytest.mark.slow
@booting
async def test_a_half_booted_node_can_be_given_back(room: Room, api: FencedClient) -> None:
    """A process that takes over can delete what was ordered, by the name of the order; it never comes up later."""
    offer = await room.offer(room.provider(api))
    await room.provider(api).boot("kinema-1", offer, "op-1")
    after = room.provider(api)
    assert (await ended(after, await after.delete("kinema-1", "op-2"))).state == "done"
    await until(lambda: room.paid() == [])
    seen = room.world.clock.now()
    await until(lambda: (room.world.clock.now() - seen).total_seconds() > 90)
    assert room.paid() == []
    assert all(name.startswith("tiny-") for name in await after.nodes())


@pytest.mark.slow
@booting
async def test_boots_side_by_side_are_several_machines(room: Room, api: FencedClient) -> None:
    """Two nodes ordered at the same time are two machines."""
    provider = room.provider(api)
    offer = await room.offer(provider)
    begun = await asyncio.gather(*(provider.boot(f"kinema-{n}", offer, f"op-{n}") for n in (1, 2)))
    booted = [await ended(provider, operation) for operation in begun]
    assert len({operation.node for operation in booted}) == 2
    assert sorted(operation.node for operation in booted) == room.paid()


@pytest.mark.parametrize("room", ["static"], indirect=True)
async def test_a_status_command_that_never_answers_is_no_stock_out(room: Room, api: FencedClient) -> None:
    """One machine that cannot be asked is out of reach; where none can, the command's own words are told."""
    assert isinstance(room, StaticRoom)
    provider = room.provider(api)
    offer = await room.offer(provider)
    names = [path.name for path in room.directory.iterdir() if path.name.startswith(("rack", "tiny-"))]
    for name in names[1:]:
        (room.directory / name).write_text("on fire\n", encoding="utf-8")
    assert (await provider.catalog()).rows
    (room.directory / names[0]).write_text("on fire\n", encoding="utf-8")
    for asked in (provider.catalog(), provider.nodes(), provider.boot("kinema-1", offer, "op-1")):
        with pytest.raises(TransientError, match="is on fire"):
            await asked
