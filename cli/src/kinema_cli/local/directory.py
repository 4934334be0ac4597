"""Directories that `kinema up` and `kinema demo` write to: one process at a time, and nothing of others is deleted."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kinema_cli.inputs import InputError

_LOCK: Final = ".kinema-lock"
_LEAST_FREE: Final = 64 * 2**20
_MARKER: Final = ".kinema"
"""File in every directory that Kinema may clear."""
_PROCESSES: Final = Path("/proc")
"""Directory of processes on Linux; elsewhere processes that were left behind are not found."""


def state_directory(name: str) -> Path:
    """Return the directory of a local Kinema: `$XDG_STATE_HOME/kinema/NAME`."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "kinema" / name


def check_own(directory: Path) -> None:
    """Raise InputError where the directory holds files and no marker of Kinema, or cannot be read."""
    try:
        if directory.exists() and _content(directory) and not (directory / _MARKER).is_file():
            raise InputError(f"{directory}: was not made by Kinema; name another directory with --out, or move it")
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}; name another directory with --out") from error


def clear_own(directory: Path) -> None:
    """Make an empty directory with Kinema's marker, but for a lock; delete what is in it only if the marker is there.

    Raises:
        InputError: the directory holds files and no marker, or cannot be written to.
    """
    check_own(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for entry in _content(directory):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (directory / _MARKER).touch()
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}; name another directory with --out") from error


def full_disk(directory: Path) -> str:
    """Return how little room is left where the directory lies; empty where the broker has enough to begin with."""
    free = shutil.disk_usage(directory).free
    if free >= _LEAST_FREE:
        return ""
    return f"{directory} has {free / 2**20:.1f} MiB left on its disk, and the broker needs {_LEAST_FREE // 2**20} MiB"


def _content(directory: Path) -> list[Path]:
    return [entry for entry in directory.iterdir() if entry.name != _LOCK]


@contextmanager
def exclusive_lock(directory: Path) -> Iterator[None]:
    """Make the directory where there is none, and lock it within the block; the lock ends with its process.

    Processes that are started within the block with `close_fds=False` hold the lock too: what a killed process leaves
    running must not meet what the next one starts.

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
    """Name the processes that use it, and what to do about them."""
    alive = holder.isdecimal() and _PROCESSES.joinpath(holder).exists()
    users = {int(process.name) for process in _PROCESSES.glob("[0-9]*") if not alive and _opens(process, lock)}
    left = sorted(users - {os.getpid()})  # this process has opened it to look
    if not left:
        return f"process {holder or 'unknown'}: end that one"
    pids = " ".join(str(pid) for pid in left)
    return f"what process {holder} left running when it was killed: wait some seconds, end what stays (`kill {pids}`)"


def _opens(process: Path, lock: Path) -> bool:
    try:
        return any(file.samefile(lock) for file in (process / "fd").iterdir())
    except OSError:
        return False  # it belongs to another user, or has ended
