"""Named points at which a test can kill the process: what `kill -9` does, exactly there.

`KINEMA_FAULT=name` kills at the first pass of that point, `name:3` at the third; `name:3:stop` stops the process there
instead, for ever: it hangs. Unset, a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

VARIABLE = "KINEMA_FAULT"


@dataclass
class _Armed:
    name: str
    passes: int
    number: signal.Signals


def _armed() -> _Armed | None:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    name, _, rest = text.partition(":")
    nth, _, action = rest.partition(":")
    return _Armed(name, int(nth or "1"), signal.SIGSTOP if action == "stop" else signal.SIGKILL)


_ARMED = _armed()
_NAMES: set[str] = set()


def register(*names: str) -> None:
    """Make points known, so that a test can walk all of them. Call where the points stand, at import."""
    _NAMES.update(names)


def registered() -> tuple[str, ...]:
    """Names of all points in the modules imported so far, sorted."""
    return tuple(sorted(_NAMES))


def faultpoint(name: str) -> None:
    """Die here by SIGKILL, or stop, if this point is armed and its turn has come."""
    if _ARMED is None:
        return
    if name == _ARMED.name:
        _ARMED.passes -= 1
        if _ARMED.passes == 0:
            os.kill(os.getpid(), _ARMED.number)
