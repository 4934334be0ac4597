"""Python's collector of cycles, and when it is not worth its time. Imports nothing: programs import this first."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import what a program consists of without what costs time and brings nothing.

    Modules stay, so that to look for garbage among them finds none, now or later. structlog imports rich, with
    Pygments, where they happen to be installed, to draw tracebacks: here those are plain, as they are in the images.
    """
    enabled, unknown = gc.isenabled(), "rich" not in sys.modules
    gc.disable()
    if unknown:
        sys.modules["rich"] = None  # type: ignore[assignment]  # Python's way to say that a module is not there
    try:
        yield
    finally:
        if unknown:
            del sys.modules["rich"]
        if enabled:
            gc.freeze()  # else the first collection would look through all of them
            gc.enable()


def spare_the_collector() -> None:
    """Let the collector look less often.

    A state is hundreds of thousands of immutable objects without a cycle among them. Looking through all of them every
    few thousand allocations took a quarter of the time from an observed change to the decision on it.
    """
    gc.set_threshold(200_000, 50, 100)
