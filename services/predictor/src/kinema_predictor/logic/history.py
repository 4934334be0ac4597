"""History of what workloads used, as far back as a forecast may ask, in bounded memory.

Pods come and go; a sample belongs to the workload that its pod had when it was taken. Of the last minutes every sample
is kept, of the last day only what can still become the largest memory sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kinema_core.events import UsageSampled
from kinema_core.model.cluster import Cluster

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Batch:
    """Usage of the pods of one workload at one moment: millicores and bytes, one number per pod."""

    sampled: datetime
    cpu: Ints
    memory: Ints


@dataclass(frozen=True)
class Peak:
    """The largest memory sample of a workload's pods at one moment, bytes."""

    sampled: datetime
    memory: int


@dataclass(frozen=True)
class Usage:
    """History of one workload, oldest first."""

    recent: tuple[Batch, ...] = ()
    peaks: tuple[Peak, ...] = ()
    """Ever smaller: a peak that a later one reaches can never again be the largest of a window."""


@dataclass(frozen=True)
class Reach:
    """Time for which history is kept."""

    recent: timedelta = timedelta(minutes=30)
    peaks: timedelta = timedelta(hours=24)


@dataclass(frozen=True)
class History:
    """Usage by workload key (`Type/namespace/name`)."""

    usage: Mapping[str, Usage] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, workload: str) -> Usage:
        """Return the workload's usage; empty when nothing is known."""
        return self.usage.get(workload, Usage())


def remember(history: History, cluster: Cluster, event: UsageSampled, reach: Reach) -> History:
    """Add one reading; pods that the cluster does not know or that have no controller are left out."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    for used in event.pods:
        pod = cluster.pod(used.pod)
        workload = cluster.controller_of(pod) if pod is not None and pod.uid == used.uid else None
        if workload is not None:
            cpu, memory = found.setdefault(workload.key, ([], []))
            cpu.append(used.cpu)
            memory.append(used.memory)
    usage = {key: kept for key, old in history.usage.items() if (kept := _pruned(old, event.sampled, reach)) != Usage()}
    for key in sorted(found):
        usage[key] = _extended(usage.get(key, Usage()), event.sampled, *found[key])
    return History(MappingProxyType(usage))


def _pruned(usage: Usage, now: datetime, reach: Reach) -> Usage:
    recent, peaks = usage.recent, usage.peaks
    if recent and recent[0].sampled <= now - reach.recent:
        recent = tuple(batch for batch in recent if batch.sampled > now - reach.recent)
    if peaks and peaks[0].sampled <= now - reach.peaks:
        peaks = tuple(peak for peak in peaks if peak.sampled > now - reach.peaks)
    return usage if recent is usage.recent and peaks is usage.peaks else Usage(recent, peaks)


def _extended(usage: Usage, sampled: datetime, cpu: list[int], memory: list[int]) -> Usage:
    if usage.recent and sampled <= usage.recent[-1].sampled:
        return usage  # the same reading again, or one out of order
    largest = max(memory)
    lasting = len(usage.peaks)
    while lasting and usage.peaks[lasting - 1].memory <= largest:
        lasting -= 1
    batch = Batch(sampled, np.array(cpu, dtype=np.int64), np.array(memory, dtype=np.int64))
    return Usage((*usage.recent, batch), (*usage.peaks[:lasting], Peak(sampled, largest)))
