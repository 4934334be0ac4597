"""The simulated cluster's own record, as `/sim/v1/history` gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from kinema_cli.report.audit import ReadyPoint
from kinema_cli.report.data import Load, Replicas, Sample


class HistoryError(ValueError):
    """The text is no such record; says where it is not."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that is paid for."""

    name: str
    machine_type: str
    usd_per_hour: float
    ready: bool


class Count(msgspec.Struct, frozen=True):
    """Replicas of a workload: `spec.replicas`, and the pods of it that are ready and not leaving."""

    desired: int
    ready: int


class Sums(msgspec.Struct, frozen=True):
    """A sum over the cluster."""

    cpu_m: int
    memory_bytes: int


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment."""

    time: datetime
    nodes: tuple[Machine, ...]
    usd_per_hour: float
    workloads: dict[str, Count]
    """`Kind namespace/name` → its replicas."""
    pending: int
    requested: Sums
    allocatable: Sums
    used: Sums


class History(msgspec.Struct, frozen=True):
    """The whole record, in order of time."""

    samples: tuple[Moment, ...]


def read_history(data: bytes) -> History:
    """Decode the record; raises HistoryError."""
    try:
        return msgspec.json.decode(data, type=History)
    except msgspec.DecodeError as error:
        raise HistoryError(f"this is no history of the simulated cluster: {error}") from error


def workload_key(name: str) -> str:
    """Return `Deployment/shop/web` for `Deployment shop/web`."""
    return name.replace(" ", "/", 1)


def samples_of(history: History, start: datetime) -> tuple[Sample, ...]:
    """Return what the plots show, from `start` on; daemon sets are left out, as their replicas are the nodes'."""
    return tuple(_sample(item, start) for item in history.samples if item.time >= start)


def _sample(item: Moment, start: datetime) -> Sample:
    machines: dict[str, int] = {}
    for node in item.nodes:
        machines[node.machine_type] = machines.get(node.machine_type, 0) + 1
    return Sample(
        at=(item.time - start).total_seconds(),
        machines=machines,
        usd_per_hour=item.usd_per_hour,
        cpu=Load(item.requested.cpu_m, item.allocatable.cpu_m, item.used.cpu_m),
        memory=Load(item.requested.memory_bytes, item.allocatable.memory_bytes, item.used.memory_bytes),
        workloads={
            workload_key(name): Replicas(desired=count.desired, ready=count.ready)
            for name, count in item.workloads.items()
            if not name.startswith("DaemonSet ")
        },
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
