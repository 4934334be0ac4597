"""A durable consumer with nothing to do, on a real broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.bus_events import iteration
from tests.support.nats_broker import running

from kinema_core.runtime import nats_deliveries
from kinema_core.runtime.topology import STREAMS, consumer_name

pytestmark = pytest.mark.connected


async def test_an_idle_consumer_leaves_one_request_at_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests have run out, one waits; else the broker would hold back deliveries for the dead ones."""
    monkeypatch.setattr(nats_deliveries, "_EXPIRES_SECONDS", 0.05)
    sent: list[str] = []
    async with running(tmp_path) as broker:
        bus = await broker.bus("predictor")
        send = bus._connection.send

        async def counted(subject: str, payload: bytes, *, reply: str = "") -> None:
            sent.append(subject)
            await send(subject, payload, reply=reply)

        monkeypatch.setattr(bus._connection, "send", counted)
        waiting = asyncio.ensure_future(anext(bus.deliveries("predictor")))
        while len(sent) < 20:  # noqa: ASYNC110 - requests run out by themselves, and nobody tells
            await asyncio.sleep(0.01)
        client = await broker.raw()
        info = f"$JS.API.CONSUMER.INFO.{STREAMS['LOG']}.{consumer_name('predictor', broker.cluster)}"
        told = json.loads((await client.request(info, b"", timeout=60)).data)
        assert told["num_waiting"] <= 1
        await (await broker.bus()).publish(iteration(1))
        async with asyncio.timeout(60):
            delivery = await waiting
        assert delivery.attempt == 1
