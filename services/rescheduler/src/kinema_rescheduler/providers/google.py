"""Requests to Google's APIs: tokens, the fence, and the errors of effects."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from kinema_core.runtime.clock import Clock
from kinema_rescheduler.errors import EffectError, PermanentError, TransientError
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.settings import METADATA_URL

T = TypeVar("T")

_SPARE_SECONDS: Final = 60.0
"""So long before a token expires, the next one is asked for."""
_COMMAND_SECONDS: Final = 1800.0
"""How long the token of a command is used; Google's live an hour."""
_CODES: Final = (
    ("stock-out", re.compile(r"RESOURCE_POOL_EXHAUSTED|GCE_STOCKOUT|INSUFFICIENT_CAPACITY|STOCKOUT")),
    ("quota", re.compile(r"QUOTA|IP_SPACE_EXHAUSTED|quotaExceeded|quota exceeded", re.IGNORECASE)),
    ("permission", re.compile(r"PERMISSION|FORBIDDEN|SERVICE_ACCOUNT_DELETED|KMS_KEY_ERROR", re.IGNORECASE)),
)
"""Reasons by the codes of Compute Engine's and GKE's operations. Sources: Cluster Autoscaler's provider for GCE, which
classifies the same codes; GKE's StatusCondition.Code."""
_BUSY: Final = re.compile(r"CLUSTER_ALREADY_HAS_OPERATION|incompatible operation|is currently ", re.IGNORECASE)


class _Token(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float = 3600.0


class _Detail(msgspec.Struct, frozen=True):
    reason: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""
    status: str = ""
    errors: tuple[_Detail, ...] = ()
    details: tuple[_Detail, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    error: _Refusal = _Refusal()


def reason_of_code(code: str, message: str) -> str:
    """Return the reason that an error of an operation stands for; empty where it may pass by itself."""
    found = next((reason for reason, pattern in _CODES if pattern.search(code)), "")
    return found or ("quota" if re.search(r"quota .*exceeded", message, re.IGNORECASE) else "")


class GoogleApi:
    """A connection with the account's tokens. Close it when done."""

    def __init__(
        self,
        clock: Clock,
        *,
        token_command: Sequence[str] = (),
        token_url: str = METADATA_URL,
        timeout_seconds: float = 10.0,
        fence: Fence | None = None,
    ) -> None:
        """`fence` is asked before every write; an empty `token_url` without a command sends no token."""
        self._clock = clock
        self._command = token_command
        self._token_url = token_url
        self._seconds = timeout_seconds
        self._fence = fence or Fence()
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_seconds))
        self._token = ""
        self._until = 0.0

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def get(self, url: str, kind: type[T]) -> T:
        """Read an object."""
        return await self._request("GET", url, None, kind)

    async def post(self, url: str, body: dict[str, Any], kind: type[T], *, writes: bool = True) -> T:
        """Send a request that changes something, or reads with a body."""
        if writes:
            self._fence.check()
        return await self._request("POST", url, body, kind)

    async def _request(self, method: str, url: str, body: dict[str, Any] | None, kind: type[T]) -> T:
        token = await self._fresh_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        path = url.partition("?")[0]
        try:
            async with self._session.request(method, url, json=body, headers=headers) as response:
                data = await response.read()
                if response.status >= 400:
                    raise _error(response.status, data, f"{method} {path}", response.headers.get("Retry-After", ""))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TransientError("unavailable", f"{method} {path}: {type(error).__name__} {error}") from error
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise TransientError("transient", f"{method} {path}: the answer cannot be read: {error}") from error

    async def _fresh_token(self) -> str:
        now = self._clock.now().timestamp()
        if now < self._until or not (self._command or self._token_url):
            return self._token
        if self._command:
            self._token, seconds = await self._of_command(), _COMMAND_SECONDS
        else:
            found = await self._of_metadata()
            self._token, seconds = found.access_token, found.expires_in
        self._until = now + seconds - _SPARE_SECONDS
        return self._token

    async def _of_metadata(self) -> _Token:
        try:
            async with self._session.get(self._token_url, headers={"Metadata-Flavor": "Google"}) as response:
                data = await response.read()
                if response.status != 200:
                    raise PermanentError("permission", f"{self._token_url}: status {response.status}: no token")
                return msgspec.json.decode(data, type=_Token)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise TransientError("unavailable", f"{self._token_url}: {type(error).__name__} {error}") from error

    async def _of_command(self) -> str:
        name = self._command[0]
        try:
            async with asyncio.timeout(self._seconds):
                process = await asyncio.create_subprocess_exec(
                    *self._command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
                )
                out, err = await process.communicate()
        except OSError as error:
            raise PermanentError("invalid", f"provider.token_command: {name}: {error.strerror}") from error
        except TimeoutError as error:
            raise TransientError("time-out", f"provider.token_command: {name} does not end") from error
        if process.returncode != 0:
            said = err.decode(errors="replace").strip()[-300:]
            raise PermanentError(
                "permission", f"provider.token_command: {name} ended with {process.returncode}: {said}"
            )
        return out.decode().strip()


def _error(status: int, data: bytes, request: str, retry_after: str) -> EffectError:
    """Return what a refused request means for an effect, with the API's own words."""
    try:
        found = msgspec.json.decode(data, type=_Answer).error
    except msgspec.DecodeError:
        found = _Refusal()
    said = f"{request}: {found.message or f'status {status}'}"
    codes = " ".join(detail.reason for detail in (*found.details, *found.errors))
    if _BUSY.search(codes) or (status in {400, 409, 412} and _BUSY.search(found.message)):
        return TransientError("conflict", said)
    if status == 429 or found.status == "RESOURCE_EXHAUSTED":
        if re.search(r"quota.*exceeded.*\b(CPUS|region)", found.message, re.IGNORECASE):
            return PermanentError("quota", said)
        return TransientError("throttled", said, retry_after=float(retry_after) if retry_after.isdigit() else None)
    if status >= 500:
        return TransientError("unavailable", said)
    if status == 403 and re.search(r"quota", codes + found.message, re.IGNORECASE):
        return PermanentError("quota", said)
    reasons = {401: "permission", 403: "permission", 404: "not-found", 409: "conflict"}
    return PermanentError(reasons.get(status, "invalid"), said)
