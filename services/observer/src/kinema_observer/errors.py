"""Errors of observing.

ObserverError
├── UnreadableListError    the whole input is no list of Kubernetes objects: nothing can be made of it
└── UnreadableFieldError   one object is odd at a path: it is quarantined, the rest goes on
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
        """Return the same fault seen from further up."""
        path = self.path
        return UnreadableFieldError(
            prefix + path if path.startswith("[") or not path else f"{prefix}.{path}", self.reason
        )
