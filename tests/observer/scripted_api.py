"""A small API server on loopback that answers as a test's script says: the place where faults are made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from kinema_kubernetes.client import Client, connect
from kinema_observer.adapters.reflector import Patience, Reflector

JSON = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUICK = Patience(bookmark=0.25, doubt=0.05, shortest=0.01, longest=0.03, denied=0.02, missing=0.02)


class ScriptedApi:
    """Answers lists and watches from two scripts; when one has ended, its last answer is given again."""

    def __init__(self) -> None:
        self.lists: list[Answer] = []
        self.watches: list[Answer] = []
        self.discovery: dict[str, JSON] = {}
        """Answers of discovery, by path."""
        self.asked: list[tuple[str, dict[str, str], str]] = []
        """Path, parameters and authorization of every request."""
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening and cut all connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    def asked_watches(self) -> list[dict[str, str]]:
        """Parameters of the watches so far."""
        return [parameters for _, parameters, _ in self.asked if "watch" in parameters]

    def asked_lists(self) -> list[dict[str, str]]:
        """Parameters of the lists so far."""
        return [parameters for _, parameters, _ in self.asked if "watch" not in parameters]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, dict(request.query), request.headers.get("Authorization", "")))
        if request.path in self.discovery:
            return web.json_response(self.discovery[request.path])
        script = self.watches if "watch" in request.query else self.lists
        answer = script.pop(0) if len(script) > 1 else script[0]
        return await answer(request)


def page(*items: JSON, version: str = "10", more: str = "") -> Answer:
    """One page of a list."""

    async def answer(_: web.Request) -> web.StreamResponse:
        meta = {"resourceVersion": version, **({"continue": more} if more else {})}
        return web.json_response({"kind": "List", "metadata": meta, "items": list(items)})

    return answer


def status(code: int, message: str = "no", *, retry_after: str = "") -> Answer:
    """An error."""

    async def answer(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "message": message, "reason": "NotFound" if code == 404 else ""}
        return web.json_response(body, status=code, headers={"Retry-After": retry_after} if retry_after else {})

    return answer


def text(body: str, code: int = 200) -> Answer:
    """A body that is neither list nor `Status`."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body, status=code)

    return answer


def stream(*lines: JSON | str, then: str = "wait") -> Answer:
    """A watch that sends these lines, and then waits in silence, ends (`end`) or is cut within a line (`cut`)."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")
        if then == "wait":
            await asyncio.sleep(30)
        if then == "cut" and request.transport is not None:
            await response.write(b'{"type": "MODIFIED", "object": {"metadata"')
            request.transport.close()
        return response

    return answer


def change(kind: str, item: JSON, version: str) -> JSON:
    """A watch event."""
    return {"type": kind, "object": {**item, "metadata": {**item["metadata"], "resourceVersion": version}}}


def bookmark(version: str) -> JSON:
    """A bookmark."""
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version}}}


def broken(code: int) -> JSON:
    """An error inside a watch."""
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "too old"}}


def kubeconfig(path: Path, url: str, token: str = "t0") -> str:
    """A kubeconfig for that server."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return str(path)


async def connected(server: ScriptedApi, directory: Path, *, timeout_seconds: float = 20.0) -> Client:
    """A connection to the scripted server."""
    return await connect(kubeconfig(directory / "kubeconfig", server.url), timeout_seconds=timeout_seconds)


def keys(reflector: Reflector) -> Iterator[str]:
    """Keys of what the reflector holds, sorted."""
    return iter(sorted(item.key for item in reflector.contents()))


@asynccontextmanager
async def silent() -> AsyncIterator[ScriptedApi]:
    """Serve until the block ends, in silence on watches unless told otherwise."""
    scripted = ScriptedApi()
    scripted.lists = [page()]
    scripted.watches = [stream()]
    await scripted.start()
    yield scripted
    await scripted.stop()
