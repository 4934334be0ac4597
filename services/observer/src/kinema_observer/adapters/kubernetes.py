"""Requests to the Kubernetes API.

The official client reads kubeconfig or service account and keeps the credentials fresh; requests go through our own
session, as its models take a hundred times the time and memory of what we need. Its exceptions end here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import aiohttp
import msgspec
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from zlib_ng import zlib_ng

from kinema_core.runtime.yaml_files import kubeconfig_error, kubeconfig_fault
from kinema_observer.errors import (
    ApiDeniedError,
    ApiError,
    ApiExpiredError,
    ApiMissingError,
    ApiProtocolError,
    ApiSetupError,
    ApiSilentError,
    ApiUnavailableError,
)

T = TypeVar("T")

CONNECT_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 60.0
_LONGEST_LINE: Final = 32 * 1024 * 1024
"""Bytes of one watch event that are taken; etcd refuses objects above a few MiB."""
_LONGEST_ERROR: Final = 64 * 1024
_GZIP: Final = zlib_ng.MAX_WBITS | 16
"""What zlib takes for a gzip header."""
_LARGEST_ROOM: Final = 2**26
"""Bytes that an answer is given at once, whatever it says it needs; a page of a list has some MB."""
_HEADERS: Final = {"Accept": "application/json"}
_NARROW: Final = 2**18
_WIDE: Final = 2**30
"""Bytes of an answer that may wait to be taken: of a watch few, as it never ends; of any other all, so that it does.

Twice as many wait at most; aiohttp cannot count further.
"""
_WHOLE: Final = {"Accept-Encoding": "gzip"}
"""Of answers that end. An API server writes TLS records of 4 KiB: to decrypt one costs more than to unpack its text."""
_ENDLESS: Final = {"Accept-Encoding": "identity"}


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class Status(msgspec.Struct, rename="camel"):
    """Kubernetes' `Status` object."""

    kind: str = ""
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct, rename="camel"):
    resources: list[_Resource]


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct):
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    groups: list[_Group]


class Answer(NamedTuple):
    """Body and date of an answer; the date as the server's clock and HTTP write it, empty without one."""

    body: bytes
    date: str


class Api:
    """A connection to one API server."""

    def __init__(self, configuration: Configuration, *, kubeconfig: str, context: str) -> None:
        self._configuration = configuration
        self._kubeconfig = kubeconfig
        self._context = context
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=_tls(configuration)),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            headers=_HEADERS,
            auto_decompress=False,  # it would unpack in pieces, at twice the cost
        )

    @classmethod
    async def connect(cls, *, kubeconfig: str, context: str) -> Api:
        """Read the credentials: of a kubeconfig file and context, or of the pod's service account when it is empty.

        Raises:
            ApiSetupError: they cannot be used.
        """
        configuration = Configuration()
        await _load(configuration, kubeconfig, context)
        return cls(configuration, kubeconfig=kubeconfig, context=context)

    @property
    def host(self) -> str:
        """The API server's address."""
        return str(self._configuration.host)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def get(self, path: str, parameters: Mapping[str, str], *, seconds: float = REQUEST_SECONDS) -> bytes:
        """The body of one answer, within `seconds` in all.

        Raises:
            ApiError: one of its kinds.
        """
        return (await self.ask(path, parameters, seconds=seconds)).body

    async def ask(
        self,
        path: str,
        parameters: Mapping[str, str],
        *,
        question: bytes | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Answer:
        """One answer, within `seconds` in all. With a `question` (an access review) that is posted.

        Raises:
            ApiError: one of its kinds.
        """
        try:
            async with asyncio.timeout(seconds), self._request(path, parameters, question) as response:
                body = await _body(response.content)
                return Answer(_unpacked(path, body, response.headers), response.headers.get("Date", ""))
        except TimeoutError as error:
            raise ApiUnavailableError(path, f"no answer from {self.host} within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiUnavailableError(path, f"cannot reach {self.host}: {error or type(error).__name__}") from error

    async def served(self, collections: str) -> frozenset[str]:
        """Return the resources that are served under `/api/v1` or `/apis/GROUP/VERSION`; none without that version.

        An API server answers a request for a resource that it does not serve with a plain 404, as a load balancer
        answers any request: only its own lists say which of the two it was.

        Raises:
            ApiError: one of its kinds.
        """
        group = collections.removeprefix("/apis/")
        if group != collections:
            known = self._decoded("/apis", await self.get("/apis", {}), _Groups).groups
            if not any(version.group_version == group for item in known for version in item.versions):
                return frozenset()
        found = self._decoded(collections, await self.get(collections, {}), _Resources)
        return frozenset(item.name for item in found.resources)

    async def is_left_out(self, collection: str, error: ApiError) -> bool:
        """Return whether a request for a collection failed because that is denied or not served; False if unknown."""
        if isinstance(error, (ApiDeniedError, ApiMissingError)) or error.status != 404:
            return isinstance(error, (ApiDeniedError, ApiMissingError))
        prefix, _, resource = collection.rpartition("/")
        try:
            return resource not in await self.served(prefix)
        except ApiError:
            return False

    def _decoded(self, path: str, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiProtocolError(path, f"the answer cannot be read: {error}") from error

    async def follow(
        self,
        path: str,
        parameters: Mapping[str, str],
        *,
        silence: float,
        opened: Callable[[], None],
        take: Callable[[bytes], None],
    ) -> None:
        """Read an answer that goes on, until the server ends it: `opened` once it is accepted, `take` for each line.

        Raises:
            ApiSilentError: no whole line came for `silence` seconds. ApiProtocolError: one is too long. ApiError.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(silence) as watchdog, self._request(path, parameters) as response:
                opened()
                async for line in _split(path, response.content):
                    watchdog.reschedule(loop.time() + silence)
                    take(line)
        except TimeoutError as error:
            raise ApiSilentError(path, f"neither event nor bookmark for {silence:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiUnavailableError(
                path, f"connection to {self.host} lost: {error or type(error).__name__}"
            ) from error

    @asynccontextmanager
    async def _request(
        self, path: str, parameters: Mapping[str, str], question: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        kind = {"Content-Type": "application/json"} if question is not None else {}
        coding = _ENDLESS if "watch" in parameters else _WHOLE
        for fresh in (False, True):
            async with self._session.request(
                "GET" if question is None else "POST",
                self.host + path,
                params=parameters,
                data=question,
                headers={**kind, **coding, **await self._credentials(renew=fresh)},
                proxy=self._configuration.proxy,
                server_hostname=self._configuration.tls_server_name,
                read_bufsize=_NARROW if "watch" in parameters else _WIDE,
            ) as response:
                if response.status == 401 and not fresh:
                    continue
                if response.status not in {200, 201}:
                    raise fault(path, response.status, await response.content.read(_LONGEST_ERROR), response.headers)
                yield response
                return

    async def _credentials(self, *, renew: bool) -> dict[str, str]:
        """The authorization header. Service account tokens renew themselves; a kubeconfig is read again on demand."""
        if renew:
            fresh = Configuration()
            await _load(fresh, self._kubeconfig, self._context)
            if fresh.host != self.host:  # what is known would be taken for what is there
                raise ApiSetupError(
                    f"kubeconfig {self._kubeconfig}", f"it leads to another cluster by now: {fresh.host}"
                )
            self._configuration.api_key = fresh.api_key
            self._configuration.refresh_api_key_hook = fresh.refresh_api_key_hook
        try:
            settings = await self._configuration.auth_settings()
        except (ConfigException, OSError) as error:
            raise ApiSetupError("credentials", str(error)) from error
        bearer = settings.get("BearerToken")
        return {"Authorization": str(bearer["value"])} if bearer and bearer["value"] else {}


async def _load(configuration: Configuration, kubeconfig: str, context: str) -> None:
    where = f"kubeconfig {kubeconfig}" if kubeconfig else "service account of this pod"
    if kubeconfig and (complaint := await asyncio.to_thread(kubeconfig_fault, Path(kubeconfig), context)):
        raise ApiSetupError(where, complaint)
    try:
        if kubeconfig:
            await load_kube_config(  # type: ignore[no-untyped-call]  # the client has no types here
                config_file=kubeconfig,
                context=context or None,
                client_configuration=configuration,
                persist_config=False,
            )
        else:
            load_incluster_config(  # type: ignore[no-untyped-call]  # the client has no types here
                client_configuration=configuration
            )
    except Exception as error:  # the client raises whatever its YAML reader, its files or its own checks come upon
        hint = "" if kubeconfig else " (outside a cluster, set `kubeconfig` in the settings)"
        raise ApiSetupError(where, f"{kubeconfig_error(error, kubeconfig)}{hint}") from error


def _tls(configuration: Configuration) -> ssl.SSLContext:
    try:
        context: ssl.SSLContext = RESTClientObject(configuration).ssl_context
    except (OSError, ValueError) as error:
        raise ApiSetupError("TLS certificates", str(error)) from error
    return context


async def _body(content: aiohttp.StreamReader) -> bytes:
    """The whole body. `read` would wake up for each piece of 4 KiB that an API server writes, only to wait for more."""
    if content.exception() is None:  # else it waited for ever
        await content.wait_eof()
    return content.read_nowait()  # raises what befell the connection


def _unpacked(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    if headers.get("Content-Encoding") != "gzip":
        return body
    room = int.from_bytes(body[-4:], "little") + 1  # gzip ends with the size: nothing is copied to make more room
    try:
        return zlib_ng.decompress(body, wbits=_GZIP, bufsize=min(room, _LARGEST_ROOM))
    except zlib_ng.error as error:  # type: ignore[misc]  # its types take the class for an instance
        raise ApiProtocolError(path, f"the answer cannot be unpacked: {error}") from error


async def _split(path: str, content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines. The reader's own `readline` refuses what is longer than its buffer, and objects can be.

    What stands behind the last line end was cut off with the connection and is dropped.
    """
    parts: list[bytes] = []
    held = 0
    async for chunk in content.iter_any():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join((*parts, end))
            parts.clear()
            held = 0
            if line.strip():
                yield line
        if rest:
            parts.append(rest)
            held += len(rest)
        if held > _LONGEST_LINE:
            raise ApiProtocolError(path, f"an event of more than {_LONGEST_LINE} bytes")


_KINDS: Final[Mapping[int, type[ApiError]]] = {
    401: ApiDeniedError,
    403: ApiDeniedError,
    410: ApiExpiredError,
    429: ApiUnavailableError,
}


def fault(subject: str, status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error for an answer that is no success, or for an error inside a watch."""
    try:
        told = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = Status(message=body[:200].decode(errors="replace"))
    kind = _KINDS.get(status, ApiUnavailableError if status >= 500 else ApiProtocolError)
    if status == 404:  # a proxy or load balancer says so too, of anything
        kind = ApiMissingError if (told.kind, told.reason) == ("Status", "NotFound") else ApiUnavailableError
    wait = told.details.retry_after_seconds if told.details is not None else None
    after = headers.get("Retry-After", "")
    seconds = float(after) if after.isdecimal() else wait
    return kind(subject, told.message or told.reason or "no reason given", status=status, retry_after=seconds)
