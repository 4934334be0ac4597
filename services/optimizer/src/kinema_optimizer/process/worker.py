"""A process that does tasks for solves of others: `python -m kinema_optimizer.process.worker --settings FILE`.

Any number of them, on any machines of one kind, share the solves of a cluster's optimizer. They hold nothing that is
worth keeping and may be killed at any time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Final, TypeVar

from kinema_core.runtime.collector import quick_imports

with quick_imports():
    import structlog

    from kinema_core.runtime.bus import BusError, BusUnavailableError
    from kinema_core.runtime.faultpoint import faultpoint, register
    from kinema_core.runtime.framing import FramingError, Manifest
    from kinema_core.runtime.nats_work import connect_work
    from kinema_core.runtime.run import Runtime, run_service
    from kinema_core.runtime.work import Item, WorkQueue
    from kinema_optimizer.errors import WireError
    from kinema_optimizer.problem.instance import Instance
    from kinema_optimizer.process.sharing import ContextData, TaskResult, context_in, encode, item_in, problem_in
    from kinema_optimizer.search.kernels import warm
    from kinema_optimizer.search.neighborhood import SearchContext, improve
    from kinema_optimizer.settings import NAME, Settings

T = TypeVar("T")

_PROBLEMS: Final = 2
_GUIDES: Final = 8
_PAUSE_SECONDS: Final = 0.5
_RESOURCES: Final = 3
"""For which kernels are made ready before the first item comes; any number does."""

register("worker-before-answer")
_LOG = structlog.get_logger()


class Worker:
    """Does tasks from a queue."""

    def __init__(self, work: WorkQueue) -> None:
        self._work = work
        self._problems: OrderedDict[str, Instance] = OrderedDict()
        self._contexts: OrderedDict[str, SearchContext] = OrderedDict()

    async def run(self) -> None:
        """Take one item after the other until canceled."""
        items = self._work.items()
        async with AsyncExitStack() as stack:
            if isinstance(items, AsyncGenerator):
                stack.push_async_callback(items.aclose)
            async for item in items:
                await self._deal_with(item)

    async def _deal_with(self, item: Item) -> None:
        try:
            await item.answer(await self._done(item.data))
        except (WireError, FramingError) as error:
            _LOG.warning("item dropped", error=str(error))
            await _settle(item.drop)
        except BusUnavailableError as error:
            _LOG.warning("item lost", error=str(error))  # the process that asked executes it
            await asyncio.sleep(_PAUSE_SECONDS)
        except asyncio.CancelledError:
            await _settle(item.give_back)
            raise

    async def _done(self, data: bytes) -> bytes:
        item = item_in(data)
        context = await self._context(item.problem, item.context)
        replacement = await asyncio.to_thread(improve, context, item.task)  # HiGHS and the kernels let go of the GIL
        faultpoint("worker-before-answer")
        return encode(TaskResult(replacement))

    async def _context(self, problem: Manifest, context: Manifest) -> SearchContext:
        """Return the context with its problem; both are kept for the items to come."""
        name = f"{problem.digest}/{context.digest}"
        if name not in self._contexts:
            if problem.digest not in self._problems:
                _cache(self._problems, problem.digest, problem_in(await self._work.shared(problem)), _PROBLEMS)
            data: ContextData = context_in(await self._work.shared(context))
            _cache(self._contexts, name, data.context(self._problems[problem.digest]), _GUIDES)
        return self._contexts[name]


def _cache(cache: OrderedDict[str, T], name: str, value: T, most: int) -> None:
    cache[name] = value
    while len(cache) > most:
        cache.popitem(last=False)


async def _settle(settle: Callable[[], Awaitable[None]]) -> None:
    """Settle an item; where the broker is away, time does."""
    with suppress(BusError):
        await settle()


async def start(settings: Settings, runtime: Runtime) -> None:
    """Execute tasks until the service stops."""
    work = await connect_work(settings.runtime, NAME)
    try:
        runtime.health.started()
        await asyncio.to_thread(warm, _RESOURCES)
        _LOG.info("working")
        await Worker(work).run()
    finally:
        await work.close()


def main() -> None:
    """Entry point."""
    run_service(f"{NAME}-worker", Settings, start)


if __name__ == "__main__":
    main()
