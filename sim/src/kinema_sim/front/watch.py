"""Watches: a stream of changes from a version on, with bookmarks, until its time is up."""

import asyncio
import contextlib
import re
from collections import deque
from dataclasses import dataclass

import msgspec
from aiohttp import web

from kinema_sim.api.errors import ApiError
from kinema_sim.api.faults import Faults, FaultType
from kinema_sim.api.listing import Query
from kinema_sim.engine.kinds import Kind
from kinema_sim.engine.objects import Obj
from kinema_sim.engine.selectors import Predicate
from kinema_sim.engine.store import Change, Store
from kinema_sim.front.replies import flag, number

BOOKMARK_SECONDS = 5.0
"""Wall seconds between bookmarks of an idle watch: shorter than upstream's minute, since virtual time runs faster."""

_DEFAULT_TIMEOUT_SECONDS = 1800
_MAX_BACKLOG = 50_000


@dataclass(eq=False)
class _Stream:
    path: str
    kind: Kind
    keep: Predicate
    pending: deque[Change]
    wake: asyncio.Event
    silent: bool = False
    closing: bool = False
    broken: bool = False

    def offer(self, change: Change) -> None:
        if change.kind is self.kind and not self.silent:
            self.pending.append(change)
            self.closing = self.closing or len(self.pending) > _MAX_BACKLOG
            self.wake.set()

    def take(self) -> list[bytes]:
        """Give the events of the changes so far."""
        events = [event for change in self.pending if (event := as_event(change, self.keep)) is not None]
        self.pending.clear()
        return [_line(event) for event in events]

    def close(self) -> None:
        self.closing = True
        self.wake.set()


class Watches:
    """All open watches of the server."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults
        self._open: list[_Stream] = []
        store.subscribe(self._spread)

    def _spread(self, change: Change) -> None:
        for stream in self._open:
            stream.offer(change)

    def end(self) -> None:
        """End all open watches properly."""
        for stream in self._open:
            stream.close()

    def end_silent(self) -> None:
        """End the watches that say nothing any more."""
        for stream in self._open:
            if stream.silent:
                stream.close()

    def cut(self, path: re.Pattern[str]) -> None:
        """Break the connections of open watches whose path matches."""
        for stream in self._open:
            if path.search(stream.path):
                stream.broken = True
                stream.close()

    def silence(self, path: re.Pattern[str]) -> None:
        """Make open watches whose path matches say nothing for the rest of their lives."""
        for stream in self._open:
            if path.search(stream.path):
                stream.silent = True
                stream.pending.clear()

    async def serve(self, request: web.Request, kind: Kind, query: Query) -> web.StreamResponse:
        """Answer a watch request.

        Raises:
            ApiError: 400 for unreadable parameters, 504 for a version that does not exist yet.
        """
        stream = _Stream(request.path_qs, kind, query.predicate(), deque(), asyncio.Event())
        seconds = number(request, "timeoutSeconds", _DEFAULT_TIMEOUT_SECONDS)
        first = self._opening(request, stream)
        stream.silent = self._faults.take((FaultType.WATCH_SILENT,), "GET", request.path_qs) is not None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        self._open.append(stream)
        try:
            await response.prepare(request)
            with contextlib.suppress(ConnectionResetError):  # the client has gone: nothing is left to say
                await self._talk(request, response, stream=stream, first=first, seconds=seconds)
        finally:
            self._open.remove(stream)
        return response

    async def _talk(
        self, request: web.Request, response: web.StreamResponse, *, stream: _Stream, first: list[Obj], seconds: int
    ) -> None:
        clock = asyncio.get_running_loop()
        end = clock.time() + seconds
        bookmarks = flag(request, "allowWatchBookmarks")
        if not stream.silent:
            await response.write(b"".join(_line(event) for event in first))
        if any(event["type"] == "ERROR" for event in first):
            return
        spoke = clock.time()
        while not stream.closing and (stream.silent or clock.time() < end):
            pause = spoke + BOOKMARK_SECONDS - clock.time()
            with contextlib.suppress(TimeoutError):  # a quiet time: say so with a bookmark
                await asyncio.wait_for(stream.wake.wait(), pause if stream.silent else min(pause, end - clock.time()))
            stream.wake.clear()
            lines = stream.take()
            is_due = clock.time() - spoke >= BOOKMARK_SECONDS
            if is_due and not lines and bookmarks and not stream.silent:
                lines.append(_line(self._bookmark(stream.kind)))
            if lines:
                await response.write(b"".join(lines))
            if lines or is_due:
                spoke = clock.time()
        if stream.broken and request.transport is not None:
            request.transport.abort()

    def _opening(self, request: web.Request, stream: _Stream) -> list[Obj]:
        text = request.query.get("resourceVersion", "")
        if not text.isdigit() and text:
            raise ApiError(400, f"the parameter resourceVersion is no version: {text!r}")
        version = int(text or "0")
        if version > self._store.version:
            details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
            raise ApiError(504, f"Too large resource version: {version}", details=details)
        wants_initial = request.query.get("sendInitialEvents", "")
        if wants_initial == "true" or (version == 0 and wants_initial != "false"):
            return self._initial(stream, marked=wants_initial == "true")
        changes = self._store.changes_since(stream.kind, version)
        if changes is None:
            oldest = f"too old resource version: {version} ({self._store.version})"
            return [{"type": "ERROR", "object": ApiError(410, oldest).status()}]
        return [event for change in changes if (event := as_event(change, stream.keep)) is not None]

    def _initial(self, stream: _Stream, *, marked: bool) -> list[Obj]:
        objects = [obj for obj in self._store.sorted(stream.kind) if stream.keep(obj)]
        events: list[Obj] = [{"type": "ADDED", "object": obj} for obj in objects]
        if marked:
            end = self._bookmark(stream.kind)
            end["object"]["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
            events.append(end)
        return events

    def _bookmark(self, kind: Kind) -> Obj:
        metadata = {"resourceVersion": str(self._store.version), "creationTimestamp": None}
        return {
            "type": "BOOKMARK",
            "object": {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata},
        }


def as_event(change: Change, keep: Predicate) -> Obj | None:
    """Show a change to a watch with a selector: what no longer matches is DELETED, what begins to match ADDED."""
    was = change.old is not None and keep(change.old)
    now = change.type != "DELETED" and keep(change.new)
    if not was and not now:
        return None
    word = "ADDED" if not was else "MODIFIED" if now else "DELETED"
    return {"type": word, "object": change.new}


def _line(event: Obj) -> bytes:
    return msgspec.json.encode(event) + b"\n"
