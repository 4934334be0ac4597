"""Kill a process at one of its fault points: Python imports this module at start if its directory is on PYTHONPATH.

`KINEMA_FAULT=name` kills at the first pass of that point, `name:3` at the third; `name:3:stop` stops the process there
instead: it hangs.
"""

from __future__ import annotations

import os
import signal

from kinema_core.runtime.faultpoint import HOOKS

_POINT, _, _REST = os.environ.get("KINEMA_FAULT", "").partition(":")
_NTH, _, _ACTION = _REST.partition(":")
_LEFT = [int(_NTH or "1")]


def strike(name: str) -> None:
    """End or stop this process if it is the point's turn."""
    if name == _POINT:
        _LEFT[0] -= 1
        if _LEFT[0] == 0:
            os.kill(os.getpid(), signal.SIGSTOP if _ACTION == "stop" else signal.SIGKILL)


if _POINT:
    HOOKS.append(strike)
