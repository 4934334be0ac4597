"""Child processes of `kinema demo` and `kinema up`: started, watched, restarted when they die, ended by their pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STOP_SECONDS = 10.0
RESTART_SECONDS = 1.0
MOST_RESTARTS = 5
WITHIN_SECONDS = 300.0
"""A process that is started again more often than that within this time is not helped by it."""


class ChildError(Exception):
    """A child process could not be started or ended at once; the text names it and its log."""


class Starts:
    """Recent starts of a process."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=MOST_RESTARTS + 1)

    def add(self) -> None:
        """Note that it starts now."""
        self._at.append(time.monotonic())

    @property
    def vain(self) -> bool:
        """True when it has ended so often within a short time that starting it again does not help."""
        return len(self._at) > MOST_RESTARTS and self._at[-1] - self._at[0] < WITHIN_SECONDS


@dataclass
class Child:
    """One child process with its log file. Its standard input ends with us: by that it knows (`starter`)."""

    name: str
    arguments: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    starts: Starts = field(default_factory=Starts)
    process: asyncio.subprocess.Process | None = None

    async def start(self, *, read_output: bool = False) -> None:
        """Start it; with `read_output` its standard output comes through a pipe instead of the log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if read_output else log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
                close_fds=False,  # it holds the directory as long as it runs (`holding`); Python's files do not pass on
            )
        self.starts.add()

    @property
    def running(self) -> bool:
        """True when it was started and has not ended."""
        return self.process is not None and self.process.returncode is None

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL when it does not end in time."""
        process = self.process
        if process is None:
            return
        if process.returncode is None:
            await self._end(process)
        if process.stdin is not None:
            process.stdin.close()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def tail(self, lines: int = 3) -> str:
        """Return the last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


async def first_line(child: Child, timeout: float) -> bytes:  # noqa: ASYNC109 - the caller states its budget for a start
    """Return the first line that a child prints; it must have been started with `read_output`.

    Raises:
        ChildError: it ended or stayed silent for `timeout` seconds.
    """
    if child.process is None or child.process.stdout is None:
        raise ChildError(f"{child.name} was not started with its output read")
    try:
        line = await asyncio.wait_for(child.process.stdout.readline(), timeout)
    except TimeoutError:
        line = b""
    if not line:
        raise ChildError(
            f"{child.name} did not get ready in {timeout:.0f} s; its log {child.log} ends:\n{child.tail()}"
        )
    return line


def stop_event() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set, so that whatever was started is ended in order."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    return stopping


class Supervisor:
    """Keeps children running: one that dies is started again after a moment, as a kubelet would."""

    def __init__(self, children: Sequence[Child]) -> None:
        self.children = {child.name: child for child in children}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        """Start all children and the watch over them."""
        for child in self.children.values():
            await child.start()
            self._tasks.append(asyncio.create_task(self._watch(child), name=f"watch {child.name}"))

    async def _watch(self, child: Child) -> None:
        while not self._stopping:
            if child.process is not None:
                await child.process.wait()
            if self._stopping:
                return
            await asyncio.sleep(RESTART_SECONDS)
            if not self._stopping:
                await child.start()

    def crash_looping(self) -> Child | None:
        """Return a child that restarting does not help, if any."""
        return next((child for child in self.children.values() if child.starts.vain), None)

    async def stop(self) -> None:
        """End all children, together."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(child.stop() for child in self.children.values()))
