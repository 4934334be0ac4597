"""Random plans on random clusters, carried out by the product: nothing that must not happen does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.history import real, simulated
from tests.history.__main__ import real_cluster, steered_plane
from tests.history.continued import continued
from tests.history.random_clusters import random_cluster
from tests.history.verdict import NothingToDoError, UnsettledError, Verdict

SIMULATED = (*range(2, 32), 70, 141, 56566)
"""Seeds that every test run carries out; `make random-plans` takes 2,000. The last ones once found something: a roll of
a Deployment that recreates its pods (30, too), a linear program without rows, a roll that stopped half way."""
REAL = range(2, 10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SIMULATED)
def test_simulated(seed: int) -> None:
    """No invariant is broken, nobody is hurt, nothing is left behind, and the plan and its rest come to an end."""
    with suppress(NothingToDoError):
        check(continued(random_cluster(seed), 0.0)[0])


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    """Cluster, plan and every event of its execution are the same the second time."""
    first, second = (simulated.carried_out(random_cluster(3)).history for _ in range(2))
    assert first is not None
    assert second is not None
    told = [[(one.id, one.time, one.body) for one in run.log if one.kind != "plan-proposed"] for run in (first, second)]
    assert told[0] == told[1]


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.parametrize("seed", REAL)
def test_real(seed: int, carry_out: Callable[[int], Verdict]) -> None:
    """The same on a real control plane."""
    with suppress(NothingToDoError, UnsettledError):
        check(carry_out(seed))


@pytest.fixture(scope="module")
def carry_out() -> Iterator[Callable[[int], Verdict]]:
    """Carries out the plan of a seed on a control plane that nothing else uses."""
    with tempfile.TemporaryDirectory() as folder, steered_plane(Path(folder)) as plane:
        yield lambda seed: real.carried_out(plane, real_cluster(seed), Path(folder))


def check(verdict: Verdict) -> None:
    """What holds of every plan that is carried out."""
    assert verdict.flaws == ()
    assert verdict.ended == "finished"
    assert verdict.reached <= verdict.planned
