"""Report data from a recorded run: its events, and the simulated cluster's own history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kinema_cli.report.audit import ReadyPoint, audit
from kinema_cli.report.data import Headline, Life, Replicas, ReportData, Sample
from kinema_cli.report.from_plan import fates_of, headline_of, plan_report
from kinema_cli.report.protocol import rows
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
from kinema_core.model.catalog import machine_of
from kinema_core.model.cluster import Cluster, evolve
from kinema_core.model.daemons import is_resident

LEAD = timedelta(minutes=5)
"""Time before the first event that is shown."""
_MOVES: Final = "moves_"


class HistoryError(ValueError):
    """The text is no such record; says where it is not."""


class History(msgspec.Struct, frozen=True):
    """The whole record, in order of time."""

    samples: tuple[Sample, ...]


def read_history(data: bytes) -> History:
    """Decode the record; raises HistoryError."""
    try:
        return msgspec.json.decode(data, type=History)
    except msgspec.DecodeError as error:
        raise HistoryError(f"this is no history of the simulated cluster: {error}") from error


def samples_of(history: History, start: datetime) -> tuple[Sample, ...]:
    """Return what the plots show, from `start` on; daemon sets are left out, as their replicas are the nodes'."""
    return tuple(
        msgspec.structs.replace(
            item,
            at=(item.time - start).total_seconds(),
            workloads={
                name.replace(" ", "/", 1): count
                for name, count in item.workloads.items()
                if not name.startswith("DaemonSet ")
            },
        )
        for item in history.samples
        if item.time >= start
    )


def ready_series(
    samples: Sequence[Sample], scaled: Mapping[str, Sequence[tuple[float, int]]], *, start: float
) -> dict[str, list[ReadyPoint]]:
    """Return points for the audit: ready pods against the replicas that the owner asked for.

    Neither what a surge adds to `spec.replicas` nor what another client takes off is a demand of the owner. So the
    replicas at `start`, when the plan begins, count throughout. Only an autoscaler may lower them.

    Args:
        samples: The record in order of time.
        scaled: For each workload with an autoscaler, what that asked for: (at, replicas) in order of time.
        start: When the execution began, in the samples' seconds.
    """
    series: dict[str, list[ReadyPoint]] = {}
    for name in sorted({name for sample in samples for name in sample.workloads}):
        known = [(sample.at, sample.workloads[name]) for sample in samples if name in sample.workloads]
        before = [count.desired for at, count in known if at <= start]
        asked = before[-1] if before else known[0][1].desired
        series[name] = [
            ReadyPoint(at=at, replicas=min(asked, _asked_at(scaled.get(name, ()), at, asked)), ready=count.ready)
            for at, count in known
        ]
    return series


def _asked_at(scaled: Sequence[tuple[float, int]], at: float, otherwise: int) -> int:
    """Return what an autoscaler asked for at a moment."""
    earlier = [replicas for since, replicas in scaled if since <= at]
    return earlier[-1] if earlier else otherwise


@dataclass
class Lives:
    """Lives by uid."""

    pods: dict[str, Life] = field(default_factory=dict)
    nodes: dict[str, Life] = field(default_factory=dict)


def lives_of(state: Iterable[Event], start: datetime) -> Lives:
    """Fold recorded STATE events into lives; times count from `start`."""
    lives = Lives()
    first = True
    for time, cluster in clusters(state):
        at = (time - start).total_seconds()
        _see_pods(lives.pods, cluster, at=at, first=first)
        _see_nodes(lives.nodes, cluster, at=at, first=first)
        first = False
    return lives


def _see_pods(lives: dict[str, Life], cluster: Cluster, *, at: float, first: bool) -> None:
    for pod in cluster.pods:
        if is_resident(cluster, pod):
            continue
        life = lives.get(pod.uid)
        if life is None:
            workload = cluster.controller_of(pod)
            of = workload.key if workload is not None else f"Pod/{pod.key}"
            life = lives[pod.uid] = Life(name=pod.name, of=of, node="", created=-1.0 if first else at)
        life.node = pod.node or life.node
        if pod.ready and life.ready is None:
            life.ready = life.created if first else at
        if pod.terminating and life.leaving is None:
            life.leaving = at
    _end(lives, cluster.pods_by_uid, at)


def _see_nodes(lives: dict[str, Life], cluster: Cluster, *, at: float, first: bool) -> None:
    for node in cluster.nodes:
        life = lives.get(node.uid)
        if life is None:
            created = -1.0 if first else at
            life = lives[node.uid] = Life(name=node.name, of=machine_of(node)[0], node=node.name, created=created)
        if node.ready and life.ready is None:
            life.ready = life.created if first else at
    _end(lives, {node.uid for node in cluster.nodes}, at)


def _end(lives: dict[str, Life], alive: Iterable[str], at: float) -> None:
    present = set(alive)
    for uid, life in lives.items():
        if life.gone is None and uid not in present:
            life.gone = at
            life.leaving = at if life.leaving is None else life.leaving


def touched(lives: dict[str, Life], since: float, until: float) -> tuple[Life, ...]:
    """Return the lives that began or were asked to end between `since` and `until`, by workload or machine type."""
    chosen = [
        replace(life, role="new" if life.created >= since else "old")
        for life in lives.values()
        if since <= life.created <= until or (life.leaving is not None and since <= life.leaving <= until)
    ]
    return tuple(sorted(chosen, key=lambda life: (life.of, life.created, life.name)))


class RunError(ValueError):
    """The record holds nothing to report on; the text says what is missing."""


@dataclass(frozen=True)
class Execution:
    """An accepted plan; `ended` is None when the record ends before it does."""

    plan: Plan
    accepted: datetime
    ended: datetime | None
    figures: Figures = EMPTY
    """Figures that the execution counted at its end."""

    @property
    def moves(self) -> dict[str, int]:
        """Pods that were moved, by strategy, as counted; as planned while the count is not there yet."""
        counted = {
            name.removeprefix(_MOVES): int(count)
            for name, count in self.figures.items()
            if name.startswith(_MOVES) and not isinstance(count, str)
        }
        return counted if self.ended is not None else dict(headline_of(self.plan, Cluster()).strategies)


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
    samples = tuple(msgspec.structs.replace(sample, at=sample.at - samples[0].at) for sample in samples)
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
    lives = lives_of(state, start)
    series = ready_series(data.samples, autoscaled(state, start), start=window[0])
    drawn = plan_report(plan, cluster, offers_in(log), title=data.title, subtitle=data.subtitle)
    return replace(
        drawn,
        samples=_asked_for(data.samples, series, window[0]),
        headline=_headline(data, executions, drawn.headline, window),
        node_lives=touched(lives.nodes, *window),
        pod_lives=touched(lives.pods, *window),
        audit=audit(series, _strategies(state, executions), start=window[0], end=window[1]),
        window=window,
        events=data.events,
        facts=(*drawn.facts, *data.facts),
    )


def _headline(
    data: ReportData, executions: Sequence[Execution], drawn: Headline, window: tuple[float, float]
) -> Headline:
    """Return nodes and cost as they were when the first plan began and as they are at the end; moves of all plans."""
    at_start = [sample for sample in data.samples if sample.at <= window[0]] or [data.samples[0]]
    strategies = Counter[str]()
    for item in executions:
        strategies.update(item.moves)
    restarts = sum(item.plan.restarts for item in executions)
    return replace(
        drawn,
        nodes_before=sum(at_start[-1].machines.values()),
        nodes_after=data.headline.nodes_after,
        usd_before=at_start[-1].usd_per_hour,
        usd_after=data.headline.usd_after,
        moves=sum(strategies.values()) - min(restarts, strategies["rolling"]),
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
        else msgspec.structs.replace(
            sample,
            workloads={name: Replicas(asked[name, sample.at], count.ready) for name, count in sample.workloads.items()},
        )
        for sample in samples
    )


def _strategies(state: Sequence[Event], executions: Sequence[Execution]) -> dict[str, str]:
    """Return how workloads were moved by all plans; of two ways the one with the higher floor."""
    found: dict[str, str] = {}
    for item in executions:
        cluster = cluster_at(state, item.plan.base_version)
        fates = fates_of(item.plan, cluster)
        for placement in item.plan.placements:
            pod = cluster.pod(placement.pod)
            workload = None if pod is None else cluster.controller_of(pod)
            if workload is None or fates[placement.pod] not in ("move", "restart"):
                continue
            if found.get(workload.key, "evict") == "evict":
                found[workload.key] = placement.strategy
    return found


def autoscaled(state: Sequence[Event], start: datetime) -> Mapping[str, list[tuple[float, int]]]:
    """Return what each autoscaler asked for over time, by the workload that it scales."""
    asked: dict[str, list[tuple[float, int]]] = {}
    for time, cluster in clusters(state):
        for scaler in cluster.autoscalers:
            key = f"{scaler.target_kind}/{scaler.namespace}/{scaler.target_name}"
            points = asked.setdefault(key, [])
            if scaler.desired > 0 and (not points or points[-1][1] != scaler.desired):
                points.append(((time - start).total_seconds(), scaler.desired))
    return asked


def clusters(state: Iterable[Event]) -> Iterator[tuple[datetime, Cluster]]:
    """Yield the time of each state event, and the cluster after it."""
    cluster = Cluster()
    for event in state:
        if isinstance(event.body, ClusterSnapshot | ClusterDelta) and event.body.version > cluster.version:
            cluster = evolve(cluster, event.body)
            yield event.time, cluster


def cluster_at(state: Iterable[Event], version: int) -> Cluster:
    """Return the cluster at a version; the nearest earlier one when the record does not hold it."""
    found = Cluster()
    for _, cluster in clusters(state):
        if cluster.version > version:
            break
        found = cluster
    return found


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
