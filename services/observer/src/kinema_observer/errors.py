"""What can go wrong while observing.

ObserverError
├── UnreadableListError    the whole input is no list of Kubernetes objects: nothing can be made of it
├── UnreadableFieldError   one object is odd at a path: it is quarantined, the rest goes on
└── ApiError               a request to the Kubernetes API failed (what was asked, HTTP status, detail)
    ├── ApiSetupError          no usable kubeconfig or service account: a person must act
    ├── ApiUnavailableError    no answer, a server error, "too many requests" or a 404 of a proxy: try again later
    ├── ApiSilentError         a watch said nothing for long: list again, it may be that nothing happened
    ├── ApiExpiredError        the resource version is too old (410): list again
    ├── ApiDeniedError         credentials or rights are missing (401, 403): stop that capability, say so
    ├── ApiMissingError        the API server says that there is no such object (404 with a `Status` NotFound)
    └── ApiProtocolError       the answer cannot be understood: list again
"""

from __future__ import annotations


class ObserverError(Exception):
    """Root of the observer's errors."""


class UnreadableListError(ObserverError):
    """The input is no list of Kubernetes objects."""


class UnreadableFieldError(ObserverError):
    """A field of one object cannot be read: `path` from the object's root, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def under(self, prefix: str) -> UnreadableFieldError:
        """The same fault seen from further up."""
        path = self.path
        return UnreadableFieldError(
            prefix + path if path.startswith("[") or not path else f"{prefix}.{path}", self.reason
        )


class ApiError(ObserverError):
    """A request failed. `subject` is what was asked for, `status` the HTTP status or 0 without an answer."""

    def __init__(self, subject: str, detail: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(f"{subject}: {detail}" + (f" (HTTP {status})" if status else ""))
        self.subject = subject
        self.detail = detail
        self.status = status
        self.retry_after = retry_after
        """Seconds the server asks to wait."""


class ApiSetupError(ApiError):
    """The client configuration cannot be used."""


class ApiUnavailableError(ApiError):
    """No answer now; later perhaps."""


class ApiSilentError(ApiError):
    """A watch has shown no sign of life for long. That alone says nothing about the state."""


class ApiExpiredError(ApiError):
    """The server has forgotten this resource version or continue token."""


class ApiDeniedError(ApiError):
    """Credentials or rights are missing."""


class ApiMissingError(ApiError):
    """The API server says that there is no such object."""


class ApiProtocolError(ApiError):
    """The answer is not what the API promises."""
