"""Forecast of requests from history: refusals, prediction, bounded step and floors.

Source: the Kinema thesis, algorithm 5, with the step taken as a bound on the change, not as a factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinema_core.events import Amounts, ForecastRefused, FrozenMap, Pod, Workload, WorkloadForecast
from kinema_core.model.cluster import Cluster
from kinema_predictor.logic.history import Batch, History, Usage

MAX_STEP: Final = "kinema.io/rightsizing-max-step"
RESOURCES: Final = ("cpu", "memory")
MIN_READINGS: Final = 5
"""Readings at different times: one reading of five pods shows no course in time."""
CPU_FLOOR: Final = 10
"""Millicores."""
MEMORY_MARGIN: Final = Fraction(11, 10)
"""Above the largest sample of the peak window."""
WORTH: Final = Fraction(1, 100)
"""A smaller change of every resource is not worth a restart."""


@dataclass(frozen=True)
class Rules:
    """Limits that an operator sets; times are of the cluster."""

    max_change: Fraction
    """Largest change of a request in one iteration, as a fraction of it."""
    learning: timedelta = timedelta(minutes=15)
    horizon: timedelta = timedelta(minutes=15)
    peaks: timedelta = timedelta(hours=24)


class _RefusedError(Exception):
    """No forecast for this workload."""

    def __init__(self, reason: str, **figures: float | str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.figures = figures


def forecasts(
    cluster: Cluster, history: History, now: datetime, rules: Rules
) -> tuple[tuple[WorkloadForecast, ...], tuple[ForecastRefused, ...]]:
    """Return a forecast or a refusal for every workload with pods that no other workload stands above, by key."""
    made: list[WorkloadForecast] = []
    refused: list[ForecastRefused] = []
    for workload in cluster.workloads:
        pods = cluster.pods_by_workload.get(workload.key, ())
        if not pods:
            continue
        try:
            made.append(_forecast(workload, pods, history.of(workload.key), now=now, rules=rules))
        except _RefusedError as error:
            figures = FrozenMap(dict(sorted(error.figures.items())))
            refused.append(ForecastRefused(workload=workload.key, reason=error.reason, figures=figures))
    return tuple(made), tuple(refused)


def _forecast(
    workload: Workload, pods: Sequence[Pod], usage: Usage, *, now: datetime, rules: Rules
) -> WorkloadForecast:
    max_change = _max_change(workload, rules)
    current = workload.template_requests
    _refuse_unfit(workload, pods, current)
    batches = [batch for batch in usage.recent if now - rules.learning < batch.sampled <= now]
    count = sum(len(batch.cpu) for batch in batches)
    _refuse_disturbed(pods, len({batch.sampled for batch in batches}), now=now, rules=rules)
    cpu, memory = _predicted(batches, now, rules)
    peak = max((peak.memory for peak in usage.peaks if now - rules.peaks < peak.sampled <= now), default=0)
    floors = {"cpu": CPU_FLOOR, "memory": _up(peak * MEMORY_MARGIN)}
    predicted = {"cpu": cpu, "memory": memory}
    after = {
        name: _below(
            workload.template_ceiling.get(name),
            max(stepped(current[name], predicted[name], max_change), floors[name]),
        )
        for name in _changeable(workload, current)
    }
    worth = any(abs(amount - current[name]) >= WORTH * current[name] for name, amount in after.items())
    return WorkloadForecast(
        workload=workload.key,
        requests_before=current,
        requests_after=FrozenMap({**current, **after}) if worth else current,
        predicted=FrozenMap(predicted),
        samples=count,
    )


def _below(ceiling: int | None, amount: int) -> int:
    """Return at most the ceiling: the API server refuses requests above the limit, so a rolling update would fail."""
    return amount if ceiling is None else min(amount, ceiling)


def stepped(current: int, predicted: int, max_change: Fraction) -> int:
    """Return the current request moved towards the prediction, by at most `max_change` of itself (rounded down)."""
    most = int(current * max_change)
    return current + max(-most, min(most, predicted - current))


def _max_change(workload: Workload, rules: Rules) -> Fraction:
    text = workload.annotations.get(MAX_STEP)
    if text is None:
        max_change = rules.max_change
    else:
        try:
            max_change = Fraction(text.strip())
        except (ValueError, ZeroDivisionError) as error:
            raise _RefusedError("invalid-max-step", annotation=MAX_STEP, value=text) from error
    if not 0 <= max_change <= 1:
        raise _RefusedError("invalid-max-step", annotation=MAX_STEP, value=text or str(max_change))
    if max_change == 0:
        raise _RefusedError("turned-off")
    return max_change


def _refuse_unfit(workload: Workload, pods: Sequence[Pod], current: Amounts) -> None:
    """Only what a rolling update of a settled Deployment can change is worth a forecast."""
    if workload.type != "Deployment":
        raise _RefusedError("not-a-deployment", type=workload.type)
    if not any(current.get(name, 0) for name in RESOURCES):
        raise _RefusedError("no-requests")
    if not _changeable(workload, current):
        raise _RefusedError("requests-not-of-containers")
    others = sum(any(pod.requests.get(name, 0) != current.get(name, 0) for name in RESOURCES) for pod in pods)
    if others:
        # A roll-out is under way, or admission adds to the pods what their template does not state.
        raise _RefusedError("requests-differ-from-template", pods=others)


def _changeable(workload: Workload, current: Amounts) -> tuple[str, ...]:
    """Resources of which the template asks for exactly what its containers do.

    A rolling update writes requests of containers only. Where an init container, a sidecar, overhead or what is written
    for the pod as a whole says more, the pods would never ask for what was forecast, and be rolled again and again.
    """
    stated = workload.template_containers
    found = []
    for name in RESOURCES:
        amount = current.get(name, 0)
        whole = any(not one.name and name in one.requests for one in stated)
        asked = sum(one.requests.get(name, 0) for one in stated if one.name and not one.init)
        if amount > 0 and (not stated or (asked == amount and not whole)):
            found.append(name)
    return tuple(found)


def _refuse_disturbed(pods: Sequence[Pod], readings: int, *, now: datetime, rules: Rules) -> None:
    if readings == 0:
        raise _RefusedError("no-data")
    if readings < MIN_READINGS:
        raise _RefusedError("few-samples", readings=readings, needed=MIN_READINGS)
    for pod in pods:
        if pod.last_restart is not None and pod.last_restart > now - rules.learning:
            ago = (now - pod.last_restart).total_seconds()
            raise _RefusedError("restarted", pod=pod.key, ago_seconds=ago)


def _predicted(batches: Sequence[Batch], now: datetime, rules: Rules) -> tuple[int, int]:
    """Mean prediction per pod over the horizon: millicores and bytes."""
    times = [(batch.sampled - now).total_seconds() for batch in batches]
    seconds = np.repeat(np.array(times), [len(batch.cpu) for batch in batches])
    usage: NDArray[np.float64] = np.stack(
        [
            np.concatenate([batch.cpu for batch in batches]).astype(np.float64),
            np.concatenate([batch.memory for batch in batches]).astype(np.float64),
        ],
        axis=1,
    )
    ahead = mean_ahead(seconds, usage, rules.horizon.total_seconds())
    if not np.isfinite(ahead).all():
        raise _RefusedError("not-a-number")
    return _nearest(float(ahead[0])), _nearest(float(ahead[1]))


def _nearest(amount: float) -> int:
    """Return the nearest whole amount, halves up, never below 0."""
    return max(0, int(Fraction(amount) + Fraction(1, 2)))


def _up(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)


def mean_ahead(seconds: NDArray[np.float64], usage: NDArray[np.float64], horizon: float) -> NDArray[np.float64]:
    """Return the mean over the next `horizon` seconds of the line fitted through the samples (least squares).

    Args:
        seconds: (n,) when samples were taken, before now, so 0 or less.
        usage: (n, k) the samples of k quantities.
        horizon: seconds ahead.

    Returns:
        (k,): the means. The mean of a line over a span is its value in the middle of it.
    """
    away, average = seconds - seconds.mean(), usage.mean(axis=0)
    spread = (away**2).sum()
    slope = (away[:, None] * (usage - average)).sum(axis=0) / spread if spread else np.zeros_like(average)
    ahead: NDArray[np.float64] = average + slope * (horizon / 2 - seconds.mean())
    return ahead
