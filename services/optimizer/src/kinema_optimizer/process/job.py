"""Job of the solver and its answer, in the service's process or in a child's: `solve`, and `salvage` after a failure.

A solver's process may die, hang or take too much memory. Such a failure comes from outside, like the time: a replay
does not repeat it but takes reason and figures from the record (`mark_failure`, `recorded_failure`). It does make the
plan of the incumbent again, from the same report of the same solve. `refusal` states why no plan is proposed, with the
figures behind it; `recorded_solve` reads how a recorded solve went.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from kinema_core.events import (
    AnyBody,
    ClusterSnapshot,
    Figures,
    FrozenMap,
    Mode,
    NoPlanFound,
    Offer,
    Plan,
    Pod,
    Solve,
    Stop,
    WorkloadForecast,
)
from kinema_core.model.catalog import PriceError
from kinema_core.model.checker.check import Violation
from kinema_core.model.cluster import Cluster, all_objects, evolve
from kinema_core.runtime.settings import RuntimeSettings
from kinema_optimizer.errors import UnsoundPlanError
from kinema_optimizer.planning.planner import SalvageStop, plan_for, plan_from
from kinema_optimizer.planning.portfolio import WITHOUT_SEARCH
from kinema_optimizer.planning.task import Request
from kinema_optimizer.problem.solution import IncumbentReport, Progress, Report, incumbent_report
from kinema_optimizer.request.goal import Goal
from kinema_optimizer.search.neighborhood import TaskPool
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import RecordedStop, StopRule


@dataclass(frozen=True)
class Job:
    """Question to a solver."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    now: datetime
    settings: PlanningSettings
    mode: Mode
    forecasts: tuple[WorkloadForecast, ...] = ()
    broker: RuntimeSettings | None = None
    """Whose work queue shares the search among processes; None: it is not shared."""
    ahead: tuple[Pod, ...] = ()
    """Placeholders for replicas that are expected soon."""
    goal: Goal | None = None
    """Of the plan that this is the rest of."""

    def pack(self) -> bytes:
        """Return the job as bytes for a child process."""
        asked = (self.offers, self.now, self.settings, self.mode, self.forecasts, self.broker, self.ahead, self.goal)
        return pickle.dumps((tuple(all_objects(self.cluster)), self.cluster.version, *asked), protocol=5)


@dataclass(frozen=True)
class Alive:
    """A sign of life."""


@dataclass(frozen=True)
class Ended:
    """The answer; None and what went wrong where there is none."""

    answer: Plan | NoPlanFound | None
    error: str = ""
    out_of_memory: bool = False


def unpack(data: bytes) -> Job:
    """Return the job that our parent process packed."""
    objects, version, *rest = pickle.loads(data)  # noqa: S301 - written by our own parent, over its pipe
    return Job(evolve(Cluster(), ClusterSnapshot(version=version, objects=objects)), *rest)


def solve(
    job: Job, stop: StopRule, progress: Report | None = None, task_pool: TaskPool | None = None
) -> Plan | NoPlanFound:
    """Return the answer to a job; blocks for up to the time limit."""
    try:
        plan = plan_for(
            job.cluster,
            job.offers,
            now=job.now,
            settings=job.settings,
            mode=job.mode,
            forecasts=job.forecasts,
            ahead=job.ahead,
            goal=job.goal,
            stop=stop,
            progress=progress,
            task_pool=task_pool,
        )
    except PriceError as error:
        return price_missing(job.mode, job.cluster.version, str(error))
    except UnsoundPlanError as error:
        return recheck_failed(error.plan, error.violations)
    return none_of(plan) if plan.status == "nothing-better" else plan


def salvage(job: Job, failure: Failure, incumbent: IncumbentReport | None) -> Plan | NoPlanFound:
    """Return the answer to a job whose solve failed: the incumbent's plan if it is better than none, else a refusal."""
    none = refusal(job.mode, job.cluster.version, failure)
    if incumbent is None:
        return none
    try:
        request = Request(job.cluster, job.offers, job.now, job.settings, job.mode, SalvageStop(), job.ahead)
        report = solve_of(failure, incumbent, job.settings.seed)
        plan = plan_from(request, incumbent=incumbent, solve=report, forecasts=job.forecasts)
    except UnsoundPlanError:
        return none
    return none if plan.status == "nothing-better" else mark_failure(plan, failure, incumbent)


def repeat_failure(job: Job, stop: RecordedStop, recorded: RecordedFailure) -> Plan | NoPlanFound:
    """Return the answer of a recorded solve that failed: solved again up to its incumbent, then salvaged."""
    count = 0

    def until(news: Progress) -> None:
        nonlocal count
        count += 1
        if count == recorded.number and (found := incumbent_report(count, news)) is not None:
            raise _ReachedError(found)

    try:
        return solve(job, stop, until)
    except _ReachedError as reached:
        # Whether the bound was known by then depended on who was faster: that is taken from the record.
        return salvage(job, recorded.failure, replace(reached.incumbent, bound=recorded.bound))


class _ReachedError(Exception):
    """The repeated solve has come to the incumbent."""

    def __init__(self, incumbent: IncumbentReport) -> None:
        super().__init__(incumbent.number)
        self.incumbent = incumbent


FailureReason: TypeAlias = Literal["solver-crashed", "solver-hung", "solver-memory"]
_REASONS: Final[tuple[FailureReason, ...]] = get_args(FailureReason)
_NUMBER: Final = "incumbent"
_BOUND: Final = "incumbent_bound"


@dataclass(frozen=True)
class Failure:
    """Failure of a solve."""

    reason: FailureReason
    detail: str
    """Signal, exit code, error or limit."""
    seconds: float
    """From the question to the failure."""
    feasible_seconds: float
    """From the question to the first incumbent; 0 where there was none."""
    peak_mib: int
    """Most resident memory that was seen."""


def refusal(mode: Mode, version: int, failure: Failure) -> NoPlanFound:
    """Return the answer where no better plan than none is known."""
    figures: dict[str, int | float | str] = {
        "detail": failure.detail,
        "seconds": failure.seconds,
        "peak_mib": failure.peak_mib,
    }
    return NoPlanFound(mode=mode, version=version, reason=failure.reason, figures=FrozenMap(figures))


def solve_of(failure: Failure, incumbent: IncumbentReport, seed: int) -> Solve:
    """Return the report on the failed solve."""
    return Solve(
        seconds=failure.seconds,
        first_feasible_seconds=failure.feasible_seconds,
        method=f"incumbent of a solve that failed, {failure.reason}: {failure.detail}",
        seed=seed,
        stops=incumbent.stops,
    )


def mark_failure(plan: Plan, failure: Failure, incumbent: IncumbentReport) -> Plan:
    """Return the plan of the incumbent, with the failure in its figures."""
    figures = {
        failure.reason: 1.0,
        "solver_peak_mib": float(failure.peak_mib),
        _NUMBER: float(incumbent.number),
        _BOUND: float(incumbent.bound),
    }
    return msgspec.structs.replace(plan, figures=FrozenMap({**plan.figures, **figures}))


@dataclass(frozen=True)
class RecordedFailure:
    """Failure in a record, and the incumbent that the plan was made of: a replay repeats both."""

    failure: Failure
    number: int
    bound: int


def recorded_failure(recorded: AnyBody | None) -> RecordedFailure | None:
    """Return the failure behind a recorded plan; None for any other answer."""
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
    """Return whether a recorded answer says that the solver failed without a plan."""
    return isinstance(recorded, NoPlanFound) and recorded.reason in _REASONS


def none_of(plan: Plan) -> NoPlanFound:
    """Return the answer for a plan that changes nothing.

    `nothing-better`: nothing costs less; `not-searched`: the time was over before a search could begin, and
    no node goes whose pods fit on others; `nothing-holds-pending`: pods wait that no machine on sale can hold.
    """
    codes = Counter(item.code for item in plan.unplaced)
    cost = plan.cost
    money = {"cost_usd_per_hour": cost.after, "lower_bound_usd_per_hour": cost.lower_bound} if cost.unit != "W" else {}
    waiting, searched = plan.mode == "autoscale" and plan.unplaced, plan.solve.method not in WITHOUT_SEARCH
    return NoPlanFound(
        mode=plan.mode,
        version=plan.base_version,
        reason="nothing-holds-pending" if waiting else "nothing-better" if searched else "not-searched",
        figures=FrozenMap(
            {
                **money,
                "pods_unplaced": len(plan.unplaced),
                "unplaced": "; ".join(f"{code}: {codes[code]}" for code in sorted(codes)),
                **_solve_figures(plan.solve),
            }
        ),
    )


def recheck_failed(plan: Plan, violations: Sequence[Violation]) -> NoPlanFound:
    """Return the answer when the checker refuses the plan: it is never published, only what is wrong with it."""
    first = violations[0]
    return NoPlanFound(
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


def price_missing(mode: Mode, version: int, detail: str) -> NoPlanFound:
    """Return the answer when no live node has a price."""
    return NoPlanFound(mode=mode, version=version, reason="price-missing", figures=FrozenMap({"detail": detail}))


def recorded_solve(recorded: AnyBody | None) -> Solve | None:
    """Return how the solve behind a recorded answer went; None when there is no record of one."""
    if isinstance(recorded, Plan):
        return recorded.solve
    if not isinstance(recorded, NoPlanFound) or "stops" not in recorded.figures:
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
    """Return all of a solve, so that a replay can end where it did."""
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
