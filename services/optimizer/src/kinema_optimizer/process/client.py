"""Clients of the solver: in a child process (`InChild`), or in a thread of the service (`InThread`).

`Child` is a process that works on one task: its start, its messages, its memory and its end. Messages go over its
standard input and output, each with its length in front. Python objects travel as pickles, which is safe between a
process and the child that it has started, and nowhere else.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import structlog

from kinema_core.events import NoPlanFound, Plan
from kinema_optimizer.errors import ChildError
from kinema_optimizer.planning.planner import PRICING_SHARE
from kinema_optimizer.problem.solution import IncumbentReport
from kinema_optimizer.process.job import Ended, Failure, FailureReason, Job, salvage, solve
from kinema_optimizer.settings import SolverSettings
from kinema_optimizer.solvers.stopping import ClockStop, StopRule

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
    """Return the next message, None at the end of the pipe; blocks."""
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
        """Return whether it has not ended, as far as is known."""
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
        """Return how it died: it has closed its pipe, so it is dead or about to be."""
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


_MODULE: Final = "kinema_optimizer.process.solver"
_KEPT_SHARE: Final = 0.25
"""Of the memory that a process may have: one that still holds more after a job is not kept for the next."""
_REASONS: Final[dict[str, FailureReason]] = {
    "crashed": "solver-crashed",
    "hung": "solver-hung",
    "memory": "solver-memory",
}
_LOG = structlog.get_logger()


class Solver(Protocol):
    """Makes plans."""

    async def answer(self, job: Job) -> Plan | NoPlanFound:
        """Return the answer to a job. When canceled, the solve ends."""


class InThread:
    """Solves in this process: what a replay, a simulation and a test want."""

    async def answer(self, job: Job) -> Plan | NoPlanFound:
        """See `Solving`."""
        return await in_thread(job, ClockStop(job.settings.time_limit_seconds, pricing=PRICING_SHARE))


async def in_thread(job: Job, stop: StopRule) -> Plan | NoPlanFound:
    """Return the answer to a job, solved in a thread until `stop` ends it or the call is canceled."""
    try:
        return await asyncio.to_thread(solve, job, stop)  # HiGHS lets go of the GIL
    except asyncio.CancelledError:
        stop.cancel()  # a thread cannot be killed; it ends at the solver's next callback
        raise


class InChild:
    """Solves in a process of its own, started ahead so that it is warm when a job comes, and kept for the next one.

    Where it dies, falls silent or takes too much memory, the answer is made of the best plan that it had
    reported. Use as an asynchronous context; leaving it kills what runs.
    """

    def __init__(self, settings: SolverSettings) -> None:
        self._settings = settings
        self._spare: asyncio.Future[Child] | None = None
        self._working: Child | None = None

    async def __aenter__(self) -> InChild:
        self._prepare()
        return self

    async def __aexit__(self, *_: object) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await (await spare).end()

    @property
    def pid(self) -> int | None:
        """Process that solves just now."""
        return None if self._working is None else self._working.pid

    async def answer(self, job: Job) -> Plan | NoPlanFound:
        """See `Solving`."""
        child = self._working = await self._ready()
        ear = _Listener()
        try:
            task = await asyncio.to_thread(job.pack)
            await child.ask(
                task,
                ear.hear,
                seconds=job.settings.time_limit_seconds,
                patience=self._settings.patience_seconds,
                most_mib=self._settings.memory_limit_mib,
            )
        except ChildError as error:
            ear.fail(_REASONS[error.reason], error.detail)
        finally:
            self._working = None
            if ear.answer is None or resident_mib(child.pid) > _KEPT_SHARE * self._settings.memory_limit_mib:
                await child.end()
            else:
                self._spare = asyncio.get_running_loop().create_future()
                self._spare.set_result(child)
            self._prepare()
        if ear.answer is not None:
            return ear.answer
        failure = ear.failure(child.peak_mib)
        known = ear.incumbent is not None
        _LOG.error("solver failed", reason=failure.reason, detail=failure.detail, incumbent=known)
        return await asyncio.to_thread(salvage, job, failure, ear.incumbent)

    async def _ready(self) -> Child:
        """Return a process that waits for a job."""
        while True:
            self._prepare()
            assert self._spare is not None  # just made
            child, self._spare = await asyncio.shield(self._spare), None
            if child.alive:
                return child
            await child.end()  # it died of something else while it waited

    def _prepare(self) -> None:
        if self._spare is None:
            self._spare = asyncio.ensure_future(Child.start(_MODULE))


@dataclass
class _Listener:
    """Messages of a child."""

    incumbent: IncumbentReport | None = None
    ended: Ended | None = None
    _began: float = field(default_factory=time.monotonic)
    _feasible: float = 0.0
    _seconds: float = 0.0
    _cause: tuple[FailureReason, str] = ("solver-crashed", "")

    @property
    def answer(self) -> Plan | NoPlanFound | None:
        """Return what it answered, if it did."""
        return None if self.ended is None else self.ended.answer

    def hear(self, message: object) -> bool:
        """Take note of a message; gives whether it was the last."""
        if isinstance(message, IncumbentReport):
            self.incumbent = message
            self._feasible = self._feasible or time.monotonic() - self._began
        if isinstance(message, Ended):
            self.ended = message
            self.fail("solver-memory" if message.out_of_memory else "solver-crashed", message.error)
        return isinstance(message, Ended)

    def fail(self, reason: FailureReason, detail: str) -> None:
        """Note why there may be no answer."""
        self._cause = (reason, detail)
        self._seconds = time.monotonic() - self._began

    def failure(self, peak_mib: int) -> Failure:
        """Return the failure, in figures."""
        reason, detail = self._cause
        return Failure(reason, detail, round(self._seconds, 3), round(self._feasible, 3), peak_mib)
