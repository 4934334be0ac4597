"""One program of the control plane as a process."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

_READY_SECONDS: Final = 240.0
"""Loaded machines take far longer than the usual one or two seconds."""
_POLL_SECONDS: Final = 0.05
_AGAIN: Final = ("sh", "-c", 'while :; do "$@"; sleep 0.5; done', "sh")
"""Starts what follows whenever it has ended."""


class ServerError(Exception):
    """A program did not start; the text holds the end of its log."""


class Server:
    """Starts, pauses and ends one program, by its process id only. Its output goes to a log file.

    Args:
        name: of the program; the log is named after it.
        command: the program with its arguments.
        folder: where the log lies.
        is_ready: tells whether it can be used.
        outlive: whether the program goes on when this process ends.
        restarts: whether it is started anew when it ends by itself, as a kubelet would. kube-scheduler gives up when a
            pod has come back on another node while it could not watch.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        is_ready: Callable[[], bool],
        outlive: bool = False,
        restarts: bool = False,
    ) -> None:
        self.name = name
        self.command = (*_AGAIN, *command) if restarts else command
        self.log = folder / f"{name}.log"
        self._is_ready = is_ready
        self._outlive = outlive
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id, of its group too.

        Raises:
            ServerError: it does not run.
        """
        if self._process is None or self._process.poll() is not None:
            raise ServerError(f"{self.name} does not run:\n{self.tail()}")
        return self._process.pid

    def launch(self) -> None:
        """Start it without waiting."""
        with self.log.open("ab") as log:
            # The program inherits the lock with its output: whoever can take it knows that the program has ended.
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if not self._outlive:
            # Leave no control plane behind when the tests are killed: this shell's input ends with this process.
            guard = ("sh", "-c", "read _; kill -9 -$0", str(self._process.pid))
            self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)

    def wait_ready(self) -> None:
        """Wait until it can be used.

        Raises:
            ServerError: it ended, or takes too long.
        """
        end = time.monotonic() + _READY_SECONDS
        while not self._is_ready():
            if self.pid and time.monotonic() > end:
                raise ServerError(f"{self.name} is not ready after {_READY_SECONDS:g} s:\n{self.tail()}")
            time.sleep(_POLL_SECONDS)

    def start(self) -> None:
        """Start it and wait until it can be used; raises ServerError."""
        self.launch()
        self.wait_ready()

    def __enter__(self) -> Self:
        """Start it for a block; raises ServerError."""
        try:
            self.start()
        except BaseException:  # an interrupt, too, must not leave it behind
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End it with the block."""
        self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would; nothing to do when it has ended."""
        for process in (self._guard, self._process):
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            if process is not None:
                process.communicate()

    def pause(self) -> None:
        """Let it do nothing until `resume`."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.killpg(self.pid, signal.SIGCONT)

    def tail(self, size: int = 2000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else "(no log)"


def kill_left(pid: int, log: Path) -> None:
    """End a program that another process started, if it still runs: its id may belong to somebody else by now."""
    try:
        with log.open("ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.killpg(pid, signal.SIGKILL)
