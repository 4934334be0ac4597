"""A process that does errands for solves of others: `python -m kinema_optimizer.process.worker --settings FILE`.

Any number of them, on any machines of one kind, share the solves of a cluster's optimizer. They hold nothing that is
worth keeping and may be killed at any time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Final, TypeVar

import structlog

from kinema_core.runtime.bus import BusError, BusUnavailableError
from kinema_core.runtime.faultpoint import faultpoint, register
from kinema_core.runtime.framing import FramingError, Manifest
from kinema_core.runtime.nats_work import connect_work
from kinema_core.runtime.run import Runtime, run_service
from kinema_core.runtime.work import Item, WorkQueue
from kinema_optimizer.errors import WireError
from kinema_optimizer.problem.instance import Instance
from kinema_optimizer.process.wire import Found, GuideData, guide_in, item_in, packed, problem_in
from kinema_optimizer.search.kernels import warm
from kinema_optimizer.search.neighbourhood import Guide
from kinema_optimizer.search.tasks import better
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
    """Does errands from a queue."""

    def __init__(self, work: WorkQueue) -> None:
        self._work = work
        self._problems: OrderedDict[str, Instance] = OrderedDict()
        self._guides: OrderedDict[str, Guide] = OrderedDict()

    async def run(self) -> None:
        """Take one item after the other until cancelled."""
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
            await _quietly(item.drop)
        except BusUnavailableError as error:
            _LOG.warning("item lost", error=str(error))  # whoever asked does it in our place
            await asyncio.sleep(_PAUSE_SECONDS)
        except asyncio.CancelledError:
            await _quietly(item.give_back)
            raise

    async def _done(self, data: bytes) -> bytes:
        item = item_in(data)
        guide = await self._guide(item.problem, item.guide)
        exchange = await asyncio.to_thread(better, guide, item.errand)  # HiGHS and the kernels let go of the GIL
        faultpoint("worker-before-answer")
        return packed(Found(exchange))

    async def _guide(self, problem: Manifest, guide: Manifest) -> Guide:
        """The guide with its problem; both are kept for the items to come."""
        name = f"{problem.digest}/{guide.digest}"
        if name not in self._guides:
            if problem.digest not in self._problems:
                _keep(self._problems, problem.digest, problem_in(await self._work.shared(problem)), _PROBLEMS)
            data: GuideData = guide_in(await self._work.shared(guide))
            _keep(self._guides, name, data.guide(self._problems[problem.digest]), _GUIDES)
        return self._guides[name]


def _keep(cache: OrderedDict[str, T], name: str, value: T, most: int) -> None:
    cache[name] = value
    while len(cache) > most:
        cache.popitem(last=False)


async def _quietly(settle: Callable[[], Awaitable[None]]) -> None:
    """Settle an item; where the broker is away, time does."""
    with suppress(BusError):
        await settle()


async def start(settings: Settings, runtime: Runtime) -> None:
    """Do errands until told to stop."""
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
