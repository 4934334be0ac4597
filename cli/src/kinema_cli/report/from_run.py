"""Report data from a recorded run: its events, and the simulated cluster's own history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from kinema_cli.report.audit import ReadyPoint, audit
from kinema_cli.report.data import Headline, ReportData, Sample
from kinema_cli.report.from_plan import boxes_of, facts_of, headline_of
from kinema_cli.report.history import History, ready_series, samples_of
from kinema_cli.report.lives import lives_of, node_spans, pod_spans
from kinema_cli.report.moves import fate_of, machines_of, moves_of
from kinema_cli.report.protocol import rows
from kinema_cli.report.rules import rules_of
from kinema_core.events import (
    EMPTY,
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ExecutionAborted,
    ExecutionCompleted,
    Figures,
    Offer,
    Plan,
    PlanAccepted,
)
from kinema_core.model.cluster import Cluster, evolve

LEAD = timedelta(minutes=5)
"""How much of the time before the first event is shown."""


_MOVES: Final = "moves_"


class RunError(ValueError):
    """The record holds nothing to report on; the text says what is missing."""


@dataclass(frozen=True)
class Execution:
    """An accepted plan; `ended` is None when the record ends before it does."""

    plan: Plan
    accepted: datetime
    ended: datetime | None
    figures: Figures = EMPTY
    """What the execution counted at its end."""

    @property
    def moves(self) -> dict[str, int]:
        """Pods that were moved, by strategy, as counted; as planned while the count is not there yet."""
        counted = {
            name.removeprefix(_MOVES): int(count)
            for name, count in self.figures.items()
            if name.startswith(_MOVES) and not isinstance(count, str)
        }
        return counted if self.ended is not None else dict(headline_of(self.plan).strategies)


def executions_of(log: Sequence[Event]) -> tuple[Execution, ...]:
    """Return accepted plans in order."""
    proposals = {event.id: event.body for event in log if isinstance(event.body, Plan)}
    ends = {
        event.body.plan: (event.time, event.body.figures)
        for event in log
        if isinstance(event.body, ExecutionCompleted | ExecutionAborted)
    }
    found = []
    for event in log:
        if isinstance(event.body, PlanAccepted) and event.body.plan in proposals:
            ended, figures = ends.get(event.body.plan, (None, EMPTY))
            found.append(Execution(proposals[event.body.plan], event.time, ended, figures))
    return tuple(found)


def run_report(state: Sequence[Event], log: Sequence[Event], history: History, *, title: str) -> ReportData:
    """Return everything that a recorded run can show.

    Raises:
        RunError: no event, or no history.
    """
    if not state or not log:
        raise RunError("the recording holds no events of the cluster's state, or none of the log")
    start = min(state[0].time, log[0].time) - LEAD
    samples = samples_of(history, start)
    if not samples:
        raise RunError(f"the history holds nothing since {start}: it belongs to another run")
    start += timedelta(seconds=samples[0].at)
    samples = tuple(replace(sample, at=sample.at - samples[0].at) for sample in samples)
    executions = executions_of(log)
    data = _with_record(state, log, samples, start, title)
    if not executions:
        return data
    return _with_plans(data, state, log, executions, start)


def _with_record(
    state: Sequence[Event], log: Sequence[Event], samples: tuple[Sample, ...], start: datetime, title: str
) -> ReportData:
    """Return what a record shows, with or without a plan in it."""
    first, last = samples[0], samples[-1]
    return ReportData(
        title=title,
        subtitle=f"Cluster {log[0].cluster}, {lasting(last.at)} of cluster time from {start:%Y-%m-%d %H:%M:%S} UTC",
        headline=Headline(
            nodes_before=sum(first.machines.values()),
            nodes_after=sum(last.machines.values()),
            usd_before=first.usd_per_hour,
            usd_after=last.usd_per_hour,
            lower_bound=None,
            gap=None,
            status="no plan was executed",
            moves=0,
            restarts=0,
        ),
        samples=samples,
        events=rows(log, start),
        facts=(("events", f"{len(log)} of the log, {len(state)} of the cluster's state"),),
    )


def _with_plans(
    data: ReportData, state: Sequence[Event], log: Sequence[Event], executions: Sequence[Execution], start: datetime
) -> ReportData:
    """Add what was planned and executed; the plan that saves most is drawn."""
    end = data.samples[-1].at
    window = (
        (executions[0].accepted - start).total_seconds(),
        max(end if item.ended is None else (item.ended - start).total_seconds() for item in executions),
    )
    plan = max((item.plan for item in executions), key=lambda plan: plan.cost.before - plan.cost.after)
    cluster = cluster_at(state, plan.base_version)
    before, after = boxes_of(plan, cluster, offers_in(log))
    lives = lives_of(state, start)
    series = ready_series(data.samples, autoscaled(state, start), start=window[0])
    return replace(
        data,
        samples=_asked_for(data.samples, series, window[0]),
        headline=_headline(data, executions, plan, window),
        before=before,
        after=after,
        node_spans=node_spans(lives, *window),
        pod_spans=pod_spans(lives, *window),
        audit=audit(series, _strategies(state, executions), start=window[0], end=window[1]),
        window=window,
        rules=rules_of(plan, cluster),
        machines=machines_of(plan),
        moves=moves_of(plan, cluster),
        unplaced=tuple((item.pod, item.code, item.reason) for item in plan.unplaced),
        quarantined=tuple((item.object, item.path, item.reason) for item in plan.quarantined),
        facts=(*facts_of(plan, cluster), *data.facts),
    )


def _headline(data: ReportData, executions: Sequence[Execution], plan: Plan, window: tuple[float, float]) -> Headline:
    """Return nodes and cost as they were when the first plan began and as they are at the end; moves of all plans."""
    at_start = [sample for sample in data.samples if sample.at <= window[0]] or [data.samples[0]]
    strategies: dict[str, int] = {}
    for item in executions:
        for name, count in item.moves.items():
            strategies[name] = strategies.get(name, 0) + count
    restarts = sum(item.plan.restarts for item in executions)
    return replace(
        headline_of(plan),
        nodes_before=sum(at_start[-1].machines.values()),
        nodes_after=data.headline.nodes_after,
        usd_before=at_start[-1].usd_per_hour,
        usd_after=data.headline.usd_after,
        moves=sum(strategies.values()) - min(restarts, strategies.get("rolling", 0)),
        restarts=restarts,
        strategies=strategies,
    )


def _asked_for(
    samples: Sequence[Sample], series: Mapping[str, Sequence[ReadyPoint]], since: float
) -> tuple[Sample, ...]:
    """Return the samples with what the owners ask for in place of `spec.replicas`, from the first plan on."""
    asked = {(name, point.at): point.replicas for name, points in series.items() for point in points}
    return tuple(
        sample
        if sample.at < since
        else replace(
            sample,
            workloads={
                name: replace(count, desired=asked[name, sample.at]) for name, count in sample.workloads.items()
            },
        )
        for sample in samples
    )


def _strategies(state: Sequence[Event], executions: Sequence[Execution]) -> dict[str, str]:
    """Return how workloads were moved by all plans; of two ways the one with the higher floor."""
    found: dict[str, str] = {}
    for item in executions:
        for workload, strategy in strategies_of(item.plan, cluster_at(state, item.plan.base_version)).items():
            found[workload] = strategy if found.get(workload, "evict") == "evict" else found[workload]
    return found


def strategies_of(plan: Plan, cluster: Cluster) -> dict[str, str]:
    """Return how the plan moves each workload's pods; of two ways the one with the higher floor."""
    found: dict[str, str] = {}
    for placement in plan.placements:
        pod = cluster.pod(placement.pod)
        workload = None if pod is None else cluster.controller_of(pod)
        if workload is None or fate_of(placement) not in ("move", "restart"):
            continue
        if found.get(workload.key, "evict") == "evict":
            found[workload.key] = placement.strategy
    return found


def autoscaled(state: Sequence[Event], start: datetime) -> Mapping[str, list[tuple[float, int]]]:
    """Return what each autoscaler asked for over time, by the workload that it scales."""
    asked: dict[str, list[tuple[float, int]]] = {}
    for at, cluster in _clusters(state, start):
        for scaler in cluster.autoscalers:
            key = f"{scaler.target_kind}/{scaler.namespace}/{scaler.target_name}"
            points = asked.setdefault(key, [])
            if scaler.desired > 0 and (not points or points[-1][1] != scaler.desired):
                points.append((at, scaler.desired))
    return asked


def _clusters(state: Sequence[Event], start: datetime) -> list[tuple[float, Cluster]]:
    """Return the cluster after each state event."""
    cluster, found = Cluster(), []
    for event in state:
        if isinstance(event.body, ClusterSnapshot | ClusterDelta) and event.body.version > cluster.version:
            cluster = evolve(cluster, event.body)
            found.append(((event.time - start).total_seconds(), cluster))
    return found


def cluster_at(state: Sequence[Event], version: int) -> Cluster:
    """Return the cluster at a version; the nearest earlier one when the record does not hold it."""
    cluster = Cluster()
    for event in state:
        if isinstance(event.body, ClusterSnapshot | ClusterDelta) and cluster.version < event.body.version <= version:
            cluster = evolve(cluster, event.body)
    return cluster


def offers_in(log: Sequence[Event]) -> tuple[Offer, ...]:
    """Return every offer that was published, the newest of each name."""
    offers: dict[str, Offer] = {}
    for event in log:
        if isinstance(event.body, CatalogPublished):
            offers.update({offer.name: offer for offer in event.body.offers})
    return tuple(offers.values())


def lasting(seconds: float) -> str:
    """Return a length of time in minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
