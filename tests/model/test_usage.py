"""Codes of amounts, the share of pods that a step covers, and checkpoints."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.builders import NOW
from tests.support.usage_steps import KEY, many, step

from kinema_core.model.usage import BLOCK_STEPS, amount_of, code_of, codes_of, compacted, end_of, step_start, upper

LARGEST = amount_of((1 << 16) - 1)


@given(st.integers(0, LARGEST))
def test_a_code_is_never_below_its_amount_and_at_most_a_thousandth_above(amount: int) -> None:
    """Exact below 2048 units; above, no request that follows it is too small."""
    found = amount_of(code_of(amount))
    assert 0 <= code_of(amount) < 1 << 16
    assert amount <= found <= amount * 1.001
    assert amount >= 2048 or found == amount


def test_amounts_beyond_the_codes_are_the_largest_one() -> None:
    """Nothing overflows: what is larger than any machine becomes the largest amount there is."""
    assert amount_of(code_of(10**30)) == LARGEST
    assert code_of(-5) == 0


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_at_most_one_pod_in_twenty_is_above(values: list[int]) -> None:
    """With fewer than twenty pods it is the largest."""
    above = sum(value > upper(values) for value in values)
    assert above * 20 <= len(values)
    assert upper(values) in values


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), min_size=1, max_size=30))
def test_a_checkpoint_holds_what_its_steps_held(given_: list[tuple[bool, int]]) -> None:
    """Every code of every step is at its place; a workload without a sample has no pods there."""
    start = step_start(NOW, 300, BLOCK_STEPS)
    steps = [
        many(-at - 1, {KEY: (cpu, 7), **({"Job/a/b": (cpu // 2, 9)} if both else {})}, now=start)
        for at, (both, cpu) in enumerate(given_)
    ]
    assert all(step_start(one.start, 300, BLOCK_STEPS) == start for one in steps)
    table = codes_of(compacted(steps, start=start))
    keys = compacted(steps, start=start).workloads
    for at, (both, cpu) in enumerate(given_):
        for key, amount in ((KEY, cpu), ("Job/a/b", cpu // 2)):
            if key not in keys:
                continue
            place = (len(keys) + keys.index(key)) * BLOCK_STEPS + at
            pods = keys.index(key) * BLOCK_STEPS + at
            there = key == KEY or both
            assert int.from_bytes(table[2 * place : 2 * place + 2], "little") == (code_of(amount) if there else 0)
            assert int.from_bytes(table[2 * pods : 2 * pods + 2], "little") == (2 if there else 0)


def test_steps_are_counted_from_1970_on() -> None:
    """Every process cuts time at the same places, whenever it started."""
    assert step_start(NOW + timedelta(seconds=299), 300) == NOW
    assert step_start(NOW + timedelta(seconds=300), 300) == NOW + timedelta(seconds=300)
    assert end_of(step(0)) == NOW


def test_a_table_of_another_size_is_an_error() -> None:
    """The error names the time and both sizes."""
    with pytest.raises(ValueError, match="has 5 bytes, wanted 6"):
        codes_of(replace(step(0), table=b"12345"))
