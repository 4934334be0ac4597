"""Lists come packed from an API server, watches never; and what cannot be unpacked is an error of that kind only."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from aiohttp import web
from tests.observer.scripted_api import Answer, ScriptedApi, connected, stream

from kinema_kubernetes.errors import ProtocolError

WHOLE = json.dumps({"items": ["x" * 1000] * 1000}).encode()


def packed(body: bytes) -> Answer:
    """An answer that is packed by now, for whoever takes it so."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "gzip"
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    return answer


def plain(request_codings: list[str]) -> Answer:
    """A watch that notes how its answer may be coded, and ends."""
    ending = stream('{"type": "BOOKMARK"}', then="end")

    async def answer(request: web.Request) -> web.StreamResponse:
        request_codings.append(request.headers["Accept-Encoding"])
        return await ending(request)

    return answer


async def test_a_packed_answer_is_unpacked(server: ScriptedApi, tmp_path: Path) -> None:
    """Its body is what was packed, to the byte."""
    server.lists = [packed(gzip.compress(WHOLE))]
    api = await connected(server, tmp_path)
    try:
        assert (await api.read("/api/v1/pods")).body == WHOLE
    finally:
        await api.close()


@pytest.mark.parametrize("body", [b"no gzip at all", gzip.compress(WHOLE)[:-20]])
async def test_what_cannot_be_unpacked_is_refused(server: ScriptedApi, tmp_path: Path, body: bytes) -> None:
    """Garbage, or a part of an answer, is an error that names the path: it is never taken for a shorter list."""
    server.lists = [packed(body)]
    api = await connected(server, tmp_path)
    try:
        with pytest.raises(ProtocolError, match=r"/api/v1/pods: the answer cannot be unpacked"):
            await api.read("/api/v1/pods")
    finally:
        await api.close()


async def test_a_watch_is_asked_for_as_it_is(server: ScriptedApi, tmp_path: Path) -> None:
    """A packed stream would hold lines back."""
    codings: list[str] = []
    server.watches = [plain(codings)]
    api = await connected(server, tmp_path)
    lines: list[bytes] = []
    try:
        await api.follow("/api/v1/pods", {"watch": "true"}, silence=5, opened=lambda: None, take=lines.append)
    finally:
        await api.close()
    assert codings == ["identity"]
    assert lines == [b'{"type": "BOOKMARK"}']
