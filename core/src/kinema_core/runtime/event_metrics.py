"""Metrics of published events: money, plans, verdicts, executions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from kinema_core.events import (
    EMPTY,
    AnyBody,
    ExecutionAborted,
    ExecutionCompleted,
    Figures,
    ForecastMade,
    IterationSkipped,
    IterationStarted,
    Mode,
    NoPlanFound,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    UsageTotals,
)
from kinema_core.runtime.metric_table import METRICS, counter, gauge
from kinema_core.runtime.topology import PUBLISHES

_MOVES: Final = {"surge": "moves_surge", "evict": "moves_evict", "rolling": "moves_rolling"}
_REQUESTS: Final = {"cpu": ("kinema_cpu_requests_cores", 1000), "memory": ("kinema_memory_requests_bytes", 1)}
_NODES: Final = {"booted": "booted", "deleted": "deleted", "kept": "nodes_kept"}


class Sample(NamedTuple):
    """What an event says about a metric: the value of a gauge, the increase of a counter."""

    metric: str
    value: float
    labels: Mapping[str, str] = {}


class EventMetrics:
    """Counts what a service publishes. Where labels are known before, counters begin at 0: a first 1 is no increase."""

    def __init__(self, registry: CollectorRegistry, service: str, cluster: str) -> None:
        self._registry = registry
        self._values = {"service": service, "cluster": cluster}
        self._found: dict[str, Counter | Gauge] = {}
        for body in PUBLISHES.get(service, ()):
            self._count(_AT_START.get(body, ()))

    def published(self, body: AnyBody) -> None:
        """Count an event that was published."""
        self._count(samples(body))

    def _count(self, found: Iterable[Sample]) -> None:
        for name, value, labels in found:
            metric = self._metric(name).labels(**self._values, **labels)
            if isinstance(metric, Gauge):
                metric.set(value)
            else:
                metric.inc(value)

    def _metric(self, name: str) -> Counter | Gauge:
        if name not in self._found:
            made = gauge if METRICS[name].kind == "gauge" else counter
            self._found[name] = made(self._registry, name)
        return self._found[name]


def samples(body: AnyBody) -> Iterator[Sample]:
    """Return what an event says about metrics; nothing for most."""
    match body:
        case IterationStarted(mode=mode):
            yield Sample("kinema_iterations_total", 1, {"mode": mode})
        case IterationSkipped(reason=reason):
            yield Sample("kinema_iterations_skipped_total", 1, {"reason": reason})
        case ForecastMade(totals=totals):
            yield from _of_usage(totals)
        case Plan():
            yield from _of_plan(body)
        case NoPlanFound():
            yield from _of_no_plan(body)
        case PlanAccepted():
            yield Sample("kinema_verdicts_total", 1, {"verdict": "accepted", "rule": ""})
        case PlanApprovalRequested(rule=rule) | PlanRejected(rule=rule):
            verdict = "rejected" if isinstance(body, PlanRejected) else "held"
            yield Sample("kinema_verdicts_total", 1, {"verdict": verdict, "rule": rule})
        case ExecutionCompleted(figures=figures):
            yield Sample("kinema_executions_total", 1, {"outcome": "completed"})
            yield from _of_execution(figures, "completed")
        case ExecutionAborted(figures=figures):
            yield Sample("kinema_executions_total", 1, {"outcome": "aborted"})
            yield from _of_execution(figures, "aborted")
        case _:
            return


def _of_usage(totals: Sequence[UsageTotals]) -> Iterator[Sample]:
    for one in totals:
        name, unit = _REQUESTS[one.resource]
        yield Sample(name, one.requested / unit, {"figure": "requested"})
        yield Sample(name, one.recommended / unit, {"figure": "recommended"})
        yield from _steps(one.resource, one.steps, one.above)


def _steps(resource: str, steps: int, above: int) -> Iterator[Sample]:
    yield Sample("kinema_judged_steps_total", above, {"resource": resource, "band": "above"})
    yield Sample("kinema_judged_steps_total", steps - above, {"resource": resource, "band": "within"})


def _of_plan(plan: Plan) -> Iterator[Sample]:
    yield Sample("kinema_plans_total", 1, {"status": plan.status})
    if plan.mode == "reschedule" and plan.cost.unit == "USD/h":
        yield from _of_cost(plan.cost.before, plan.cost.after, plan.cost.lower_bound)
        yield Sample("kinema_plan_moves", plan.moves)
        yield Sample("kinema_saving_usd_per_hour", plan.cost.before - plan.cost.after, {"figure": "planned"})
        yield Sample("kinema_solve_seconds", plan.solve.seconds)
        if plan.cost.gap is not None:
            yield Sample("kinema_plan_gap_ratio", plan.cost.gap)


def _of_no_plan(found: NoPlanFound) -> Iterator[Sample]:
    yield Sample("kinema_plans_total", 1, {"status": found.reason})
    if found.mode == "reschedule" and "cost_usd_per_hour" in found.figures:
        cost = _number(found.figures, "cost_usd_per_hour")
        yield from _of_cost(cost, cost, _number(found.figures, "lower_bound_usd_per_hour"))
        yield Sample("kinema_plan_moves", 0)


def _of_cost(before: float, after: float, bound: float) -> Iterator[Sample]:
    for figure, value in (("before", before), ("after", after), ("bound", bound)):
        yield Sample("kinema_cost_usd_per_hour", value, {"figure": figure})


def _of_execution(figures: Figures, outcome: str) -> Iterator[Sample]:
    for strategy, name in _MOVES.items():
        yield Sample("kinema_moves_total", _number(figures, name), {"strategy": strategy, "outcome": outcome})
    if "saved_usd_per_hour" in figures:
        saved = _number(figures, "saved_usd_per_hour")
        yield Sample("kinema_saving_usd_per_hour", saved, {"figure": "realised"})
    for change, name in _NODES.items():
        yield Sample("kinema_nodes_total", _number(figures, name), {"change": change})
    yield Sample("kinema_placement_misses_total", _number(figures, "placement_misses"))
    yield Sample("kinema_workloads_skipped_total", _number(figures, "workloads_skipped"))


def _number(figures: Figures, name: str) -> float:
    value = figures.get(name, 0)
    return value if isinstance(value, int | float) else 0


_AT_START: Final[Mapping[object, Sequence[Sample]]] = {
    IterationStarted: [Sample("kinema_iterations_total", 0, {"mode": mode}) for mode in get_args(Mode)],
    ForecastMade: [sample for resource in _REQUESTS for sample in _steps(resource, 0, 0)],
    PlanAccepted: [Sample("kinema_verdicts_total", 0, {"verdict": "accepted", "rule": ""})],
    ExecutionCompleted: [
        Sample("kinema_executions_total", 0, {"outcome": "completed"}),
        *_of_execution(EMPTY, "completed"),
    ],
    ExecutionAborted: [
        Sample("kinema_executions_total", 0, {"outcome": "aborted"}),
        *_of_execution(EMPTY, "aborted"),
    ],
}
"""Counters of a service that publishes a kind of event, before the first one."""
