"""Ending with whoever started a process, also where they were killed and could not say so.

Standard input tells: the starter holds the other end of it, writes nothing, and whatever becomes of them, it is closed
then. Programs that are not ours do not look at it; a guard beside them does.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Final

FLAG: Final = "--until-stdin-ends"
MEANING: Final = "end when standard input does: whoever started this holds the other end, and is gone then"
_INPUT: Final = 0
_GRACE_SECONDS: Final = 5.0
"""How long a guarded program is left to those who end meanwhile and need it for that."""


def call_when_gone(stop: Callable[[], object]) -> None:
    """Call it once, in the running loop, when standard input has ended; what we start ourselves gets none of it."""
    tie = os.dup(_INPUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _INPUT)
    os.close(nothing)
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not os.read(tie, 4096):
            loop.remove_reader(tie)
            stop()

    loop.add_reader(tie, look)


def start_guard(pid: int, log: IO[bytes]) -> subprocess.Popen[bytes] | None:
    """Guard a child of ours: it ends by SIGTERM some seconds after we are gone. None where the system cannot tell.

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
