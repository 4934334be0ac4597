"""A copy of the streams of a real broker, and another broker that begins with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.bus_events import iteration, snapshot
from tests.support.nats_broker import Broker, running, users
from typer.testing import CliRunner

from kinema_cli.local.nats_server import NatsServer
from kinema_cli.main import app
from kinema_core.runtime.backup import COPIED, MANIFEST, BackupError, back_up, restore
from kinema_core.runtime.bus import BusSetupError, Stored
from kinema_core.runtime.nats_bus import NatsBus
from kinema_core.runtime.setup import Layout, setup

pytestmark = pytest.mark.connected


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with three events, of which the predictor has answered the first."""
    async with running(tmp_path / "old") as started:
        bus = await started.bus()
        for number in (1, 2):
            await bus.publish(iteration(number))
        await bus.publish(snapshot(1, 60_000))  # in chunks
        delivery = await anext(bus.deliveries("predictor"))
        await delivery.ack()
        yield started


async def content(bus: NatsBus) -> list[object]:
    """Every event with its stream and sequence."""
    found: list[object] = []
    for stream in ("LOG", "STATE"):
        async for item in bus.read(stream):
            assert isinstance(item, Stored)
            found.append((stream, item.sequence, item.event))
    return found


async def test_a_restored_broker_goes_on_where_the_copy_was_made(broker: Broker, tmp_path: Path) -> None:
    """Events, sequences and positions are those of the copy; the next event has the next sequence.

    The streams count as made anew: whoever asks for their identity learns that there was a restore.
    """
    old = await broker.bus()
    lease = await old.acquire("rescheduler", 30)
    assert lease is not None
    before, identity = (await content(old), await old.position("predictor")), await old.identity()
    copied = await back_up(broker.settings("admin"), tmp_path / "copy")
    assert [one.name for one in copied] == list(COPIED)
    await old.publish(iteration(3))
    new = Broker(NatsServer(tmp_path / "new", authorization=users(("c1",))), "c1")
    new.server.start()
    try:
        async with new.stack:
            await restore(new.settings("admin"), tmp_path / "copy")
            report = await setup(new.settings("admin"), Layout(clusters=("c1",), ack_wait_seconds=1))
            assert report.created == ("stream KV_kinema_lease", "stream KINEMA_WORK", "consumer work-optimizer-c1")
            assert report.drift == ()
            bus = await new.bus()
            assert (await content(bus), await bus.position("predictor")) == before
            assert await bus.identity() != identity
            assert await bus.publish(iteration(2)) == 2  # stored already
            assert await bus.publish(iteration(3)) == 3
            delivery = await asyncio.wait_for(anext(bus.deliveries("predictor")), 60)
            assert (delivery.item.sequence, delivery.attempt) == (2, 1)
            again = await bus.acquire("rescheduler", 30)
            assert again is not None
            assert again.revision > lease.revision
            with pytest.raises(BusSetupError, match="stream KINEMA_LOG is there: restore into an empty broker"):
                await restore(new.settings("admin"), tmp_path / "copy")
    finally:
        new.server.stop()


async def test_half_a_copy_is_refused(broker: Broker, tmp_path: Path) -> None:
    """A copy that was interrupted, or whose file was cut, is not restored; an older one is not written over."""
    copy = tmp_path / "copy"
    await back_up(broker.settings("admin"), copy)
    with pytest.raises(BackupError, match="is not empty"):
        await back_up(broker.settings("admin"), copy)
    log = copy / f"{COPIED[0]}.s2"
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(BackupError, match="no whole backup: KINEMA_LOG has another size"):
        await restore(broker.settings("admin"), copy)
    (copy / MANIFEST).unlink()
    with pytest.raises(BackupError, match="no whole backup"):
        await restore(broker.settings("admin"), copy)


async def test_the_commands(broker: Broker, tmp_path: Path) -> None:
    """`kinema backup` says what it has copied; `kinema restore` refuses a broker that has streams, and no directory."""
    place = str(tmp_path / "copy")
    assert isinstance(broker.server, NatsServer)
    url = broker.server.url.replace("nats://", "nats://admin:admin-secret@")
    done = await asyncio.to_thread(CliRunner().invoke, app, ["backup", "--nats", url, "--out", place])
    assert done.exit_code == 0, done.output
    assert "copied stream KINEMA_LOG: 2 messages" in done.stdout
    for where, said in ((place, "stream KINEMA_LOG is there"), (str(tmp_path / "none"), "holds no whole backup")):
        done = await asyncio.to_thread(CliRunner().invoke, app, ["restore", where, "--nats", url])
        assert done.exit_code == 1
        assert said in done.stderr
