"""Guard of a program that does not look at its standard input: it ends the program when this process is gone.

Standard input shows that: this process holds the other end of the guard's, writes nothing, and whatever becomes of this
process, it is closed then.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import IO, Final

_INPUT: Final = 0
_GRACE_SECONDS: Final = 5.0
"""Time for which a guarded program outlives this process: services need it to end."""


def start_guard(pid: int, log: IO[bytes]) -> subprocess.Popen[bytes] | None:
    """Guard a child: it ends by SIGTERM some seconds after this process. Return None where the system cannot do that.

    The guard holds it by a descriptor, as its number may be another's by then, and ends with it.
    """
    if sys.platform != "linux":
        return None
    try:
        process = os.pidfd_open(pid)
    except OSError:  # a Linux from before 2019
        return None
    try:
        return subprocess.Popen(  # noqa: S603 - this module
            [sys.executable, "-m", __name__, str(process)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(process,),
            start_new_session=True,
        )
    finally:
        os.close(process)


def _guard(process: int) -> None:
    """Wait for the end of the process or of standard input; then leave it some time, and end it."""
    ended, _, _ = select.select([_INPUT, process], [], [])
    if process not in ended and not select.select([process], [], [], _GRACE_SECONDS)[0]:
        signal.pidfd_send_signal(process, signal.SIGTERM)


if __name__ == "__main__":
    _guard(int(sys.argv[1]))
