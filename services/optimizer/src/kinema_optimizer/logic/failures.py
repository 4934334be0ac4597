"""What is answered when the solver's process dies, hangs or takes too much memory, and how that is told from a record.

Such a failure comes from outside, like the time: a replay does not repeat it but takes reason and figures from the
record. The plan made of the incumbent it makes again, from the same report of the same solve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from kinema_core.events import AnyBody, FrozenMap, Mode, Plan, PlanNone, Solve
from kinema_optimizer.logic.progress import Incumbent

FailureReason: TypeAlias = Literal["solver-crashed", "solver-hung", "solver-memory"]
_REASONS: Final[tuple[FailureReason, ...]] = get_args(FailureReason)
_NUMBER: Final = "incumbent"
_BOUND: Final = "incumbent_bound"


@dataclass(frozen=True)
class Failure:
    """How a solve came to no end."""

    reason: FailureReason
    detail: str
    """Signal, exit code, error or limit."""
    seconds: float
    """From the question to the failure."""
    feasible_seconds: float
    """From the question to the first incumbent; 0 where there was none."""
    peak_mib: int
    """Most resident memory that was seen."""


def refusal(mode: Mode, version: int, failure: Failure) -> PlanNone:
    """The answer where no better plan than none is known."""
    figures: dict[str, int | float | str] = {
        "detail": failure.detail,
        "seconds": failure.seconds,
        "peak_mib": failure.peak_mib,
    }
    return PlanNone(mode=mode, version=version, reason=failure.reason, figures=FrozenMap(figures))


def solve_of(failure: Failure, incumbent: Incumbent, seed: int) -> Solve:
    """The report on the failed solve."""
    return Solve(
        seconds=failure.seconds,
        first_feasible_seconds=failure.feasible_seconds,
        method=f"incumbent of a solve that failed, {failure.reason}: {failure.detail}",
        seed=seed,
        stops=incumbent.stops,
    )


def marked(plan: Plan, failure: Failure, incumbent: Incumbent) -> Plan:
    """The plan of the incumbent, with the failure in its figures."""
    figures = {
        failure.reason: 1.0,
        "solver_peak_mib": float(failure.peak_mib),
        _NUMBER: float(incumbent.number),
        _BOUND: float(incumbent.bound),
    }
    return msgspec.structs.replace(plan, figures=FrozenMap({**plan.figures, **figures}))


@dataclass(frozen=True)
class RecordedFailure:
    """What a replay takes from the record: the failure, and which incumbent the plan was made of."""

    failure: Failure
    number: int
    bound: int


def recorded_failure(recorded: AnyBody | None) -> RecordedFailure | None:
    """The failure behind a recorded plan; None for any other answer."""
    if not isinstance(recorded, Plan):
        return None
    figures, solve = recorded.figures, recorded.solve
    for reason in _REASONS:
        if reason in figures:
            failure = Failure(
                reason=reason,
                detail=solve.method.partition(f"{reason}: ")[2],
                seconds=solve.seconds,
                feasible_seconds=solve.first_feasible_seconds or 0.0,
                peak_mib=int(figures["solver_peak_mib"]),
            )
            return RecordedFailure(failure, int(figures[_NUMBER]), int(figures[_BOUND]))
    return None


def is_refusal(recorded: AnyBody | None) -> bool:
    """Whether a recorded answer says that the solver failed without a plan."""
    return isinstance(recorded, PlanNone) and recorded.reason in _REASONS
