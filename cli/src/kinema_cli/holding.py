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


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Make the directory where there is none, and hold it within the block; whoever dies gives it up.

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
            message = f"--out {directory} is in use by process {file.read() or 'unknown'}"
            raise InputError(f"{message}: end that one, or name another directory") from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
