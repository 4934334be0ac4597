"""Waiting for what happens elsewhere: limits are for what hangs, and a busy machine keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something to come true; fails after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for knows nothing of tests
            await asyncio.sleep(0.005)


async def eventually(probe: Callable[[], Awaitable[object]], seconds: float = 120.0, *, pause: float = 0.1) -> None:
    """Wait for a question to be answered with yes; fails after `seconds`."""
    async with asyncio.timeout(seconds):
        while not await probe():  # noqa: ASYNC110 - what is waited for knows nothing of tests
            await asyncio.sleep(pause)
