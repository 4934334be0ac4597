"""Errors of the optimizer.

OptimizerError
├── LinearProgramError   a linear program that has an optimum was not solved (`adapters.lp`)
└── UnsoundPlanError     the checker refuses the plan that was built: it must not leave this service
"""

from __future__ import annotations

from collections.abc import Sequence

from kinema_core.events import Plan
from kinema_core.model.checker.check import Violation


class OptimizerError(Exception):
    """Root of the optimizer's errors."""


class UnsoundPlanError(OptimizerError):
    """The independent checker found violations in a plan of ours."""

    def __init__(self, plan: Plan, violations: Sequence[Violation]) -> None:
        first = violations[0]
        super().__init__(
            f"the plan breaks {len(violations)} rules, the first is {first.code} at {first.subject}: {first.detail}"
        )
        self.plan = plan
        self.violations = tuple(violations)
