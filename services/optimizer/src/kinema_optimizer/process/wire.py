"""Problems, steps and exchanges as bytes, for processes on other machines: MessagePack, arrays bit by bit.

What comes in was written by another process of this service, perhaps of another version: whatever does not have the
expected form is refused, and nothing in it is ever executed.

Whether an exchange that another process has made may be carried out: same pods, every rule kept, in integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar, get_origin

import msgspec
import numpy as np

from kinema_core.runtime.framing import Manifest
from kinema_optimizer.errors import WireError
from kinema_optimizer.problem.arrays import Ints
from kinema_optimizer.problem.instance import UNLIMITED, Content, Instance, Solution, content, flaws
from kinema_optimizer.problem.solution import NOTHING, NodeLoad, contents
from kinema_optimizer.search.neighbourhood import Exchange, Guide, Step
from kinema_optimizer.search.tasks import Errand
from kinema_optimizer.solvers.lp import Floats

T = TypeVar("T")

_KINDS: Final = frozenset({"<i8", "|b1", "<f8"})


class _Array(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, eq=False)
class GuideData:
    """A guide without its problem."""

    pod_price: Floats
    move_price: Floats
    machines: tuple[int, ...]
    machine_fits: Ints
    enemies: Mapping[int, tuple[int, ...]]

    def guide(self, problem: Instance) -> Guide:
        """The guide itself."""
        return Guide(problem, self.pod_price, self.move_price, self.machines, self.machine_fits, self.enemies)


@dataclass(frozen=True, eq=False)
class Item:
    """An errand, and where that which it shares with others lies."""

    problem: Manifest
    guide: Manifest
    errand: Errand


@dataclass(frozen=True, eq=False)
class Found:
    """The outcome of an errand."""

    exchange: Exchange | None


def data_of(guide: Guide) -> GuideData:
    """The guide without its problem."""
    return GuideData(guide.pod_price, guide.move_price, guide.machines, guide.machine_fits, guide.enemies)


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
_GUIDES: Final = msgspec.msgpack.Decoder(GuideData, dec_hook=_decode)
_ITEMS: Final = msgspec.msgpack.Decoder(Item, dec_hook=_decode)
_FOUND: Final = msgspec.msgpack.Decoder(Found, dec_hook=_decode)


def packed(value: Instance | GuideData | Item | Found) -> bytes:
    """The value as bytes; equal values give equal bytes."""
    return _ENCODER.encode(value)


def problem_in(data: bytes) -> Instance:
    """The problem in the bytes; raises WireError."""
    return _read(_PROBLEMS, data)


def guide_in(data: bytes) -> GuideData:
    """The guide in the bytes; raises WireError."""
    return _read(_GUIDES, data)


def item_in(data: bytes) -> Item:
    """The item in the bytes; raises WireError."""
    return _read(_ITEMS, data)


def found_in(data: bytes) -> Found:
    """The outcome in the bytes; raises WireError."""
    return _read(_FOUND, data)


def _read(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise WireError(str(error)) from error


def faults(problem: Instance, step: Step, exchange: Exchange) -> tuple[str, ...]:
    """What is wrong with the exchange; empty when it may be carried out for the step.

    The nodes of the step are looked at as a problem of their own: the pods that came to them, less those that left, are
    its pods without a place.
    """
    nodes = (*step.kept, *step.deleted)
    if not exchange.kept.keys() <= set(nodes):
        return ("an exchange keeps nodes that are not of its step",)
    filled = (*exchange.kept.values(), *exchange.boots)
    found = [*_form_faults(problem, filled)]
    if any((one.counts < 0).any() for one in exchange.boots):
        found.append("an exchange lists pods in disorder: a new node has none to give up")
    if any(not 0 <= one.machine < len(problem.machines) for one in exchange.boots):
        found.append("an exchange boots a machine that is not on sale")
    if found:
        return tuple(found)
    rows = [exchange.kept.get(e, NOTHING) for e in nodes]
    packing = Solution(
        keep=np.array([e in exchange.kept for e in nodes], dtype=bool),
        changes=contents(rows),
        boots=np.array([one.machine for one in exchange.boots], dtype=np.int64),
        booted=contents(exchange.boots),
        unplaced=np.zeros(len(problem.pending), dtype=np.int64),
    )
    return flaws(_part(problem, step, nodes, packing), packing)


def _form_faults(problem: Instance, filled: Sequence[NodeLoad]) -> list[str]:
    found = []
    for one in filled:
        if one.classes.dtype != np.int64 or one.counts.dtype != np.int64 or one.classes.ndim != 1:
            found.append("an exchange has pods that are no integers")
        elif one.classes.shape != one.counts.shape or (np.diff(one.classes) <= 0).any() or (one.counts == 0).any():
            found.append("an exchange lists pods in disorder")
        elif one.classes.size and not 0 <= one.classes[0] <= one.classes[-1] < len(problem.pending):
            found.append("an exchange has pods of unknown classes")
    return found


def _part(problem: Instance, step: Step, nodes: Sequence[int], packing: Solution) -> Instance:
    """Return the problem of the step's nodes alone, with as many machines as the step has and may boot besides."""
    some = np.array(nodes, dtype=np.int64)
    stays = _rows(problem.stays, nodes)
    deleted = np.arange(len(nodes)) >= len(step.kept)
    pool = _total(problem, (*step.changes, *step.boots)) - stays.totals(len(problem.pending), deleted)
    booted = Counter(one.machine for one in step.boots)
    available = np.array(
        [min(UNLIMITED, step.allowance.get(m, UNLIMITED) + booted[m]) for m in range(len(problem.machines))],
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


def _rows(given: Content, nodes: Sequence[int]) -> Content:
    return content([dict(given.of(e)) for e in nodes])
