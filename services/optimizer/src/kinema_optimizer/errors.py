"""Errors of the optimizer.

OptimizerError
├── LinearProgramError   HiGHS found no optimum of a linear program that has one (`solvers.lp`)
├── SolverError          HiGHS ended an integer program in a way that such a program cannot end (`solvers.mip`)
├── UnsoundPlanError     the checker refuses the plan that was built (`planning.planner`)
├── ChildError           the solver's process crashed, fell silent or took too much memory (`process.child`)
└── WireError            bytes of another process do not have the expected form (`process.sharing`)
"""

from __future__ import annotations

from collections.abc import Sequence

from kinema_core.events import Plan
from kinema_core.model.checker.check import Violation


class OptimizerError(Exception):
    """Root of the optimizer's errors."""


class LinearProgramError(OptimizerError):
    """HiGHS found no optimum of a linear program that has one."""


class SolverError(OptimizerError):
    """HiGHS ended in a way that an integer program with bounded columns cannot end."""


class UnsoundPlanError(OptimizerError):
    """The checker refuses the plan that was built; such a plan never leaves this service."""

    def __init__(self, plan: Plan, violations: Sequence[Violation]) -> None:
        first = violations[0]
        super().__init__(
            f"the plan breaks {len(violations)} rules, the first is {first.code} at {first.subject}: {first.detail}"
        )
        self.plan = plan
        self.violations = tuple(violations)


class ChildError(OptimizerError):
    """The solver's process ended without an answer. `reason`: `crashed`, `hung` or `memory`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class WireError(OptimizerError):
    """Bytes of another process do not have the expected form."""
