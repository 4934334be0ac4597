"""Replicas that are expected soon beyond those that are there: by when, and what they will request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from kinema_core.events import EMPTY, Amounts, ReplicasAhead, ReplicasExpected
from kinema_core.model.cluster import Cluster
from kinema_core.model.resources import add, scaled

GRACE: Final = timedelta(minutes=15)
"""Time for which replicas that were expected and did not come are still waited for."""


def more_within(ahead: ReplicasAhead | None, cluster: Cluster, now: datetime, seconds: float) -> Mapping[str, int]:
    """Return by workload how many pods more than now are expected at any time within so many seconds."""
    if ahead is None:
        return {}
    last = _step(ahead, now + timedelta(seconds=seconds))
    return {
        one.workload: most
        for one in ahead.workloads
        if (most := max(_more(ahead, one, cluster, now)[: last - _step(ahead, now) + 1], default=0)) > 0
    }


def needed_later(ahead: ReplicasAhead | None, cluster: Cluster, now: datetime) -> Iterator[tuple[float, Amounts]]:
    """Yield in how many seconds pods beyond those of now are expected, and what they request together, by step."""
    if ahead is None:
        return
    rises = {one.workload: _more(ahead, one, cluster, now) for one in ahead.workloads}
    first = _step(ahead, now)
    for index in range(max(map(len, rises.values()), default=0)):
        needed: Amounts = EMPTY
        for workload, more in rises.items():
            if more[index : index + 1] and more[index]:
                needed = add(needed, scaled(cluster.pods_by_workload[workload][0].requests, more[index]))
        begins = ahead.start + timedelta(seconds=(first + index) * ahead.step_seconds)
        yield max(0.0, (begins - now).total_seconds()), needed


def _more(ahead: ReplicasAhead, one: ReplicasExpected, cluster: Cluster, now: datetime) -> list[int]:
    """Return how many pods are missing in each step from that of `now` on, without those that were due long ago.

    A day without the usual peak has its room for as long as `GRACE`, not for as long as the peak lasts.
    """
    pods = cluster.pods_by_workload.get(one.workload, ())
    due = one.replicas[min(_step(ahead, now - GRACE), len(one.replicas) - 1)] if one.replicas else 0
    there = max(due, sum(not pod.terminating for pod in pods))
    return [max(0, count - there) for count in one.replicas[_step(ahead, now) :]] if pods else []


def _step(ahead: ReplicasAhead, at: datetime) -> int:
    """Return which step a moment is in; the first before all of them."""
    return max(0, int((at - ahead.start).total_seconds() // ahead.step_seconds))
