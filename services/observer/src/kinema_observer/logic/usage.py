"""Readings of the metrics API (`metrics.k8s.io`): what each pod used, and steps of what workloads used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kinema_core.events import Pod, PodUsage, UsageResampled, UsageSampled
from kinema_core.model.cluster import Cluster
from kinema_core.model.usage import Amounts, resampled, step_start, upper
from kinema_core.model.vocabulary import parse_duration
from kinema_observer.errors import UnreadableFieldError, UnreadableListError
from kinema_observer.logic.reading import amounts_of, key_of
from kinema_observer.logic.wire import Meta, Scalar, Time, Wire


class _Container(Wire):
    usage: dict[str, Scalar] | None = None


class _PodMetrics(Wire):
    metadata: Meta
    timestamp: Time
    window: str = ""
    containers: list[_Container] | None = None


class _List(Wire):
    items: list[msgspec.Raw] | None = None


STARTING: Final = timedelta(seconds=120)
"""Time for which a pod starts: what it computes then says nothing about what it needs afterwards. Its memory counts."""
OUTLIER: Final = 2
"""Times what its node has above which a sample is wrong."""

_LISTS: Final = msgspec.json.Decoder(_List)
_PODS: Final = msgspec.json.Decoder(_PodMetrics)


@dataclass(frozen=True)
class Usage:
    """One reading: its newest timestamp, its longest window, and for each pod key millicores and bytes."""

    sampled: datetime
    window_seconds: float
    pods: tuple[tuple[str, int, int], ...]
    unreadable: int
    """Pods whose figures could not be read; they are left out."""


@dataclass(frozen=True)
class Collected:
    """What a source has of the time that has passed."""

    steps: tuple[UsageResampled, ...] = ()
    """In order of time; a step without samples is left out."""
    reading: UsageSampled | None = None
    """Usage of each pod, at most one in a step."""
    has_more: bool = False
    """Whether there is more of the past. The steps then end a row, and the next ones are asked for at once."""


def usage_of(data: bytes) -> Usage | None:
    """Read a list of pod metrics; None when it holds no reading.

    Raises:
        UnreadableListError: the data is no list.
    """
    try:
        items = _LISTS.decode(data).items or []
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableListError(f"the metrics API answered no list: {error}") from error
    found: list[tuple[str, int, int]] = []
    times: list[datetime] = []
    windows = [0.0]
    for raw in items:
        try:
            metrics = _PODS.decode(raw)
            parts = [amounts_of(item.usage, "usage") for item in metrics.containers or ()]
        except (msgspec.DecodeError, UnicodeDecodeError, UnreadableFieldError):
            continue
        cpu, memory = (sum(part.get(name, 0) for part in parts) for name in ("cpu", "memory"))
        found.append((key_of(metrics.metadata), cpu, memory))
        times.append(metrics.timestamp)
        window = parse_duration(metrics.window)
        windows.append(window.total_seconds() if window is not None else 0.0)
    if not found:
        return None
    return Usage(max(times), max(windows), tuple(sorted(found)), len(items) - len(found))


def sample(usage: Usage, cluster: Cluster) -> UsageSampled:
    """Return the reading as an event: usage of the pods that the cluster state knows, with their uids."""
    known = ((cluster.pod(key), cpu, memory) for key, cpu, memory in usage.pods)
    return UsageSampled(
        sampled=usage.sampled,
        window_seconds=usage.window_seconds,
        pods=tuple(
            PodUsage(pod=pod.key, uid=pod.uid, cpu=cpu, memory=memory) for pod, cpu, memory in known if pod is not None
        ),
    )


@dataclass
class _OfPod:
    """Readings of one pod in one step."""

    workload: str
    cpu: int = 0
    readings: int = 0
    """Those that count for CPU."""
    memory: int = 0


@dataclass
class UsageStep:
    """Readings of one step of time, until it is closed."""

    start: datetime
    step: timedelta
    dropped: int = 0
    _pods: dict[str, _OfPod] = field(default_factory=dict)

    @classmethod
    def around(cls, moment: datetime, step: timedelta) -> UsageStep:
        """Return the empty step that a moment lies in."""
        return cls(step_start(moment, step.total_seconds()), step)

    @property
    def end(self) -> datetime:
        """Return when the step ends."""
        return self.start + self.step

    def add(self, usage: Usage, cluster: Cluster) -> None:
        """Add a reading: usage of the pods that the state knows and that a workload controls."""
        for key, cpu, memory in usage.pods:
            pod = cluster.pod(key)
            workload = cluster.controller_of(pod) if pod is not None else None
            if pod is None or workload is None:
                continue
            if _is_outlier(pod, cluster, cpu, memory):
                self.dropped += 1
                continue
            used = self._pods.setdefault(pod.uid, _OfPod(workload.key))
            used.memory = max(used.memory, memory)
            if pod.started is None or usage.sampled - pod.started >= STARTING:
                used.cpu, used.readings = used.cpu + cpu, used.readings + 1

    def closed(self, source: str) -> UsageResampled | None:
        """Return the step as an event; None where no pod has a reading.

        A workload of which every pod is only starting has no CPU, and so no sample at all.
        """
        found: dict[str, list[_OfPod]] = {}
        for used in self._pods.values():
            found.setdefault(used.workload, []).append(used)
        rows = {
            key: [(-(-pod.cpu // pod.readings) if pod.readings else None, pod.memory) for pod in pods]
            for key, pods in found.items()
        }
        return step_of(rows, start=self.start, step=self.step, source=source, dropped=self.dropped)


def step_of(
    usage: Mapping[str, Sequence[tuple[int | None, int]]],
    *,
    start: datetime,
    step: timedelta,
    source: str,
    dropped: int,
) -> UsageResampled | None:
    """Return what the pods of workloads used in one step; None where no pod has CPU that counts.

    Args:
        usage: of each workload the millicores (None: the pod was starting) and bytes of its pods.
        start: of the step.
        step: its length.
        source: of the samples.
        dropped: samples that cannot be.
    """
    rows = {}
    for key, pods in usage.items():
        settled = [cpu for cpu, _ in pods if cpu is not None]
        if settled:
            rows[key] = Amounts(len(pods), upper(settled), max(memory for _, memory in pods))
    return resampled(rows, start=start, step=step, source=source, dropped=dropped) if rows else None


def _is_outlier(pod: Pod, cluster: Cluster, cpu: int, memory: int) -> bool:
    node = cluster.node(pod.node) if pod.node is not None else None
    return node is not None and is_outlier(node.allocatable, cpu, memory)


def is_outlier(has: Mapping[str, int], cpu: float, memory: float) -> bool:
    """Return whether a pod of a node that has so much cannot have used this."""
    return cpu > OUTLIER * has.get("cpu", cpu) or memory > OUTLIER * has.get("memory", memory)
