"""The disruption audit: what users of the workloads could notice during an execution.

It looks at ready counts only, as the cluster itself recorded them. It shares nothing with the services, so a mistake
of theirs shows here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReadyPoint:
    """Ready replicas of a workload from `at` (seconds) until the next point.

    `replicas` is what the workload's owner asks for. The surplus that a surge adds for a while is no part of it.
    """

    at: float
    replicas: int
    ready: int


@dataclass(frozen=True)
class WorkloadAudit:
    """The audit of one workload; times in seconds, `unready_pod_seconds` sums the replicas that were missing."""

    workload: str
    strategy: str
    replicas: int
    """At the end of the window."""
    least_ready: int
    floor: int
    """The least that was allowed at the moment of `least_ready`."""
    violations: int
    """Separate stretches of time below the floor."""
    violation_seconds: float
    unready_pod_seconds: float


@dataclass(frozen=True)
class Audit:
    """The audit of all workloads in one window of time (seconds)."""

    start: float
    end: float
    workloads: tuple[WorkloadAudit, ...]

    @property
    def violations(self) -> int:
        """Violations of all workloads together."""
        return sum(item.violations for item in self.workloads)

    @property
    def unready_pod_seconds(self) -> float:
        """Missing replicas times seconds, all workloads together."""
        return sum(item.unready_pod_seconds for item in self.workloads)


def floor_of(strategy: str, replicas: int) -> int:
    """Return the least ready count that a strategy may cause: an eviction takes one replica away."""
    return max(0, replicas - 1) if strategy == "evict" else replicas


def audit(
    series: Mapping[str, Sequence[ReadyPoint]], strategies: Mapping[str, str], *, start: float, end: float
) -> Audit:
    """Audit every workload between `start` and `end`.

    Args:
        series: Points of each workload in order of time; the last one before `start` still counts.
        strategies: How a workload's pods were moved; one that is not named was left alone.
        start: Beginning of the window, seconds.
        end: End of the window, seconds.
    """
    audited = (
        _workload(name, strategies.get(name, "-"), _within(series[name], start=start, end=end), end=end)
        for name in sorted(series)
    )
    return Audit(start=start, end=end, workloads=tuple(item for item in audited if item is not None))


def _within(points: Sequence[ReadyPoint], *, start: float, end: float) -> list[ReadyPoint]:
    """Return points that hold inside the window; the one that held at its start is moved there."""
    before = [point for point in points if point.at <= start]
    inside = [point for point in points if start < point.at < end]
    held = [ReadyPoint(at=start, replicas=before[-1].replicas, ready=before[-1].ready)] if before else []
    return held + inside


def _workload(name: str, strategy: str, points: Sequence[ReadyPoint], *, end: float) -> WorkloadAudit | None:
    if not points:
        return None
    worst = points[0]
    violations, below, missing = 0, 0.0, 0.0
    was_below = False
    for point, until in zip(points, [*(later.at for later in points[1:]), end], strict=True):
        lasting = max(0.0, until - point.at)
        is_below = point.ready < floor_of(strategy, point.replicas)
        violations += is_below and not was_below
        below += lasting if is_below else 0.0
        missing += max(0, point.replicas - point.ready) * lasting
        was_below = is_below
        # The smallest distance to the floor decides: seven of ten is worse than two of two.
        if point.ready - floor_of(strategy, point.replicas) < worst.ready - floor_of(strategy, worst.replicas):
            worst = point
    return WorkloadAudit(
        workload=name,
        strategy=strategy,
        replicas=points[-1].replicas,
        least_ready=worst.ready,
        floor=floor_of(strategy, worst.replicas),
        violations=violations,
        violation_seconds=below,
        unready_pod_seconds=missing,
    )
