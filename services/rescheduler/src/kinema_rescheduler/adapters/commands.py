"""Running an operator's commands: no shell, an end in time, and what they say as our errors."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from kinema_rescheduler.errors import FinalError, PassingError

NO_PERMISSION: Final = 77
"""Exit code for a missing right, as in BSD's sysexits; any other but 0 may pass."""
_TOLD: Final = 300
"""How much of a command's last words is kept."""


async def run(command: tuple[str, ...], seconds: float) -> str:
    """What a command prints.

    Raises:
        PassingError: `time-out`, it was ended; `transient`, it failed.
        FinalError: `permission`, it says so; `invalid`, it cannot be started.
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
        raise FinalError("invalid", f"{command[0]} cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(seconds):
            printed, _ = await process.communicate()
    except TimeoutError as error:
        raise PassingError("time-out", f"{' '.join(command)} did not end in {seconds:g} s") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    told = printed.decode(errors="replace").strip()
    if process.returncode == NO_PERMISSION:
        raise FinalError("permission", f"{' '.join(command)}: {told[-_TOLD:]}")
    if process.returncode:
        raise PassingError("transient", f"{' '.join(command)} ended with {process.returncode}: {told[-_TOLD:]}")
    return told
