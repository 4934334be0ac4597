"""A proxy before the API server that makes faults: refusals, lost replies, watches that break off or fall silent.

The faults are those of the simulated API server (`kinema_sim.api.faults`), so that one test can meet them on both.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import aiohttp
from aiohttp import web
from tests.controlplane.access import Access

from kinema_sim.api.errors import ApiError
from kinema_sim.api.faults import Fault, Faults, FaultType

_HOP: Final = frozenset({"connection", "host", "keep-alive", "transfer-encoding", "content-length", "accept-encoding"})
"""Headers that belong to one connection and are not passed on."""
_MAX_BODY: Final = 8 * 1024**2


@dataclass(eq=False)
class _Stream:
    path: str
    transport: asyncio.Transport | None
    silent: bool = False


class FaultyProxy:
    """Passes requests on to an API server, and what it answers back, except where a fault is in force."""

    def __init__(self, server: Access) -> None:
        self.faults = Faults()
        self._server = server
        self._streams: list[_Stream] = []
        self.answered: list[tuple[str, str, int]] = []
        """Method, path with query, and the server's status of every request that was passed on."""
        self.url = ""

    def through(self, access: Access) -> Access:
        """The same access, through the proxy."""
        return replace(access, url=self.url)

    def refuse(self, path: str, status: int, *, method: str = "", count: int = 1) -> None:
        """Answer the next requests whose path and query match with an error instead of passing them on."""
        self.faults.add(Fault(FaultType.API, method, re.compile(path), status, count))

    def lose_reply(self, path: str, *, method: str = "", count: int = 1) -> None:
        """Pass on the next matching requests, but break the connection instead of answering."""
        self.faults.add(Fault(FaultType.LOSE_REPLY, method, re.compile(path), 0, count))

    @property
    def pending(self) -> bool:
        """Whether a refusal or a lost reply still waits for the request that it is meant for."""
        return any(one.count > 0 and one.type is not FaultType.WATCH_SILENT for one in self.faults.active)

    def cut(self, path: str) -> int:
        """Break matching watches that are open; give how many there were."""
        found = [stream for stream in self._streams if re.search(path, stream.path)]
        for stream in found:
            if stream.transport is not None:
                stream.transport.abort()
        return len(found)

    def silence(self, path: str, *, count: int = 0) -> int:
        """Let matching open watches, and the next `count` new ones, say nothing more; give how many were open."""
        found = [stream for stream in self._streams if re.search(path, stream.path)]
        for stream in found:
            stream.silent = True
        self.faults.add(Fault(FaultType.WATCH_SILENT, "GET", re.compile(path), 0, count))
        return len(found)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultyProxy]:
        """Listen on a free loopback port within the block."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        connector = aiohttp.TCPConnector(limit=0, ssl=self._server.tls())
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with aiohttp.ClientSession(self._server.url, connector=connector, timeout=timeout) as self._session:
                yield self
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        kinds = (FaultType.API, FaultType.LOSE_REPLY)
        fault = self.faults.take(kinds, request.method, request.path_qs)
        if fault is not None and fault.type is FaultType.API:
            return web.json_response(ApiError(fault.status, "injected fault").status(), status=fault.status)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        body = await request.read()
        try:
            async with self._session.request(
                request.method, request.rel_url, data=body or None, headers=headers
            ) as answer:
                self.answered.append((request.method, request.path_qs, answer.status))
                if "watch" in request.query and answer.status == 200:
                    return await self._stream(request, answer)
                whole = await answer.read()
        except aiohttp.ClientError:
            return _broken(request)
        if fault is not None:
            return _broken(request)
        passed = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
        return web.Response(body=whole, status=answer.status, headers=passed)

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": answer.headers.get("Content-Type", "application/json")})
        await response.prepare(request)
        stream = _Stream(request.path_qs, request.transport)
        stream.silent = self.faults.take((FaultType.WATCH_SILENT,), "GET", request.path_qs) is not None
        self._streams.append(stream)
        try:
            async for chunk in answer.content.iter_any():
                if not stream.silent:
                    await response.write(chunk)
        except (aiohttp.ClientError, ConnectionResetError):
            return _broken(request)
        finally:
            self._streams.remove(stream)
        return response


def _broken(request: web.Request) -> web.Response:
    """What a client sees when the other end is gone."""
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=502)
