"""Linear programs in HiGHS that grow and keep their basis: one thread, simplex, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import highspy
import numpy as np
from numpy.typing import NDArray

from kinema_optimizer.errors import LinearProgramError

Floats = NDArray[np.float64]
Matrix: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int32], Floats]
"""Columns or rows as HiGHS takes them: start of each, indices, values."""
INFINITY: Final = highspy.kHighsInf
_DUAL: Final = 1
_PRIMAL: Final = 4
"""HiGHS' numbers for the two ways of the simplex: a basis stays one for the primal when columns are added, and one for
the dual when limits of rows change."""


@dataclass(frozen=True, eq=False)
class LpSolution:
    """Values (columns,), duals (rows,) and the objective of an optimal basis."""

    values: Floats
    duals: Floats
    objective: float


class LinearProgram:
    """Minimize; rows and columns may be added between solves.

    `unit` is about what the dearest column costs: HiGHS fails on costs in the millions, so it sees multiples of this.
    """

    def __init__(self, lower: Floats, upper: Floats, *, unit: float) -> None:
        self._unit = max(unit, 1.0) / 10
        self._highs = highspy.Highs()  # type: ignore[no-untyped-call]  # the binding leaves its constructor untyped
        for name, value in (
            ("output_flag", False),
            ("threads", 1),
            ("parallel", "off"),
            ("solver", "simplex"),
            # All programs here are in shares and multiples already; scaled once more they take twice as long.
            ("simplex_scale_strategy", 0),
        ):
            self._highs.setOptionValue(name, value)
        self._strategy = _DUAL
        self.columns = self.rows = 0
        self.add_rows(lower, upper)

    def add_rows(self, lower: Floats, upper: Floats, matrix: Matrix | None = None) -> None:
        """Add rows within these limits; `matrix` is (start, column index, value), by default no column is in them."""
        none = np.zeros(0, dtype=np.int32)
        start, index, value = (none, none, np.zeros(0)) if matrix is None else matrix
        self._highs.addRows(len(lower), lower, upper, len(index), start, index, value)
        self.rows += len(lower)

    def add(self, cost: Floats, upper: Floats, matrix: Matrix) -> None:
        """Add columns from 0 to `upper`; `matrix` is (start, row index, value), compressed by column."""
        start, index, value = matrix
        self._highs.addCols(len(cost), cost / self._unit, np.zeros(len(cost)), upper, len(index), start, index, value)
        self.columns += len(cost)

    def price(self, columns: NDArray[np.int32], cost: Floats) -> None:
        """Change what columns cost."""
        self._highs.changeColsCost(len(columns), columns, cost / self._unit)
        self._strategy = _PRIMAL

    def bound_rows(self, rows: NDArray[np.int32], lower: Floats, upper: Floats) -> None:
        """Change the limits of rows."""
        for row, low, high in zip(rows.tolist(), lower.tolist(), upper.tolist(), strict=True):
            self._highs.changeRowBounds(row, low, high)
        self._strategy = _DUAL

    def solve(self) -> LpSolution:
        """Return the optimum.

        Raises:
            LinearProgramError: there is none, or HiGHS failed.
        """
        self._highs.setOptionValue("simplex_strategy", self._strategy)
        self._strategy = _PRIMAL
        self._highs.run()
        status = self._highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise LinearProgramError(f"HiGHS ended with {self._highs.modelStatusToString(status)}")
        solution = self._highs.getSolution()
        return LpSolution(
            values=np.array(solution.col_value),
            duals=np.array(solution.row_dual) * self._unit,
            objective=self._highs.getInfo().objective_function_value * self._unit,
        )
