"""A child process that works on one task: its start, its messages, its memory and its end.

Messages go over its standard input and output, each with its length in front. Python objects travel as pickles, which
is safe between a process and the child that it has started, and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from kinema_optimizer.errors import ChildError

_LENGTH: Final = struct.Struct("!Q")
_POLL_SECONDS: Final = 0.1
_MIB: Final = 1024 * 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def write_message(stream: BinaryIO, message: object) -> None:
    """Write one message; blocks while the pipe is full."""
    data = message if isinstance(message, bytes) else pickle.dumps(message, protocol=5)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_message(stream: BinaryIO) -> bytes | None:
    """The next message, None at the end of the pipe; blocks."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    data = stream.read(size)
    return data if len(data) == size else None


def resident_mib(pid: int) -> int:
    """Resident memory of a process in MiB; 0 where the system does not say (anything but Linux) or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(fields[1]) * _PAGE // _MIB


class Child:
    """One process. Made by `Child.start`; always `end` it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.peak_mib = 0
        """Most resident memory seen during the last task."""

    @classmethod
    async def start(cls, module: str) -> Child:
        """Start a process that runs a module."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self._process.returncode is None

    async def ask(
        self, task: bytes, on_message: Callable[[object], bool], *, seconds: float, patience: float, most_mib: int
    ) -> None:
        """Hand over a task, and pass on each message until `on_message` says that it was the last.

        Args:
            task: what the child gets to read.
            on_message: called with every message; gives whether it is the last.
            seconds: how long the child may be silent without being taken for hung.
            patience: how long it may be silent from then on.
            most_mib: resident memory at which it is killed.

        Raises:
            ChildError: it died, fell silent or took too much memory; it is killed then.
        """
        self.peak_mib = 0
        writing = asyncio.ensure_future(self._write(task))
        try:
            await self._listen(on_message, time.monotonic() + seconds, patience, most_mib)
        except ChildError:
            await self.end()
            raise
        finally:
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing

    async def end(self) -> None:
        """Kill it, whatever it does, and wait until it is gone."""
        with suppress(ProcessLookupError):
            self._process.kill()
        while await self._read() is not None:
            pass  # what is left in the pipe: the process counts as gone when its pipes are empty
        await self._process.wait()

    async def _listen(
        self, on_message: Callable[[object], bool], deadline: float, patience: float, most_mib: int
    ) -> None:
        heard = time.monotonic()
        reading = asyncio.ensure_future(self._read())
        try:
            while True:
                await asyncio.wait({reading}, timeout=_POLL_SECONDS)
                self._watch_memory(most_mib)
                if reading.done():
                    data = reading.result()
                    if data is None:
                        raise await self._death()
                    heard = time.monotonic()
                    if on_message(pickle.loads(data)):  # noqa: S301 - written by our own child, over its pipe
                        return
                    reading = asyncio.ensure_future(self._read())
                elif time.monotonic() > max(deadline, heard) + patience:
                    silent = time.monotonic() - heard
                    raise ChildError("hung", f"no sign of life for {silent:.1f} s")
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    def _watch_memory(self, most_mib: int) -> None:
        now = resident_mib(self.pid)
        self.peak_mib = max(self.peak_mib, now)
        if now > most_mib:
            raise ChildError("memory", f"{now} MiB, {most_mib} allowed")

    async def _death(self) -> ChildError:
        """How it died: it has closed its pipe, so it is dead or about to be."""
        try:
            async with asyncio.timeout(1):
                code = await self._process.wait()
        except TimeoutError:
            return ChildError("crashed", "its pipe is closed")
        name = signal.Signals(-code).name if code < 0 else ""
        return ChildError("crashed", f"killed by {name}" if name else f"exit code {code}")

    async def _write(self, data: bytes) -> None:
        stream = self._process.stdin
        assert stream is not None  # made with a pipe
        with suppress(ConnectionError):  # it died: the reader says so
            stream.write(_LENGTH.pack(len(data)))
            stream.write(data)
            await stream.drain()

    async def _read(self) -> bytes | None:
        stream = self._process.stdout
        assert stream is not None  # made with a pipe
        try:
            (size,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
            return await stream.readexactly(size)
        except asyncio.IncompleteReadError:
            return None
