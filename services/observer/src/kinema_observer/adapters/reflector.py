"""Keeping a copy of all objects of one kind: list in pages, then watch, and list again when in doubt."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import structlog

from kinema_kubernetes.backoff import BackOff
from kinema_kubernetes.client import Client
from kinema_kubernetes.errors import (
    DeniedError,
    KubernetesError,
    ProtocolError,
    SilentError,
    UnavailableError,
)
from kinema_kubernetes.watch import Window, pages, watch
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.drivers import Seen, identity
from kinema_observer.logic.kubernetes import Page, read, read_page

_WATCH_SECONDS: Final = (240, 300)
"""The server is asked to end a watch after a time between these, so that watches do not all begin again at once."""
_HEALTHY_SECONDS: Final = 60.0
_ATTEMPTS: Final = 3
"""Watches that fail one after the other before the kind is listed again."""

_CONFIRMED: Final = frozenset({"Node", "Pod"})
_SUDDEN_SHARE: Final = 0.1
"""Share of the known objects of these kinds that a single list may lack; one object it may lack in any case."""


@dataclass(frozen=True)
class Resource:
    """One kind in the API. Without an `essential` one nothing can be decided; others may be missing or denied."""

    kind: str
    path: str
    essential: bool = True
    without: str = "pods that depend on objects of this kind do not move"
    """What follows where one that is not essential is missing."""


@dataclass(frozen=True)
class Patience:
    """Times to wait, in real seconds."""

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


class Reflector:
    """The objects of one kind, and what changed since they were last asked for.

    `version` is the resource version at which a list would show exactly this copy; `heard` the monotonic time of the
    server's last word; `problem` says why the copy may be out of date, None when it follows the server; `off` that
    there is nothing to follow: the kind is not essential, and not served or denied.
    """

    def __init__(self, resource: Resource, client: Client, *, patience: Patience, chance: random.Random) -> None:
        self.resource = resource
        self.listed = False
        self.off = False
        self.problem: str | None = "not listed yet"
        self.version = ""
        self.heard = time.monotonic()
        self._client = client
        self._patience = patience
        self._chance = chance
        self._back_off = BackOff(shortest=patience.shortest, longest=patience.longest, chance=chance)
        self._doubt: asyncio.TimerHandle | None = None
        self._items: dict[str, Seen] = {}
        self._doubted: Set[str] = frozenset()
        """Objects that were missing from the last list, and are kept until another one confirms it."""
        self._changes: dict[tuple[str, str], Seen | None] = {}
        self._log = structlog.get_logger().bind(kind=resource.kind)

    def contents(self) -> Iterable[Seen]:
        """All objects as last seen."""
        return self._items.values()

    def get(self, key: str) -> Seen | None:
        """Return the object of that key as last seen."""
        return self._items.get(key)

    def drain(self) -> dict[tuple[str, str], Seen | None]:
        """Return what changed since the last call."""
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
            except SilentError as silent:
                self._verify(silent)
            except KubernetesError as error:
                await asyncio.sleep(await self._after(error))

    def _verify(self, silent: SilentError) -> None:
        """Let the next list show whether the watch was dead; report a problem only if that list takes long.

        An API server sends no bookmarks of a kind on which nothing has happened since it started.
        """
        self._doubt = asyncio.get_running_loop().call_later(self._patience.doubt, self._says, str(silent))

    async def _after(self, error: KubernetesError) -> float:
        """Take note of a failure and give the seconds to wait before listing again.

        An essential kind is never left out: without it the state would say that all its objects are gone.
        """
        if not self.resource.essential and await self._client.is_left_out(self.resource.path, error):
            self._turn_off(str(error))
            return self._patience.missing
        self._says(str(error))
        if isinstance(error, DeniedError):
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
        version = ""
        async for page in pages(self._client, self.resource.path, self._page):
            found.update((reading.key, reading.item) for reading in page.readings if reading.item is not None)
            version = page.resource_version
        self._confirm(found)
        changes = self._replace(found)
        self._bookmark(version)
        self.listed = True
        return changes

    def _confirm(self, found: Mapping[str, Seen]) -> None:
        """Believe that many pods or nodes are gone only if two lists in a row show it.

        Raises:
            ProtocolError: it is the first that does.
        """
        gone = self._items.keys() - found.keys()
        sudden = self.resource.kind in _CONFIRMED and len(gone) > max(1, _SUDDEN_SHARE * len(self._items))
        doubted, self._doubted = self._doubted, gone if sudden else set()
        if sudden and not gone <= doubted:
            detail = f"{len(gone)} of {len(self._items)} objects are missing from a list: another one must confirm it"
            raise ProtocolError(f"GET {self.resource.path}", detail)

    def _page(self, body: bytes) -> Page:
        try:
            return read_page(self.resource.kind, body)
        except UnreadableListError as error:
            raise ProtocolError(f"GET {self.resource.path}", str(error)) from error

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
            except UnavailableError as failed:
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
        """Watch once from the known version on, until the server ends it; raises as `watch` does."""
        window = Window(
            self.resource.path,
            self.version,
            seconds=self._chance.randint(*_WATCH_SECONDS),
            silence=2 * self._patience.bookmark,
        )
        await watch(
            self._client,
            window,
            opened=partial(self._says, None),
            bookmark=self._bookmark,
            take=self._take,
        )

    def _bookmark(self, version: str) -> None:
        self.version, self.heard = version, time.monotonic()

    def _take(self, change: str, item: msgspec.Raw) -> None:
        reading = read(self.resource.kind, item)
        self._set(reading.key, None if change == "DELETED" else reading.item)
        self._bookmark(reading.resource_version or self.version)
