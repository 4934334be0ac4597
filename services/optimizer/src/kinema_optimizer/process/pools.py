"""A crew of processes that take errands from a work queue, on this machine or on others.

Answers are put in the order of their errands, and an errand without a sound answer in time is done here. So what comes
out of a round is the same whoever was faster, and whoever died: a lost errand costs its time and nothing else.
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
from kinema_optimizer.process.wire import Found, Item, data_of, faults, found_in, packed
from kinema_optimizer.search.neighbourhood import BETTER, Exchange, Guide, saving_of
from kinema_optimizer.search.tasks import Crew, Errand

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
"""Rounds done here after one in which nobody answered, and the most of them: twice as many each time. Whoever loads the
problem on a busy machine is late once; who is not there is late again and again."""
_LOG = structlog.get_logger()


class SharedCrew:
    """Errands by way of a work queue. Use as a context: it has a thread for its connection.

    Args:
        connect: connects to the queue.
        local: does what nobody else does.
    """

    def __init__(self, connect: Callable[[], Awaitable[WorkQueue]], local: Crew) -> None:
        self._connect = connect
        self._local = local
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shared-crew", daemon=True)
        self._work: WorkQueue | None = None
        self._problem: tuple[Instance, Manifest] | None = None
        self._guide: tuple[Guide, Manifest] | None = None
        self._took: deque[float] = deque(maxlen=_REMEMBERED)
        self._resting = 0
        self._rest = _REST
        self.answered = 0
        """Errands done by others."""
        self.lost = 0
        """Errands given to others and done here in the end."""

    def __enter__(self) -> SharedCrew:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._work is not None:
            self._wait(self._work.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def improve(self, guide: Guide, errands: Sequence[Errand]) -> list[Exchange | None]:
        """See `Crew`."""
        if self._resting:
            self._resting -= 1
            return self._local.improve(guide, errands)
        found = [
            self._checked(guide, errand, data)
            for errand, data in zip(errands, self._wait(self._round(guide, errands)), strict=True)
        ]
        left = [index for index, one in enumerate(found) if one is None]
        if errands and len(left) == len(errands):
            self._resting, self._rest = self._rest, min(2 * self._rest, _LONGEST_REST)
        elif errands:
            self._rest = _REST
        again = self._local.improve(guide, [errands[index] for index in left])
        self.answered += len(errands) - len(left)
        self.lost += len(left)
        here = dict(zip(left, again, strict=True))
        return [here[index] if one is None else one.exchange for index, one in enumerate(found)]

    def _checked(self, guide: Guide, errand: Errand, data: bytes | None) -> Found | None:
        """Return the outcome in an answer; None unless it obeys every rule and costs less than the step."""
        if data is None:
            return None
        try:
            found = found_in(data)
        except WireError as error:
            _LOG.warning("answer refused", error=str(error))
            return None
        if found.exchange is None:
            return found
        wrong = faults(guide.problem, errand.step, found.exchange)
        if not wrong and saving_of(guide, errand.step, found.exchange) <= BETTER:
            wrong = ("an exchange does not cost less than its step",)
        if wrong:
            _LOG.warning("answer refused", error=wrong[0])
        return None if wrong else found

    async def _round(self, guide: Guide, errands: Sequence[Errand]) -> list[bytes | None]:
        """The answers in the order of the errands, None for those that did not come in time."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                work = await self._connected()
                problem, way = await self._share(work, guide)
        except (BusError, TimeoutError) as error:
            _LOG.warning("work queue cannot be used", error=str(error))
            return [None] * len(errands)
        began = time.monotonic()
        asked = [asyncio.ensure_future(work.ask(packed(Item(problem, way, errand)))) for errand in errands]
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

    async def _connected(self) -> WorkQueue:
        if self._work is None:
            self._work = await self._connect()
        return self._work

    async def _share(self, work: WorkQueue, guide: Guide) -> tuple[Manifest, Manifest]:
        """Problem and guide, for those who work: each travels once."""
        if self._problem is None or self._problem[0] is not guide.problem:
            self._problem = (guide.problem, await work.share(packed(guide.problem)))
        if self._guide is None or self._guide[0] is not guide:
            self._guide = (guide, await work.share(packed(data_of(guide))))
        return self._problem[1], self._guide[1]

    def _wait(self, call: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
