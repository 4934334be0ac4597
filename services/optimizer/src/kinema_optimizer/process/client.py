"""Clients of the solver: in a child process (`InChild`), or in a thread of the service (`InThread`)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from kinema_core.events import NoPlanFound, Plan
from kinema_optimizer.errors import ChildError
from kinema_optimizer.planning.planner import PRICING_SHARE
from kinema_optimizer.problem.progress import IncumbentReport
from kinema_optimizer.process.child import Child, resident_mib
from kinema_optimizer.process.job import Ended, Failure, FailureReason, Job, salvage, solve
from kinema_optimizer.settings import SolverSettings
from kinema_optimizer.solvers.stopping import ClockStop, StopRule

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
        """The answer to a job. When canceled, the solve ends."""


class InThread:
    """Solves in this process: what a replay, a simulation and a test want."""

    async def answer(self, job: Job) -> Plan | NoPlanFound:
        """See `Solving`."""
        return await in_thread(job, ClockStop(job.settings.time_limit_seconds, pricing=PRICING_SHARE))


async def in_thread(job: Job, stop: StopRule) -> Plan | NoPlanFound:
    """The answer to a job, solved in a thread until `stop` ends it or the call is canceled."""
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
        """A process that waits for a job."""
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
        """What it answered, if it did."""
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
        """The failure, in figures."""
        reason, detail = self._cause
        return Failure(reason, detail, round(self._seconds, 3), round(self._feasible, 3), peak_mib)
