"""One question to the solver, and its answer; the same in the service's process and in a child's."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from datetime import datetime

from kinema_core.events import ClusterSnapshot, Mode, Offer, Plan, PlanNone, WorkloadForecast
from kinema_core.model.catalog import PriceError
from kinema_core.model.cluster import Cluster, all_objects, evolve
from kinema_core.runtime.settings import RuntimeSettings
from kinema_optimizer.adapters.errands import Crew
from kinema_optimizer.adapters.stops import RecordedStop, StopRule
from kinema_optimizer.errors import UnsoundPlanError
from kinema_optimizer.logic.failures import Failure, RecordedFailure, marked, refusal, solve_of
from kinema_optimizer.logic.progress import Incumbent, Progress, Report, incumbent_of
from kinema_optimizer.logic.reports import none_of, price_missing, recheck_failed
from kinema_optimizer.planner import plan_for, plan_from
from kinema_optimizer.settings import PlanningSettings


@dataclass(frozen=True)
class Job:
    """What a plan is asked for."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    now: datetime
    settings: PlanningSettings
    mode: Mode
    forecasts: tuple[WorkloadForecast, ...] = ()
    broker: RuntimeSettings | None = None
    """Whose work queue shares the search among processes; None: it is not shared."""

    def pack(self) -> bytes:
        """The job for a process of ours."""
        rest = (self.cluster.version, self.offers, self.now, self.settings, self.mode, self.forecasts, self.broker)
        return pickle.dumps((tuple(all_objects(self.cluster)), *rest), protocol=5)


@dataclass(frozen=True)
class Alive:
    """A sign of life."""


@dataclass(frozen=True)
class Ended:
    """The answer; None and what went wrong where there is none."""

    answer: Plan | PlanNone | None
    error: str = ""
    out_of_memory: bool = False


def unpack(data: bytes) -> Job:
    """The job that our parent process packed."""
    objects, version, *rest = pickle.loads(data)  # noqa: S301 - written by our own parent, over its pipe
    return Job(evolve(Cluster(), ClusterSnapshot(version=version, objects=objects)), *rest)


def solve(job: Job, stop: StopRule, progress: Report | None = None, crew: Crew | None = None) -> Plan | PlanNone:
    """The answer to a job; blocks for up to the time limit."""
    try:
        plan = plan_for(
            job.cluster,
            job.offers,
            now=job.now,
            settings=job.settings,
            mode=job.mode,
            forecasts=job.forecasts,
            stop=stop,
            progress=progress,
            crew=crew,
        )
    except PriceError as error:
        return price_missing(job.mode, job.cluster.version, str(error))
    except UnsoundPlanError as error:
        return recheck_failed(error.plan, error.violations)
    return none_of(plan) if plan.status == "nothing-better" else plan


def salvage(job: Job, failure: Failure, incumbent: Incumbent | None) -> Plan | PlanNone:
    """The answer to a job whose solve failed: the incumbent's plan where it is better than none, else a refusal."""
    none = refusal(job.mode, job.cluster.version, failure)
    if incumbent is None:
        return none
    try:
        plan = plan_from(
            job.cluster,
            job.offers,
            now=job.now,
            settings=job.settings,
            mode=job.mode,
            forecasts=job.forecasts,
            incumbent=incumbent,
            solve=solve_of(failure, incumbent, job.settings.seed),
        )
    except UnsoundPlanError:
        return none
    return none if plan.status == "nothing-better" else marked(plan, failure, incumbent)


def repeat_failure(job: Job, stop: RecordedStop, recorded: RecordedFailure) -> Plan | PlanNone:
    """The answer of a recorded solve that failed: solved again up to the incumbent that it had, then salvaged."""
    count = 0

    def until(news: Progress) -> None:
        nonlocal count
        count += 1
        if count == recorded.number and (found := incumbent_of(count, news)) is not None:
            raise _ReachedError(found)

    try:
        return solve(job, stop, until)
    except _ReachedError as reached:
        # Whether the bound was known by then depended on who was faster: that is taken from the record.
        return salvage(job, recorded.failure, replace(reached.incumbent, bound=recorded.bound))


class _ReachedError(Exception):
    """The repeated solve has come to the incumbent."""

    def __init__(self, incumbent: Incumbent) -> None:
        super().__init__(incumbent.number)
        self.incumbent = incumbent
