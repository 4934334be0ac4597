"""Named points in a process at which a test may interfere. Nothing that ships does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

HOOKS: Final[list[Callable[[str], object]]] = []
"""Called with the name of every point that is passed."""
_NAMES: Final[set[str]] = set()


def register(*names: str) -> None:
    """Make points known, so that a test can walk all of them. Call it where the points stand, at import."""
    _NAMES.update(names)


def registered() -> tuple[str, ...]:
    """Return the names of all points in the modules imported so far, sorted."""
    return tuple(sorted(_NAMES))


def faultpoint(name: str) -> None:
    """Pass a point."""
    for hook in HOOKS:
        hook(name)
