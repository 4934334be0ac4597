"""A real broker for tests of the runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.nats_broker import Broker, running


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with everything in place."""
    async with running(tmp_path / "nats") as found:
        yield found
