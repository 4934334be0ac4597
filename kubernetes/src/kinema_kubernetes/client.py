"""Requests to a Kubernetes API server.

Bodies are plain JSON or bytes: models of all of Kubernetes take a hundred times the time and memory of what is needed
here, and refuse whole answers over one odd field.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar

import aiohttp
import msgspec
from zlib_ng import zlib_ng

from kinema_kubernetes.credentials import Access, load
from kinema_kubernetes.errors import (
    ConflictError,
    DeniedError,
    KubernetesError,
    NotFoundError,
    ProtocolError,
    SetupError,
    SilentError,
    UnavailableError,
    error_of,
)
from kinema_kubernetes.objects import Json

T = TypeVar("T")

FIELD_MANAGER: Final = "kinema"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
"""Server-side apply of objects that belong to Kinema alone: whatever another manager set in them is set back."""
PAGE: Final = 500
"""Objects of a list that are asked for at once."""
REQUEST_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 10.0
_JSON: Final = "application/json"
_TRIES: Final = 5
"""How often a read-change-write starts over when another client wrote in between."""
_LONGEST_LINE: Final = 32 * 1024 * 1024
"""Bytes of one watch event that are taken; etcd refuses objects above a few MiB."""
_LONGEST_ERROR: Final = 64 * 1024
_GZIP: Final = zlib_ng.MAX_WBITS | 16
"""What zlib takes for a gzip header."""
_LARGEST_ROOM: Final = 2**26
"""Bytes that an answer is given at once, whatever it says it needs; a page of a list has some MB."""
_NARROW: Final = 2**18
_WIDE: Final = 2**30
"""Bytes of an answer that may wait to be taken: of a watch few, as it never ends; of any other all, so that it does.

Twice as many wait at most; aiohttp cannot count further.
"""


class Answer(NamedTuple):
    """Body and date of an answer; the date as the server's clock and HTTP write it, empty without one."""

    body: bytes
    date: str


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: list[_Resource]


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct):
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    groups: list[_Group]


class Client:
    """A connection to one API server."""

    def __init__(
        self,
        access: Access,
        *,
        kubeconfig: str,
        context: str,
        timeout_seconds: float = REQUEST_SECONDS,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        """Use `connect`. `guard` is called before every write and raises where nothing may be written."""
        self.on_answer: Callable[[str, int], None] = lambda _verb, _code: None
        """Is called with the method of each request that was sent and the status of its answer; 0 where none came."""
        self._access = access
        self._kubeconfig = kubeconfig
        self._context = context
        self._seconds = timeout_seconds
        self._guard = guard
        self._renewing = asyncio.Lock()
        self._ends = self._now() + access.lifetime
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            headers={"Accept": _JSON},
            auto_decompress=False,  # it would unpack in pieces, at twice the cost
        )

    @property
    def server(self) -> str:
        """The API server's address."""
        return self._access.server

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def pause(self, seconds: float) -> None:
        """Give the controllers time to act, in the cluster's own time."""
        await asyncio.sleep(seconds)

    # --- objects

    async def get(self, path: str, **query: str) -> Json:
        """Read an object or a list."""
        return await self.request("GET", path, query=query)

    async def items(self, path: str, **query: str) -> list[Json]:
        """Read a list in pages."""
        found: list[Json] = []
        token = ""
        while True:
            page = await self.get(path, limit=str(PAGE), **query, **({"continue": token} if token else {}))
            found += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return found

    async def create(self, path: str, body: Json, *, manager: str = FIELD_MANAGER) -> Json:
        """Create an object or a subresource; an empty `manager` stands for none."""
        query = {"fieldManager": manager} if manager else {}
        return await self.request("POST", path, body=body, content_type=_JSON, query=query)

    async def delete(self, path: str, uid: str, *, version: str = "") -> None:
        """Delete an object if it is the one with this uid, and as it was at this resource version."""
        conditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
        await self.request("DELETE", path, body={"preconditions": conditions}, content_type=_JSON)

    async def patch(self, path: str, body: Json, content_type: str = MERGE) -> Json:
        """Patch an object, or create it by applying it."""
        query = {"fieldManager": FIELD_MANAGER, **({"force": "true"} if content_type == APPLY else {})}
        return await self.request("PATCH", path, body=body, content_type=content_type, query=query)

    async def modify(
        self, path: str, change: Callable[[Json], Json | None], *, content_type: str = MERGE
    ) -> tuple[Json, bool]:
        """Read an object and patch it as `change` says (None: it stays as it is); start over if it was written between.

        Returns the object and whether it was changed. Whatever `change` raises ends it.
        """
        for _ in range(_TRIES - 1):
            with suppress(ConflictError):
                return await self._modify(path, change, content_type)
        return await self._modify(path, change, content_type)

    async def _modify(self, path: str, change: Callable[[Json], Json | None], content_type: str) -> tuple[Json, bool]:
        current = await self.get(path)
        patch = change(current)
        if patch is None:
            return current, False
        metadata = {**patch.get("metadata", {}), "resourceVersion": current["metadata"]["resourceVersion"]}
        return await self.patch(path, {**patch, "metadata": metadata}, content_type), True

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        content_type: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Send one request and return the object in the answer.

        Raises:
            KubernetesError: one of its kinds.
        """
        data = msgspec.json.encode(body) if body is not None else None
        answer = await self._whole(method, path, query or {}, data, content_type)
        return self._decoded(path, answer.body, dict[str, Any]) if answer.body else {}

    # --- bytes

    async def read(self, path: str, **query: str) -> Answer:
        """Read an object or a list as bytes; raises KubernetesError."""
        return await self._whole("GET", path, query)

    async def follow(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        silence: float,
        opened: Callable[[], None],
        take: Callable[[bytes], None],
    ) -> None:
        """Read an answer that goes on, until the server ends it: `opened` once it is accepted, `take` for each line.

        Raises:
            SilentError: no whole line came for `silence` seconds. ProtocolError: one is too long. KubernetesError.
        """
        loop = asyncio.get_running_loop()
        subject = f"GET {path}"
        try:
            async with asyncio.timeout(silence) as watchdog, self._answer("GET", path, query, watch=True) as response:
                opened()
                async for line in _split(subject, response.content):
                    watchdog.reschedule(loop.time() + silence)
                    take(line)
        except TimeoutError as error:
            raise SilentError(subject, f"neither event nor bookmark for {silence:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnavailableError(subject, f"connection to {self.server} lost: {_reason(error)}") from error

    # --- discovery

    async def served(self, prefix: str) -> frozenset[str]:
        """Return the resources that are served under `/api/v1` or `/apis/GROUP/VERSION`; none without that version.

        An API server answers a request for a resource that it does not serve with a plain 404, as a load balancer
        answers any request: only its own lists say which of the two it was.

        Raises:
            KubernetesError: one of its kinds.
        """
        group = prefix.removeprefix("/apis/")
        if group != prefix:
            known = self._decoded("/apis", (await self.read("/apis")).body, _Groups).groups
            if not any(version.group_version == group for item in known for version in item.versions):
                return frozenset()
        found = self._decoded(prefix, (await self.read(prefix)).body, _Resources)
        return frozenset(item.name for item in found.resources)

    async def is_left_out(self, collection: str, error: KubernetesError) -> bool:
        """Return whether a request for a collection failed because that is denied or not served; False if unknown."""
        if isinstance(error, (DeniedError, NotFoundError)) or error.status != 404:
            return isinstance(error, (DeniedError, NotFoundError))
        prefix, _, resource = collection.rpartition("/")
        try:
            return resource not in await self.served(prefix)
        except KubernetesError:
            return False

    # --- transport

    async def _whole(
        self, method: str, path: str, query: Mapping[str, str], data: bytes | None = None, content_type: str = ""
    ) -> Answer:
        subject = f"{method} {path}"
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._answer(method, path, query, data=data, content_type=content_type) as response,
            ):
                body = await _body(response.content)
                return Answer(_unpacked(subject, body, response.headers), response.headers.get("Date", ""))
        except TimeoutError as error:
            raise UnavailableError(subject, f"no answer from {self.server} within {self._seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnavailableError(subject, f"cannot reach {self.server}: {_reason(error)}") from error

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        data: bytes | None = None,
        content_type: str = "",
        watch: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        # API servers write TLS records of 4 KiB: to decrypt one costs more than to unpack its text.
        headers = {"Accept-Encoding": "identity" if watch else "gzip"}
        if content_type:
            headers["Content-Type"] = content_type
        subject = f"{method} {path}"
        access = await self._current(subject)
        for last in (False, True):
            if method != "GET":
                self._guard()
            authorization = {"Authorization": access.authorization} if access.authorization else {}
            status = 0
            try:
                response = await self._session.request(
                    method,
                    access.server + path,
                    params=query,
                    data=data,
                    headers={**headers, **authorization},
                    ssl=access.tls,
                    server_hostname=access.server_name,
                    proxy=access.proxy,
                    allow_redirects=False,
                    read_bufsize=_NARROW if watch else _WIDE,
                )
                status = response.status
            finally:
                self.on_answer(method, status)
            async with response:
                if response.status < 300:
                    yield response
                    return
                if response.status != 401 or last:
                    error = await response.content.read(_LONGEST_ERROR)
                    raise error_of(subject, response.status, error, response.headers)
            access = await self._renewed(access, subject)  # it was not executed: to send it again is safe

    async def _current(self, subject: str) -> Access:
        access = self._access
        return access if self._now() < self._ends else await self._renewed(access, subject)

    async def _renewed(self, refused: Access, subject: str) -> Access:
        """Read the credentials again, once for all requests that had the same ones."""
        async with self._renewing:
            if self._access is not refused:
                return self._access
            try:
                access = await load(self._kubeconfig, self._context)
            except SetupError as error:
                raise UnavailableError(subject, f"401, and no other credentials: {error}") from error
            if access.server != refused.server:  # the same objects are other ones there
                detail = f"kubeconfig {self._kubeconfig} leads to another cluster by now: {access.server}"
                raise UnavailableError(subject, detail)
            self._access, self._ends = access, self._now() + access.lifetime
            return access

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _decoded(self, path: str, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProtocolError(f"GET {path}", f"the answer cannot be read: {error}") from error


async def connect(
    kubeconfig: str = "",
    *,
    context: str = "",
    timeout_seconds: float = REQUEST_SECONDS,
    guard: Callable[[], None] = lambda: None,
) -> Client:
    """Connect by a kubeconfig file (or list of files), or by the pod's service account where none is named.

    Args:
        kubeconfig: the file.
        context: of the file; empty: its current one.
        timeout_seconds: for each request but watches.
        guard: is called before every write and raises where nothing may be written.

    Raises:
        SetupError: the configuration cannot be used.
    """
    access = await load(kubeconfig, context)
    return Client(access, kubeconfig=kubeconfig, context=context, timeout_seconds=timeout_seconds, guard=guard)


def _reason(error: Exception) -> str:
    """Return what failed, without the objects in memory that aiohttp's own text shows."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ConnectionError) and cause.errno:
            return os.strerror(cause.errno).lower()
        return cause.strerror or str(cause) or type(cause).__name__
    return str(error) or type(error).__name__


async def _body(content: aiohttp.StreamReader) -> bytes:
    """Read the whole body. `read` would wake up for each piece of 4 KiB that an API server writes."""
    if content.exception() is None:  # else it would wait for ever
        await content.wait_eof()
    return content.read_nowait()  # raises what befell the connection


def _unpacked(subject: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    if headers.get("Content-Encoding") != "gzip":
        return body
    room = int.from_bytes(body[-4:], "little") + 1  # gzip ends with the size: nothing is copied to make more room
    try:
        return zlib_ng.decompress(body, wbits=_GZIP, bufsize=min(room, _LARGEST_ROOM))
    except zlib_ng.error as error:  # type: ignore[misc]  # its types take the class for an instance
        raise ProtocolError(subject, f"the answer cannot be unpacked: {error}") from error


async def _split(subject: str, content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole lines. The reader's own `readline` refuses lines longer than its buffer, and objects can be.

    What follows the last line end was cut off with the connection and is dropped.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join((*parts, end))
            parts.clear()
            size = 0
            if line.strip():
                yield line
        if rest:
            parts.append(rest)
            size += len(rest)
        if size > _LONGEST_LINE:
            raise ProtocolError(subject, f"an event of more than {_LONGEST_LINE} bytes")
