"""A linear program that HiGHS fails on costs its bound or its start, and no plan."""

from __future__ import annotations

import pytest
from tests.optimizer.search.test_search import boutique_problem

from kinema_optimizer import errors
from kinema_optimizer.errors import LinearProgramError, OptimizerError
from kinema_optimizer.problem.instance import flaws
from kinema_optimizer.search.search import SearchOptions, search
from kinema_optimizer.solvers.lp import LinearProgram, LpSolution
from kinema_optimizer.solvers.stopping import WorkStop


@pytest.mark.slow
@pytest.mark.parametrize("wish", [SearchOptions(), SearchOptions(move_price=300), SearchOptions(max_moves=60)])
@pytest.mark.parametrize("every", [1, 2, 7])
def test_a_failed_program_costs_no_plan(wish: SearchOptions, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever programs fail, a sound packing comes out with a bound that holds."""
    solve, count = LinearProgram.solve, 0

    def fail_at_times(self: LinearProgram) -> LpSolution:
        nonlocal count
        count += 1
        if count % every == 0:
            raise LinearProgramError("HiGHS ended with Unknown")
        return solve(self)

    monkeypatch.setattr(LinearProgram, "solve", fail_at_times)
    problem = boutique_problem(20, 24)
    found = search(problem.packing, problem.relaxed, wish, WorkStop(4))
    assert count
    assert flaws(problem.packing, found.packing) == ()
    assert 0 < found.bound.value <= found.cost <= int(problem.packing.node_price.sum())


def test_errors_have_one_root() -> None:
    """Whoever catches `OptimizerError` catches every error that this service raises by itself."""
    own = [one for one in vars(errors).values() if isinstance(one, type) and one.__module__ == errors.__name__]
    assert {one.__name__ for one in own} >= {"SolverError", "LinearProgramError", "WireError", "ChildError"}
    assert all(issubclass(one, OptimizerError) for one in own)
