"""Remote pool: processes on this machine or others that take tasks from a work queue.

Answers are put in the order of their tasks, and a task without a sound answer in time is computed here. So what comes
out of a round does not depend on which process was faster or died: a lost task costs its time and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final, TypeVar

import structlog

from kinema_core.runtime.bus import BusError
from kinema_core.runtime.framing import Manifest
from kinema_core.runtime.work import WorkQueue
from kinema_optimizer.errors import WireError
from kinema_optimizer.problem.instance import Instance
from kinema_optimizer.process.wire import TaskItem, TaskResult, data_of, encode, find_faults, result_in
from kinema_optimizer.search.neighborhood import (
    LEAST_SAVING,
    ImprovementTask,
    Replacement,
    SearchContext,
    TaskPool,
    saving,
)

T = TypeVar("T")

_CONNECT_SECONDS: Final = 2.0
"""How long connecting to the queue and sharing the problem may take in a round."""
_FIRST_SECONDS: Final = 4.0
"""How long the first answers may take: those who work load the problem before."""
_LEAST_SECONDS: Final = 1.0
_TIMES: Final = 4.0
"""By how much a round may take longer than the slowest of those before."""
_REMEMBERED: Final = 8
"""Rounds before: quick and slow ones alternate."""
_REST: Final = 2
_LONGEST_REST: Final = 50
"""Rounds done here after one without an answer, and the most of them: twice as many each time. A worker that loads the
problem on a busy machine is late once; one that is absent is late each time."""
_LOG = structlog.get_logger()


class RemotePool:
    """Tasks by way of a work queue. Use as a context: it has a thread for its connection.

    Args:
        connect: connects to the queue.
        local: executes tasks without an answer.
    """

    def __init__(self, connect: Callable[[], Awaitable[WorkQueue]], local: TaskPool) -> None:
        self._connect = connect
        self._local = local
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="remote-pool", daemon=True)
        self._work: WorkQueue | None = None
        self._problem: tuple[Instance, Manifest] | None = None
        self._context: tuple[SearchContext, Manifest] | None = None
        self._took: deque[float] = deque(maxlen=_REMEMBERED)
        self._resting = 0
        self._rest = _REST
        self.answered = 0
        """Tasks done by others."""
        self.lost = 0
        """Tasks given to others and done here in the end."""

    def __enter__(self) -> RemotePool:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._work is not None:
            self._wait(self._work.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def improve(self, context: SearchContext, tasks: Sequence[ImprovementTask]) -> list[Replacement | None]:
        """See `TaskPool`."""
        if self._resting:
            self._resting -= 1
            return self._local.improve(context, tasks)
        found = [
            self._check(context, task, data)
            for task, data in zip(tasks, self._wait(self._round(context, tasks)), strict=True)
        ]
        left = [index for index, one in enumerate(found) if one is None]
        if tasks and len(left) == len(tasks):
            self._resting, self._rest = self._rest, min(2 * self._rest, _LONGEST_REST)
        elif tasks:
            self._rest = _REST
        again = self._local.improve(context, [tasks[index] for index in left])
        self.answered += len(tasks) - len(left)
        self.lost += len(left)
        here = dict(zip(left, again, strict=True))
        return [here[index] if one is None else one.replacement for index, one in enumerate(found)]

    def _check(self, context: SearchContext, task: ImprovementTask, data: bytes | None) -> TaskResult | None:
        """Return the outcome in an answer; None unless it obeys every rule and costs less than the neighborhood."""
        if data is None:
            return None
        try:
            found = result_in(data)
        except WireError as error:
            _LOG.warning("answer refused", error=str(error))
            return None
        if found.replacement is None:
            return found
        wrong = find_faults(context.problem, task.neighborhood, found.replacement)
        if not wrong and saving(context, task.neighborhood, found.replacement) <= LEAST_SAVING:
            wrong = ("a replacement does not cost less than its neighborhood",)
        if wrong:
            _LOG.warning("answer refused", error=wrong[0])
        return None if wrong else found

    async def _round(self, context: SearchContext, tasks: Sequence[ImprovementTask]) -> list[bytes | None]:
        """The answers in the order of the tasks, None for those that did not come in time."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                work = await self._connection()
                problem, way = await self._share(work, context)
        except (BusError, TimeoutError) as error:
            _LOG.warning("work queue cannot be used", error=str(error))
            return [None] * len(tasks)
        began = time.monotonic()
        asked = [asyncio.ensure_future(work.ask(encode(TaskItem(problem, way, task)))) for task in tasks]
        done, waiting = await asyncio.wait(asked, timeout=self._patience()) if asked else (set(), set())
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if done and not waiting:
            self._took.append(time.monotonic() - began)
        return [one.result() if one in done and one.exception() is None else None for one in asked]

    def _patience(self) -> float:
        """How long the answers of a round are waited for, real seconds."""
        return max(_LEAST_SECONDS, _TIMES * max(self._took)) if self._took else _FIRST_SECONDS

    async def _connection(self) -> WorkQueue:
        if self._work is None:
            self._work = await self._connect()
        return self._work

    async def _share(self, work: WorkQueue, context: SearchContext) -> tuple[Manifest, Manifest]:
        """Problem and context, for those who work: each travels once."""
        if self._problem is None or self._problem[0] is not context.problem:
            self._problem = (context.problem, await work.share(encode(context.problem)))
        if self._context is None or self._context[0] is not context:
            self._context = (context, await work.share(encode(data_of(context))))
        return self._problem[1], self._context[1]

    def _wait(self, call: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
