"""Dashboards and alerts: they name metrics that exist, and Prometheus' own engine evaluates them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from tools import monitoring
from tools.settings_reference import SERVICES

from kinema_core.events import (
    Cost,
    ExecutionAborted,
    ExecutionCompleted,
    Figures,
    ForecastMade,
    FrozenMap,
    IterationSkipped,
    IterationStarted,
    NoPlanFound,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
    Solve,
    UsageTotals,
)
from kinema_core.runtime.health import Health
from kinema_core.runtime.loop import LoopMetrics
from kinema_core.runtime.metric_table import METRICS

register_default_plugins()

_METRIC: Final = re.compile(r"\bkinema_[a-z_]+")
PLAN: Final = Plan(
    status="optimal",
    cost=Cost(before=2.0, after=1.2, lower_bound=1.0, gap=0.2),
    nodes=(),
    placements=(),
    moves=3,
    restarts=0,
    solve=Solve(seconds=1.0, first_feasible_seconds=None, method="exact", seed=0),
)
USAGE: Final = ForecastMade(
    version=1,
    forecasts=(),
    totals=(
        UsageTotals(resource="cpu", requested=1200, recommended=500, steps=24, above=1),
        UsageTotals(resource="memory", requested=4096, recommended=6144, steps=24, above=0),
    ),
)
COSTS: Final = ("before", "after", "bound")
DONE: Final = ExecutionCompleted(
    plan="p", fencing=1, figures=FrozenMap({"moves_surge": 2, "booted": 1, "deleted": 4, "placement_misses": 1})
)


def published() -> Health:
    """A process that has published every kind of event that counts."""
    health = Health("any", "c1")
    LoopMetrics(health, "any", "c1").step_ended("boot", "done")
    health.metrics.handled("plan-proposed", "answered", 0.1)
    health.metrics.dead_letter("undecodable")
    for body in (
        IterationStarted(mode="reschedule", version=1, reason="stable"),
        IterationSkipped(version=1, reason="reschedule-recent"),
        USAGE,
        PLAN,
        NoPlanFound(mode="reschedule", version=1, reason="no-catalog"),
        PlanAccepted(plan="p", version=1),
        PlanRejected(plan="p", version=1, rule="savings", reason="", would_change=""),
        PlanApprovalRequested(plan="p", version=1, rule="approval", reason="", would_change=""),
        DONE,
        ExecutionAborted(plan="p", fencing=1, reason="operator", detail=""),
    ):
        health.metrics.published(body)
    return health


def test_what_an_event_counts_as() -> None:
    """Money by the newest plan, verdicts by rule, moves and misses by executions that completed."""
    registry = published().registry
    own = {"service": "any", "cluster": "c1"}

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {**own, **labels})

    assert [value("kinema_cost_usd_per_hour", figure=one) for one in COSTS] == [2.0, 1.2, 1.0]
    assert value("kinema_verdicts_total", verdict="rejected", rule="savings") == 1
    assert value("kinema_moves_total", strategy="surge", outcome="completed") == 2
    assert value("kinema_nodes_total", change="deleted") == 4
    assert value("kinema_placement_misses_total") == 1
    assert [value("kinema_executions_total", outcome=one) for one in ("completed", "aborted")] == [1, 1]


def test_usage_that_was_judged() -> None:
    """Requests in cores and bytes, now and recommended; steps above the need and within it, by resource."""
    registry = published().registry
    own = {"service": "any", "cluster": "c1"}
    figures = [{**own, "figure": one} for one in ("requested", "recommended")]
    assert [registry.get_sample_value("kinema_cpu_requests_cores", one) for one in figures] == [1.2, 0.5]
    assert [registry.get_sample_value("kinema_memory_requests_bytes", one) for one in figures] == [4096, 6144]
    steps = {
        (resource, band): registry.get_sample_value(
            "kinema_judged_steps_total", {**own, "resource": resource, "band": band}
        )
        for resource in ("cpu", "memory")
        for band in ("above", "within")
    }
    assert list(steps.values()) == [1, 23, 0, 24]
    begun = Health("predictor", "c1").registry
    first = {"service": "predictor", "cluster": "c1", "resource": "memory", "band": "above"}
    assert begun.get_sample_value("kinema_judged_steps_total", first) == 0


def test_the_cost_of_a_cluster_without_a_better_plan() -> None:
    """What the cluster costs now is what the optimizer found last, also where it proposed nothing."""
    health = published()
    figures: Figures = FrozenMap({"cost_usd_per_hour": 1.2, "lower_bound_usd_per_hour": 1.1})
    health.metrics.published(NoPlanFound(mode="reschedule", version=2, reason="nothing-better", figures=figures))
    own = {"service": "any", "cluster": "c1"}
    costs = {one: health.registry.get_sample_value("kinema_cost_usd_per_hour", {**own, "figure": one}) for one in COSTS}
    assert costs == {"before": 1.2, "after": 1.2, "bound": 1.1}
    assert health.registry.get_sample_value("kinema_plan_moves", own) == 0


def test_counters_begin_at_nothing() -> None:
    """A counter that appears with its first event shows no increase: Prometheus would miss the first abort."""
    registry = Health("rescheduler", "c1").registry
    own = {"service": "rescheduler", "cluster": "c1"}
    assert registry.get_sample_value("kinema_executions_total", {**own, "outcome": "aborted"}) == 0
    assert registry.get_sample_value("kinema_nodes_total", {**own, "change": "booted"}) == 0
    assert registry.get_sample_value("kinema_iterations_total", {**own, "mode": "reschedule"}) is None


def test_money_is_of_plans_that_reschedule() -> None:
    """A plan for pending pods buys nodes, and one in watts is no money: neither shows what the cluster costs."""
    health = Health("any", "c1")
    health.metrics.published(msgspec.structs.replace(PLAN, mode="autoscale"))
    health.metrics.published(msgspec.structs.replace(PLAN, cost=msgspec.structs.replace(PLAN.cost, unit="W")))
    own = {"service": "any", "cluster": "c1"}
    assert health.registry.get_sample_value("kinema_cost_usd_per_hour", {**own, "figure": "before"}) is None
    assert health.registry.get_sample_value("kinema_plans_total", {**own, "status": "optimal"}) == 2


def test_files_are_up_to_date() -> None:
    """Run `python tools/monitoring.py` after changing a panel or an alert."""
    assert monitoring.main(["--check"]) == 0


def queries() -> list[str]:
    """Return every query of a panel or an alert."""
    panels = (panel for dashboard in monitoring.DASHBOARDS.values() for panel in dashboard)
    return [
        *(monitoring.of_clusters(query, "c1") for panel in panels for query in panel.queries.values()),
        *(alert.query for alert in monitoring.ALERTS),
    ]


def test_queries_name_metrics_that_exist() -> None:
    """A query of a metric that no service has would be empty for ever; and what a service shows is drawn somewhere."""
    asked = {name.removesuffix("_bucket") for query in queries() for name in _METRIC.findall(query)}
    assert asked == METRICS.keys()


@pytest.mark.parametrize("name", monitoring.DASHBOARDS)
def test_dashboards_are_of_grafanas_schema(name: str) -> None:
    """Grafana's own classes know every field and add none to the options of a panel."""
    dashboard = json.loads((monitoring.FILES / "dashboards" / f"{name}.json").read_text())
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    assert list(differences(dashboard, known)) == []
    assert [one["options"] for one in known["panels"]] == [one["options"] for one in dashboard["panels"]]


def differences(value: Any, other: Any, path: str = "") -> Iterator[str]:
    """Return places of a value that another one lacks or has otherwise."""
    if isinstance(value, dict) and isinstance(other, dict):
        for name in value:
            yield from differences(value[name], other.get(name), f"{path}.{name}")
    elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        for place, (one, another) in enumerate(zip(value, other, strict=True)):
            yield from differences(one, another, f"{path}[{place}]")
    elif value != other:
        yield path


@pytest.mark.parametrize("query", queries())
def test_clusters_are_apart(query: str) -> None:
    """A dashboard shows several clusters at once, so that the largest of all their gauges belongs to none."""
    assert not re.search(r"max\((?!_)|max by \((?!cluster)", query)


@pytest.mark.parametrize("name", monitoring.DASHBOARDS)
def test_panels_of_a_dashboard_do_not_overlap(name: str) -> None:
    """Ids are unique, every panel lies in the grid, and every query has its letter."""
    panels: Sequence[Any] = json.loads((monitoring.FILES / "dashboards" / f"{name}.json").read_text())["panels"]
    places = {(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels}
    assert len(places) == len({one["id"] for one in panels}) == len(panels)
    assert all(one["gridPos"]["x"] + one["gridPos"]["w"] <= 24 for one in panels)
    assert all([target["refId"] for target in one["targets"]] == list("ABC")[: len(one["targets"])] for one in panels)


WELL: Final = {
    **{f'kinema_build_info{{cluster="c1", service="{service}"}}': "1x1500" for service in SERVICES},
    'kinema_leader{cluster="c1", service="observer"}': "1x1500",
    'kinema_state_age_seconds{cluster="c1", service="rescheduler"}': "10x1500",
    'kinema_blind_kinds{cluster="c1", service="observer"}': "0x1500",
    'kinema_kind_age_seconds{cluster="c1", service="observer", kind="nodes"}': "1x1500",
    'kinema_workloads_unready{cluster="c1", service="observer"}': "1x1500",
    'kinema_ready_dips_total{cluster="c1", service="observer"}': "0x1500",
    'kinema_api_requests_total{cluster="c1", service="observer", verb="GET", code="200"}': "0+1x1500",
    'kinema_iterations_total{cluster="c1", service="observer", mode="reschedule"}': "0+1x1500",
    'kinema_cluster_cost_usd_per_hour{cluster="c1", service="rescheduler"}': "2x1500",
    'kinema_saving_usd_per_hour{cluster="c1", service="optimizer", figure="planned"}': "0.5x1500",
    'kinema_plan_gap_ratio{cluster="c1", service="optimizer"}': "0.5x1500",
    'kinema_plan_moves{cluster="c1", service="optimizer"}': "5x1500",
    'kinema_solve_seconds{cluster="c1", service="optimizer"}': "5x1500",
    'kinema_workloads_skipped_total{cluster="c1", service="rescheduler"}': "0x1500",
    'kinema_pending_events{cluster="c1", service="decider"}': "0x1500",
    'kinema_disrupted_nodes{cluster="c1", service="observer"}': "0x1200 4x30 0x270",
    'kinema_cost_usd_per_hour{cluster="c1", figure="before"}': "2x1500",
    'kinema_cost_usd_per_hour{cluster="c1", figure="after"}': "1.5x1500",
    'kinema_cost_usd_per_hour{cluster="c1", figure="bound"}': "1x1500",
    'kinema_cpu_requests_cores{cluster="c1", figure="requested"}': "8x1500",
    'kinema_cpu_requests_cores{cluster="c1", figure="recommended"}': "5x1500",
    'kinema_memory_requests_bytes{cluster="c1", figure="requested"}': "8x1500",
    'kinema_memory_requests_bytes{cluster="c1", figure="recommended"}': "9x1500",
    'kinema_judged_steps_total{cluster="c1", resource="cpu", band="above"}': "0+1x1500",
    'kinema_judged_steps_total{cluster="c1", resource="cpu", band="within"}': "0+19x1500",
    'kinema_nodes_total{cluster="c1", change="deleted"}': "0+1x1500",
    'kinema_verdicts_total{cluster="c1", verdict="accepted", rule=""}': "0+1x1500",
    'kinema_plans_total{cluster="c1", status="optimal"}': "0+1x1500",
    'kinema_executions_total{cluster="c1", outcome="completed"}': "0+1x1500",
    'kinema_moves_total{cluster="c1", strategy="surge"}': "0+1x1500",
    'kinema_placement_misses_total{cluster="c1"}': "0x1500",
    'kinema_iterations_skipped_total{cluster="c1", reason="reschedule-recent"}': "0+1x1500",
    'kinema_steps_total{cluster="c1", kind="boot", outcome="done"}': "0+1x1500",
    'kinema_event_lag_seconds{cluster="c1", service="decider"}': "1x1500",
    'kinema_events_total{cluster="c1", service="decider", kind="plan-proposed", outcome="answered"}': "0+1x1500",
    # It has handled one old event since it started again; the gauge keeps that value until the next one comes.
    'kinema_event_lag_seconds{cluster="c1", service="predictor"}': "500x1500",
    'kinema_events_total{cluster="c1", service="predictor", kind="iteration-started", outcome="answered"}': "1x1500",
    'kinema_stage_duration_seconds_bucket{cluster="c1", service="decider", le="1"}': "0+1x1500",
    'kinema_stage_duration_seconds_bucket{cluster="c1", service="decider", le="+Inf"}': "0+1x1500",
    'kinema_dead_letters_total{cluster="c1", service="decider", reason="undecodable"}': "0x1500",
    'kinema_loop_lag_seconds{cluster="c1", service="decider"}': "0x1500",
}
IN_TROUBLE: Final = {
    'kinema_build_info{cluster="c1", service="observer"}': "1x1500",
    'kinema_leader{cluster="c1", service="observer"}': "0x1500",
    'kinema_state_age_seconds{cluster="c1", service="rescheduler"}': "300x1500",
    'kinema_blind_kinds{cluster="c1", service="observer"}': "2x1500",
    'kinema_ready_dips_total{cluster="c1", service="observer"}': "0+1x1500",
    'kinema_disrupted_nodes{cluster="c1", service="observer"}': "0x1200 4x300",
    'kinema_cost_usd_per_hour{cluster="c1", figure="before"}': "2x1500",
    'kinema_cost_usd_per_hour{cluster="c1", figure="bound"}': "1x1500",
    'kinema_executions_total{cluster="c1", outcome="aborted"}': "0+1x1500",
    'kinema_steps_total{cluster="c1", kind="boot", outcome="failed"}': "0+1x1500",
    'kinema_event_lag_seconds{cluster="c1", service="decider"}': "500x1500",
    'kinema_events_total{cluster="c1", service="decider", kind="plan-proposed", outcome="answered"}': "0+1x1500",
    'kinema_dead_letters_total{cluster="c1", service="decider", reason="undecodable"}': "0+1x1500",
}


@pytest.mark.prometheus
def test_prometheus_evaluates_every_query(tmp_path: Path) -> None:
    """All alerts fire on a cluster in trouble and none on one that is well, where every panel finds its series."""
    rules, tests = tmp_path / "alerts.json", tmp_path / "tests.json"
    rules.write_text(json.dumps(monitoring.rules()))
    firing = 'group by (alertname) (ALERTS{alertstate="firing"})'
    all_of_them = [(f'{{alertname="{alert.name}"}}', 1) for alert in monitoring.ALERTS]
    panels = [(f"group({query})", [("{}", 1)]) for query in queries()[: -len(monitoring.ALERTS)]]
    cases = [case(WELL, (firing, []), *panels), case(IN_TROUBLE, (firing, all_of_them))]
    tests.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": cases}))
    done = subprocess.run(["promtool", "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def case(series: Mapping[str, str], *expected: tuple[str, Sequence[tuple[str, float]]]) -> Mapping[str, Any]:
    """Return a test of promtool: what expressions give after a day."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": "1470m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in samples],
            }
            for query, samples in expected
        ],
    }
