"""An answer that comes in small pieces is taken in as few large ones, whole, and its connection serves others after."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from tests.observer.scripted_api import Answer, ScriptedApi, connected, stream

from kinema_observer.adapters import kubernetes
from kinema_observer.errors import ApiUnavailableError

PIECE = b"x" * 4096
FEW = 8
MANY = 400
"""Pieces that are more than a connection holds before somebody takes them."""


class Levels:
    """From how many bytes on the client's sockets were to wake it."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.sockets: set[socket.socket] = set()
        self.raised = asyncio.Event()

    def note(self, receiver: socket.socket | None, size: int) -> None:
        """Note a level and set it."""
        assert receiver is not None
        self.seen.append(size)
        self.sockets.add(receiver)
        _WAKE_AT(receiver, size)
        if size > len(PIECE):
            self.raised.set()


_WAKE_AT = kubernetes._wake_at


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Levels:
    """The levels that are set from now on."""
    noted = Levels()
    monkeypatch.setattr(kubernetes, "_wake_at", noted.note)
    return noted


@pytest.fixture
async def server() -> AsyncIterator[ScriptedApi]:
    """A scripted server."""
    scripted = ScriptedApi()
    await scripted.start()
    yield scripted
    await scripted.stop()


def pieces(count: int, raised: asyncio.Event, *, cut: bool = False) -> Answer:
    """A body of so many pieces, of which all but the first come when the client waits for many; or its beginning."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(PIECE)
        async with asyncio.timeout(10):
            await raised.wait()
        for _ in range(count - 1):
            await response.write(PIECE)
        if cut and request.transport is not None:
            request.transport.close()
        return response

    return answer


@pytest.mark.parametrize("count", [FEW, MANY])
async def test_small_pieces_are_waited_for(server: ScriptedApi, tmp_path: Path, levels: Levels, count: int) -> None:
    """While a body is under way, only much of it wakes the client; it comes whole, however large, and then all does."""
    server.lists = [pieces(count, levels.raised)]
    api = await connected(server, tmp_path)
    try:
        assert await api.get("/api/v1/pods", {}) == PIECE * count
        assert levels.seen[0] > len(PIECE)
        assert [one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) for one in levels.sockets] == [1]
    finally:
        await api.close()


async def test_a_body_that_is_cut_off_is_an_error(server: ScriptedApi, tmp_path: Path, levels: Levels) -> None:
    """A part of an answer is never taken for the whole, and is not waited for until the request's time is up."""
    server.lists = [pieces(FEW, levels.raised, cut=True)]
    api = await connected(server, tmp_path)
    try:
        with pytest.raises(ApiUnavailableError, match="/api/v1/pods: cannot reach"):
            await api.get("/api/v1/pods", {})
    finally:
        await api.close()


async def test_a_watch_on_the_same_connection_gets_each_line(
    server: ScriptedApi, tmp_path: Path, levels: Levels
) -> None:
    """A line of a watch is short: were it held back until there is much, nothing would be seen for hours."""
    server.lists = [pieces(FEW, levels.raised)]
    server.watches = [stream('{"type": "BOOKMARK"}')]
    api = await connected(server, tmp_path)
    lines: list[bytes] = []
    try:
        await api.get("/api/v1/pods", {})
        following = asyncio.create_task(
            api.follow("/api/v1/pods", {"watch": "true"}, silence=20, opened=lambda: None, take=lines.append)
        )
        async with asyncio.timeout(10):
            while not lines:  # noqa: ASYNC110 - the list tells nobody
                await asyncio.sleep(0.005)
        following.cancel()
    finally:
        await api.close()
    assert lines == [b'{"type": "BOOKMARK"}']
