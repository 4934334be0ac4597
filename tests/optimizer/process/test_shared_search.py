"""A search whose tasks are done by other processes: the same packing, whoever does them and whoever dies."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from tests.optimizer.instances import boutique
from tests.support.builders import NOW
from tests.support.faults import armed
from tests.support.nats_broker import Broker, running
from tests.support.planning import unguarded

from kinema_core.events import CatalogPublished, ForecastMade, Plan
from kinema_core.runtime.bus import BusUnavailableError
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_work import connect_work
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_core.runtime.work import Item, WorkQueue, cut
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.instance import Instance, Solution, flaws
from kinema_optimizer.problem.question import Question
from kinema_optimizer.problem.solution import NOTHING, NodeLoad
from kinema_optimizer.process import sharing
from kinema_optimizer.process.client import InChild
from kinema_optimizer.process.sharing import RemotePool, TaskItem, TaskResult, encode, item_in
from kinema_optimizer.process.worker import Worker
from kinema_optimizer.search.neighborhood import ImprovementTask, Replacement, SearchContext, ThreadPool
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.service import Optimizer
from kinema_optimizer.settings import Settings, SolverSettings
from kinema_optimizer.solvers.stopping import WorkStop
from kinema_sim.memory_work import MemoryQueue, MemoryWork

ROUNDS = 3
Does: TypeAlias = Callable[[WorkQueue], Awaitable[None]]


@cache
def problem() -> Instance:
    """A few hundred running pods."""
    state, on_sale = boutique(24, seed=6, nodes=24)
    return compiled(Question(state, on_sale, NOW, "reschedule")).packing


class Recorded:
    """Threads that note what they were asked and what they found."""

    def __init__(self, threads: ThreadPool) -> None:
        self._threads = threads
        self.done: list[tuple[SearchContext, ImprovementTask, Replacement | None]] = []

    def improve(self, context: SearchContext, tasks: Sequence[ImprovementTask]) -> list[Replacement | None]:
        """See `Crew`."""
        found = self._threads.improve(context, tasks)
        self.done += [(context, task, one) for task, one in zip(tasks, found, strict=True)]
        return found


@cache
def alone() -> tuple[bytes, list[tuple[SearchContext, ImprovementTask, Replacement | None]]]:
    """The packing that threads find, and all that they did on the way."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        task_pool = Recorded(ThreadPool(pool))
        found = search(problem(), problem(), SearchOptions(seed=3, task_pool=task_pool), WorkStop(ROUNDS))
    return wire(found.packing), task_pool.done


def wire(packing: Solution) -> bytes:
    """Everything that a packing is."""
    parts = (packing.keep, packing.boots, packing.unplaced)
    lists = ((one.start, one.classes, one.counts) for one in (packing.changes, packing.booted))
    return b"|".join(part.tobytes() for part in (*parts, *(part for one in lists for part in one)))


def shared(connect: Callable[[], Awaitable[WorkQueue]]) -> tuple[Solution, RemotePool]:
    """The packing found with the help of a work queue."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=2))
        task_pool = stack.enter_context(RemotePool(connect, ThreadPool(pool)))
        found = search(problem(), problem(), SearchOptions(seed=3, task_pool=task_pool), WorkStop(ROUNDS))
    assert flaws(problem(), found.packing) == ()
    return found.packing, task_pool


class Populated(MemoryWork):
    """A connection to a queue in memory at which others work, in the same loop."""

    def __init__(self, workers: Sequence[Does]) -> None:
        queue = MemoryQueue()
        super().__init__(queue)
        self._tasks = [asyncio.ensure_future(does(MemoryWork(queue))) for does in workers]

    async def close(self) -> None:
        """Send everybody home."""
        await super().close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def populated(*workers: Does) -> Callable[[], Awaitable[WorkQueue]]:
    """Connects to a queue with these workers."""

    async def connect() -> WorkQueue:
        return Populated(workers)

    return connect


async def diligent(work: WorkQueue) -> None:
    """Does what a worker does."""
    await Worker(work).run()


async def mute(work: WorkQueue) -> None:
    """Takes items and never answers."""
    async for _ in work.items():
        pass


async def babbling(work: WorkQueue) -> None:
    """Answers with bytes that mean nothing."""
    async for item in work.items():
        await item.answer(b"what?")


async def greedy(work: WorkQueue) -> None:
    """Finds that all nodes can go, whatever runs on them."""
    async for item in work.items():
        await item.answer(encode(TaskResult(Replacement({}, ()))))


async def wasteful(work: WorkQueue) -> None:
    """Answers with the nodes as they are, and one machine more that nothing runs on."""
    async for item in work.items():
        neighborhood = item_in(item.data).task.neighborhood
        kept = dict(zip(neighborhood.kept, neighborhood.changes, strict=True))
        await item.answer(
            encode(TaskResult(Replacement(kept, (*neighborhood.boots, NodeLoad(0, NOTHING.classes, NOTHING.counts)))))
        )


async def late(work: WorkQueue) -> None:
    """Lets a round pass, as one does who is still loading the problem, and works from then on."""
    first = sum(1 for _ in takewhile(lambda one: one[1].seed[1] == 1, alone()[1]))
    items = work.items()
    for _ in range(first):
        await anext(items)
    await Worker(work).run()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_packing_does_not_depend_on_who_works(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same seed and rounds: what threads find is found by any number of workers, who do all of it."""
    monkeypatch.setattr(sharing, "_FIRST_SECONDS", 300.0)  # a busy machine takes nothing from them
    monkeypatch.setattr(sharing, "_LEAST_SECONDS", 300.0)
    packing, task_pool = shared(populated(*[diligent] * workers))
    assert wire(packing) == alone()[0]
    assert (task_pool.answered, task_pool.lost) == (len(alone()[1]), 0)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [mute, babbling, greedy, wasteful])
def test_bad_workers_cost_time_only(bad: Does, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence, nonsense and replacements that lose pods or cost more are replaced by work done here."""
    monkeypatch.setattr(sharing, "_FIRST_SECONDS", 1.0)
    packing, task_pool = shared(populated(diligent, bad))
    assert wire(packing) == alone()[0]
    assert task_pool.lost > 0


@pytest.mark.slow
def test_without_workers_everything_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a round without any answer nobody is waited for, for many rounds."""
    monkeypatch.setattr(sharing, "_FIRST_SECONDS", 0.1)
    packing, task_pool = shared(populated())
    assert wire(packing) == alone()[0]
    assert task_pool.answered == 0
    assert 0 < task_pool.lost < len(alone()[1]) / 2


@pytest.mark.slow
def test_those_who_are_late_for_the_first_round_work_in_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round without an answer does not send everybody home for the rest of the search."""
    monkeypatch.setattr(sharing, "_FIRST_SECONDS", 2.0)
    monkeypatch.setattr(sharing, "_LEAST_SECONDS", 300.0)
    packing, task_pool = shared(populated(late))
    assert wire(packing) == alone()[0]
    assert task_pool.lost > 0
    assert task_pool.answered > 0


@pytest.mark.slow
def test_a_queue_that_does_not_answer_costs_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that comes to no end is abandoned; the search goes on here."""
    monkeypatch.setattr(sharing, "_CONNECT_SECONDS", 0.05)

    async def connect() -> WorkQueue:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    packing, task_pool = shared(connect)
    assert wire(packing) == alone()[0]
    assert task_pool.answered == 0


@pytest.mark.slow
def test_without_a_broker_everything_is_done_here() -> None:
    """A queue that cannot be reached is no reason for no plan."""

    async def connect() -> WorkQueue:
        raise BusUnavailableError("nobody there")

    packing, task_pool = shared(connect)
    assert wire(packing) == alone()[0]
    assert task_pool.answered == 0


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with a work queue."""
    async with running(tmp_path / "nats") as one:
        yield one


class Crowd:
    """Worker processes."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._settings = directory / "worker.json"
        self._settings.write_bytes(msgspec.json.encode({"runtime": broker.settings("optimizer")}))
        self._log = directory / "workers.log"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, fault: str = "") -> None:
        """One more."""
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "kinema_optimizer.process.worker", "--settings", str(self._settings)]
            self.processes.append(subprocess.Popen(command, env={**os.environ, **armed(fault)}, stdout=log, stderr=log))

    def stop(self) -> list[int]:
        """End all; gives their exit codes."""
        for process in self.processes:
            process.terminate()
        return [process.wait(20) for process in self.processes]


async def wait_for_workers(broker: Broker, count: int) -> None:
    """Until so many wait for items."""
    client = await broker.raw()
    name = f"$JS.API.CONSUMER.INFO.KINEMA_WORK.work-optimizer-{broker.cluster}"
    async with asyncio.timeout(60):
        while True:
            info = msgspec.json.decode((await client.request(name, b"", timeout=5)).data)
            if info["num_waiting"] >= count:
                return
            await asyncio.sleep(0.1)


@pytest.mark.connected
@pytest.mark.parametrize("faults_at", [("",), ("", "", "worker-before-answer:3")])
async def test_worker_processes_share_a_search(broker: Broker, tmp_path: Path, faults_at: Sequence[str]) -> None:
    """Over the broker too, one and three processes find what threads find, also if one is killed at its third item."""
    crowd = Crowd(broker, tmp_path)
    try:
        for fault in faults_at:
            crowd.start(fault)
        await wait_for_workers(broker, len(faults_at))
        settings = broker.settings("optimizer")
        packing, task_pool = await asyncio.to_thread(shared, lambda: connect_work(settings, "optimizer"))
    finally:
        codes = crowd.stop()
    assert wire(packing) == alone()[0]
    assert task_pool.answered > len(alone()[1]) // 2
    assert codes == [-9 if fault else 0 for fault in faults_at]


class _Item:
    """An item that notes what becomes of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.became = ""

    async def answer(self, data: bytes) -> None:
        """See `Item`."""
        self.became = f"answered with {len(data)} bytes"

    async def drop(self) -> None:
        """See `Item`."""
        self.became = "dropped"

    async def give_back(self) -> None:
        """See `Item`."""
        self.became = "given back"


class _Handing(MemoryWork):
    def __init__(self, given: Sequence[Item]) -> None:
        super().__init__(MemoryQueue())
        self._given = given

    async def items(self) -> AsyncIterator[Item]:
        """See `WorkQueue`."""
        for item in self._given:
            yield item


async def test_a_worker_drops_what_it_cannot_read() -> None:
    """Nonsense, and items whose problem is gone, are settled and kill nobody."""
    manifest, _ = cut(b"gone")
    task = alone()[1][0][1]
    given = [_Item(b"nonsense"), _Item(encode(TaskItem(manifest, manifest, task)))]
    await Worker(_Handing(given)).run()
    assert [one.became for one in given] == ["dropped", "dropped"]


@pytest.mark.connected
async def test_a_service_shares_its_solve_and_a_replay_needs_nobody(broker: Broker, tmp_path: Path) -> None:
    """Service, solver's process and worker together give a plan, which a replay makes again alone, to the byte."""
    state, on_sale = boutique(24, seed=6, nodes=24)
    planning = unguarded(time_limit_seconds=3.0, max_moves=150)
    settings = Settings(runtime=broker.settings("optimizer"), planning=planning, solver=SolverSettings(share=True))
    catalog = CatalogPublished(source="test", priced=NOW, offers=on_sale)
    asked = origin(ForecastMade(version=state.version, forecasts=()), id_="e", cluster="c1", iteration="i", now=NOW)
    crowd = Crowd(broker, tmp_path)
    crowd.start()
    try:
        await wait_for_workers(broker, 1)
        async with InChild(settings.solver) as solving, asyncio.timeout(60):
            live = Optimizer(settings, solving)
            live.recall(origin(catalog, id_="c", cluster="c1", iteration="i", now=NOW))
            (body,) = await live.handle(asked, state, Moment(NOW))
    finally:
        crowd.stop()
    assert isinstance(body, Plan)
    assert body.cost.after < body.cost.before
    assert await delivered(broker) > 0
    again = Optimizer(replace_solver(settings))
    again.recall(origin(catalog, id_="c", cluster="c1", iteration="i", now=NOW))
    assert await again.handle(asked, state, Moment(NOW, body)) == [body]


def replace_solver(settings: Settings) -> Settings:
    """The settings as a replay has them: without a broker."""
    return Settings(runtime=RuntimeSettings(cluster="c1"), planning=settings.planning, solver=settings.solver)


async def delivered(broker: Broker) -> int:
    """Items that workers have taken so far."""
    client = await broker.raw()
    name = f"$JS.API.CONSUMER.INFO.KINEMA_WORK.work-optimizer-{broker.cluster}"
    info = msgspec.json.decode((await client.request(name, b"", timeout=5)).data)
    return int(info["ack_floor"]["consumer_seq"])
