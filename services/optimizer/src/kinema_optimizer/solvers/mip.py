"""Integer programs in HiGHS: one thread, one seed, no clock of its own.

HiGHS' time limit is not repeatable and returns a vector of zeros when it has found nothing; here a `StopRule` ends the
solve from a callback, and values count only when HiGHS calls them feasible and they are integers. That they obey
the problem is checked again by the caller, in integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import highspy
import numpy as np
from numpy.typing import NDArray

from kinema_core.events import Stop
from kinema_optimizer.errors import SolverError
from kinema_optimizer.solvers.stopping import StopReason, StopRule

SEED: Final = 0
TOLERANCE: Final = 1e-9
"""Feasibility tolerance of rows scaled to 1: 1e-9 of a node is less than any pod."""
WHOLE: Final = 0.999
"""Absolute gap at which an objective of whole units is proven."""
BOUND_TOLERANCE: Final = 1e-6
"""What a dual bound is lowered by, relative, before it is believed."""

_STATUS: Final = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kUnboundedOrInfeasible: "infeasible",  # every column is bounded: never unbounded
    highspy.HighsModelStatus.kInterrupt: "stopped",
    highspy.HighsModelStatus.kUnknown: "failed",
    highspy.HighsModelStatus.kSolveError: "failed",
    highspy.HighsModelStatus.kPresolveError: "failed",
    highspy.HighsModelStatus.kPostsolveError: "failed",
}
"""What a status means here. `failed` (numerical trouble) yields nothing; a status not listed is a defect."""


@dataclass(frozen=True)
class Outcome:
    """How a phase ended: integer (or fractional, for a relaxation) values, and what its objective cannot go below."""

    values: NDArray[np.float64] | None
    bound: float
    """In units of the objective; -inf when nothing is known.

    HiGHS' dual bound, lowered by the tolerance; of an integer program that HiGHS has solved, also the value found less
    the gap: then the bound rests on HiGHS' claim that nothing better is left in its tree.
    """
    stop: Stop


@dataclass
class Model:
    """Columns (all from 0 to an upper bound) and rows, as they are added."""

    integer: bool = True
    uppers: list[float] = field(default_factory=list)
    lowers: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    _start: list[int] = field(default_factory=lambda: [0])
    _index: list[int] = field(default_factory=list)
    _value: list[float] = field(default_factory=list)

    def column(self, upper: float, lower: float = 0.0) -> int:
        """Add a column and return its index."""
        self.uppers.append(upper)
        self.lowers.append(lower)
        return len(self.uppers) - 1

    def row(self, entries: Sequence[tuple[int, float]], *, lower: float = -math.inf, upper: float = math.inf) -> None:
        """Add a row `lower ≤ Σ value × column ≤ upper`."""
        self._index += [column for column, _ in entries]
        self._value += [value for _, value in entries]
        self._start.append(len(self._index))
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def program(self, objective: dict[int, float]) -> highspy.HighsLp:
        """Return the program that minimizes `objective` (column → coefficient)."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.uppers), len(self.row_lower)
        costs = np.zeros(len(self.uppers))
        costs[list(objective)] = list(objective.values())
        lp.col_cost_ = costs
        lp.col_lower_, lp.col_upper_ = np.array(self.lowers), np.array(self.uppers)
        lp.row_lower_, lp.row_upper_ = np.array(self.row_lower), np.array(self.row_upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self._start, dtype=np.int32)
        lp.a_matrix_.index_ = np.array(self._index, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(self._value, dtype=np.float64)
        if self.integer:
            lp.integrality_ = [highspy.HighsVarType.kInteger] * len(self.uppers)
        return lp


def solve(
    model: Model,
    objective: dict[int, float],
    *,
    phase: str,
    stop: StopRule,
    gap: float = WHOLE,
    start: NDArray[np.float64] | None = None,
) -> Outcome:
    """Minimize until proven within `gap` (absolute) or until `stop` ends it, from `start` if given.

    Raises:
        SolverError: HiGHS reports a status that cannot come from such a model.
    """
    if not model.uppers:  # HiGHS calls a model without columns an error of its own kind
        return Outcome(np.zeros(0), 0.0, Stop(reason="optimal", phase=phase, iteration=0))
    solver = _solver(gap)
    if solver.passModel(model.program(objective)) == highspy.HighsStatus.kError:
        raise SolverError(f"phase {phase}: HiGHS refuses the model")
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start
        solver.setSolution(solution)
    stop.begin(phase)
    counter = _Counter(stop)
    interrupt = solver.cbMipInterrupt if model.integer else solver.cbSimplexInterrupt
    interrupt.subscribe(counter.fire)
    solver.run()
    status = _STATUS.get(solver.getModelStatus())
    if status is None:
        raise SolverError(f"phase {phase}: HiGHS ended with {solver.modelStatusToString(solver.getModelStatus())}")
    return _outcome(solver, model, phase=phase, status=status, counter=counter, gap=gap)


class _Counter:
    """Counts callbacks and remembers at which one the rule ended the phase."""

    def __init__(self, stop: StopRule) -> None:
        self._stop = stop
        self.iterations = 0
        self.reason: StopReason | None = None

    def fire(self, event: highspy.HighsCallbackEvent) -> None:
        """Count one callback of the solver."""
        if self.reason is None:
            self.iterations += 1
            self.reason = self._stop.ends(self.iterations)
        if self.reason is not None:
            event.interrupt()


def _solver(gap: float) -> highspy.Highs:
    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # the binding leaves its constructor untyped
    for name, value in (
        ("output_flag", False),
        ("threads", 1),
        ("parallel", "off"),
        ("solver", "simplex"),
        # Measured on packings of 80 to 360 pods: none of these three finds or proves anything sooner.
        ("mip_allow_restart", False),
        ("mip_heuristic_run_rins", False),
        ("mip_heuristic_run_rens", False),
        # This rule of the presolve of HiGHS 1.15.1 (kPresolveRuleEnumeration) cuts optima off.
        ("presolve_rule_off", 1 << 16),
        ("random_seed", SEED),
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", gap),
        ("mip_feasibility_tolerance", TOLERANCE),
        ("primal_feasibility_tolerance", TOLERANCE),
    ):
        solver.setOptionValue(name, value)
    return solver


def _outcome(solver: highspy.Highs, model: Model, *, phase: str, status: str, counter: _Counter, gap: float) -> Outcome:
    info = solver.getInfo()
    reason = counter.reason or ("infeasible" if status == "infeasible" else "optimal")
    stop = Stop(reason=reason, phase=phase, iteration=counter.iterations)
    if status == "infeasible":
        return Outcome(None, math.inf, stop)
    if status == "failed":
        return Outcome(None, -math.inf, Stop(reason="work-limit", phase=phase, iteration=counter.iterations))
    if model.integer:
        bound = info.mip_dual_bound
    else:
        bound = info.objective_function_value if status == "optimal" else -math.inf
    bound -= BOUND_TOLERANCE * max(1.0, abs(bound))
    if model.integer and status == "optimal":  # a tolerance relative to a large objective is more than a unit of it
        bound = max(bound, info.objective_function_value - max(gap, BOUND_TOLERANCE))
    values: NDArray[np.float64] | None = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        values = np.array(solver.getSolution().col_value)
        if model.integer:
            rounded = np.rint(values)
            values = rounded if np.abs(rounded - values).max(initial=0.0) < 1e-5 else None
    return Outcome(values, bound, stop)
