"""Sharing of search tasks with processes on this machine or others, by a work queue.

Answers are put in the order of their tasks, and a task without a sound answer in time is computed here. So what comes
out of a round does not depend on which process was faster or died: a lost task costs its time and nothing else.

Problems, neighborhoods and replacements travel as MessagePack, arrays bit by bit. What comes in was written by another
process of this service, perhaps of another version: the readers (`…_in`) refuse whatever does not have the expected
form, and nothing in it is ever executed. `find_faults` checks a replacement in integers before it is applied: same
pods, every rule obeyed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar, get_origin

import msgspec
import numpy as np
import structlog

from kinema_core.runtime.bus import BusError
from kinema_core.runtime.framing import Manifest
from kinema_core.runtime.work import WorkQueue
from kinema_optimizer.errors import WireError
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED, Content, Instance, Solution, content, flaws
from kinema_optimizer.problem.solution import NOTHING, NodeLoad, contents
from kinema_optimizer.search.neighborhood import (
    ImprovementTask,
    Neighborhood,
    Replacement,
    SearchContext,
    TaskPool,
    is_better,
)
from kinema_optimizer.solvers.lp import Floats

T = TypeVar("T")

_KINDS: Final = frozenset({"<i8", "|b1", "<f8"})


class _Array(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, eq=False)
class ContextData:
    """A context without its problem."""

    pod_price: Floats
    move_price: Floats
    machines: tuple[int, ...]
    machine_fits: Ints
    enemies: Mapping[int, tuple[int, ...]]

    def context(self, problem: Instance) -> SearchContext:
        """Return the context itself."""
        return SearchContext(problem, self.pod_price, self.move_price, self.machines, self.machine_fits, self.enemies)


@dataclass(frozen=True, eq=False)
class TaskItem:
    """An task, and where that which it shares with others lies."""

    problem: Manifest
    context: Manifest
    task: ImprovementTask


@dataclass(frozen=True, eq=False)
class TaskResult:
    """The outcome of a task."""

    replacement: Replacement | None


def data_of(context: SearchContext) -> ContextData:
    """Return the context without its problem."""
    return ContextData(context.pod_price, context.move_price, context.machines, context.machine_fits, context.enemies)


def _encode(value: object) -> _Array:
    if isinstance(value, np.ndarray):
        whole = np.ascontiguousarray(value)
        return _Array(whole.dtype.str, whole.shape, whole.tobytes())
    message = f"{type(value).__name__} does not travel"
    raise NotImplementedError(message)  # what msgspec asks of a hook that does not know a type


def _decode(kind: type, value: object) -> object:
    if (get_origin(kind) or kind) is not np.ndarray:
        message = f"{kind} does not travel"
        raise NotImplementedError(message)  # see above
    array = msgspec.convert(value, _Array)
    if array.kind not in _KINDS:
        message = f"an array of {array.kind!r} is not expected"
        raise ValueError(message)
    return np.frombuffer(array.data, dtype=array.kind).reshape(array.shape).copy()


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_encode)
_PROBLEMS: Final = msgspec.msgpack.Decoder(Instance, dec_hook=_decode)
_CONTEXTS: Final = msgspec.msgpack.Decoder(ContextData, dec_hook=_decode)
_ITEMS: Final = msgspec.msgpack.Decoder(TaskItem, dec_hook=_decode)
_RESULTS: Final = msgspec.msgpack.Decoder(TaskResult, dec_hook=_decode)


def encode(value: Instance | ContextData | TaskItem | TaskResult) -> bytes:
    """Return the value as bytes; equal values give equal bytes."""
    return _ENCODER.encode(value)


def problem_in(data: bytes) -> Instance:
    """Return the problem in the bytes; raises WireError."""
    return _read(_PROBLEMS, data)


def context_in(data: bytes) -> ContextData:
    """Return the context in the bytes; raises WireError."""
    return _read(_CONTEXTS, data)


def item_in(data: bytes) -> TaskItem:
    """Return the item in the bytes; raises WireError."""
    return _read(_ITEMS, data)


def result_in(data: bytes) -> TaskResult:
    """Return the outcome in the bytes; raises WireError."""
    return _read(_RESULTS, data)


def _read(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise WireError(str(error)) from error


def find_faults(problem: Instance, neighborhood: Neighborhood, replacement: Replacement) -> tuple[str, ...]:
    """Return what is wrong with the replacement; nothing where it may be applied.

    The nodes of the neighborhood are a problem of their own: pods that came there, less those that left, need a place.
    """
    nodes = (*neighborhood.kept, *neighborhood.deleted)
    if not replacement.kept.keys() <= set(nodes):
        return ("a replacement keeps nodes that are not of its neighborhood",)
    filled = (*replacement.kept.values(), *replacement.boots)
    found = [*_form_faults(problem, filled)]
    if any((one.counts < 0).any() for one in replacement.boots):
        found.append("a replacement lists pods in disorder: a new node has none to give up")
    if any(not 0 <= one.machine < len(problem.machines) for one in replacement.boots):
        found.append("a replacement boots a machine that is not on sale")
    if found:
        return tuple(found)
    rows = [replacement.kept.get(e, NOTHING) for e in nodes]
    packing = Solution(
        keep=np.array([e in replacement.kept for e in nodes], dtype=bool),
        changes=contents(rows),
        boots=np.array([one.machine for one in replacement.boots], dtype=np.int64),
        booted=contents(replacement.boots),
        unplaced=np.zeros(len(problem.pending), dtype=np.int64),
    )
    return flaws(_part(problem, neighborhood, nodes, packing), packing)


def _form_faults(problem: Instance, filled: Sequence[NodeLoad]) -> list[str]:
    found = []
    for one in filled:
        if one.classes.dtype != np.int64 or one.counts.dtype != np.int64 or one.classes.ndim != 1:
            found.append("a replacement has pods that are no integers")
        elif one.classes.shape != one.counts.shape or (np.diff(one.classes) <= 0).any() or (one.counts == 0).any():
            found.append("a replacement lists pods in disorder")
        elif one.classes.size and not 0 <= one.classes[0] <= one.classes[-1] < len(problem.pending):
            found.append("a replacement has pods of unknown classes")
    return found


def _part(problem: Instance, neighborhood: Neighborhood, nodes: Sequence[int], packing: Solution) -> Instance:
    """Return the problem of these nodes alone, with as many machines as the neighborhood has and may boot besides."""
    some = np.array(nodes, dtype=np.int64)
    stays = _rows_of(problem.stays, nodes)
    deleted = np.arange(len(nodes)) >= len(neighborhood.kept)
    pool = _total(problem, (*neighborhood.changes, *neighborhood.boots)) - stays.totals(len(problem.pending), deleted)
    booted = Counter(one.machine for one in neighborhood.boots)
    available = np.array(
        [min(UNLIMITED, neighborhood.allowance.get(m, UNLIMITED) + booted[m]) for m in range(len(problem.machines))],
        dtype=np.int64,
    )
    mine = np.concatenate([stays.classes, packing.changes.classes, packing.booted.classes])
    return replace(
        problem,
        conflicts=problem.conflicts[np.isin(problem.conflicts, mine).all(axis=1)],
        pending=np.zeros_like(problem.pending),
        rolled=pool,  # they all need a place, and may not be left without one
        nodes=tuple(problem.nodes[e] for e in nodes),
        node_price=problem.node_price[some],
        node_room=problem.node_room[some],
        node_row=problem.node_row[some],
        node_fixed=problem.node_fixed[some],
        node_keeps_all=problem.node_keeps_all[some],
        stays=stays,
        old=content([{} for _ in nodes]),
        machine_available=available,
        pools=(),
    )


def _total(problem: Instance, filled: Sequence[NodeLoad]) -> Ints:
    total = np.zeros(len(problem.pending), dtype=np.int64)
    for one in filled:
        total[one.classes] += one.counts
    return total


def _rows_of(given: Content, nodes: Sequence[int]) -> Content:
    return content([dict(given.of(e)) for e in nodes])


_CONNECT_SECONDS: Final = 2.0
"""Limit of connecting to the queue and sharing the problem in a round."""
_FIRST_SECONDS: Final = 4.0
"""Limit of waiting for the first answers: workers load the problem before."""
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
        """Return the outcome in an answer; None unless it obeys every rule and is better than the neighborhood."""
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
        if not wrong and not is_better(context, task.neighborhood, found.replacement):
            wrong = ("a replacement is no better than its neighborhood",)
        if wrong:
            _LOG.warning("answer refused", error=wrong[0])
        return None if wrong else found

    async def _round(self, context: SearchContext, tasks: Sequence[ImprovementTask]) -> list[bytes | None]:
        """Return the answers in the order of the tasks, None for those that did not come in time."""
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
        """Return how long the answers of a round are waited for, real seconds."""
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
