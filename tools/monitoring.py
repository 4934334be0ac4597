"""Write dashboards, alerts and their runbook page, or check that they are up to date.

    python tools/monitoring.py            write them
    python tools/monitoring.py --check    exit 1 when one is not what would be written

A panel is a title and queries, an alert a query with its meaning and what to do about it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

# As a script this file finds its neighbors, in a test it is part of a package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.event_catalog import write_or_check

_ROOT: Final = Path(__file__).resolve().parent.parent
FILES: Final = _ROOT / "charts" / "kinema-monitoring" / "files"
RUNBOOKS: Final = _ROOT / "docs" / "alerts.md"
_URL: Final = "https://github.com/kinema/kinema/blob/main/docs/alerts.md#"
_COLUMNS: Final = 24
_HEIGHT: Final = 8
_COUNT: Final = "short"
"""Grafana's unit of plain numbers."""
_SCHEMA_VERSION: Final = 39
"""Of Grafana 10 and newer."""


class Panel(NamedTuple):
    """Drawing of queries, by their legend; `CLUSTER` stands for the choice of the cluster."""

    title: str
    unit: str
    queries: Mapping[str, str]


class Alert(NamedTuple):
    """Condition that a person must know of, and the page on it."""

    name: str
    query: str
    minutes: int
    severity: str
    summary: str
    meaning: str
    action: str


DASHBOARDS: Final[Mapping[str, Sequence[Panel]]] = {
    "money": (
        Panel(
            "Cost of the nodes",
            "currencyUSD",
            {
                "{{cluster}} now": "max by (cluster) (kinema_cluster_cost_usd_per_hour{CLUSTER})",
                "{{cluster}} by the plan": 'max by (cluster) (kinema_cost_usd_per_hour{CLUSTER, figure="after"})',
                "{{cluster}} lower bound": 'max by (cluster) (kinema_cost_usd_per_hour{CLUSTER, figure="bound"})',
            },
        ),
        Panel(
            "Saving of the newest plan and of the newest execution, per hour",
            "currencyUSD",
            {"{{cluster}} {{figure}}": "max by (cluster, figure) (kinema_saving_usd_per_hour{CLUSTER})"},
        ),
        Panel(
            "Distance from the lower bound",
            "percentunit",
            {"{{cluster}}": "max by (cluster) (kinema_plan_gap_ratio{CLUSTER})"},
        ),
        Panel(
            "Requests that recommendations would free",
            "percentunit",
            {
                "{{cluster}} CPU": '1 - max by (cluster) (kinema_cpu_requests_cores{CLUSTER, figure="recommended"}) '
                '/ max by (cluster) (kinema_cpu_requests_cores{CLUSTER, figure="requested"})',
                "{{cluster}} memory": "1 - max by (cluster) "
                '(kinema_memory_requests_bytes{CLUSTER, figure="recommended"}) '
                '/ max by (cluster) (kinema_memory_requests_bytes{CLUSTER, figure="requested"})',
            },
        ),
        Panel(
            "Usage above the need that was judged, a day",
            "percentunit",
            {
                "{{cluster}} {{resource}}": "sum by (cluster, resource) "
                '(increase(kinema_judged_steps_total{CLUSTER, band="above"}[1d])) '
                "/ sum by (cluster, resource) (increase(kinema_judged_steps_total{CLUSTER}[1d]))"
            },
        ),
        Panel(
            "Nodes booted, deleted and kept, a day",
            _COUNT,
            {"{{change}}": "sum by (change) (increase(kinema_nodes_total{CLUSTER}[1d]))"},
        ),
    ),
    "work": (
        Panel(
            "Iterations, an hour",
            _COUNT,
            {"{{mode}}": "sum by (mode) (increase(kinema_iterations_total{CLUSTER}[1h]))"},
        ),
        Panel(
            "Moves of the newest plan",
            _COUNT,
            {"{{cluster}}": "max by (cluster) (kinema_plan_moves{CLUSTER})"},
        ),
        Panel(
            "Time of the search for the newest plan",
            "s",
            {"{{cluster}}": "max by (cluster) (kinema_solve_seconds{CLUSTER})"},
        ),
        Panel(
            "Verdicts, an hour",
            _COUNT,
            {"{{verdict}} {{rule}}": "sum by (verdict, rule) (increase(kinema_verdicts_total{CLUSTER}[1h]))"},
        ),
        Panel(
            "Plans by status, an hour",
            _COUNT,
            {"{{status}}": "sum by (status) (increase(kinema_plans_total{CLUSTER}[1h]))"},
        ),
        Panel(
            "Executions, an hour",
            _COUNT,
            {"{{outcome}}": "sum by (outcome) (increase(kinema_executions_total{CLUSTER}[1h]))"},
        ),
        Panel(
            "Pods moved, an hour",
            _COUNT,
            {
                "{{strategy}}": "sum by (strategy) (increase(kinema_moves_total{CLUSTER}[1h]))",
                "not on their planned node": "sum(increase(kinema_placement_misses_total{CLUSTER}[1h]))",
                "workloads left where they were": "sum(increase(kinema_workloads_skipped_total{CLUSTER}[1h]))",
            },
        ),
        Panel(
            "Reasons not to begin, an hour",
            _COUNT,
            {"{{reason}}": "sum by (reason) (increase(kinema_iterations_skipped_total{CLUSTER}[1h]))"},
        ),
        Panel(
            "Steps by outcome, an hour",
            _COUNT,
            {"{{kind}} {{outcome}}": "sum by (kind, outcome) (increase(kinema_steps_total{CLUSTER}[1h]))"},
        ),
    ),
    "health": (
        Panel(
            "Workloads with too few Ready pods",
            _COUNT,
            {
                "{{cluster}}": "max by (cluster) (kinema_workloads_unready{CLUSTER})",
                "{{cluster}} fell so during a plan, an hour": "sum by (cluster) "
                "(increase(kinema_ready_dips_total{CLUSTER}[1h]))",
            },
        ),
        Panel(
            "Age of the cluster state",
            "s",
            {"{{cluster}} {{service}}": "max by (cluster, service) (kinema_state_age_seconds{CLUSTER})"},
        ),
        Panel(
            "Age of the API server's last word, oldest five kinds",
            "s",
            {"{{cluster}} {{kind}}": "topk(5, max by (cluster, kind) (kinema_kind_age_seconds{CLUSTER}))"},
        ),
        Panel(
            "Requests to the API server, per second",
            _COUNT,
            {
                "{{service}} {{verb}} {{code}}": "sum by (service, verb, code) "
                "(rate(kinema_api_requests_total{CLUSTER}[5m]))"
            },
        ),
        Panel(
            "Processes that lead",
            _COUNT,
            {"{{cluster}} {{service}}": "sum by (cluster, service) (kinema_leader{CLUSTER})"},
        ),
        Panel("Closed nodes", _COUNT, {"{{cluster}}": "max by (cluster) (kinema_disrupted_nodes{CLUSTER})"}),
        Panel(
            "Kinds of objects that cannot be seen",
            _COUNT,
            {"{{cluster}}": "max by (cluster) (kinema_blind_kinds{CLUSTER})"},
        ),
        Panel(
            "Age of events when handled",
            "s",
            {
                "{{cluster}} {{service}}": "max by (cluster, service) (kinema_event_lag_seconds{CLUSTER}) "
                "and sum by (cluster, service) (increase(kinema_events_total{CLUSTER}[5m])) > 0"
            },
        ),
        Panel(
            "Events that wait for a service",
            _COUNT,
            {"{{cluster}} {{service}}": "max by (cluster, service) (kinema_pending_events{CLUSTER})"},
        ),
        Panel(
            "Time of handling, 95th percentile",
            "s",
            {
                "{{service}}": "histogram_quantile(0.95, "
                "sum by (service, le) (rate(kinema_stage_duration_seconds_bucket{CLUSTER}[15m])))"
            },
        ),
        Panel(
            "Dead letters, an hour",
            _COUNT,
            {"{{service}} {{reason}}": "sum by (service, reason) (increase(kinema_dead_letters_total{CLUSTER}[1h]))"},
        ),
        Panel(
            "Lag of the event loop",
            "s",
            {"{{cluster}} {{service}}": "max by (cluster, service) (kinema_loop_lag_seconds{CLUSTER})"},
        ),
    ),
}
"""Dashboards by name: what is saved, what is done, and whether all is well."""

ALERTS: Final = (
    Alert(
        "KinemaServiceAbsent",
        "count by (cluster) (count by (cluster, service) (kinema_build_info)) < 5 or absent(kinema_build_info)",
        15,
        "warning",
        "Fewer than five services of Kinema report metrics",
        "A service is not running, cannot be scraped, or was never installed. No plan begins without all five.",
        "`kubectl get pods -l app.kubernetes.io/part-of=kinema`; a pod that is not ready states why on `/readyz`.",
    ),
    Alert(
        "KinemaNoLeader",
        "sum by (cluster, service) (kinema_leader) == 0",
        5,
        "warning",
        "No process of {{ $labels.service }} holds its lease",
        "Nothing is observed or executed. The broker is away, or its bucket of leases is missing.",
        "Read `/readyz` of the service; check the broker with `kinema doctor`.",
    ),
    Alert(
        "KinemaStateOld",
        "max by (cluster, service) (kinema_state_age_seconds) > 60",
        5,
        "warning",
        "The cluster state that {{ $labels.service }} knows is {{ $value | humanizeDuration }} old",
        "The observer is down, or cannot reach the API server or the broker. Nothing is decided on an old state; nodes "
        "that a plan has closed stay closed for that time.",
        "Read the observer's `/readyz` and log.",
    ),
    Alert(
        "KinemaBlind",
        "max by (cluster) (kinema_blind_kinds) > 0",
        15,
        "warning",
        "The observer cannot see {{ $value }} kinds of objects",
        "A right is missing, or the API server does not serve a kind. No iteration begins.",
        "`/readyz` of the observer names the kinds; `kinema doctor --service-account-namespace NAMESPACE` the rights.",
    ),
    Alert(
        "KinemaNodesClosedLong",
        "min_over_time((max by (cluster) (kinema_disrupted_nodes))[4h:1m]) > 0",
        0,
        "warning",
        "Nodes have been closed for four hours",
        "A plan does not end: it waits for pods, for a provider, or for a service that is away. Or an aborted plan "
        "left marks behind.",
        "`kinema status` shows what the plan waits for; `kinema abort` opens the nodes. See "
        "[after an abort](controls.md#after-an-abort).",
    ),
    Alert(
        "KinemaReadyDips",
        "sum by (cluster) (increase(kinema_ready_dips_total[1h])) > 0",
        0,
        "warning",
        "{{ $value }} workloads fell below their replicas while a plan was executed",
        "Pods became unready during a plan, whatever the cause: a crash, a node that was lost, or a defect of Kinema.",
        "`kinema explain plan/latest` shows what was moved and when; `kubectl describe` the workload's Events. "
        "If you suspect Kinema, `kinema pause` and [record the streams](replay.md).",
    ),
    Alert(
        "KinemaExecutionsAborted",
        'sum by (cluster) (increase(kinema_executions_total{outcome="aborted"}[6h])) >= 3',
        0,
        "warning",
        "{{ $value }} executions were aborted within six hours",
        "Plans begin and cannot end: a quota, an admission rule, nodes that do not boot.",
        "`kinema plans` shows the reason of each; [troubleshooting](troubleshooting.md) what to do about it.",
    ),
    Alert(
        "KinemaStepsFail",
        'sum by (cluster, kind) (increase(kinema_steps_total{outcome="failed"}[1h])) > 20',
        0,
        "warning",
        "Steps of kind {{ $labels.kind }} failed {{ $value }} times within an hour",
        "The API server or the provider refuses what Kinema asks for.",
        "`kinema explain plan/latest` names the step and the answer.",
    ),
    Alert(
        "KinemaDeadLetters",
        "sum by (cluster, service, reason) (increase(kinema_dead_letters_total[1h])) > 0",
        0,
        "warning",
        "{{ $labels.service }} dropped events: {{ $labels.reason }}",
        "A message was no event of this version, or a service failed on it several times.",
        "Read the message in `KINEMA_DLQ` ([dead letters](broker.md#dead-letters)); `handler-failed` is a defect.",
    ),
    Alert(
        "KinemaLagging",
        "max by (cluster, service) (kinema_event_lag_seconds) > 120 "
        "and sum by (cluster, service) (increase(kinema_events_total[10m])) > 0",
        15,
        "info",
        "{{ $labels.service }} handles events {{ $value | humanizeDuration }} after they were published",
        "The service is slower than the events come. One that catches up after it was down is slow for that time only.",
        "Compare the time of handling with `planning.time_limit_seconds`; give the service more CPU.",
    ),
    Alert(
        "KinemaSavesNothing",
        'sum by (cluster) (kinema_cost_usd_per_hour{figure="before"}) '
        '> 1.2 * sum by (cluster) (kinema_cost_usd_per_hour{figure="bound"}) '
        'unless on (cluster) sum by (cluster) (increase(kinema_executions_total{outcome="completed"}[1d])) > 0',
        1440,
        "info",
        "The nodes cost a fifth more than the lower bound, and no plan was executed for a day",
        "Plans are rejected, wait for approval, or do not begin.",
        "`kinema status` names the rule that rejects, or the reason why no iteration begins.",
    ),
)
"""Alerts on conditions that a person must mend; what Kinema mends itself is none."""


def rules() -> Mapping[str, Any]:
    """Return the alerts as Prometheus takes them, in a file as in a PrometheusRule."""
    found = [
        {
            "alert": one.name,
            "expr": one.query,
            **({"for": f"{one.minutes}m"} if one.minutes else {}),
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.summary, "runbook_url": _URL + one.name.lower()},
        }
        for one in ALERTS
    ]
    return {"groups": [{"name": "kinema", "rules": found}]}


def dashboard(name: str) -> Mapping[str, Any]:
    """Return a dashboard as Grafana imports it."""
    variable = {
        "name": "cluster",
        "type": "query",
        "datasource": _datasource(),
        "query": {"query": "label_values(kinema_build_info, cluster)", "refId": "cluster"},
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"kinema-{name}",
        "title": f"Kinema: {name}",
        "tags": ["kinema"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [source, variable]},
        "panels": [_panel(number, one) for number, one in enumerate(DASHBOARDS[name])],
    }


def _panel(number: int, panel: Panel) -> Mapping[str, Any]:
    width = _COLUMNS // 2
    # A value holds until the next one; a cost may be below zero, and counts are whole in spite of `increase`.
    defaults: dict[str, Any] = {"unit": panel.unit, "custom": {"axisSoftMin": 0, "lineInterpolation": "stepAfter"}}
    if panel.unit == _COUNT:
        defaults["decimals"] = 0
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _datasource(),
        "gridPos": {"x": number % 2 * width, "y": number // 2 * _HEIGHT, "w": width, "h": _HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + index), "expr": of_clusters(query), "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def of_clusters(query: str, cluster: str = "$cluster") -> str:
    """Return a panel's query for the chosen clusters."""
    return query.replace("CLUSTER", f'cluster=~"{cluster}"')


def _datasource() -> Mapping[str, str]:
    return {"type": "prometheus", "uid": "${datasource}"}


def runbooks() -> str:
    """Return the page on the alerts."""
    return "\n".join(_runbook_lines()) + "\n"


def _runbook_lines() -> Iterator[str]:
    yield from ("# Alerts", "", "<!-- Written by tools/monitoring.py. -->", "")
    yield "The chart `kinema-monitoring` installs these alerts and three dashboards (money, work, health)."
    for one in ALERTS:
        after = f" for {one.minutes} minutes" if one.minutes else ""
        yield from ("", f"## {one.name}", "", f"Severity `{one.severity}`. {one.meaning}", "", one.action, "")
        yield from ("```", one.query, "```", "", f"The alert fires when this has a result{after}.")


def files() -> Iterator[tuple[Path, str]]:
    """Return every file with its content."""
    yield FILES / "alerts.json", _json(rules())
    for name in DASHBOARDS:
        yield FILES / "dashboards" / f"{name}.json", _json(dashboard(name))
    yield RUNBOOKS, runbooks()


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with `--check` say whether they are up to date."""
    for path, _ in (found := list(files())):
        path.parent.mkdir(parents=True, exist_ok=True)
    return max(write_or_check(path, text, arguments, "monitoring.py") for path, text in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
