"""Readings of the metrics API (`metrics.k8s.io`): what each pod used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from kinema_core.events import PodUsage, UsageSampled
from kinema_core.model.cluster import Cluster
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
