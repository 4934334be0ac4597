"""The providers that have to keep the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.provider.rooms import ROOMS, Room
from tests.rescheduler.sim_world import sim_world

from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_sim.scenarios.registry import SCENARIOS


@pytest.fixture
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    """Each provider beside a cluster of its own."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        room = ROOMS[request.param](world, tmp_path)
        yield room
        await room.close()


@pytest.fixture
async def api(room: Room) -> AsyncIterator[FencedClient]:
    """A connection to the room's API server."""
    api = await connect(str(room.world.kubeconfig), timeout_seconds=2)
    yield api
    await api.close()
