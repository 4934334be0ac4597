"""Events for tests of the bus."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

from kinema_core.events import ClusterSnapshot, Event, ExecutionPaused, ForecastMade, IterationStarted, Pod
from kinema_core.runtime.envelope import origin

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def iteration(number: int, cluster: str = "c1") -> Event:
    """Iteration `number` begins: the predictor's and optimizer's consumers get it."""
    body = IterationStarted(mode="reschedule", version=number, reason="drift")
    return origin(body, id_=f"it-{number}", cluster=cluster, iteration=f"it-{number}", now=NOW)


def forecast(number: int, cluster: str = "c1") -> Event:
    """A forecast: the optimizer's consumer gets it, the predictor's does not."""
    body = ForecastMade(version=number, forecasts=())
    return origin(body, id_=f"it-{number}/predictor/0", cluster=cluster, iteration=f"it-{number}", now=NOW)


def paused(number: int, cluster: str = "c1") -> Event:
    """An operator's pause."""
    return origin(ExecutionPaused(by="ann"), id_=f"pause-{number}", cluster=cluster, iteration="", now=NOW)


def snapshot(version: int, pods: int, cluster: str = "c1") -> Event:
    """A snapshot of pods whose uids do not compress: 20,000 of them are about 1 MiB in chunks."""
    objects = tuple(
        Pod(namespace="shop", name=f"pod-{n}", uid=sha256(f"{version}/{n}".encode()).hexdigest()) for n in range(pods)
    )
    body = ClusterSnapshot(version=version, objects=objects)
    return origin(body, id_=f"{cluster}/state/{version}", cluster=cluster, iteration="", now=NOW, state=version)
