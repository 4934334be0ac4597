"""All metrics of the services: name, kind, meaning, labels. `docs/metrics.md` is written from this table.

Every metric has the labels `service` and `cluster` beside its own. A label takes few values: names of kinds, rules,
strategies, outcomes and reasons that the code knows; never names of objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

COMMON: Final = ("service", "cluster")
_ALL: Final = ("observer", "predictor", "optimizer", "decider", "rescheduler")
_STAGES: Final = ("predictor", "optimizer", "decider")
_LOOPS: Final = ("observer", "rescheduler")


class Metric(NamedTuple):
    """What a metric is."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    of: Sequence[str]
    """The services that have it."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Of a histogram."""


METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        "kinema_cluster_cost_usd_per_hour": Metric(
            "gauge", "Cost of the nodes that there are now; none while one of them has no price", ("rescheduler",)
        ),
        "kinema_cost_usd_per_hour": Metric(
            "gauge",
            "Cost of the nodes by the newest reschedule plan: before it, after it, and at least",
            ("optimizer",),
            ("figure",),
        ),
        "kinema_saving_usd_per_hour": Metric(
            "gauge",
            "Saving that the newest reschedule plan promises (planned), and that of the newest execution (realised)",
            ("optimizer", "rescheduler"),
            ("figure",),
        ),
        "kinema_cpu_requests_cores": Metric(
            "gauge",
            "CPU of the pods whose workloads were judged: what they request, and what is recommended for them",
            ("predictor",),
            ("figure",),
        ),
        "kinema_memory_requests_bytes": Metric("gauge", "The same of memory", ("predictor",), ("figure",)),
        "kinema_judged_steps_total": Metric(
            "counter",
            "Steps of usage after a judgement, by whether usage was above the need that it states, or within it",
            ("predictor",),
            ("resource", "band"),
        ),
        "kinema_plan_gap_ratio": Metric(
            "gauge", "Distance of the newest reschedule plan from its bound, as a share of the bound", ("optimizer",)
        ),
        "kinema_plan_moves": Metric("gauge", "Moves of the newest reschedule plan", ("optimizer",)),
        "kinema_solve_seconds": Metric("gauge", "Time that the newest plan was searched for", ("optimizer",)),
        "kinema_plans_total": Metric(
            "counter", "Plans, by result of the solve or by the reason for none", ("optimizer",), ("status",)
        ),
        "kinema_verdicts_total": Metric(
            "counter", "Verdicts on plans, with the rule that decided", ("decider",), ("verdict", "rule")
        ),
        "kinema_iterations_total": Metric("counter", "Iterations that began", ("observer",), ("mode",)),
        "kinema_iterations_skipped_total": Metric(
            "counter", "Reasons not to begin an iteration", ("observer",), ("reason",)
        ),
        "kinema_executions_total": Metric("counter", "Executions that ended", ("rescheduler",), ("outcome",)),
        "kinema_moves_total": Metric(
            "counter",
            "Pods moved, by strategy and by how their execution ended",
            ("rescheduler",),
            ("strategy", "outcome"),
        ),
        "kinema_placement_misses_total": Metric(
            "counter", "Moved pods that are not on their planned node", ("rescheduler",)
        ),
        "kinema_nodes_total": Metric(
            "counter", "Nodes booted, deleted, and kept in spite of the plan", ("rescheduler",), ("change",)
        ),
        "kinema_workloads_skipped_total": Metric(
            "counter", "Workloads that an execution left where they were", ("rescheduler",)
        ),
        "kinema_steps_total": Metric(
            "counter", "Attempts at steps, by kind and outcome", ("rescheduler",), ("kind", "outcome")
        ),
        "kinema_disrupted_nodes": Metric("gauge", "Nodes that a plan has closed", ("observer",)),
        "kinema_workloads_unready": Metric(
            "gauge", "Deployments and StatefulSets with fewer Ready pods than replicas", ("observer",)
        ),
        "kinema_ready_dips_total": Metric(
            "counter",
            "Workloads that fell below their replicas while a plan was executed, whatever the cause",
            ("observer",),
        ),
        "kinema_state_age_seconds": Metric("gauge", "Age of the newest observation of the cluster", _LOOPS),
        "kinema_kind_age_seconds": Metric(
            "gauge", "Age of the API server's last word on a kind of objects", ("observer",), ("kind",)
        ),
        "kinema_blind_kinds": Metric("gauge", "Kinds of objects that the observer cannot see", _LOOPS),
        "kinema_leader": Metric("gauge", "1 while this process holds the lease of its service", _LOOPS),
        "kinema_api_requests_total": Metric(
            "counter",
            "Requests to the API server, by HTTP method and status; 0 without an answer",
            _LOOPS,
            ("verb", "code"),
        ),
        "kinema_events_total": Metric("counter", "Events handled", _STAGES, ("kind", "outcome")),
        "kinema_stage_duration_seconds": Metric(
            "histogram",
            "Real time that a handler took",
            _STAGES,
            ("kind",),
            (0.005, 0.02, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
        ),
        "kinema_event_lag_seconds": Metric("gauge", "Age of the last event when handled", _STAGES),
        "kinema_pending_events": Metric(
            "gauge", "Events on the broker that the service has yet to take, when it took the last one", _STAGES
        ),
        "kinema_dead_letters_total": Metric("counter", "Events dropped", _ALL, ("reason",)),
        "kinema_loop_lag_seconds": Metric("gauge", "How late the event loop's last beat was", _ALL),
        "kinema_build_info": Metric("gauge", "Version of the service", _ALL, ("version",)),
    }
)
"""By name, in the order of the documentation: money, plans, executions, the cluster, the service itself."""


def counter(registry: CollectorRegistry, name: str) -> Counter:
    """Register a counter of the table."""
    found = METRICS[name]
    return Counter(name, found.text, (*COMMON, *found.labels), registry=registry)


def gauge(registry: CollectorRegistry, name: str) -> Gauge:
    """Register a gauge of the table."""
    found = METRICS[name]
    return Gauge(name, found.text, (*COMMON, *found.labels), registry=registry)


def histogram(registry: CollectorRegistry, name: str) -> Histogram:
    """Register a histogram of the table."""
    found = METRICS[name]
    return Histogram(name, found.text, (*COMMON, *found.labels), buckets=found.buckets, registry=registry)
