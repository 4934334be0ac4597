"""Answers come in hundreds of pieces: they are taken whole or not at all, and nobody waits for what will not come."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from tests.observer.scripted_api import Answer, ScriptedApi, connected

from kinema_kubernetes.client import _body
from kinema_kubernetes.errors import UnavailableError

PIECE = bytes(range(256)) * 16
PIECES = 800
"""More than three MB: what may wait of a watch is passed several times."""


def trickle(*, cut: bool) -> Answer:
    """An answer in pieces of 4 KiB, as an API server writes it; if `cut`, its connection is lost before the last."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for _ in range(PIECES - cut):
            await response.write(PIECE)
        if cut and request.transport is not None:
            request.transport.close()
        return response

    return answer


async def test_an_answer_of_any_length_is_taken_whole(server: ScriptedApi, tmp_path: Path) -> None:
    """Nothing holds its pieces back while its end is waited for."""
    server.lists = [trickle(cut=False)]
    api = await connected(server, tmp_path)
    try:
        assert (await api.read("/api/v1/pods")).body == PIECE * PIECES
    finally:
        await api.close()


async def test_an_answer_that_breaks_off_is_an_error(server: ScriptedApi, tmp_path: Path) -> None:
    """At once, and never a shorter list."""
    server.lists = [trickle(cut=True)]
    api = await connected(server, tmp_path)
    try:
        with pytest.raises(UnavailableError, match=f"cannot reach {server.url}"):
            await api.read("/api/v1/pods")
    finally:
        await api.close()


async def test_an_answer_that_is_late_is_an_error(server: ScriptedApi, tmp_path: Path) -> None:
    """Its end is not waited for longer than asked."""
    gate = asyncio.Event()

    async def stuck(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(PIECE)
        await gate.wait()
        return response

    server.lists = [stuck]
    api = await connected(server, tmp_path, timeout_seconds=0.2)
    try:
        with pytest.raises(UnavailableError, match=r"no answer .* within 0.2 s"):
            await api.read("/api/v1/pods")
    finally:
        gate.set()
        await api.close()


async def test_what_broke_off_before_its_end_was_waited_for_is_an_error() -> None:
    """The end of such an answer never comes."""
    loop = asyncio.get_running_loop()
    content = aiohttp.StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    content.feed_data(PIECE)
    content.set_exception(aiohttp.ClientPayloadError("the connection is lost"))
    with pytest.raises(aiohttp.ClientPayloadError, match="the connection is lost"):
        async with asyncio.timeout(60):
            await _body(content)
