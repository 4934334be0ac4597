"""The process that solves: `python -m kinema_optimizer.process.solver`, started by the service and of no use otherwise.

It reads jobs from its standard input, one after the other, reports incumbents, and writes the answers. It ends when
its input is closed, in the middle of a job too.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import BinaryIO, Final

from kinema_core.runtime.collector import quick_imports, spare_the_collector
from kinema_core.runtime.faultpoint import faultpoint, register

with quick_imports():
    from kinema_core.runtime.nats_work import connect_work
    from kinema_optimizer.planning.planner import PRICING_SHARE
    from kinema_optimizer.problem.solution import Progress, incumbent_report
    from kinema_optimizer.process.client import read_message, write_message
    from kinema_optimizer.process.job import Alive, Ended, Job, solve, unpack
    from kinema_optimizer.process.sharing import RemotePool
    from kinema_optimizer.search.kernels import ready, warm
    from kinema_optimizer.search.neighborhood import TaskPool, ThreadPool
    from kinema_optimizer.settings import NAME
    from kinema_optimizer.solvers.stopping import ClockStop, Deadline, StopReason

_EVERY_SECONDS: Final = 1.0
_RESOURCES: Final = 3
"""For which kernels are made ready before the job is known; any number does."""

register("solver-after-incumbent", "solver-before-answer")


class _Reporter:
    """Reporter of incumbents and signs of life to the parent, each at most every second; the first one at once."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._count = 0
        self._news: Progress | None = None
        self._told = 0.0
        self._alive = 0.0

    def report(self, news: Progress) -> None:
        """See `Report`."""
        self._count += 1
        self._news = news
        self.beat()

    def beat(self) -> None:
        """Say what there is to say, unless something was said just before."""
        now = time.monotonic()
        if self._news is not None and now - self._told >= _EVERY_SECONDS:
            incumbent = incumbent_report(self._count, self._news)
            self._news = None
            if incumbent is not None:
                write_message(self._out, incumbent)
                self._told = self._alive = now
                faultpoint("solver-after-incumbent")
        if now - self._alive >= _EVERY_SECONDS:
            write_message(self._out, Alive())
            self._alive = now


class _ReportingStop(ClockStop):
    """The clock, and a sign of life at each callback."""

    def __init__(self, limit: Deadline, teller: _Reporter) -> None:
        super().__init__(limit, pricing=PRICING_SHARE)
        self._teller = teller

    def begin(self, phase: str) -> None:
        """See `StopRule`."""
        super().begin(phase)
        self._teller.beat()

    def ends(self, iteration: int, coming: str = "") -> StopReason | None:
        """See `StopRule`."""
        self._teller.beat()
        return super().ends(iteration, coming)


def main() -> None:
    """Entry point."""
    spare_the_collector()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get among the messages
    if ready():  # else the first job does not wait: it is solved without kernels as far as that goes
        warm(_RESOURCES)
    given = sys.stdin.buffer
    threading.Thread(target=_end_with_parent, args=(given,), daemon=True).start()
    while (data := read_message(given)) is not None:
        write_message(out, _solve_job(data, _Reporter(out)))


def _solve_job(data: bytes, teller: _Reporter) -> Ended:
    began = time.monotonic()
    try:
        job = unpack(data)
        stop = _ReportingStop(Deadline(job.settings.time_limit_seconds, began=began), teller)
        with ExitStack() as stack:
            answer = solve(job, stop, teller.report, _task_pool(job, stack))
        faultpoint("solver-before-answer")
        return Ended(answer)
    except MemoryError:
        return Ended(None, "out of memory", out_of_memory=True)
    except Exception as error:  # noqa: BLE001 - the parent gives it a name and logs it
        sys.stderr.write(traceback.format_exc())
        return Ended(None, f"{type(error).__name__}: {error}")


def _task_pool(job: Job, stack: ExitStack) -> TaskPool | None:
    """Return a pool at the work queue, where the job has one."""
    broker = job.broker
    if broker is None:
        return None
    threads = ThreadPool(stack.enter_context(ThreadPoolExecutor(max_workers=job.settings.workers)))
    return stack.enter_context(RemotePool(lambda: connect_work(broker, NAME), threads))


def _end_with_parent(given: BinaryIO) -> None:
    """End this process when the parent closes the pipe: it ended, or wants no answer."""
    pipe = select.poll()
    pipe.register(given, 0)  # wakes when the other end is closed, and for nothing else
    pipe.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
