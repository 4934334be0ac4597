"""From a cluster and what is on sale to a checked plan: compile, solve, build, check."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime

from kinema_core.events import Mode, Offer, Plan, Solve, WorkloadForecast
from kinema_core.model.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.adapters.aggregated import solve_aggregated
from kinema_optimizer.adapters.highs import SEED
from kinema_optimizer.adapters.literal import LiteralResult, solve_literal
from kinema_optimizer.adapters.result import Result
from kinema_optimizer.adapters.stops import ClockStop, StopRule
from kinema_optimizer.errors import UnsoundPlanError
from kinema_optimizer.logic.build_plan import Findings, build_plan
from kinema_optimizer.logic.compiled import Compiled, Question, compiled
from kinema_optimizer.logic.greedy import starts
from kinema_optimizer.logic.problem import Solution, unplaced
from kinema_optimizer.logic.windows import Objective, objective_at
from kinema_optimizer.settings import PlanningSettings


def plan_for(
    cluster: Cluster,
    offers: tuple[Offer, ...],
    *,
    now: datetime,
    settings: PlanningSettings,
    mode: Mode = "reschedule",
    forecasts: tuple[WorkloadForecast, ...] = (),
    stop: StopRule | None = None,
) -> Plan:
    """The best plan found, checked by code that shares nothing with the solver. Blocks for up to the time limit.

    Args:
        cluster: the state to plan for.
        offers: machines on sale.
        now: the cluster's time: protections and objectives depend on it.
        settings: time limit, windows, and what may move.
        mode: `autoscale` only adds nodes for pending pods.
        forecasts: new requests; those that cannot be carried out are left out.
        stop: when to end the solve; by default the clock after the settings' time limit. That of a recorded solve
            also reports its seconds.

    Raises:
        PriceError: live nodes have no price. UnsoundPlanError: the checker refuses the plan.
    """
    stop = stop or ClockStop(settings.time_limit_seconds)
    watch = _Watch()
    objective = objective_at(settings.windows, now)
    question = Question(cluster, offers, now, mode, forecasts, objective.percent, settings.mobility)
    problem, given, objective = _prepared(question, objective)
    watch.feasible()
    result = solve_aggregated(problem.problem, problem.unbound, given, stop, least_moves=mode == "reschedule")
    findings = Findings(
        lower_bound=result.lower_bound,
        proven=result.proven,
        solve=watch.solve(result, stop.recorded),
        objective=objective.text,
    )
    plan = build_plan(problem, result.solution, findings)
    violations = check_plan(plan, cluster, offers, now, settings.mobility)
    if violations:
        raise UnsoundPlanError(plan, violations)
    return plan


def reference_for(
    cluster: Cluster,
    offers: tuple[Offer, ...],
    *,
    now: datetime,
    settings: PlanningSettings,
    stop: StopRule,
    forecasts: tuple[WorkloadForecast, ...] = (),
    at_most: int | None = None,
) -> LiteralResult:
    """The least cost of any plan by the literal model of the thesis, to hold a plan of `plan_for` against.

    Every pod that may move may go anywhere; pending pods that nothing can hold are left out. For up to a hundred pods
    or so: its size grows with pods times nodes. `at_most` (micro-USD per hour) is the cost of the plan to be compared.

    Raises:
        PriceError: live nodes have no price.
    """
    objective = objective_at(settings.windows, now)
    question = Question(
        cluster, offers, now, "reschedule", forecasts, percent=objective.percent, options=settings.mobility
    )
    return solve_literal(compiled(question).unbound, stop, at_most=at_most)


def _prepared(question: Question, objective: Objective) -> tuple[Compiled, tuple[Solution, ...], Objective]:
    """The problem and solutions to start from.

    A ceiling is lifted while a pending pod waits that could be placed without it. Forecasts are dropped where machines
    are limited and first fit finds no place for the larger pods; without them, keeping everything is a solution.
    """
    found, given = _with_starts(question)
    if objective.percent < 100 and _lost(found, given):
        freed, more = _with_starts(replace(question, percent=100))
        if _lost(found, given) > len(freed.homeless):
            return freed, more, Objective()
    return found, given, objective


def _with_starts(question: Question) -> tuple[Compiled, tuple[Solution, ...]]:
    found = compiled(question)
    given = starts(found.problem)
    if given:
        return found, given
    found = compiled(replace(question, forecasts=()))
    return found, starts(found.problem)


def _lost(found: Compiled, given: tuple[Solution, ...]) -> int:
    """Pending pods without a place."""
    return len(found.homeless) + unplaced(given[0])


@dataclass
class _Watch:
    """Measures a solve; what it measures is no part of any decision."""

    _began: float = 0.0
    _feasible: float = 0.0

    def __post_init__(self) -> None:
        self._began = time.perf_counter()

    def feasible(self) -> None:
        """The first solution is there."""
        self._feasible = time.perf_counter() - self._began

    def solve(self, result: Result, recorded: Solve | None) -> Solve:
        """The report on the solve; a replay's has the seconds of the recording."""
        seconds, feasible = round(time.perf_counter() - self._began, 3), round(self._feasible, 3)
        return Solve(
            seconds=seconds if recorded is None else recorded.seconds,
            first_feasible_seconds=feasible if recorded is None else recorded.first_feasible_seconds,
            method=result.method,
            seed=SEED,
            stops=result.stops,
        )
