"""Why no plan is proposed, with the figures behind it; and how a recorded solve went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kinema_core.events import AnyBody, Figures, FrozenMap, Mode, Plan, PlanNone, Solve, Stop
from kinema_core.model.check import Violation


def none_of(plan: Plan) -> PlanNone:
    """The answer for a plan that changes nothing.

    `nothing-better`: nothing costs less; `nothing-holds-pending`: pods wait that no machine on sale can hold.
    """
    codes = Counter(item.code for item in plan.unplaced)
    waiting = plan.mode == "autoscale" and plan.unplaced
    return PlanNone(
        mode=plan.mode,
        version=plan.base_version,
        reason="nothing-holds-pending" if waiting else "nothing-better",
        figures=FrozenMap(
            {
                "cost_usd_per_hour": plan.cost.after,
                "lower_bound_usd_per_hour": plan.cost.lower_bound,
                "pods_unplaced": len(plan.unplaced),
                "unplaced": "; ".join(f"{code}: {codes[code]}" for code in sorted(codes)),
                **_solve_figures(plan.solve),
            }
        ),
    )


def recheck_failed(plan: Plan, violations: Sequence[Violation]) -> PlanNone:
    """The answer when the checker refuses the plan: it is never published, only what is wrong with it."""
    first = violations[0]
    return PlanNone(
        mode=plan.mode,
        version=plan.base_version,
        reason="recheck-failed",
        figures=FrozenMap(
            {
                "violations": len(violations),
                "first_code": first.code,
                "first_subject": first.subject,
                "first_detail": first.detail,
                **_solve_figures(plan.solve),
            }
        ),
    )


def price_missing(mode: Mode, version: int, detail: str) -> PlanNone:
    """The answer when live nodes have no price."""
    return PlanNone(mode=mode, version=version, reason="price-missing", figures=FrozenMap({"detail": detail}))


def recorded_solve(recorded: AnyBody | None) -> Solve | None:
    """How the solve behind a recorded answer went; None when there is no record of one."""
    if isinstance(recorded, Plan):
        return recorded.solve
    if not isinstance(recorded, PlanNone) or "stops" not in recorded.figures:
        return None
    figures = recorded.figures
    return Solve(
        seconds=float(figures["seconds"]),
        first_feasible_seconds=float(figures["first_feasible_seconds"]),
        method=str(figures["method"]),
        seed=int(figures["seed"]),
        stops=tuple(_stop(text) for text in str(figures["stops"]).split()),
    )


def _solve_figures(solve: Solve) -> Figures:
    """All of a solve, so that a replay can end where it did."""
    return FrozenMap(
        {
            "seconds": solve.seconds,
            "first_feasible_seconds": solve.first_feasible_seconds or 0.0,
            "method": solve.method,
            "seed": solve.seed,
            "stops": " ".join(f"{stop.phase}:{stop.reason}:{stop.iteration}" for stop in solve.stops),
        }
    )


def _stop(text: str) -> Stop:
    phase, reason, iteration = text.split(":")
    for known in ("optimal", "time-limit", "work-limit", "infeasible"):
        if reason == known:
            return Stop(reason=known, phase=phase, iteration=int(iteration))
    message = f"stop {text!r} has no known reason"
    raise ValueError(message)
