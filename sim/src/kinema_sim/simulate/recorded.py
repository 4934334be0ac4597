"""A recorded cluster as a scenario: what would another policy have done with it?

The nodes and pods of its first state are the beginning. Replicas that owners asked for, usage, pods of Jobs, and what
others did to nodes (a node that is lost, a cordon, an offer that is sold out) follow as recorded. What the recorded
policy did is left out: nodes that it added or emptied first, and replicas that Kinema lent for a move.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from pathlib import Path
from struct import unpack
from typing import Final, NamedTuple, cast

import msgspec

from kinema_core.events import (
    Amounts,
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    DisruptionBudget,
    Event,
    Node,
    Offer,
    Pod,
    StepFailed,
    StepStarted,
    StepSucceeded,
    UsageCompacted,
    UsageResampled,
    Workload,
)
from kinema_core.model.catalog import machine_of, node_prices, unpriced_nodes, unpriced_remedy, unpriced_text
from kinema_core.model.cluster import Cluster, StateGapError, difference, evolve
from kinema_core.model.match import selector_matches, taint_text
from kinema_core.model.usage import QUANTITIES, UNITS, amount_of, codes_of
from kinema_core.model.vocabulary import FOREIGN_DELETION_TAINTS, HELD, KINEMA_PREFIX, ROLLED
from kinema_sim.scenarios.placement import placement_spec
from kinema_sim.simulate import scenario as parts
from kinema_sim.simulate.scenario import Loaded, Scenario, ScenarioError, load_scenario

_OWNERS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
_STOCK_OUT_MS: Final = 300_000
"""Time for which an offer counts as sold out after a refusal."""
_SHORTEST_MS: Final = 60_000
_OWN_LABELS: Final = re.compile(
    r"kubernetes\.io/(hostname|os|arch)|beta\.kubernetes\.io/.*|topology\.kubernetes\.io/.*"
    r"|failure-domain\.beta\.kubernetes\.io/.*|node\.kubernetes\.io/instance-type|kinema\.io/.*"
)
"""Labels that the simulated cloud sets itself, and Kinema's marks."""


class _Demand(NamedTuple):
    """Replicas from a moment on."""

    ms: int
    replicas: int


class _Span(NamedTuple):
    """Something that held for a while; `end` None: until the end."""

    start: int
    end: int | None
    what: str


@dataclass
class _Guest:
    """A pod that no workload replaces, for as long as it ran."""

    pod: Pod
    at: int
    runs: int | None = None
    gone: int | None = None


@dataclass
class _Course:
    """Everything of a recording that becomes part of the scenario; times in milliseconds since its first state."""

    start: datetime
    end_ms: int = 0
    first: Cluster | None = None
    cluster: Cluster = field(default_factory=Cluster)
    demands: dict[str, list[_Demand]] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)
    samples: dict[str, Pod] = field(default_factory=dict)
    """A pod of each workload: what its template does not state."""
    budgets: dict[str, DisruptionBudget] = field(default_factory=dict)
    guests: dict[str, _Guest] = field(default_factory=dict)
    lent: dict[str, int] = field(default_factory=dict)
    """Workload → replicas that Kinema set for a move."""
    deleted: set[str] = field(default_factory=set)
    """Nodes that Kinema deleted."""
    lost: list[tuple[str, int]] = field(default_factory=list)
    cordons: list[_Span] = field(default_factory=list)
    cordoned: dict[str, int] = field(default_factory=dict)
    sold_out: list[_Span] = field(default_factory=list)
    offers: tuple[Offer, ...] | None = None

    def at(self, moment: datetime) -> int:
        return max(0, round((moment - self.start).total_seconds() * 1000))

    # --- the log

    def note(self, event: Event) -> None:
        """Take note of an event of the log."""
        body, now = event.body, self.at(event.time)
        self.end_ms = max(self.end_ms, now)
        if isinstance(body, CatalogPublished) and self.offers is None:
            self.offers = body.offers
        elif isinstance(body, StepStarted) and body.step.kind == "surge-up":
            self.lent[body.step.target] = body.step.replicas_to
        elif isinstance(body, StepStarted) and body.step.kind == "delete":
            self.deleted.add(body.step.target)
        elif isinstance(body, StepSucceeded):
            kind, _, target = body.step.partition("/")
            if kind == "surge-down":
                self._returned(target.rpartition("/")[0], body, now)
        elif isinstance(body, StepFailed) and body.reason == "stock-out" and "offer" in body.figures:
            self.sold_out.append(_Span(now, now + _STOCK_OUT_MS, str(body.figures["offer"])))

    def _returned(self, workload: str, body: StepSucceeded, now: int) -> None:
        """What was lent is taken back; its owner asks for as many as the step says."""
        self.lent.pop(workload, None)
        asked = body.figures.get("replicas")
        if isinstance(asked, int) and workload in self.demands:
            self._demand(workload, now, asked)

    # --- the state

    def see(self, event: Event) -> None:
        """Take note of a snapshot or a delta."""
        body, now = event.body, self.at(event.time)
        self.end_ms = max(self.end_ms, now)
        assert isinstance(body, ClusterSnapshot | ClusterDelta)
        try:
            after = evolve(self.cluster, body)
        except StateGapError:
            return  # the next snapshot shows what came of it
        before, self.cluster = self.cluster, after
        if self.first is None:
            self.first = after
        upserts, deletes = (
            difference(before, after) if isinstance(body, ClusterSnapshot) else (body.upserts, body.deletes)
        )
        for gone in deletes:
            self._end(gone.kind, gone.key, before, now)
        for item in upserts:
            self._appear(item, now)

    def _appear(self, item: object, now: int) -> None:
        if isinstance(item, Workload):
            if _asks(item, self.cluster):
                self.workloads.setdefault(item.key, item)
                if item.key not in self.lent:
                    self._demand(item.key, now, item.replicas)
        elif isinstance(item, DisruptionBudget):
            self.budgets.setdefault(item.key, item)
        elif isinstance(item, Node):
            self._cordon(item, now)
        elif isinstance(item, Pod) and not item.mirror:
            owner = self.cluster.controller_of(item)
            if owner is not None and owner.type in (*_OWNERS, "DaemonSet"):
                self.samples.setdefault(owner.key, item)
            elif item.owner is None or item.owner.kind not in (*_OWNERS, "DaemonSet"):
                guest = self.guests.setdefault(item.uid, _Guest(item, now))
                if guest.runs is None and item.phase == "Running":
                    guest.runs = now

    def _end(self, kind: str, key: str, before: Cluster, now: int) -> None:
        if kind == "Workload" and key in self.demands:
            self._demand(key, now, 0)
        elif kind == "Pod" and (pod := before.pod(key)) is not None and pod.uid in self.guests:
            self.guests[pod.uid].gone = now
        elif kind == "Node":
            self._opened(key, now)
            if key not in self.deleted and any(_is_served(pod, before) for pod in before.pods_by_node.get(key, ())):
                self.lost.append((key, now))

    def _demand(self, workload: str, now: int, replicas: int) -> None:
        points = self.demands.setdefault(workload, [])
        if points and points[-1].ms == now:
            points.pop()
        if not points or points[-1].replicas != replicas:
            points.append(_Demand(now, replicas))

    def _cordon(self, node: Node, now: int) -> None:
        """A cordon of another autoscaler that is about to delete the node is what that policy did."""
        foreign = any(taint.key in FOREIGN_DELETION_TAINTS for taint in node.taints)
        if node.unschedulable and not foreign:
            self.cordoned.setdefault(node.name, now)
        elif not node.unschedulable:
            self._opened(node.name, now)

    def _opened(self, node: str, now: int) -> None:
        if node in self.cordoned:
            self.cordons.append(_Span(self.cordoned.pop(node), now, node))


def recorded_scenario(cluster: str, events: Iterable[tuple[str, Event]]) -> Loaded:
    """Return a recording as a scenario, with the files that it names.

    Args:
        cluster: name of the recorded cluster.
        events: stream (`STATE`, `LOG` or `USAGE`) and event, each stream in order.

    Raises:
        ScenarioError: it holds no state, hardly any time, or live nodes have no price.
    """
    listed = sorted(
        ((stream, event) for stream, event in events if stream in ("STATE", "LOG")),
        key=lambda item: (item[1].time, item[0] == "LOG"),
    )
    states = [event for _, event in listed if isinstance(event.body, ClusterSnapshot | ClusterDelta)]
    first = next((index for index, one in enumerate(states) if isinstance(one.body, ClusterSnapshot)), None)
    if first is None:
        raise ScenarioError(f"recording of {cluster}: it holds no full state; record while the observer runs")
    course = _Course(states[first].time)
    skipped = set(map(id, states[:first]))
    for _, event in listed:
        if isinstance(event.body, ClusterSnapshot | ClusterDelta):
            if id(event) not in skipped:
                course.see(event)
        else:
            course.note(event)
    if course.end_ms < _SHORTEST_MS:
        raise ScenarioError(f"recording of {cluster}: it covers {course.end_ms / 1000:g}s; record a minute or more")
    usage = (event for stream, event in events if stream == "USAGE")
    return _Writer(cluster, course).write(usage)


def _asks(workload: Workload, cluster: Cluster) -> bool:
    """Return whether a workload asks for pods by itself: a replica set of a Deployment does not."""
    if workload.type not in _OWNERS:
        return False
    owner = workload.owner
    return owner is None or (cluster.workload(owner.key_in(workload.namespace)) is None and owner.kind != "Deployment")


def _is_served(pod: Pod, cluster: Cluster) -> bool:
    """Return whether a pod on a node shows that it was not emptied before it went."""
    owner = cluster.controller_of(pod)
    daemon = pod.mirror or (owner is not None and owner.type == "DaemonSet")
    return not daemon and not pod.terminating and pod.phase == "Running"


@dataclass
class _Writer:
    """Writes the scenario."""

    name: str
    course: _Course
    files: dict[str, bytes] = field(default_factory=dict)
    _taken: set[tuple[str, str]] = field(default_factory=set)

    @property
    def first(self) -> Cluster:
        assert self.course.first is not None
        return self.course.first

    def write(self, usage: Iterable[Event]) -> Loaded:
        series = _usage(usage, self.course)
        guests = self._guests()
        scenario = Scenario(
            name=_slug(self.name),
            about=f"Recorded from cluster {self.name}, from {self.course.start.isoformat()} on.",
            duration=_time(self.course.end_ms // 1000 * 1000),
            cloud=self._cloud(),
            nodes=self._nodes(),
            daemons=self._daemons(),
            workloads=tuple(self._workload(key, series.get(key, ())) for key in sorted(self.course.workloads)),
            traces=(parts.Trace(file=guests, held=True),) if guests else (),
            faults=tuple(self._faults()),
        )
        file = f"{scenario.name}.yaml"
        sources = {file: msgspec.yaml.encode(scenario), **self.files}
        return load_scenario(file, sources.__getitem__, Path(file))

    # --- machines

    def _cloud(self) -> parts.Cloud:
        zones = {machine_of(node)[1] for node in self.first.nodes}
        offers = self.course.offers
        if offers is None:
            raise ScenarioError(
                f"recording of {self.name}: it holds no prices (catalog-published); record while the rescheduler runs"
            )
        groups: dict[bytes, tuple[parts.Machine, set[str]]] = {}
        for offer in offers:
            zones.add(offer.zone)
            machine = _machine(offer)
            groups.setdefault(msgspec.json.encode(machine), (machine, set()))[1].add(offer.zone)
        machines = [msgspec.structs.replace(one, zones=tuple(sorted(found))) for one, found in groups.values()]
        return parts.Cloud(
            types=tuple(sorted({one.type for one in machines})),
            zones=tuple(sorted(zones)),
            machines=(*machines, *self._not_on_sale(offers)),
            available={one.machine_type: one.available for one in offers if one.available is not None},
        )

    def _not_on_sale(self, offers: Sequence[Offer]) -> Iterator[parts.Machine]:
        """Yield the types of live nodes that are not on sale, at the price of these nodes."""
        unknown = unpriced_nodes(self.first, offers)
        if unknown:
            said = f"{unpriced_text(self.first, unknown)}; {unpriced_remedy(self.first, unknown)}"
            raise ScenarioError(f"recording of {self.name}: {said}")
        prices = node_prices(self.first, offers)
        known = {one.machine_type for one in offers}
        for node in self.first.nodes:
            machine, _, capacity = machine_of(node)
            if machine not in known:
                known.add(machine)
                yield parts.Machine(
                    type=machine,
                    vcpus=max(1, -(-node.allocatable.get("cpu", 0) // 1000)),
                    memory=_memory(node.allocatable),
                    usd_per_hour=prices[node.name] / 10**6,
                    allocatable_cpu=_cpu(node.allocatable),
                    allocatable_memory=_memory(node.allocatable),
                    spot=capacity == "spot",
                )

    def _nodes(self) -> tuple[parts.Nodes, ...]:
        return tuple(
            parts.Nodes(
                type=machine,
                zone=zone,
                name=node.name,
                spot=capacity == "spot",
                labels={key: value for key, value in node.labels.items() if not _OWN_LABELS.fullmatch(key)},
                taints=tuple(taint_text(one) for one in node.taints if _is_lasting(one.key)),
            )
            for node in self.first.nodes
            for machine, zone, capacity in (machine_of(node),)
        )

    def _faults(self) -> Iterator[parts.Fault]:
        there = {node.name for node in self.first.nodes}
        for name, at in self.course.lost:
            if name in there:
                yield parts.Fault(kind="node-lost", at=_time(at), node=name)
        spans = [*self.course.cordons, *(_Span(at, None, node) for node, at in sorted(self.course.cordoned.items()))]
        for span in spans:
            if span.what in there:
                lasts = (self.course.end_ms if span.end is None else span.end) - span.start
                yield parts.Fault(kind="cordon", at=_time(span.start), lasts=_time(lasts), node=span.what)
        for span in _merged(self.course.sold_out):
            machine, zone, _ = span.what.split("/")
            assert span.end is not None
            yield parts.Fault(
                kind="stock-out", at=_time(span.start), lasts=_time(span.end - span.start), zone=zone, type=machine
            )

    # --- pods

    def _daemons(self) -> tuple[parts.Daemon, ...]:
        found = {
            (one.namespace, one.name): parts.Daemon(
                name=one.name,
                namespace=one.namespace,
                cpu=_cpu(one.template_requests),
                memory=_memory(one.template_requests),
                pod=placement_spec(one.template_rules),
            )
            for one in self.first.workloads
            if one.type == "DaemonSet"
        }
        for pod in self.first.pods:
            if pod.mirror and pod.node is not None:
                name = pod.name.removesuffix(f"-{pod.node}")
                found.setdefault(
                    (pod.namespace, name),
                    parts.Daemon(
                        name=name, namespace=pod.namespace, cpu=_cpu(pod.requests), memory=_memory(pod.requests)
                    ),
                )
        return tuple(found.values())

    def _workload(self, key: str, series: parts.Series) -> parts.Workload:
        item, pod = self.course.workloads[key], self.course.samples.get(key)
        name = item.name if (item.namespace, item.name) not in self._taken else f"{item.name}-{item.type.lower()}"
        self._taken.add((item.namespace, name))
        points = self.course.demands[key]
        if points[0].ms:
            points = [_Demand(0, 0), *points]
        budget = next(
            (
                one
                for _, one in sorted(self.course.budgets.items())
                if one.namespace == item.namespace and selector_matches(one.selector, item.template_labels)
            ),
            None,
        )
        return parts.Workload(
            name=name,
            namespace=item.namespace,
            cpu=_cpu(item.template_requests),
            memory=_memory(item.template_requests),
            replicas=points[0].replicas if len(points) == 1 else tuple((_time(one.ms), one.replicas) for one in points),
            usage=self._series(f"usage/{item.namespace}.{name}.csv", series),
            kind="StatefulSet" if item.type == "StatefulSet" else "Deployment",
            max_unavailable=None if budget is None else _count(budget.max_unavailable),
            min_available=None if budget is None else _count(budget.min_available),
            local_storage=pod is not None and pod.local_storage,
            annotations={one: text for one, text in item.annotations.items() if one not in (ROLLED, HELD)},
            labels=dict(item.template_labels),
            pod_annotations={} if pod is None else {k: v for k, v in pod.annotations.items() if k != HELD},
            pod=self._pod(item, pod),
            places=self._places(key, points[0].replicas),
        )

    def _pod(self, item: Workload, pod: Pod | None) -> dict[str, object]:
        spec = placement_spec(item.template_rules)
        if pod is not None and pod.priority:
            spec["priority"] = pod.priority
        zones = {
            machine_of(node)[1]
            for one in self.first.pods_by_workload.get(item.key, ())
            if one.rules.claims and (node := self.first.node(one.node or "")) is not None
        }
        if len(zones) == 1:  # its volumes cannot be reached from elsewhere
            spec["nodeSelector"] = {**spec.get("nodeSelector", {}), "topology.kubernetes.io/zone": zones.pop()}
        return spec

    def _places(self, key: str, replicas: int) -> dict[str, int]:
        bound = [one.node for one in self.first.pods_by_workload.get(key, ()) if one.node is not None]
        there = [node for node in bound if self.first.node(node) is not None]
        return dict(Counter(sorted(there[:replicas])))

    def _series(self, file: str, series: parts.Series) -> str:
        if not series:
            return ""
        rows = [(f"{ms / 1000:g}", cpu, f"{(memory or 0) / 2**20:.1f}") for ms, cpu, memory in series]
        self.files[file] = _csv(("seconds", "cpu_m", "memory_mi"), rows)
        return file

    def _guests(self) -> str:
        rows = []
        for guest in sorted(self.course.guests.values(), key=lambda one: (one.at, one.pod.key)):
            gone = self.course.end_ms if guest.gone is None else guest.gone
            runs = guest.at if guest.runs is None else guest.runs
            requests = guest.pod.requests
            memory = f"{requests.get('memory', 0) / 2**20:.1f}"
            rows.append((f"{guest.at / 1000:g}", f"{max(0, gone - runs) / 1000:g}", requests.get("cpu", 0), memory))
        if not rows:
            return ""
        self.files["jobs.csv"] = _csv(("at", "lasts", "cpu_m", "memory_mi"), rows)
        return "jobs.csv"


def _machine(offer: Offer) -> parts.Machine:
    return parts.Machine(
        type=offer.machine_type,
        vcpus=max(1, -(-offer.capacity.get("cpu", 0) // 1000)),
        memory=_memory(offer.capacity),
        usd_per_hour=offer.micro_usd_per_hour / 10**6,
        watts=round(offer.watts or 0),
        allocatable_cpu=_cpu(offer.allocatable),
        allocatable_memory=_memory(offer.allocatable),
        spot=offer.capacity_type == "spot",
        labels={key: value for key, value in offer.labels.items() if not _OWN_LABELS.fullmatch(key)},
        taints=offer.taints,
    )


def _is_lasting(taint: str) -> bool:
    """Return whether a taint is the node's own: not one of its state, of an autoscaler or of Kinema."""
    return taint not in FOREIGN_DELETION_TAINTS and not taint.startswith((KINEMA_PREFIX, "node.kubernetes.io/"))


def _merged(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Yield spans of the same thing that touch as one."""
    last: _Span | None = None
    for span in sorted(spans, key=lambda one: (one.what, one.start)):
        if last is not None and last.what == span.what and span.start <= cast("int", last.end):
            last = last._replace(end=span.end)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _cpu(amounts: Amounts) -> str:
    return f"{amounts.get('cpu', 0)}m"


def _memory(amounts: Amounts) -> str:
    return str(amounts.get("memory", 0))


def _count(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() else text


def _usage(events: Iterable[Event], course: _Course) -> dict[str, parts.Series]:
    """Return what a pod of each workload used over time."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for event in events:
        body = event.body
        if not isinstance(body, UsageResampled | UsageCompacted):
            continue
        steps = body.steps if isinstance(body, UsageCompacted) else 1
        plane = len(body.workloads) * steps
        codes = unpack(f"<{len(QUANTITIES) * plane}H", codes_of(body))
        begin = round((body.start - course.start).total_seconds() * 1000)
        for index, key in enumerate(body.workloads):
            for step in range(steps):
                at = index * steps + step
                if amount_of(codes[at]):
                    ms = begin + round(step * body.step_seconds * 1000)
                    memory = amount_of(codes[2 * plane + at]) * UNITS["memory"]
                    used = amount_of(codes[plane + at]), memory
                    found.setdefault(key, {})[ms] = used
    return {key: _from_zero(points, course.end_ms) for key, points in found.items()}


def _from_zero(points: dict[int, tuple[int, int]], end: int) -> parts.Series:
    """Return a series from the beginning on; what came before it holds until its first step ends."""
    rising = sorted(points)
    early = [ms for ms in rising if ms <= 0]
    kept = [*early[-1:], *(ms for ms in rising if 0 < ms <= end)]
    return tuple((max(0, ms), *points[ms]) for ms in kept)


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue().encode()


def _time(ms: int) -> str:
    return f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "recorded"
