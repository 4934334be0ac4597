"""Lists in pages and watches of one kind: what a copy of all its objects is kept up to date by."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from kinema_kubernetes.client import PAGE, Client
from kinema_kubernetes.errors import ExpiredError, ProtocolError, Status, error_of

_ATTEMPTS: Final = 3
"""Lists of a kind of which the server may forget the rest."""


class Page(Protocol):
    """One page of a list as its reader returns it."""

    @property
    def more(self) -> str | None:
        """Token of the next page."""


P = TypeVar("P", bound=Page)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Bookmark(msgspec.Struct):
    metadata: _Metadata


@dataclass(frozen=True)
class Window:
    """A watch of one collection from one version on."""

    path: str
    version: str
    seconds: int
    """After which the server is asked to end it."""
    silence: float
    """Seconds without event or bookmark after which it may be dead."""


async def pages(client: Client, path: str, read: Callable[[bytes], P]) -> AsyncIterator[P]:
    """Yield the pages of one list: together one consistent state.

    Raises:
        ExpiredError: the server forgot the rest; begin again, nothing of the first pages counts. KubernetesError.
    """
    token: str | None = None
    while True:
        query = {"limit": str(PAGE)} | ({"continue": token} if token else {})
        page = read((await client.read(path, **query)).body)
        yield page
        token = page.more
        if not token:
            return


async def consistent(client: Client, path: str, read: Callable[[bytes], P]) -> list[P]:
    """Return all pages of one list, and begin again where the server forgot the rest; raises KubernetesError."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return [page async for page in pages(client, path, read)]
        except ExpiredError:
            continue
    return [page async for page in pages(client, path, read)]


async def watch(
    client: Client,
    window: Window,
    *,
    opened: Callable[[], None],
    bookmark: Callable[[str], None],
    take: Callable[[str, msgspec.Raw], None],
) -> None:
    """Watch until the server ends it.

    Args:
        client: the connection.
        window: where from and for how long.
        opened: is called once the server has accepted it.
        bookmark: is called with a version up to which nothing is missing.
        take: is called with `ADDED`, `MODIFIED` or `DELETED` and the object.

    Raises:
        UnavailableError: it broke off: watch again from the last version.
        SilentError, ExpiredError, ProtocolError: list again. KubernetesError.
    """
    subject = f"GET {window.path}"

    def line(text: bytes) -> None:
        try:
            event = msgspec.json.decode(text, type=_Event)
            if event.type == "BOOKMARK":
                bookmark(msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version)
                return
            if event.type == "ERROR":
                code = msgspec.json.decode(event.object, type=Status).code or 500
                raise error_of(subject, code, bytes(event.object), {})
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProtocolError(subject, f"a watch event cannot be read: {error}") from error
        if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
            raise ProtocolError(subject, f"watch event of unknown type {event.type!r}")
        take(event.type, event.object)

    query = {
        "watch": "true",
        "resourceVersion": window.version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(window.seconds),
    }
    await client.follow(window.path, query, silence=window.silence, opened=opened, take=line)
