"""The buses that have to keep the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.nats_broker import running
from tests.support.nats_pipelines import ACK_WAIT, CLUSTER, DEDUP, BrokerPipeline, MemoryPipeline, Pipeline

from kinema_core.runtime.setup import Layout


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.connected)])
async def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pipeline]:
    """Each bus in turn."""
    if request.param == "memory":
        yield MemoryPipeline()
        return
    layout = Layout(clusters=(), ack_wait_seconds=ACK_WAIT, dedup_seconds=DEDUP)
    async with running(tmp_path, cluster=CLUSTER, layout=layout) as broker:
        yield BrokerPipeline(broker)
