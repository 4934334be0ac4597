"""One process at a time in a directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kinema_cli.inputs import InputError

_LOCK: Final = ".kinema-lock"
_PROCESSES: Final = Path("/proc")
"""Where Linux tells of processes; elsewhere nothing is known of those that were left behind."""


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Make the directory where there is none, and hold it within the block; whoever dies gives it up.

    Processes that are started meanwhile with `close_fds=False` hold it, too: what a killed process leaves running must
    not meet what the next one starts.

    Raises:
        InputError: another process holds it, or it cannot be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / _LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {directory}: {error.strerror}: name a directory that can be written to") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            message = f"--out {directory} is in use by {_users(file.read(), directory / _LOCK)}"
            raise InputError(f"{message}, or name another directory") from error
        os.set_inheritable(file.fileno(), True)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _users(holder: str, lock: Path) -> str:
    """Who uses it, and what to do about that."""
    alive = holder.isdecimal() and _PROCESSES.joinpath(holder).exists()
    users = {int(process.name) for process in _PROCESSES.glob("[0-9]*") if not alive and _opens(process, lock)}
    left = sorted(users - {os.getpid()})  # we have opened it to see
    if not left:
        return f"process {holder or 'unknown'}: end that one"
    pids = " ".join(str(pid) for pid in left)
    return f"what process {holder} left running when it was killed: wait some seconds, end what stays (`kill {pids}`)"


def _opens(process: Path, lock: Path) -> bool:
    try:
        return any(file.samefile(lock) for file in (process / "fd").iterdir())
    except OSError:
        return False  # it is somebody else's, or gone
