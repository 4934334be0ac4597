"""Keeping a copy of all objects of one kind: list in pages, then watch, and list again when in doubt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from kinema_observer.adapters.kubernetes import Api, Status, fault
from kinema_observer.errors import (
    ApiDeniedError,
    ApiError,
    ApiProtocolError,
    ApiSilentError,
    ApiUnavailableError,
    UnreadableListError,
)
from kinema_observer.logic.drivers import Seen, identity
from kinema_observer.logic.kubernetes import Page, read, read_page

PAGE: Final = 500
_WATCH_SECONDS: Final = (240, 300)
"""The server is asked to end a watch after a time between these, so that watches do not all begin anew at once."""
_HEALTHY_SECONDS: Final = 60.0
_ATTEMPTS: Final = 3
"""Watches that fail one after the other before the kind is listed again."""


@dataclass(frozen=True)
class Resource:
    """One kind in the API. Without an `essential` one nothing can be decided; others may be missing or denied."""

    kind: str
    path: str
    essential: bool = True
    without: str = "pods that depend on what these say do not move"
    """What follows where one that is not essential is missing."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for what, in real seconds."""

    bookmark: float = 60.0
    """The server's bookmark period; a watch that is silent for two of them may be dead."""
    doubt: float = 5.0
    """How long a list after such a silence may take before the state counts as unknown."""
    shortest: float = 0.5
    longest: float = 30.0
    """First and last bound of the back-off."""
    denied: float = 60.0
    """How long to leave alone what is denied."""
    missing: float = 300.0
    """How long to leave alone what is not served."""


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


class BackOff:
    """Full-jitter back-off: each wait is drawn between nothing and a bound that doubles."""

    def __init__(self, patience: Patience, chance: random.Random) -> None:
        self._patience = patience
        self._chance = chance
        self._bound = patience.shortest

    def reset(self) -> None:
        """Begin with short waits again."""
        self._bound = self._patience.shortest

    def next(self, at_least: float | None = None) -> float:
        """Seconds to wait now; never less than what the server asked for, nor a tenth of the bound."""
        wait = self._bound * (0.1 + 0.9 * self._chance.random())
        self._bound = min(self._patience.longest, self._bound * 2)
        return max(wait, at_least or 0.0)


class Reflector:
    """The objects of one kind, and what changed since they were last asked for.

    `version` is the resource version at which a list would show exactly this copy; `problem` says why the copy may be
    out of date, None when it follows the server; `off` that there is nothing to follow: the kind is not essential, and
    not served or denied.
    """

    def __init__(self, resource: Resource, api: Api, *, patience: Patience, chance: random.Random) -> None:
        self.resource = resource
        self.listed = False
        self.off = False
        self.problem: str | None = "not listed yet"
        self.version = ""
        self._api = api
        self._patience = patience
        self._chance = chance
        self._back_off = BackOff(patience, chance)
        self._doubt: asyncio.TimerHandle | None = None
        self._items: dict[str, Seen] = {}
        self._changes: dict[tuple[str, str], Seen | None] = {}
        self._log = structlog.get_logger().bind(kind=resource.kind)

    def contents(self) -> Iterable[Seen]:
        """All objects as last seen."""
        return self._items.values()

    def get(self, key: str) -> Seen | None:
        """The object of that key as last seen."""
        return self._items.get(key)

    def drain(self) -> dict[tuple[str, str], Seen | None]:
        """What changed since the last call."""
        changes, self._changes = self._changes, {}
        return changes

    async def run(self) -> None:
        """Follow the server, for ever."""
        while True:
            try:
                changes = await self._list()
                if self._doubt is not None and changes:
                    self._log.warning("a watch had kept changes back", changes=changes)
                self._says(None)
                await self._follow()
            except ApiSilentError as silent:
                self._verify(silent)
            except ApiError as error:
                await asyncio.sleep(await self._after(error))

    def _verify(self, silent: ApiSilentError) -> None:
        """Let the list that comes next tell whether the watch was dead: only while that takes long is it a problem.

        An API server sends no bookmarks of a kind on which nothing has happened since it started.
        """
        self._doubt = asyncio.get_running_loop().call_later(self._patience.doubt, self._says, str(silent))

    async def _after(self, error: ApiError) -> float:
        """Take note of a failure and give the seconds to wait before listing again.

        An essential kind is never left out: without it the state would say that all its objects are gone.
        """
        if not self.resource.essential and await self._api.is_left_out(self.resource.path, error):
            self._turn_off(str(error))
            return self._patience.missing
        self._says(str(error))
        if isinstance(error, ApiDeniedError):
            return self._patience.denied
        return self._back_off.next(error.retry_after)

    def _says(self, problem: str | None) -> None:
        """Log a problem once when it comes, and once when it is over."""
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None
        if problem is not None and (self.problem is None or not self.listed) and problem != self.problem:
            self._log.warning("kind cannot be followed", problem=problem)
        elif problem is None and self.listed and self.problem is not None:
            self._log.info("kind is followed", objects=len(self._items))
        self.problem = problem
        self.off = False if problem is None else self.off

    def _turn_off(self, reason: str) -> None:
        if not self.off:
            self._log.info("kind is left out", reason=reason)
        self.off = True
        self._replace({})

    # --- list

    async def _list(self) -> int:
        """Read all pages, and say how many objects were not as known.

        They are one consistent state; when the server forgets it half-way, begin again.
        """
        found: dict[str, Seen] = {}
        token: str | None = None
        while True:
            parameters = {"limit": str(PAGE)} | ({"continue": token} if token else {})
            page = self._page(await self._api.get(self.resource.path, parameters))
            found.update((reading.key, reading.item) for reading in page.readings if reading.item is not None)
            token = page.more
            if not token:
                break
        changes = self._replace(found)
        self.version = page.resource_version
        self.listed = True
        return changes

    def _page(self, body: bytes) -> Page:
        try:
            return read_page(self.resource.kind, body)
        except UnreadableListError as error:
            raise ApiProtocolError(self.resource.path, str(error)) from error

    def _replace(self, found: dict[str, Seen]) -> int:
        """Take a full list as the new contents; only what differs counts as changed, and how much is returned."""
        gone = [key for key in self._items if key not in found]
        return sum(self._set(key, None) for key in gone) + sum(self._set(key, item) for key, item in found.items())

    def _set(self, key: str, item: Seen | None) -> bool:
        """Take one object as it is now, None when it is gone; whether it was known differently."""
        old = self._items.get(key)
        if old == item:
            return False
        # An object that was readable and is not any more (or the other way round) changes its identity.
        if old is not None and (item is None or identity(item) != identity(old)):
            self._changes[identity(old)] = None
        if item is None:
            del self._items[key]
        else:
            self._items[key] = item
            self._changes[identity(item)] = item
        return True

    # --- watch

    async def _follow(self) -> None:
        """Watch, and watch again from where it ended; an error that is raised means that a list is needed."""
        failures = 0
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._watch()
                error = None
            except ApiUnavailableError as failed:
                error = failed
            lived = asyncio.get_running_loop().time() - began
            if lived >= _HEALTHY_SECONDS:
                self._back_off.reset()
                failures = 0
            if error is not None:
                failures += 1
                if failures >= _ATTEMPTS:
                    raise error
                self._says(str(error))
                await asyncio.sleep(self._back_off.next(error.retry_after))
            elif lived < self._patience.shortest:
                await asyncio.sleep(self._back_off.next())

    async def _watch(self) -> None:
        """One watch from the version we have, until the server ends it.

        Raises:
            ApiUnavailableError: it broke off: watch again.
            ApiSilentError, ApiExpiredError, ApiProtocolError: list again.
        """
        parameters = {
            "watch": "true",
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._chance.randint(*_WATCH_SECONDS)),
        }
        await self._api.follow(
            self.resource.path,
            parameters,
            silence=2 * self._patience.bookmark,
            opened=lambda: self._says(None),
            take=self._take,
        )

    def _take(self, line: bytes) -> None:
        try:
            event = msgspec.json.decode(line, type=_WatchEvent)
            if event.type == "BOOKMARK":
                self.version = msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version
                return
            if event.type == "ERROR":
                code = msgspec.json.decode(event.object, type=Status).code or 500
                raise fault(self.resource.path, code, bytes(event.object), {})
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiProtocolError(self.resource.path, f"a watch event cannot be read: {error}") from error
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise ApiProtocolError(self.resource.path, f"watch event of unknown type {event.type!r}")
        reading = read(self.resource.kind, event.object)
        self._set(reading.key, None if event.type == "DELETED" else reading.item)
        self.version = reading.resource_version or self.version
