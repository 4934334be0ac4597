"""Running an operator's commands: no shell, an end in time, and their failures as errors of effects."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from contextlib import suppress
from typing import Final

from kinema_rescheduler.errors import PermanentError, TransientError

NO_PERMISSION: Final = 77
"""Exit code for a missing right, as in BSD's sysexits; any other but 0 may pass."""
_KEPT_CHARACTERS: Final = 300
"""How much of a command's last words is kept."""
_SHORTEST_SECRET: Final = 4
"""Characters of a word from which on it is not shown."""
_ENDING_SECONDS: Final = 2.0
"""Real seconds that a command which was killed is waited for."""


async def run(command: tuple[str, ...], seconds: float) -> str:
    """Return what a command prints.

    Its words may be secrets (`ipmitool -P`), and errors reach the log, events and Kubernetes: they name the program
    alone, and what it printed without those words.

    Raises:
        TransientError: `time-out`, it was ended; `transient`, it failed.
        PermanentError: `permission`, it says so; `invalid`, it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise PermanentError("invalid", f"{command[0]} cannot be started: {error.strerror}") from error
    printed: bytes | None = None
    try:
        async with asyncio.timeout(seconds):
            printed, _ = await process.communicate()
    except TimeoutError as error:
        raise TransientError("time-out", f"{command[0]} did not end in {seconds:g} s") from error
    finally:
        if printed is None:
            await _end(process)
    output = printed.decode(errors="replace").strip()
    if process.returncode == NO_PERMISSION:
        raise PermanentError("permission", f"{command[0]}: {_shown(output, command)}")
    if process.returncode:
        raise TransientError("transient", f"{command[0]} ended with {process.returncode}: {_shown(output, command)}")
    return output


def _shown(output: str, command: tuple[str, ...]) -> str:
    """Return the last characters of what a command printed, without the words that it was given."""
    for word in sorted(command[1:], key=len, reverse=True):
        output = output.replace(word, "***") if len(word) >= _SHORTEST_SECRET else output
    return output[-_KEPT_CHARACTERS:]


async def _end(process: Process) -> None:
    """End a command with all that it has started: a script's own command would go on, and switch the machine later."""
    with suppress(ProcessLookupError, PermissionError):  # gone meanwhile, or another user's by now (sudo)
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_ENDING_SECONDS):  # what left the group may hold the output open for ever
            await process.wait()
