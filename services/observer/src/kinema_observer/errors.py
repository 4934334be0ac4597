"""Errors of observing.

ObserverError
├── AnotherClusterError    the streams are of another cluster of the same name
├── UnreadableListError    the whole input is no list of Kubernetes objects: nothing can be made of it
├── UnreadableFieldError   one object is odd at a path: it is quarantined, the rest goes on
└── PrometheusError        a query failed: it may succeed later, or a person must act
    ├── TooMuchError       the server would have to load too much: a shorter span may do
    ├── TimedOutError      no answer in time: a shorter span may do, or the server is away
    └── PartialError       the answer holds only a part of what there is
"""

from __future__ import annotations


class ObserverError(Exception):
    """Root of the observer's errors."""


class AnotherClusterError(ObserverError):
    """The streams hold the state of another cluster of the same name; a person must choose."""


class UnreadableListError(ObserverError):
    """The input is no list of Kubernetes objects."""


class UnreadableFieldError(ObserverError):
    """A field of one object cannot be read: `path` from the object's root, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def under(self, prefix: str) -> UnreadableFieldError:
        """Return the same fault seen from further up."""
        path = self.path
        return UnreadableFieldError(
            prefix + path if path.startswith("[") or not path else f"{prefix}.{path}", self.reason
        )


class PrometheusError(ObserverError):
    """A query of Prometheus failed."""


class TooMuchError(PrometheusError):
    """The server would have to load more than it may."""


class TimedOutError(PrometheusError):
    """There was no answer in time."""


class PartialError(PrometheusError):
    """The server warns that it could not read everything."""
