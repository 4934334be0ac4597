"""Problems, steps and exchanges as bytes, for processes on other machines: MessagePack, arrays bit by bit.

What comes in was written by another process of this service, perhaps of another version: whatever does not have the
expected form is refused, and nothing in it is ever executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, get_origin

import msgspec
import numpy as np

from kinema_core.runtime.framing import Manifest
from kinema_optimizer.adapters.errands import Errand
from kinema_optimizer.adapters.lp import Floats
from kinema_optimizer.adapters.neighbourhood import Exchange, Guide
from kinema_optimizer.logic.packing import PackingProblem
from kinema_optimizer.logic.problem import Ints

T = TypeVar("T")

_KINDS: Final = frozenset({"<i8", "|b1", "<f8"})


class WireError(Exception):
    """Bytes are not what they should be."""


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

    def guide(self, problem: PackingProblem) -> Guide:
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
_PROBLEMS: Final = msgspec.msgpack.Decoder(PackingProblem, dec_hook=_decode)
_GUIDES: Final = msgspec.msgpack.Decoder(GuideData, dec_hook=_decode)
_ITEMS: Final = msgspec.msgpack.Decoder(Item, dec_hook=_decode)
_FOUND: Final = msgspec.msgpack.Decoder(Found, dec_hook=_decode)


def packed(value: PackingProblem | GuideData | Item | Found) -> bytes:
    """The value as bytes; equal values give equal bytes."""
    return _ENCODER.encode(value)


def problem_in(data: bytes) -> PackingProblem:
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
