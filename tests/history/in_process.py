"""The simulated API server and cloud behind the product's own clients, without sockets and without waiting.

The rescheduler's adapters ask as they always do; what they ask is answered by the simulator's own handlers at once.
All time is the simulated cluster's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from aiohttp import web

from kinema_kubernetes.client import Client
from kinema_kubernetes.errors import error_of
from kinema_kubernetes.objects import Json
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.providers.sim import SimProvider
from kinema_rescheduler.providers.sim import _error as _cloud_error
from kinema_sim.api.errors import ApiError
from kinema_sim.api.listing import Lister
from kinema_sim.api.metrics import MetricsApi
from kinema_sim.cloud.provider import CloudError
from kinema_sim.cluster import Cluster as SimCluster
from kinema_sim.front.cloud import CloudFront
from kinema_sim.front.kube import KubeFront
from kinema_sim.front.watch import Watches

Handler = Callable[[Any], Awaitable[web.StreamResponse]]


class SimClock:
    """The simulated cluster's time; whoever sleeps is woken when that has passed."""

    def __init__(self, sim: SimCluster) -> None:
        self._loop = sim.loop

    def now(self) -> datetime:
        """The virtual time now."""
        return datetime.fromtimestamp(self._loop.now_ms / 1000, UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        woken = asyncio.get_running_loop().create_future()
        self._loop.after(round(seconds * 1000), lambda: None if woken.done() else woken.set_result(None))
        await woken


class _Request:
    """As much of an HTTP request as the simulator's handlers look at."""

    def __init__(self, method: str, path: str, body: object, content_type: str, query: dict[str, str]) -> None:
        split = urlsplit(path)
        self.method = method
        self.path = unquote(split.path)
        self.query = {**dict(parse_qsl(split.query)), **query}
        self.content_type = content_type
        self.match_info: dict[str, str] = {}
        self._body = body

    async def read(self) -> bytes:
        """The body's bytes."""
        return b"" if self._body is None else msgspec.json.encode(self._body)


class SimApi(Client):
    """The product's client; the simulator answers."""

    def __init__(self, sim: SimCluster, fence: Fence) -> None:
        self._guard = fence.check
        self._clock = SimClock(sim)
        self._front = KubeFront(
            api=sim.api,
            lister=Lister(sim.store),
            watches=Watches(sim.store, sim.faults),
            metrics=MetricsApi(sim.store, sim.meter),
        )

    async def close(self) -> None:
        """There is nothing to close."""

    async def pause(self, seconds: float) -> None:
        """Wait in virtual time."""
        await self._clock.sleep(seconds)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        content_type: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Ask the simulator's handlers."""
        if method != "GET":
            self._guard()
        request = _Request(method, path, body, content_type, dict(query or {}))
        try:
            answer = await self._front.handle(request)  # type: ignore[arg-type]  # as much of one as is looked at
        except ApiError as error:
            raise error_of(f"{method} {path}", error.code, msgspec.json.encode(error.status()), {}) from error
        return _json(answer)


class _Routes:
    """Where handlers of the cloud are installed; finds the one for a request."""

    def __init__(self) -> None:
        self.found: list[tuple[str, list[str], Handler]] = []

    @property
    def router(self) -> _Routes:
        """As an application has it."""
        return self

    def add_get(self, path: str, handler: Handler) -> None:
        """Install a handler."""
        self.found.append(("GET", path.split("/"), handler))

    def add_post(self, path: str, handler: Handler) -> None:
        """Install a handler."""
        self.found.append(("POST", path.split("/"), handler))

    def add_delete(self, path: str, handler: Handler) -> None:
        """Install a handler."""
        self.found.append(("DELETE", path.split("/"), handler))

    async def answer(self, request: _Request) -> web.StreamResponse:
        """What the handler for a request says."""
        parts = request.path.split("/")
        for method, pattern, handler in self.found:
            pairs = list(zip(pattern, parts, strict=False))
            same = all(want == have or want.startswith("{") for want, have in pairs)
            if method == request.method and len(pattern) == len(parts) and same:
                request.match_info = {want[1:-1]: have for want, have in pairs if want.startswith("{")}
                return await handler(request)
        raise AssertionError(f"the cloud knows no {request.method} {request.path}")


class InProcessProvider(SimProvider):
    """The product's provider of simulated nodes; the simulated cloud answers."""

    def __init__(self, sim: SimCluster, fence: Fence) -> None:
        self._fence = fence
        self._routes = _Routes()
        CloudFront(sim.cloud).install(self._routes)  # type: ignore[arg-type]  # takes routes as an application does

    async def close(self) -> None:
        """There is nothing to close."""

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        if method != "GET":
            self._fence.check()
        try:
            answer = await self._routes.answer(_Request(method, path, body, "", {}))
        except CloudError as error:
            raise _cloud_error(str(error.kind), error.message) from error
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        return answer.body


def _json(answer: web.StreamResponse) -> Json:
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    found: Json = msgspec.json.decode(answer.body)
    return found
