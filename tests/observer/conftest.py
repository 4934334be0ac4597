"""The observer's tests run on the loop that the observer runs on, some against a scripted API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop
from tests.observer.scripted_api import ScriptedApi


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """One loop for every test here."""
    del config, item
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedApi]:
    """A scripted server."""
    scripted = ScriptedApi()
    await scripted.start()
    yield scripted
    await scripted.stop()
