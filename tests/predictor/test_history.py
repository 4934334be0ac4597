"""Usage history: steps and checkpoints fold to the same, in bounded memory, and nothing wrong gets in."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.builders import MIB, NOW
from tests.support.usage_steps import KEY, STEP, many, step

from kinema_core.events import UsageCompacted, UsageResampled
from kinema_core.model.usage import BLOCK_STEPS, Amounts, compacted, resampled, step_start
from kinema_predictor.logic.history import History, remember

KEEP = timedelta(days=8)
OTHER = "Deployment/shop/api"


def folded(bodies: list[UsageResampled | UsageCompacted], keep: timedelta = KEEP) -> History:
    """The history after these."""
    history = History()
    for body in bodies:
        history = remember(history, body, keep=keep)
    return history


def test_a_matrix_holds_the_newest_steps_with_gaps() -> None:
    """The last column is the newest step; a step that is missing, or in which a workload has no sample, is a gap."""
    history = folded([many(3, {KEY: (100, 1), OTHER: (5, 1)}), step(2, 200), step(0, 300)])
    found = history.matrix([OTHER, KEY, "Deployment/shop/unknown"], "cpu", 4)
    assert found[1].tolist()[:2] == [100, 200]
    assert np.isnan(found[1, 2])
    assert found[1, 3] == 300
    assert found[0, 0] == 5
    assert np.isnan(found[0, 1:]).all()
    assert np.isnan(found[2]).all()
    assert history.matrix([KEY], "memory", 1)[0, 0] == 450 * MIB
    assert history.end == NOW


def test_a_checkpoint_takes_the_place_of_its_steps_and_changes_nothing() -> None:
    """With or without the checkpoint of the first row, every value is the same; there are fewer rows."""
    steps = [many(at, {KEY: (7 * at % 300, at % 90), **({OTHER: (at, 1)} if at % 3 else {})}) for at in range(700)][
        ::-1
    ]
    first = step_start(steps[0].start, 300, BLOCK_STEPS)
    inside = [one for one in steps if step_start(one.start, 300, BLOCK_STEPS) == first]
    plain = folded(list(steps))
    compact = folded([*inside, compacted(inside, start=first), *steps[len(inside) :]])
    only = folded([compacted(inside, start=first), *steps])
    assert len(compact.rows) == len(only.rows) == len(plain.rows) - len(inside) + 1
    for quantity in ("pods", "cpu", "memory"):
        wanted = plain.matrix([KEY, OTHER], quantity, 700)
        assert np.array_equal(wanted, compact.matrix([KEY, OTHER], quantity, 700), equal_nan=True)
        assert np.array_equal(wanted, only.matrix([KEY, OTHER], quantity, 700), equal_nan=True)


def test_the_same_step_twice_counts_once() -> None:
    """A step that is published again, even with other content, changes nothing."""
    history = folded([step(1, 100), step(0, 200), step(1, 999)])
    assert history.matrix([KEY], "cpu", 2).tolist() == [[100, 200]]


def test_folding_leaves_the_old_history_as_it_was() -> None:
    """A fold is pure: a reader of the earlier state still sees it."""
    once = folded([step(1)])
    remember(once, step(0), keep=KEEP)
    assert len(once.rows) == 1


def test_what_is_older_than_the_lookback_is_forgotten() -> None:
    """History grows with neither time nor workloads that are gone."""
    history = folded([step(at) for at in range(40, -1, -1)], keep=10 * STEP)
    assert history.steps == 10


def test_another_length_of_steps_begins_a_new_history() -> None:
    """Steps of a minute and of five cannot stand in one series."""
    history = folded([step(1), step(0, step=timedelta(minutes=1))])
    assert (history.step_seconds, len(history.rows)) == (60.0, 1)


def test_a_table_that_is_no_table_changes_nothing() -> None:
    """A table of another size than its names say, or one that cannot be unpacked, is a gap."""
    first = step(1)
    history = folded([first, replace(step(0), table=b"1")])
    assert history.steps == 1
    wrong = UsageCompacted(start=NOW, step_seconds=300, steps=288, workloads=(KEY,), table=b"no zstd")
    assert remember(history, wrong, keep=KEEP) is history


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_memory_is_never_stated_too_low(memory: list[int]) -> None:
    """What comes back is what was used, or up to a thousandth and a KiB more."""
    bodies = [many(len(memory) - at, {KEY: (1, 0)}) for at in range(len(memory))]
    rows = [remember_amount(body, amount) for body, amount in zip(bodies, memory, strict=True)]
    found = folded(list(rows)).matrix([KEY], "memory", len(memory))[0]
    for given_, seen in zip(memory, found, strict=True):
        assert given_ <= seen <= given_ * 1.001 + 1024


def remember_amount(body: UsageResampled, memory: int) -> UsageResampled:
    """The step with another amount of memory, bytes."""
    return resampled({KEY: Amounts(1, 1, memory)}, start=body.start, step=STEP)
