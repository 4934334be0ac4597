"""What travels between a search and its workers, and what of it is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.optimizer.process.test_shared_search import alone, problem

from kinema_optimizer.errors import WireError
from kinema_optimizer.problem.solution import NOTHING, NodeLoad, filling
from kinema_optimizer.process.sharing import (
    TaskResult,
    context_in,
    data_of,
    encode,
    find_faults,
    item_in,
    problem_in,
    result_in,
)
from kinema_optimizer.search.neighborhood import Neighborhood, Replacement


@pytest.mark.slow
def test_what_travels_arrives_bit_by_bit() -> None:
    """Problem, context and replacement are the same after the journey."""
    context, task, replacement = next(one for one in alone()[1] if one[2] is not None)
    there = problem_in(encode(problem()))
    again = context_in(encode(data_of(context))).context(there)
    assert encode(there) == encode(problem())
    assert encode(data_of(again)) == encode(data_of(context))
    assert list(again.enemies) == list(context.enemies)
    assert encode(result_in(encode(TaskResult(replacement)))) == encode(TaskResult(replacement))
    assert np.array_equal(there.total, problem().total)
    assert task.neighborhood.kept or task.neighborhood.boots


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", encode(TaskResult(None))])
def test_bytes_that_are_no_item_are_refused(data: bytes) -> None:
    """A worker drops them, and does not die of them."""
    with pytest.raises(WireError):
        item_in(data)


def test_an_array_of_objects_is_refused() -> None:
    """Only numbers and truth values travel."""
    wrong = encode(TaskResult(Replacement({}, (NodeLoad(0, np.arange(2), np.arange(2)),)))).replace(b"<i8", b"|O8")
    with pytest.raises(WireError, match="not expected"):
        result_in(wrong)


def exchanged() -> tuple[Neighborhood, Replacement]:
    """A neighborhood and a sound replacement for it."""
    done = [(task.neighborhood, one) for _, task, one in alone()[1] if one is not None]
    return next(
        (neighborhood, one) for neighborhood, one in done if one.boots or any(f.classes.size for f in one.kept.values())
    )


def test_exchanges_of_the_search_itself_are_sound() -> None:
    """What threads find passes the check."""
    done = [(task.neighborhood, one) for _, task, one in alone()[1] if one is not None]
    assert len(done) > 1
    assert [find_faults(problem(), neighborhood, one) for neighborhood, one in done] == [()] * len(done)


def _more(one: NodeLoad, by: int) -> NodeLoad:
    return replace(one, counts=one.counts + by)


def _spoilt(neighborhood: Neighborhood, good: Replacement) -> dict[str, Replacement]:
    """Exchanges with one thing wrong each."""
    taking = {e: f for e, f in good.kept.items() if f.classes.size}
    stranger = next(e for e in range(len(problem().nodes)) if e not in {*neighborhood.kept, *neighborhood.deleted})
    some = next(iter([*taking.values(), *good.boots]))
    odd = replace(some, counts=some.counts.astype(np.float64))
    huge = filling(0, dict.fromkeys(some.classes.tolist(), 500))
    return {
        "lost or placed twice": replace(good, kept=dict.fromkeys(good.kept, NOTHING), boots=()),
        "not of its neighborhood": replace(good, kept={**good.kept, stranger: NOTHING}),
        "not on sale": replace(good, boots=(replace(some, machine=10_000),)),
        "no integers": replace(good, boots=(replace(odd, machine=0),)),
        "in disorder": replace(good, boots=(replace(_more(some, -1000), machine=0),)),
        "unknown classes": replace(good, boots=(replace(some, machine=0, classes=some.classes + 100_000),)),
        "overfull": replace(good, boots=(huge,)),
    }


SPOILT = (
    "lost or placed twice",
    "not of its neighborhood",
    "not on sale",
    "no integers",
    "in disorder",
    "unknown classes",
    "overfull",
)


@pytest.mark.parametrize("fault", SPOILT)
def test_an_exchange_that_breaks_a_rule_is_refused(fault: str) -> None:
    """The answer of another process is held against the rules, in integers."""
    neighborhood, good = exchanged()
    found = find_faults(problem(), neighborhood, _spoilt(neighborhood, good)[fault])
    assert any(fault in one for one in found), found
