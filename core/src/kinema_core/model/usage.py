"""Usage of workloads on a grid of time, and its compact form in events. Pure.

A step has three quantities per workload: `pods` with a sample; `cpu`, the millicores that 95% of them stayed at or
below, each over the step; `memory`, the bytes that the largest of them reached. So the requests of a pod that follow
them are enough for all pods but a few, and the memory for every one.

An amount is kept as a code of two bytes: eleven bits of it, shifted by a power of two in the other five, rounded up. It
is exact below 2048 units and at most 0.1% too large above.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

import zstandard

from kinema_core.events import UsageCompacted, UsageResampled

Quantity: TypeAlias = Literal["pods", "cpu", "memory"]
QUANTITIES: Final[tuple[Quantity, ...]] = ("pods", "cpu", "memory")
UNITS: Final[Mapping[Quantity, int]] = {"pods": 1, "cpu": 1, "memory": 1024}
"""A unit of the codes in pods, millicores and bytes."""
UPPER_SHARE: Final = 95
"""Percent of the pods whose usage a step's CPU covers."""
BLOCK_STEPS: Final = 288
"""Steps of a checkpoint: a day of five minutes each."""
_MANTISSA: Final = 11
_LARGEST: Final = (1 << _MANTISSA) - 1
_EXPONENTS: Final = 32


@dataclass(frozen=True)
class Amounts:
    """Usage of one workload in one step: pods, millicores and bytes."""

    pods: int
    cpu: int
    memory: int


def code_of(amount: int) -> int:
    """Return the code of an amount in units, rounded up; what is too large becomes the largest."""
    if amount <= _LARGEST:
        return max(0, amount)
    exponent = amount.bit_length() - _MANTISSA
    mantissa = -(-amount >> exponent)
    if mantissa > _LARGEST:
        exponent, mantissa = exponent + 1, -(-amount >> (exponent + 1))
    if exponent >= _EXPONENTS:
        return (1 << 16) - 1
    return exponent << _MANTISSA | mantissa


def amount_of(code: int) -> int:
    """Return the amount of a code, in units."""
    return (code & _LARGEST) << (code >> _MANTISSA)


def upper(values: Iterable[int]) -> int:
    """Return the smallest of the values that at least 95% of them do not exceed."""
    ranked = sorted(values)
    return ranked[-(-len(ranked) * UPPER_SHARE // 100) - 1]


def resampled(
    usage: Mapping[str, Amounts], *, start: datetime, step: timedelta, source: str = "metrics.k8s.io", dropped: int = 0
) -> UsageResampled:
    """Return one step as an event."""
    keys = tuple(sorted(usage))
    rows = [usage[key] for key in keys]
    table = array("H")
    table.extend(code_of(row.pods) for row in rows)
    table.extend(code_of(row.cpu) for row in rows)
    table.extend(code_of(-(-row.memory // UNITS["memory"])) for row in rows)
    return UsageResampled(
        start=start,
        step_seconds=step.total_seconds(),
        workloads=keys,
        table=_little(table),
        source=source,
        dropped=dropped,
    )


def codes_of(body: UsageResampled | UsageCompacted) -> bytes:
    """Return a body's table as little-endian codes: quantity, then workload, then step.

    Raises:
        ValueError: the table has another size than workloads and steps say, or cannot be unpacked.
    """
    steps = body.steps if isinstance(body, UsageCompacted) else 1
    size = 2 * len(QUANTITIES) * len(body.workloads) * steps
    table = body.table
    if isinstance(body, UsageCompacted):
        try:
            packed = zstandard.ZstdDecompressor().decompress(table, max_output_size=max(size, 1))
        except zstandard.ZstdError as error:
            raise ValueError(f"the table of usage from {body.start} cannot be unpacked: {error}") from error
        table = _joined(packed)
    if len(table) != size:
        raise ValueError(f"the table of usage from {body.start} has {len(table)} bytes, wanted {size}")
    return table


def compacted(steps: Sequence[UsageResampled], *, start: datetime) -> UsageCompacted:
    """Return steps of one length, in order, as one checkpoint of `BLOCK_STEPS` steps from `start` on.

    A workload without a sample in a step has no pods in it.
    """
    step_seconds = steps[0].step_seconds
    keys = tuple(sorted({key for step in steps for key in step.workloads}))
    place = {key: index for index, key in enumerate(keys)}
    plane = len(keys) * BLOCK_STEPS
    table = array("H", bytes(2 * len(QUANTITIES) * plane))
    for step in steps:
        at = round((step.start - start).total_seconds() / step_seconds)
        codes = _native(codes_of(step))
        count = len(step.workloads)
        for quantity in range(len(QUANTITIES)):
            values = codes[quantity * count : (quantity + 1) * count]
            if step.workloads == keys:
                table[quantity * plane + at : (quantity + 1) * plane : BLOCK_STEPS] = values
                continue
            for key, value in zip(step.workloads, values, strict=True):
                table[quantity * plane + place[key] * BLOCK_STEPS + at] = value
    return checkpoint(_little(table), keys, start=start, step_seconds=step_seconds)


def checkpoint(codes: bytes, workloads: tuple[str, ...], *, start: datetime, step_seconds: float) -> UsageCompacted:
    """Return a checkpoint of little-endian codes: quantity, then workload, then step."""
    table = zstandard.ZstdCompressor(level=3).compress(_split(codes))
    return UsageCompacted(start=start, step_seconds=step_seconds, steps=BLOCK_STEPS, workloads=workloads, table=table)


def step_start(moment: datetime, step_seconds: float, steps: int = 1) -> datetime:
    """Return the start of the step, or of the row of steps, that a moment lies in; they are counted from 1970 on."""
    length = step_seconds * steps
    return datetime.fromtimestamp(moment.timestamp() // length * length, UTC)


def end_of(body: UsageResampled | UsageCompacted) -> datetime:
    """Return when the last step of a body ends."""
    steps = body.steps if isinstance(body, UsageCompacted) else 1
    return body.start + timedelta(seconds=body.step_seconds * steps)


def _little(table: array[int]) -> bytes:
    return _swapped(table).tobytes()


def _native(table: bytes) -> array[int]:
    return _swapped(array("H", table))


def _swapped(table: array[int]) -> array[int]:
    if sys.byteorder == "big":
        table.byteswap()
    return table


def _split(table: bytes) -> bytes:
    """Return low bytes first, then high ones: these hardly change, and pack to almost nothing."""
    return table[0::2] + table[1::2]


def _joined(table: bytes) -> bytes:
    found = bytearray(len(table))
    found[0::2], found[1::2] = table[: (len(table) + 1) // 2], table[(len(table) + 1) // 2 :]
    return bytes(found)
