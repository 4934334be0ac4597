"""Errors of requests to a Kubernetes API server.

KubernetesError
├── SetupError              no usable kubeconfig or service account: a person must act
├── TransientError          the same request may succeed later
│   ├── UnavailableError    no answer, a server error, or a 404 of something in front of the API server
│   │   └── ThrottledError  too many requests (429)
│   ├── BudgetError         a disruption budget allows no eviction now (429)
│   ├── ConflictError       another client wrote the object in between (409)
│   ├── ExpiredError        the resource version or continue token is too old (410): list again
│   ├── SilentError         a watch sent nothing for long: list again, it may be that nothing happened
│   └── ProtocolError       the answer cannot be understood
└── PermanentError          the same request fails again
    ├── NotFoundError       the API server says that there is no such object (404)
    ├── DeniedError         credentials or rights are missing (401, 403)
    ├── RefusedError        the object is invalid (422), or admission forbids it
    └── InvalidError        any other status
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

_ADMISSION: Final = re.compile(r"denied (the )?request")
"""How an API server words that an admission webhook or policy forbids a write, whatever status that has chosen."""


_PATH: Final = re.compile(
    r"/(?:api/v1|apis/[^/]+/[^/]+)/(?:namespaces/(?P<namespace>[^/]+)/(?=[^/]))?(?P<kind>[^/?]+)(?:/(?P<name>[^/?]+))?"
)


class ObjectPath(NamedTuple):
    """Object that a path of the API names; empty where it names none."""

    kind: str
    """Plural of the resource: `pods`."""
    namespace: str
    name: str


def object_of(path: str) -> ObjectPath:
    """Return what `/api/v1/…` or `/apis/GROUP/VERSION/…` names."""
    found = _PATH.match(path)
    return ObjectPath(found["kind"], found["namespace"] or "", found["name"] or "") if found else ObjectPath("", "", "")


class KubernetesError(Exception):
    """A request failed.

    Args:
        subject: the request, or the file that cannot be used.
        detail: the reason for people.
        status: HTTP status; 0 without an answer.
        reason: `reason` of the API server's `Status`, such as `NotFound`.
        retry_after: seconds that the server asks to wait.
    """

    def __init__(
        self, subject: str, detail: str, *, status: int = 0, reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"{subject}: {detail}" + (f" (HTTP {status})" if status else ""))
        self.subject = subject
        self.detail = detail
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.kind, self.namespace, self.name = object_of(subject.rpartition(" ")[2])


class SetupError(KubernetesError):
    """The kubeconfig or service account cannot be used."""


class TransientError(KubernetesError):
    """The same request may succeed later."""


class UnavailableError(TransientError):
    """The API server does not answer now."""


class ThrottledError(UnavailableError):
    """Too many requests."""


class BudgetError(TransientError):
    """A disruption budget allows no eviction now."""


class ConflictError(TransientError):
    """Another client wrote the object in between, or it exists already."""


class ExpiredError(TransientError):
    """The server no longer has this resource version or continue token."""


class SilentError(TransientError):
    """A watch has shown no sign of life for long. That alone says nothing about the state."""


class ProtocolError(TransientError):
    """The answer is not what the API promises."""


class PermanentError(KubernetesError):
    """The same request fails again."""


class NotFoundError(PermanentError):
    """The API server says that there is no such object."""


class DeniedError(PermanentError):
    """Credentials or rights are missing."""


class RefusedError(PermanentError):
    """The object is invalid, or admission forbids it; others may pass."""


class InvalidError(PermanentError):
    """The API server does not understand or allow the request."""


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: list[_Cause] | None = None


class Status(msgspec.Struct, rename="camel"):
    """Kubernetes' `Status` object."""

    kind: str = ""
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None


_BY_STATUS: Final[Mapping[int, type[KubernetesError]]] = {
    401: DeniedError,
    403: DeniedError,
    404: UnavailableError,  # a proxy or load balancer answers so, of anything; see `error_of`
    408: UnavailableError,
    409: ConflictError,
    410: ExpiredError,
    422: RefusedError,
    429: ThrottledError,
}


def error_of(subject: str, status: int, body: bytes, headers: Mapping[str, str]) -> KubernetesError:
    """Return the error for an answer that is no success, or for an error inside a watch."""
    try:
        answer = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = Status(message=body[:200].decode(errors="replace").strip())
    details = answer.details or _Details()
    after = headers.get("Retry-After", "")
    return _class_of(status, answer, details)(
        subject,
        answer.message or answer.reason or "no reason given",
        status=status,
        reason=answer.reason or "",
        retry_after=float(after) if after.isdecimal() else details.retry_after_seconds,
    )


def _class_of(status: int, answer: Status, details: _Details) -> type[KubernetesError]:
    if status == 404 and (answer.kind, answer.reason) == ("Status", "NotFound"):
        return NotFoundError
    if status == 429 and any(cause.reason == "DisruptionBudget" for cause in details.causes or ()):
        return BudgetError
    if status in _BY_STATUS and status != 403:
        return _BY_STATUS[status]
    if 300 <= status < 400 or status >= 500:
        return UnavailableError
    if _ADMISSION.search(answer.message or ""):
        return RefusedError
    return _BY_STATUS.get(status, InvalidError)
